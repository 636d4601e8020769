//! The optimiser steps of one iteration.

use seed_model::{AdamW, Decoder, Gradients, ScoreGradients, StepOutcome, TokenSequence};
use seed_rl::{Algorithm, PolicyOptions, UpdateMetrics, UpdatePlan};
use seed_run::Metrics;

use super::batch::TrainedSequence;
use super::names;
use crate::TrainError;

/// How sequences become optimiser steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct UpdateOptions {
    /// Passes over the sequences.
    pub epochs: usize,
    /// Sequences per optimiser step.
    pub mini_batch_rows: usize,
    /// Learning rate of this iteration.
    pub learning_rate: f64,
    /// Sampling temperature of the rollout, at which everything is scored.
    pub temperature: f32,
    /// Recompute activations in the backward pass.
    pub recompute: bool,
}

/// Runs all optimiser steps of an iteration over `sequences` in their order and returns the metrics.
///
/// # Errors
/// When the algorithm refuses the batch or a score is not finite. A non-finite gradient is not an error: the step is
/// skipped and counted.
pub(super) fn update(
    decoder: &mut Decoder,
    optimiser: &mut AdamW,
    gradients: &mut Gradients,
    algorithm: &dyn Algorithm,
    policy: &PolicyOptions,
    sequences: &[TrainedSequence],
    iteration: u64,
    options: &UpdateOptions,
    metrics: &mut Metrics,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<(), TrainError> {
    let views: Vec<_> = sequences.iter().map(TrainedSequence::view).collect();
    let plan = UpdatePlan::new(algorithm, policy, &views, iteration)?;
    // An algorithm that guides nothing has no coverage to report.
    if algorithm.reads_skills() {
        names::record(&plan.report().named(), metrics);
    }
    let order: Vec<usize> = (0..sequences.len()).collect();
    let steps = order.len().div_ceil(options.mini_batch_rows.max(1)) * options.epochs;
    let mut total = UpdateMetrics::default();
    let (mut applied, mut skipped_empty, mut skipped_non_finite, mut norms) = (0usize, 0usize, 0usize, 0.0);
    for _ in 0..options.epochs {
        for indices in order.chunks(options.mini_batch_rows.max(1)) {
            progress(applied + skipped_empty + skipped_non_finite, steps);
            let _span = tracing::debug_span!("mini_batch", rows = indices.len()).entered();
            let mut objective = plan.mini_batch(indices)?;
            if !objective.trains() {
                skipped_empty += 1;
                continue;
            }
            gradients.clear();
            // `indices` come from `order`, which counts `sequences`.
            let tokens: Vec<TokenSequence<'_>> = indices
                .iter()
                .filter_map(|&index| sequences.get(index))
                .map(TrainedSequence::tokens)
                .collect();
            decoder.accumulate_gradient(
                &tokens,
                options.temperature,
                gradients,
                &mut |position, scores| {
                    let result = objective.evaluate(position, &scores.log_probs, &scores.entropies);
                    ScoreGradients {
                        log_probs: result.log_probs,
                        entropies: result.entropies,
                    }
                },
                options.recompute,
            )?;
            total.merge(objective.finish()?);
            match decoder.optimise(optimiser, gradients, options.learning_rate)? {
                StepOutcome::Applied { gradient_norm } => {
                    applied += 1;
                    norms += gradient_norm;
                }
                StepOutcome::SkippedNonFinite { .. } => skipped_non_finite += 1,
            }
        }
    }
    names::record(&total.named(), metrics);
    let clipped = ["policy/clip_fraction_high", "policy/clip_fraction_low"];
    metrics.set(
        "policy/clip_fraction",
        clipped.iter().filter_map(|name| metrics.get(name)).sum(),
    );
    metrics.set("policy/gradient_norm", norms / applied.max(1) as f64);
    metrics.set("policy/learning_rate", options.learning_rate);
    metrics.set("policy/updates", applied as f64);
    metrics.set(
        "policy/skipped_updates",
        (skipped_empty + skipped_non_finite) as f64,
    );
    metrics.set(
        "policy/rows",
        sequences
            .iter()
            .filter(|sequence| sequence.mask.contains(&true))
            .count() as f64,
    );
    Ok(())
}

/// Moves `average` towards `policy`: `average = decay * average + (1 - decay) * policy`, element by element of what is
/// trained. Of a policy on a device what was last fetched is taken. Of adapters this averages both matrices, not their product.
pub fn moving_average(average: &mut Decoder, policy: &Decoder, decay: f64) {
    let _span = tracing::debug_span!("moving_average").entered();
    let (keep, take) = (decay as f32, (1.0 - decay) as f32);
    average.update(|parameters| {
        for (value, new) in parameters.flat_mut().iter_mut().zip(policy.trained().flat()) {
            *value = keep * *value + take * new;
        }
    });
}
