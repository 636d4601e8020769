//! The clipped policy loss of PPO with dual clipping, token by token.
//!
//! ```text
//! ρ  = exp(ℓ_θ − ℓ_old)
//! c1 = max(−A·ρ, −A·clip(ρ, 1 − ε_low, 1 + ε_high))
//! loss = c1                     A ≥ 0
//!        min(c1, −A·c)          A < 0     (dual clip)
//! ```
//!
//! The complete minimised loss is `c_pg·PG − c_H·entropy + c_kl·k3`, each a token aggregate; algorithms add to it.
//!
//! Not for: aggregation over tokens ([`crate::aggregation`]) or the terms particular algorithms add.

use serde::{Deserialize, Serialize};

use crate::{Aggregation, DenominatorScope, RlError};

/// Bound of the log-ratio: past it the ratio is far outside any clip range, and an infinite ratio times a zero
/// advantage would be NaN.
const LOG_RATIO_BOUND: f64 = 20.0;

/// Loss of one token and its derivative by the student's log-prob.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct TokenTerm {
    /// The token's loss before aggregation.
    pub loss: f64,
    /// `d loss / d ℓ_θ`.
    pub gradient: f64,
}

/// Options of the policy loss shared by all algorithms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyOptions {
    /// `ε_low`: the ratio is clipped below `1 − ε_low`.
    pub clip_low: f64,
    /// `ε_high`: the ratio is clipped above `1 + ε_high`.
    pub clip_high: f64,
    /// `c`: the dual clip's bound on the ratio for negative advantages.
    pub dual_clip: f64,
    /// Weight of the clipped policy loss; 0 leaves only the other terms.
    pub policy_coefficient: f64,
    /// Weight of the k3 divergence to the reference; 0 needs no reference scores.
    pub kl_coefficient: f64,
    /// Weight of the entropy bonus.
    pub entropy_coefficient: f64,
    /// How token losses become one number.
    pub aggregation: Aggregation,
    /// Over which sequences denominators run.
    pub denominator_scope: DenominatorScope,
}

impl Default for PolicyOptions {
    /// The paper's ALFWorld run, with mini-batch denominators.
    fn default() -> Self {
        Self {
            clip_low: 0.2,
            clip_high: 0.2,
            dual_clip: 3.0,
            policy_coefficient: 1.0,
            kl_coefficient: 0.01,
            entropy_coefficient: 0.001,
            aggregation: Aggregation::TokenMean,
            denominator_scope: DenominatorScope::MiniBatch,
        }
    }
}

impl PolicyOptions {
    /// Checks the options' ranges.
    ///
    /// # Errors
    /// [`RlError::InvalidOption`] naming the option.
    pub fn validate(&self) -> Result<(), RlError> {
        let rules: [(&'static str, f64, &'static str, bool); 6] = [
            (
                "clip_low",
                self.clip_low,
                "in (0, 1)",
                self.clip_low > 0.0 && self.clip_low < 1.0,
            ),
            ("clip_high", self.clip_high, "positive", self.clip_high > 0.0),
            (
                "dual_clip",
                self.dual_clip,
                "greater than `1 + clip_high`",
                self.dual_clip > 1.0 + self.clip_high,
            ),
            (
                "policy_coefficient",
                self.policy_coefficient,
                "not negative",
                self.policy_coefficient >= 0.0,
            ),
            (
                "kl_coefficient",
                self.kl_coefficient,
                "not negative",
                self.kl_coefficient >= 0.0,
            ),
            ("entropy_coefficient", self.entropy_coefficient, "finite", true),
        ];
        for (option, value, rule, holds) in rules {
            // An infinite dual clip is how there is none.
            let bounded = value.is_finite() || (option == "dual_clip" && value == f64::INFINITY);
            if !holds || !bounded {
                return Err(RlError::InvalidOption {
                    option,
                    value: value.to_string(),
                    rule,
                });
            }
        }
        self.aggregation.validate()?;
        self.denominator_scope.validate()
    }
}

/// One token's clipped policy loss, with what the clip did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClippedToken {
    /// Loss and derivative.
    pub term: TokenTerm,
    /// `ρ`, the probability ratio to the old policy.
    pub ratio: f64,
    /// `ℓ_θ − ℓ_old` in nats (unclamped).
    pub log_ratio: f64,
    /// The upper clip holds (`A > 0`, `ρ > 1 + ε_high`).
    pub clipped_high: bool,
    /// The lower clip holds (`A < 0`, `ρ < 1 − ε_low`).
    pub clipped_low: bool,
    /// The dual clip holds (`A < 0`, `ρ > c`).
    pub clipped_dual: bool,
}

/// The clipped loss of one token under `advantage`.
pub fn clipped_token(student: f64, old: f64, advantage: f64, options: &PolicyOptions) -> ClippedToken {
    let log_ratio = student - old;
    let ratio = libm::exp(log_ratio.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND));
    let clipped_high = advantage > 0.0 && ratio > 1.0 + options.clip_high;
    let clipped_low = advantage < 0.0 && ratio < 1.0 - options.clip_low;
    let clipped_dual = advantage < 0.0 && ratio > options.dual_clip;
    let bounded = ratio.clamp(1.0 - options.clip_low, 1.0 + options.clip_high);
    let term = if clipped_dual {
        TokenTerm {
            loss: -advantage * options.dual_clip,
            gradient: 0.0,
        }
    } else if clipped_high || clipped_low {
        TokenTerm {
            loss: -advantage * bounded,
            gradient: 0.0,
        }
    } else {
        TokenTerm {
            loss: -advantage * ratio,
            gradient: -advantage * ratio,
        }
    };
    ClippedToken {
        term,
        ratio,
        log_ratio,
        clipped_high,
        clipped_low,
        clipped_dual,
    }
}

/// Central difference of `function` at `point`, the reference of every analytic gradient in this crate's tests.
#[cfg(test)]
pub(crate) fn finite_difference(point: f64, function: impl Fn(f64) -> f64) -> f64 {
    const STEP: f64 = 1e-6;
    (function(point + STEP) - function(point - STEP)) / (2.0 * STEP)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn conformance_values() {
        let cases = [
            (-1.0, -1.0, 1.0, 1.0, -1.0),
            (-0.5, -1.0, 1.0, 1.648_721_3, -1.2),
            (-1.5, -1.0, 1.0, 0.606_530_7, -0.606_530_7),
            (-0.5, -1.0, -1.0, 1.648_721_3, 1.648_721_3),
            (-1.5, -1.0, -1.0, 0.606_530_7, 0.8),
            (0.5, -1.0, -1.0, 4.481_689_1, 3.0),
        ];
        for (student, old, advantage, ratio, loss) in cases {
            let token = clipped_token(student, old, advantage, &PolicyOptions::default());
            assert!((token.ratio - ratio).abs() < 1e-6, "{token:?}");
            assert!((token.term.loss - loss).abs() < 1e-6, "{token:?}");
        }
    }

    #[test]
    fn clips_are_told_apart() {
        let flags = |student, advantage| {
            let token = clipped_token(student, -1.0, advantage, &PolicyOptions::default());
            (token.clipped_low, token.clipped_high, token.clipped_dual)
        };
        assert_eq!(flags(-0.5, 1.0), (false, true, false));
        assert_eq!(flags(-1.5, -1.0), (true, false, false));
        assert_eq!(flags(0.5, -1.0), (false, false, true));
        assert_eq!(
            flags(-1.5, 1.0),
            (false, false, false),
            "a low ratio is free to rise again"
        );
    }

    #[test]
    fn extreme_ratios_stay_finite() {
        for advantage in [-1.0, 0.0, 1.0] {
            for student in [-1e4, 0.0] {
                let token = clipped_token(student, -1e4 - student, advantage, &PolicyOptions::default());
                assert!(
                    token.term.loss.is_finite() && token.term.gradient.is_finite(),
                    "{token:?}"
                );
            }
        }
        assert_eq!(
            clipped_token(0.0, -900.0, 0.0, &PolicyOptions::default())
                .term
                .gradient,
            0.0
        );
    }

    #[test]
    fn options_out_of_range_are_named() {
        let error = |change: fn(&mut PolicyOptions)| {
            let mut options = PolicyOptions::default();
            change(&mut options);
            options.validate().unwrap_err().to_string()
        };
        assert!(error(|o| o.clip_low = 1.0).contains("`clip_low` is `1`"));
        assert!(error(|o| o.dual_clip = 1.1).contains("`dual_clip`"));
        assert!(error(|o| o.kl_coefficient = f64::NAN).contains("`kl_coefficient` is `NaN`"));
        assert!(PolicyOptions::default().validate().is_ok());
    }

    proptest! {
        /// The written-out formula agrees with the case analysis, and the gradient with its slope away from kinks.
        #[test]
        fn loss_and_gradient_match_the_formula(
            student in -4.0..0.0f64,
            old in -4.0..0.0f64,
            advantage in -3.0..3.0f64,
            clip_low in 0.05..0.5f64,
            clip_high in 0.05..0.5f64,
        ) {
            let options = PolicyOptions { clip_low, clip_high, ..PolicyOptions::default() };
            let formula = |student: f64| {
                let ratio = (student - old).exp();
                let clipped = ratio.clamp(1.0 - clip_low, 1.0 + clip_high);
                let first = (-advantage * ratio).max(-advantage * clipped);
                if advantage < 0.0 { first.min(-advantage * options.dual_clip) } else { first }
            };
            let token = clipped_token(student, old, advantage, &options);
            prop_assert!((token.term.loss - formula(student)).abs() < 1e-12);
            let kinks = [1.0 - clip_low, 1.0 + clip_high, options.dual_clip];
            prop_assume!(kinks.iter().all(|kink| (token.ratio - kink).abs() > 1e-3));
            let slope = finite_difference(student, formula);
            prop_assert!((token.term.gradient - slope).abs() < 1e-5 * (1.0 + slope.abs()));
        }
    }
}
