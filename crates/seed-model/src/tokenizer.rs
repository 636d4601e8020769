//! Text to token ids and back.
//!
//! There are two ways in. [`Tokenizer::encode_text`] takes text from outside (an environment, a skill, a person): it
//! never yields a control token, whatever the text spells. [`Tokenizer::encode_template`] takes text that the program
//! or a chat template wrote: there, the spelling of a control token means the token.
//!
//! Not for: roles and turns, which are [`crate::chat`]'s; and never for turning sampled ids into text and back again:
//! ids that were sampled stay the ids that are trained.

mod bytes;
mod train;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

pub use train::{train_byte_level_bpe, train_byte_level_bpe_with_numbers};

use crate::error::ModelError;

/// A tokenizer with its options. A clone shares everything.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    shared: Arc<Shared>,
}

#[derive(Clone, Debug)]
struct Shared {
    /// Set to read the spelling of special tokens as ordinary text.
    tokenizer: tokenizers::Tokenizer,
    /// The control tokens by id.
    control: BTreeMap<u32, Control>,
    /// One more than the largest id.
    vocabulary_size: usize,
    /// The object in `tokenizer_config.json`.
    options: Map<String, Value>,
}

/// How one control token is spelled, and whether it swallows white space beside it.
#[derive(Clone, Debug)]
struct Control {
    text: String,
    strips_left: bool,
    strips_right: bool,
}

/// A stretch of text written by a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// A control token.
    Control(u32),
    /// What lies between two control tokens; not empty.
    Text(&'a str),
}

impl Tokenizer {
    /// Reads the text of a `tokenizer.json`.
    ///
    /// # Errors
    /// [`ModelError::Tokenizer`] where the text is not such a file, or where some texts could not be encoded.
    pub fn from_json(json: &str) -> Result<Self, ModelError> {
        Self::from_json_with_options(json, Map::new())
    }

    /// Reads the text of a `tokenizer.json` with the object of the `tokenizer_config.json` beside it.
    ///
    /// # Errors
    /// As [`Tokenizer::from_json`].
    pub fn from_json_with_options(json: &str, options: Map<String, Value>) -> Result<Self, ModelError> {
        let mut tokenizer = parse(json)?;
        // Padding and truncation would change ids behind the caller's back; drop-out would make them random.
        tokenizer.with_padding(None);
        tokenizer
            .with_truncation(None)
            .map_err(|error| unusable(&error))?;
        if let tokenizers::ModelWrapper::BPE(model) = tokenizer.get_model()
            && model.dropout.is_some()
        {
            let mut model = model.clone();
            model.dropout = None;
            tokenizer.with_model(model);
        }
        tokenizer.set_encode_special_tokens(true);
        let control = tokenizer
            .get_added_tokens_decoder()
            .into_iter()
            .filter(|(_, token)| token.special && !token.content.is_empty())
            // An unknown token stands for text that has no other id; it structures nothing.
            .filter(|(_, token)| unknown_token(&tokenizer) != Some(token.content.as_str()))
            .map(|(id, token)| {
                let control = Control {
                    text: token.content,
                    strips_left: token.lstrip,
                    strips_right: token.rstrip,
                };
                (id, control)
            })
            .collect();
        let mut tokens: Vec<(u32, String)> = tokenizer
            .get_vocab(true)
            .into_iter()
            .map(|(token, id)| (id, token))
            .collect();
        tokens.sort_unstable();
        // Which of the two such an id decodes to would differ from one reading of the file to the next.
        if let Some([(id, first), (_, second)]) = tokens
            .array_windows()
            .find(|[(left, _), (right, _)]| left == right)
        {
            return Err(unusable(&format!(
                "its tokens `{first}` and `{second}` have the same id `{id}`"
            )));
        }
        let largest = tokens.last().map(|&(id, _)| id);
        let this = Self {
            shared: Arc::new(Shared {
                vocabulary_size: largest.map_or(0, |id| id as usize + 1),
                tokenizer,
                control,
                options,
            }),
        };
        if let Err(error) = this.shared.tokenizer.encode_fast(PROBE, false) {
            return Err(unusable(&format!("it cannot encode every text ({error})")));
        }
        Ok(this)
    }

    /// The same tokenizer with further control tokens, which ordinary text cannot yield from then on: the end tokens
    /// of a model, which not every `tokenizer.json` marks as special.
    ///
    /// Ids without a token are ignored, and so are tokens of one character: a model that ends its response with a
    /// line break still has to read line breaks.
    #[must_use]
    pub fn with_control_tokens(mut self, ids: &[u32]) -> Self {
        for &id in ids {
            if !self.is_control(id)
                && let Some(text) = self.token_name(id)
                && text.chars().nth(1).is_some()
            {
                let control = Control {
                    text,
                    strips_left: false,
                    strips_right: false,
                };
                Arc::make_mut(&mut self.shared).control.insert(id, control);
            }
        }
        self
    }

    /// Ids of text from outside. The result holds no control token.
    ///
    /// Where the text spells a control token, the spelling is encoded piece by piece, as any other text. A single
    /// character that the tokenizer itself marks as a special token has no other spelling and is left out.
    pub fn encode_text(&self, text: &str) -> Vec<u32> {
        let mut ids = Vec::new();
        self.encode_ordinary(text, &mut ids);
        ids
    }

    fn encode_ordinary(&self, text: &str, ids: &mut Vec<u32>) {
        if text.is_empty() {
            return;
        }
        let shared = &self.shared;
        let Ok(encoding) = shared.tokenizer.encode_fast(text, false) else {
            // Only the backtracking limit of a pre-tokenizer's pattern can be in the way (a probe was encoded when
            // the tokenizer was read): a shorter text stays below it.
            let middle = text.floor_char_boundary(text.len() / 2);
            if middle > 0 {
                self.encode_ordinary(&text[..middle], ids);
                self.encode_ordinary(&text[middle..], ids);
            }
            return;
        };
        if !encoding.get_ids().iter().any(|&id| self.is_control(id)) {
            ids.extend_from_slice(encoding.get_ids());
            return;
        }
        // The model's own vocabulary has spelled a control token. Cut each such spelling after its first character,
        // so that it cannot be formed, and encode the parts.
        let mut start = 0;
        for cut in self.cuts(text) {
            self.encode_ordinary(&text[start..cut], ids);
            start = cut;
        }
        if start == 0 {
            // There is nothing to cut: the control tokens are single characters.
            ids.extend(encoding.get_ids().iter().filter(|&&id| !self.is_control(id)));
        } else {
            self.encode_ordinary(&text[start..], ids);
        }
    }

    /// Where to cut `text`: one character into every token that came out as a control token.
    fn cuts(&self, text: &str) -> Vec<usize> {
        let Ok(encoding) = self.shared.tokenizer.encode(text, false) else {
            return Vec::new();
        };
        let spans = encoding.get_ids().iter().zip(encoding.get_offsets());
        spans
            .filter(|(id, _)| self.is_control(**id))
            .filter_map(|(_, &(start, end))| {
                let first = text.get(start..end)?.chars().next()?;
                let cut = start + first.len_utf8();
                (cut < end).then_some(cut)
            })
            .collect()
    }

    /// Ids of text written by the program or a chat template: the spelling of a control token is that token.
    pub fn encode_template(&self, text: &str) -> Vec<u32> {
        let mut ids = Vec::new();
        for piece in self.pieces(text) {
            match piece {
                Piece::Control(id) => ids.push(id),
                Piece::Text(text) => self.encode_ordinary(text, &mut ids),
            }
        }
        ids
    }

    /// Splits text at the control tokens that it spells: from the left, the longest first.
    pub(crate) fn pieces<'a>(&self, text: &'a str) -> Vec<Piece<'a>> {
        let mut pieces = Vec::new();
        let (mut start, mut position) = (0, 0);
        while let Some(rest) = text.get(position..)
            && let Some(first) = rest.chars().next()
        {
            let Some((id, control)) = self.control_at(rest) else {
                position += first.len_utf8();
                continue;
            };
            let before = &text[start..position];
            let before = if control.strips_left {
                before.trim_end()
            } else {
                before
            };
            if !before.is_empty() {
                pieces.push(Piece::Text(before));
            }
            pieces.push(Piece::Control(id));
            let after = &rest[control.text.len()..];
            let stripped = if control.strips_right {
                after.trim_start()
            } else {
                after
            };
            position = text.len() - stripped.len();
            start = position;
        }
        if start < text.len() {
            pieces.push(Piece::Text(&text[start..]));
        }
        pieces
    }

    /// The longest control token with whose spelling `text` begins.
    fn control_at(&self, text: &str) -> Option<(u32, &Control)> {
        self.shared
            .control
            .iter()
            .filter(|(_, control)| text.starts_with(&control.text))
            .max_by_key(|(_, control)| control.text.len())
            .map(|(&id, control)| (id, control))
    }

    /// Whether `text` begins with the spelling of a control token of more than one character.
    pub(crate) fn begins_with_control(&self, text: &str) -> bool {
        self.control_at(text)
            .is_some_and(|(_, control)| control.text.chars().nth(1).is_some())
    }

    /// Text of ids. Ids that the tokenizer does not know (a model's vocabulary may be padded) have no text; bytes that
    /// are no UTF-8 become the replacement character.
    ///
    /// `skip_special` leaves out control tokens.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        let kept: Vec<u32> = ids
            .iter()
            .copied()
            .filter(|&id| !(skip_special && self.is_control(id)))
            .collect();
        // The decoders of this library fail on a wrong pattern alone, which reading the file has excluded.
        self.shared
            .tokenizer
            .decode(&kept, skip_special)
            .unwrap_or_default()
    }

    /// Whether `id` is a token that structures a conversation rather than text.
    pub fn is_control(&self, id: u32) -> bool {
        self.shared.control.contains_key(&id)
    }

    /// One more than the largest id: the least `vocab_size` of a model for this tokenizer.
    pub fn vocabulary_size(&self) -> usize {
        self.shared.vocabulary_size
    }

    /// The id of a token by its exact name, control tokens included.
    pub fn token_id(&self, token: &str) -> Option<u32> {
        self.shared.tokenizer.token_to_id(token)
    }

    /// The name of a token; byte-level tokens are named by the stand-ins of their bytes.
    pub fn token_name(&self, id: u32) -> Option<String> {
        self.shared.tokenizer.id_to_token(id)
    }

    /// The object of `tokenizer_config.json`; empty for a tokenizer made here.
    pub fn options(&self) -> &Map<String, Value> {
        &self.shared.options
    }

    /// The spelling of a named special token (`bos_token`, `eos_token`, ...) in `tokenizer_config.json`.
    pub fn named_token(&self, name: &str) -> Option<&str> {
        match self.shared.options.get(name)? {
            Value::String(text) => Some(text),
            // The form with matching options.
            Value::Object(token) => token.get("content")?.as_str(),
            _ => None,
        }
    }

    /// The text of a `tokenizer.json` that transformers loads with the same ids.
    ///
    /// # Errors
    /// [`ModelError::Tokenizer`] where the library cannot write it.
    pub fn to_json(&self) -> Result<String, ModelError> {
        let mut json = self
            .shared
            .tokenizer
            .to_string(true)
            .map_err(|error| unusable(&error))?;
        json.push('\n');
        Ok(json)
    }
}

/// Characters of one to four bytes, common and rare, assigned and not, in several scripts.
const PROBE: &str = "a Z 0\n\t\u{1}\u{7f}é\u{378}ß中\u{e000}\u{fdd0}\u{ffff}🙂\u{10fffd}";

fn parse(json: &str) -> Result<tokenizers::Tokenizer, ModelError> {
    // The library panics where a decoder's object is cut off, and on some contents of other parts. Checking the
    // syntax first excludes the former; the rest is caught, since the file comes from a stranger.
    serde_json::from_str::<serde::de::IgnoredAny>(json).map_err(|error| unusable(&error))?;
    std::panic::catch_unwind(|| tokenizers::Tokenizer::from_bytes(json))
        .map_err(|_| unusable(&"a part of it has malformed contents"))?
        .map_err(|error| unusable(&error))
}

fn unknown_token(tokenizer: &tokenizers::Tokenizer) -> Option<&str> {
    match tokenizer.get_model() {
        tokenizers::ModelWrapper::BPE(model) => model.unk_token.as_deref(),
        tokenizers::ModelWrapper::WordPiece(model) => Some(&model.unk_token),
        tokenizers::ModelWrapper::WordLevel(model) => Some(&model.unk_token),
        // Its unknown token is an ordinary entry of the vocabulary.
        tokenizers::ModelWrapper::Unigram(_) => None,
    }
}

fn unusable(problem: &impl ToString) -> ModelError {
    ModelError::Tokenizer {
        problem: problem.to_string(),
    }
}

#[cfg(test)]
mod tests;
