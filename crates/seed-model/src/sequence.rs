//! Sequences to be scored, their scores and the derivatives of a loss with respect to those.
//!
//! Not for: how they are computed; see [`crate::Decoder`].

use crate::error::ModelError;

/// A sequence of token ids with the positions whose tokens are to be scored.
#[derive(Clone, Copy, Debug)]
pub struct TokenSequence<'a> {
    /// All ids, context included.
    pub tokens: &'a [u32],
    /// Increasing positions of at least 1: the token at position `p` is predicted from `tokens[..p]`.
    pub scored: &'a [u32],
}

/// One value per scored position.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scores {
    /// Natural logarithm of the token's probability under `softmax(logits / temperature)`.
    pub log_probs: Vec<f32>,
    /// Entropy of that distribution in nats.
    pub entropies: Vec<f32>,
}

impl Scores {
    /// Checks the values of the sequence at `index` of a call's list.
    pub(crate) fn check_finite(&self, index: usize, positions: &[u32]) -> Result<(), ModelError> {
        for (quantity, values) in [("log-prob", &self.log_probs), ("entropy", &self.entropies)] {
            if let Some((&value, &position)) =
                values.iter().zip(positions).find(|(value, _)| !value.is_finite())
            {
                return Err(ModelError::NonFinite {
                    owner: sequence_name(index),
                    quantity,
                    position: position as usize,
                    value,
                });
            }
        }
        Ok(())
    }
}

/// How messages call the sequence at `index` of a call's list.
pub(crate) fn sequence_name(index: usize) -> String {
    format!("sequence {index}")
}

/// Derivatives of the loss with respect to each of [`Scores`], one per scored position.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScoreGradients {
    /// With respect to the log-probs.
    pub log_probs: Vec<f32>,
    /// With respect to the entropies.
    pub entropies: Vec<f32>,
}

impl TokenSequence<'_> {
    /// Number of leading tokens which the decoder has to read: those before the last scored one.
    pub(crate) fn rows(&self) -> usize {
        self.scored.last().map_or(0, |&position| position as usize)
    }

    /// Checks positions and ids.
    pub(crate) fn validate(
        &self,
        owner: &dyn Fn() -> String,
        vocabulary_size: usize,
        maximum: usize,
    ) -> Result<(), ModelError> {
        let length = self.tokens.len();
        let mut previous = 0;
        for &position in self.scored {
            let position = position as usize;
            if position <= previous || position >= length {
                return Err(ModelError::ScoredPosition {
                    owner: owner(),
                    position,
                    length,
                });
            }
            previous = position;
        }
        validate_tokens(self.tokens, 0, owner, vocabulary_size)?;
        if length > maximum {
            return Err(ModelError::TooLong {
                owner: owner(),
                length,
                maximum,
            });
        }
        Ok(())
    }
}

/// Checks that all ids, which stand at `first_position..`, are below the vocabulary size.
pub(crate) fn validate_tokens(
    tokens: &[u32],
    first_position: usize,
    owner: &dyn Fn() -> String,
    vocabulary_size: usize,
) -> Result<(), ModelError> {
    match tokens.iter().position(|&token| token as usize >= vocabulary_size) {
        None => Ok(()),
        Some(offset) => Err(ModelError::TokenOutsideVocabulary {
            owner: owner(),
            token: tokens[offset],
            position: first_position + offset,
            vocabulary_size,
        }),
    }
}
