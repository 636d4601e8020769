//! The errors of this crate: every one names its operands and what to do about it.

use thiserror::Error;

/// What can go wrong between a model directory and a log-probability.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A `config.json` is not a JSON object with values of the right types.
    #[error("config.json cannot be read: {source}")]
    ConfigSyntax {
        /// What the JSON reader says, with line and column.
        source: serde_json::Error,
    },
    /// A value of a `config.json` is missing, out of range, or asks for something that is not computed here.
    #[error("config.json: `{key}` {message}")]
    ConfigValue {
        /// The key as spelled in the file.
        key: String,
        /// What is wrong with it.
        message: String,
    },
    /// Parameters do not have the names or shapes which the configuration calls for.
    #[error(
        "parameter `{name}` has shape {found:?}, the configuration calls for {expected:?}: load weights of this architecture or correct the configuration"
    )]
    ParameterShape {
        /// Name in Hugging Face form.
        name: String,
        /// Shape asked for by the configuration.
        expected: Vec<usize>,
        /// Shape found.
        found: Vec<usize>,
    },
    /// The configuration's list of parameters lacks one which the decoder needs.
    #[error(
        "parameter `{name}` is missing: the configuration does not list it, so this decoder cannot be built"
    )]
    ParameterMissing {
        /// Name in Hugging Face form.
        name: String,
    },
    /// A token id is not below the vocabulary size.
    #[error(
        "{owner}: token id `{token}` at position {position} is outside the vocabulary of {vocabulary_size}: the tokenizer and the model do not belong together"
    )]
    TokenOutsideVocabulary {
        /// Which sequence or request.
        owner: String,
        /// The id.
        token: u32,
        /// Its position in the sequence.
        position: usize,
        /// Number of ids the model knows.
        vocabulary_size: usize,
    },
    /// A sequence is longer than the model's context.
    #[error(
        "{owner}: {length} tokens exceed the model's context of {maximum}: shorten the prompt or history, or use a model with a longer context"
    )]
    TooLong {
        /// Which sequence or request.
        owner: String,
        /// Its length in tokens.
        length: usize,
        /// The largest length allowed.
        maximum: usize,
    },
    /// Nothing to continue from: a generation needs at least one token of context.
    #[error("{owner}: no tokens: give at least one token to condition on")]
    Empty {
        /// Which sequence or request.
        owner: String,
    },
    /// Scored positions are not increasing, start at zero or lie past the end.
    #[error(
        "{owner}: scored position {position} is not valid in a sequence of {length} tokens: positions must increase, be at least 1 and below the length"
    )]
    ScoredPosition {
        /// Which sequence.
        owner: String,
        /// The first offending position.
        position: usize,
        /// The sequence's length in tokens.
        length: usize,
    },
    /// The loss returned a different number of derivatives than there were scores.
    #[error("{owner}: the loss returned {found} derivatives of `{quantity}` for {expected} scored tokens")]
    LossLength {
        /// Which sequence.
        owner: String,
        /// `log_probs` or `entropies`.
        quantity: &'static str,
        /// Number of scored tokens.
        expected: usize,
        /// Number returned.
        found: usize,
    },
    /// A number which must be finite is not.
    #[error(
        "{owner}: {quantity} is not finite (`{value}`) at position {position}: the parameters have probably diverged; lower the learning rate or go back to an earlier checkpoint"
    )]
    NonFinite {
        /// Which sequence or request.
        owner: String,
        /// Which quantity, for instance `log-prob`.
        quantity: &'static str,
        /// Position in the sequence.
        position: usize,
        /// The offending value.
        value: f32,
    },
    /// A setting is out of its range.
    #[error("{owner}: `{setting}` is {value}, it must be {allowed}")]
    Setting {
        /// Which request or component.
        owner: String,
        /// Name of the setting.
        setting: &'static str,
        /// The value given.
        value: String,
        /// What would be accepted.
        allowed: &'static str,
    },
    /// A sequence state was made by a decoder of another shape.
    #[error(
        "{owner}: the sequence state has {found} layers of cached keys and values, the decoder has {expected}: start from `SequenceState::new` of this decoder"
    )]
    ForeignState {
        /// Which request.
        owner: String,
        /// Layers of the decoder.
        expected: usize,
        /// Layers of the state.
        found: usize,
    },
    /// Saved optimiser state does not fit the parameters.
    #[error("optimiser state: {problem}: the checkpoint belongs to another model")]
    OptimiserState {
        /// What differs, with names.
        problem: String,
    },
}
