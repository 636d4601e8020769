//! A conversation of a person with a policy, in the policy's own chat format.
//!
//! The same ids as in training: the conversation is only ever appended to, and what a person writes can spell no control
//! token. Not for: environments ([`crate::evaluate`]) or serving many at once.

use std::sync::Arc;

use seed_model::{Engine, EngineOptions, FinishReason, GenerateRequest, Sampling, SequenceState};
use seed_random::RandomKey;

use crate::TrainError;
use crate::policy::Policy;

/// How answers are generated.
#[derive(Clone, Copy, Debug)]
pub struct ChatOptions {
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Most tokens of one answer.
    pub max_new_tokens: usize,
    /// Seed of the drawn tokens.
    pub seed: u64,
}

/// One answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Its text, without control tokens.
    pub text: String,
    /// Its ids, the stop token included if one was chosen.
    pub token_ids: Vec<u32>,
    /// Why it ended.
    pub finish: FinishReason,
}

/// A conversation in progress.
pub struct Chat<'a> {
    policy: &'a Policy,
    engine: Engine<'a>,
    options: ChatOptions,
    state: SequenceState,
    key: RandomKey,
    turns: u64,
}

impl<'a> Chat<'a> {
    /// An empty conversation.
    pub fn new(policy: &'a Policy, options: ChatOptions) -> Self {
        Self {
            policy,
            engine: Engine::new(&policy.decoder, EngineOptions::default()),
            options,
            state: SequenceState::new(&policy.decoder),
            key: RandomKey::new(options.seed).with_text("purpose", "chat"),
            turns: 0,
        }
    }

    /// Answers a message. `on_text` is given the answer's text piece by piece as it comes to be.
    ///
    /// # Errors
    /// [`TrainError::Model`] where the conversation has become longer than the model's context, or its numbers are not
    /// finite; the conversation is then as it was before the message.
    pub fn answer(&mut self, message: &str, on_text: &mut dyn FnMut(&str)) -> Result<Answer, TrainError> {
        let conversation = &self.policy.conversation;
        let mut append = match self.state.token_ids().last() {
            None => conversation.opening(message),
            last => conversation.next_turn(message, last.copied()),
        };
        let maximum = self.policy.decoder.config().max_positions;
        let length = self.state.len() + append.len();
        if length >= maximum {
            return Err(seed_model::ModelError::TooLong {
                owner: "the conversation".to_owned(),
                length,
                maximum,
            }
            .into());
        }
        let mut state = self.state.clone();
        let mut token_ids = Vec::new();
        let mut shown = 0;
        let turn = self.key.with("turn", self.turns);
        let finish = loop {
            // One token at a time, so that it can be shown.
            let request = GenerateRequest {
                id: self.turns,
                state,
                append: std::mem::take(&mut append),
                max_new_tokens: 1,
                max_length: maximum,
                sampling: self.options.sampling,
                stop: Arc::clone(&self.policy.end_tokens),
                key: turn.with("token", token_ids.len() as u64),
            };
            // One request has one generation.
            let generation = self.engine.run(vec![request])?.swap_remove(0);
            state = generation.state;
            token_ids.extend(generation.token_ids);
            let text = conversation.decode(&token_ids);
            // A character may need several tokens: until then it decodes to the replacement character.
            let whole = text.trim_end_matches('\u{fffd}');
            if let Some(new) = whole.get(shown..).filter(|new| !new.is_empty()) {
                on_text(new);
                shown = whole.len();
            }
            if generation.finish != FinishReason::Length {
                break generation.finish;
            }
            if token_ids.len() >= self.options.max_new_tokens {
                break FinishReason::Length;
            }
        };
        let text = conversation.decode(&token_ids);
        if let Some(rest) = text.get(shown..).filter(|rest| !rest.is_empty()) {
            on_text(rest);
        }
        self.state = state;
        self.turns += 1;
        Ok(Answer {
            text,
            token_ids,
            finish,
        })
    }
}
