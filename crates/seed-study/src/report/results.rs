//! The numbers of a report: arms on their own, arms against the baseline, and how soon they reach its level.
//!
//! Only cells whose training is complete count; the report lists the others. Random numbers of intervals are addressed by
//! what the interval is of, so a report of the same files has the same bytes.

use std::collections::BTreeMap;

use seed_env::Split;
use seed_random::{Draw, RandomKey};
use seed_train::config::EvaluationPrompt;
use seed_train::statistics::{
    Interval, bootstrap_mean, mean, mean_height, quantile, stratified_bootstrap_mean,
};
use serde::Serialize;

use super::data::{CellData, StudyData};
use crate::panel::Weights;
use crate::statistics::{DRAWS, first_reach, holm, mean_curve, sign_flip_p_value, until};

/// A point of a curve.
type Point = (f64, f64);

/// An arm's mean with an interval over cells, where there are two or more.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The mean over cells.
    pub mean: f64,
    /// Percentile bootstrap over cells; `None` for a single one.
    pub interval: Option<Interval>,
    /// Cells.
    pub cells: usize,
}

/// One row of the table of learning curves.
#[derive(Clone, Debug, Serialize)]
pub struct CurveSummary {
    /// The base.
    pub base: String,
    /// The arm.
    pub arm: String,
    /// The split.
    pub split: Split,
    /// Training episodes of a cell.
    pub episodes: f64,
    /// Seconds on processors of a cell's training.
    pub cpu_seconds: Option<f64>,
    /// Success at the first evaluation.
    pub first: f64,
    /// Success at the last evaluation.
    pub last: Estimate,
    /// The highest success of any evaluation: mean over cells. Chosen after the fact, so higher than what it promises.
    pub best: f64,
    /// Mean height of the success curve over training episodes.
    pub area: Estimate,
}

/// What arms are compared by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "measure", rename_all = "snake_case")]
pub enum Measure {
    /// Mean height of the success curve up to the same training episode.
    AreaEpisodes {
        /// The split.
        split: Split,
    },
    /// Mean height of the success curve up to the same second on processors.
    AreaCpu {
        /// The split.
        split: Split,
    },
    /// Success at the last evaluation of training.
    Last {
        /// The split.
        split: Split,
    },
    /// Success of the final weights on a panel with the plain prompt.
    Panel {
        /// The panel.
        panel: String,
        /// The split.
        split: Split,
        /// The temperature as text, so that measures can be ordered.
        temperature: String,
    },
}

impl Measure {
    /// The words in tables.
    pub fn name(&self) -> String {
        match self {
            Self::AreaEpisodes { split } => format!("area, equal episodes, {}", split.name()),
            Self::AreaCpu { split } => format!("area, equal CPU, {}", split.name()),
            Self::Last { split } => format!("last evaluation, {}", split.name()),
            Self::Panel {
                panel,
                split,
                temperature,
            } => format!("{panel}, {}, T {temperature}", split.name()),
        }
    }

    /// The baseline's and the arm's value on a pair; `None` when one of them lacks it.
    fn of(&self, baseline: &CellData, arm: &CellData) -> Option<(f64, f64)> {
        let areas = |left: &[(f64, f64)], right: &[(f64, f64)]| {
            let end = left.last()?.0.min(right.last()?.0);
            (end > 0.0).then(|| (mean_height(&until(left, end)), mean_height(&until(right, end))))
        };
        match self {
            Self::AreaEpisodes { split } => areas(&baseline.curve(*split), &arm.curve(*split)),
            Self::AreaCpu { split } => areas(&baseline.cpu_curve(*split), &arm.cpu_curve(*split)),
            Self::Last { split } => Some((
                baseline.last(*split)?.evaluation.success.value,
                arm.last(*split)?.evaluation.success.value,
            )),
            Self::Panel {
                panel,
                split,
                temperature,
            } => {
                let value = |cell: &CellData| {
                    cell.panels
                        .iter()
                        .find(|record| {
                            record.panel == *panel
                                && record.weights == Weights::Final
                                && record.result.split == *split
                                && record.result.prompt.is_plain()
                                && record.temperature.to_string() == *temperature
                        })
                        .map(|record| record.result.evaluation.success.value)
                };
                Some((value(baseline)?, value(arm)?))
            }
        }
    }
}

/// An arm against the baseline.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// What is compared.
    pub measure: Measure,
    /// The arm.
    pub arm: String,
    /// Pairs of equal base and seed.
    pub pairs: usize,
    /// The baseline's mean over the pairs.
    pub baseline_mean: f64,
    /// The arm's mean over the pairs.
    pub arm_mean: f64,
    /// The arm's mean less the baseline's.
    pub difference: f64,
    /// Percentile bootstrap over pairs; `None` where a base has fewer than two.
    pub interval: Option<Interval>,
    /// Two-sided p-value by sign flips.
    pub p_value: f64,
    /// The same, corrected by Holm for all arms under this measure.
    pub corrected: f64,
}

/// How soon an arm reaches the baseline's final level.
#[derive(Clone, Debug, Serialize)]
pub struct Reach {
    /// The base.
    pub base: String,
    /// The arm.
    pub arm: String,
    /// The baseline's mean success at its last evaluation on the primary split.
    pub level: f64,
    /// Training episodes of the baseline.
    pub baseline_episodes: f64,
    /// Episodes until the arm's mean curve is at that level.
    pub episodes: Reached,
    /// Seconds on processors of the baseline's training.
    pub baseline_cpu: Option<f64>,
    /// Seconds on processors until the arm's mean curve is at that level.
    pub cpu_seconds: Option<Reached>,
}

/// A place on a curve that may not exist.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Reached {
    /// Where; `None` when the level is not reached.
    pub at: Option<f64>,
    /// 2.5th percentile over resampled seeds; `None` when it is not reached there.
    pub low: Option<f64>,
    /// 97.5th percentile; `None` when it is not reached in that many resamples.
    pub high: Option<f64>,
}

/// Mean and interval of values of cells.
pub(crate) fn estimate(values: &[f64], key: RandomKey) -> Option<Estimate> {
    (!values.is_empty()).then(|| Estimate {
        mean: mean(values),
        interval: bootstrap_mean(values, DRAWS, key),
        cells: values.len(),
    })
}

/// The root of a report's random numbers.
pub(crate) fn report_key(what: &str) -> RandomKey {
    RandomKey::new(0).with_text("report", what)
}

/// The table of learning curves: every arm on every base and split.
pub(crate) fn curve_summaries(data: &StudyData) -> Vec<CurveSummary> {
    let plan = &data.manifest.plan;
    let mut rows = Vec::new();
    for split in splits(data) {
        for base in &plan.bases {
            for arm in &plan.arms {
                let cells = data.trained(base, arm);
                let curves: Vec<Vec<(f64, f64)>> = cells
                    .iter()
                    .map(|cell| cell.curve(split))
                    .filter(|curve| !curve.is_empty())
                    .collect();
                let of = |value: &dyn Fn(&[Point]) -> f64| -> Vec<f64> {
                    curves.iter().map(|curve| value(curve)).collect()
                };
                let key = report_key(&format!("curve/{base}/{arm}/{}", split.name()));
                let lasts = of(&|curve| curve.last().map_or(0.0, |point| point.1));
                let areas = of(&mean_height);
                let (Some(last), Some(area)) = (
                    estimate(&lasts, key.with("what", 0)),
                    estimate(&areas, key.with("what", 1)),
                ) else {
                    continue;
                };
                let cpu: Vec<f64> = cells
                    .iter()
                    .filter_map(|cell| cell.cpu_seconds.values().last().copied())
                    .collect();
                rows.push(CurveSummary {
                    base: base.clone(),
                    arm: arm.clone(),
                    split,
                    episodes: mean(&of(&|curve| curve.last().map_or(0.0, |point| point.0))),
                    cpu_seconds: Some(mean(&cpu)).filter(|seconds| *seconds > 0.0),
                    first: mean(&of(&|curve| curve.first().map_or(0.0, |point| point.1))),
                    best: mean(&of(&|curve| {
                        curve.iter().map(|point| point.1).fold(0.0, f64::max)
                    })),
                    last,
                    area,
                });
            }
        }
    }
    rows
}

/// The splits that cells were evaluated on, the primary one first.
pub(crate) fn splits(data: &StudyData) -> Vec<Split> {
    let mut splits = vec![data.manifest.plan.primary];
    for split in [Split::Seen, Split::Unseen, Split::Development, Split::Train] {
        let is_played = data.cells.iter().any(|cell| cell.last(split).is_some());
        if is_played && !splits.contains(&split) {
            splits.push(split);
        }
    }
    splits
}

/// The measures of a study, the primary one first.
pub(crate) fn measures(data: &StudyData) -> Vec<Measure> {
    let primary = data.manifest.plan.primary;
    let mut measures = vec![
        Measure::AreaEpisodes { split: primary },
        Measure::AreaCpu { split: primary },
    ];
    for split in splits(data) {
        if split != primary {
            measures.push(Measure::AreaEpisodes { split });
        }
        measures.push(Measure::Last { split });
    }
    for panel in &data.manifest.plan.panels {
        if !(panel.weights.contains(&Weights::Final) && panel.prompts.contains(&EvaluationPrompt::Plain)) {
            continue;
        }
        for &split in &panel.splits {
            for temperature in &panel.temperatures {
                measures.push(Measure::Panel {
                    panel: panel.name.clone(),
                    split,
                    temperature: temperature.to_string(),
                });
            }
        }
    }
    measures
}

/// Every arm against the baseline under every measure; p-values are corrected over the arms of a measure.
pub(crate) fn comparisons(data: &StudyData) -> Vec<Comparison> {
    let plan = &data.manifest.plan;
    let mut rows = Vec::new();
    for measure in measures(data) {
        let mut family: Vec<Comparison> = Vec::new();
        for arm in plan.arms.iter().filter(|arm| **arm != plan.baseline) {
            let strata: Vec<Vec<(f64, f64)>> = data
                .pairs(arm)
                .iter()
                .map(|pairs| {
                    pairs
                        .iter()
                        .filter_map(|(baseline, cell)| measure.of(baseline, cell))
                        .collect()
                })
                .filter(|values: &Vec<(f64, f64)>| !values.is_empty())
                .collect();
            let all: Vec<(f64, f64)> = strata.concat();
            if all.is_empty() {
                continue;
            }
            let differences: Vec<Vec<f64>> = strata
                .iter()
                .map(|values| values.iter().map(|(left, right)| right - left).collect())
                .collect();
            let baseline_mean = mean(&all.iter().map(|pair| pair.0).collect::<Vec<_>>());
            let arm_mean = mean(&all.iter().map(|pair| pair.1).collect::<Vec<_>>());
            let key = report_key(&format!("comparison/{arm}/{}", measure.name()));
            family.push(Comparison {
                measure: measure.clone(),
                arm: arm.clone(),
                pairs: all.len(),
                baseline_mean,
                arm_mean,
                difference: mean(&differences.concat()),
                interval: stratified_bootstrap_mean(&differences, DRAWS, key.with("what", 0)),
                p_value: sign_flip_p_value(&differences.concat(), key.with("what", 1)),
                corrected: 1.0,
            });
        }
        let corrected = holm(&family.iter().map(|row| row.p_value).collect::<Vec<_>>());
        for (row, corrected) in family.iter_mut().zip(corrected) {
            row.corrected = corrected;
        }
        rows.extend(family);
    }
    rows
}

/// How soon each arm reaches the baseline's final level, by base. Seeds are resampled in pairs where both arms have them.
pub(crate) fn reaches(data: &StudyData) -> Vec<Reach> {
    let plan = &data.manifest.plan;
    let mut rows = Vec::new();
    for base in &plan.bases {
        let baseline = data.trained(base, &plan.baseline);
        if baseline.is_empty() {
            continue;
        }
        for arm in &plan.arms {
            let cells = data.trained(base, arm);
            if cells.is_empty() {
                continue;
            }
            let key = report_key(&format!("reach/{base}/{arm}"));
            let of = |curve: &dyn Fn(&CellData) -> Vec<(f64, f64)>| {
                let baseline: Vec<Vec<(f64, f64)>> = baseline.iter().map(|cell| curve(cell)).collect();
                let arm: Vec<Vec<(f64, f64)>> = cells.iter().map(|cell| curve(cell)).collect();
                let is_recorded = baseline.iter().chain(&arm).all(|curve| curve.len() > 1);
                is_recorded.then(|| reached(&baseline, &arm, key))
            };
            let Some((level, baseline_episodes, episodes)) = of(&|cell| cell.curve(plan.primary)) else {
                continue;
            };
            let cpu = of(&|cell| cell.cpu_curve(plan.primary));
            rows.push(Reach {
                base: base.clone(),
                arm: arm.clone(),
                level,
                baseline_episodes,
                episodes,
                baseline_cpu: cpu.map(|found| found.1),
                cpu_seconds: cpu.map(|found| found.2),
            });
        }
    }
    rows
}

fn slices(curves: &[Vec<(f64, f64)>]) -> Vec<&[(f64, f64)]> {
    curves.iter().map(Vec::as_slice).collect()
}

/// The baseline's final level and the end of its curve, and where the arm's mean curve is at that level.
fn reached(baseline: &[Vec<(f64, f64)>], arm: &[Vec<(f64, f64)>], key: RandomKey) -> (f64, f64, Reached) {
    let end = |curves: &[&[(f64, f64)]]| mean_curve(curves).last().copied().unwrap_or_default();
    let (baseline_end, level) = end(&slices(baseline));
    let at = first_reach(&mean_curve(&slices(arm)), level);
    let mut generator = key.generator();
    let mut draws: Vec<f64> = (0..DRAWS / 5)
        .map(|_| {
            // Curves lie in the order of seeds: equal draws of both arms are pairs as long as both have all seeds.
            let length = baseline.len().max(arm.len());
            let chosen: Vec<usize> = (0..length).map(|_| generator.below(length)).collect();
            let pick = |curves: &[Vec<(f64, f64)>]| -> Vec<Vec<(f64, f64)>> {
                chosen
                    .iter()
                    .filter_map(|&index| curves.get(index % curves.len().max(1)).cloned())
                    .collect()
            };
            let level = end(&slices(&pick(baseline))).1;
            first_reach(&mean_curve(&slices(&pick(arm))), level).unwrap_or(f64::INFINITY)
        })
        .collect();
    draws.sort_by(f64::total_cmp);
    let has_spread = baseline.len() > 1 && arm.len() > 1;
    let percentile = |share| Some(quantile(&draws, share)).filter(|at: &f64| has_spread && at.is_finite());
    let reached = Reached {
        at,
        low: percentile(0.025),
        high: percentile(0.975),
    };
    (level, baseline_end, reached)
}

/// Success of weights with a skill in the prompt, or without.
#[derive(Clone, Debug, Serialize)]
pub struct PanelSummary {
    /// The panel.
    pub panel: String,
    /// The arm; the name of the weights for those that cells begin from.
    pub arm: String,
    /// Whose weights play.
    pub weights: Weights,
    /// The split.
    pub split: Split,
    /// Sampling temperature.
    pub temperature: f64,
    /// What was in the prompts.
    pub prompt: EvaluationPrompt,
    /// Success, over cells (of initial weights: over bases).
    pub success: Estimate,
    /// Unweighted mean over task families.
    pub macro_success: f64,
    /// Share of episodes with a skill in the prompt.
    pub skill_share: f64,
}

/// Panel, whose weights, place of the name, name, split, temperature as text, prompt: what a mean is taken over.
type PanelKey = (usize, Weights, usize, String, Split, String, EvaluationPrompt);

/// One cell's part of a mean.
struct Played {
    success: f64,
    macro_success: f64,
    skill_share: f64,
    temperature: f64,
}

/// All panels, by whose weights played them.
pub(crate) fn panel_summaries(data: &StudyData) -> Vec<PanelSummary> {
    let plan = &data.manifest.plan;
    let mut groups: BTreeMap<PanelKey, Vec<Played>> = BTreeMap::new();
    let mut add = |order: usize, name: &str, records: &[crate::panel::PanelRecord]| {
        for record in records {
            let Some(panel) = plan.panels.iter().position(|panel| panel.name == record.panel) else {
                continue;
            };
            let evaluation = &record.result.evaluation;
            groups
                .entry((
                    panel,
                    record.weights,
                    order,
                    name.to_owned(),
                    record.result.split,
                    record.temperature.to_string(),
                    record.result.prompt,
                ))
                .or_default()
                .push(Played {
                    success: evaluation.success.value,
                    macro_success: evaluation.macro_success,
                    skill_share: record.result.skill_share,
                    temperature: record.temperature,
                });
        }
    };
    for ((_, name), records) in &data.starts {
        add(0, name, records);
    }
    for (order, arm) in plan.arms.iter().enumerate() {
        for cell in data.trained_of(arm) {
            add(order, arm, &cell.panels);
        }
    }
    groups
        .into_iter()
        .filter_map(|((panel, weights, _, arm, split, temperature, prompt), values)| {
            let column = |pick: &dyn Fn(&Played) -> f64| values.iter().map(pick).collect::<Vec<f64>>();
            let panel = plan.panels.get(panel)?.name.clone();
            let key = report_key(&format!(
                "panel/{panel}/{}/{arm}/{}/{temperature}/{prompt}",
                weights.name(),
                split.name()
            ));
            Some(PanelSummary {
                success: estimate(&column(&|played| played.success), key)?,
                macro_success: mean(&column(&|played| played.macro_success)),
                skill_share: mean(&column(&|played| played.skill_share)),
                temperature: mean(&column(&|played| played.temperature)),
                panel,
                arm,
                weights,
                split,
                prompt,
            })
        })
        .collect()
}
