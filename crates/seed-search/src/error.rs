//! What can go wrong with questions, passages and searches.

use std::path::PathBuf;

use seed_run::RunError;
use thiserror::Error;

/// A failure of this crate.
#[derive(Debug, Error)]
pub enum SearchError {
    /// A server that must not listen as asked.
    #[error(transparent)]
    Guard(#[from] seed_http::GuardFault),
    /// A parquet file has no column for something that a question needs.
    #[error("`{}` lacks the columns {missing}; it has {found}", path.display())]
    MissingColumns {
        /// The file.
        path: PathBuf,
        /// What is missing, each with the columns that would do.
        missing: String,
        /// The columns there are.
        found: String,
    },
    /// A parquet file that cannot be read.
    #[error("`{}` cannot be read as parquet: {message}", path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// A record that is no question.
    #[error("record {record} of `{}` is no question: {message}", path.display())]
    Question {
        /// The file.
        path: PathBuf,
        /// The record, from 1.
        record: usize,
        /// What is wrong with it.
        message: String,
    },
    /// A file without questions.
    #[error("`{}` has no questions", path.display())]
    NoQuestions {
        /// The file.
        path: PathBuf,
    },
    /// A folder without question files.
    #[error(
        "`{}` has no question files; it needs `train`, `dev` or `test`, each ending in `.parquet`, `.jsonl`, \
         `.jsonl.gz` or `.jsonl.zst`",
        folder.display()
    )]
    NoQuestionFiles {
        /// The folder.
        folder: PathBuf,
    },
    /// A generated world that has not as many questions as were asked for.
    #[error("`{wanted}` questions are wanted in `{split}` and there are `{available}`; ask for fewer")]
    TooFewQuestions {
        /// The split.
        split: &'static str,
        /// How many are wanted.
        wanted: usize,
        /// How many there are.
        available: usize,
    },
    /// A record that is no passage.
    #[error("record {record} of `{}` is no passage: {message}", path.display())]
    Passage {
        /// The file.
        path: PathBuf,
        /// The record, from 1.
        record: usize,
        /// What is wrong with it.
        message: String,
    },
    /// A file without passages.
    #[error("`{}` has no passages", path.display())]
    NoPassages {
        /// The file.
        path: PathBuf,
    },
    /// A saved index that must not be used.
    #[error("the index `{}` is not usable: {message}", folder.display())]
    Index {
        /// Its folder.
        folder: PathBuf,
        /// What is wrong, and what to do.
        message: String,
    },
    /// An option of a client or server that is out of its range.
    #[error("`{option}` is `{value}`; it must be {rule}")]
    Option {
        /// The option.
        option: &'static str,
        /// Its value.
        value: String,
        /// What it must be.
        rule: &'static str,
    },
    /// The server could not be started.
    #[error("the server could not listen on `{address}`")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// The system's answer.
        #[source]
        source: std::io::Error,
    },
    /// Indexing or encoding failed.
    #[error(transparent)]
    Retrieval(#[from] seed_retrieval::RetrievalError),
    /// A file or line that cannot be read.
    #[error(transparent)]
    File(#[from] RunError),
    /// A file that cannot be opened; the message names it.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}
