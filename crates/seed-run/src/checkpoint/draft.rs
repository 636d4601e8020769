//! A checkpoint in the making: invisible until published, gone when dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use serde::Serialize;

use super::manifest::{FileRecord, MANIFEST, Manifest};
use super::store::{Checkpoint, CheckpointStore};
use crate::durable::{nonce, sync_parent};
use crate::error::RunError;
use crate::file_system::DurableFile;
use crate::tensors::{self, TensorView};

/// Bytes gathered before they are written.
const BUFFER: usize = 256 * 1024;

/// Files of a checkpoint being written. [`CheckpointDraft::publish`] makes it visible in one step.
#[derive(Debug)]
pub struct CheckpointDraft<'a> {
    store: &'a CheckpointStore,
    step: u64,
    folder: PathBuf,
    files: BTreeMap<String, FileRecord>,
    folders: BTreeSet<String>,
    published: bool,
}

impl<'a> CheckpointDraft<'a> {
    pub(crate) fn begin(store: &'a CheckpointStore, step: u64) -> Result<Self, RunError> {
        let folder = store.temporary_folder(step);
        let draft = Self {
            store,
            step,
            folder,
            files: BTreeMap::new(),
            folders: BTreeSet::new(),
            published: false,
        };
        draft.create_folder(&draft.folder)?;
        Ok(draft)
    }

    /// Adds a file.
    ///
    /// # Errors
    /// [`RunError::FileName`], [`RunError::DuplicateFile`], or the failed operation.
    pub fn write(&mut self, name: &str, bytes: &[u8]) -> Result<(), RunError> {
        self.write_with(name, &mut |out| out.write_all(bytes))
    }

    /// Adds a value as JSON.
    ///
    /// # Errors
    /// As [`CheckpointDraft::write`].
    pub fn write_json(&mut self, name: &str, value: &impl Serialize) -> Result<(), RunError> {
        self.write_with(name, &mut |out| {
            serde_json::to_writer_pretty(&mut *out, value)?;
            out.write_all(b"\n")
        })
    }

    /// Adds named f32 tensors as a safetensors file, sorted by name.
    ///
    /// # Errors
    /// [`RunError::TensorShape`] besides those of [`CheckpointDraft::write`].
    pub fn write_tensors(&mut self, name: &str, tensors: &[TensorView<'_>]) -> Result<(), RunError> {
        let order = tensors::check(tensors)?;
        self.write_with(name, &mut |out| tensors::write(out, tensors, &order))
    }

    /// Adds a file whose content is produced piece by piece.
    ///
    /// # Errors
    /// As [`CheckpointDraft::write`]; an error of `write` counts as a failed write.
    pub fn write_with(
        &mut self,
        name: &str,
        write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), RunError> {
        self.claim(name)?;
        if let Some((folder, _)) = name.rsplit_once('/')
            && self.folders.insert(folder.to_owned())
        {
            self.create_folder(&self.folder.join(folder))?;
        }
        let record = self.write_file(name, write)?;
        self.files.insert(name.to_owned(), record);
        Ok(())
    }

    /// Creates a folder of the checkpoint for other code to write files into; [`CheckpointDraft::adopt`] takes them up.
    ///
    /// # Errors
    /// [`RunError::FileName`], or the failed operation.
    pub fn folder(&mut self, name: &str) -> Result<PathBuf, RunError> {
        check_name(name)?;
        let path = self.folder.join(name);
        self.create_folder(&path)?;
        self.folders.insert(name.to_owned());
        Ok(path)
    }

    /// Takes up every file that other code wrote into a folder made by [`CheckpointDraft::folder`]: forces it to disk
    /// and notes size and digest.
    ///
    /// # Errors
    /// [`RunError::FileName`] for a name that is not portable, or the failed operation.
    pub fn adopt(&mut self, folder: &str) -> Result<(), RunError> {
        let path = self.folder.join(folder);
        let entries = self
            .store
            .file_system()
            .list(&path)
            .map_err(|source| RunError::io("list", &path, 0, source))?;
        for (entry, is_folder) in entries {
            let name = format!("{folder}/{entry}");
            if is_folder {
                return Err(RunError::FileName { name });
            }
            self.claim(&name)?;
            let file = self.folder.join(&name);
            self.store
                .file_system()
                .sync_file(&file)
                .map_err(|source| RunError::io("sync", &file, 0, source))?;
            let record = self
                .store
                .digest(&file)
                .map_err(|source| RunError::io("read", &file, 0, source))?;
            self.files.insert(name, record);
        }
        Ok(())
    }

    /// Makes the checkpoint visible: manifest, folder, rename, `LATEST`, each forced to disk before the next.
    ///
    /// # Errors
    /// The failed operation. The checkpoint is then either invisible or complete, never partial.
    pub fn publish(mut self) -> Result<Checkpoint, RunError> {
        let file_system = self.store.file_system();
        let manifest = Manifest::new(self.step, std::mem::take(&mut self.files));
        let sealed = manifest
            .seal()
            .map_err(|error| RunError::io("describe", &self.folder, 0, error.into()))?;
        self.write_file(MANIFEST, &mut |out| out.write_all(&sealed))?;
        let folders = self.folders.iter().map(|name| self.folder.join(name));
        for folder in folders.chain([self.folder.clone()]) {
            file_system
                .sync_directory(&folder)
                .map_err(|source| RunError::io("sync the folder", &folder, 0, source))?;
        }
        let target = self.store.folder_of(self.step);
        let set_aside = self.make_room(&manifest)?;
        file_system
            .rename(&self.folder, &target)
            .map_err(|source| RunError::io("put in place", &target, 0, source))?;
        self.published = true;
        sync_parent(file_system, &target)?;
        self.store.mark_latest(self.step)?;
        if let Some(old) = set_aside {
            // What is left is removed at the next start.
            let _ = file_system.remove_directory(&old);
        }
        Ok(self.store.checkpoint(manifest))
    }

    /// Moves a folder that already has the checkpoint's name out of the way: a damaged one, or one from which the run
    /// was taken back to an earlier step.
    fn make_room(&self, manifest: &Manifest) -> Result<Option<PathBuf>, RunError> {
        let target = self.store.folder_of(self.step);
        if !self.store.steps()?.contains(&self.step) {
            return Ok(None);
        }
        self.store.forget(manifest.step);
        let aside = self.store.temporary_folder(self.step);
        self.store
            .file_system()
            .rename(&target, &aside)
            .map_err(|source| RunError::io("move away", &target, 0, source))?;
        Ok(Some(aside))
    }

    fn claim(&self, name: &str) -> Result<(), RunError> {
        check_name(name)?;
        if self.files.contains_key(name) || name == MANIFEST {
            return Err(RunError::DuplicateFile {
                step: self.step,
                name: name.to_owned(),
            });
        }
        Ok(())
    }

    fn create_folder(&self, path: &std::path::Path) -> Result<(), RunError> {
        self.store
            .file_system()
            .create_directories(path)
            .map_err(|source| RunError::io("create the folder", path, 0, source))
    }

    fn write_file(
        &self,
        name: &str,
        write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
    ) -> Result<FileRecord, RunError> {
        let path = self.folder.join(name);
        let file = self
            .store
            .file_system()
            .create_file(&path)
            .map_err(|source| RunError::io("create", &path, 0, source))?;
        let mut hashing = Hashing {
            file,
            hasher: blake3::Hasher::new(),
            bytes: 0,
        };
        let mut buffered = BufWriter::with_capacity(BUFFER, &mut hashing);
        let result = write(&mut buffered).and_then(|()| buffered.flush());
        // Taken apart, because dropping it after an error would write once more.
        drop(buffered.into_parts());
        result
            .and_then(|()| hashing.file.sync())
            .map_err(|source| RunError::io("write", &path, hashing.bytes, source))?;
        Ok(FileRecord {
            bytes: hashing.bytes,
            blake3: hashing.hasher.finalize().to_hex().to_string(),
        })
    }
}

impl Drop for CheckpointDraft<'_> {
    fn drop(&mut self) {
        if !self.published {
            // Frees the space at once after a full disk; a crash leaves the folder for the next start to remove.
            let _ = self.store.file_system().remove_directory(&self.folder);
        }
    }
}

/// A unique temporary name for a checkpoint's folder.
pub(crate) fn temporary_name(step: u64) -> String {
    format!(
        "{}{}{}",
        CheckpointStore::name_of(step),
        crate::durable::TEMPORARY,
        nonce()
    )
}

/// Refuses names that could leave the folder or that some file system reads otherwise.
pub(crate) fn check_name(name: &str) -> Result<(), RunError> {
    let is_plain = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
    };
    if name.split('/').all(is_plain) {
        Ok(())
    } else {
        Err(RunError::FileName {
            name: name.to_owned(),
        })
    }
}

/// Hashes and counts what is written; counts also what could not be written.
struct Hashing {
    file: Box<dyn DurableFile>,
    hasher: blake3::Hasher,
    bytes: u64,
}

impl Write for Hashing {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self.file.write(buffer) {
            Ok(written) => {
                self.hasher.update(buffer.get(..written).unwrap_or(buffer));
                self.bytes += written as u64;
                Ok(written)
            }
            Err(error) => {
                self.bytes += buffer.len() as u64;
                Err(error)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
