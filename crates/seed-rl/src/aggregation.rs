//! From per-token losses to one number: explicit weights with explicit denominators.
//!
//! Every aggregation mode gives all tokens of a sequence the same weight, so a mode is one weight per sequence,
//! computed from masks alone and before any forward pass. `loss = Σ_r w_r · Σ_t mask_{r,t} · loss_{r,t}`.
//!
//! Not for: deciding which tokens a mask holds.

use serde::{Deserialize, Serialize};

use crate::RlError;

/// How per-token losses become one loss. With `n_r` masked tokens in sequence `r`, `M = Σ n_r`, and `R` sequences
/// that have at least one masked token:
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aggregation {
    /// `w_r = 1 / M`.
    TokenMean,
    /// `w_r = 1 / R`.
    SeqMeanTokenSum,
    /// `w_r = 1 / (R · n_r)`.
    SeqMeanTokenMean,
    /// `w_r = 1 / width`, where `width` is the configured response limit.
    SeqMeanTokenSumNorm {
        /// Tokens a response may have at most.
        width: u32,
    },
}

/// Over which sequences denominators are summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DenominatorScope {
    /// The whole mini-batch (one optimiser step): the result does not depend on any split.
    MiniBatch,
    /// Consecutive micro-batches of `sequences` each, whose means are averaged with equal weight. This is the
    /// released code's behaviour, kept for parity: tokens of micro-batches with few active tokens weigh more.
    MicroBatch {
        /// Sequences per micro-batch.
        sequences: u32,
    },
}

impl DenominatorScope {
    /// Checks the range of the micro-batch size.
    ///
    /// # Errors
    /// [`RlError::InvalidOption`] for micro-batches of no sequences.
    pub fn validate(self) -> Result<(), RlError> {
        match self {
            Self::MicroBatch { sequences: 0 } => Err(RlError::InvalidOption {
                option: "denominator_scope.sequences",
                value: "0".into(),
                rule: "at least 1",
            }),
            Self::MiniBatch | Self::MicroBatch { .. } => Ok(()),
        }
    }
}

impl Aggregation {
    /// Checks the range of the fixed width.
    ///
    /// # Errors
    /// [`RlError::InvalidOption`] for a width of 0.
    pub fn validate(self) -> Result<(), RlError> {
        match self {
            Self::SeqMeanTokenSumNorm { width: 0 } => Err(RlError::InvalidOption {
                option: "aggregation.width",
                value: "0".into(),
                rule: "at least 1",
            }),
            _ => Ok(()),
        }
    }

    /// The weight of every token of each sequence, given the number of masked tokens of each. A sequence without
    /// masked tokens has weight 0 and enters no denominator; so has every sequence of an empty scope.
    pub fn sequence_weights(self, masked_tokens: &[usize], scope: DenominatorScope) -> Vec<f64> {
        let size = match scope {
            DenominatorScope::MiniBatch => masked_tokens.len(),
            DenominatorScope::MicroBatch { sequences } => sequences as usize,
        }
        .max(1);
        let micro_batches = masked_tokens.len().div_ceil(size).max(1) as f64;
        masked_tokens
            .chunks(size)
            .flat_map(|micro| {
                let tokens: usize = micro.iter().sum();
                let active = micro.iter().filter(|&&count| count > 0).count();
                micro.iter().map(move |&count| {
                    if count == 0 {
                        return 0.0;
                    }
                    let denominator = match self {
                        Self::TokenMean => tokens as f64,
                        Self::SeqMeanTokenSum => active as f64,
                        Self::SeqMeanTokenMean => active as f64 * count as f64,
                        Self::SeqMeanTokenSumNorm { width } => f64::from(width.max(1)),
                    };
                    1.0 / (denominator * micro_batches)
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MINI: DenominatorScope = DenominatorScope::MiniBatch;

    #[test]
    fn modes_over_a_mini_batch() {
        let counts = [3, 0, 1];
        assert_eq!(
            Aggregation::TokenMean.sequence_weights(&counts, MINI),
            [0.25, 0.0, 0.25]
        );
        assert_eq!(
            Aggregation::SeqMeanTokenSum.sequence_weights(&counts, MINI),
            [0.5, 0.0, 0.5]
        );
        assert_eq!(
            Aggregation::SeqMeanTokenMean.sequence_weights(&counts, MINI),
            [1.0 / 6.0, 0.0, 0.5]
        );
        let norm = Aggregation::SeqMeanTokenSumNorm { width: 8 };
        assert_eq!(norm.sequence_weights(&counts, MINI), [0.125, 0.0, 0.125]);
    }

    #[test]
    fn micro_batch_means_are_averaged_equally() {
        let scope = DenominatorScope::MicroBatch { sequences: 2 };
        let weights = Aggregation::TokenMean.sequence_weights(&[1, 3, 5], scope);
        assert_eq!(weights, [0.125, 0.125, 0.1]);
        // An empty micro-batch still counts as one of the accumulated ones, as in the reference.
        let weights = Aggregation::TokenMean.sequence_weights(&[0, 0, 2, 2], scope);
        assert_eq!(weights, [0.0, 0.0, 0.125, 0.125]);
    }

    #[test]
    fn nothing_masked_is_exactly_zero() {
        for mode in [
            Aggregation::TokenMean,
            Aggregation::SeqMeanTokenSum,
            Aggregation::SeqMeanTokenMean,
        ] {
            assert_eq!(mode.sequence_weights(&[0, 0], MINI), [0.0, 0.0]);
            assert!(mode.sequence_weights(&[], MINI).is_empty());
        }
    }

    #[test]
    fn zero_sizes_are_refused() {
        assert!(DenominatorScope::MicroBatch { sequences: 0 }.validate().is_err());
        assert!(Aggregation::SeqMeanTokenSumNorm { width: 0 }.validate().is_err());
    }

    proptest! {
        /// Token-mean and the mean of means are convex combinations over all masked tokens.
        #[test]
        fn mean_weights_sum_to_one(counts in prop::collection::vec(0usize..20, 1..12)) {
            prop_assume!(counts.iter().any(|&count| count > 0));
            for mode in [Aggregation::TokenMean, Aggregation::SeqMeanTokenMean] {
                let weights = mode.sequence_weights(&counts, MINI);
                let total: f64 = weights.iter().zip(&counts).map(|(w, &n)| w * n as f64).sum();
                prop_assert!((total - 1.0).abs() < 1e-12);
            }
        }
    }
}
