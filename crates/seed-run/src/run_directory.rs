//! Where everything of a run lies.
//!
//! ```text
//! config.resolved.toml                        the configuration with every key
//! run.json                                    identity: id, seed, version, command
//! run.lock                                    held while a process writes here
//! metrics.jsonl, timings.jsonl, tensorboard/  numbers
//! trajectories/iteration-000001.jsonl.zst     episodes
//! skills/iteration-000001.jsonl.zst           hindsight skills
//! checkpoints/step-00000010/                  what to resume from
//! ```

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::checkpoint::CheckpointStore;
use crate::durable::{TEMPORARY, write_atomic};
use crate::error::RunError;
use crate::lock::{RunLock, host_name};

/// Identity of a run, written once when it starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Distinguishes this run from every other; 16 hexadecimal digits.
    pub id: String,
    /// Name given by the user.
    pub name: String,
    /// Seed of every random number of the run.
    pub seed: u64,
    /// Version of the program that started it.
    pub version: String,
    /// When it was started, in seconds since 1970.
    pub started_unix_seconds: u64,
    /// The command line that started it.
    pub command: Vec<String>,
    /// The machine it was started on.
    pub host: String,
}

impl RunRecord {
    /// The record of a run that starts now.
    pub fn now(name: &str, seed: u64, version: &str, command: Vec<String>) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let host = host_name();
        // The id only tells runs apart; nothing a run computes depends on it.
        let unique = format!("{host}/{}/{}", std::process::id(), since.as_nanos());
        let digest = blake3::hash(unique.as_bytes()).to_hex();
        Self {
            id: digest.chars().take(16).collect(),
            name: name.to_owned(),
            seed,
            version: version.to_owned(),
            started_unix_seconds: since.as_secs(),
            command,
            host,
        }
    }
}

/// A run directory that this process may write into.
#[derive(Debug)]
pub struct RunDirectory {
    path: PathBuf,
    record: RunRecord,
    _lock: RunLock,
}

impl RunDirectory {
    /// Makes `path` a new run's directory with its resolved configuration and identity.
    ///
    /// # Errors
    /// [`RunError::RunExists`] when there is a run already, [`RunError::Locked`] when one is being started, or the failed
    /// operation.
    pub fn create(path: &Path, record: &RunRecord, resolved_config: &str) -> Result<Self, RunError> {
        create_folders(path)?;
        let lock = RunLock::acquire(path)?;
        if record_path(path).exists() {
            return Err(RunError::RunExists {
                directory: path.to_owned(),
            });
        }
        remove_leftovers(path)?;
        write_atomic(&config_path(path), resolved_config.as_bytes())?;
        let target = record_path(path);
        let mut text = serde_json::to_string_pretty(record)
            .map_err(|error| RunError::io("describe", &target, 0, error.into()))?;
        text.push('\n');
        // Written last: a directory without it holds no run and can be used again.
        write_atomic(&target, text.as_bytes())?;
        Ok(Self {
            path: path.to_owned(),
            record: record.clone(),
            _lock: lock,
        })
    }

    /// Opens an existing run's directory to go on in it.
    ///
    /// # Errors
    /// [`RunError::NoRun`], [`RunError::Locked`], or [`RunError::Text`] when its record is damaged.
    pub fn open(path: &Path) -> Result<Self, RunError> {
        let record = read_run_record(path)?;
        let lock = RunLock::acquire(path)?;
        // A copy of a run may lack the folders that were empty.
        create_folders(path)?;
        remove_leftovers(path)?;
        Ok(Self {
            path: path.to_owned(),
            record,
            _lock: lock,
        })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The run's identity.
    pub fn record(&self) -> &RunRecord {
        &self.record
    }

    /// The resolved configuration's file.
    pub fn config_path(&self) -> PathBuf {
        config_path(&self.path)
    }

    /// The episodes of an iteration.
    pub fn trajectories_path(&self, iteration: u64) -> PathBuf {
        iteration_path(&self.path, "trajectories", iteration)
    }

    /// The skills of an iteration.
    pub fn skills_path(&self, iteration: u64) -> PathBuf {
        iteration_path(&self.path, "skills", iteration)
    }

    /// The run's checkpoints; leftovers of crashes are removed.
    ///
    /// # Errors
    /// The failed operation.
    pub fn checkpoints(&self) -> Result<CheckpointStore, RunError> {
        CheckpointStore::open(&self.path.join("checkpoints"))
    }

    /// Removes trajectories and skills of iterations after `iteration`, from which the run goes on.
    ///
    /// # Errors
    /// The failed operation.
    pub fn remove_after(&self, iteration: u64) -> Result<(), RunError> {
        let is_later = |name: &str| iteration_of(name).is_some_and(|of| of > iteration);
        for folder in ITERATION_FOLDERS {
            remove_files(&self.path.join(folder), is_later)?;
        }
        Ok(())
    }
}

fn create_folders(directory: &Path) -> Result<(), RunError> {
    for folder in ITERATION_FOLDERS.iter().chain(&["checkpoints"]) {
        let folder = directory.join(folder);
        fs_err::create_dir_all(&folder)
            .map_err(|source| RunError::io("create the folder", &folder, 0, source))?;
    }
    Ok(())
}

/// Removes what a process that was killed while writing left beside its files. Only for the holder of the run's lock:
/// nobody else writes here then, so every temporary file is a dead one. [`CheckpointStore::open`] does it for checkpoints.
fn remove_leftovers(directory: &Path) -> Result<(), RunError> {
    let is_leftover = |name: &str| name.contains(TEMPORARY);
    remove_files(directory, is_leftover)?;
    for folder in ITERATION_FOLDERS {
        remove_files(&directory.join(folder), is_leftover)?;
    }
    Ok(())
}

/// Removes the files of a folder whose names `is_chosen` picks.
fn remove_files(folder: &Path, is_chosen: impl Fn(&str) -> bool) -> Result<(), RunError> {
    let failed = |source| RunError::io("list", folder, 0, source);
    for entry in fs_err::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if path.is_file() && name.is_some_and(&is_chosen) {
            fs_err::remove_file(&path).map_err(|source| RunError::io("remove", &path, 0, source))?;
        }
    }
    Ok(())
}

/// Reads a run's identity without taking its lock, for tables and comparisons.
///
/// # Errors
/// [`RunError::NoRun`] or [`RunError::Text`].
pub fn read_run_record(directory: &Path) -> Result<RunRecord, RunError> {
    let path = record_path(directory);
    let bytes = fs_err::read(&path).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => RunError::NoRun {
            directory: directory.to_owned(),
        },
        _ => RunError::io("read", &path, 0, source),
    })?;
    serde_json::from_slice(&bytes).map_err(|error| RunError::Text {
        path,
        line: error.line() as u64,
        message: error.to_string(),
    })
}

/// Path of the resolved configuration of any run directory.
pub fn config_path(directory: &Path) -> PathBuf {
    directory.join("config.resolved.toml")
}

fn record_path(directory: &Path) -> PathBuf {
    directory.join("run.json")
}

/// Folders with one file per iteration.
const ITERATION_FOLDERS: [&str; 2] = ["trajectories", "skills"];
const ITERATION: &str = "iteration-";
const ENDING: &str = ".jsonl.zst";

fn iteration_path(directory: &Path, folder: &str, iteration: u64) -> PathBuf {
    directory
        .join(folder)
        .join(format!("{ITERATION}{iteration:06}{ENDING}"))
}

fn iteration_of(name: &str) -> Option<u64> {
    name.strip_prefix(ITERATION)?.strip_suffix(ENDING)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> RunRecord {
        RunRecord::now("demo", 7, "0.1.0", vec!["seed".to_owned(), "train".to_owned()])
    }

    #[test]
    fn a_run_is_created_once_and_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs/demo");
        let record = record();
        let run = RunDirectory::create(&path, &record, "[run]\nseed = 7\n").unwrap();
        assert!(matches!(RunDirectory::open(&path), Err(RunError::Locked { .. })));
        drop(run);
        assert!(matches!(
            RunDirectory::create(&path, &record, ""),
            Err(RunError::RunExists { .. })
        ));
        let run = RunDirectory::open(&path).unwrap();
        assert_eq!(run.record(), &record);
        assert_eq!(read_run_record(&path).unwrap().seed, 7);
        assert_eq!(
            fs_err::read_to_string(run.config_path()).unwrap(),
            "[run]\nseed = 7\n"
        );
        assert!(matches!(
            RunDirectory::open(folder.path()),
            Err(RunError::NoRun { .. })
        ));
    }

    #[test]
    fn ids_differ_and_are_short() {
        let (first, second) = (record(), record());
        assert_ne!(first.id, second.id);
        assert_eq!(first.id.len(), 16);
    }

    #[test]
    fn going_back_removes_what_came_after() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDirectory::create(folder.path(), &record(), "").unwrap();
        for iteration in [1, 9, 10, 1_000_000] {
            fs_err::write(run.trajectories_path(iteration), "").unwrap();
            fs_err::write(run.skills_path(iteration), "").unwrap();
        }
        run.remove_after(9).unwrap();
        assert!(run.trajectories_path(9).exists() && run.skills_path(1).exists());
        assert!(!run.trajectories_path(10).exists() && !run.skills_path(1_000_000).exists());
    }

    #[test]
    fn what_a_killed_process_left_half_written_is_gone_at_the_next_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        for name in ["trajectories", "skills"] {
            fs_err::create_dir(path.join(name)).unwrap();
        }
        let leave = || {
            let names = [
                "run.json.tmp-4e6b-1",
                "summary.json.tmp-1-f",
                "trajectories/iteration-000003.jsonl.zst.tmp-1-1",
                "skills/iteration-000003.jsonl.zst.tmp-1-2",
            ];
            for name in names {
                fs_err::write(path.join(name), "half").unwrap();
            }
            names.map(|name| path.join(name))
        };
        let kept = path.join("notes.tmp");
        fs_err::write(&kept, "a file of the user").unwrap();
        let left = leave();
        let run = RunDirectory::create(path, &record(), "").unwrap();
        assert!(
            left.iter().all(|leftover| !leftover.exists()),
            "a run begun again"
        );
        // While a process holds the lock its files are its own.
        let left = leave();
        assert!(matches!(RunDirectory::open(path), Err(RunError::Locked { .. })));
        assert!(left.iter().all(|leftover| leftover.exists()), "a process at work");
        drop(run);
        fs_err::remove_dir(path.join("checkpoints")).unwrap();
        let run = RunDirectory::open(path).unwrap();
        assert!(run.checkpoints().unwrap().steps().unwrap().is_empty());
        assert!(left.iter().all(|leftover| !leftover.exists()), "a run resumed");
        assert!(kept.exists() && path.join("run.json").exists());
    }
}
