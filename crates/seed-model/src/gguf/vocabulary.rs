//! The tokenizer of a GGUF file as the `tokenizer.json` that the model was made with.
//!
//! A file holds the tokens with their types, the merges, and the name of the pattern by which text is cut before it is
//! merged. The names stand for fixed patterns, which are those of the models' own `tokenizer.json`.
//!
//! Not for: vocabularies of sentencepiece (`tokenizer.ggml.model` other than `gpt2`).

use serde_json::{Map, Value, json};

use super::container::{Container, missing, wrong};
use crate::error::ModelError;
use crate::tokenizer::Tokenizer;

const MODEL: &str = "tokenizer.ggml.model";
const PATTERN: &str = "tokenizer.ggml.pre";
const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
const MERGES: &str = "tokenizer.ggml.merges";
const ADDS_BEGIN: &str = "tokenizer.ggml.add_bos_token";

/// Types of tokens in [`TYPES`].
const CONTROL: i64 = 3;
const USER_DEFINED: i64 = 4;
const UNUSED: i64 = 5;

/// How text is cut into words, whose bytes are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    /// GPT-2's words.
    Words,
    /// Every digit alone, then GPT-2's words.
    SingleDigits,
    /// Llama 3's words, with at most three digits together; whole words that are tokens are not merged.
    ThreeDigits,
    /// Qwen2's words, each digit alone, of text in normal form C.
    NormalisedSingleDigits,
}

impl Pattern {
    fn named(name: &str) -> Option<Self> {
        match name {
            "gpt-2" => Some(Self::Words),
            "smollm" | "starcoder" => Some(Self::SingleDigits),
            "llama-bpe" | "llama3" | "llama-v3" => Some(Self::ThreeDigits),
            "qwen2" => Some(Self::NormalisedSingleDigits),
            _ => None,
        }
    }

    fn pre_tokenizer(self) -> Value {
        let byte_level = |words: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": words});
        let first = match self {
            Self::Words => return byte_level(true),
            Self::SingleDigits => json!({"type": "Digits", "individual_digits": true}),
            Self::ThreeDigits => split(r"\p{N}{1,3}"),
            Self::NormalisedSingleDigits => split(r"\p{N}"),
        };
        json!({
            "type": "Sequence",
            "pretokenizers": [first, byte_level(self == Self::SingleDigits)],
        })
    }

    fn normalizer(self) -> Value {
        if self == Self::NormalisedSingleDigits {
            json!({"type": "NFC"})
        } else {
            Value::Null
        }
    }
}

/// The words of Llama 3 and Qwen2, which differ in how many digits stay together.
fn split(digits: &str) -> Value {
    let words = [
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
        r"[^\r\n\p{L}\p{N}]?\p{L}+",
        digits,
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ];
    json!({"type": "Split", "pattern": {"Regex": words.join("|")}, "behavior": "Isolated", "invert": false})
}

/// Builds the tokenizer of a model whose embedding has `rows` rows.
pub(super) fn tokenizer(container: &Container, rows: usize) -> Result<Tokenizer, ModelError> {
    let model = container.text(MODEL)?.ok_or_else(|| missing(MODEL))?;
    if model != "gpt2" {
        return Err(wrong(
            MODEL,
            format!(
                "is `{model}`; only byte-level vocabularies, `gpt2`, are read: use the model's Hugging Face directory"
            ),
        ));
    }
    let name = container.text(PATTERN)?.ok_or_else(|| missing(PATTERN))?;
    let pattern = Pattern::named(name).ok_or_else(|| {
        wrong(
            PATTERN,
            format!(
                "is `{name}`, none of `gpt-2`, `smollm`, `starcoder`, `llama-bpe`, `qwen2`: use the model's Hugging Face \
                 directory"
            ),
        )
    })?;
    let tokens = container.texts(TOKENS)?.ok_or_else(|| missing(TOKENS))?;
    if tokens.len() > rows {
        return Err(wrong(
            TOKENS,
            format!("has `{}` tokens, the embedding has `{rows}` rows", tokens.len()),
        ));
    }
    let types = container.integers(TYPES)?.ok_or_else(|| missing(TYPES))?;
    if types.len() != tokens.len() {
        return Err(wrong(
            TYPES,
            format!("has `{}` types for `{}` tokens", types.len(), tokens.len()),
        ));
    }
    let merges = container.texts(MERGES)?.ok_or_else(|| missing(MERGES))?;
    let options = options(container, tokens)?;
    let json = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added_tokens(tokens, types),
        "normalizer": pattern.normalizer(),
        "pre_tokenizer": pattern.pre_tokenizer(),
        "post_processor": post_processor(container, &options)?,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {
            "type": "BPE",
            "dropout": null,
            "unk_token": null,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": false,
            "byte_fallback": false,
            "ignore_merges": pattern == Pattern::ThreeDigits,
            "vocab": vocabulary(tokens, types)?,
            "merges": merges,
        },
    });
    Tokenizer::from_json_with_options(&json.to_string(), options)
}

/// Ids by token. Unused tokens only fill the embedding's rows.
fn vocabulary(tokens: &[String], types: &[i64]) -> Result<Map<String, Value>, ModelError> {
    let mut vocabulary = Map::new();
    for (id, (token, &kind)) in tokens.iter().zip(types).enumerate() {
        if kind == UNUSED {
            continue;
        }
        if let Some(first) = vocabulary.insert(token.clone(), json!(id)) {
            return Err(wrong(
                TOKENS,
                format!("has token {token:?} twice, as `{first}` and as `{id}`"),
            ));
        }
    }
    Ok(vocabulary)
}

/// Tokens that are looked for in the text before it is cut into words.
fn added_tokens(tokens: &[String], types: &[i64]) -> Vec<Value> {
    tokens
        .iter()
        .zip(types)
        .enumerate()
        .filter(|(_, (_, kind))| matches!(**kind, CONTROL | USER_DEFINED))
        .map(|(id, (token, &kind))| {
            json!({
                "id": id,
                "content": token,
                "single_word": false,
                "lstrip": false,
                "rstrip": false,
                "normalized": false,
                "special": kind == CONTROL,
            })
        })
        .collect()
}

/// The named special tokens, as `tokenizer_config.json` holds them.
fn options(container: &Container, tokens: &[String]) -> Result<Map<String, Value>, ModelError> {
    let mut options = Map::new();
    for (name, key) in [
        ("bos_token", "tokenizer.ggml.bos_token_id"),
        ("eos_token", "tokenizer.ggml.eos_token_id"),
        ("pad_token", "tokenizer.ggml.padding_token_id"),
        ("unk_token", "tokenizer.ggml.unknown_token_id"),
    ] {
        let Some(id) = container.token(key)? else {
            continue;
        };
        let token = tokens
            .get(id as usize)
            .ok_or_else(|| wrong(key, format!("is `{id}`, but there are `{}` tokens", tokens.len())))?;
        options.insert(name.to_owned(), json!(token));
    }
    Ok(options)
}

/// Puts the token that opens a text before it, where the model was trained so. Conversations get theirs from the chat
/// template; this is for other readers of the directory.
fn post_processor(container: &Container, options: &Map<String, Value>) -> Result<Value, ModelError> {
    let byte_level =
        json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true});
    let (Some(true), Some(begin)) = (
        container.flag(ADDS_BEGIN)?,
        options.get("bos_token").and_then(Value::as_str),
    ) else {
        return Ok(byte_level);
    };
    let id = container.token("tokenizer.ggml.bos_token_id")?;
    let special = json!({"SpecialToken": {"id": begin, "type_id": 0}});
    let text = |name: &str, type_id: u32| json!({"Sequence": {"id": name, "type_id": type_id}});
    let special_of_second = json!({"SpecialToken": {"id": begin, "type_id": 1}});
    Ok(json!({
        "type": "Sequence",
        "processors": [byte_level, {
            "type": "TemplateProcessing",
            "single": [special, text("A", 0)],
            "pair": [special, text("A", 0), special_of_second, text("B", 1)],
            "special_tokens": {begin: {"id": begin, "ids": [id], "tokens": [begin]}},
        }],
    }))
}
