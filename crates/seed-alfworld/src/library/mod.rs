//! Collections of games on disk: ALFWorld's folders and archives, their splits, and a cache of parsed games.
//!
//! Which games count follows ALFWorld's own loader: both files exist, the path names neither `movable` nor `Sliced`,
//! the task type is wanted, the game is solvable. Their order does not (it depends on the file system there): games are
//! sorted by path. Not for: playing them.

mod archive;
mod cache;
mod error;
mod opening;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use seed_env::{EnvironmentError, Split, TaskId};

pub use archive::{ArchivedGame, read_archive};
pub use cache::CacheFolder;
use cache::{Pack, PackedRange};
pub use error::LibraryError;

use crate::game_file::{GameFile, check_size};
use crate::{Family, Game, GameSource, ProblemError};

const GAME_FILE: &str = "game.tw-pddl";
const TASK_DATA_FILE: &str = "traj_data.json";

/// The first part of task ids.
pub const WORLD_NAME: &str = "alfworld";

/// ALFWorld's folder name of a split.
pub fn split_folder(split: Split) -> &'static str {
    match split {
        Split::Train => "train",
        Split::Development => "valid_train",
        Split::Seen => "valid_seen",
        Split::Unseen => "valid_unseen",
    }
}

/// The split of a folder name.
pub fn split_from_folder(name: &str) -> Option<Split> {
    Split::ALL.into_iter().find(|&split| split_folder(split) == name)
}

/// How to open a library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibraryOptions {
    /// The splits wanted; those that are not there are empty.
    pub splits: Vec<Split>,
    /// The task families wanted.
    pub families: Vec<Family>,
    /// Where parsed games are kept.
    pub cache: CacheFolder,
}

impl Default for LibraryOptions {
    fn default() -> Self {
        Self {
            splits: Split::ALL.to_vec(),
            families: Family::ALL.to_vec(),
            cache: CacheFolder::Standard,
        }
    }
}

/// What happened while a library was opened and used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LibraryCounters {
    /// Games parsed from their files.
    pub parsed: usize,
    /// Games taken from the cache while opening, without reading their files.
    pub cached: usize,
    /// Cache files that were damaged or of another version and made anew.
    pub caches_rebuilt: usize,
    /// Why the cache could not be written, if it could not; the library works all the same.
    pub cache_write_error: Option<String>,
}

/// One game of a library.
#[derive(Debug)]
pub struct LibraryGame {
    id: TaskId,
    /// Task folder and trial, joined by `/`.
    path: String,
    family: Family,
    /// BLAKE3 hash of the game's file.
    content: [u8; 32],
    origin: Origin,
    /// The parsed game, for as long as somebody plays it: members of a group share it.
    game: Mutex<Weak<Game>>,
}

/// Where a game comes from when it is loaded.
#[derive(Debug)]
enum Origin {
    /// Position in a pack of the library.
    Packed { pack: usize, range: PackedRange },
    /// A folder with the game's files.
    Folder(PathBuf),
}

impl LibraryGame {
    /// Stable identity, `alfworld/<split>/<task folder>/<trial>`.
    pub fn id(&self) -> &TaskId {
        &self.id
    }

    /// Task folder and trial, joined by `/`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// BLAKE3 hash of the game's file, by which games with the same name but other contents are told apart.
    pub fn content(&self) -> &[u8; 32] {
        &self.content
    }

    /// Task family, as ALFRED's data name it.
    pub fn family(&self) -> Family {
        self.family
    }
}

/// Games found at one path, by split and sorted.
#[derive(Debug)]
pub struct Library {
    path: PathBuf,
    games: BTreeMap<Split, Vec<LibraryGame>>,
    packs: Vec<Pack>,
    counters: LibraryCounters,
    loaded: AtomicUsize,
}

impl Library {
    /// Opens the games at a path: a folder that holds `json_2.1.1` or is it, a folder with archives named like
    /// `valid_seen.tar.zst`, or one archive.
    ///
    /// With a cache, games are parsed when the library is first opened (about a second for all of ALFWorld) and later
    /// openings read one file a split. Without one, archives are parsed at each opening, and games in folders when
    /// they are first loaded; of these, the first game of each split is parsed at once, so that games of another
    /// release are refused before anything starts.
    ///
    /// # Errors
    /// [`LibraryError`] when there are no games, or one of them cannot be read.
    pub fn open(path: &Path, options: &LibraryOptions) -> Result<Self, LibraryError> {
        opening::open(path, options)
    }

    /// The path given when the library was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The games of a split, sorted by path.
    pub fn games(&self, split: Split) -> &[LibraryGame] {
        self.games.get(&split).map_or(&[], Vec::as_slice)
    }

    /// Number of games in all splits.
    pub fn len(&self) -> usize {
        self.games.values().map(Vec::len).sum()
    }

    /// Whether there is no game.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What happened so far.
    pub fn counters(&self) -> LibraryCounters {
        let mut counters = self.counters.clone();
        counters.parsed += self.loaded.load(Ordering::Relaxed);
        counters
    }

    /// The game of an id, `alfworld/<split>/<task folder>/<trial>`.
    pub fn find(&self, id: &str) -> Option<&LibraryGame> {
        let rest = id.strip_prefix(WORLD_NAME)?.strip_prefix('/')?;
        let (folder, path) = rest.split_once('/')?;
        let games = self.games(split_from_folder(folder)?);
        let index = games.binary_search_by(|game| game.path.as_str().cmp(path)).ok()?;
        Some(&games[index])
    }

    /// Loads the game of an id.
    ///
    /// # Errors
    /// [`LibraryError`] when there is no such game or it cannot be read.
    pub fn load_id(&self, id: &str) -> Result<Arc<Game>, LibraryError> {
        let game = self.find(id).ok_or_else(|| LibraryError::UnknownGame {
            id: id.to_owned(),
            path: self.path.clone(),
            count: self.len(),
        })?;
        self.load(game)
    }

    /// Loads a game. It is shared with everybody who holds it at the same time.
    ///
    /// # Errors
    /// [`LibraryError`] when it cannot be read.
    pub fn load(&self, game: &LibraryGame) -> Result<Arc<Game>, LibraryError> {
        // A slot left behind by a panicking thread holds a whole game or none.
        let mut slot = game.game.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = slot.upgrade() {
            return Ok(loaded);
        }
        let refused = |source| LibraryError::Game {
            game: game.path.clone(),
            path: self.path.clone(),
            source,
        };
        let file = match &game.origin {
            Origin::Packed { pack, range } => self
                .packs
                .get(*pack)
                .and_then(|pack| pack.decode(*range))
                .ok_or_else(|| {
                    refused(ProblemError::Inconsistent {
                        reason: "the stored game cannot be decoded; delete the cache folder".to_owned(),
                    })
                })?,
            Origin::Folder(folder) => {
                self.loaded.fetch_add(1, Ordering::Relaxed);
                let bytes = read_bounded(&folder.join(GAME_FILE)).map_err(|error| match error {
                    BoundedError::Read(source) => LibraryError::Read(source),
                    BoundedError::Size(source) => refused(source),
                })?;
                GameFile::parse(&bytes).map_err(refused)?
            }
        };
        let loaded = Arc::new(file.game(game.id.as_str()).map_err(refused)?);
        *slot = Arc::downgrade(&loaded);
        Ok(loaded)
    }
}

impl GameSource for Library {
    fn game(&self, task: &TaskId) -> Result<Arc<Game>, EnvironmentError> {
        let game = self
            .find(task.as_str())
            .ok_or_else(|| EnvironmentError::UnknownTask {
                task: task.clone(),
                world: WORLD_NAME.to_owned(),
            })?;
        self.load(game).map_err(|source| EnvironmentError::Load {
            task: task.clone(),
            source: Box::new(source),
        })
    }
}

enum BoundedError {
    Read(std::io::Error),
    Size(ProblemError),
}

fn read_bounded(path: &Path) -> Result<Vec<u8>, BoundedError> {
    let bytes = fs_err::metadata(path).map_err(BoundedError::Read)?.len();
    check_size(bytes).map_err(BoundedError::Size)?;
    fs_err::read(path).map_err(BoundedError::Read)
}
