//! Texts to vectors, with a BERT encoder from a Hugging Face folder.
//!
//! A text becomes word pieces with the model's own tokenizer, goes through the encoder, and the last layer's rows
//! become one vector, which is scaled to length 1 (sentence-transformers; [arXiv
//! 1908.10084](https://arxiv.org/abs/1908.10084)). Vectors have the same bits whatever other texts are encoded
//! beside them, and on any number of threads.
//!
//! Not for: training, pairs of texts, or decoders.

mod config;
mod forward;
mod weights;

use std::path::Path;

use seed_kernels::parallel;
use tokenizers::{Tokenizer, TruncationParams};

use crate::RetrievalError;
use config::BertConfig;
use weights::BertWeights;

/// Token rows that go through the encoder together: enough for its products to be fast, few enough to stay in cache.
const PACK_ROWS: usize = 512;

/// How the last layer's rows become one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pooling {
    /// Their mean.
    Mean,
    /// The first row.
    FirstToken,
}

/// How texts are encoded.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct EncoderOptions {
    /// Put in front of every query: e5's is `query: `. MiniLM has none.
    pub query_prefix: String,
    /// Put in front of every passage: e5's is `passage: `. MiniLM has none.
    pub passage_prefix: String,
    /// Longest text in tokens, the two special ones included; more are cut off. `None` takes `max_seq_length` of the
    /// folder's `sentence_bert_config.json`, else as many as the model has positions for.
    pub max_tokens: Option<usize>,
    /// `None` takes what the folder's `1_Pooling/config.json` says, else the mean.
    pub pooling: Option<Pooling>,
}

/// A sentence encoder. Reading only: any number of threads can share it.
#[derive(Debug)]
pub struct SentenceEncoder {
    tokenizer: Tokenizer,
    config: BertConfig,
    weights: BertWeights,
    options: EncoderOptions,
    pooling: Pooling,
    digest: String,
}

impl SentenceEncoder {
    /// Reads `config.json`, `model.safetensors` and `tokenizer.json` of a folder, and what sentence-transformers
    /// put beside them, if it did.
    ///
    /// # Errors
    /// [`RetrievalError::Encoder`] naming the file that is missing, damaged, or of a model that is no BERT encoder.
    pub fn open(folder: &Path, options: EncoderOptions) -> Result<Self, RetrievalError> {
        let mut hasher = blake3::Hasher::new();
        let config = BertConfig::read(folder, &mut hasher)?;
        let longest = match options.max_tokens {
            Some(tokens) => tokens,
            None => config::longest_sequence(folder)?.unwrap_or(config.max_position_embeddings),
        };
        // Both special tokens have to fit, and every token needs a position.
        let longest = longest.clamp(2, config.max_position_embeddings);
        let pooling = match options.pooling {
            Some(pooling) => pooling,
            None => config::pooling(folder)?.unwrap_or(Pooling::Mean),
        };
        let tokenizer = read_tokenizer(folder, longest, config.vocab_size, &mut hasher)?;
        let weights = BertWeights::read(folder, &config, &mut hasher)?;
        hasher.update(options.passage_prefix.as_bytes());
        hasher.update(&(longest as u64).to_le_bytes());
        let pooling_name = match pooling {
            Pooling::Mean => "mean",
            Pooling::FirstToken => "first token",
        };
        hasher.update(pooling_name.as_bytes());
        Ok(Self {
            tokenizer,
            config,
            weights,
            options,
            pooling,
            digest: hasher.finalize().to_hex().to_string(),
        })
    }

    /// Numbers per vector.
    pub fn dimension(&self) -> usize {
        self.config.hidden_size
    }

    /// The options it was opened with.
    pub fn options(&self) -> &EncoderOptions {
        &self.options
    }

    /// A hexadecimal BLAKE3 digest of all that the vector of a passage depends on: files, prefix, length, pooling.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The vectors of queries, `[texts, dimension]` row-major.
    ///
    /// # Errors
    /// [`RetrievalError::Tokens`].
    pub fn encode_queries(&self, texts: &[&str]) -> Result<Vec<f32>, RetrievalError> {
        self.encode(&self.options.query_prefix, texts)
    }

    /// The vectors of passages, `[texts, dimension]` row-major.
    ///
    /// # Errors
    /// [`RetrievalError::Tokens`].
    pub fn encode_passages(&self, texts: &[&str]) -> Result<Vec<f32>, RetrievalError> {
        self.encode(&self.options.passage_prefix, texts)
    }

    fn encode(&self, prefix: &str, texts: &[&str]) -> Result<Vec<f32>, RetrievalError> {
        let ids = parallel::map(texts, |text| self.tokens(prefix, text))
            .into_iter()
            .collect::<Result<Vec<_>, _>>()?;
        // Texts of similar length make packs of similar size; where a text ends up in a pack changes no bit of its
        // vector.
        let mut order: Vec<usize> = (0..texts.len()).collect();
        order.sort_by_key(|&index| std::cmp::Reverse(ids.get(index).map_or(0, Vec::len)));
        let packs = packs(&order, |index| ids.get(index).map_or(0, Vec::len));
        let encoded = parallel::map(&packs, |pack| {
            let sequences: Vec<&[u32]> = pack
                .iter()
                .filter_map(|&index| ids.get(index).map(Vec::as_slice))
                .collect();
            forward::encode(&self.weights, &self.config, &sequences, self.pooling)
        });
        let dimension = self.dimension();
        let mut vectors = vec![0.0; texts.len() * dimension];
        let mut rows: Vec<&mut [f32]> = vectors.chunks_exact_mut(dimension).collect();
        for (pack, encoded) in packs.iter().zip(&encoded) {
            for (&index, vector) in pack.iter().zip(encoded.chunks_exact(dimension)) {
                if let Some(row) = rows.get_mut(index) {
                    row.copy_from_slice(vector);
                }
            }
        }
        Ok(vectors)
    }

    /// The ids of a text with the special tokens around it.
    fn tokens(&self, prefix: &str, text: &str) -> Result<Vec<u32>, RetrievalError> {
        let encoding = self
            .tokenizer
            .encode_fast([prefix, text].concat(), true)
            .map_err(|error| RetrievalError::Tokens {
                characters: text.chars().count(),
                message: error.to_string(),
            })?;
        Ok(encoding.get_ids().to_vec())
    }
}

/// `order` cut into packs of at most [`PACK_ROWS`] rows, a longer text alone.
fn packs(order: &[usize], rows: impl Fn(usize) -> usize) -> Vec<Vec<usize>> {
    let mut packs: Vec<Vec<usize>> = Vec::new();
    let mut filled = 0;
    for &index in order {
        let length = rows(index);
        match packs.last_mut() {
            Some(pack) if filled + length <= PACK_ROWS => {
                pack.push(index);
                filled += length;
            }
            _ => {
                packs.push(vec![index]);
                filled = length;
            }
        }
    }
    packs
}

/// Reads the tokenizer, which must give only ids below `vocabulary`.
fn read_tokenizer(
    folder: &Path,
    longest: usize,
    vocabulary: usize,
    hasher: &mut blake3::Hasher,
) -> Result<Tokenizer, RetrievalError> {
    let path = folder.join("tokenizer.json");
    let unusable = |message: String| RetrievalError::Encoder {
        path: path.clone(),
        message,
    };
    let text = config::read_text(&path)?;
    hasher.update(text.as_bytes());
    // The library panics on some malformed contents, and the file comes from a stranger.
    serde_json::from_str::<serde::de::IgnoredAny>(&text).map_err(|error| unusable(error.to_string()))?;
    let mut tokenizer = std::panic::catch_unwind(|| Tokenizer::from_bytes(&text))
        .map_err(|_| unusable("a part of it has malformed contents".to_owned()))?
        .map_err(|error| unusable(error.to_string()))?;
    tokenizer.with_padding(None);
    let truncation = TruncationParams {
        max_length: longest,
        ..TruncationParams::default()
    };
    tokenizer
        .with_truncation(Some(truncation))
        .map_err(|error| unusable(error.to_string()))?;
    let largest = tokenizer.get_vocab(true).into_values().max().unwrap_or(0);
    if largest as usize >= vocabulary {
        return Err(unusable(format!(
            "it has the id {largest}, but `vocab_size` in config.json is {vocabulary}"
        )));
    }
    Ok(tokenizer)
}
