//! A profile: what a process does when, as a file that trace viewers open.
//!
//! Whatever the workspace's crates mark as `tracing` spans is recorded with its thread and its sizes and written in
//! Chrome's trace event format, which <https://ui.perfetto.dev> and `chrome://tracing` show. Spans have one of three
//! levels: phases (`INFO`), steps and packs (`DEBUG`) and operations (`TRACE`). The finer two are many, so they are
//! recorded for a limited number of iterations; phases are recorded to the end.
//!
//! Not for: measuring without a profile (see [`crate::PhaseClock`]), or spans of other libraries.

mod recorder;
mod trace_file;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::RunError;

use self::recorder::{Recorder, Shared};

/// What is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProfileOptions {
    /// Name of the span that counts as an iteration, such as `iteration`.
    pub iteration: &'static str,
    /// Iterations whose steps and operations are recorded; `None` for all.
    pub detailed_iterations: Option<u64>,
    /// Spans after which no more steps and operations are recorded, so that a file stays one that viewers open.
    pub most_spans: u64,
}

impl Default for ProfileOptions {
    fn default() -> Self {
        Self {
            iteration: "iteration",
            detailed_iterations: None,
            most_spans: 2_000_000,
        }
    }
}

/// What a finished profile holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileReport {
    /// The file.
    pub path: PathBuf,
    /// Spans in it.
    pub spans: u64,
    /// Its size.
    pub bytes: u64,
    /// Whether [`ProfileOptions::most_spans`] ended the detailed part.
    pub limited: bool,
}

/// A profile being recorded. Dropping it ends the file too, but tells of no error.
#[derive(Debug)]
pub struct Profile {
    shared: Arc<Shared>,
}

impl Profile {
    /// Creates the file, or empties it, and records every span of this process from now on.
    ///
    /// # Errors
    /// Where the file cannot be written, or this process has recorded a profile before: spans have one receiver for
    /// the life of a process.
    pub fn start(path: &Path, options: ProfileOptions) -> Result<Self, RunError> {
        let shared = Arc::new(Shared::create(path, options)?);
        tracing::subscriber::set_global_default(Recorder::new(Arc::clone(&shared))).map_err(|_| {
            RunError::SecondProfile {
                path: path.to_owned(),
            }
        })?;
        Ok(Self { shared })
    }

    /// Stops recording and completes the file. Spans that are still open are not in it.
    ///
    /// # Errors
    /// The first failure to write, now or earlier.
    pub fn finish(self) -> Result<ProfileReport, RunError> {
        self.shared.finish()
    }
}

impl Drop for Profile {
    fn drop(&mut self) {
        // After `finish` there is nothing left to do; otherwise an error is on its way up already.
        let _ = self.shared.finish();
    }
}
