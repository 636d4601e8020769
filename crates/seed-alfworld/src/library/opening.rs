//! Opening a library: finding games in folders and archives, and keeping them in the cache.
//!
//! Not for: loading a game once it was found.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

use rayon::iter::{IntoParallelIterator, IntoParallelRefIterator, ParallelIterator};
use rustc_hash::FxHashMap;
use seed_env::{Split, TaskId};
use serde::Deserialize;

use super::cache::{Pack, PackedGame, ReadPack, Stamp};
use super::{
    ArchivedGame, BoundedError, GAME_FILE, Library, LibraryCounters, LibraryError, LibraryGame,
    LibraryOptions, Origin, TASK_DATA_FILE, WORLD_NAME, read_archive, read_bounded, split_folder,
};
use crate::game_file::GameFile;
use crate::{Family, ProblemError};

const ROOT_FOLDER: &str = "json_2.1.1";
const ARCHIVE_SUFFIX: &str = ".tar.zst";
/// Games read from an archive before they are parsed together; bounds the memory that unparsed games take.
const BATCH: usize = 128;

#[derive(Deserialize)]
struct TaskData {
    task_type: String,
}

#[derive(Deserialize)]
struct Solvable {
    solvable: bool,
}

/// See [`Library::open`].
pub(super) fn open(path: &Path, options: &LibraryOptions) -> Result<Library, LibraryError> {
    let mut opening = Opening {
        options,
        cache: options.cache.path(),
        library: Library {
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
        for split in Split::ALL {
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

    fn add(&mut self, split: Split, path: String, family: Family, content: [u8; 32], origin: Origin) {
        if !self.options.splits.contains(&split) || !self.options.families.contains(&family) {
            return;
        }
        self.library.games.entry(split).or_default().push(LibraryGame {
            id: TaskId::new(format!("{WORLD_NAME}/{}/{path}", split_folder(split))),
            path,
            family,
            content,
            origin,
            game: Mutex::default(),
        });
    }

    fn add_pack(&mut self, pack: Pack) {
        let number = self.library.packs.len();
        for game in &pack.games {
            if let Some(range) = game.data {
                let origin = Origin::Packed { pack: number, range };
                self.add(game.split, game.path.clone(), game.family, game.content, origin);
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
        let found: Vec<Option<(Trial, Family, [u8; 32])>> = trials
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
                Ok(solvable.then_some((trial, family, *blake3::hash(&bytes).as_bytes())))
            })
            .collect::<Result<_, LibraryError>>()?;
        for (number, (trial, family, content)) in found.into_iter().flatten().enumerate() {
            if number == 0 {
                let bytes = read_game(folder, &trial)?;
                GameFile::parse(&bytes).map_err(|source| LibraryError::Game {
                    game: trial.path.clone(),
                    path: folder.to_owned(),
                    source,
                })?;
            }
            self.add(split, trial.path, family, content, Origin::Folder(trial.folder));
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
