//! What a folder says about its encoder.
//!
//! Not for: weights or tokens.

use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Pooling;
use crate::RetrievalError;

/// Largest text file that is read, in bytes.
const TEXT_LIMIT: u64 = 64 << 20;

/// Largest value of any size in a configuration: keeps their products from overflowing.
const SIZE_LIMIT: usize = 1 << 20;

/// The sizes in `config.json`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct BertConfig {
    model_type: String,
    pub(super) vocab_size: usize,
    pub(super) hidden_size: usize,
    pub(super) num_hidden_layers: usize,
    pub(super) num_attention_heads: usize,
    pub(super) intermediate_size: usize,
    pub(super) max_position_embeddings: usize,
    pub(super) type_vocab_size: usize,
    pub(super) layer_norm_eps: f64,
    hidden_act: String,
    position_embedding_type: Option<String>,
}

impl BertConfig {
    pub(super) fn read(folder: &Path, hasher: &mut blake3::Hasher) -> Result<Self, RetrievalError> {
        let path = folder.join("config.json");
        let text = read_text(&path)?;
        hasher.update(text.as_bytes());
        let config: Self = parse(&path, &text)?;
        config
            .check()
            .map_err(|message| RetrievalError::Encoder { path, message })?;
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        if self.model_type != "bert" {
            return Err(format!(
                "`model_type` is `{}`; only `bert` encoders are read",
                self.model_type
            ));
        }
        if self.hidden_act != "gelu" {
            return Err(format!(
                "`hidden_act` is `{}`; only `gelu` is known",
                self.hidden_act
            ));
        }
        if self
            .position_embedding_type
            .as_deref()
            .is_some_and(|kind| kind != "absolute")
        {
            return Err("`position_embedding_type` is not `absolute`".to_owned());
        }
        let sizes = [
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("num_hidden_layers", self.num_hidden_layers),
            ("num_attention_heads", self.num_attention_heads),
            ("intermediate_size", self.intermediate_size),
            ("max_position_embeddings", self.max_position_embeddings),
            ("type_vocab_size", self.type_vocab_size),
        ];
        for (name, size) in sizes {
            if !(1..=SIZE_LIMIT).contains(&size) {
                return Err(format!(
                    "`{name}` is `{size}`; it must lie between 1 and {SIZE_LIMIT}"
                ));
            }
        }
        if self.max_position_embeddings < 2 {
            return Err("`max_position_embeddings` leaves no room for the two special tokens".to_owned());
        }
        if !self.hidden_size.is_multiple_of(self.num_attention_heads) {
            return Err(format!(
                "`hidden_size` {} is no multiple of `num_attention_heads` {}",
                self.hidden_size, self.num_attention_heads
            ));
        }
        if !(self.layer_norm_eps > 0.0 && self.layer_norm_eps < 1.0) {
            return Err(format!("`layer_norm_eps` is `{}`", self.layer_norm_eps));
        }
        Ok(())
    }

    /// Numbers per attention head.
    pub(super) fn head_size(&self) -> usize {
        self.hidden_size / self.num_attention_heads
    }
}

/// `max_seq_length` of sentence-transformers, if the folder says it.
pub(super) fn longest_sequence(folder: &Path) -> Result<Option<usize>, RetrievalError> {
    #[derive(Deserialize)]
    struct Raw {
        max_seq_length: Option<usize>,
    }
    let raw: Option<Raw> = read_optional(&folder.join("sentence_bert_config.json"))?;
    Ok(raw.and_then(|raw| raw.max_seq_length))
}

/// The pooling of sentence-transformers, if the folder says it.
pub(super) fn pooling(folder: &Path) -> Result<Option<Pooling>, RetrievalError> {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Raw {
        pooling_mode_cls_token: bool,
        pooling_mode_mean_tokens: bool,
    }
    let path = folder.join("1_Pooling").join("config.json");
    let Some(raw) = read_optional::<Raw>(&path)? else {
        return Ok(None);
    };
    match (raw.pooling_mode_mean_tokens, raw.pooling_mode_cls_token) {
        (true, false) => Ok(Some(Pooling::Mean)),
        (false, true) => Ok(Some(Pooling::FirstToken)),
        _ => Err(RetrievalError::Encoder {
            path,
            message: "its pooling is neither the mean nor the first token; name one in the options"
                .to_owned(),
        }),
    }
}

fn read_optional<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, RetrievalError> {
    if path.is_file() {
        read_json(path).map(Some)
    } else {
        Ok(None)
    }
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, RetrievalError> {
    parse(path, &read_text(path)?)
}

fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, RetrievalError> {
    serde_json::from_str(text).map_err(|error| RetrievalError::Encoder {
        path: path.to_owned(),
        message: error.to_string(),
    })
}

/// The text of a file of bounded size.
pub(super) fn read_text(path: &Path) -> Result<String, RetrievalError> {
    let unusable = |message: String| RetrievalError::Encoder {
        path: path.to_owned(),
        message,
    };
    let length = fs_err::metadata(path)
        .map_err(|error| unusable(error.to_string()))?
        .len();
    if length > TEXT_LIMIT {
        return Err(unusable(format!("it has {length} bytes, more than {TEXT_LIMIT}")));
    }
    fs_err::read_to_string(path).map_err(|error| unusable(error.to_string()))
}
