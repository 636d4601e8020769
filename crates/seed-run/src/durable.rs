//! Files that are either wholly there or not at all: written beside, forced to disk, renamed.
//!
//! Not for: growing files ([`crate::LineFile`]) or groups of files ([`crate::CheckpointStore`]).

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::checkpoint::{FileRecord, digest};
use crate::error::RunError;
use crate::file_system::{Disk, FileSystem};

/// Part of every temporary name, by which leftovers are recognised.
pub(crate) const TEMPORARY: &str = ".tmp-";

/// Writes `bytes` to `path` so that after a crash at any moment the file is the old one or the new one, whole.
///
/// # Errors
/// [`RunError::DiskFull`] or [`RunError::Io`]; the old file is then still there and the temporary one is gone.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<(), RunError> {
    write_atomic_on(&Disk, path, bytes)
}

/// Like [`write_atomic`], on any file system.
///
/// # Errors
/// As [`write_atomic`].
pub fn write_atomic_on(file_system: &dyn FileSystem, path: &Path, bytes: &[u8]) -> Result<(), RunError> {
    replace_atomic(file_system, path, &mut |file| file.write_all(bytes))
}

/// Like [`write_atomic`] for content that is produced piece by piece; `write` may be large and slow.
///
/// # Errors
/// As [`write_atomic`]; an error of `write` counts as a failed write.
pub fn write_atomic_with(
    path: &Path,
    write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
) -> Result<(), RunError> {
    replace_atomic(&Disk, path, write)
}

/// Size and digest of a file, so that a resumed run can tell whether its data is still the same.
///
/// # Errors
/// [`RunError::Io`] naming the file.
pub fn file_record(path: &Path) -> Result<FileRecord, RunError> {
    Disk.open(path)
        .and_then(|mut file| digest(&mut *file))
        .map_err(|source| RunError::io("read", path, 0, source))
}

/// Writes a temporary file through `write` and puts it in the place of `path`.
fn replace_atomic(
    file_system: &dyn FileSystem,
    path: &Path,
    write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
) -> Result<(), RunError> {
    let temporary = temporary_beside(path);
    let result = (|| {
        let mut file = file_system
            .create_file(&temporary)
            .map_err(|source| RunError::io("create", &temporary, 0, source))?;
        let mut counted = Counted {
            inner: &mut file,
            bytes: 0,
        };
        let written = write(&mut counted);
        let bytes = counted.bytes;
        written.map_err(|source| RunError::io("write", path, bytes, source))?;
        file.sync()
            .map_err(|source| RunError::io("sync", path, bytes, source))?;
        file_system
            .rename(&temporary, path)
            .map_err(|source| RunError::io("put in place", path, bytes, source))
    })();
    if result.is_err() {
        // The first error is the one to report; a leftover is removed at the next start.
        let _ = file_system.remove_file(&temporary);
        return result;
    }
    sync_parent(file_system, path)
}

/// Forces the list of names in `path`'s folder to disk.
pub(crate) fn sync_parent(file_system: &dyn FileSystem, path: &Path) -> Result<(), RunError> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    file_system
        .sync_directory(parent)
        .map_err(|source| RunError::io("sync the folder", parent, 0, source))
}

/// A name in the same folder that no other process or call uses.
pub(crate) fn temporary_beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().map_or_else(OsString::new, ToOwned::to_owned);
    name.push(TEMPORARY);
    name.push(nonce());
    path.with_file_name(name)
}

/// Process number and a counter: unique among the processes of a machine and never part of a result.
pub(crate) fn nonce() -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    format!(
        "{:x}-{:x}",
        std::process::id(),
        COUNTER.fetch_add(1, Ordering::Relaxed)
    )
}

/// Counts the bytes asked to be written, also those that failed: what a full disk would have needed.
struct Counted<'a> {
    inner: &'a mut dyn Write,
    bytes: u64,
}

impl Write for Counted<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self.inner.write(buffer) {
            Ok(written) => {
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
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::simulated_disk::{Fault, SimulatedDisk};

    const PATH: &str = "/run/state";

    fn disk_with(content: &[u8]) -> SimulatedDisk {
        let disk = SimulatedDisk::new();
        disk.create_directories(Path::new("/run")).unwrap();
        disk.sync_directory(Path::new("/")).unwrap();
        write_atomic_on(&disk, Path::new(PATH), content).unwrap();
        disk
    }

    fn content(disk: &SimulatedDisk) -> Vec<u8> {
        let mut bytes = Vec::new();
        disk.open(Path::new(PATH))
            .unwrap()
            .read_to_end(&mut bytes)
            .unwrap();
        bytes
    }

    #[test]
    fn a_file_is_the_old_one_or_the_new_one() {
        let before = disk_with(b"old content");
        for call in 0..20 {
            let disk = before.copy_with(Some((call, Fault::Death)));
            let result = write_atomic_on(&disk, Path::new(PATH), b"new");
            assert!([b"old content".as_slice(), b"new"].contains(&content(&disk.after_death()).as_slice()));
            for choice in 0..40 {
                let found = disk.after_power_loss(choice);
                let bytes = content(&found);
                if result.is_ok() {
                    assert_eq!(bytes, b"new", "what was reported written survives");
                } else {
                    assert!(
                        [b"old content".as_slice(), b"new"].contains(&bytes.as_slice()),
                        "{bytes:?}"
                    );
                }
            }
            if result.is_ok() {
                assert_eq!(call, 5, "create, write, sync, rename and sync of the folder");
                return;
            }
        }
        panic!("never finished");
    }

    #[test]
    fn an_error_leaves_the_old_file_alone_and_names_the_bytes() {
        let before = disk_with(b"old");
        let disk = before.copy_with(Some((1, Fault::Error(io::ErrorKind::StorageFull))));
        let message = write_atomic_on(&disk, Path::new(PATH), &[1; 300])
            .unwrap_err()
            .to_string();
        assert!(message.contains("`/run/state` needs 300 bytes"), "{message}");
        assert_eq!(content(&disk), b"old");
        assert_eq!(
            disk.list(Path::new("/run")).unwrap().len(),
            1,
            "the temporary file is gone"
        );
    }

    #[test]
    fn a_file_is_known_by_size_and_digest() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data.jsonl");
        write_atomic(&path, b"").unwrap();
        let empty = file_record(&path).unwrap();
        assert_eq!(empty.bytes, 0);
        // BLAKE3 of nothing, from its specification.
        assert_eq!(
            empty.blake3,
            "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
        );
        let message = file_record(&folder.path().join("absent"))
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("could not read") && message.contains("absent"),
            "{message}"
        );
    }

    #[test]
    fn a_missing_folder_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("absent/file");
        let message = write_atomic(&path, b"x").unwrap_err().to_string();
        assert!(
            message.starts_with("could not create") && message.contains("absent"),
            "{message}"
        );
    }
}
