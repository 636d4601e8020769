//! Choosing the next token from logits.
//!
//! Order of the filters: temperature, then top-k, then top-p over what top-k left, as in transformers. Ties go to the
//! lowest id. Not for: random numbers, which the caller draws by key, or for stopping.

use std::cmp::Ordering;

use seed_kernels::head::{greatest, log_prob_of_row, log_probs_of_row};
use seed_kernels::math::exp_in_place;

use crate::error::ModelError;

/// How tokens are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the logits; 0 chooses the most probable token.
    pub temperature: f32,
    /// Keeps the smallest set of most probable tokens whose mass reaches this share; 1 keeps all.
    pub top_p: f32,
    /// Keeps this many most probable tokens; 0 keeps all.
    pub top_k: usize,
}

impl Sampling {
    /// Always the most probable token.
    pub const GREEDY: Self = Self::at_temperature(0.0);

    /// From the full distribution at this temperature.
    pub const fn at_temperature(temperature: f32) -> Self {
        Self {
            temperature,
            top_p: 1.0,
            top_k: 0,
        }
    }

    /// The temperature at which log-probs are recorded and must be scored to get the same bits: that of the sampling
    /// and 1 for greedy decoding.
    pub fn scoring_temperature(&self) -> f32 {
        if self.temperature == 0.0 {
            1.0
        } else {
            self.temperature
        }
    }

    pub(crate) fn validate(&self, owner: &dyn Fn() -> String) -> Result<(), ModelError> {
        let wrong = |setting, value: f32, allowed| {
            Err(ModelError::Setting {
                owner: owner(),
                setting,
                value: value.to_string(),
                allowed,
            })
        };
        if !(self.temperature.is_finite() && self.temperature >= 0.0) {
            return wrong("temperature", self.temperature, "a number of at least 0");
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return wrong("top_p", self.top_p, "above 0 and at most 1");
        }
        Ok(())
    }
}

impl Default for Sampling {
    fn default() -> Self {
        Self::at_temperature(1.0)
    }
}

/// A chosen token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sampled {
    pub(crate) token: u32,
    /// Under the full distribution at [`Sampling::scoring_temperature`].
    pub(crate) log_prob: f32,
    /// Log of the mass which top-k and top-p kept; 0 where they kept all.
    pub(crate) kept_log_mass: f32,
}

/// A token that could have been chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alternative {
    /// Its id.
    pub token: u32,
    /// Its log-prob under the full distribution at [`Sampling::scoring_temperature`].
    pub log_prob: f32,
}

/// The `count` most probable tokens, the most probable first.
pub(crate) fn alternatives(logits: &[f32], count: usize, temperature: f32) -> Vec<Alternative> {
    let tokens: Vec<u32> = ranked(logits, count)
        .into_iter()
        .map(|token| token as u32)
        .collect();
    let log_probs = log_probs_of_row(logits, &tokens, temperature);
    tokens
        .into_iter()
        .zip(log_probs)
        .map(|(token, log_prob)| Alternative { token, log_prob })
        .collect()
}

/// The `count` most probable tokens, or all where there are fewer, the most probable first.
fn ranked(logits: &[f32], count: usize) -> Vec<usize> {
    if count == 0 {
        return Vec::new();
    }
    let order = |left: &usize, right: &usize| most_probable_first(logits, *left, *right);
    let mut tokens: Vec<usize> = (0..logits.len()).collect();
    if count < tokens.len() {
        tokens.select_nth_unstable_by(count - 1, order);
        tokens.truncate(count);
    }
    tokens.sort_unstable_by(order);
    tokens
}

/// Decreasing logits, ties by the lower id.
fn most_probable_first(logits: &[f32], left: usize, right: usize) -> Ordering {
    logits[right]
        .partial_cmp(&logits[left])
        .unwrap_or(Ordering::Equal)
        .then(left.cmp(&right))
}

/// Chooses a token by the number `uniform` in `[0, 1)`. All logits must be finite, and there must be at least one.
pub(crate) fn sample(logits: &[f32], sampling: &Sampling, uniform: f64) -> Sampled {
    let (token, kept) = if sampling.temperature == 0.0 {
        (most_probable(logits), 1.0)
    } else {
        draw(logits, sampling, uniform)
    };
    Sampled {
        token,
        log_prob: log_prob_of_row(logits, token, sampling.scoring_temperature()).log_prob,
        kept_log_mass: if kept < 1.0 { libm::log(kept) as f32 } else { 0.0 },
    }
}

/// The lowest id with the largest logit.
fn most_probable(logits: &[f32]) -> u32 {
    let largest = greatest(logits);
    // Found, since no logit is NaN and there is one at least.
    let token = logits.iter().position(|&logit| logit == largest);
    token.unwrap_or(0) as u32
}

/// A token and the share of the mass which the filters kept.
fn draw(logits: &[f32], sampling: &Sampling, uniform: f64) -> (u32, f64) {
    let largest = greatest(logits);
    let mut weights: Vec<f32> = logits
        .iter()
        .map(|logit| (logit - largest) / sampling.temperature)
        .collect();
    exp_in_place(&mut weights);
    let weight = |token: usize| f64::from(weights[token]);
    let blocks: Vec<f64> = weights.chunks(BLOCK).map(block_sum).collect();
    let total: f64 = blocks.iter().sum();
    let all = sampling.top_k == 0 || sampling.top_k >= logits.len();
    if all && sampling.top_p >= 1.0 {
        return (pick_from_blocks(&weights, &blocks, uniform * total), 1.0);
    }
    let mut tokens = ranked(logits, if all { logits.len() } else { sampling.top_k });
    let mut kept: f64 = tokens.iter().copied().map(weight).sum();
    if sampling.top_p < 1.0 {
        let enough = kept * f64::from(sampling.top_p);
        kept = 0.0;
        let mut count = 0;
        for &token in &tokens {
            kept += weight(token);
            count += 1;
            if kept >= enough {
                break;
            }
        }
        tokens.truncate(count);
    }
    let chosen = pick(tokens.into_iter(), weight, 0.0, uniform * kept);
    (chosen, kept / total)
}

/// Tokens whose weights are summed as one: a running sum of a whole vocabulary is one long chain of additions.
const BLOCK: usize = 256;

/// The sum of a block's weights, in one order whatever the processor.
fn block_sum(weights: &[f32]) -> f64 {
    const CHAINS: usize = 8;
    let (lines, rest) = weights.as_chunks::<CHAINS>();
    let mut sums = [0.0; CHAINS];
    for line in lines {
        for (sum, &weight) in sums.iter_mut().zip(line) {
            *sum += f64::from(weight);
        }
    }
    let rest: f64 = rest.iter().copied().map(f64::from).sum();
    sums.into_iter().sum::<f64>() + rest
}

/// As [`pick`] from all tokens, which are in blocks of the sums `blocks`: whole blocks are passed over first.
fn pick_from_blocks(weights: &[f32], blocks: &[f64], target: f64) -> u32 {
    let mut before = 0.0;
    let mut chosen = (0, 0.0);
    for (block, &sum) in blocks.iter().enumerate() {
        if sum > 0.0 {
            chosen = (block, before);
            before += sum;
            if before > target {
                break;
            }
        }
    }
    let (block, before) = chosen;
    let tokens = block * BLOCK..weights.len().min((block + 1) * BLOCK);
    pick(tokens, |token| f64::from(weights[token]), before, target)
}

/// The first token at which the running sum of weights, from `before`, exceeds `target`; the last with any weight where
/// rounding leaves the sum short of it.
fn pick(tokens: impl Iterator<Item = usize>, weight: impl Fn(usize) -> f64, before: f64, target: f64) -> u32 {
    let mut sum = before;
    let mut chosen = 0;
    for token in tokens {
        let weight = weight(token);
        if weight > 0.0 {
            chosen = token;
            sum += weight;
            if sum > target {
                break;
            }
        }
    }
    chosen as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Probabilities 0.1, 0.4, 0.1, 0.4 up to rounding.
    fn logits() -> Vec<f32> {
        [0.1f32, 0.4, 0.1, 0.4].iter().map(|p| p.ln()).collect()
    }

    fn token(sampling: Sampling, uniform: f64) -> u32 {
        sample(&logits(), &sampling, uniform).token
    }

    #[test]
    fn greedy_takes_the_lowest_of_tied_ids_and_scores_at_one() {
        let sampled = sample(&logits(), &Sampling::GREEDY, 0.99);
        assert_eq!(sampled.token, 1);
        assert!((sampled.log_prob - 0.4f32.ln()).abs() < 1e-6);
        assert_eq!(sampled.kept_log_mass, 0.0);
    }

    #[test]
    fn the_full_distribution_is_inverted_in_order_of_ids() {
        let at = |uniform| token(Sampling::default(), uniform);
        assert_eq!(
            [0.0, 0.09, 0.11, 0.49, 0.51, 0.59, 0.61, 0.999_999].map(at),
            [0, 0, 1, 1, 2, 2, 3, 3]
        );
    }

    #[test]
    fn temperature_sharpens() {
        // At temperature 0.5 the probabilities are 1/34, 16/34, 1/34, 16/34.
        let sampling = Sampling::at_temperature(0.5);
        assert_eq!(
            [0.02, 0.04, 0.49, 0.51, 0.54].map(|u| token(sampling, u)),
            [0, 1, 1, 2, 3]
        );
        let sampled = sample(&logits(), &sampling, 0.04);
        assert!((sampled.log_prob - (16.0f32 / 34.0).ln()).abs() < 1e-6);
    }

    #[test]
    fn top_k_keeps_the_lowest_of_tied_ids_and_tells_the_mass() {
        let sampling = Sampling {
            top_k: 3,
            ..Sampling::default()
        };
        // Kept in order 1, 3, 0 with 4/9, 4/9, 1/9.
        assert_eq!(
            [0.44, 0.45, 0.88, 0.89, 0.999].map(|u| token(sampling, u)),
            [1, 3, 3, 0, 0]
        );
        let sampled = sample(&logits(), &sampling, 0.999);
        assert!((sampled.kept_log_mass - 0.9f32.ln()).abs() < 1e-6);
        assert!(
            (sampled.log_prob - 0.1f32.ln()).abs() < 1e-6,
            "log-probs are not renormalised"
        );
    }

    #[test]
    fn top_p_keeps_the_token_that_crosses_and_works_on_what_top_k_left() {
        let sampling = Sampling {
            top_p: 0.5,
            ..Sampling::default()
        };
        assert_eq!([0.49, 0.51, 0.999].map(|u| token(sampling, u)), [1, 3, 3]);
        let both = Sampling {
            top_p: 0.45,
            top_k: 2,
            ..Sampling::default()
        };
        // Of the two that top-k leaves, the first alone has half the mass.
        assert_eq!([0.0, 0.999].map(|u| token(both, u)), [1, 1]);
    }

    #[test]
    fn alternatives_are_the_most_probable_with_their_log_probs() {
        let found = alternatives(&logits(), 3, 1.0);
        let tokens: Vec<u32> = found.iter().map(|found| found.token).collect();
        assert_eq!(tokens, [1, 3, 0], "the lower id of a tie comes first");
        for (found, share) in found.iter().zip([0.4f32, 0.4, 0.1]) {
            assert!((found.log_prob - share.ln()).abs() < 1e-6, "{found:?}");
        }
        assert_eq!(alternatives(&logits(), 9, 1.0).len(), 4);
        assert_eq!(alternatives(&logits(), 0, 1.0), []);
    }

    #[test]
    fn settings_out_of_range_are_refused_by_name() {
        let check = |sampling: Sampling| sampling.validate(&|| "request `3`".to_owned());
        assert!(check(Sampling::default()).is_ok());
        let error = check(Sampling::at_temperature(f32::NAN)).unwrap_err().to_string();
        assert_eq!(
            error,
            "request `3`: `temperature` is NaN, it must be a number of at least 0"
        );
        let zero = Sampling {
            top_p: 0.0,
            ..Sampling::default()
        };
        assert!(check(zero).unwrap_err().to_string().contains("`top_p` is 0"));
    }

    #[test]
    fn a_block_without_weight_is_never_chosen() {
        let mut logits = vec![f32::NEG_INFINITY; 3 * BLOCK];
        logits[BLOCK + 7] = 0.0;
        for uniform in [0.0, 0.5, 1.0 - f64::EPSILON] {
            assert_eq!(draw(&logits, &Sampling::default(), uniform).0, BLOCK as u32 + 7);
        }
        // A target that rounding put above the sum: the last token with any weight.
        let mut weights = vec![0.0; 3 * BLOCK];
        (weights[3], weights[BLOCK + 1]) = (0.25, 0.5);
        let blocks: Vec<f64> = weights.chunks(BLOCK).map(block_sum).collect();
        let chosen =
            [0.0, 0.2, 0.25, 0.7, 0.75, 0.8].map(|target| pick_from_blocks(&weights, &blocks, target));
        let (first, second) = (3, BLOCK as u32 + 1);
        assert_eq!(chosen, [first, first, second, second, second, second]);
    }

    proptest! {
        #[test]
        fn blocks_choose_as_one_running_sum(
            logits in prop::collection::vec(-8.0..8.0f32, 1..1200),
            uniform in 0.0..1.0f64,
        ) {
            let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            prop_assert_eq!(Some(most_probable(&logits) as usize), logits.iter().position(|&logit| logit == largest));
            let mut weights: Vec<f32> = logits.iter().map(|logit| logit - largest).collect();
            exp_in_place(&mut weights);
            let total: f64 = weights.iter().copied().map(f64::from).sum();
            let target = uniform * total;
            let chosen = draw(&logits, &Sampling::default(), uniform).0 as usize;
            let below: f64 = weights[..chosen].iter().copied().map(f64::from).sum();
            let rounding = 1e-12 * total;
            prop_assert!(below <= target + rounding, "{below} of {target}");
            prop_assert!(below + f64::from(weights[chosen]) >= target - rounding, "{below} of {target}");
        }
    }
}
