//! Byte-pair encoding learned from texts.
//!
//! The `tokenizers` crate has a trainer, but it keeps several queue entries of one pair and breaks ties between them by
//! the order of hash maps seeded at random, so two runs may disagree. This one merges all occurrences of the most
//! frequent pair at once and breaks ties by the smaller ids: the result depends on the texts alone. The finished
//! vocabulary is handed to that crate as a `tokenizer.json`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};
use std::num::NonZeroUsize;

use serde_json::{Value, json};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer as _};

use super::{Tokenizer, unusable};
use crate::error::ModelError;

/// Splits text into words, numbers of at most `number_digits` digits, runs of punctuation and white space: no merge
/// crosses such a border. With one digit these are the words of the Qwen models, with three those of Llama 3.
fn words(number_digits: NonZeroUsize) -> String {
    let number = match number_digits.get() {
        1 => r"\p{N}".to_owned(),
        most => format!(r"\p{{N}}{{1,{most}}}"),
    };
    format!(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{number}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
}

/// A pair that occurs less often is not merged.
const LEAST_COUNT: u64 = 2;

type Pair = (u32, u32);

/// Learns a byte-level byte-pair encoding: the special tokens first, then the 256 bytes, then merges until there are
/// `vocabulary_size` tokens or no pair of neighbours occurs twice.
///
/// Every text can be encoded and decodes to itself. The same texts give the same bytes. Each digit is a token of its own,
/// as in the Qwen models; [`train_byte_level_bpe_with_numbers`] can learn tokens of several.
///
/// # Errors
/// [`ModelError::VocabularyTooSmall`] where the special tokens and the bytes alone exceed `vocabulary_size`;
/// [`ModelError::Tokenizer`] where a special token has fewer than two characters.
pub fn train_byte_level_bpe<I>(
    texts: I,
    vocabulary_size: usize,
    special_tokens: &[&str],
) -> Result<Tokenizer, ModelError>
where
    I: IntoIterator,
    I::Item: AsRef<str>,
{
    train_byte_level_bpe_with_numbers(texts, vocabulary_size, special_tokens, NonZeroUsize::MIN)
}

/// As [`train_byte_level_bpe`], with tokens of at most `number_digits` digits.
///
/// A number that occurs often becomes one token: a policy copies it in one step instead of one for each digit.
///
/// # Errors
/// As [`train_byte_level_bpe`].
pub fn train_byte_level_bpe_with_numbers<I>(
    texts: I,
    vocabulary_size: usize,
    special_tokens: &[&str],
    number_digits: NonZeroUsize,
) -> Result<Tokenizer, ModelError>
where
    I: IntoIterator,
    I::Item: AsRef<str>,
{
    let pattern = words(number_digits);
    let mut vocabulary = Vec::<String>::new();
    for &token in special_tokens {
        if token.chars().nth(1).is_none() {
            return Err(unusable(&format!(
                "special token `{token}` has fewer than two characters"
            )));
        }
        if !vocabulary.iter().any(|known| known == token) {
            vocabulary.push(token.to_owned());
        }
    }
    let special = vocabulary.len();
    let mut alphabet: Vec<char> = ByteLevel::alphabet().into_iter().collect();
    alphabet.sort_unstable();
    vocabulary.extend(alphabet.iter().map(char::to_string));
    if vocabulary.len() > vocabulary_size {
        return Err(ModelError::VocabularyTooSmall {
            asked: vocabulary_size,
            special,
            least: vocabulary.len(),
        });
    }
    // The borders come from the very object that will cut texts later.
    let untrained = Tokenizer::from_json(&document(&pattern, special, &vocabulary, &[]).to_string())?;
    let mut words: BTreeMap<String, u64> = BTreeMap::new();
    for text in texts {
        for word in split(&untrained, text.as_ref())? {
            *words.entry(word).or_default() += 1;
        }
    }
    let ids: HashMap<char, u32> = alphabet
        .iter()
        .zip(special as u32..)
        .map(|(&c, id)| (c, id))
        .collect();
    let words = words
        .iter()
        .map(|(word, &count)| Word {
            tokens: word.chars().filter_map(|c| ids.get(&c).copied()).collect(),
            count,
        })
        .collect();
    let merges = merge(words, special, &mut vocabulary, vocabulary_size);
    Tokenizer::from_json(&document(&pattern, special, &vocabulary, &merges).to_string())
}

/// Words of `text`, each byte as its stand-in character.
fn split(tokenizer: &Tokenizer, text: &str) -> Result<Vec<String>, ModelError> {
    let mut pieces = PreTokenizedString::from(text);
    if let Some(pre_tokenizer) = tokenizer.shared.tokenizer.get_pre_tokenizer() {
        pre_tokenizer
            .pre_tokenize(&mut pieces)
            .map_err(|error| unusable(&error))?;
    }
    let splits = pieces.get_splits(OffsetReferential::Original, OffsetType::None);
    Ok(splits.into_iter().map(|(word, _, _)| word.to_owned()).collect())
}

/// A word as its current tokens, and how often it occurs.
struct Word {
    tokens: Vec<u32>,
    count: u64,
}

/// Counts of all neighbouring pairs and the words in which each has been seen.
#[derive(Default)]
struct Pairs {
    counts: HashMap<Pair, u64>,
    words: HashMap<Pair, HashSet<usize>>,
    /// The most frequent pair first, ties by the smaller ids. An entry whose count is out of date is skipped: the
    /// change that outdated it has pushed another.
    queue: BinaryHeap<(u64, Reverse<Pair>)>,
}

impl Pairs {
    fn add(&mut self, index: usize, word: &Word) {
        for pair in neighbours(&word.tokens) {
            *self.counts.entry(pair).or_default() += word.count;
            self.words.entry(pair).or_default().insert(index);
        }
    }

    fn remove(&mut self, word: &Word) {
        for pair in neighbours(&word.tokens) {
            if let Some(count) = self.counts.get_mut(&pair) {
                *count -= word.count;
            }
        }
    }

    fn push(&mut self, pair: Pair) {
        if let Some(&count) = self.counts.get(&pair)
            && count >= LEAST_COUNT
        {
            self.queue.push((count, Reverse(pair)));
        }
    }

    fn pop(&mut self) -> Option<Pair> {
        while let Some((count, Reverse(pair))) = self.queue.pop() {
            if self.counts.get(&pair) == Some(&count) {
                return Some(pair);
            }
        }
        None
    }
}

fn neighbours(tokens: &[u32]) -> impl Iterator<Item = Pair> {
    tokens.iter().copied().zip(tokens.iter().copied().skip(1))
}

/// Extends `vocabulary`, whose first `special` tokens are control tokens, by merged tokens and returns the merges in
/// order.
fn merge(
    mut words: Vec<Word>,
    special: usize,
    vocabulary: &mut Vec<String>,
    vocabulary_size: usize,
) -> Vec<(String, String)> {
    let mut names: HashMap<String, u32> = vocabulary.iter().cloned().zip(0..).collect();
    let mut pairs = Pairs::default();
    for (index, word) in words.iter().enumerate() {
        pairs.add(index, word);
    }
    let mut initial: Vec<Pair> = pairs.counts.keys().copied().collect();
    initial.sort_unstable();
    for pair in initial {
        pairs.push(pair);
    }
    let mut merges = Vec::new();
    while vocabulary.len() < vocabulary_size
        && let Some(pair) = pairs.pop()
    {
        // In bounds: both ids were given out below or are in the alphabet.
        let (left, right) = (
            vocabulary[pair.0 as usize].clone(),
            vocabulary[pair.1 as usize].clone(),
        );
        let name = format!("{left}{right}");
        let next = vocabulary.len() as u32;
        // Two different merges can spell the same token.
        let merged = *names.entry(name.clone()).or_insert(next);
        if (merged as usize) < special {
            // Text must not be able to become a control token.
            continue;
        }
        if merged == next {
            vocabulary.push(name);
        }
        merges.push((left, right));
        let mut holders: Vec<usize> = pairs
            .words
            .remove(&pair)
            .unwrap_or_default()
            .into_iter()
            .collect();
        holders.sort_unstable();
        let mut changed = Vec::new();
        for index in holders {
            // In bounds: the index was taken from this list.
            let word = &mut words[index];
            let tokens = replace(&word.tokens, pair, merged);
            if tokens.len() == word.tokens.len() {
                continue;
            }
            pairs.remove(word);
            changed.extend(neighbours(&word.tokens));
            word.tokens = tokens;
            pairs.add(index, word);
            changed.extend(neighbours(&word.tokens));
        }
        changed.sort_unstable();
        changed.dedup();
        for pair in changed {
            pairs.push(pair);
        }
    }
    merges
}

/// `tokens` with every occurrence of `pair`, from the left, replaced by `merged`.
fn replace(tokens: &[u32], pair: Pair, merged: u32) -> Vec<u32> {
    let mut result = Vec::with_capacity(tokens.len());
    let mut rest = tokens;
    while let [first, tail @ ..] = rest {
        match tail {
            [second, tail @ ..] if (*first, *second) == pair => {
                result.push(merged);
                rest = tail;
            }
            _ => {
                result.push(*first);
                rest = tail;
            }
        }
    }
    result
}

/// The `tokenizer.json` of a vocabulary whose first `special` tokens are control tokens; `pattern` matches its words.
fn document(pattern: &str, special: usize, vocabulary: &[String], merges: &[(String, String)]) -> Value {
    let added: Vec<Value> = vocabulary
        .iter()
        .take(special)
        .enumerate()
        .map(|(id, content)| {
            json!({
                "id": id,
                "content": content,
                "single_word": false,
                "lstrip": false,
                "rstrip": false,
                "normalized": false,
                "special": true,
            })
        })
        .collect();
    let ids: serde_json::Map<String, Value> = vocabulary
        .iter()
        .enumerate()
        .map(|(id, token)| (token.clone(), json!(id)))
        .collect();
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": null,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false},
                {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
            ],
        },
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
        "model": {
            "type": "BPE",
            "dropout": null,
            "unk_token": null,
            "continuing_subword_prefix": null,
            "end_of_word_suffix": null,
            "fuse_unk": false,
            "byte_fallback": false,
            "ignore_merges": false,
            "vocab": ids,
            "merges": merges,
        },
    })
}
