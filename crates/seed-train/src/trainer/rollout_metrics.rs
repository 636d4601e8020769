//! Metrics of the episodes and their advantages.
//!
//! Episodes whose environment failed are counted and left out of every mean.

use std::collections::BTreeMap;
use std::time::Duration;

use seed_model::EngineTimes;
use seed_rl::Advantages;
use seed_rollout::{FinishKind, Step, Trajectory};
use seed_run::{Metrics, process_memory};

use super::batch::TrainedSequence;
use crate::evaluate::{outcome_name, scores};
use crate::statistics;

/// Sum, least, greatest and number of a list of values.
#[derive(Clone, Copy, Debug)]
struct Spread {
    sum: f64,
    least: f64,
    greatest: f64,
    count: usize,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let empty = Self {
            sum: 0.0,
            least: f64::INFINITY,
            greatest: f64::NEG_INFINITY,
            count: 0,
        };
        values.fold(empty, |spread, value| Self {
            sum: spread.sum + value,
            least: spread.least.min(value),
            greatest: spread.greatest.max(value),
            count: spread.count + 1,
        })
    }

    fn mean(&self) -> f64 {
        self.sum / self.count.max(1) as f64
    }

    /// Sets `{name}_mean`, `_minimum` and `_maximum`; nothing for an empty list.
    fn record(&self, name: &str, metrics: &mut Metrics) {
        if self.count > 0 {
            metrics.set(format!("{name}_mean"), self.mean());
            metrics.set(format!("{name}_minimum"), self.least);
            metrics.set(format!("{name}_maximum"), self.greatest);
        }
    }
}

/// Records what happened in an iteration's episodes.
pub(super) fn record_episodes(trajectories: &[Trajectory], metrics: &mut Metrics) {
    let finished: Vec<&Trajectory> = trajectories
        .iter()
        .filter(|trajectory| trajectory.outcome.trains())
        .collect();
    let steps = || finished.iter().flat_map(|trajectory| &trajectory.steps);
    let step_share = |condition: &dyn Fn(&Step) -> bool| {
        steps().filter(|step| condition(step)).count() as f64 / steps().count().max(1) as f64
    };
    let returns = Spread::of(
        finished
            .iter()
            .map(|trajectory| f64::from(trajectory.episode_return())),
    );
    let mean = returns.mean();
    let squares = Spread::of(finished.iter().map(|trajectory| {
        let difference = f64::from(trajectory.episode_return()) - mean;
        difference * difference
    }));
    if returns.count > 0 {
        metrics.set("reward/mean", mean);
        metrics.set("reward/deviation", squares.mean().sqrt());
        metrics.set("reward/minimum", returns.least);
        metrics.set("reward/maximum", returns.greatest);
    }
    let success = |trajectories: &[&Trajectory]| {
        trajectories
            .iter()
            .filter(|trajectory| trajectory.success())
            .count() as f64
            / trajectories.len().max(1) as f64
    };
    metrics.set("success/rate", success(&finished));
    let scores = scores(finished.iter().copied());
    if !scores.is_empty() {
        metrics.set("score/mean", statistics::mean(&scores));
    }
    let mut families: BTreeMap<&str, Vec<&Trajectory>> = BTreeMap::new();
    let mut groups: BTreeMap<u64, Vec<&Trajectory>> = BTreeMap::new();
    for &trajectory in &finished {
        families.entry(&trajectory.family).or_default().push(trajectory);
        groups.entry(trajectory.group).or_default().push(trajectory);
    }
    for (family, members) in &families {
        metrics.set(format!("episode/family/{family}/success_rate"), success(members));
    }
    let group_share = |rate: f64| {
        groups.values().filter(|members| success(members) == rate).count() as f64 / groups.len().max(1) as f64
    };
    metrics.set("group/all_success_share", group_share(1.0));
    metrics.set("group/all_failure_share", group_share(0.0));
    metrics.set("episode/count", trajectories.len() as f64);
    metrics.set("episode/excluded", (trajectories.len() - finished.len()) as f64);
    let mut outcomes: BTreeMap<&str, usize> = BTreeMap::new();
    for trajectory in trajectories {
        *outcomes.entry(outcome_name(trajectory.outcome)).or_default() += 1;
    }
    for (outcome, count) in outcomes {
        metrics.set(
            format!("episode/outcome/{outcome}"),
            count as f64 / trajectories.len() as f64,
        );
    }
    Spread::of(finished.iter().map(|trajectory| trajectory.steps.len() as f64))
        .record("episode/steps", metrics);
    Spread::of(steps().map(|step| step.response_ids.len() as f64)).record("response/tokens", metrics);
    metrics.set("action/valid_share", step_share(&|step| step.valid));
    metrics.set(
        "response/truncated_share",
        step_share(&|step| step.finish != FinishKind::Stop),
    );
    let prompts = Spread::of(steps().map(|step| step.prompt_ids.len() as f64));
    if prompts.count > 0 {
        metrics.set("prompt/tokens_mean", prompts.mean());
        metrics.set("prompt/tokens_maximum", prompts.greatest);
    }
    metrics.set(
        "prompt/truncated",
        steps().filter(|step| step.prompt_ids_truncated > 0).count() as f64,
    );
}

/// Records the advantages of the tokens that train.
pub(super) fn record_advantages(
    sequences: &[TrainedSequence],
    advantages: &Advantages,
    metrics: &mut Metrics,
) {
    metrics.set("group/tied_share", advantages.frac_zero_std());
    let tokens = sequences.iter().flat_map(|sequence| {
        sequence
            .advantages
            .iter()
            .zip(&sequence.mask)
            .filter(|(_, mask)| **mask)
            .map(|(value, _)| f64::from(*value))
    });
    let spread = Spread::of(tokens);
    if spread.count > 0 {
        metrics.set("advantage/mean", spread.mean());
        metrics.set("advantage/minimum", spread.least);
        metrics.set("advantage/maximum", spread.greatest);
    }
}

/// Records what the time of a rollout was spent on.
pub(super) fn record_times(environment: Duration, engine: EngineTimes, metrics: &mut Metrics) {
    metrics.set("timing/environment_seconds", environment.as_secs_f64());
    metrics.set("timing/prefill_seconds", engine.prefill.as_secs_f64());
    metrics.set("timing/decode_seconds", engine.decode.as_secs_f64());
}

/// Records what depends on the machine: speeds and memory.
pub(super) fn record_speed(
    trajectories: &[Trajectory],
    sequences: &[TrainedSequence],
    metrics: &mut Metrics,
) {
    let sampled: usize = trajectories.iter().map(Trajectory::response_tokens).sum();
    let steps: usize = trajectories.iter().map(|trajectory| trajectory.steps.len()).sum();
    let trained: usize = sequences
        .iter()
        .map(|sequence| sequence.sequence.tokens.len())
        .sum();
    let rates = [
        (
            "timing/sampled_tokens_per_second",
            sampled,
            "timing/rollout_seconds",
        ),
        (
            "timing/environment_steps_per_second",
            steps,
            "timing/rollout_seconds",
        ),
        (
            "timing/trained_tokens_per_second",
            trained,
            "timing/update_seconds",
        ),
    ];
    for (name, count, phase) in rates {
        if let Some(seconds) = metrics.get(phase).filter(|&seconds| seconds > 0.0) {
            metrics.set(name, count as f64 / seconds);
        }
    }
    let share = metrics
        .get("timing/environment_seconds")
        .zip(metrics.get("timing/iteration_seconds"));
    if let Some((environment, iteration)) = share {
        metrics.set("timing/environment_share", environment / iteration);
    }
    if let Some((resident, peak)) = process_memory() {
        metrics.set("memory/resident_bytes", resident as f64);
        metrics.set("memory/peak_bytes", peak as f64);
    }
}
