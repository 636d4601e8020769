//! Causal soft-max attention with grouped queries, over a per-sequence key-value cache, forward and backward.
//!
//! A query's result has the same bits whether it is computed alone (decoding), in a chunk (pre-fill) or with its whole
//! sequence (training): scores are one chain over the head dimension, the soft-max sum is keyed by position modulo
//! 16, and the output is one chain over the visible keys in order.
//!
//! Not for: packing several sequences into one call; each sequence has its own cache and calls.

mod backward;
mod cache;
mod forward;

pub use backward::attention_backward;
pub use cache::KeyValueCache;
pub use forward::attention;

use crate::lanes::LANES;

/// The shape of an attention layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionShape {
    /// Number of query heads; a multiple of `key_value_heads`.
    pub query_heads: usize,
    /// Number of key and value heads. Query head `h` reads key-value head `h / (query_heads / key_value_heads)`.
    pub key_value_heads: usize,
    /// Length of one head's query, key or value.
    pub head_dim: usize,
    /// What scores are multiplied by before the soft-max, usually `1 / sqrt(head_dim)`.
    pub scale: f32,
}

impl AttentionShape {
    /// Query heads that share one key-value head.
    pub(crate) fn group(&self) -> usize {
        self.query_heads / self.key_value_heads
    }

    /// Values in one row of queries or outputs.
    pub fn query_width(&self) -> usize {
        self.query_heads * self.head_dim
    }

    /// Values in one row of keys or values.
    pub fn key_value_width(&self) -> usize {
        self.key_value_heads * self.head_dim
    }

    fn check(&self) {
        assert!(
            self.key_value_heads > 0 && self.query_heads.is_multiple_of(self.key_value_heads),
            "`query_heads` ({}) must be a multiple of `key_value_heads` ({})",
            self.query_heads,
            self.key_value_heads
        );
        assert!(self.head_dim > 0, "`head_dim` must be positive");
    }
}

/// A row length of at least `count` values: an odd number of cache lines, so that rows below one another spread over
/// all places in the first cache.
fn spread_stride(count: usize) -> usize {
    (count.div_ceil(LANES) | 1) * LANES
}
