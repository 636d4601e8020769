//! Documents found by text.
//!
//! [`analyse`] cuts English text into index terms as Lucene's `EnglishAnalyzer` does in Anserini; [`Bm25Index`] ranks
//! documents for a query with Lucene's BM25, score for score. Both are the ones of the Python originals of WebShop
//! and of BM25 baselines in question answering, so rankings can be compared with theirs.
//!
//! Not for: environments, the network, or vectors; other languages than English.

mod analysis;
mod bm25;

pub use analysis::{analyse, stem};
pub use bm25::{
    Bm25Builder, Bm25Index, Bm25Options, Document, Hit, RetrievalError, TieOrder, quantised_length,
};
