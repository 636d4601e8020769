//! Documents found by text.
//!
//! [`analyse`] cuts English text into index terms as Lucene's `EnglishAnalyzer` does in Anserini; [`Bm25Index`]
//! ranks documents for a query with Lucene's BM25, score for score. Both are the ones of the Python originals of
//! WebShop and of BM25 baselines in question answering, so rankings can be compared with theirs.
//! [`SentenceEncoder`] makes vectors of texts with a BERT model in a Hugging Face folder, and [`DenseIndex`] ranks
//! documents by theirs.
//!
//! Not for: environments or the network; index terms of other languages than English.

mod analysis;
mod bm25;
mod dense;
mod encoder;
mod error;
mod ranking;

pub use analysis::{Accents, analyse, analyse_with, stem};
pub use bm25::{Bm25Builder, Bm25Index, Bm25Options, Document, TieOrder, quantised_length};
pub use dense::DenseIndex;
pub use encoder::{EncoderOptions, Pooling, SentenceEncoder};
pub use error::RetrievalError;
pub use ranking::Hit;
