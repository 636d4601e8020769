//! Files that grow by whole lines and survive a crash in the middle of one.
//!
//! A line counts once its newline is written. Opening a file removes what follows the last newline: the piece of a line
//! that was being written when the process died.

use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::error::RunError;

/// When appended lines are forced to disk. Lines always reach the operating system at once, so they outlive the
/// process either way; syncing makes them outlive the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncPolicy {
    /// After every line.
    EveryLine,
    /// Only when [`LineFile::sync`] is called.
    OnRequest,
}

/// An append-only file of lines.
#[derive(Debug)]
pub struct LineFile {
    path: PathBuf,
    file: fs_err::File,
    length: u64,
    policy: SyncPolicy,
    recovered: u64,
}

impl LineFile {
    /// Opens or creates `path` for appending and removes a torn last line.
    ///
    /// # Errors
    /// [`RunError::Io`] naming the file.
    pub fn open(path: &Path, policy: SyncPolicy) -> Result<Self, RunError> {
        let mut file = fs_err::OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(path)
            .map_err(|source| RunError::io("open", path, 0, source))?;
        let size = file
            .metadata()
            .map_err(|source| RunError::io("measure", path, 0, source))?
            .len();
        let length =
            end_of_last_line(&mut file, size).map_err(|source| RunError::io("read", path, 0, source))?;
        if length < size {
            file.set_len(length)
                .map_err(|source| RunError::io("shorten", path, 0, source))?;
        }
        Ok(Self {
            path: path.to_owned(),
            file,
            length,
            policy,
            recovered: size - length,
        })
    }

    /// Bytes of a torn last line that opening removed.
    pub fn recovered_bytes(&self) -> u64 {
        self.recovered
    }

    /// Appends one line; `line` has no newline in it.
    ///
    /// # Errors
    /// [`RunError::DiskFull`] or [`RunError::Io`]; the file then ends with its last whole line.
    pub fn append(&mut self, line: &str) -> Result<(), RunError> {
        debug_assert!(!line.contains('\n'), "a line has no newline in it");
        let mut bytes = Vec::with_capacity(line.len() + 1);
        bytes.extend_from_slice(line.as_bytes());
        bytes.push(b'\n');
        if let Err(source) = self.file.write_all(&bytes) {
            // Part of the line may be there. If cutting it off fails too, opening the file does it later.
            let _ = self.file.set_len(self.length);
            return Err(RunError::io("append to", &self.path, bytes.len() as u64, source));
        }
        self.length += bytes.len() as u64;
        match self.policy {
            SyncPolicy::EveryLine => self.sync(),
            SyncPolicy::OnRequest => Ok(()),
        }
    }

    /// An error about this file that arose before anything was written.
    pub(crate) fn failed(&self, operation: &'static str, source: std::io::Error) -> Result<(), RunError> {
        Err(RunError::io(operation, &self.path, 0, source))
    }

    /// Forces all lines to disk.
    ///
    /// # Errors
    /// [`RunError::DiskFull`] or [`RunError::Io`].
    pub fn sync(&mut self) -> Result<(), RunError> {
        self.file
            .sync_data()
            .map_err(|source| RunError::io("sync", &self.path, 0, source))
    }

    /// Keeps the lines up to the first for which `keep` is false and removes the rest: used when a run resumes from
    /// before them.
    ///
    /// # Errors
    /// [`RunError::Io`] when reading or shortening fails, [`RunError::Text`] when a kept line is no UTF-8, and the
    /// error of `keep`.
    pub fn keep_while(&mut self, keep: &mut dyn FnMut(&str) -> Result<bool, String>) -> Result<(), RunError> {
        let bytes = fs_err::read(&self.path).map_err(|source| RunError::io("read", &self.path, 0, source))?;
        let mut end = 0;
        for (index, line) in bytes.split_inclusive(|&byte| byte == b'\n').enumerate() {
            let wrong = |message| RunError::Text {
                path: self.path.clone(),
                line: index as u64 + 1,
                message,
            };
            let text = std::str::from_utf8(line).map_err(|error| wrong(error.to_string()))?;
            if !keep(text.trim_end_matches('\n')).map_err(wrong)? {
                break;
            }
            end += line.len() as u64;
        }
        if end < self.length {
            self.file
                .set_len(end)
                .map_err(|source| RunError::io("shorten", &self.path, 0, source))?;
            self.length = end;
            self.sync()?;
        }
        Ok(())
    }
}

/// Where the last whole line of a file of `size` bytes ends, found from its end in blocks.
fn end_of_last_line(file: &mut fs_err::File, size: u64) -> std::io::Result<u64> {
    const BLOCK: u64 = 64 * 1024;
    let mut end = size;
    while end > 0 {
        let start = end.saturating_sub(BLOCK);
        let mut block = vec![0; (end - start) as usize];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut block)?;
        if let Some(newline) = block.iter().rposition(|&byte| byte == b'\n') {
            return Ok(start + newline as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_torn_last_line_is_removed_and_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines.jsonl");
        fs_err::write(&path, b"first\nsecond\nthi").unwrap();
        let mut file = LineFile::open(&path, SyncPolicy::EveryLine).unwrap();
        assert_eq!(file.recovered_bytes(), 3);
        file.append("third").unwrap();
        assert_eq!(fs_err::read_to_string(&path).unwrap(), "first\nsecond\nthird\n");
    }

    #[test]
    fn a_file_of_one_torn_line_longer_than_a_block_becomes_empty() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines.jsonl");
        fs_err::write(&path, vec![b'x'; 200_000]).unwrap();
        let file = LineFile::open(&path, SyncPolicy::OnRequest).unwrap();
        assert_eq!(file.recovered_bytes(), 200_000);
        assert_eq!(fs_err::metadata(&path).unwrap().len(), 0);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_named_with_the_bytes_needed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        std::os::unix::fs::symlink("/dev/full", &path).unwrap();
        let mut file = LineFile::open(&path, SyncPolicy::OnRequest).unwrap();
        let error = file.append("0123456789").unwrap_err();
        assert!(error.is_resource());
        let message = error.to_string();
        assert!(
            message.contains("metrics.jsonl") && message.contains("11 bytes"),
            "{message}"
        );
    }

    proptest! {
        /// Whatever bytes a crash left, opening keeps exactly the whole lines.
        #[test]
        fn opening_keeps_the_whole_lines(bytes in "[a-c\n]{0,40}") {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("lines");
            fs_err::write(&path, &bytes).unwrap();
            drop(LineFile::open(&path, SyncPolicy::OnRequest).unwrap());
            let kept = bytes.rfind('\n').map_or("", |newline| &bytes[..=newline]);
            prop_assert_eq!(fs_err::read_to_string(&path).unwrap(), kept);
        }
    }
}
