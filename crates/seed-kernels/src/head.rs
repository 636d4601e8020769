//! Log-probabilities and entropies of tokens under the output head, forward and backward.
//!
//! Logits are made for a block of rows at a time and never for all rows at once. Sampling and scoring go through
//! [`log_prob_of_row`], so a token's log-prob has the same bits in both.
//!
//! Not for: choosing tokens, or losses over log-probs.

use crate::instruction_set::{InstructionSet, dispatched};
use crate::lanes::{LANES, Lanes};
use crate::math::{self, exp_lanes};
use crate::matmul::{PackedMatrix, accumulate_outer, matmul};
use crate::parallel::{self, SharedOutput};
use crate::scratch;

/// The most logits held at once.
const BLOCK_LOGITS: usize = 1 << 22;
/// The most rows whose logits are held at once.
const BLOCK_ROWS: usize = 256;
/// Shifted logits are held above this, where the exponential is zero, so that masked (infinitely low) logits
/// contribute nothing to the entropy instead of NaN.
const LOWEST: f32 = -200.0;

/// What a row of logits says of one token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogProb {
    /// `log softmax(logits / temperature)[token]`.
    pub log_prob: f32,
    /// Entropy of `softmax(logits / temperature)` in nats.
    pub entropy: f32,
}

/// Soft-max statistics of a row.
#[derive(Clone, Copy)]
struct Statistics {
    greatest: f32,
    /// Σ exp((logit - greatest) / temperature).
    sum: f32,
    log_sum: f32,
    entropy: f32,
}

/// Log-prob of `token` and entropy under `softmax(logits / temperature)`.
///
/// # Panics
///
/// Panics when `token` is not under `logits.len()`.
pub fn log_prob_of_row(logits: &[f32], token: u32, temperature: f32) -> LogProb {
    let statistics = statistics(InstructionSet::current(), logits, temperature);
    of_token(logits, token, temperature, statistics)
}

fn of_token(logits: &[f32], token: u32, temperature: f32, statistics: Statistics) -> LogProb {
    let shifted = (logits[token as usize] - statistics.greatest) * (1.0 / temperature);
    LogProb {
        log_prob: shifted - statistics.log_sum,
        entropy: statistics.entropy,
    }
}

#[inline(always)]
fn statistics_body<V: Lanes>(logits: &[f32], temperature: f32) -> Statistics {
    let mut greatest = V::splat(f32::NEG_INFINITY);
    for start in (0..logits.len()).step_by(LANES) {
        greatest = greatest.maximum(V::read(logits, start, f32::NEG_INFINITY));
    }
    let greatest = greatest.greatest();
    let (shift, factor, lowest) = (V::splat(greatest), V::splat(1.0 / temperature), V::splat(LOWEST));
    let (mut sum, mut weighted) = (V::splat(0.0), V::splat(0.0));
    for start in (0..logits.len()).step_by(LANES) {
        let shifted = lowest.maximum(V::read(logits, start, f32::NEG_INFINITY).sub(shift).mul(factor));
        let weight = exp_lanes(shifted);
        sum = sum.add(weight);
        weighted = weight.mul_add(shifted, weighted);
    }
    let sum = sum.sum();
    let log_sum = math::log(f64::from(sum)) as f32;
    Statistics {
        greatest,
        sum,
        log_sum,
        entropy: log_sum - weighted.sum() / sum,
    }
}

dispatched! {
    fn statistics(logits: &[f32], temperature: f32) -> Statistics = statistics_body;
}

/// Rows per block for a vocabulary.
fn block_rows(vocabulary: usize) -> usize {
    (BLOCK_LOGITS / vocabulary.max(1)).clamp(16, BLOCK_ROWS)
}

/// Log-probs of `targets` and entropies, `[rows]` each, under `softmax(hidden · head / temperature)` for `hidden`
/// `[rows, head.depth()]`. Equal to [`log_prob_of_row`] of every row's logits.
///
/// # Panics
///
/// Panics when a slice does not have the stated length or a target is not under `head.columns()`.
pub fn token_log_probs(
    hidden: &[f32],
    rows: usize,
    head: &PackedMatrix,
    targets: &[u32],
    temperature: f32,
    log_probs: &mut [f32],
    entropies: &mut [f32],
) {
    let (dim, vocabulary) = (head.depth(), head.columns());
    let _span = tracing::trace_span!("token_log_probs", rows, dim, vocabulary).entered();
    assert_eq!(hidden.len(), rows * dim, "`hidden` must be [rows, head.depth()]");
    assert_eq!(targets.len(), rows, "`targets` must be [rows]");
    assert_eq!(log_probs.len(), rows, "`log_probs` must be [rows]");
    assert_eq!(entropies.len(), rows, "`entropies` must be [rows]");
    let set = InstructionSet::current();
    let block = block_rows(vocabulary);
    scratch::with(block.min(rows) * vocabulary, |logits| {
        for first in (0..rows).step_by(block) {
            let count = block.min(rows - first);
            let logits = &mut logits[..count * vocabulary];
            matmul(&hidden[first * dim..][..count * dim], count, head, logits, false);
            let logits = &*logits;
            let log_probs = SharedOutput::new(&mut log_probs[first..first + count]);
            let entropies = SharedOutput::new(&mut entropies[first..first + count]);
            parallel::for_each(parallel::threads_for_elements(logits.len()), count, |row| {
                let logits = &logits[row * vocabulary..][..vocabulary];
                let statistics = statistics(set, logits, temperature);
                let result = of_token(logits, targets[first + row], temperature, statistics);
                // SAFETY: each task owns its row's elements.
                unsafe {
                    *log_probs.at(row) = result.log_prob;
                    *entropies.at(row) = result.entropy;
                }
            });
        }
    });
}

/// The backward pass of [`token_log_probs`], given the gradients by every row's log-prob and entropy (`[rows]` each).
/// Logits are computed again. Overwrites `dhidden` `[rows, dim]`; adds to `dhead` `[vocabulary, dim]`, when given, in
/// row order. `head_plain` is the head's weight `[vocabulary, dim]` packed with [`PackedMatrix::from_plain`].
///
/// With p the soft-max, H its entropy and τ the temperature, the gradient by logit j is
/// `(d_log_prob · (1[j = target] - p_j) - d_entropy · p_j · (log p_j + H)) / τ`.
///
/// # Panics
///
/// Panics when a slice does not have the stated length, the two packed matrices do not fit, or a target is not under
/// `head.columns()`.
pub fn token_log_probs_backward(
    hidden: &[f32],
    rows: usize,
    head: &PackedMatrix,
    head_plain: &PackedMatrix,
    targets: &[u32],
    temperature: f32,
    d_log_probs: &[f32],
    d_entropies: &[f32],
    dhidden: &mut [f32],
    mut dhead: Option<&mut [f32]>,
) {
    let (dim, vocabulary) = (head.depth(), head.columns());
    let _span = tracing::trace_span!("token_log_probs_backward", rows, dim, vocabulary).entered();
    assert_eq!(
        (head_plain.depth(), head_plain.columns()),
        (vocabulary, dim),
        "`head_plain` must be [vocabulary, dim] as the right operand"
    );
    assert_eq!(hidden.len(), rows * dim, "`hidden` must be [rows, head.depth()]");
    assert_eq!(
        dhidden.len(),
        rows * dim,
        "`dhidden` must be [rows, head.depth()]"
    );
    assert_eq!(targets.len(), rows, "`targets` must be [rows]");
    assert_eq!(d_log_probs.len(), rows, "`d_log_probs` must be [rows]");
    assert_eq!(d_entropies.len(), rows, "`d_entropies` must be [rows]");
    let set = InstructionSet::current();
    let block = block_rows(vocabulary);
    scratch::with(block.min(rows) * vocabulary, |logits| {
        for first in (0..rows).step_by(block) {
            let count = block.min(rows - first);
            let logits = &mut logits[..count * vocabulary];
            let hidden = &hidden[first * dim..][..count * dim];
            matmul(hidden, count, head, logits, false);
            let shared = SharedOutput::new(logits);
            parallel::for_each(parallel::threads_for_elements(count * vocabulary), count, |row| {
                // SAFETY: each task owns its row's logits.
                let logits = unsafe { shared.slice(row * vocabulary, vocabulary) };
                let row = first + row;
                logit_gradient(
                    set,
                    logits,
                    targets[row],
                    temperature,
                    d_log_probs[row],
                    d_entropies[row],
                );
            });
            matmul(
                logits,
                count,
                head_plain,
                &mut dhidden[first * dim..][..count * dim],
                false,
            );
            if let Some(dhead) = dhead.as_deref_mut() {
                accumulate_outer(logits, hidden, count, vocabulary, dim, dhead);
            }
        }
    });
}

/// Replaces a row of logits by the gradient by them.
#[inline(always)]
fn logit_gradient_body<V: Lanes>(
    logits: &mut [f32],
    target: u32,
    temperature: f32,
    d_log_prob: f32,
    d_entropy: f32,
) {
    let Statistics {
        greatest,
        sum,
        log_sum,
        entropy,
    } = statistics_body::<V>(logits, temperature);
    let inverse_temperature = 1.0 / temperature;
    let (shift, factor, lowest) = (
        V::splat(greatest),
        V::splat(inverse_temperature),
        V::splat(LOWEST),
    );
    let inverse_sum = V::splat(1.0 / sum);
    // -(d_log_prob + d_entropy · (log p + H)) · p / τ, with log p + H = shifted + (H - log_sum).
    let slope = V::splat(-d_entropy);
    let offset = V::splat(-d_entropy * (entropy - log_sum) - d_log_prob);
    for start in (0..logits.len()).step_by(LANES) {
        let shifted = lowest.maximum(V::read(logits, start, f32::NEG_INFINITY).sub(shift).mul(factor));
        let probability = exp_lanes(shifted).mul(inverse_sum);
        shifted
            .mul_add(slope, offset)
            .mul(probability)
            .mul(factor)
            .write(logits, start);
    }
    logits[target as usize] += d_log_prob * inverse_temperature;
}

dispatched! {
    fn logit_gradient(
        logits: &mut [f32],
        target: u32,
        temperature: f32,
        d_log_prob: f32,
        d_entropy: f32,
    ) = logit_gradient_body;
}
