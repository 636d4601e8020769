//! What can go wrong with indexes and encoders.

use std::path::PathBuf;

use thiserror::Error;

/// Why an index cannot be made or asked, or an encoder not be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RetrievalError {
    /// `k1` is no weight.
    #[error("`k1` is `{0}`; it must be finite and at least 0 (Anserini's is 0.9)")]
    K1(String),
    /// `b` is no share.
    #[error("`b` is `{0}`; it must lie between 0 and 1 (Anserini's is 0.4)")]
    B(String),
    /// More documents than the index can number.
    #[error("an index holds at most `{limit}` documents; split the collection")]
    TooManyDocuments {
        /// The limit.
        limit: usize,
    },
    /// Numbers that do not make whole vectors.
    #[error("`{numbers}` numbers do not make vectors of `{dimension}`")]
    VectorShape {
        /// Numbers per vector.
        dimension: usize,
        /// Numbers in all.
        numbers: usize,
    },
    /// A vector with a number that is not finite.
    #[error(
        "the vector of document {document} holds a number that is not finite; encode the collection again"
    )]
    NotFinite {
        /// Position of the document.
        document: usize,
    },
    /// A query of another length than the indexed vectors.
    #[error(
        "the query has `{found}` numbers and the index `{expected}`; use the encoder that made the index"
    )]
    QueryLength {
        /// Numbers per indexed vector.
        expected: usize,
        /// Numbers of the query.
        found: usize,
    },
    /// A file of an encoder that is missing or wrong.
    #[error("`{}` is not usable as a sentence encoder: {message}", path.display())]
    Encoder {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do.
        message: String,
    },
    /// A text that the tokenizer refuses.
    #[error("a text of {characters} characters could not be cut into tokens: {message}")]
    Tokens {
        /// Its length.
        characters: usize,
        /// What the tokenizer says.
        message: String,
    },
}
