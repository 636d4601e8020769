//! The importance-weighted k3 distillation term of Skill-SD.
//!
//! With student `s`, teacher `k` and old policy `o`, `ρ = exp(min(s − o, 10))` and
//! `k3 = exp(min(k − s, 20)) − 1 + (s − k)`, the token loss is `ρ·k3`. Both factors carry gradient; while neither
//! clamp is active it is `ρ·(s − k)`: the importance-weighted gradient of the reverse divergence to the teacher.
//!
//! Not for: the divergence to the reference policy ([`crate::kl`]).

use crate::policy_loss::TokenTerm;

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
