//! What can be wrong with the numbers handed to this crate.

use thiserror::Error;

/// Errors of advantages, objectives and their options. Each names the operands and what to do next.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum RlError {
    /// An option is outside its range.
    #[error("`{option}` is `{value}`; it must be {rule}")]
    InvalidOption {
        /// Name of the option as configured.
        option: &'static str,
        /// The value given.
        value: String,
        /// The rule it breaks.
        rule: &'static str,
    },
    /// A group holds a single trajectory, whose group-relative advantage is undefined.
    #[error(
        "group `{group}` has one trajectory, so its advantage is undefined; sample at least two trajectories per \
         task, or set `allow_single` to give such a group advantage 0"
    )]
    GroupOfOne {
        /// The group.
        group: u64,
    },
    /// Two slices that describe the same tokens differ in length.
    #[error(
        "sequence {sequence}: `{field}` has {found} values for {expected} response tokens; score exactly the \
         sampled ids"
    )]
    LengthMismatch {
        /// Index of the sequence in the batch.
        sequence: usize,
        /// The slice at fault.
        field: &'static str,
        /// Its length.
        found: usize,
        /// The number of response tokens.
        expected: usize,
    },
    /// A recorded or fresh score is NaN or infinite.
    #[error(
        "sequence {sequence} (trajectory `{trajectory}`): `{field}` is `{value}` at response token {token}; do not \
         take the optimiser step, and inspect that sample"
    )]
    NonFinite {
        /// Index of the sequence in the batch.
        sequence: usize,
        /// Its trajectory.
        trajectory: u64,
        /// The slice at fault.
        field: &'static str,
        /// Index of the token within the response.
        token: usize,
        /// The value found.
        value: f32,
    },
    /// A mini-batch names a sequence that the batch does not hold.
    #[error("mini-batch names sequence {sequence}, but the batch holds {available}")]
    UnknownSequence {
        /// The index asked for.
        sequence: usize,
        /// Sequences in the batch.
        available: usize,
    },
    /// A mini-batch was closed before all of its sequences were evaluated.
    #[error(
        "mini-batch position {position} was never evaluated; run every sequence before closing the mini-batch"
    )]
    NotEvaluated {
        /// Position within the mini-batch.
        position: usize,
    },
    /// The options need a slice that the sequence does not carry.
    #[error("sequence {sequence} has no `{field}`, which `{option}` needs")]
    MissingScores {
        /// Index of the sequence in the batch.
        sequence: usize,
        /// The absent slice.
        field: &'static str,
        /// The option that needs it.
        option: &'static str,
    },
}
