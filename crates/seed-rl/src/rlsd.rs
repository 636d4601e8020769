//! RLSD: the teacher changes how much a token counts, never in which direction.
//!
//! ```text
//! A_t = A·[(1 − λ) + λ·clip(exp(sign(A)·(ℓ_skill − ℓ_old)), 1 − ε, 1 + ε)]        λ 0.5 → 0, ε = 0.2
//! ```
//!
//! With action tokens only it is the advantage of [`crate::serl`]. Not for: a loss of its own; all of it passes through the
//! policy clip.

use serde::{Deserialize, Serialize};

use crate::algorithm::{Algorithm, Guidance};
use crate::schedule::{CoefficientSchedule, Decay};
use crate::seed::TokenSelection;
use crate::teacher::{Coverage, Reshape, initial_gap};
use crate::{RlError, Sequence};

/// Bound of the log-ratio between teacher and old policy.
const LOG_RATIO_BOUND: f64 = 20.0;

/// Options of [`Rlsd`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RlsdOptions {
    /// `λ` over updates.
    pub coefficient: CoefficientSchedule,
    /// `ε`: a token's advantage changes by at most `λ·ε` of itself.
    pub clip: f64,
    /// Which tokens are reweighted.
    pub tokens: TokenSelection,
    /// Leave out sequences whose skill context was truncated.
    pub truncation_guard: bool,
}

impl Default for RlsdOptions {
    /// The published baseline: λ from 0.5 to 0 over 100 updates, clip 0.2.
    fn default() -> Self {
        Self {
            coefficient: CoefficientSchedule {
                decay: Decay::Linear { updates: 100 },
                ..CoefficientSchedule::constant(0.5)
            },
            clip: 0.2,
            tokens: TokenSelection::All,
            truncation_guard: true,
        }
    }
}

/// A token's reweighted advantage; `gap = ℓ_skill − ℓ_old`.
pub fn reweighted_advantage(advantage: f64, gap: f64, coefficient: f64, clip: f64) -> f64 {
    if advantage == 0.0 {
        return 0.0;
    }
    let toward = (advantage.signum() * gap).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND);
    let evidence = libm::exp(toward).clamp(1.0 - clip, 1.0 + clip);
    advantage * ((1.0 - coefficient) + coefficient * evidence)
}

/// GRPO with teacher-reweighted advantages.
#[derive(Clone, Debug)]
pub struct Rlsd {
    options: RlsdOptions,
}

impl Rlsd {
    /// The algorithm with these options.
    ///
    /// # Errors
    /// [`RlError::InvalidOption`] naming the option.
    pub fn new(options: RlsdOptions) -> Result<Self, RlError> {
        options.coefficient.validate()?;
        if options.coefficient.value > 1.0
            || options.clip.is_nan()
            || options.clip <= 0.0
            || options.clip >= 1.0
        {
            return Err(RlError::InvalidOption {
                option: "rlsd",
                value: format!("coefficient {}, clip {}", options.coefficient.value, options.clip),
                rule: "a coefficient in [0, 1] and a clip in (0, 1)",
            });
        }
        Ok(Self { options })
    }
}

impl Algorithm for Rlsd {
    fn name(&self) -> &'static str {
        "rlsd"
    }

    fn guide(&self, batch: &[Sequence<'_>], update: u64) -> Result<Guidance, RlError> {
        let coefficient = self.options.coefficient.at(update);
        let coverage = Coverage {
            tokens: self.options.tokens,
            truncation_guard: self.options.truncation_guard,
        };
        let reshape = |sequence: &Sequence<'_>, token: usize| {
            let advantage = f64::from(sequence.advantages[token]);
            reweighted_advantage(
                advantage,
                initial_gap(sequence, token),
                coefficient,
                self.options.clip,
            )
        };
        let reshape: Option<Reshape<'_>> = if coefficient > 0.0 { Some(&reshape) } else { None };
        Ok(coverage.guide(batch, 0.0, reshape))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::SequenceGuidance;

    #[test]
    fn conformance_values() {
        let cases = [
            (1.0, 0.1, 1.052_585_5),
            (1.0, -0.5, 0.9),
            (-1.0, 0.1, -0.952_418_7),
            (-1.0, -0.5, -1.1),
        ];
        for (advantage, gap, expected) in cases {
            let found = reweighted_advantage(advantage, gap, 0.5, 0.2);
            assert!((found - expected).abs() < 1e-6, "{found} against {expected}");
        }
        assert_eq!(
            reweighted_advantage(0.0, 0.3, 0.5, 0.2),
            0.0,
            "a tied group stays without signal"
        );
    }

    #[test]
    fn only_selected_tokens_with_skill_scores_change() {
        let sequence = Sequence {
            mask: &[true, true],
            advantages: &[1.0, 1.0],
            old: &[-1.0, -1.0],
            skill: Some(&[-0.5, -0.5]),
            spans: &[crate::TokenSpan::Reasoning, crate::TokenSpan::Action],
            ..Sequence::default()
        };
        let bare = Sequence {
            skill: None,
            ..sequence
        };
        let options = RlsdOptions {
            tokens: TokenSelection::Action,
            ..RlsdOptions::default()
        };
        let guidance = Rlsd::new(options).unwrap().guide(&[sequence, bare], 1).unwrap();
        assert_eq!(guidance.sequences[0].advantages, Some(vec![1.0, 1.1]));
        assert_eq!(guidance.sequences[1], SequenceGuidance::default());
        assert_eq!((guidance.report.guided, guidance.report.without_skill), (1, 1));
    }

    #[test]
    fn options_out_of_range_are_refused() {
        let options = RlsdOptions {
            clip: 1.5,
            ..RlsdOptions::default()
        };
        assert!(Rlsd::new(options).unwrap_err().to_string().contains("clip 1.5"));
    }
}
