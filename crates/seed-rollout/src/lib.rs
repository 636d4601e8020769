//! The turn loop: many episodes against one policy, recorded as trajectories.
//!
//! A rollout takes a list of episodes to play, drives the environments and the generation engine together, and returns
//! one [`Trajectory`] per episode with everything training needs: the exact token ids, the log-probs they were sampled
//! with, turn boundaries, validity, rewards and how the episode ended. Nothing here is ever rebuilt from text.
//!
//! Not for: what is learned from a trajectory (`seed-hindsight`, `seed-rl`), or how a prompt is worded (`seed-env`).

mod conversation;
mod error;
mod rollout;
mod sequence;
mod trajectory;

pub use conversation::{Conversation, Truncation};
pub use error::RolloutError;
pub use rollout::{
    Decoration, EpisodeRequest, FailedRequest, Generator, Progress, RolloutOptions, RolloutReport,
    TokenBudget, rollout,
};
pub use sequence::{Segment, Sequence, SequenceOptions};
pub use trajectory::{FinishKind, Step, Trajectory};
