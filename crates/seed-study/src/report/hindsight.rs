//! How good the analyser's skills were and what they did: from the skills and metrics that runs keep.
//!
//! Whether a skill is right is judged from knowledge of the game ([`seed_alfworld::expert::yardstick`]), which training
//! does not have.

use std::collections::BTreeMap;
use std::path::Path;

use seed_alfworld::expert::yardstick::Yardstick;
use seed_env::TaskId;
use seed_run::read_json_lines;
use seed_train::config::{Loaded, TrainConfig};
use seed_train::hindsight::Analysis;
use seed_train::statistics::mean;
use serde::Serialize;

use super::data::{CellData, Part, StudyData};
use crate::StudyError;
use crate::panel::Worlds;
use crate::plan::cell_directory;

/// Skills of an arm in a part of its training.
#[derive(Clone, Debug, Serialize)]
pub struct AnalyserSummary {
    /// The arm.
    pub arm: String,
    /// The part.
    pub part: Part,
    /// Episodes that were analysed, or whose task has a skill, of those whose skills were kept.
    pub analyses: usize,
    /// Share of the answers in which a skill could be read; `None` where skills are of tasks and nobody was asked.
    pub parsed: Option<f64>,
    /// Share of the episodes with a skill that passed the filters.
    pub accepted: f64,
    /// Words of an accepted skill.
    pub words: f64,
    /// Share of an accepted skill's word runs that stand in its transcript.
    pub copied: f64,
    /// Share of the accepted skills that equal another of their iteration.
    pub duplicates: Option<f64>,
    /// Accepted skills that could be judged.
    pub judged: usize,
    /// Share of them with the right procedure.
    pub procedure: f64,
    /// Share of them with the right place.
    pub place: f64,
    /// The same after successes; `None` without any.
    pub place_success: Option<f64>,
    /// The same after failures; `None` without any.
    pub place_failure: Option<f64>,
}

/// What a judged analyser is drawn from: right place by iteration, mean over cells.
pub(crate) struct AnalyserCurve {
    pub(crate) arm: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// Gaps and gates of an arm in a part of its training: means over iterations and cells.
#[derive(Clone, Debug, Serialize)]
pub struct GapSummary {
    /// The arm.
    pub arm: String,
    /// The part.
    pub part: Part,
    /// By metric name; what no cell recorded is absent.
    pub values: BTreeMap<String, f64>,
}

/// Metrics of the table of gaps and gates, with their headings.
pub(crate) const GAP_METRICS: [(&str, &str); 16] = [
    ("seed/gap_mean", "gap"),
    ("seed/gap_mean_success", "gap, successes"),
    ("seed/gap_mean_failure", "gap, failures"),
    ("seed/gap_mean_action", "gap, action"),
    ("seed/gap_mean_reasoning", "gap, reasoning"),
    ("seed/gap_deviation", "deviation"),
    ("seed/gate_mean", "gate"),
    ("seed/gate_mean_success", "gate, successes"),
    ("seed/gate_mean_failure", "gate, failures"),
    ("seed/gate_above_half_share", "gate > 1/2"),
    ("seed/gate_above_half_share_success", "> 1/2, successes"),
    ("seed/gate_above_half_share_failure", "> 1/2, failures"),
    ("seed/gate_within_epsilon_share", "within ε"),
    ("seed/token_share", "tokens"),
    ("seed/token_share_success", "tokens, successes"),
    ("seed/token_share_failure", "tokens, failures"),
];

/// One accepted skill, or an answer without.
struct Judged {
    success: bool,
    /// `None` where nobody was asked.
    parsed: Option<bool>,
    accepted: bool,
    words: usize,
    copied: f64,
    /// Right procedure and right place, where the game is known.
    judgement: Option<(bool, bool)>,
}

/// The tables and curves of skills, and why some could not be judged.
pub(crate) struct Hindsight {
    pub(crate) analysers: Vec<AnalyserSummary>,
    pub(crate) curves: Vec<AnalyserCurve>,
    pub(crate) gaps: Vec<GapSummary>,
    /// Why skills of an arm were not judged.
    pub(crate) unjudged: Vec<String>,
}

impl Hindsight {
    /// Reads and judges the skills of all trained cells.
    pub(crate) fn read(directory: &Path, data: &StudyData) -> Result<Self, StudyError> {
        let mut judge = Judge::default();
        let plan = &data.manifest.plan;
        let mut found = Self {
            analysers: Vec::new(),
            curves: Vec::new(),
            gaps: Vec::new(),
            unjudged: Vec::new(),
        };
        for arm in &plan.arms {
            let cells = data.trained_of(arm);
            let mut by_part: BTreeMap<Part, Vec<Judged>> = BTreeMap::new();
            let mut by_iteration: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
            for cell in &cells {
                let config = plan
                    .group(&cell.id.base, arm)
                    .map(|group| group.config.as_str())
                    .unwrap_or_default();
                let last = cell.metrics.last().map_or(0, |record| record.step);
                for iteration in 1..=last {
                    let judged = judge.iteration(directory, cell, config, iteration)?;
                    let places: Vec<f64> = judged
                        .iter()
                        .filter_map(|judged| Some(f64::from(u8::from(judged.judgement?.1))))
                        .collect();
                    if !places.is_empty() {
                        by_iteration.entry(iteration).or_default().push(mean(&places));
                    }
                    if let Some(part) = Part::ALL.into_iter().find(|part| part.holds(iteration, last)) {
                        by_part.entry(part).or_default().extend(judged);
                    }
                }
            }
            for (part, judged) in by_part {
                let duplicates = cells
                    .iter()
                    .filter_map(|cell| cell.metric("analysis/duplicate_share", part));
                found
                    .analysers
                    .extend(summary(arm, part, &judged, &duplicates.collect::<Vec<_>>()));
            }
            if !by_iteration.is_empty() {
                found.curves.push(AnalyserCurve {
                    arm: arm.clone(),
                    points: by_iteration
                        .into_iter()
                        .map(|(iteration, shares)| (iteration as f64, mean(&shares)))
                        .collect(),
                });
            }
            for part in Part::ALL {
                let values: BTreeMap<String, f64> = GAP_METRICS
                    .iter()
                    .filter_map(|(name, _)| {
                        let values: Vec<f64> =
                            cells.iter().filter_map(|cell| cell.metric(name, part)).collect();
                        (!values.is_empty()).then(|| ((*name).to_owned(), mean(&values)))
                    })
                    .collect();
                if !values.is_empty() {
                    found.gaps.push(GapSummary {
                        arm: arm.clone(),
                        part,
                        values,
                    });
                }
            }
        }
        found.unjudged = judge.closed;
        Ok(found)
    }
}

fn summary(arm: &str, part: Part, judged: &[Judged], duplicates: &[f64]) -> Option<AnalyserSummary> {
    if judged.is_empty() {
        return None;
    }
    let share =
        |values: &[bool]| values.iter().filter(|value| **value).count() as f64 / values.len().max(1) as f64;
    let answers: Vec<bool> = judged.iter().filter_map(|judged| judged.parsed).collect();
    let accepted: Vec<&Judged> = judged.iter().filter(|judged| judged.accepted).collect();
    let judgements: Vec<(bool, bool, bool)> = accepted
        .iter()
        .filter_map(|judged| {
            judged
                .judgement
                .map(|(procedure, place)| (judged.success, procedure, place))
        })
        .collect();
    let place_after = |success: bool| {
        let places: Vec<bool> = judgements
            .iter()
            .filter(|judged| judged.0 == success)
            .map(|judged| judged.2)
            .collect();
        (!places.is_empty()).then(|| share(&places))
    };
    Some(AnalyserSummary {
        arm: arm.to_owned(),
        part,
        analyses: judged.len(),
        parsed: (!answers.is_empty()).then(|| share(&answers)),
        accepted: accepted.len() as f64 / judged.len() as f64,
        words: mean(
            &accepted
                .iter()
                .map(|judged| judged.words as f64)
                .collect::<Vec<_>>(),
        ),
        copied: mean(&accepted.iter().map(|judged| judged.copied).collect::<Vec<_>>()),
        duplicates: (!duplicates.is_empty()).then(|| mean(duplicates)),
        judged: judgements.len(),
        procedure: share(&judgements.iter().map(|judged| judged.1).collect::<Vec<_>>()),
        place: share(&judgements.iter().map(|judged| judged.2).collect::<Vec<_>>()),
        place_success: place_after(true),
        place_failure: place_after(false),
    })
}

/// Knows the games of worlds, each read once.
#[derive(Default)]
struct Judge {
    worlds: Worlds,
    /// Yardsticks by configuration and task; `None` where there is none.
    yardsticks: BTreeMap<(String, String), Option<Yardstick>>,
    configs: BTreeMap<String, Option<TrainConfig>>,
    /// Why worlds could not be opened.
    closed: Vec<String>,
}

impl Judge {
    /// The analyses that a cell kept of an iteration.
    fn iteration(
        &mut self,
        directory: &Path,
        cell: &CellData,
        config: &str,
        iteration: u64,
    ) -> Result<Vec<Judged>, StudyError> {
        let path = cell_directory(directory, &cell.id)
            .join("skills")
            .join(format!("iteration-{iteration:06}.jsonl.zst"));
        if !path.exists() {
            return Ok(Vec::new());
        }
        let mut judged = Vec::new();
        for analysis in read_json_lines::<Analysis>(&path)? {
            let analysis = analysis?;
            let is_asked = analysis.was_asked();
            if !is_asked && analysis.skill.is_none() {
                continue;
            }
            let skill = analysis.skill.as_deref();
            let judgement = skill.and_then(|skill| {
                let judgement = self.yardstick(config, &analysis.task)?.judge(skill);
                Some((judgement.procedure, judgement.place))
            });
            judged.push(Judged {
                success: analysis.success,
                parsed: is_asked.then_some(analysis.was_read()),
                accepted: skill.is_some(),
                words: skill.map_or(0, |skill| skill.split_whitespace().count()),
                copied: analysis.copied_share,
                judgement,
            });
        }
        Ok(judged)
    }

    fn yardstick(&mut self, config: &str, task: &str) -> Option<&Yardstick> {
        let key = (config.to_owned(), task.to_owned());
        if !self.yardsticks.contains_key(&key) {
            let made = self.make(config, task);
            self.yardsticks.insert(key.clone(), made);
        }
        self.yardsticks.get(&key)?.as_ref()
    }

    fn make(&mut self, config: &str, task: &str) -> Option<Yardstick> {
        let read = |text: &str| Loaded::<TrainConfig>::from_text("study.json", text, &[]).ok();
        let config = self
            .configs
            .entry(config.to_owned())
            .or_insert_with(|| read(config).map(|loaded| loaded.config))
            .clone()?;
        match self.worlds.get(&config) {
            // Only household games say what was right.
            Ok(world) => Yardstick::of(&*world.games.as_ref()?.game(&TaskId::new(task)).ok()?),
            Err(error) => {
                let text = error.to_string();
                if !self.closed.contains(&text) {
                    self.closed.push(text);
                }
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(success: bool, parsed: Option<bool>, judgement: Option<(bool, bool)>) -> Judged {
        Judged {
            success,
            parsed,
            accepted: judgement.is_some(),
            words: 10,
            copied: 0.25,
            judgement,
        }
    }

    #[test]
    fn shares_are_of_what_they_say() {
        let all = [
            judged(true, Some(true), Some((true, true))),
            judged(true, Some(true), Some((true, false))),
            judged(false, Some(true), Some((false, false))),
            judged(false, Some(true), None),
            judged(false, Some(false), None),
        ];
        let row = summary("SEED", Part::First, &all, &[]).unwrap();
        assert_eq!((row.analyses, row.parsed, row.accepted), (5, Some(0.8), 0.6));
        assert_eq!(row.judged, 3);
        assert!((row.procedure - 2.0 / 3.0).abs() < 1e-12 && (row.place - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!((row.place_success, row.place_failure), (Some(0.5), Some(0.0)));
        // Nobody was asked: there is no answer that could have been unreadable.
        let library = [judged(false, None, Some((true, false)))];
        let row = summary("SDAR", Part::First, &library, &[]).unwrap();
        assert_eq!((row.parsed, row.accepted, row.procedure), (None, 1.0, 1.0));
    }
}
