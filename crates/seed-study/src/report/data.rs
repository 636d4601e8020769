//! What a report reads: the run directories of a study, and what lies beside them.
//!
//! Not for: numbers that are made of it ([`super::results`]).

use std::collections::BTreeMap;
use std::path::Path;

use seed_env::Split;
use seed_run::metrics::{Record, read_records};
use seed_run::{read_json_lines, read_run_record};
use seed_train::compare::{EVALUATIONS, EvaluationRecord, SUMMARY};
use seed_train::config::EvaluationPrompt;

use crate::StudyError;
use crate::manifest::Manifest;
use crate::panel::{PanelRecord, read_panels};
use crate::plan::{CellId, cell_directory};
use crate::state::{Status, start_directory, status};

/// A study as its directory shows it.
pub(crate) struct StudyData {
    pub(crate) manifest: Manifest,
    /// All cells of the plan, in the order in which they are run.
    pub(crate) cells: Vec<CellData>,
    /// Panels of the weights that cells begin from, by base and name.
    pub(crate) starts: BTreeMap<(String, String), Vec<PanelRecord>>,
}

/// One cell.
pub(crate) struct CellData {
    pub(crate) id: CellId,
    pub(crate) status: Status,
    /// Whether its training is complete; it may still have failed at a panel.
    pub(crate) is_trained: bool,
    /// Version of the program that began it.
    pub(crate) version: Option<String>,
    pub(crate) evaluations: Vec<EvaluationRecord>,
    pub(crate) metrics: Vec<Record>,
    /// Seconds on processors until the end of an iteration, evaluation not counted, by iteration.
    pub(crate) cpu_seconds: BTreeMap<u64, f64>,
    pub(crate) panels: Vec<PanelRecord>,
}

impl StudyData {
    /// Reads everything.
    pub(crate) fn read(directory: &Path) -> Result<Self, StudyError> {
        let manifest = Manifest::read(directory)?;
        let plan = &manifest.plan;
        let mut cells = Vec::new();
        for id in plan.cells() {
            let status = status(directory, &plan.panels, &id)?;
            cells.push(CellData::read(directory, id, status)?);
        }
        let mut starts = BTreeMap::new();
        for start in &plan.starts {
            let records = read_panels(&start_directory(directory, &start.base, &start.name))?;
            starts.insert((start.base.clone(), start.name.clone()), records);
        }
        Ok(Self {
            manifest,
            cells,
            starts,
        })
    }

    /// The trained cells of an arm on a base, in the order of their seeds.
    pub(crate) fn trained<'a>(&'a self, base: &str, arm: &str) -> Vec<&'a CellData> {
        let mut cells: Vec<&CellData> = self
            .cells
            .iter()
            .filter(|cell| cell.id.base == base && cell.id.arm == arm && cell.is_trained)
            .collect();
        cells.sort_by_key(|cell| cell.id.seed);
        cells
    }

    /// The trained cells of an arm on all bases.
    pub(crate) fn trained_of(&self, arm: &str) -> Vec<&CellData> {
        let bases = &self.manifest.plan.bases;
        bases.iter().flat_map(|base| self.trained(base, arm)).collect()
    }

    /// Trained cells of two arms with equal base and seed, by base; bases without any are left out.
    pub(crate) fn pairs(&self, against: &str, arm: &str) -> Vec<Vec<(&CellData, &CellData)>> {
        let plan = &self.manifest.plan;
        let of_base = |base: &String| {
            let partners = self.trained(base, against);
            let pairs: Vec<(&CellData, &CellData)> = self
                .trained(base, arm)
                .into_iter()
                .filter_map(|cell| {
                    let partner = partners.iter().find(|other| other.id.seed == cell.id.seed)?;
                    Some((*partner, cell))
                })
                .collect();
            pairs
        };
        plan.bases
            .iter()
            .map(of_base)
            .filter(|pairs| !pairs.is_empty())
            .collect()
    }
}

impl StudyData {
    /// Everyone on whom a learning curve is drawn: every arm with the plain prompt, and with each prompt that it was also
    /// evaluated with while it trained.
    pub(crate) fn contestants(&self) -> Vec<Contestant> {
        let mut found = Vec::new();
        for arm in &self.manifest.plan.arms {
            let cells = self.trained_of(arm);
            let is_evaluated = |prompt: EvaluationPrompt| {
                let mut records = cells.iter().flat_map(|cell| &cell.evaluations);
                prompt.is_plain() || records.any(|record| record.prompt == prompt)
            };
            found.extend(
                EvaluationPrompt::all()
                    .filter(|prompt| is_evaluated(*prompt))
                    .map(|prompt| Contestant {
                        arm: arm.clone(),
                        prompt,
                    }),
            );
        }
        found
    }
}

/// An arm under one kind of prompt: training with skills in the prompts is one thing with them and another without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Contestant {
    pub(crate) arm: String,
    pub(crate) prompt: EvaluationPrompt,
}

impl Contestant {
    /// An arm under the plain prompt.
    pub(crate) fn plain(arm: &str) -> Self {
        Self {
            arm: arm.to_owned(),
            prompt: EvaluationPrompt::Plain,
        }
    }

    /// The words in tables: the arm, with the prompt unless it is the plain one.
    pub(crate) fn name(&self) -> String {
        if self.prompt.is_plain() {
            self.arm.clone()
        } else {
            format!("{}, {}", self.arm, self.prompt)
        }
    }
}

impl CellData {
    fn read(study: &Path, id: CellId, status: Status) -> Result<Self, StudyError> {
        let directory = cell_directory(study, &id);
        let records = |name: &str| {
            let path = directory.join(name);
            if path.exists() {
                read_records(&path)
            } else {
                Ok(Vec::new())
            }
        };
        let evaluations = directory.join(EVALUATIONS);
        let mut total = 0.0;
        let mut cpu_seconds = BTreeMap::from([(0, 0.0)]);
        for record in records("timings.jsonl")? {
            if let Some(seconds) = record.metrics.get("timing/cpu_seconds").copied().flatten() {
                total += seconds;
                cpu_seconds.insert(record.step, total);
            }
        }
        Ok(Self {
            is_trained: directory.join(SUMMARY).exists(),
            version: read_run_record(&directory).ok().map(|record| record.version),
            evaluations: if evaluations.exists() {
                read_json_lines(&evaluations)?.collect::<Result<_, _>>()?
            } else {
                Vec::new()
            },
            metrics: records("metrics.jsonl")?,
            cpu_seconds,
            panels: read_panels(&directory)?,
            id,
            status,
        })
    }

    /// The evaluations on a split with one kind of prompt.
    pub(crate) fn on(
        &self,
        split: Split,
        prompt: EvaluationPrompt,
    ) -> impl DoubleEndedIterator<Item = &EvaluationRecord> {
        self.evaluations
            .iter()
            .filter(move |record| record.split == split && record.prompt == prompt)
    }

    /// Success on a split over training episodes.
    pub(crate) fn curve(&self, split: Split, prompt: EvaluationPrompt) -> Vec<(f64, f64)> {
        self.on(split, prompt)
            .map(|record| (record.episodes as f64, record.evaluation.success.value))
            .collect()
    }

    /// Success on a split over seconds on processors; empty where they were not recorded.
    pub(crate) fn cpu_curve(&self, split: Split, prompt: EvaluationPrompt) -> Vec<(f64, f64)> {
        self.on(split, prompt)
            .filter_map(|record| {
                Some((
                    *self.cpu_seconds.get(&record.iteration)?,
                    record.evaluation.success.value,
                ))
            })
            .collect()
    }

    /// The last evaluation on a split.
    pub(crate) fn last(&self, split: Split, prompt: EvaluationPrompt) -> Option<&EvaluationRecord> {
        self.on(split, prompt).next_back()
    }

    /// Mean of a metric over the iterations of a part of the training; `None` where it was never recorded.
    pub(crate) fn metric(&self, name: &str, part: Part) -> Option<f64> {
        let last = self.metrics.last()?.step;
        let values: Vec<f64> = self
            .metrics
            .iter()
            .filter(|record| record.step > 0 && part.holds(record.step, last))
            .filter_map(|record| record.metrics.get(name).copied().flatten())
            .collect();
        (!values.is_empty()).then(|| seed_train::statistics::mean(&values))
    }
}

/// A part of the iterations of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// The first third.
    First,
    /// The last third.
    Last,
}

impl Part {
    /// Both, in order.
    pub const ALL: [Self; 2] = [Self::First, Self::Last];

    /// Whether an iteration (from 1) of so many belongs to it.
    pub fn holds(self, iteration: u64, iterations: u64) -> bool {
        let third = (iterations / 3).max(1);
        match self {
            Self::First => iteration <= third,
            Self::Last => iteration + third > iterations,
        }
    }

    /// The words in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::First => "first third",
            Self::Last => "last third",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thirds_are_of_equal_length_and_never_empty() {
        for iterations in 1..20 {
            let count = |part: Part| (1..=iterations).filter(|&at| part.holds(at, iterations)).count();
            assert_eq!(count(Part::First), count(Part::Last), "{iterations}");
            assert_eq!(count(Part::First) as u64, (iterations / 3).max(1));
        }
        assert!(Part::First.holds(13, 40) && !Part::First.holds(14, 40));
        assert!(Part::Last.holds(28, 40) && !Part::Last.holds(27, 40));
    }
}
