//! The folder of a run's checkpoints: listing, checking, loading, pruning.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::de::DeserializeOwned;

use super::draft::{CheckpointDraft, temporary_name};
use super::manifest::{FileRecord, MANIFEST, Manifest};
use crate::durable::{TEMPORARY, sync_parent, write_atomic_on};
use crate::error::{CheckpointFault, RunError};
use crate::file_system::{Disk, FileSystem};
use crate::tensors::{NamedTensor, read_tensors};

/// Start of a checkpoint folder's name.
const PREFIX: &str = "step-";
/// Bytes read at once when checking.
const BLOCK: usize = 256 * 1024;
/// A manifest above this size is no manifest.
const MANIFEST_LIMIT: u64 = 16 << 20;

/// A run's checkpoints.
#[derive(Clone, Debug)]
pub struct CheckpointStore {
    directory: PathBuf,
    file_system: Arc<dyn FileSystem>,
    /// Steps that this process has read back and found right.
    verified: Arc<Mutex<BTreeSet<u64>>>,
}

/// A complete checkpoint.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    directory: PathBuf,
    manifest: Manifest,
    file_system: Arc<dyn FileSystem>,
}

/// A checkpoint folder that was passed over, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The folder.
    pub directory: PathBuf,
    /// What is wrong with it.
    pub fault: CheckpointFault,
}

/// The result of looking for the newest checkpoint.
#[derive(Clone, Debug)]
pub struct Search {
    /// The newest one that is complete; `None` when there is none.
    pub found: Option<Checkpoint>,
    /// Newer ones that were passed over, newest first.
    pub rejected: Vec<Rejected>,
}

/// Which checkpoints pruning keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// The newest so many; fewer than two counts as two.
    pub keep_last: usize,
    /// The one with the best evaluation.
    pub best: Option<u64>,
    /// Every one whose step is a multiple of this.
    pub keep_every: Option<u64>,
}

impl CheckpointStore {
    /// Opens or creates the folder and removes what earlier crashes left half-written.
    ///
    /// # Errors
    /// The failed operation.
    pub fn open(directory: &Path) -> Result<Self, RunError> {
        Self::open_on(Arc::new(Disk), directory)
    }

    /// Like [`CheckpointStore::open`], on any file system.
    ///
    /// # Errors
    /// The failed operation.
    pub fn open_on(file_system: Arc<dyn FileSystem>, directory: &Path) -> Result<Self, RunError> {
        file_system
            .create_directories(directory)
            .map_err(|source| RunError::io("create the folder", directory, 0, source))?;
        sync_parent(file_system.as_ref(), directory)?;
        let store = Self {
            directory: directory.to_owned(),
            file_system,
            verified: Arc::default(),
        };
        for (name, is_folder) in store.entries()? {
            if name.contains(TEMPORARY) {
                let path = directory.join(name);
                let removed = if is_folder {
                    store.file_system.remove_directory(&path)
                } else {
                    store.file_system.remove_file(&path)
                };
                removed.map_err(|source| RunError::io("remove the leftover", &path, 0, source))?;
            }
        }
        Ok(store)
    }

    /// Begins the checkpoint of `step`; nothing is visible until it is published.
    ///
    /// # Errors
    /// The failed operation.
    pub fn begin(&self, step: u64) -> Result<CheckpointDraft<'_>, RunError> {
        CheckpointDraft::begin(self, step)
    }

    /// Steps of all checkpoint folders, ascending, whether complete or not.
    ///
    /// # Errors
    /// The failed operation.
    pub fn steps(&self) -> Result<Vec<u64>, RunError> {
        let mut steps: Vec<u64> = self
            .entries()?
            .iter()
            .filter(|(_, is_folder)| *is_folder)
            .filter_map(|(name, _)| {
                let step = name.strip_prefix(PREFIX)?.parse().ok()?;
                // Only the one spelling this store writes, so that a step has one folder.
                (Self::name_of(step) == *name).then_some(step)
            })
            .collect();
        steps.sort_unstable();
        Ok(steps)
    }

    /// The newest complete checkpoint, found by checking every file's size and digest.
    ///
    /// # Errors
    /// The folder could not be listed. Damaged checkpoints are no error; they are reported in the result.
    pub fn newest(&self) -> Result<Search, RunError> {
        let mut rejected = Vec::new();
        for step in self.steps()?.into_iter().rev() {
            match self.verify(step) {
                Ok(found) => {
                    return Ok(Search {
                        found: Some(found),
                        rejected,
                    });
                }
                Err(fault) => rejected.push(Rejected {
                    directory: self.folder_of(step),
                    fault,
                }),
            }
        }
        Ok(Search {
            found: None,
            rejected,
        })
    }

    /// The checkpoint of one step, checked.
    ///
    /// # Errors
    /// [`RunError::Checkpoint`] saying what is wrong with it.
    pub fn load(&self, step: u64) -> Result<Checkpoint, RunError> {
        self.verify(step).map_err(|fault| RunError::Checkpoint {
            directory: self.folder_of(step),
            fault,
        })
    }

    /// Removes old checkpoints by `retention` and returns their steps. Nothing is removed unless the newest
    /// `keep_last` that are complete (read back and checked, once per process) are all newer than it.
    ///
    /// # Errors
    /// The failed operation.
    pub fn prune(&self, retention: &Retention) -> Result<Vec<u64>, RunError> {
        let keep = retention.keep_last.max(2);
        let mut complete = 0;
        let mut removed = Vec::new();
        for step in self.steps()?.into_iter().rev() {
            if complete < keep {
                complete += usize::from(self.is_verified(step));
                continue;
            }
            let is_kept = retention.best == Some(step)
                || retention
                    .keep_every
                    .is_some_and(|every| every > 0 && step.is_multiple_of(every));
            if is_kept {
                continue;
            }
            let folder = self.folder_of(step);
            let aside = self.temporary_folder(step);
            // Renamed first: a half-removed folder must not look like a checkpoint.
            self.file_system
                .rename(&folder, &aside)
                .map_err(|source| RunError::io("move away", &folder, 0, source))?;
            self.file_system
                .remove_directory(&aside)
                .map_err(|source| RunError::io("remove", &aside, 0, source))?;
            self.forget(step);
            removed.push(step);
        }
        Ok(removed)
    }

    /// Makes `LATEST` name `step`. Publishing does so too, but a process can die between the rename and the hint.
    ///
    /// # Errors
    /// The failed operation.
    pub fn mark_latest(&self, step: u64) -> Result<(), RunError> {
        let line = format!("{}\n", Self::name_of(step));
        write_atomic_on(self.file_system(), &self.latest_path(), line.as_bytes())
    }

    /// The folder of one step's checkpoint.
    pub fn folder_of(&self, step: u64) -> PathBuf {
        self.directory.join(Self::name_of(step))
    }

    pub(crate) fn name_of(step: u64) -> String {
        format!("{PREFIX}{step:08}")
    }

    pub(crate) fn temporary_folder(&self, step: u64) -> PathBuf {
        self.directory.join(temporary_name(step))
    }

    pub(crate) fn latest_path(&self) -> PathBuf {
        self.directory.join("LATEST")
    }

    pub(crate) fn file_system(&self) -> &dyn FileSystem {
        self.file_system.as_ref()
    }

    pub(crate) fn checkpoint(&self, manifest: Manifest) -> Checkpoint {
        Checkpoint {
            directory: self.folder_of(manifest.step),
            manifest,
            file_system: Arc::clone(&self.file_system),
        }
    }

    pub(crate) fn forget(&self, step: u64) {
        self.lock_verified().remove(&step);
    }

    /// Size and digest of a file.
    pub(crate) fn digest(&self, path: &Path) -> io::Result<FileRecord> {
        digest(&mut *self.file_system.open(path)?)
    }

    fn is_verified(&self, step: u64) -> bool {
        // The guard is released before the slow check.
        let known = self.lock_verified().contains(&step);
        known || self.verify(step).is_ok()
    }

    fn verify(&self, step: u64) -> Result<Checkpoint, CheckpointFault> {
        let directory = self.folder_of(step);
        let manifest = self.read_manifest(&directory)?;
        if manifest.step != step {
            return Err(CheckpointFault::Step(manifest.step));
        }
        for (name, expected) in &manifest.files {
            let found = self
                .digest(&directory.join(name))
                .map_err(|error| unreadable(name, &error))?;
            compare(name, expected, &found)?;
        }
        self.lock_verified().insert(step);
        Ok(self.checkpoint(manifest))
    }

    fn read_manifest(&self, directory: &Path) -> Result<Manifest, CheckpointFault> {
        let path = directory.join(MANIFEST);
        let file = self.file_system.open(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => CheckpointFault::NoManifest,
            _ => unreadable(MANIFEST, &error),
        })?;
        let mut bytes = Vec::new();
        file.take(MANIFEST_LIMIT)
            .read_to_end(&mut bytes)
            .map_err(|error| unreadable(MANIFEST, &error))?;
        let manifest = Manifest::open(&bytes).map_err(CheckpointFault::Manifest)?;
        match manifest
            .files
            .keys()
            .find(|name| super::draft::check_name(name).is_err())
        {
            Some(name) => Err(CheckpointFault::Manifest(format!(
                "it lists the file name `{name}`"
            ))),
            None => Ok(manifest),
        }
    }

    fn entries(&self) -> Result<Vec<(String, bool)>, RunError> {
        self.file_system
            .list(&self.directory)
            .map_err(|source| RunError::io("list", &self.directory, 0, source))
    }

    fn lock_verified(&self) -> std::sync::MutexGuard<'_, BTreeSet<u64>> {
        // A panic elsewhere cannot leave a set of numbers half-changed.
        self.verified.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Checkpoint {
    /// The step it was taken after.
    pub fn step(&self) -> u64 {
        self.manifest.step
    }

    /// Its folder.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Its files with sizes and digests.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// One digest of everything in it: equal digests mean equal bytes in every file.
    pub fn digest(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for (name, record) in &self.manifest.files {
            hasher.update(&(name.len() as u64).to_le_bytes());
            hasher.update(name.as_bytes());
            hasher.update(record.blake3.as_bytes());
        }
        hasher.finalize().to_hex().to_string()
    }

    /// A file's bytes, checked again as they are read.
    ///
    /// # Errors
    /// [`RunError::Checkpoint`] naming the file.
    pub fn read(&self, name: &str) -> Result<Vec<u8>, RunError> {
        let fault = |fault| RunError::Checkpoint {
            directory: self.directory.clone(),
            fault,
        };
        let expected = self
            .manifest
            .files
            .get(name)
            .ok_or_else(|| fault(CheckpointFault::Unlisted(name.to_owned())))?;
        let mut bytes = Vec::new();
        self.file_system
            .open(&self.directory.join(name))
            .and_then(|file| {
                file.take(expected.bytes.saturating_add(1))
                    .read_to_end(&mut bytes)
            })
            .map_err(|error| fault(unreadable(name, &error)))?;
        let found = FileRecord {
            bytes: bytes.len() as u64,
            blake3: blake3::hash(&bytes).to_hex().to_string(),
        };
        compare(name, expected, &found).map_err(fault)?;
        Ok(bytes)
    }

    /// A JSON file's value.
    ///
    /// # Errors
    /// [`RunError::Checkpoint`] as for [`Checkpoint::read`], [`RunError::Text`] when it is another value.
    pub fn read_json<T: DeserializeOwned>(&self, name: &str) -> Result<T, RunError> {
        serde_json::from_slice(&self.read(name)?).map_err(|error| RunError::Text {
            path: self.directory.join(name),
            line: error.line() as u64,
            message: error.to_string(),
        })
    }

    /// A safetensors file's tensors, sorted by name.
    ///
    /// # Errors
    /// [`RunError::Checkpoint`] as for [`Checkpoint::read`], [`RunError::Tensors`] when the file is something else.
    pub fn read_tensors(&self, name: &str) -> Result<Vec<NamedTensor>, RunError> {
        read_tensors(&self.directory.join(name), &self.read(name)?)
    }
}

fn unreadable(name: &str, error: &io::Error) -> CheckpointFault {
    match error.kind() {
        io::ErrorKind::NotFound => CheckpointFault::Missing(name.to_owned()),
        _ => CheckpointFault::Unreadable {
            name: name.to_owned(),
            message: error.to_string(),
        },
    }
}

fn compare(name: &str, expected: &FileRecord, found: &FileRecord) -> Result<(), CheckpointFault> {
    if expected.bytes != found.bytes {
        return Err(CheckpointFault::Size {
            name: name.to_owned(),
            expected: expected.bytes,
            found: found.bytes,
        });
    }
    if expected.blake3 != found.blake3 {
        return Err(CheckpointFault::Digest(name.to_owned()));
    }
    Ok(())
}

/// Reads to the end, counting and hashing.
pub(crate) fn digest(reader: &mut dyn Read) -> io::Result<FileRecord> {
    let mut hasher = blake3::Hasher::new();
    let mut block = vec![0; BLOCK];
    let mut bytes = 0;
    loop {
        match reader.read(&mut block) {
            Ok(0) => break,
            Ok(count) => {
                hasher.update(block.get(..count).unwrap_or_default());
                bytes += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(FileRecord {
        bytes,
        blake3: hasher.finalize().to_hex().to_string(),
    })
}
