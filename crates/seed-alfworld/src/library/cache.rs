//! Parsed games on disk.
//!
//! A pack holds all parsed games of one archive, or of one split's folder, in one file: a header, an index, the games,
//! and a checksum over everything. The pack of an archive is named by the hash of the archive's bytes; in the pack of
//! a folder every game carries the hash of its file, which decides when size and time of the file do not. A pack that
//! is damaged or of another version is made anew. Not for: anything that could not be made again from the game files.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use seed_env::Split;
use serde::{Deserialize, Serialize};

use crate::Family;
use crate::game_file::GameFile;

/// Begins every pack. The last number changes whenever the meaning or the layout of stored games does.
const MAGIC: &[u8; 24] = b"seed-alfworld-games v01\n";
const CHECKSUM_BYTES: usize = 32;
/// A pack larger than this is not ours; ALFWorld's largest split makes about 15 MB.
const MAX_PACK_BYTES: u64 = 1 << 30;

/// Where parsed games are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CacheFolder {
    /// `$XDG_CACHE_HOME/seed/alfworld`, or `~/.cache/seed/alfworld`; nothing is kept when neither is known.
    #[default]
    Standard,
    /// This folder.
    At(PathBuf),
    /// Nothing is kept.
    Disabled,
}

impl CacheFolder {
    /// The folder, if there is to be one.
    pub fn path(&self) -> Option<PathBuf> {
        match self {
            Self::At(path) => Some(path.clone()),
            Self::Disabled => None,
            Self::Standard => {
                let absolute = |variable: &str| {
                    std::env::var_os(variable)
                        .map(PathBuf::from)
                        .filter(|path| path.is_absolute())
                };
                let base = absolute("XDG_CACHE_HOME")
                    .or_else(|| absolute("HOME").map(|home| home.join(".cache")))?;
                Some(base.join("seed").join("alfworld"))
            }
        }
    }
}

/// What tells, without reading it, that a file is the one seen before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp {
    pub(crate) bytes: u64,
    /// Nanoseconds since 1970.
    pub(crate) modified: u64,
}

impl Stamp {
    /// The stamp of a file, or `None` where the system keeps no times.
    pub(crate) fn of(metadata: &std::fs::Metadata) -> Option<Self> {
        let modified = metadata
            .modified()
            .ok()?
            .duration_since(std::time::UNIX_EPOCH)
            .ok()?;
        Some(Self {
            bytes: metadata.len(),
            modified: u64::try_from(modified.as_nanos()).ok()?,
        })
    }
}

/// A game of a pack's index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PackedGame {
    pub(crate) split: Split,
    /// Task folder and trial, joined by `/`.
    pub(crate) path: String,
    pub(crate) family: Family,
    /// Stamps of `game.tw-pddl` and `traj_data.json`, for games in folders.
    pub(crate) stamps: Option<[Stamp; 2]>,
    /// BLAKE3 of `game.tw-pddl`.
    pub(crate) content: [u8; 32],
    /// `None` for a game that is marked as not solvable, which is remembered so as not to be read again.
    pub(crate) data: Option<PackedRange>,
}

/// Where a game lies among a pack's games.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PackedRange {
    start: u32,
    bytes: u32,
}

/// All games of an archive or of a split's folder.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pack {
    pub(crate) games: Vec<PackedGame>,
    data: Arc<Vec<u8>>,
}

/// What reading a pack gave.
#[derive(Debug)]
pub(crate) enum ReadPack {
    Good(Pack),
    Missing,
    /// There is a file, but it is damaged or of another version.
    Damaged,
}

impl Pack {
    /// A pack of games with their encoded contents; `None` when they exceed a pack's bounds, which no collection of
    /// real games does.
    pub(crate) fn new(games: impl IntoIterator<Item = (PackedGame, Option<Vec<u8>>)>) -> Option<Self> {
        let mut data = Vec::new();
        let mut list = Vec::new();
        for (mut game, encoded) in games {
            game.data = match encoded {
                Some(encoded) => {
                    let start = u32::try_from(data.len()).ok()?;
                    data.extend_from_slice(&encoded);
                    Some(PackedRange {
                        start,
                        bytes: u32::try_from(encoded.len()).ok()?,
                    })
                }
                None => None,
            };
            list.push(game);
        }
        Some(Self {
            games: list,
            data: Arc::new(data),
        })
    }

    /// The encoded contents of a game.
    pub(crate) fn encoded(&self, range: PackedRange) -> Option<&[u8]> {
        let start = range.start as usize;
        self.data.get(start..start.checked_add(range.bytes as usize)?)
    }

    /// The contents of a game. `None` when they cannot be decoded, which the checksum makes all but impossible.
    pub(crate) fn decode(&self, range: PackedRange) -> Option<GameFile> {
        postcard::from_bytes(self.encoded(range)?).ok()
    }

    pub(crate) fn read(path: &Path) -> ReadPack {
        match fs_err::metadata(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return ReadPack::Missing,
            Err(_) => return ReadPack::Damaged,
            Ok(metadata) if metadata.len() > MAX_PACK_BYTES => return ReadPack::Damaged,
            Ok(_) => {}
        }
        fs_err::read(path)
            .ok()
            .and_then(|bytes| Self::from_bytes(&bytes))
            .map_or(ReadPack::Damaged, ReadPack::Good)
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (body, checksum) = bytes.split_at_checked(bytes.len().checked_sub(CHECKSUM_BYTES)?)?;
        if blake3::hash(body).as_bytes() != checksum {
            return None;
        }
        let rest = body.strip_prefix(MAGIC)?;
        let (games, data) = postcard::take_from_bytes::<Vec<PackedGame>>(rest).ok()?;
        Some(Self {
            games,
            data: Arc::new(data.to_vec()),
        })
    }

    fn to_bytes(&self) -> Option<Vec<u8>> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(postcard::to_allocvec(&self.games).ok()?);
        bytes.extend_from_slice(&self.data);
        let checksum = blake3::hash(&bytes);
        bytes.extend_from_slice(checksum.as_bytes());
        Some(bytes)
    }

    /// Writes the pack so that readers see the old file or the whole new one.
    pub(crate) fn write(&self, path: &Path) -> std::io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("."));
        fs_err::create_dir_all(folder)?;
        let bytes = self
            .to_bytes()
            .ok_or_else(|| std::io::Error::other("the games could not be encoded"))?;
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(&bytes)?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pack() -> Pack {
        let game = |path: &str| PackedGame {
            split: Split::Seen,
            path: path.to_owned(),
            family: Family::PickAndPlaceSimple,
            stamps: None,
            content: [7; 32],
            data: None,
        };
        Pack::new([
            (game("a/1"), Some(vec![1, 2, 3])),
            (game("b/2"), None),
            (game("c/3"), Some(vec![4])),
        ])
        .unwrap()
    }

    #[test]
    fn written_packs_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep").join("x.pack");
        assert!(matches!(Pack::read(&path), ReadPack::Missing));
        pack().write(&path).unwrap();
        let ReadPack::Good(read) = Pack::read(&path) else {
            panic!("a good pack was refused");
        };
        assert_eq!(read.games, pack().games);
        assert_eq!(read.encoded(read.games[2].data.unwrap()), Some([4u8].as_slice()));
        assert_eq!(
            fs_err::read_dir(path.parent().unwrap()).unwrap().count(),
            1,
            "no temporary file stays"
        );
    }

    #[test]
    fn every_damaged_byte_and_every_cut_is_noticed() {
        let bytes = pack().to_bytes().unwrap();
        assert!(Pack::from_bytes(&bytes).is_some());
        for index in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[index] ^= 1;
            assert!(Pack::from_bytes(&damaged).is_none(), "byte {index}");
            assert!(Pack::from_bytes(&bytes[..index]).is_none(), "cut at {index}");
        }
    }
}
