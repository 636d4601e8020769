//! The file operations that durability depends on, behind a trait so that tests can make each of them fail or lose
//! what was not synced.
//!
//! Not for: ordinary reading and writing elsewhere; that goes through `fs_err` directly.

use std::fmt::Debug;
use std::io::{self, Read, Write};
use std::path::Path;

/// A file being written, that can be forced to disk.
pub trait DurableFile: Write + Send {
    /// Waits until everything written is on the disk.
    ///
    /// # Errors
    /// The system's error; what was written may then be lost.
    fn sync(&mut self) -> io::Result<()>;
}

/// The operations of a checkpoint's life. Each is one step that a crash can come before or after.
pub trait FileSystem: Send + Sync + Debug {
    /// Creates a folder and its missing parents.
    ///
    /// # Errors
    /// The system's error.
    fn create_directories(&self, path: &Path) -> io::Result<()>;

    /// Creates a file that must not exist.
    ///
    /// # Errors
    /// The system's error.
    fn create_file(&self, path: &Path) -> io::Result<Box<dyn DurableFile>>;

    /// Opens a file for reading.
    ///
    /// # Errors
    /// The system's error.
    fn open(&self, path: &Path) -> io::Result<Box<dyn Read>>;

    /// Waits until an existing file's content is on the disk.
    ///
    /// # Errors
    /// The system's error.
    fn sync_file(&self, path: &Path) -> io::Result<()>;

    /// Waits until a folder's list of names is on the disk.
    ///
    /// # Errors
    /// The system's error.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;

    /// Gives a file or folder another name, replacing a file of that name in one step.
    ///
    /// # Errors
    /// The system's error.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// The system's error.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes a folder and all in it.
    ///
    /// # Errors
    /// The system's error.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;

    /// Names in a folder with whether each is a folder, sorted by name.
    ///
    /// # Errors
    /// The system's error.
    fn list(&self, path: &Path) -> io::Result<Vec<(String, bool)>>;
}

/// The real file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

impl DurableFile for fs_err::File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

impl FileSystem for Disk {
    fn create_directories(&self, path: &Path) -> io::Result<()> {
        fs_err::create_dir_all(path)
    }

    fn create_file(&self, path: &Path) -> io::Result<Box<dyn DurableFile>> {
        let file = fs_err::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(path)?;
        Ok(Box::new(file))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Read>> {
        Ok(Box::new(fs_err::File::open(path)?))
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        fs_err::File::open(path)?.sync_all()
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        // Windows has no folder handles to sync; its renames are journalled.
        if cfg!(unix) {
            fs_err::File::open(path)?.sync_all()
        } else {
            Ok(())
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        #[expect(
            clippy::disallowed_methods,
            reason = "this is the one place that renames; callers sync the folder"
        )]
        std::fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs_err::remove_file(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        fs_err::remove_dir_all(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<(String, bool)>> {
        let mut names = Vec::new();
        for entry in fs_err::read_dir(path)? {
            let entry = entry?;
            // Names that are no text are not ours.
            if let Ok(name) = entry.file_name().into_string() {
                names.push((name, entry.file_type()?.is_dir()));
            }
        }
        names.sort();
        Ok(names)
    }
}
