//! Why a collection of games could not be opened or a game in it not loaded.
//!
//! Not for: what is wrong inside a game's problem (see [`ProblemError`]).

use std::path::PathBuf;

use thiserror::Error;

use crate::ProblemError;

/// Errors of [`Library`](crate::Library).
#[derive(Debug, Error)]
pub enum LibraryError {
    /// There are no games at the path.
    #[error(
        "no ALFWorld games at `{path}`: expected a folder that holds `json_2.1.1` or is it, a folder with archives named \
         like `valid_seen.tar.zst`, or one `.tar.zst` archive; `alfworld-download` (Python package `alfworld`) fetches \
         the games"
    )]
    NoGames {
        /// The path searched.
        path: PathBuf,
    },
    /// A file or folder could not be read; the message names it.
    #[error(transparent)]
    Read(#[from] std::io::Error),
    /// A `traj_data.json` is damaged.
    #[error("`{path}` is not the JSON object of a `traj_data.json`; it may be cut short, download it again")]
    TaskData {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: serde_json::Error,
    },
    /// A game was refused.
    #[error("game `{game}` of `{path}` was refused")]
    Game {
        /// Task folder and trial.
        game: String,
        /// The folder or archive it is in.
        path: PathBuf,
        /// Why.
        #[source]
        source: ProblemError,
    },
    /// An archive is damaged or is no archive.
    #[error(
        "`{path}` could not be read as a zstd-compressed tar archive; it may be cut short, download it again"
    )]
    Archive {
        /// The archive.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: std::io::Error,
    },
    /// An archive holds more than is read.
    #[error("`{path}` holds more than `{limit}` {what}; it is no archive of ALFWorld games")]
    ArchiveTooLarge {
        /// The archive.
        path: PathBuf,
        /// What there is too much of.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// The library has no such game.
    #[error("no game `{id}`; the library at `{path}` holds {count} games")]
    UnknownGame {
        /// The id asked for.
        id: String,
        /// The library's path.
        path: PathBuf,
        /// Number of games it holds.
        count: usize,
    },
}
