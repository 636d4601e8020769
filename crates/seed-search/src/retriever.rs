//! Who finds passages for a query.
//!
//! Not for: how passages are shown to the policy ([`crate::information_block`]).

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A stretch of text that can be found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passage {
    /// What the collection calls it.
    pub id: String,
    /// A title in double quotes, a line break, and the text, as collections for Search-R1 have it.
    pub contents: String,
}

/// A passage found for a query.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundPassage {
    /// The passage.
    pub passage: Arc<Passage>,
    /// How well it fits the query, in the retriever's own unit; higher is better. `None` where a server did not say.
    pub score: Option<f32>,
}

/// Why passages could not be found.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct RetrieverError {
    /// What went wrong, with the operands: which server, how many attempts, what it said.
    pub message: String,
}

/// Finds passages. Shared by all episodes, so it must be able to serve many at once.
pub trait Retriever: Send + Sync {
    /// The best `count` passages for each query, best first. Fewer, even none, where not so many fit.
    ///
    /// # Errors
    /// [`RetrieverError`] when the retriever broke or could not be reached; nothing found is no error.
    fn retrieve(&self, queries: &[&str], count: usize) -> Result<Vec<Vec<FoundPassage>>, RetrieverError>;

    /// Whether passages are found inside this process, so that an answer always comes.
    fn is_native(&self) -> bool {
        true
    }

    /// What tells this retriever from one that could find other passages, for a world's digest.
    fn identity(&self) -> String;
}
