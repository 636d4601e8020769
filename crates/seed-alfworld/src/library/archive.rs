//! Games inside `.tar.zst` archives, read without unpacking.
//!
//! Not for: other archive formats, or writing archives.

use std::io::{BufReader, Read};
use std::path::Path;

use fs_err::File;
use rustc_hash::FxHashMap;
use seed_env::Split;

use super::{LibraryError, split_from_folder};
use crate::game_file::MAX_GAME_BYTES;

/// Largest zstd window accepted: 128 MiB, what `zstd --long=27` uses.
const WINDOW_LOG_MAX: u32 = 27;
/// Bound on the unpacked size; all of ALFWorld's games together unpack to 365 MB.
const MAX_UNPACKED_BYTES: u64 = 8 << 30;
/// Bound on the number of entries; all of ALFWorld's games together make about 16,000.
const MAX_ENTRIES: u64 = 1 << 20;

/// The two files of one game, as an archive holds them.
#[derive(Debug)]
pub struct ArchivedGame {
    /// The split whose folder the game is in, if any.
    pub split: Option<Split>,
    /// Task folder and trial, joined by `/`.
    pub path: String,
    /// Contents of `game.tw-pddl`.
    pub game: Vec<u8>,
    /// Contents of `traj_data.json`.
    pub task_data: Vec<u8>,
}

/// Halves of games whose other file has not come yet.
#[derive(Default)]
struct Halves {
    game: Option<Vec<u8>>,
    task_data: Option<Vec<u8>>,
}

/// Reads an archive once and hands over each game that has both files, in the order of the archive.
///
/// # Errors
/// [`LibraryError`] when the archive is damaged or beyond all bounds, or what `visit` returns.
pub fn read_archive(
    path: &Path,
    mut visit: impl FnMut(ArchivedGame) -> Result<(), LibraryError>,
) -> Result<(), LibraryError> {
    let damaged = |source| LibraryError::Archive {
        path: path.to_owned(),
        source,
    };
    let too_large = |what, limit| LibraryError::ArchiveTooLarge {
        path: path.to_owned(),
        what,
        limit,
    };
    let file = BufReader::new(File::open(path)?);
    let mut decoder = zstd::Decoder::with_buffer(file).map_err(damaged)?;
    decoder.window_log_max(WINDOW_LOG_MAX).map_err(damaged)?;
    let mut archive = tar::Archive::new(decoder.take(MAX_UNPACKED_BYTES));
    let mut halves: FxHashMap<(Option<Split>, String), Halves> = FxHashMap::default();
    let mut entries = 0;
    let mut unpacked = 0;
    for entry in archive.entries().map_err(damaged)? {
        let entry = entry.map_err(damaged)?;
        entries += 1;
        if entries > MAX_ENTRIES {
            return Err(too_large("entries", MAX_ENTRIES));
        }
        unpacked += entry.size();
        if unpacked >= MAX_UNPACKED_BYTES {
            return Err(too_large("bytes", MAX_UNPACKED_BYTES));
        }
        let entry_path = entry.path().map_err(damaged)?;
        let components: Option<Vec<&str>> = entry_path
            .components()
            .filter(|component| !matches!(component, std::path::Component::CurDir))
            .map(|component| component.as_os_str().to_str())
            .collect();
        let Some([before @ .., task, trial, file_name]) = components.as_deref() else {
            continue;
        };
        if !matches!(*file_name, super::GAME_FILE | super::TASK_DATA_FILE) {
            continue;
        }
        let is_game = *file_name == super::GAME_FILE;
        let key = (
            before.last().copied().and_then(split_from_folder),
            format!("{task}/{trial}"),
        );
        if entry.size() > MAX_GAME_BYTES {
            return Err(too_large("bytes in one game file", MAX_GAME_BYTES));
        }
        let mut contents = Vec::with_capacity(entry.size() as usize);
        let mut entry = entry;
        entry.read_to_end(&mut contents).map_err(damaged)?;
        let half = halves.entry(key.clone()).or_default();
        if is_game {
            half.game = Some(contents);
        } else {
            half.task_data = Some(contents);
        }
        if half.game.is_some()
            && half.task_data.is_some()
            && let Some(Halves {
                game: Some(game),
                task_data: Some(task_data),
            }) = halves.remove(&key)
        {
            visit(ArchivedGame {
                split: key.0,
                path: key.1,
                game,
                task_data,
            })?;
        }
    }
    Ok(())
}
