//! What can go wrong between the trainer and an engine.

use thiserror::Error;

/// A failure of this crate.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum BackendError {
    /// An option is out of its range.
    #[error("the engine's `{option}` is `{value}`; it must be {rule}")]
    Option {
        /// The option.
        option: &'static str,
        /// Its value.
        value: String,
        /// What it must be.
        rule: &'static str,
    },
    /// The engine cannot be reached, or the connection broke.
    #[error("`{url}` cannot be reached after {attempts} attempts: {reason}; see that the engine runs there")]
    Connection {
        /// What was asked.
        url: String,
        /// Attempts made.
        attempts: u32,
        /// What happened.
        reason: String,
    },
    /// The engine refuses.
    #[error("`{url}` answers with status {status} after {attempts} attempts: {excerpt}")]
    Status {
        /// What was asked.
        url: String,
        /// The status.
        status: u16,
        /// Attempts made.
        attempts: u32,
        /// The beginning of its answer.
        excerpt: String,
    },
    /// The answer is not what this kind of engine answers.
    #[error("`{url}`: {problem}; see docs/serving.md for how the engine must be started")]
    Answer {
        /// What was asked.
        url: String,
        /// What is wrong.
        problem: String,
    },
    /// The engine sampled with other weights than it was given.
    #[error(
        "the engine answers with weights `{found}` while `{expected}` were published: it did not take the update; nothing was trained on the answer"
    )]
    Version {
        /// What was published last.
        expected: String,
        /// What the answer names.
        found: String,
    },
    /// The engine says that it read other weights than were written.
    #[error(
        "the engine read weights of digest `{found}` from `{folder}`, where `{expected}` was written: see that it reads that folder"
    )]
    Digest {
        /// The folder.
        folder: String,
        /// Digest of what was written.
        expected: String,
        /// Digest of what was read.
        found: String,
    },
    /// An adapter would be added to weights that hold one already.
    #[error(
        "the engine holds the merged weights `{weights}`, so an adapter would be applied twice: start it anew with the base \
         and `engine.weights = \"adapter\"`, or keep `engine.weights = \"disk\"`"
    )]
    AppliedTwice {
        /// The weights that the engine holds.
        weights: String,
    },
    /// The engine's own model is not the adapter's base.
    #[error(
        "the engine's `{model}` is not the base of the adapter: log-probs differ from the base's by {measured} nats {measure}, \
         more than {limit}; start the engine with the base itself. Were it the base with the adapter merged in, the adapter \
         would be applied twice"
    )]
    Base {
        /// The model's name at the engine.
        model: String,
        /// How it was measured: `on average` or `at most`.
        measure: &'static str,
        /// What was found.
        measured: f64,
        /// What is allowed.
        limit: f64,
    },
    /// This kind of engine cannot do that.
    #[error("{dialect} engines cannot {what}; {instead}")]
    Unsupported {
        /// The kind.
        dialect: &'static str,
        /// What was asked.
        what: &'static str,
        /// What would do.
        instead: &'static str,
    },
    /// The engine's log-probs are too far from the trainer's.
    #[error(
        "log-probs of the engine differ from the trainer's by {measured} nats {measure}, more than {limit}: see that both have the same weights and temperature and that the engine returns log-probs after the temperature; nothing was updated"
    )]
    Mismatch {
        /// How it was measured: `on average` or `at most`.
        measure: &'static str,
        /// What was found.
        measured: f64,
        /// What is allowed.
        limit: f64,
    },
}

impl BackendError {
    /// Whether what is wrong concerns the engine's weights and so every answer of it.
    pub(crate) fn is_of_all_requests(&self) -> bool {
        matches!(
            self,
            Self::Version { .. } | Self::Digest { .. } | Self::AppliedTwice { .. }
        )
    }
}
