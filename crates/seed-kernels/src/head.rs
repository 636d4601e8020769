//! Log-probabilities and entropies of tokens under the output head, forward and backward.
//!
//! Logits are made for a block of rows at a time, and kept for a backward pass only where they are few. Sampling and
//! scoring go through [`log_prob_of_row`], so a token's log-prob has the same bits in both.
//!
//! Not for: choosing tokens, or losses over log-probs.

use crate::instruction_set::{InstructionSet, dispatched};
use crate::lanes::{LANES, Lanes};
use crate::math::{self, exp_lanes};
use crate::matmul::{PackedMatrix, accumulate_outer, matmul, matmul_in_chains};
use crate::parallel::{self, SharedOutput};
use crate::scratch;

/// The most logits held at once.
const BLOCK_LOGITS: usize = 1 << 22;
/// The most rows whose logits are held at once.
const BLOCK_ROWS: usize = 256;
/// The most logits kept for a backward pass, 128 MiB: more are made again.
pub const KEPT_LOGITS: usize = 1 << 25;
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

impl Statistics {
    const NONE: Self = Self {
        greatest: 0.0,
        sum: 0.0,
        log_sum: 0.0,
        entropy: 0.0,
    };
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

/// The log-probs of some tokens of one row, each with the bits of [`log_prob_of_row`].
///
/// # Panics
///
/// Panics when a token is not under `logits.len()`.
pub fn log_probs_of_row(logits: &[f32], tokens: &[u32], temperature: f32) -> Vec<f32> {
    let statistics = statistics(InstructionSet::current(), logits, temperature);
    tokens
        .iter()
        .map(|&token| of_token(logits, token, temperature, statistics).log_prob)
        .collect()
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
    let greatest = greatest_body::<V>(logits);
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

/// The greatest of `values`, none of which may be NaN; negative infinity of none.
pub fn greatest(values: &[f32]) -> f32 {
    greatest_on(InstructionSet::current(), values)
}

#[inline(always)]
fn greatest_body<V: Lanes>(values: &[f32]) -> f32 {
    let mut greatest = V::splat(f32::NEG_INFINITY);
    for start in (0..values.len()).step_by(LANES) {
        greatest = greatest.maximum(V::read(values, start, f32::NEG_INFINITY));
    }
    greatest.greatest()
}

dispatched! {
    fn greatest_on(values: &[f32]) -> f32 = greatest_body;
}

/// Rows per block for a vocabulary.
fn block_rows(vocabulary: usize) -> usize {
    (BLOCK_LOGITS / vocabulary.max(1)).clamp(16, BLOCK_ROWS)
}

/// What [`token_log_probs`] leaves for [`token_log_probs_backward`]: every row's soft-max statistics, and the logits
/// where they are few enough to be kept. Its memory is used again.
pub struct HeadPass {
    most_logits: usize,
    statistics: Vec<Statistics>,
    logits: Vec<f32>,
}

impl Default for HeadPass {
    fn default() -> Self {
        Self::keeping(KEPT_LOGITS)
    }
}

impl HeadPass {
    /// Keeps logits where there are at most `most_logits`; results do not depend on it.
    pub fn keeping(most_logits: usize) -> Self {
        Self {
            most_logits,
            statistics: Vec::new(),
            logits: Vec::new(),
        }
    }

    /// Makes room for the logits of so many rows, or says that they are to be made again.
    fn begin(&mut self, rows: usize, vocabulary: usize) -> (&mut Vec<Statistics>, Option<&mut [f32]>) {
        let Self {
            most_logits,
            statistics,
            logits,
        } = self;
        statistics.clear();
        let count = rows * vocabulary;
        if count > *most_logits {
            *logits = Vec::new();
            return (statistics, None);
        }
        logits.reserve_exact(count.saturating_sub(logits.len()));
        logits.resize(count, 0.0);
        (statistics, Some(logits))
    }
}

/// Log-probs of `targets` and entropies, `[rows]` each, under `softmax(hidden · head / temperature)` for `hidden`
/// `[rows, head.depth()]`. Equal to [`log_prob_of_row`] of every row's logits. With `pass`, what the backward pass needs
/// is left there.
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
    pass: Option<&mut HeadPass>,
) {
    let (dim, vocabulary) = (head.depth(), head.columns());
    let _span = tracing::trace_span!("token_log_probs", rows, dim, vocabulary).entered();
    assert_eq!(hidden.len(), rows * dim, "`hidden` must be [rows, head.depth()]");
    assert_eq!(targets.len(), rows, "`targets` must be [rows]");
    assert_eq!(log_probs.len(), rows, "`log_probs` must be [rows]");
    assert_eq!(entropies.len(), rows, "`entropies` must be [rows]");
    let block = block_rows(vocabulary);
    let (kept_statistics, kept_logits) = match pass {
        Some(pass) => {
            let (statistics, logits) = pass.begin(rows, vocabulary);
            (Some(statistics), logits)
        }
        None => (None, None),
    };
    let working = if kept_logits.is_some() { 0 } else { block.min(rows) };
    scratch::with(working * vocabulary, |working| {
        let mut kept_statistics = kept_statistics;
        let mut kept_logits = kept_logits;
        let mut results = vec![(Statistics::NONE, 0.0); block.min(rows)];
        for first in (0..rows).step_by(block) {
            let count = block.min(rows - first);
            let logits = match &mut kept_logits {
                Some(kept) => &mut kept[first * vocabulary..][..count * vocabulary],
                None => &mut working[..count * vocabulary],
            };
            matmul(&hidden[first * dim..][..count * dim], count, head, logits, false);
            let results = &mut results[..count];
            row_statistics(logits, vocabulary, &targets[first..], temperature, results);
            for (offset, (statistics, log_prob)) in results.iter().enumerate() {
                log_probs[first + offset] = *log_prob;
                entropies[first + offset] = statistics.entropy;
            }
            if let Some(kept) = &mut kept_statistics {
                kept.extend(results.iter().map(|(statistics, _)| *statistics));
            }
        }
    });
}

/// Statistics of each row of `logits` and the log-prob of its target.
fn row_statistics(
    logits: &[f32],
    vocabulary: usize,
    targets: &[u32],
    temperature: f32,
    results: &mut [(Statistics, f32)],
) {
    let set = InstructionSet::current();
    let threads = parallel::threads_for_elements(logits.len());
    parallel::for_each_mut_on(threads, results, |row, result| {
        let logits = &logits[row * vocabulary..][..vocabulary];
        let statistics = statistics(set, logits, temperature);
        let token = of_token(logits, targets[row], temperature, statistics);
        *result = (statistics, token.log_prob);
    });
}

/// The backward pass of [`token_log_probs`], given the gradients by every row's log-prob and entropy (`[rows]` each) and
/// what it left in `pass`, whose logits are overwritten. Overwrites `dhidden` `[rows, dim]`; adds to `dhead`
/// `[vocabulary, dim]`, when given, in row order. `head_plain` is the head's weight `[vocabulary, dim]` packed with
/// [`PackedMatrix::from_plain`].
///
/// With p the soft-max, H its entropy and τ the temperature, the gradient by logit j is
/// `(d_log_prob · (1[j = target] - p_j) - d_entropy · p_j · (log p_j + H)) / τ`.
///
/// # Panics
///
/// Panics when a slice does not have the stated length, the two packed matrices do not fit, `pass` is not of these rows,
/// or a target is not under `head.columns()`.
pub fn token_log_probs_backward(
    hidden: &[f32],
    rows: usize,
    head: &PackedMatrix,
    head_plain: &PackedMatrix,
    targets: &[u32],
    temperature: f32,
    d_log_probs: &[f32],
    d_entropies: &[f32],
    pass: &mut HeadPass,
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
    assert_eq!(pass.statistics.len(), rows, "`pass` must be of these rows");
    let HeadPass {
        statistics, logits, ..
    } = pass;
    // The forward pass left all logits or none.
    let kept = (!logits.is_empty()).then_some(logits);
    // Kept logits are all there already: the outer product then reads and writes `dhead` fewer times.
    let block = if kept.is_some() {
        rows.max(1)
    } else {
        block_rows(vocabulary)
    };
    let working = if kept.is_some() { 0 } else { block.min(rows) };
    scratch::with(working * vocabulary, |working| {
        let mut kept = kept;
        for first in (0..rows).step_by(block) {
            let count = block.min(rows - first);
            let hidden = &hidden[first * dim..][..count * dim];
            let logits = if let Some(kept) = &mut kept {
                &mut kept[..]
            } else {
                let logits = &mut working[..count * vocabulary];
                matmul(hidden, count, head, logits, false);
                logits
            };
            logit_gradients(
                logits,
                vocabulary,
                &targets[first..],
                temperature,
                &d_log_probs[first..],
                &d_entropies[first..],
                &statistics[first..],
            );
            // Nearly all of a derivative by logits lies in a few of them: blocks of the sum would gain no accuracy.
            matmul_in_chains(
                logits,
                count,
                head_plain,
                &mut dhidden[first * dim..][..count * dim],
            );
            if let Some(dhead) = dhead.as_deref_mut() {
                accumulate_outer(logits, hidden, count, vocabulary, dim, dhead);
            }
        }
    });
}

/// Replaces each row of logits by the gradient by them.
fn logit_gradients(
    logits: &mut [f32],
    vocabulary: usize,
    targets: &[u32],
    temperature: f32,
    d_log_probs: &[f32],
    d_entropies: &[f32],
    statistics: &[Statistics],
) {
    let set = InstructionSet::current();
    let count = logits.len() / vocabulary.max(1);
    let threads = parallel::threads_for_elements(logits.len());
    let shared = SharedOutput::new(logits);
    parallel::for_each(threads, count, |row| {
        // SAFETY: each task owns its row's logits.
        let logits = unsafe { shared.slice(row * vocabulary, vocabulary) };
        logit_gradient(
            set,
            logits,
            targets[row],
            temperature,
            d_log_probs[row],
            d_entropies[row],
            statistics[row],
        );
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
    statistics: Statistics,
) {
    let Statistics {
        greatest,
        sum,
        log_sum,
        entropy,
    } = statistics;
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
        statistics: Statistics,
    ) = logit_gradient_body;
}
