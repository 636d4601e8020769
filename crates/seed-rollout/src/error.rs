//! What can stop a rollout as a whole. A single failing episode is an outcome, not an error.

use thiserror::Error;

/// Why a rollout stopped.
#[derive(Debug, Error)]
pub enum RolloutError {
    /// The policy could not generate.
    #[error("generation failed")]
    Generation(#[from] seed_model::ModelError),
    /// The environments could not be stepped, or too many of them failed.
    #[error("stepping environments failed")]
    Environment(#[from] seed_env::PoolError),
    /// The engine finished a request nobody asked for.
    #[error("the engine returned episode {id}, of which {episodes} were submitted; this is a bug")]
    UnknownRequest {
        /// Id returned.
        id: u64,
        /// Episodes in the rollout.
        episodes: usize,
    },
}
