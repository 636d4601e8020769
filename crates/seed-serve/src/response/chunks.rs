//! An answer that comes piece by piece.

use serde_json::{Map, Value, json};

use super::Answer;
use crate::api_error::ApiError;
use crate::request::Form;
use crate::worker::{Event, Token};

/// Turns what happens to the responses of a request into pieces of the answer.
pub(crate) struct Chunks {
    answer: Answer,
    /// Whether each response's first piece has been made.
    begun: Vec<bool>,
    unfinished: usize,
    tokens: usize,
}

impl Chunks {
    pub(crate) fn new(answer: Answer) -> Self {
        let unfinished = answer.asked.sequences();
        Self {
            begun: vec![false; unfinished],
            answer,
            unfinished,
            tokens: 0,
        }
    }

    /// Whether all pieces have been made.
    pub(crate) fn is_complete(&self) -> bool {
        self.unfinished == 0
    }

    /// The pieces that something that happened makes, as data of server-sent events.
    pub(crate) fn add(&mut self, event: Event) -> Vec<String> {
        let mut pieces = Vec::new();
        match event {
            Event::Begun { weights } => self.answer.weights = Some(weights),
            Event::Grown { choice, text, tokens } => {
                self.begin(choice, &mut pieces);
                self.tokens += tokens.len();
                let tells = self.answer.asked.log_probs.is_some() || self.answer.asked.token_ids;
                if !text.is_empty() || tells && !tokens.is_empty() {
                    let content = match self.answer.asked.form {
                        Form::Chat => json!({"content": text}),
                        Form::Completion => json!(text),
                    };
                    pieces.push(self.piece(choice, content, &tokens, None));
                }
            }
            Event::Ended { choice, cause } => {
                self.begin(choice, &mut pieces);
                let content = match self.answer.asked.form {
                    Form::Chat => json!({}),
                    Form::Completion => json!(""),
                };
                let end = (Answer::finish_reason(cause), self.answer.stop_reason(cause));
                pieces.push(self.piece(choice, content, &[], Some(end)));
                self.unfinished = self.unfinished.saturating_sub(1);
                if self.is_complete() {
                    if self.answer.asked.stream_usage {
                        let mut body = self.answer.head(true);
                        body.insert("choices".to_owned(), json!([]));
                        body.insert("usage".to_owned(), self.answer.usage(self.tokens));
                        pieces.push(Value::Object(body).to_string());
                    }
                    pieces.push("[DONE]".to_owned());
                }
            }
            Event::Failed { message } => pieces.push(self.fail(message)),
        }
        pieces
    }

    /// The last piece of an answer that cannot be completed.
    pub(crate) fn fail(&mut self, message: String) -> String {
        self.unfinished = 0;
        ApiError::internal(message).body().to_string()
    }

    /// The first piece of a response: in a chat, who speaks.
    fn begin(&mut self, choice: usize, pieces: &mut Vec<String>) {
        let Some(begun) = self.begun.get_mut(choice) else {
            return;
        };
        if std::mem::replace(begun, true) {
            return;
        }
        match self.answer.asked.form {
            Form::Chat => {
                let mut body = self.body(choice, json!({"role": "assistant", "content": ""}), &[], None);
                if self.answer.asked.token_ids {
                    body.insert(
                        "prompt_token_ids".to_owned(),
                        json!(self.answer.prompt_ids(choice)),
                    );
                }
                pieces.push(Value::Object(body).to_string());
            }
            Form::Completion if self.answer.asked.token_ids => {
                let mut body = self.body(choice, json!(""), &[], None);
                if let Some(first) = body.get_mut("choices").and_then(|choices| choices.get_mut(0)) {
                    first["prompt_token_ids"] = json!(self.answer.prompt_ids(choice));
                }
                pieces.push(Value::Object(body).to_string());
            }
            Form::Completion => {}
        }
    }

    fn piece(
        &self,
        choice: usize,
        content: Value,
        tokens: &[Token],
        end: Option<(&'static str, Value)>,
    ) -> String {
        Value::Object(self.body(choice, content, tokens, end)).to_string()
    }

    fn body(
        &self,
        index: usize,
        content: Value,
        tokens: &[Token],
        end: Option<(&'static str, Value)>,
    ) -> Map<String, Value> {
        let answer = &self.answer;
        let mut choice = Map::new();
        choice.insert("index".to_owned(), json!(index));
        let name = match answer.asked.form {
            Form::Chat => "delta",
            Form::Completion => "text",
        };
        choice.insert(name.to_owned(), content);
        let log_probs = if tokens.is_empty() {
            Value::Null
        } else {
            answer.log_probs(tokens)
        };
        choice.insert("logprobs".to_owned(), log_probs);
        let (finish_reason, stop_reason) = match end {
            Some((finish, stop)) => (json!(finish), stop),
            None => (Value::Null, Value::Null),
        };
        choice.insert("finish_reason".to_owned(), finish_reason);
        choice.insert("stop_reason".to_owned(), stop_reason);
        if answer.asked.token_ids {
            let ids: Vec<u32> = tokens.iter().map(|token| token.id).collect();
            choice.insert("token_ids".to_owned(), json!(ids));
        }
        let mut body = answer.head(true);
        body.insert("choices".to_owned(), json!([choice]));
        if answer.asked.stream_usage {
            body.insert("usage".to_owned(), Value::Null);
        }
        body
    }
}
