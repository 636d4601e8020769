//! From user messages to token ids, for both context kinds.
//!
//! Wraps the model's turn format: environment and skill text is encoded as ordinary text, so it can never produce a
//! control token, and ids once computed are only ever appended to.

use seed_model::{Tokenizer, TurnFormat};
use serde::{Deserialize, Serialize};

/// What to do with a prompt longer than its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Truncation {
    /// Drop ids from the beginning.
    Left,
    /// Refuse: the episode ends as out of tokens.
    Error,
}

impl Truncation {
    /// Brings `ids` to at most `limit` and returns how many were dropped; `None`, with `ids` as they were, where that is
    /// refused.
    pub fn cut(self, ids: &mut Vec<u32>, limit: usize) -> Option<usize> {
        let excess = ids.len().saturating_sub(limit);
        if excess > 0 && self == Self::Error {
            return None;
        }
        ids.drain(..excess);
        Some(excess)
    }
}

/// Encodes the turns of an episode.
#[derive(Clone)]
pub struct Conversation {
    tokenizer: Tokenizer,
    format: TurnFormat,
}

impl Conversation {
    /// A conversation in the model's chat format.
    pub fn new(tokenizer: Tokenizer, format: TurnFormat) -> Self {
        Self { tokenizer, format }
    }

    /// Ids of a prompt that holds one user message, up to and including the generation prompt.
    pub fn opening(&self, user: &str) -> Vec<u32> {
        self.format.opening(user)
    }

    /// Ids that follow a response whose last id is `last`: the closing of the assistant turn unless it was sampled,
    /// then the next user message through the generation prompt.
    pub fn next_turn(&self, user: &str, last: Option<u32>) -> Vec<u32> {
        self.format.next_turn(user, last)
    }

    /// What the chat template would do to earlier turns that appending does not do; empty when a growing conversation
    /// is the template's own form.
    pub fn history_changes(&self) -> Vec<String> {
        self.format
            .history_changes()
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    /// Text of sampled ids, without control tokens.
    pub fn decode(&self, ids: &[u32]) -> String {
        self.tokenizer.decode(ids, true)
    }

    /// Indices of the tokens whose text overlaps the byte range `span` of the decoded response.
    ///
    /// Byte-level tokens can split a character, so prefix decoding may shift by the replacement character's width;
    /// the range is therefore computed on prefix lengths and clamped, which errs by at most the split character.
    pub fn token_span(&self, ids: &[u32], span: &std::ops::Range<usize>) -> std::ops::Range<usize> {
        let mut start = None;
        let mut end = 0;
        let mut before = 0;
        for index in 0..ids.len() {
            // In-bounds: `index < ids.len()`.
            let after = self.tokenizer.decode(&ids[..=index], true).len();
            if after > span.start && before < span.end && after > before {
                start.get_or_insert(index);
                end = index + 1;
            }
            before = after;
        }
        start.unwrap_or(0)..end
    }
}
