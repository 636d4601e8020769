//! Runs side by side: final success with intervals over seeds, area under the curve, cost, and a picture.
//!
//! Runs with equal names are seeds of one arm. Within a run a panel's interval is Wilson's over episodes; over seeds
//! it is a percentile bootstrap over the runs' rates. Numbers come from the run directories alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use seed_env::Split;
use seed_random::RandomKey;
use serde::{Deserialize, Serialize};

use crate::TrainError;
use crate::config::EvaluationPrompt;
use crate::evaluate::Evaluation;
use crate::picture::{Curve, Spread, draw_curves};
use crate::prompted::PanelResult;
use crate::statistics::{Interval, bootstrap_mean, mean, mean_height};

/// File of a run directory with one [`EvaluationRecord`] per line.
pub const EVALUATIONS: &str = "evaluations.jsonl";
/// File of a run directory with its [`Summary`].
pub const SUMMARY: &str = "summary.json";

/// Phases in the order of an iteration, which is the order of the table's columns. Parts of phases have none.
const PHASES: [&str; 6] = [
    "rollout",
    "analysis",
    "rescore",
    "update",
    "iteration",
    "evaluation",
];

/// Resamples of the bootstrap.
const DRAWS: usize = 10_000;

/// One evaluation of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvaluationRecord {
    /// Iterations trained before it.
    pub iteration: u64,
    /// Training episodes played before it.
    pub episodes: u64,
    /// The panel's split.
    pub split: Split,
    /// What the prompts held; a line without it is of plain play.
    #[serde(default = "plain", skip_serializing_if = "EvaluationPrompt::is_plain")]
    pub prompt: EvaluationPrompt,
    /// Share of the episodes that had a skill in their prompts; `None` with the plain prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skill_share: Option<f64>,
    /// The result.
    pub evaluation: Evaluation,
}

impl EvaluationRecord {
    /// A panel's result after so many iterations and training episodes.
    pub fn new(iteration: u64, episodes: u64, result: PanelResult) -> Self {
        Self {
            iteration,
            episodes,
            split: result.split,
            prompt: result.prompt,
            skill_share: (!result.prompt.is_plain()).then_some(result.skill_share),
            evaluation: result.evaluation,
        }
    }
}

fn plain() -> EvaluationPrompt {
    EvaluationPrompt::Plain
}

/// What a finished run amounts to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Arm the run belongs to.
    pub name: String,
    /// Its seed.
    pub seed: u64,
    /// Algorithm.
    pub algorithm: String,
    /// Iterations finished.
    pub iterations: u64,
    /// Training episodes played.
    pub episodes: u64,
    /// Wall seconds by phase. Not reproducible, unlike everything else here.
    pub seconds: BTreeMap<String, f64>,
}

/// A split played with one kind of prompt.
#[derive(Clone, Copy)]
struct Panel {
    split: Split,
    prompt: EvaluationPrompt,
}

impl Panel {
    /// The split's name, with the prompt unless it is the plain one.
    fn label(self) -> String {
        if self.prompt.is_plain() {
            self.split.name().to_owned()
        } else {
            format!("{} {}", self.split.name(), self.prompt)
        }
    }
}

/// One run as read from its directory.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// The directory.
    pub directory: PathBuf,
    /// Its summary.
    pub summary: Summary,
    /// All evaluations in order.
    pub evaluations: Vec<EvaluationRecord>,
}

impl RunResult {
    /// Reads a run directory.
    ///
    /// # Errors
    /// [`TrainError::NotARun`] naming what is missing or broken.
    pub fn read(directory: &Path) -> Result<Self, TrainError> {
        let not_a_run = |message: String| TrainError::NotARun {
            path: directory.to_owned(),
            message,
        };
        let read = |name: &str| {
            fs_err::read_to_string(directory.join(name)).map_err(|error| not_a_run(error.to_string()))
        };
        let summary = serde_json::from_str(&read(SUMMARY)?)
            .map_err(|error| not_a_run(format!("`{SUMMARY}`: {error}")))?;
        let evaluations = read(EVALUATIONS)?
            .lines()
            .enumerate()
            .map(|(index, line)| {
                serde_json::from_str(line)
                    .map_err(|error| not_a_run(format!("`{EVALUATIONS}` line {}: {error}", index + 1)))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            directory: directory.to_owned(),
            summary,
            evaluations,
        })
    }

    /// The evaluations of a panel with one kind of prompt, in order.
    fn panel(&self, panel: Panel) -> impl DoubleEndedIterator<Item = &EvaluationRecord> {
        self.evaluations
            .iter()
            .filter(move |record| record.split == panel.split && record.prompt == panel.prompt)
    }

    /// Wilson's interval of each evaluation of a panel, over training episodes.
    fn intervals(&self, panel: Panel) -> Vec<(f64, f64, f64)> {
        self.panel(panel)
            .map(|record| {
                let success = &record.evaluation.success;
                (record.episodes as f64, success.low, success.high)
            })
            .collect()
    }

    fn curve(&self, panel: Panel) -> Vec<(f64, f64)> {
        self.panel(panel)
            .map(|record| (record.episodes as f64, record.evaluation.success.value))
            .collect()
    }

    fn last(&self, panel: Panel) -> Option<&EvaluationRecord> {
        self.panel(panel).next_back()
    }
}

/// One row of the comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Arm {
    /// The runs' common name.
    pub name: String,
    /// Algorithm.
    pub algorithm: String,
    /// Seeds, in order.
    pub seeds: Vec<u64>,
    /// Training episodes per run (of the first run).
    pub episodes: u64,
    /// First and last success by split; with another prompt than the plain one, by split and prompt.
    pub panels: BTreeMap<String, PanelSummary>,
    /// Mean wall seconds by phase.
    pub seconds: BTreeMap<String, f64>,
}

/// An arm on one panel.
#[derive(Clone, Debug, Serialize)]
pub struct PanelSummary {
    /// Success at the first evaluation: mean over runs.
    pub first: f64,
    /// Success at the last evaluation. One run: Wilson's interval over its episodes. More: bootstrap over runs.
    pub last: Interval,
    /// Unweighted mean over families at the last evaluation: mean over runs.
    pub macro_last: f64,
    /// Mean height of the success curve over training episodes: mean over runs.
    pub mean_height: f64,
    /// Its bootstrap interval over runs; a single run has none.
    pub mean_height_interval: Option<Interval>,
    /// Episodes of the panel per evaluation.
    pub panel_episodes: usize,
}

/// A comparison of arms.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// One row per arm, in the order of first mention.
    pub arms: Vec<Arm>,
}

/// Groups runs into arms and summarises them.
pub fn compare(runs: &[RunResult]) -> Comparison {
    let mut names: Vec<&str> = Vec::new();
    for run in runs {
        if !names.contains(&run.summary.name.as_str()) {
            names.push(&run.summary.name);
        }
    }
    let arms = names
        .into_iter()
        .map(|name| {
            arm(
                name,
                &runs
                    .iter()
                    .filter(|run| run.summary.name == name)
                    .collect::<Vec<_>>(),
            )
        })
        .collect();
    Comparison { arms }
}

fn arm(name: &str, runs: &[&RunResult]) -> Arm {
    let key = RandomKey::new(0).with_text("bootstrap", name);
    let mut panels = BTreeMap::new();
    let prompts: BTreeSet<EvaluationPrompt> = runs
        .iter()
        .flat_map(|run| &run.evaluations)
        .map(|record| record.prompt)
        .collect();
    let all = Split::ALL
        .into_iter()
        .flat_map(|split| prompts.iter().map(move |&prompt| Panel { split, prompt }));
    for panel in all {
        let lasts: Vec<&EvaluationRecord> = runs.iter().filter_map(|run| run.last(panel)).collect();
        let Some(sample) = lasts.first() else { continue };
        let curves: Vec<Vec<(f64, f64)>> = runs.iter().map(|run| run.curve(panel)).collect();
        let rates: Vec<f64> = lasts
            .iter()
            .map(|record| record.evaluation.success.value)
            .collect();
        let heights: Vec<f64> = curves.iter().map(|curve| mean_height(curve)).collect();
        let firsts: Vec<f64> = curves
            .iter()
            .filter_map(|curve| curve.first())
            .map(|point| point.1)
            .collect();
        let macros: Vec<f64> = lasts
            .iter()
            .map(|record| record.evaluation.macro_success)
            .collect();
        let split_key = key.with_text("split", &panel.label());
        panels.insert(
            panel.label(),
            PanelSummary {
                first: mean(&firsts),
                last: bootstrap_mean(&rates, DRAWS, split_key.with("what", 0))
                    .unwrap_or(sample.evaluation.success),
                macro_last: mean(&macros),
                mean_height: mean(&heights),
                mean_height_interval: bootstrap_mean(&heights, DRAWS, split_key.with("what", 1)),
                panel_episodes: sample.evaluation.episodes,
            },
        );
    }
    let mut seconds: BTreeMap<String, f64> = BTreeMap::new();
    for run in runs {
        for (phase, value) in &run.summary.seconds {
            *seconds.entry(phase.clone()).or_default() += value / runs.len() as f64;
        }
    }
    let mut seeds: Vec<u64> = runs.iter().map(|run| run.summary.seed).collect();
    seeds.sort_unstable();
    Arm {
        name: name.to_owned(),
        algorithm: runs
            .first()
            .map(|run| run.summary.algorithm.clone())
            .unwrap_or_default(),
        seeds,
        episodes: runs.first().map_or(0, |run| run.summary.episodes),
        panels,
        seconds,
    }
}

impl Comparison {
    /// The table for people.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let width = self
            .arms
            .iter()
            .map(|arm| arm.name.chars().count())
            .max()
            .unwrap_or(0)
            .max(3);
        let _ = writeln!(
            text,
            "{:width$}  {:>5}  {:>8}  {:8}  {:>6}  {:>22}  {:>6}  {:>22}",
            "arm", "seeds", "episodes", "panel", "start", "success [95 %]", "macro", "area [95 %]"
        );
        for arm in &self.arms {
            for (index, (split, panel)) in arm.panels.iter().enumerate() {
                let (name, seeds, episodes) = if index == 0 {
                    (
                        arm.name.as_str(),
                        arm.seeds.len().to_string(),
                        arm.episodes.to_string(),
                    )
                } else {
                    ("", String::new(), String::new())
                };
                let _ = writeln!(
                    text,
                    "{name:width$}  {seeds:>5}  {episodes:>8}  {split:8}  {:>6}  {:>22}  {:>6}  {:>22}",
                    percent(panel.first),
                    interval(&panel.last),
                    percent(panel.macro_last),
                    panel
                        .mean_height_interval
                        .as_ref()
                        .map_or_else(|| percent(panel.mean_height), interval),
                );
            }
        }
        let mut shown: Vec<&String> = self.arms.iter().flat_map(|arm| arm.seconds.keys()).collect();
        let place = |phase: &String| PHASES.iter().position(|known| known == phase);
        shown.retain(|phase| place(phase).is_some());
        shown.sort_by_key(|phase| place(phase));
        shown.dedup();
        if !shown.is_empty() {
            let _ = write!(text, "\n{:width$}", "seconds");
            for phase in &shown {
                let _ = write!(text, "  {phase:>10}");
            }
            text.push('\n');
            for arm in &self.arms {
                let _ = write!(text, "{:width$}", arm.name);
                for phase in &shown {
                    let _ = write!(
                        text,
                        "  {:>10.1}",
                        arm.seconds.get(*phase).copied().unwrap_or(0.0)
                    );
                }
                text.push('\n');
            }
        }
        text
    }
}

fn percent(value: f64) -> String {
    format!("{:.1}", value * 100.0)
}

fn interval(value: &Interval) -> String {
    format!(
        "{:.1} [{:.1}, {:.1}]",
        value.value * 100.0,
        value.low * 100.0,
        value.high * 100.0
    )
}

/// Draws the success curves of `split`: one line per arm, mean over its runs, with the range between runs as a band, or
/// for a single run with each evaluation's Wilson interval as a bar.
///
/// # Errors
/// When the picture cannot be written.
pub fn draw(runs: &[RunResult], split: Split, path: &Path) -> Result<(), TrainError> {
    let comparison = compare(runs);
    let panel = Panel {
        split,
        prompt: EvaluationPrompt::Plain,
    };
    let curves: Vec<Curve> = comparison
        .arms
        .iter()
        .map(|arm| {
            let mut by_episodes: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
            let members: Vec<&RunResult> = runs.iter().filter(|run| run.summary.name == arm.name).collect();
            for run in &members {
                for (episodes, rate) in run.curve(panel) {
                    by_episodes.entry(episodes as u64).or_default().push(rate);
                }
            }
            Curve {
                name: format!(
                    "{} ({} seed{})",
                    arm.name,
                    arm.seeds.len(),
                    if arm.seeds.len() == 1 { "" } else { "s" }
                ),
                points: by_episodes
                    .iter()
                    .map(|(&x, rates)| (x as f64, mean(rates)))
                    .collect(),
                spread: match members.as_slice() {
                    [run] => Spread::Bars(run.intervals(panel)),
                    _ => Spread::Band(
                        by_episodes
                            .iter()
                            .map(|(&x, rates)| {
                                let low = rates.iter().copied().fold(f64::INFINITY, f64::min);
                                let high = rates.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                                (x as f64, low, high)
                            })
                            .collect(),
                    ),
                },
            }
        })
        .collect();
    let tasks = comparison
        .arms
        .iter()
        .filter_map(|arm| arm.panels.get(split.name()))
        .map(|panel| panel.panel_episodes)
        .max()
        .unwrap_or(0);
    let mut meanings = Vec::new();
    if curves.iter().any(|curve| matches!(curve.spread, Spread::Bars(_))) {
        meanings.push("bars: 95 % intervals over its tasks");
    }
    if curves.iter().any(|curve| matches!(curve.spread, Spread::Band(_))) {
        meanings.push("bands: range over seeds");
    }
    Ok(draw_curves(
        path,
        &format!(
            "Success on the {} panel, {tasks} tasks ({})",
            split.name(),
            meanings.join("; ")
        ),
        "training episodes",
        &curves,
    )?)
}
