//! One trainer per run directory.

use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use crate::error::RunError;

/// Name of the lock file inside a run directory.
const LOCK: &str = "run.lock";

/// The right to write into a run directory, held until dropped. The system releases it when the process ends, however
/// it ends; the file that stays behind means nothing by itself.
#[derive(Debug)]
pub struct RunLock {
    /// Open for as long as the lock is held.
    _file: fs_err::File,
}

impl RunLock {
    /// Takes the lock of `directory`, which must exist.
    ///
    /// # Errors
    /// [`RunError::Locked`] naming the holder when another process (or another part of this one) has it.
    pub fn acquire(directory: &Path) -> Result<Self, RunError> {
        let path = directory.join(LOCK);
        let failed = |operation, source| RunError::io(operation, &path, 0, source);
        let mut file = fs_err::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|source| failed("open", source))?;
        match file.file().try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // The text is only for the message; whoever holds the lock may be writing it just now.
                let _ = Read::by_ref(&mut file).take(1024).read_to_string(&mut holder);
                let holder = match holder.trim() {
                    "" => "another process".to_owned(),
                    text => text.to_owned(),
                };
                return Err(RunError::Locked {
                    directory: directory.to_owned(),
                    holder,
                });
            }
            Err(std::fs::TryLockError::Error(source)) => return Err(failed("lock", source)),
        }
        let text = format!("process {} on {}\n", std::process::id(), host_name());
        file.set_len(0)
            .and_then(|()| file.seek(SeekFrom::Start(0)))
            .and_then(|_| file.write_all(text.as_bytes()))
            .map_err(|source| failed("write", source))?;
        Ok(Self { _file: file })
    }
}

/// The machine's name, or `unknown host`.
pub(crate) fn host_name() -> String {
    fs_err::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .or_else(|| std::env::var("HOSTNAME").ok())
        .or_else(|| std::env::var("COMPUTERNAME").ok())
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "unknown host".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_trainer_is_told_who_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let first = RunLock::acquire(folder.path()).unwrap();
        let message = RunLock::acquire(folder.path()).unwrap_err().to_string();
        assert!(
            message.contains(&format!("in use by process {} on ", std::process::id())),
            "{message}"
        );
        drop(first);
        RunLock::acquire(folder.path()).unwrap();
    }

    #[test]
    fn a_lock_file_left_by_a_dead_process_does_not_lock() {
        let folder = tempfile::tempdir().unwrap();
        fs_err::write(
            folder.path().join(LOCK),
            "process 1 on elsewhere, with a long text behind it",
        )
        .unwrap();
        let _lock = RunLock::acquire(folder.path()).unwrap();
        let text = fs_err::read_to_string(folder.path().join(LOCK)).unwrap();
        assert!(
            text.starts_with(&format!("process {}", std::process::id())),
            "{text}"
        );
        assert!(!text.contains("elsewhere"));
    }
}
