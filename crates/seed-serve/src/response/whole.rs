//! An answer that comes at once.

use serde_json::{Map, Value, json};

use super::Answer;
use crate::api_error::ApiError;
use crate::request::Form;
use crate::worker::{EndCause, Event, Token};

/// Collects the responses of a request.
pub(crate) struct Whole {
    answer: Answer,
    choices: Vec<Choice>,
    unfinished: usize,
}

#[derive(Default)]
struct Choice {
    text: String,
    tokens: Vec<Token>,
    cause: Option<EndCause>,
}

impl Whole {
    pub(crate) fn new(answer: Answer) -> Self {
        let unfinished = answer.asked.sequences();
        Self {
            choices: (0..unfinished).map(|_| Choice::default()).collect(),
            answer,
            unfinished,
        }
    }

    /// Whether all responses are there.
    pub(crate) fn is_complete(&self) -> bool {
        self.unfinished == 0
    }

    /// Adds what happened.
    pub(crate) fn add(&mut self, event: Event) -> Result<(), ApiError> {
        match event {
            Event::Begun { weights } => self.answer.weights = Some(weights),
            Event::Grown { choice, text, tokens } => {
                if let Some(choice) = self.choices.get_mut(choice) {
                    choice.text.push_str(&text);
                    choice.tokens.extend(tokens);
                }
            }
            Event::Ended { choice, cause } => {
                if let Some(choice) = self.choices.get_mut(choice) {
                    choice.cause = Some(cause);
                    self.unfinished = self.unfinished.saturating_sub(1);
                }
            }
            Event::Failed { message } => return Err(ApiError::internal(message)),
        }
        Ok(())
    }

    /// The answer.
    pub(crate) fn body(&self) -> Value {
        let answer = &self.answer;
        let choices: Vec<Value> = self
            .choices
            .iter()
            .enumerate()
            .map(|(index, choice)| self.choice(index, choice))
            .collect();
        let mut body = answer.head(false);
        body.insert("choices".to_owned(), json!(choices));
        let tokens = self.choices.iter().map(|choice| choice.tokens.len()).sum();
        body.insert("usage".to_owned(), answer.usage(tokens));
        if answer.asked.token_ids && answer.asked.form == Form::Chat {
            body.insert("prompt_token_ids".to_owned(), json!(answer.prompt_ids(0)));
        }
        Value::Object(body)
    }

    fn choice(&self, index: usize, choice: &Choice) -> Value {
        let answer = &self.answer;
        let cause = choice.cause.unwrap_or(EndCause::Length);
        let mut body = Map::new();
        body.insert("index".to_owned(), json!(index));
        match answer.asked.form {
            Form::Chat => body.insert(
                "message".to_owned(),
                json!({"role": "assistant", "content": choice.text, "refusal": null}),
            ),
            Form::Completion => body.insert("text".to_owned(), json!(choice.text)),
        };
        body.insert("logprobs".to_owned(), answer.log_probs(&choice.tokens));
        body.insert("finish_reason".to_owned(), json!(Answer::finish_reason(cause)));
        body.insert("stop_reason".to_owned(), answer.stop_reason(cause));
        if answer.asked.token_ids {
            let ids: Vec<u32> = choice.tokens.iter().map(|token| token.id).collect();
            body.insert("token_ids".to_owned(), json!(ids));
            if answer.asked.form == Form::Completion {
                body.insert("prompt_token_ids".to_owned(), json!(answer.prompt_ids(index)));
            }
        }
        Value::Object(body)
    }
}
