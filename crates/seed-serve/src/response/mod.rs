//! Answers in OpenAI's form, whole or piece by piece.
//!
//! Not for: sending them.

mod chunks;
mod log_probs;
mod whole;

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::model::{Facts, Weights};
use crate::request::{Asked, Form};
use crate::worker::EndCause;

pub(crate) use chunks::Chunks;
pub(crate) use whole::Whole;

/// What all parts of an answer have in common.
pub(crate) struct Answer {
    pub(crate) facts: Arc<Facts>,
    pub(crate) asked: Arc<Asked>,
    /// The answer's own name.
    pub(crate) id: String,
    /// When it was begun, in seconds since 1970.
    pub(crate) created: u64,
    /// The weights, once generation has begun.
    pub(crate) weights: Option<Arc<Weights>>,
}

impl Answer {
    /// The fields that every part begins with.
    fn head(&self, is_chunk: bool) -> Map<String, Value> {
        let object = match (self.asked.form, is_chunk) {
            (Form::Chat, false) => "chat.completion",
            (Form::Chat, true) => "chat.completion.chunk",
            (Form::Completion, _) => "text_completion",
        };
        let mut head = Map::new();
        head.insert("id".to_owned(), json!(self.id));
        head.insert("object".to_owned(), json!(object));
        head.insert("created".to_owned(), json!(self.created));
        head.insert("model".to_owned(), json!(self.facts.name));
        let weights = self.weights.as_deref();
        let fingerprint = weights.map(|weights| weights.fingerprint.as_str());
        head.insert("system_fingerprint".to_owned(), json!(fingerprint));
        if let Some(version) = weights.and_then(|weights| weights.version.as_deref()) {
            head.insert("weight_version".to_owned(), json!(version));
        }
        head
    }

    /// The ids of the prompt of a choice.
    fn prompt_ids(&self, choice: usize) -> &[u32] {
        let prompt = self.asked.prompts.get(choice / self.asked.choices.max(1));
        prompt.map_or(&[], Vec::as_slice)
    }

    fn usage(&self, completion_tokens: usize) -> Value {
        let prompt_tokens = self.asked.prompt_tokens();
        json!({
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
        })
    }

    fn finish_reason(cause: EndCause) -> &'static str {
        match cause {
            EndCause::Length => "length",
            EndCause::Token(_) | EndCause::Text(_) => "stop",
        }
    }

    /// What a response was stopped by where that is not the model's own end: a token's id, or a text.
    fn stop_reason(&self, cause: EndCause) -> Value {
        match cause {
            EndCause::Token(id) if !self.facts.end_tokens.contains(&id) => json!(id),
            EndCause::Text(index) => json!(self.asked.stop_texts.get(index)),
            EndCause::Length | EndCause::Token(_) => Value::Null,
        }
    }
}
