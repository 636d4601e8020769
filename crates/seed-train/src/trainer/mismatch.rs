//! On a device, where scoring gives other bits than generation: how far the two are apart.
//!
//! There a pass over the whole batch takes the place of the recorded log-probs, so that the ratio of an update begins at
//! one, and what was recorded only measures how well the device computes.
//!
//! Not for: the own kernels, which must give the recorded bits again (`self_check`).

use seed_model::Decoder;
use seed_run::Metrics;
use thiserror::Error;

use super::batch::{self, TrainedSequence};
use crate::TrainError;

/// Generation and scoring on a device are further apart than the configuration allows.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[error(
    "iteration {iteration}: the log-probs that the rollout recorded are off by {mean:.6} nats a token from those that scoring \
     gives on the device, {maximum:.6} at most, over {tokens} tokens; `rollout.device_mismatch` allows a mean of {allowed}. \
     Nothing was updated. With `model.precision = \"bf16\"` the two are further apart than in f32; raise the bound only where \
     the mean is stable over iterations"
)]
pub struct DeviceMismatch {
    /// The iteration whose rollout it was, from 1.
    pub iteration: u64,
    /// Mean difference, without signs, in nats.
    pub mean: f64,
    /// Largest difference of one token, in nats.
    pub maximum: f64,
    /// Tokens compared.
    pub tokens: usize,
    /// What the configuration allows.
    pub allowed: f64,
}

/// Puts the scores of all rows in place of the recorded log-probs. How far the two are apart goes to `metrics`.
///
/// # Errors
/// [`DeviceMismatch`] where the mean is above `allowed`; otherwise as [`Decoder::score`].
pub(super) fn score_old(
    decoder: &Decoder,
    sequences: &mut [TrainedSequence],
    temperature: f32,
    allowed: f64,
    iteration: u64,
    metrics: &mut Metrics,
) -> Result<(), TrainError> {
    let (mut sum, mut maximum, mut tokens) = (0.0, 0.0_f64, 0);
    batch::replace_old(decoder, sequences, temperature, &mut |recorded, scores| {
        for (recorded, scored) in recorded.iter().zip(scores) {
            let difference = f64::from((recorded - scored).abs());
            sum += difference;
            maximum = maximum.max(difference);
        }
        tokens += scores.len();
    })?;
    let mean = sum / tokens.max(1) as f64;
    metrics.set("self_check/rows", sequences.len() as f64);
    metrics.set("self_check/tokens", tokens as f64);
    metrics.set("self_check/mismatch_mean", mean);
    metrics.set("self_check/mismatch_maximum", maximum);
    // A mean that is not a number is refused too.
    if mean <= allowed {
        return Ok(());
    }
    Err(DeviceMismatch {
        iteration,
        mean,
        maximum,
        tokens,
        allowed,
    }
    .into())
}
