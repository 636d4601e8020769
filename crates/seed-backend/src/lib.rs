//! External inference engines as generators of rollouts.
//!
//! An engine gets token ids and returns the ids it sampled with their log-probs; text takes no part. After an update it is
//! told to read the new weights, a whole folder or an adapter, from a disk that both see. Its log-probs come from other
//! kernels than the trainer's, so their difference is measured, and training on too large a one is refused.
//!
//! Not for: starting engines, or moving weights over the network.

mod client;
mod dialect;
mod error;
mod generator;
mod mismatch;
mod options;
mod weights;

pub use client::Client;
pub use dialect::{Answer, Dialect};
pub use error::BackendError;
pub use generator::{RemoteGenerator, Sample};
pub use mismatch::{Mismatch, MismatchLimit};
pub use options::BackendOptions;
pub use weights::{PublishedWeights, VERSION_PREFIX};
