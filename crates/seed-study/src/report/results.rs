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

use super::data::{CellData, Contestant, StudyData};
use crate::panel::Weights;
use crate::statistics::{DRAWS, between, first_reach, holm, mean_curve, sign_flip_p_value};

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
    /// What the evaluations' prompts held.
    pub prompt: EvaluationPrompt,
    /// Success at the first evaluation.
    pub first: f64,
    /// Success at the last evaluation.
    pub last: Estimate,
    /// The highest success of any evaluation: mean over cells. Chosen after the fact, so higher than what it promises.
    pub best: f64,
    /// Mean height of the success curve over training episodes.
    pub area: Estimate,
    /// Mean height of the success curve over seconds on processors, up to the base's budget; `None` without one.
    pub area_cpu: Option<Estimate>,
}

/// Seconds on processors that every trained arm of a base was given at least: up to there all can be compared.
#[derive(Clone, Debug, Serialize)]
pub struct CpuBudget {
    /// The base.
    pub base: String,
    /// Seconds at which the last of its cells' first evaluations is.
    pub start: f64,
    /// Seconds at which the first of its cells ends.
    pub end: f64,
}

/// What arms are compared by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "measure", rename_all = "snake_case")]
pub enum Measure {
    /// Mean height of the success curve over the training episodes that both curves cover.
    AreaEpisodes {
        /// The split.
        split: Split,
    },
    /// Mean height of the success curve over the seconds on processors that both curves cover.
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

    /// The values of a pair, whoever is compared with first; `None` when one of them lacks it.
    fn of(&self, left: Side<'_>, right: Side<'_>) -> Option<(f64, f64)> {
        let areas = |left: &[Point], right: &[Point]| {
            let (start, end) = common_span([left, right])?;
            let area = |curve: &[Point]| mean_height(&between(curve, start, end));
            Some((area(left), area(right)))
        };
        let both = |value: &dyn Fn(Side<'_>) -> Option<f64>| Some((value(left)?, value(right)?));
        match self {
            Self::AreaEpisodes { split } => {
                let curve = |side: Side<'_>| side.cell.curve(*split, side.prompt);
                areas(&curve(left), &curve(right))
            }
            Self::AreaCpu { split } => {
                let curve = |side: Side<'_>| side.cell.cpu_curve(*split, side.prompt);
                areas(&curve(left), &curve(right))
            }
            Self::Last { split } => both(&|side: Side<'_>| {
                let last = side.cell.last(*split, side.prompt)?;
                Some(last.evaluation.success.value)
            }),
            Self::Panel {
                panel,
                split,
                temperature,
            } => both(&|side: Side<'_>| {
                let found = side.cell.panels.iter().find(|record| {
                    record.panel == *panel
                        && record.weights == Weights::Final
                        && record.result.split == *split
                        && record.result.prompt == side.prompt
                        && record.temperature.to_string() == *temperature
                });
                found.map(|record| record.result.evaluation.success.value)
            }),
        }
    }
}

/// One cell of a pair, under one kind of prompt.
#[derive(Clone, Copy)]
struct Side<'a> {
    cell: &'a CellData,
    prompt: EvaluationPrompt,
}

/// Where all curves of more than one point lie above; `None` where that is nowhere, or none has two points.
fn common_span<'a>(curves: impl IntoIterator<Item = &'a [Point]>) -> Option<(f64, f64)> {
    let mut span: Option<(f64, f64)> = None;
    for curve in curves {
        let (Some(first), Some(last)) = (curve.first(), curve.last()) else {
            return None;
        };
        if curve.len() > 1 {
            let (start, end) = span.unwrap_or((first.0, last.0));
            span = Some((start.max(first.0), end.min(last.0)));
        }
    }
    span.filter(|(start, end)| start < end)
}

/// An arm against another, mostly the baseline.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// What is compared.
    pub measure: Measure,
    /// The arm, with its prompt unless that is the plain one.
    pub arm: String,
    /// The arm it is compared with, under the plain prompt.
    pub against: String,
    /// Pairs of equal base and seed.
    pub pairs: usize,
    /// The other's mean over the pairs.
    pub against_mean: f64,
    /// The arm's mean over the pairs.
    pub arm_mean: f64,
    /// The arm's mean less the other's.
    pub difference: f64,
    /// Percentile bootstrap over pairs; `None` where a base has fewer than two.
    pub interval: Option<Interval>,
    /// Two-sided p-value by sign flips.
    pub p_value: f64,
    /// The same, corrected by Holm for all comparisons of its table under this measure.
    pub corrected: f64,
}

/// How soon an arm reaches the baseline's final level.
#[derive(Clone, Debug, Serialize)]
pub struct Reach {
    /// The base.
    pub base: String,
    /// The arm, with its prompt unless that is the plain one.
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

/// Until where the curves of a base can be compared over seconds on processors; bases without such curves are left out.
pub(crate) fn cpu_budgets(data: &StudyData) -> Vec<CpuBudget> {
    let plan = &data.manifest.plan;
    let of_base = |base: &String| {
        let curves: Vec<Vec<Point>> = plan
            .arms
            .iter()
            .flat_map(|arm| data.trained(base, arm))
            .map(|cell| cell.cpu_curve(plan.primary, EvaluationPrompt::Plain))
            .filter(|curve| !curve.is_empty())
            .collect();
        let (start, end) = common_span(slices(&curves))?;
        Some(CpuBudget {
            base: base.clone(),
            start,
            end,
        })
    };
    plan.bases.iter().filter_map(of_base).collect()
}

/// The table of learning curves: everyone on every base and split.
pub(crate) fn curve_summaries(data: &StudyData) -> Vec<CurveSummary> {
    let plan = &data.manifest.plan;
    let budgets = cpu_budgets(data);
    let contestants = data.contestants();
    let mut rows = Vec::new();
    for split in splits(data) {
        for base in &plan.bases {
            let budget = budgets.iter().find(|budget| budget.base == *base);
            let summaries = contestants
                .iter()
                .filter_map(|contestant| curve_summary(data, base, split, contestant, budget));
            rows.extend(summaries);
        }
    }
    rows
}

fn curve_summary(
    data: &StudyData,
    base: &str,
    split: Split,
    contestant: &Contestant,
    budget: Option<&CpuBudget>,
) -> Option<CurveSummary> {
    let prompt = contestant.prompt;
    let cells = data.trained(base, &contestant.arm);
    let curves: Vec<Vec<Point>> = cells
        .iter()
        .map(|cell| cell.curve(split, prompt))
        .filter(|curve| !curve.is_empty())
        .collect();
    let of =
        |value: &dyn Fn(&[Point]) -> f64| -> Vec<f64> { curves.iter().map(|curve| value(curve)).collect() };
    let key = report_key(&format!("curve/{base}/{}/{}", contestant.name(), split.name()));
    let lasts = of(&|curve| curve.last().map_or(0.0, |point| point.1));
    let areas = of(&mean_height);
    let cpu: Vec<f64> = cells
        .iter()
        .filter_map(|cell| cell.cpu_seconds.values().last().copied())
        .collect();
    let area_cpu = budget.and_then(|budget| {
        let areas: Vec<f64> = cells
            .iter()
            .map(|cell| cell.cpu_curve(split, prompt))
            .filter(|curve| !curve.is_empty())
            .map(|curve| mean_height(&between(&curve, budget.start, budget.end)))
            .collect();
        estimate(&areas, key.with("what", 2))
    });
    Some(CurveSummary {
        base: base.to_owned(),
        arm: contestant.arm.clone(),
        split,
        prompt,
        episodes: mean(&of(&|curve| curve.last().map_or(0.0, |point| point.0))),
        cpu_seconds: Some(mean(&cpu)).filter(|seconds| *seconds > 0.0),
        first: mean(&of(&|curve| curve.first().map_or(0.0, |point| point.1))),
        best: mean(&of(&|curve| {
            curve.iter().map(|point| point.1).fold(0.0, f64::max)
        })),
        last: estimate(&lasts, key.with("what", 0))?,
        area: estimate(&areas, key.with("what", 1))?,
        area_cpu,
    })
}

/// The splits that cells were evaluated on, the primary one first.
pub(crate) fn splits(data: &StudyData) -> Vec<Split> {
    let mut splits = vec![data.manifest.plan.primary];
    for split in [Split::Seen, Split::Unseen, Split::Development, Split::Train] {
        let is_played = data
            .cells
            .iter()
            .any(|cell| cell.last(split, EvaluationPrompt::Plain).is_some());
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
            measures.push(Measure::AreaCpu { split });
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

/// Everyone against the baseline under every measure; p-values are corrected over the comparisons of a measure.
pub(crate) fn comparisons(data: &StudyData) -> Vec<Comparison> {
    let baseline = &data.manifest.plan.baseline;
    let pairs: Vec<(Contestant, String)> = data
        .contestants()
        .into_iter()
        .filter(|contestant| *contestant != Contestant::plain(baseline))
        .map(|contestant| (contestant, baseline.clone()))
        .collect();
    families(data, &pairs)
}

/// The comparisons that a study asks for besides those with the baseline, corrected for themselves.
pub(crate) fn contrasts(data: &StudyData) -> Vec<Comparison> {
    let pairs: Vec<(Contestant, String)> = data
        .manifest
        .plan
        .contrasts
        .iter()
        .map(|contrast| (Contestant::plain(&contrast.arm), contrast.against.clone()))
        .collect();
    families(data, &pairs)
}

/// Some comparisons under every measure, each measure a family of its own.
fn families(data: &StudyData, pairs: &[(Contestant, String)]) -> Vec<Comparison> {
    let mut rows = Vec::new();
    for measure in measures(data) {
        let mut family: Vec<Comparison> = pairs
            .iter()
            .filter_map(|(contestant, against)| comparison(data, &measure, contestant, against))
            .collect();
        let corrected = holm(&family.iter().map(|row| row.p_value).collect::<Vec<_>>());
        for (row, corrected) in family.iter_mut().zip(corrected) {
            row.corrected = corrected;
        }
        rows.extend(family);
    }
    rows
}

/// One comparison, not yet corrected; `None` without a pair.
fn comparison(
    data: &StudyData,
    measure: &Measure,
    contestant: &Contestant,
    against: &str,
) -> Option<Comparison> {
    let value = |(left, right): &(&CellData, &CellData)| {
        let left = Side {
            cell: left,
            prompt: EvaluationPrompt::Plain,
        };
        let right = Side {
            cell: right,
            prompt: contestant.prompt,
        };
        measure.of(left, right)
    };
    let strata: Vec<Vec<(f64, f64)>> = data
        .pairs(against, &contestant.arm)
        .iter()
        .map(|pairs| pairs.iter().filter_map(value).collect())
        .filter(|values: &Vec<(f64, f64)>| !values.is_empty())
        .collect();
    let all: Vec<(f64, f64)> = strata.concat();
    if all.is_empty() {
        return None;
    }
    let differences: Vec<Vec<f64>> = strata
        .iter()
        .map(|values| values.iter().map(|(left, right)| right - left).collect())
        .collect();
    let arm = contestant.name();
    let key = report_key(&format!("comparison/{arm}/{against}/{}", measure.name()));
    Some(Comparison {
        measure: measure.clone(),
        arm,
        against: against.to_owned(),
        pairs: all.len(),
        against_mean: mean(&all.iter().map(|pair| pair.0).collect::<Vec<_>>()),
        arm_mean: mean(&all.iter().map(|pair| pair.1).collect::<Vec<_>>()),
        difference: mean(&differences.concat()),
        interval: stratified_bootstrap_mean(&differences, DRAWS, key.with("what", 0)),
        p_value: sign_flip_p_value(&differences.concat(), key.with("what", 1)),
        corrected: 1.0,
    })
}

/// How soon everyone reaches the baseline's final level, by base. Seeds are resampled in pairs where both arms have them.
pub(crate) fn reaches(data: &StudyData) -> Vec<Reach> {
    let plan = &data.manifest.plan;
    let contestants = data.contestants();
    let mut rows = Vec::new();
    for base in &plan.bases {
        let baseline = data.trained(base, &plan.baseline);
        if baseline.is_empty() {
            continue;
        }
        for contestant in &contestants {
            let cells = data.trained(base, &contestant.arm);
            if cells.is_empty() {
                continue;
            }
            let arm = contestant.name();
            let key = report_key(&format!("reach/{base}/{arm}"));
            let of = |curve: &dyn Fn(&CellData, EvaluationPrompt) -> Vec<Point>| {
                let baseline: Vec<Vec<Point>> = baseline
                    .iter()
                    .map(|cell| curve(cell, EvaluationPrompt::Plain))
                    .collect();
                let arm: Vec<Vec<Point>> = cells.iter().map(|cell| curve(cell, contestant.prompt)).collect();
                let is_recorded = baseline.iter().chain(&arm).all(|curve| curve.len() > 1);
                is_recorded.then(|| reached(&baseline, &arm, key))
            };
            let Some((level, baseline_episodes, episodes)) =
                of(&|cell, prompt| cell.curve(plan.primary, prompt))
            else {
                continue;
            };
            let cpu = of(&|cell, prompt| cell.cpu_curve(plan.primary, prompt));
            rows.push(Reach {
                base: base.clone(),
                arm,
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
    /// The base whose cells these are; `None` for those of all bases together. A study of one base has no others.
    pub base: Option<String>,
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

/// What a mean is taken over.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct PanelKey {
    panel: usize,
    weights: Weights,
    /// Place of the name.
    order: usize,
    name: String,
    split: Split,
    /// As text, so that it can be ordered.
    temperature: String,
    prompt: EvaluationPrompt,
    /// Place of the base.
    base: Option<usize>,
}

/// One cell's part of a mean.
#[derive(Clone)]
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
    let mut add = |order: usize, name: &str, base: &str, records: &[crate::panel::PanelRecord]| {
        let base = plan.bases.iter().position(|other| other == base);
        for record in records {
            let Some(panel) = plan.panels.iter().position(|panel| panel.name == record.panel) else {
                continue;
            };
            let evaluation = &record.result.evaluation;
            let played = Played {
                success: evaluation.success.value,
                macro_success: evaluation.macro_success,
                skill_share: record.result.skill_share,
                temperature: record.temperature,
            };
            let together = PanelKey {
                panel,
                weights: record.weights,
                order,
                name: name.to_owned(),
                split: record.result.split,
                temperature: record.temperature.to_string(),
                prompt: record.result.prompt,
                base: None,
            };
            if plan.bases.len() > 1 {
                let of_base = PanelKey {
                    base,
                    ..together.clone()
                };
                groups.entry(of_base).or_default().push(played.clone());
            }
            groups.entry(together).or_default().push(played);
        }
    };
    for ((base, name), records) in &data.starts {
        add(0, name, base, records);
    }
    for (order, arm) in plan.arms.iter().enumerate() {
        for cell in data.trained_of(arm) {
            add(order, arm, &cell.id.base, &cell.panels);
        }
    }
    groups
        .into_iter()
        .filter_map(|(of, values)| {
            let column = |pick: &dyn Fn(&Played) -> f64| values.iter().map(pick).collect::<Vec<f64>>();
            let panel = plan.panels.get(of.panel)?.name.clone();
            let base = of.base.and_then(|place| plan.bases.get(place)).cloned();
            let key = report_key(&format!(
                "panel/{panel}/{}/{}/{}/{}/{}{}",
                of.weights.name(),
                of.name,
                of.split.name(),
                of.temperature,
                of.prompt,
                base.as_ref().map(|base| format!("/{base}")).unwrap_or_default(),
            ));
            Some(PanelSummary {
                success: estimate(&column(&|played| played.success), key)?,
                macro_success: mean(&column(&|played| played.macro_success)),
                skill_share: mean(&column(&|played| played.skill_share)),
                // One for all: their mean would be another number in its last places.
                temperature: values.first()?.temperature,
                panel,
                arm: of.name,
                base,
                weights: of.weights,
                split: of.split,
                prompt: of.prompt,
            })
        })
        .collect()
}
