//! What has been done of a study, as its directory shows it.
//!
//! ```text
//! study.json                          the plan it was begun with
//! cells/BASE/ARM/seed-1/              a run directory, with panels.jsonl
//! starts/BASE/WEIGHTS/panels.jsonl    panels played with the weights that cells begin from
//! state/BASE/ARM/seed-1/              who works on the cell, and why it failed
//! report/                             written by `seed study report`
//! ```
//!
//! Not for: the contents of a run directory (`seed-run`, `seed-train`).

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use seed_run::{RunError, write_atomic};
use seed_train::compare::SUMMARY;
use serde::{Deserialize, Serialize};

use crate::StudyError;
use crate::panel::{Player, open_panels, read_panels};
use crate::plan::{Cell, CellId, Panel, Plan, StartingWeights, cell_directory};

const FAILURE: &str = "failure.json";

/// How far a cell is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Status {
    /// Nothing of it is there.
    Open,
    /// Its run has been begun.
    Begun {
        /// Iterations in its newest checkpoint.
        iteration: u64,
    },
    /// It failed when it was last worked on; the next call tries again.
    Failed {
        /// Iterations in its newest checkpoint.
        iteration: u64,
        /// Why.
        message: String,
    },
    /// Its training is complete, some of its panels are not.
    Trained,
    /// Everything of it is there.
    Done,
}

/// Why a cell failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FailureRecord {
    message: String,
    unix_seconds: u64,
}

/// How far a cell is.
///
/// # Errors
/// When a record is there and cannot be read.
pub fn status(study: &Path, panels: &[Panel], cell: &CellId) -> Result<Status, StudyError> {
    let directory = cell_directory(study, cell);
    if let Some(message) = failure(study, cell)? {
        let iteration = newest_checkpoint(&directory);
        return Ok(Status::Failed { iteration, message });
    }
    if directory.join(SUMMARY).exists() {
        let records = read_panels(&directory)?;
        return Ok(
            if open_panels(panels, Player::Arm(&cell.arm), &records).is_empty() {
                Status::Done
            } else {
                Status::Trained
            },
        );
    }
    Ok(if is_begun(&directory) {
        Status::Begun {
            iteration: newest_checkpoint(&directory),
        }
    } else {
        Status::Open
    })
}

/// Whether a directory holds a run.
pub(crate) fn is_begun(directory: &Path) -> bool {
    directory.join("run.json").exists()
}

/// The number of the newest checkpoint by name; 0 for none. Whether it is whole shows when it is read.
fn newest_checkpoint(directory: &Path) -> u64 {
    let Ok(entries) = fs_err::read_dir(directory.join("checkpoints")) else {
        return 0;
    };
    entries
        .filter_map(|entry| {
            entry
                .ok()?
                .file_name()
                .to_str()?
                .strip_prefix("step-")?
                .parse()
                .ok()
        })
        .max()
        .unwrap_or(0)
}

/// Folder of what is known about the work on a cell.
pub(crate) fn state_directory(study: &Path, cell: &CellId) -> PathBuf {
    study
        .join("state")
        .join(&cell.base)
        .join(&cell.arm)
        .join(format!("seed-{}", cell.seed))
}

/// Folder with the panels that starting weights played.
pub(crate) fn start_directory(study: &Path, base: &str, name: &str) -> PathBuf {
    study.join("starts").join(base).join(name)
}

/// Panels that starting weights have not played yet.
pub(crate) fn open_start_panels(plan: &Plan, start: &StartingWeights) -> Result<usize, RunError> {
    let records = read_panels(&start_directory(&plan.directory, &start.base, &start.name))?;
    Ok(open_panels(&plan.panels, Player::Start, &records).len())
}

/// Why a cell failed when it was last worked on.
fn failure(study: &Path, cell: &CellId) -> Result<Option<String>, StudyError> {
    let path = state_directory(study, cell).join(FAILURE);
    if !path.exists() {
        return Ok(None);
    }
    let record: FailureRecord =
        serde_json::from_slice(&fs_err::read(&path)?).map_err(|error| StudyError::Record {
            path,
            message: error.to_string(),
        })?;
    Ok(Some(record.message))
}

/// Notes why a cell failed.
pub(crate) fn record_failure(study: &Path, cell: &CellId, message: &str) -> Result<(), StudyError> {
    let directory = state_directory(study, cell);
    fs_err::create_dir_all(&directory)?;
    let record = FailureRecord {
        message: message.to_owned(),
        unix_seconds: unix_seconds(),
    };
    let text = serde_json::to_string_pretty(&record).map_err(std::io::Error::from)?;
    Ok(write_atomic(
        &directory.join(FAILURE),
        format!("{text}\n").as_bytes(),
    )?)
}

/// Forgets that a cell failed.
pub(crate) fn clear_failure(study: &Path, cell: &CellId) -> Result<(), StudyError> {
    let path = state_directory(study, cell).join(FAILURE);
    if path.exists() {
        fs_err::remove_file(path)?;
    }
    Ok(())
}

/// Seconds since 1970.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

/// The status of every cell, in the order in which they are run.
///
/// # Errors
/// As for [`status`].
pub fn statuses(plan: &Plan) -> Result<Vec<(Cell, Status)>, StudyError> {
    plan.cells()
        .into_iter()
        .map(|cell| {
            let status = status(&plan.directory, &plan.panels, &cell.id)?;
            Ok((cell, status))
        })
        .collect()
}
