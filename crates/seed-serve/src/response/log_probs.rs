//! Log-probs in the forms of chat and plain completions.
//!
//! A log-prob is written as the exact value of its 32 bits.

use serde_json::{Map, Value, json};

use super::Answer;
use crate::request::Form;
use crate::worker::Token;

impl Answer {
    /// The log-probs of some tokens, `null` where they were not asked for.
    pub(super) fn log_probs(&self, tokens: &[Token]) -> Value {
        if self.asked.log_probs.is_none() {
            return Value::Null;
        }
        match self.asked.form {
            Form::Chat => {
                let content: Vec<Value> = tokens.iter().map(|token| self.chat_token(token)).collect();
                json!({"content": content, "refusal": null})
            }
            Form::Completion => {
                let names: Vec<String> = tokens.iter().map(|token| self.name(token.id)).collect();
                let log_probs: Vec<f64> = tokens.iter().map(|token| f64::from(token.log_prob)).collect();
                let offsets: Vec<usize> = tokens.iter().map(|token| token.offset).collect();
                let alternatives: Vec<Value> = tokens.iter().map(|token| self.named(token)).collect();
                json!({
                    "text_offset": offsets,
                    "token_logprobs": log_probs,
                    "tokens": names,
                    "top_logprobs": alternatives,
                })
            }
        }
    }

    fn chat_token(&self, token: &Token) -> Value {
        let entry = |id: u32, log_prob: f32| {
            let mut entry = Map::new();
            entry.insert("token".to_owned(), json!(self.name(id)));
            entry.insert("logprob".to_owned(), json!(f64::from(log_prob)));
            entry.insert("bytes".to_owned(), json!(self.facts.tokenizer.token_bytes(id)));
            entry
        };
        let alternatives: Vec<Value> = token
            .alternatives
            .iter()
            .map(|alternative| Value::Object(entry(alternative.token, alternative.log_prob)))
            .collect();
        let mut chosen = entry(token.id, token.log_prob);
        chosen.insert("top_logprobs".to_owned(), json!(alternatives));
        Value::Object(chosen)
    }

    /// Alternatives by name. As at OpenAI, the chosen token is among them.
    fn named(&self, token: &Token) -> Value {
        if token.alternatives.is_empty() {
            return Value::Null;
        }
        let listed = token
            .alternatives
            .iter()
            .map(|alternative| (alternative.token, alternative.log_prob));
        listed
            .chain([(token.id, token.log_prob)])
            .map(|(id, log_prob)| (self.name(id), json!(f64::from(log_prob))))
            .collect::<Map<_, _>>()
            .into()
    }

    /// A token's text; `bytes:\xe4\xb8` where that is no UTF-8; `token_id:5` where names by ids are asked for.
    fn name(&self, id: u32) -> String {
        if self.asked.named_by_id {
            return format!("token_id:{id}");
        }
        match String::from_utf8(self.facts.tokenizer.token_bytes(id)) {
            Ok(text) => text,
            Err(error) => error
                .as_bytes()
                .iter()
                .fold("bytes:".to_owned(), |name, byte| name + &format!("\\x{byte:02x}")),
        }
    }
}
