//! BM25 over an index in memory, with Lucene's arithmetic.
//!
//! A document's score for a query is the sum over the query's distinct terms, in 32-bit floats where Lucene has them:
//!
//! ```text
//! weight = boost · ln(1 + (N − df + 0.5) / (df + 0.5))
//! score  = weight − weight / (1 + f / (k1 · (1 − b + b · dl / avgdl)))
//! ```
//!
//! `N` counts the documents with at least one term, `df` those with this term, `f` is how often it occurs in the document, `boost`
//! how often in the query, `dl` the document's length in terms as Lucene's one byte keeps it ([`quantised_length`]),
//! `avgdl` the mean of the exact lengths. There is no factor `k1 + 1`, as in Lucene since version 8.
//!
//! Not for: several fields, phrases, deletion, or an index larger than memory.

mod index;
mod length;

pub use index::{Bm25Builder, Bm25Index};
pub use length::quantised_length;

use crate::Accents;

/// A text to be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Document<'a> {
    /// What the caller calls it.
    pub id: &'a str,
    /// What is searched.
    pub text: &'a str,
}

/// What comes first of documents with one score.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TieOrder {
    /// The document that was added first.
    #[default]
    Position,
    /// The smaller id in the order of its bytes, as in Anserini; of equal ids, the one added first.
    Id,
}

/// Constants of the ranking.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bm25Options {
    /// How slowly repeats of a term stop to count; finite, at least 0.
    pub k1: f32,
    /// How much long documents are marked down, 0 to 1.
    pub b: f32,
    /// The order of equal scores.
    pub ties: TieOrder,
    /// What documents' and queries' terms make of accents.
    pub accents: Accents,
}

impl Default for Bm25Options {
    /// Anserini's: `k1 = 0.9`, `b = 0.4`, accents kept.
    fn default() -> Self {
        Self {
            k1: 0.9,
            b: 0.4,
            ties: TieOrder::Position,
            accents: Accents::Keep,
        }
    }
}
