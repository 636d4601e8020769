//! The gate: from the gap `Δ = ℓ_skill − ℓ_θ` of a token to the weight its log-prob is pushed with.
//!
//! The paper's gate is `g = σ(βΔ)`: always positive, one half where the skill says nothing. The other modes are
//! sign-aware: they push a token down where the skill makes it less likely.
//!
//! Not for: masks, denominators, outcome filters ([`crate::seed`]).

use serde::{Deserialize, Serialize};

/// Shape of the weight as a function of the gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateMode {
    /// `g = σ(βΔ)` (the paper).
    Sigmoid,
    /// `2g − 1 = tanh(βΔ/2)`, in (−1, 1), 0 at Δ = 0. Its slope there is `β/2`, twice that of `g`: for the directed
    /// strength of the sigmoid gate at coefficient `λ`, use `λ/2`.
    Centered,
    /// `clip(Δ, ±c)`: with the token sampled from the policy, the gradient of the reverse divergence to the
    /// skill-conditioned policy.
    Delta,
    /// `g` where Δ > 0, else 0.
    PositiveOnly,
    /// The importance-weighted k3 term of Skill-SD, whose weight is `ρΔ`
    /// ([`weighted_k3`](crate::skill_sd::weighted_k3)).
    K3Is,
}

impl GateMode {
    /// Whether weights can be negative.
    pub fn is_signed(self) -> bool {
        matches!(self, Self::Centered | Self::Delta | Self::K3Is)
    }
}

/// `1 / (1 + exp(−x))`, without overflow for either sign.
pub fn sigmoid(x: f64) -> f64 {
    if x >= 0.0 {
        1.0 / (1.0 + libm::exp(-x))
    } else {
        let growth = libm::exp(x);
        growth / (1.0 + growth)
    }
}

/// A gate mode with its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gate {
    /// Shape.
    pub mode: GateMode,
    /// `β`, per nat.
    pub slope: f64,
    /// `c` of [`GateMode::Delta`], in nats; infinite = no clip.
    pub delta_clip: f64,
}

impl Gate {
    /// The paper's gate `σ(βΔ)` of a gap in nats, whatever the mode: what gate metrics report.
    pub fn openness(&self, gap: f64) -> f64 {
        sigmoid(self.slope * gap)
    }

    /// The weight of a token with this gap, at ratio 1 to the old policy.
    pub fn weight(&self, gap: f64) -> f64 {
        match self.mode {
            GateMode::Sigmoid => self.openness(gap),
            GateMode::Centered => self.centered(gap),
            GateMode::Delta => gap.clamp(-self.delta_clip, self.delta_clip),
            GateMode::PositiveOnly if gap > 0.0 => self.openness(gap),
            GateMode::PositiveOnly => 0.0,
            GateMode::K3Is => gap,
        }
    }

    /// `2g − 1`, computed as a hyperbolic tangent so that small gaps keep their digits.
    pub fn centered(&self, gap: f64) -> f64 {
        libm::tanh(0.5 * self.slope * gap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn weight(mode: GateMode, gap: f64) -> f64 {
        Gate {
            mode,
            slope: 5.0,
            delta_clip: 0.3,
        }
        .weight(gap)
    }

    #[test]
    fn conformance_gates() {
        for (gap, gate) in [(0.2, 0.731_058_6), (-0.4, 0.119_202_9), (0.0, 0.5)] {
            assert!((weight(GateMode::Sigmoid, gap) - gate).abs() < 1e-6);
            assert!((weight(GateMode::Centered, gap) - (2.0 * gate - 1.0)).abs() < 1e-6);
        }
        assert_eq!(weight(GateMode::Delta, 0.2), 0.2);
        assert_eq!(weight(GateMode::Delta, -0.4), -0.3);
        assert_eq!(weight(GateMode::PositiveOnly, -0.4), 0.0);
        assert_eq!(weight(GateMode::PositiveOnly, 0.0), 0.0);
        assert_eq!(weight(GateMode::K3Is, -0.4), -0.4);
    }

    #[test]
    fn sigmoid_is_stable_at_both_ends() {
        assert_eq!(sigmoid(1e4), 1.0);
        assert_eq!(sigmoid(-1e4), 0.0);
        assert_eq!(sigmoid(0.0), 0.5);
    }

    proptest! {
        #[test]
        fn sigmoid_is_symmetric_and_signed_modes_are_odd(gap in -8.0..8.0f64) {
            prop_assert!((sigmoid(gap) + sigmoid(-gap) - 1.0).abs() < 1e-15);
            for mode in [GateMode::Centered, GateMode::Delta, GateMode::K3Is] {
                prop_assert!(mode.is_signed());
                prop_assert_eq!(weight(mode, gap), -weight(mode, -gap));
            }
            for mode in [GateMode::Sigmoid, GateMode::PositiveOnly] {
                prop_assert!(!mode.is_signed() && weight(mode, gap) >= 0.0);
            }
        }
    }
}
