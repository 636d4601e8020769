//! Skill-SD: GRPO with an importance-weighted k3 distillation loss toward a teacher that reads a skill.
//!
//! ```text
//! ρ  = exp(min(ℓ_θ − ℓ_old, 10))
//! k3 = exp(min(ℓ_teacher − ℓ_θ, 20)) − 1 + (ℓ_θ − ℓ_teacher)
//! L  = L_GRPO + λ·agg( ρ·k3 )        λ = 0.001
//! ```
//!
//! Both factors carry gradient. While neither clamp is active it is `ρ·(ℓ_θ − ℓ_teacher)`: the importance-weighted gradient
//! of the reverse divergence to the teacher. [`weighted_k3`] is also one of SEED's gates.
//!
//! Not for: the divergence to the reference policy ([`crate::kl`]).

use serde::{Deserialize, Serialize};

use crate::algorithm::{Algorithm, Guidance, GuidedToken};
use crate::policy_loss::TokenTerm;
use crate::seed::Normaliser;
use crate::teacher::Coverage;
use crate::{CoefficientSchedule, RlError, Sequence};

/// Bound of `s − o`.
const STUDENT_BOUND: f64 = 10.0;
/// Bound of `k − s` inside the exponential.
const TEACHER_BOUND: f64 = 20.0;

/// `ρ·k3` of one token with its derivative by `student`.
pub fn weighted_k3(student: f64, teacher: f64, old: f64) -> TokenTerm {
    let log_ratio = student - old;
    let ratio = libm::exp(log_ratio.min(STUDENT_BOUND));
    let gap = teacher - student;
    let growth = libm::expm1(gap.min(TEACHER_BOUND));
    let divergence = growth - gap;
    let ratio_slope = if log_ratio < STUDENT_BOUND { ratio } else { 0.0 };
    let divergence_slope = if gap < TEACHER_BOUND { -growth } else { 1.0 };
    TokenTerm {
        loss: ratio * divergence,
        gradient: ratio_slope * divergence + ratio * divergence_slope,
    }
}

/// Options of [`SkillSd`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SkillSdOptions {
    /// `λ` over updates.
    pub coefficient: CoefficientSchedule,
    /// Leave out sequences whose skill context was truncated.
    pub truncation_guard: bool,
}

impl Default for SkillSdOptions {
    /// The published λ 0.001; truncated contexts left out.
    fn default() -> Self {
        Self {
            coefficient: CoefficientSchedule::constant(0.001),
            truncation_guard: true,
        }
    }
}

/// GRPO with the importance-weighted k3 loss.
#[derive(Clone, Debug)]
pub struct SkillSd {
    options: SkillSdOptions,
}

impl SkillSd {
    /// The algorithm with these options.
    ///
    /// # Errors
    /// [`RlError::InvalidOption`] naming the option.
    pub fn new(options: SkillSdOptions) -> Result<Self, RlError> {
        options.coefficient.validate()?;
        Ok(Self { options })
    }
}

impl Algorithm for SkillSd {
    fn name(&self) -> &'static str {
        "skill_sd"
    }

    fn guide(&self, batch: &[Sequence<'_>], update: u64) -> Result<Guidance, RlError> {
        let coverage = Coverage::all(self.options.truncation_guard);
        Ok(coverage.guide(batch, self.options.coefficient.at(update), None))
    }

    fn auxiliary(&self, token: &GuidedToken) -> TokenTerm {
        weighted_k3(token.student, token.skill, token.old)
    }

    fn normaliser(&self) -> Normaliser {
        Normaliser::Response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy_loss::finite_difference;
    use proptest::prelude::*;

    #[test]
    fn conformance_values() {
        assert!((weighted_k3(-1.0, -0.8, -1.0).loss - 0.021_402_8).abs() < 1e-6);
        assert!((weighted_k3(-1.0, -1.4, -1.1).loss - 0.077_715_7).abs() < 1e-6);
    }

    #[test]
    fn without_clamps_the_gradient_is_the_weighted_reverse_divergence() {
        let (student, teacher, old) = (-1.3f64, -0.9f64, -1.6f64);
        let expected = (student - old).exp() * (student - teacher);
        assert!((weighted_k3(student, teacher, old).gradient - expected).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn gradient_is_the_derivative(student in -30.0..0.0f64, teacher in -30.0..0.0f64, old in -30.0..0.0f64) {
            prop_assume!((student - old - STUDENT_BOUND).abs() > 1e-3);
            prop_assume!((teacher - student - TEACHER_BOUND).abs() > 1e-3);
            let term = weighted_k3(student, teacher, old);
            let slope = finite_difference(student, |s| weighted_k3(s, teacher, old).loss);
            let scale = 1.0 + slope.abs() + term.loss.abs();
            prop_assert!((term.gradient - slope).abs() < 1e-5 * scale, "{term:?} against {slope}");
        }
    }
}
