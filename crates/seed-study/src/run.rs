//! Running a study: one cell after the other, in this process and beside others.
//!
//! A cell is trained by [`seed_train::train`] with the configuration that `seed train` would be given, so it has the same
//! bytes; then its panels are played. Whoever works on a cell holds its lock. A process that dies leaves its cell to be
//! resumed from the newest checkpoint; a cell that fails is noted and the others go on.
//!
//! Not for: what a report says of it ([`crate::report`]).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use seed_run::{CheckpointStore, RunError, RunLock, StopFlag};
use seed_train::TrainError;
use seed_train::compare::SUMMARY;
use seed_train::config::{TrainConfig, nearest};
use seed_train::events::Observer;
use seed_train::train::{Start, train};
use serde::{Serialize, Serializer};

use crate::StudyError;
use crate::manifest::Manifest;
use crate::panel::{Player, Worlds, play_panels};
use crate::plan::{Cell, CellId, Plan, StartingWeights};
use crate::state::{
    Status, clear_failure, is_begun, open_start_panels, record_failure, start_directory, state_directory,
    status, statuses,
};

/// What happens to the cells of a study.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum CellEvent<'a> {
    /// Work on a cell, or on the weights that cells begin from, begins.
    #[serde(rename = "cell_started")]
    Started {
        /// The cell, or `BASE/WEIGHTS`.
        name: &'a str,
        /// Iterations that are there already.
        iteration: u64,
        /// Cells that are complete.
        done: usize,
        /// Cells in all.
        total: usize,
    },
    /// Everything of it is there.
    #[serde(rename = "cell_finished")]
    Finished {
        /// The cell, or `BASE/WEIGHTS`.
        name: &'a str,
    },
    /// It failed; the others go on.
    #[serde(rename = "cell_failed")]
    Failed {
        /// The cell, or `BASE/WEIGHTS`.
        name: &'a str,
        /// Why.
        #[serde(serialize_with = "as_text")]
        error: &'a TrainError,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn as_text<S: Serializer>(error: &&TrainError, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(error)
}

/// Receives what happens in cells and to them.
pub trait StudyObserver: Observer {
    /// Called on the study's thread.
    fn cell(&mut self, event: &CellEvent<'_>);
}

/// How a study stands when a call ends.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Cells that are complete.
    pub done: usize,
    /// Cells in all.
    pub total: usize,
    /// What failed in this call, in order, by name.
    pub failed: Vec<(String, TrainError)>,
    /// Cells that are not complete, of arms that this call was not about.
    pub left_out: usize,
    /// Cells that other processes work on.
    pub busy: Vec<CellId>,
    /// Whether a stop was asked for; everything is saved.
    pub is_stopped: bool,
}

/// What became of one piece of work.
enum Work {
    Done,
    Stopped,
    /// Another process has it.
    Busy,
}

/// Runs everything of a plan that is not there yet; of the cells only those of `arms`, where some are named.
///
/// # Errors
/// [`StudyError::NoArm`] when the plan has none of a name; [`StudyError::Changed`] when the directory was begun with
/// another plan; what ends all cells, such as a full disk.
pub fn run(
    plan: &Plan,
    arms: &[String],
    command: &[String],
    stop: &StopFlag,
    observer: &mut dyn StudyObserver,
) -> Result<Outcome, StudyError> {
    if let Some(unknown) = arms.iter().find(|arm| !plan.arms.contains(arm)) {
        return Err(StudyError::NoArm {
            name: unknown.clone(),
            near: nearest(unknown, plan.arms.iter().map(String::as_str)).map(str::to_owned),
            arms: plan.arms.clone(),
        });
    }
    let mut worlds = Worlds::default();
    Manifest::agree(plan, &mut worlds)?;
    let mut runner = Runner {
        plan,
        arms,
        command,
        stop,
        worlds,
        failed: Vec::new(),
        given_up: BTreeSet::new(),
    };
    let is_stopped = !(runner.starts(observer)? && runner.cells(observer)?);
    let mut outcome = Outcome {
        failed: runner.failed,
        is_stopped,
        ..Outcome::default()
    };
    for (cell, status) in statuses(plan)? {
        outcome.total += 1;
        if status == Status::Done {
            outcome.done += 1;
        } else if !is_wanted(arms, &cell.id) {
            outcome.left_out += 1;
        } else if !is_stopped && !matches!(status, Status::Failed { .. }) {
            outcome.busy.push(cell.id);
        }
    }
    Ok(outcome)
}

/// Whether a call for `arms` is about a cell; without a name it is about all.
fn is_wanted(arms: &[String], cell: &CellId) -> bool {
    arms.is_empty() || arms.contains(&cell.arm)
}

struct Runner<'a> {
    plan: &'a Plan,
    /// Those whose cells are run; all where none is named.
    arms: &'a [String],
    command: &'a [String],
    stop: &'a StopFlag,
    worlds: Worlds,
    failed: Vec<(String, TrainError)>,
    /// Cells that failed in this call.
    given_up: BTreeSet<CellId>,
}

impl Runner<'_> {
    /// Plays the panels of the weights that cells begin from. False when a stop was asked for.
    fn starts(&mut self, observer: &mut dyn StudyObserver) -> Result<bool, StudyError> {
        for start in &self.plan.starts {
            if open_start_panels(self.plan, start)? == 0 {
                continue;
            }
            let name = format!("{}/{}", start.base, start.name);
            self.announce(&name, 0, observer)?;
            match self.start(start, observer) {
                Ok(Work::Done) => observer.cell(&CellEvent::Finished { name: &name }),
                Ok(Work::Busy) => {}
                Ok(Work::Stopped) => return Ok(false),
                Err(error) => self.note_failure(name, error, observer)?,
            }
        }
        Ok(true)
    }

    fn start(
        &mut self,
        start: &StartingWeights,
        observer: &mut dyn StudyObserver,
    ) -> Result<Work, TrainError> {
        let directory = start_directory(&self.plan.directory, &start.base, &start.name);
        fs_err::create_dir_all(&directory)?;
        let _claim = match RunLock::acquire(&directory) {
            Err(RunError::Locked { .. }) => return Ok(Work::Busy),
            claim => claim?,
        };
        self.play(Player::Start, &start.config, &directory, observer)
    }

    /// Works on cells until there is none that this process could go on with. False when a stop was asked for.
    fn cells(&mut self, observer: &mut dyn StudyObserver) -> Result<bool, StudyError> {
        loop {
            let mut has_worked = false;
            let mut open = Vec::new();
            for (cell, status) in statuses(self.plan)? {
                let is_open = status != Status::Done && is_wanted(self.arms, &cell.id);
                if is_open && !self.given_up.contains(&cell.id) {
                    open.push((matches!(status, Status::Failed { .. }), cell));
                }
            }
            // What failed before is tried again, after everything that did not.
            open.sort_by_key(|(has_failed, _)| *has_failed);
            for (_, cell) in open {
                if self.stop.is_set() {
                    return Ok(false);
                }
                match self.claim(&cell, observer) {
                    Ok(Work::Done) => has_worked = true,
                    Ok(Work::Busy) => {}
                    Ok(Work::Stopped) => return Ok(false),
                    Err(error) => {
                        has_worked = true;
                        self.fail(&cell.id, error, observer)?;
                    }
                }
            }
            // Another process may have died meanwhile and left a cell.
            if !has_worked {
                return Ok(true);
            }
        }
    }

    /// Takes a cell and does what is open of it, unless another process has it.
    fn claim(&mut self, cell: &Cell, observer: &mut dyn StudyObserver) -> Result<Work, TrainError> {
        let state = state_directory(&self.plan.directory, &cell.id);
        fs_err::create_dir_all(&state)?;
        let _claim = match RunLock::acquire(&state) {
            Err(RunError::Locked { .. }) => return Ok(Work::Busy),
            claim => claim?,
        };
        // Another process may have finished it since the list was made.
        let iteration =
            match status(&self.plan.directory, &self.plan.panels, &cell.id).map_err(into_train_error)? {
                Status::Done => return Ok(Work::Done),
                Status::Open | Status::Trained => 0,
                Status::Begun { iteration } | Status::Failed { iteration, .. } => iteration,
            };
        let name = cell.id.to_string();
        self.announce(&name, iteration, observer)
            .map_err(into_train_error)?;
        let work = self.work(&cell.id.arm, &cell.config, observer)?;
        if matches!(work, Work::Done) {
            clear_failure(&self.plan.directory, &cell.id).map_err(into_train_error)?;
            observer.cell(&CellEvent::Finished { name: &name });
        }
        Ok(work)
    }

    /// Trains a cell and plays its panels.
    fn work(
        &mut self,
        arm: &str,
        config: &TrainConfig,
        observer: &mut dyn StudyObserver,
    ) -> Result<Work, TrainError> {
        let directory = &config.run.directory;
        if !directory.join(SUMMARY).exists() {
            let world = self.worlds.get(config)?.world;
            let start = if is_begun(directory) {
                Start::Resume
            } else {
                Start::New
            };
            match train(config, world, start, self.command.to_vec(), self.stop, observer) {
                Ok(_) => {}
                Err(TrainError::Stopped { .. }) => return Ok(Work::Stopped),
                // Someone trains in the run's directory without the study.
                Err(TrainError::Run(RunError::Locked { .. })) => return Ok(Work::Busy),
                Err(error) => return Err(error),
            }
        }
        let mut config = config.clone();
        if config.algorithm.iterations > 0 {
            config.model.path = final_weights(directory)?;
        }
        self.play(Player::Arm(arm), &config, directory, observer)
    }

    fn play(
        &mut self,
        player: Player<'_>,
        config: &TrainConfig,
        directory: &Path,
        observer: &mut dyn StudyObserver,
    ) -> Result<Work, TrainError> {
        let is_complete = play_panels(
            self.plan,
            player,
            config,
            directory,
            &mut self.worlds,
            self.stop,
            observer,
        )?;
        Ok(if is_complete { Work::Done } else { Work::Stopped })
    }

    fn announce(
        &self,
        name: &str,
        iteration: u64,
        observer: &mut dyn StudyObserver,
    ) -> Result<(), StudyError> {
        let all = statuses(self.plan)?;
        observer.cell(&CellEvent::Started {
            name,
            iteration,
            done: all.iter().filter(|(_, status)| *status == Status::Done).count(),
            total: all.len(),
        });
        Ok(())
    }

    /// Notes a cell's failure, for this call and for the next.
    fn fail(
        &mut self,
        cell: &CellId,
        error: TrainError,
        observer: &mut dyn StudyObserver,
    ) -> Result<(), StudyError> {
        self.given_up.insert(cell.clone());
        record_failure(&self.plan.directory, cell, &chain(&error))?;
        self.note_failure(cell.to_string(), error, observer)
    }

    /// A failure that every other cell would meet too ends the study.
    fn note_failure(
        &mut self,
        name: String,
        error: TrainError,
        observer: &mut dyn StudyObserver,
    ) -> Result<(), StudyError> {
        if error.is_resource() {
            return Err(error.into());
        }
        observer.cell(&CellEvent::Failed {
            name: &name,
            error: &error,
        });
        self.failed.push((name, error));
        Ok(())
    }
}

/// The model folder of a finished run's newest checkpoint.
fn final_weights(directory: &Path) -> Result<PathBuf, TrainError> {
    let store = CheckpointStore::open(&directory.join("checkpoints"))?;
    let found = store.newest()?.found.ok_or_else(|| TrainError::NotARun {
        path: directory.to_owned(),
        message: "it has a summary and no whole checkpoint to play its panels with".to_owned(),
    })?;
    Ok(found.directory().join("model"))
}

/// A study's own trouble while a cell is worked on.
fn into_train_error(error: StudyError) -> TrainError {
    match error {
        StudyError::Train(error) => error,
        StudyError::Run(error) => error.into(),
        StudyError::File(error) => error.into(),
        other => std::io::Error::other(other).into(),
    }
}

/// An error with its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // Transparent errors repeat their cause's text.
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text.replace('\n', " ")
}
