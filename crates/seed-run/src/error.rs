//! What can go wrong with a run's files.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// A failure of a run's files. Every variant that concerns a file names it.
#[derive(Debug, Error)]
pub enum RunError {
    /// The disk has no room left.
    #[error(
        "the disk is full: `{}` needs {bytes_needed} bytes; free some space, then resume the run",
        path.display()
    )]
    DiskFull {
        /// The file being written.
        path: PathBuf,
        /// Bytes that were to be written in this operation, at least.
        bytes_needed: u64,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// Any other failure of a file operation.
    #[error("could not {operation} `{}`", path.display())]
    Io {
        /// What was being done, such as `write`.
        operation: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// Another process trains in the same run directory.
    #[error(
        "the run directory `{}` is in use by {holder}; wait for it, stop it, or choose another directory",
        directory.display()
    )]
    Locked {
        /// The run directory.
        directory: PathBuf,
        /// Who holds it, as far as the lock file tells.
        holder: String,
    },
    /// A run was to be started where one already is.
    #[error(
        "`{}` already holds a run; resume it, or choose another directory",
        directory.display()
    )]
    RunExists {
        /// The run directory.
        directory: PathBuf,
    },
    /// A run was to be resumed where none is.
    #[error("`{}` holds no run (there is no run.json in it); check the path, or start a new run", directory.display())]
    NoRun {
        /// The directory that was given.
        directory: PathBuf,
    },
    /// A file's text is not what it must be.
    #[error("`{}` line {line} is not as expected: {message}", path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: u64,
        /// What is wrong.
        message: String,
    },
    /// A checkpoint file name that could leave the checkpoint or is not portable.
    #[error(
        "`{name}` cannot name a file of a checkpoint: use plain names of letters, digits, `.`, `_` and `-`, with `/` between folder and file"
    )]
    FileName {
        /// The name.
        name: String,
    },
    /// Two files of one checkpoint have the same name.
    #[error("the checkpoint of step {step} already has a file `{name}`")]
    DuplicateFile {
        /// The checkpoint's step.
        step: u64,
        /// The name.
        name: String,
    },
    /// A checkpoint that must not be used.
    #[error("the checkpoint `{}` is not usable: {fault}", directory.display())]
    Checkpoint {
        /// Its folder.
        directory: PathBuf,
        /// What is wrong with it.
        fault: CheckpointFault,
    },
    /// A tensor's shape and data do not fit.
    #[error("tensor `{name}` of shape {shape:?} has {length} numbers")]
    TensorShape {
        /// The tensor.
        name: String,
        /// The shape it was given.
        shape: Vec<usize>,
        /// The numbers it was given.
        length: usize,
    },
    /// A safetensors file that cannot be read as f32 tensors.
    #[error("`{}` cannot be read as safetensors: {message}", path.display())]
    Tensors {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// A metric that the registry does not list.
    #[error("`{name}` is not a registered metric{}; add it to the registry with its unit and meaning", nearest.as_ref().map(|near| format!(" (the nearest is `{near}`)")).unwrap_or_default())]
    UnknownMetric {
        /// The name.
        name: String,
        /// The registered name most like it.
        nearest: Option<String>,
    },
    /// A profile was to be recorded in a process that has recorded one before.
    #[error("`{}` cannot be recorded: a process records one profile in its life", path.display())]
    SecondProfile {
        /// The profile's file.
        path: PathBuf,
    },
    /// Signal handlers could not be installed.
    #[error("could not install the handler of signal {signal}")]
    Signal {
        /// The signal's number.
        signal: i32,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
}

/// Why a checkpoint must not be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CheckpointFault {
    /// The manifest is missing: the checkpoint was never finished.
    #[error("its manifest is missing")]
    NoManifest,
    /// The manifest is damaged.
    #[error("its manifest is damaged: {0}")]
    Manifest(String),
    /// The manifest belongs to another step than the folder's name says.
    #[error("its manifest is of step {0}")]
    Step(u64),
    /// A file of the manifest is missing.
    #[error("the file `{0}` is missing")]
    Missing(String),
    /// A file has another size than the manifest says.
    #[error("the file `{name}` has {found} bytes instead of {expected}")]
    Size {
        /// The file.
        name: String,
        /// Bytes by the manifest.
        expected: u64,
        /// Bytes found.
        found: u64,
    },
    /// A file has another digest than the manifest says.
    #[error("the file `{0}` is damaged: its digest does not match the manifest")]
    Digest(String),
    /// A file could not be read.
    #[error("the file `{name}` cannot be read: {message}")]
    Unreadable {
        /// The file.
        name: String,
        /// The system's answer.
        message: String,
    },
    /// A file that was asked for is not part of the checkpoint.
    #[error("it has no file `{0}`")]
    Unlisted(String),
}

impl RunError {
    /// Wraps a failed operation on `path`; `bytes` is what it was to write, for the message about a full disk.
    pub(crate) fn io(operation: &'static str, path: &Path, bytes: u64, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                Self::DiskFull {
                    path,
                    bytes_needed: bytes,
                    source,
                }
            }
            _ => Self::Io {
                operation,
                path,
                source,
            },
        }
    }

    /// Whether the cause is a resource that has run out (exit code 4) rather than a fault.
    pub fn is_resource(&self) -> bool {
        match self {
            Self::DiskFull { .. } => true,
            Self::Io { source, .. } => source.kind() == io::ErrorKind::OutOfMemory,
            _ => false,
        }
    }
}
