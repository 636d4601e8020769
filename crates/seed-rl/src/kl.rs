//! The k3 estimate of the divergence to the frozen reference policy, in the loss and not in the reward.
//!
//! With `d = ℓ_ref − ℓ_θ` at a sampled token, `k3 = exp(d) − d − 1 ≥ 0`. Its gradient `1 − exp(d)` pulls `ℓ_θ`
//! towards `ℓ_ref`: minimising it lowers the divergence.
//!
//! Not for: an exact divergence over the vocabulary.

use crate::policy_loss::TokenTerm;

/// Bound of the per-token value; beyond it the gradient is 0.
pub const K3_BOUND: f64 = 10.0;

/// Clamped k3 of one token with its derivative by `student`: `clamp(exp(d) − d − 1, ±10)`, `d = reference − student`.
pub fn k3(student: f64, reference: f64) -> TokenTerm {
    let difference = reference - student;
    // `exp_m1(d) − d` keeps the small values that `exp(d) − d − 1` cancels.
    let growth = libm::expm1(difference);
    let value = growth - difference;
    if value > K3_BOUND {
        TokenTerm {
            loss: K3_BOUND,
            gradient: 0.0,
        }
    } else {
        TokenTerm {
            loss: value,
            gradient: -growth,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy_loss::finite_difference;
    use proptest::prelude::*;

    #[test]
    fn conformance_values() {
        let cases = [
            (-1.0, -1.2, 0.018_730_8, 0.181_269_2),
            (-1.2, -1.0, 0.021_402_8, -0.221_402_8),
            (-3.0, -0.5, 8.682_494_0, -11.182_494_0),
        ];
        for (student, reference, loss, gradient) in cases {
            let term = k3(student, reference);
            assert!((term.loss - loss).abs() < 1e-6, "{term:?}");
            assert!((term.gradient - gradient).abs() < 1e-6, "{term:?}");
        }
    }

    #[test]
    fn an_active_clamp_has_no_gradient() {
        for (student, reference) in [(-4.0, -0.5), (-2000.0, 0.0), (0.0, -20.0)] {
            assert_eq!(
                k3(student, reference),
                TokenTerm {
                    loss: 10.0,
                    gradient: 0.0
                }
            );
        }
    }

    proptest! {
        #[test]
        fn gradient_is_the_derivative_and_points_away_from_the_reference(
            student in -6.0..0.0f64,
            reference in -6.0..0.0f64,
        ) {
            let term = k3(student, reference);
            prop_assume!(term.loss < K3_BOUND - 0.01);
            let slope = finite_difference(student, |s| k3(s, reference).loss);
            prop_assert!((term.gradient - slope).abs() < 1e-5 * (1.0 + slope.abs()));
            prop_assert!(term.loss >= 0.0);
            prop_assert!(term.gradient * (student - reference) >= 0.0);
        }
    }
}
