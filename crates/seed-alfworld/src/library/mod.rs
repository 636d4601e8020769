//! Collections of games on disk: ALFWorld's folders and archives, their splits, and a cache of parsed games.
//!
//! Which games count follows ALFWorld's own loader: both files exist, the path names neither `movable` nor `Sliced`,
//! the task type is wanted, the game is solvable. Their order does not (it depends on the file system there): games are
//! sorted by path. Not for: playing them.

mod archive;
mod cache;
mod error;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rayon::iter::{IntoParallelIterator, IntoParallelRefIterator, ParallelIterator};
use rustc_hash::FxHashMap;
use seed_env::{EnvironmentError, Split, TaskId};
use serde::Deserialize;

pub use archive::{ArchivedGame, read_archive};
pub use cache::CacheFolder;
use cache::{Pack, PackedGame, PackedRange, ReadPack, Stamp};
pub use error::LibraryError;

use crate::game_file::{GameFile, check_size};
use crate::{Family, Game, GameSource, ProblemError};

const GAME_FILE: &str = "game.tw-pddl";
const TASK_DATA_FILE: &str = "traj_data.json";
const ROOT_FOLDER: &str = "json_2.1.1";
const ARCHIVE_SUFFIX: &str = ".tar.zst";
/// Games read from an archive before they are parsed together; bounds the memory that unparsed games take.
const BATCH: usize = 128;

/// The first part of task ids.
pub const WORLD_NAME: &str = "alfworld";

/// All splits, in the order in which they are opened.
pub const SPLITS: [Split; 4] = [Split::Train, Split::Development, Split::Seen, Split::Unseen];

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
    SPLITS.into_iter().find(|&split| split_folder(split) == name)
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
            splits: SPLITS.to_vec(),
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

#[derive(Deserialize)]
struct TaskData {
    task_type: String,
}

#[derive(Deserialize)]
struct Solvable {
    solvable: bool,
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
        let mut opening = Opening {
            options,
            cache: options.cache.path(),
            library: Self {
                path: path.to_owned(),
                games: BTreeMap::new(),
                packs: Vec::new(),
                counters: LibraryCounters::default(),
                loaded: AtomicUsize::new(0),
            },
        };
        let nested = path.join(ROOT_FOLDER);
        let root = if nested.is_dir() { nested } else { path.to_owned() };
        let mut found = false;
        if path.is_file() {
            found = true;
            opening.archive(path)?;
        } else {
            for split in SPLITS {
                let folder = root.join(split_folder(split));
                let archive = path.join(format!("{}{ARCHIVE_SUFFIX}", split_folder(split)));
                let (has_folder, has_archive) = (folder.is_dir(), archive.is_file());
                found |= has_folder || has_archive;
                if !options.splits.contains(&split) {
                    continue;
                }
                if has_folder {
                    opening.folder(&folder, split)?;
                } else if has_archive {
                    opening.archive(&archive)?;
                }
            }
        }
        let mut library = opening.library;
        for games in library.games.values_mut() {
            games.sort_by(|left, right| left.path.cmp(&right.path));
            games.dedup_by(|later, earlier| later.path == earlier.path);
        }
        if !found || (path.is_file() && library.is_empty()) {
            return Err(LibraryError::NoGames {
                path: path.to_owned(),
            });
        }
        Ok(library)
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

/// The family that a `traj_data.json` names, if it is one of the six.
fn family_of(path: &Path, task_data: &[u8]) -> Result<Option<Family>, LibraryError> {
    let data: TaskData = serde_json::from_slice(task_data).map_err(|source| LibraryError::TaskData {
        path: path.to_owned(),
        source,
    })?;
    Ok(Family::from_name(&data.task_type))
}

/// Whether ALFWorld's loader leaves a path out whatever it holds.
fn is_left_out(path: &str) -> bool {
    path.contains("movable") || path.contains("Sliced")
}

/// A game read and parsed, ready for a pack.
type Parsed = (PackedGame, Option<Vec<u8>>);

/// Parses one game for a pack; one that is not solvable is kept without contents.
fn parse_for_pack(
    path: &Path,
    split: Split,
    game: (String, Family),
    bytes: &[u8],
    stamps: Option<[Stamp; 2]>,
) -> Result<Parsed, LibraryError> {
    let (game, family) = game;
    let encoded = match GameFile::parse(bytes) {
        Ok(file) => Some(postcard::to_allocvec(&file).map_err(|_| LibraryError::Game {
            game: game.clone(),
            path: path.to_owned(),
            source: ProblemError::Inconsistent {
                reason: "the game cannot be stored".to_owned(),
            },
        })?),
        Err(ProblemError::Unsolvable) => None,
        Err(source) => {
            return Err(LibraryError::Game {
                game,
                path: path.to_owned(),
                source,
            });
        }
    };
    let packed = PackedGame {
        split,
        path: game,
        family,
        stamps,
        content: *blake3::hash(bytes).as_bytes(),
        data: None,
    };
    Ok((packed, encoded))
}

/// A library being opened.
struct Opening<'a> {
    options: &'a LibraryOptions,
    cache: Option<PathBuf>,
    library: Library,
}

/// A trial folder that has both files.
struct Trial {
    path: String,
    folder: PathBuf,
    stamps: Option<[Stamp; 2]>,
}

impl Opening<'_> {
    fn pack_file(&self, key: &blake3::Hash) -> Option<PathBuf> {
        Some(self.cache.as_ref()?.join(format!("{}.pack", key.to_hex())))
    }

    fn read_pack(&mut self, file: Option<&Path>) -> Option<Pack> {
        match Pack::read(file?) {
            ReadPack::Good(pack) => Some(pack),
            ReadPack::Missing => None,
            ReadPack::Damaged => {
                self.library.counters.caches_rebuilt += 1;
                None
            }
        }
    }

    fn write_pack(&mut self, pack: &Pack, file: Option<&Path>) {
        if let Some(file) = file
            && let Err(error) = pack.write(file)
        {
            self.library.counters.cache_write_error = Some(error.to_string());
        }
    }

    fn add(&mut self, split: Split, path: String, family: Family, origin: Origin) {
        if !self.options.splits.contains(&split) || !self.options.families.contains(&family) {
            return;
        }
        self.library.games.entry(split).or_default().push(LibraryGame {
            id: TaskId::new(format!("{WORLD_NAME}/{}/{path}", split_folder(split))),
            path,
            family,
            origin,
            game: Mutex::default(),
        });
    }

    fn add_pack(&mut self, pack: Pack) {
        let number = self.library.packs.len();
        for game in &pack.games {
            if let Some(range) = game.data {
                let origin = Origin::Packed { pack: number, range };
                self.add(game.split, game.path.clone(), game.family, origin);
            }
        }
        self.library.packs.push(pack);
    }

    fn archive(&mut self, path: &Path) -> Result<(), LibraryError> {
        let mut hasher = blake3::Hasher::new();
        std::io::copy(&mut fs_err::File::open(path)?, &mut hasher)?;
        let file = self.pack_file(&hasher.finalize());
        let pack = if let Some(pack) = self.read_pack(file.as_deref()) {
            self.library.counters.cached += pack.games.len();
            pack
        } else {
            let pack = build_archive_pack(path)?;
            self.library.counters.parsed += pack.games.len();
            self.write_pack(&pack, file.as_deref());
            pack
        };
        self.add_pack(pack);
        Ok(())
    }

    fn folder(&mut self, folder: &Path, split: Split) -> Result<(), LibraryError> {
        let trials = list_trials(folder)?;
        if self.cache.is_none() {
            return self.folder_without_cache(folder, split, trials);
        }
        let canonical = fs_err::canonicalize(folder)?;
        let key = blake3::hash(canonical.as_os_str().as_encoded_bytes());
        let file = self.pack_file(&key);
        let old = self.read_pack(file.as_deref()).unwrap_or_default();
        let by_path: FxHashMap<&str, &PackedGame> =
            old.games.iter().map(|game| (game.path.as_str(), game)).collect();
        let found: Vec<Option<(Parsed, bool)>> = trials
            .into_par_iter()
            .map(|trial| {
                let known = by_path.get(trial.path.as_str()).copied();
                refresh(folder, split, &trial, known, &old)
            })
            .collect::<Result<_, _>>()?;
        let found: Vec<(Parsed, bool)> = found.into_iter().flatten().collect();
        let read = found.iter().filter(|(_, unread)| !unread).count();
        self.library.counters.parsed += read;
        self.library.counters.cached += found.len() - read;
        let changed = read > 0 || found.len() != old.games.len();
        let pack = Pack::new(found.into_iter().map(|(parsed, _)| parsed)).ok_or_else(|| {
            LibraryError::ArchiveTooLarge {
                path: folder.to_owned(),
                what: "bytes of parsed games",
                limit: u64::from(u32::MAX),
            }
        })?;
        if changed {
            self.write_pack(&pack, file.as_deref());
        }
        self.add_pack(pack);
        Ok(())
    }

    fn folder_without_cache(
        &mut self,
        folder: &Path,
        split: Split,
        trials: Vec<Trial>,
    ) -> Result<(), LibraryError> {
        let found: Vec<Option<(Trial, Family)>> = trials
            .into_par_iter()
            .map(|trial| {
                let Some(family) = read_family(&trial)? else {
                    return Ok(None);
                };
                let bytes = read_game(folder, &trial)?;
                let Solvable { solvable } =
                    serde_json::from_slice(&bytes).map_err(|source| LibraryError::Game {
                        game: trial.path.clone(),
                        path: folder.to_owned(),
                        source: ProblemError::Json(source),
                    })?;
                Ok(solvable.then_some((trial, family)))
            })
            .collect::<Result<_, LibraryError>>()?;
        for (number, (trial, family)) in found.into_iter().flatten().enumerate() {
            if number == 0 {
                let bytes = read_game(folder, &trial)?;
                GameFile::parse(&bytes).map_err(|source| LibraryError::Game {
                    game: trial.path.clone(),
                    path: folder.to_owned(),
                    source,
                })?;
            }
            self.add(split, trial.path, family, Origin::Folder(trial.folder));
        }
        Ok(())
    }
}

fn read_family(trial: &Trial) -> Result<Option<Family>, LibraryError> {
    let path = trial.folder.join(TASK_DATA_FILE);
    family_of(&path, &fs_err::read(&path)?)
}

fn read_game(folder: &Path, trial: &Trial) -> Result<Vec<u8>, LibraryError> {
    read_bounded(&trial.folder.join(GAME_FILE)).map_err(|error| match error {
        BoundedError::Read(source) => LibraryError::Read(source),
        BoundedError::Size(source) => LibraryError::Game {
            game: trial.path.clone(),
            path: folder.to_owned(),
            source,
        },
    })
}

/// The game of a trial for a new pack, taken from the old one where possible, and whether its file was not read.
/// `None` for task types that are not ALFWorld's.
fn refresh(
    folder: &Path,
    split: Split,
    trial: &Trial,
    known: Option<&PackedGame>,
    old: &Pack,
) -> Result<Option<(Parsed, bool)>, LibraryError> {
    let keep = |known: &PackedGame| {
        let encoded = match known.data {
            Some(range) => Some(old.encoded(range)?.to_vec()),
            None => None,
        };
        Some((known.clone(), encoded))
    };
    if let Some(known) = known
        && known.stamps.is_some()
        && known.stamps == trial.stamps
        && let Some(kept) = keep(known)
    {
        return Ok(Some((kept, true)));
    }
    let Some(family) = read_family(trial)? else {
        return Ok(None);
    };
    let bytes = read_game(folder, trial)?;
    if let Some(known) = known
        && known.content == *blake3::hash(&bytes).as_bytes()
        && let Some((mut kept, encoded)) = keep(known)
    {
        kept.family = family;
        kept.stamps = trial.stamps;
        return Ok(Some(((kept, encoded), false)));
    }
    let game = (trial.path.clone(), family);
    parse_for_pack(folder, split, game, &bytes, trial.stamps).map(|parsed| Some((parsed, false)))
}

/// The trial folders of a split's folder that ALFWorld's loader would look at, sorted by path.
fn list_trials(folder: &Path) -> Result<Vec<Trial>, LibraryError> {
    let folders_in = |folder: &Path| -> Result<Vec<String>, LibraryError> {
        let mut names = Vec::new();
        for entry in fs_err::read_dir(folder)? {
            // A name that is not UTF-8 is none of ALFWorld's.
            if let Ok(name) = entry?.file_name().into_string()
                && !is_left_out(&name)
            {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    };
    let tasks: Vec<String> = folders_in(folder)?
        .into_iter()
        .filter(|task| folder.join(task).is_dir())
        .collect();
    let trials: Vec<Vec<Trial>> = tasks
        .par_iter()
        .map(|task| {
            let mut trials = Vec::new();
            for trial in folders_in(&folder.join(task))? {
                let trial_folder = folder.join(task).join(&trial);
                // Unlike an unreadable file, a missing one only means that this is no game.
                let stamp = |name: &str| {
                    fs_err::metadata(trial_folder.join(name))
                        .ok()
                        .filter(std::fs::Metadata::is_file)
                        .map(|metadata| Stamp::of(&metadata))
                };
                if let (Some(game), Some(task_data)) = (stamp(GAME_FILE), stamp(TASK_DATA_FILE)) {
                    trials.push(Trial {
                        path: format!("{task}/{trial}"),
                        folder: trial_folder,
                        stamps: game.zip(task_data).map(|(game, task_data)| [game, task_data]),
                    });
                }
            }
            Ok(trials)
        })
        .collect::<Result<_, LibraryError>>()?;
    let mut trials: Vec<Trial> = trials.into_iter().flatten().collect();
    trials.sort_unstable_by(|left, right| left.path.cmp(&right.path));
    Ok(trials)
}

/// Parses all games of an archive.
fn build_archive_pack(path: &Path) -> Result<Pack, LibraryError> {
    let mut parsed: Vec<Parsed> = Vec::new();
    let mut batch: Vec<(Split, String, ArchivedGame)> = Vec::new();
    let mut parse = |batch: Vec<(Split, String, ArchivedGame)>| -> Result<(), LibraryError> {
        let games: Vec<Option<Parsed>> = batch
            .into_par_iter()
            .map(|(split, game_path, game)| {
                let task_data_path = path.join(&game_path).join(TASK_DATA_FILE);
                let Some(family) = family_of(&task_data_path, &game.task_data)? else {
                    return Ok(None);
                };
                parse_for_pack(path, split, (game_path, family), &game.game, None).map(Some)
            })
            .collect::<Result<_, LibraryError>>()?;
        parsed.extend(games.into_iter().flatten());
        Ok(())
    };
    read_archive(path, |game| {
        if let Some(split) = game.split
            && !is_left_out(&game.path)
        {
            batch.push((split, game.path.clone(), game));
        }
        if batch.len() == BATCH {
            parse(std::mem::take(&mut batch))?;
        }
        Ok(())
    })?;
    parse(batch)?;
    parsed.sort_by(|left, right| (left.0.split, &left.0.path).cmp(&(right.0.split, &right.0.path)));
    Pack::new(parsed).ok_or_else(|| LibraryError::ArchiveTooLarge {
        path: path.to_owned(),
        what: "bytes of parsed games",
        limit: u64::from(u32::MAX),
    })
}
