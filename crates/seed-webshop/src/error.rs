//! Errors of this crate.
//!
//! Not for: deciding what to do about them.

use std::path::PathBuf;

use seed_retrieval::RetrievalError;
use thiserror::Error;

/// Why a shop could not be opened.
#[derive(Debug, Error)]
pub enum WebshopError {
    /// A file could not be read.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A file of the data set is not there.
    #[error(
        "`{}` has no `{wanted}` (nor `{wanted}.gz`); put WebShop's data files there, or use the world `shop`, which needs \
         none", folder.display()
    )]
    MissingFile {
        /// The folder searched.
        folder: PathBuf,
        /// Name of the file.
        wanted: String,
    },
    /// A file is not the JSON expected.
    #[error("`{}` is not the JSON expected of it; it may be cut short, download it again", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// What went wrong, with line and column.
        #[source]
        source: serde_json::Error,
    },
    /// One product of the catalogue is malformed.
    #[error("`{}`: product {index} (from 0): {reason}", path.display())]
    Product {
        /// The file.
        path: PathBuf,
        /// 0-based place in the file's list.
        index: usize,
        /// What is wrong, and with which product where its `asin` could be read.
        reason: String,
    },
    /// One line of a file of JSON lines is malformed.
    #[error("`{}`, line {line}: not {expected}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// 1-based line.
        line: usize,
        /// What a line holds.
        expected: &'static str,
        /// What went wrong.
        #[source]
        source: serde_json::Error,
    },
    /// No product has an instruction of the kind asked for.
    #[error("the catalogue has no {kind} goals; it needs products with instructions")]
    NoGoals {
        /// `synthetic` or `human`.
        kind: &'static str,
    },
    /// More products or goals than a shop holds.
    #[error("there are `{found}` {what}, more than the limit of `{limit}`")]
    TooMany {
        /// What there are too many of.
        what: &'static str,
        /// How many there are.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// The products cannot be indexed.
    #[error(transparent)]
    Retrieval(#[from] RetrievalError),
}
