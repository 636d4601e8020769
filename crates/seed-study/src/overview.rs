//! The matrix of a study for people: what is done, what is left, and how long that may take.
//!
//! Times are means over the iterations of this study that are there already; before the first there is no estimate.

use std::fmt::Write as _;

use seed_run::metrics::read_records;
use serde::Serialize;

use crate::StudyError;
use crate::plan::Plan;
use crate::state::{Status, open_start_panels, statuses};
use crate::table::aligned;

/// A study at a glance.
#[derive(Clone, Debug, Serialize)]
pub struct Overview {
    /// The study's name.
    pub name: String,
    /// Its directory.
    pub directory: std::path::PathBuf,
    /// Arms on bases, in the file's order.
    pub groups: Vec<GroupOverview>,
    /// Starting weights that have panels to play.
    pub open_starts: usize,
    /// What runs but hardly means what was written.
    pub warnings: Vec<String>,
}

/// One arm on one base.
#[derive(Clone, Debug, Serialize)]
pub struct GroupOverview {
    /// The base.
    pub base: String,
    /// The arm.
    pub arm: String,
    /// Whether the others are compared with it.
    pub is_baseline: bool,
    /// Training episodes of one cell.
    pub episodes: u64,
    /// Iterations of one cell.
    pub iterations: u64,
    /// Seeds with how far their cells are.
    pub cells: Vec<(u64, Status)>,
    /// Iterations that are left, over all cells.
    pub iterations_left: u64,
    /// Mean wall seconds of an iteration, evaluation included; `None` before the first.
    pub seconds_per_iteration: Option<f64>,
}

impl Overview {
    /// Looks at a study's directory.
    ///
    /// # Errors
    /// When a record is there and cannot be read.
    pub fn of(plan: &Plan) -> Result<Self, StudyError> {
        let all = statuses(plan)?;
        let mut groups = Vec::new();
        let mut warnings: Vec<String> = Vec::new();
        for group in &plan.groups {
            let derived = group.config.derive(None);
            let iterations = group.config.algorithm.iterations as u64;
            let (mut seconds, mut records, mut left) = (0.0, 0, 0);
            let mut cells = Vec::new();
            for seed in &group.seeds {
                let found = all.iter().find(|(cell, _)| {
                    cell.id.base == group.base && cell.id.arm == group.arm && cell.id.seed == *seed
                });
                let Some((cell, status)) = found else { continue };
                left += match status {
                    Status::Open => iterations,
                    Status::Begun { iteration } | Status::Failed { iteration, .. } => {
                        iterations.saturating_sub(*iteration)
                    }
                    Status::Trained | Status::Done => 0,
                };
                cells.push((*seed, status.clone()));
                let timings = cell.config.run.directory.join("timings.jsonl");
                if timings.exists() {
                    for record in read_records(&timings)? {
                        let value = |name: &str| record.metrics.get(name).copied().flatten();
                        if let Some(iteration) = value("timing/iteration_seconds") {
                            seconds += iteration + value("timing/evaluation_seconds").unwrap_or(0.0);
                            records += 1;
                        }
                    }
                }
            }
            for warning in &group.warnings {
                if !warnings.contains(warning) {
                    warnings.push(warning.clone());
                }
            }
            if !group.config.evaluation.before_training {
                let text = "learning curves begin at the first evaluation: set `evaluation.before_training = true` for \
                            areas from the start";
                if !warnings.iter().any(|warning| warning == text) {
                    warnings.push(text.to_owned());
                }
            }
            groups.push(GroupOverview {
                base: group.base.clone(),
                arm: group.arm.clone(),
                is_baseline: group.arm == plan.baseline,
                episodes: derived.total_episodes,
                iterations,
                cells,
                iterations_left: left,
                seconds_per_iteration: (records > 0).then(|| seconds / f64::from(records)),
            });
        }
        let mut open_starts = 0;
        for start in &plan.starts {
            open_starts += usize::from(open_start_panels(plan, start)? > 0);
        }
        Ok(Self {
            name: plan.name.clone(),
            directory: plan.directory.clone(),
            groups,
            open_starts,
            warnings,
        })
    }

    /// Seconds that the iterations left may take in one process; an arm that has not begun is taken to be as slow as the
    /// mean of the others. `None` before the first iteration of the study.
    pub fn seconds_left(&self) -> Option<f64> {
        let known: Vec<f64> = self
            .groups
            .iter()
            .filter_map(|group| group.seconds_per_iteration)
            .collect();
        if known.is_empty() {
            return None;
        }
        let mean = known.iter().sum::<f64>() / known.len() as f64;
        let of = |group: &GroupOverview| {
            group.iterations_left as f64 * group.seconds_per_iteration.unwrap_or(mean)
        };
        Some(self.groups.iter().map(of).sum())
    }

    /// The matrix as a table, with a line on what is left.
    pub fn table(&self) -> String {
        let mut seeds: Vec<u64> = self
            .groups
            .iter()
            .flat_map(|group| group.cells.iter().map(|cell| cell.0))
            .collect();
        seeds.sort_unstable();
        seeds.dedup();
        let mut rows = vec![
            ["base", "arm", "episodes", "s/iteration"]
                .into_iter()
                .map(str::to_owned)
                .chain(seeds.iter().map(|seed| format!("seed {seed}")))
                .collect::<Vec<String>>(),
        ];
        for group in &self.groups {
            let mut row = vec![
                group.base.clone(),
                format!(
                    "{}{}",
                    group.arm,
                    if group.is_baseline { " (baseline)" } else { "" }
                ),
                group.episodes.to_string(),
                group
                    .seconds_per_iteration
                    .map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.1}")),
            ];
            for seed in &seeds {
                let status = group
                    .cells
                    .iter()
                    .find(|cell| cell.0 == *seed)
                    .map(|cell| &cell.1);
                row.push(match status {
                    None => String::new(),
                    Some(Status::Open) => "open".to_owned(),
                    Some(Status::Begun { iteration }) => format!("{iteration}/{}", group.iterations),
                    Some(Status::Failed { iteration, .. }) => {
                        format!("failed {iteration}/{}", group.iterations)
                    }
                    Some(Status::Trained) => "panels".to_owned(),
                    Some(Status::Done) => "done".to_owned(),
                });
            }
            rows.push(row);
        }
        let mut text = aligned(&rows, 2);
        let cells = self.groups.iter().flat_map(|group| &group.cells);
        let (mut total, mut done) = (0, 0);
        for (_, status) in cells {
            total += 1;
            done += usize::from(*status == Status::Done);
        }
        let iterations: u64 = self.groups.iter().map(|group| group.iterations_left).sum();
        let _ = write!(
            text,
            "\n{done} of {total} cells done; {iterations} iterations left"
        );
        let episodes: u64 = self
            .groups
            .iter()
            .map(|group| group.iterations_left * (group.episodes / group.iterations.max(1)))
            .sum();
        let _ = write!(text, ", {episodes} training episodes");
        let _ = match self.seconds_left() {
            Some(seconds) if iterations > 0 => {
                writeln!(
                    text,
                    ", about {} in one process, panels not counted",
                    duration(seconds)
                )
            }
            None if iterations > 0 => writeln!(text, "; how long they take shows after the first iterations"),
            _ => writeln!(text),
        };
        if self.open_starts > 0 {
            let count = self.open_starts;
            let noun = if count == 1 { "set" } else { "sets" };
            let _ = writeln!(
                text,
                "panels to play before training: with {count} {noun} of weights"
            );
        }
        for group in &self.groups {
            for (seed, status) in &group.cells {
                if let Status::Failed { message, .. } = status {
                    let _ = writeln!(
                        text,
                        "failed: {}/{}/seed-{seed}: {message}",
                        group.base, group.arm
                    );
                }
            }
        }
        text
    }
}

/// A time that people plan with.
fn duration(seconds: f64) -> String {
    let minutes = (seconds / 60.0).round() as u64;
    match minutes {
        0 => format!("{seconds:.0} s"),
        1..120 => format!("{minutes} min"),
        _ => format!("{} h {} min", minutes / 60, minutes % 60),
    }
}
