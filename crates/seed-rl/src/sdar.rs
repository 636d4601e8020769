//! SDAR: GRPO with a gated gap loss toward a teacher that reads a skill from a static library.
//!
//! ```text
//! Δ = ℓ_teacher − sg[ℓ_θ]
//! L = L_GRPO + λ·agg( sg[σ(βΔ)]·(ℓ_teacher − ℓ_θ) )        λ = 0.01, β = 5
//! ```
//!
//! `agg` runs over all response tokens: the method knows no row mask, since the library has a skill for every task. It is
//! SEED's loss with another teacher context. The gate of the gap is the method's default; its gates of the teacher's
//! entropy are not here.
//!
//! Not for: the library, or where a skill stands in the prompt.

use serde::{Deserialize, Serialize};

use crate::algorithm::{Algorithm, Guidance, GuidedToken};
use crate::gate::sigmoid;
use crate::policy_loss::TokenTerm;
use crate::seed::Normaliser;
use crate::teacher::Coverage;
use crate::{CoefficientSchedule, RlError, Sequence};

/// Options of [`Sdar`], and of the gated loss of [`crate::opsd`] and [`crate::grpo_opsd`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SdarOptions {
    /// `λ` over updates.
    pub coefficient: CoefficientSchedule,
    /// `β`, per nat.
    pub gate_slope: f64,
    /// Leave out sequences whose skill context was truncated.
    pub truncation_guard: bool,
}

impl Default for SdarOptions {
    /// The published λ 0.01, β 5; truncated contexts left out.
    fn default() -> Self {
        Self {
            coefficient: CoefficientSchedule::constant(0.01),
            gate_slope: 5.0,
            truncation_guard: true,
        }
    }
}

/// GRPO with a gated gap loss.
#[derive(Clone, Debug)]
pub struct Sdar {
    options: SdarOptions,
}

impl Sdar {
    /// The algorithm with these options.
    ///
    /// # Errors
    /// [`RlError::InvalidOption`] naming the option.
    pub fn new(options: SdarOptions) -> Result<Self, RlError> {
        options.coefficient.validate()?;
        if !options.gate_slope.is_finite() || options.gate_slope < 0.0 {
            return Err(RlError::InvalidOption {
                option: "gate_slope",
                value: options.gate_slope.to_string(),
                rule: "finite and not negative",
            });
        }
        Ok(Self { options })
    }
}

impl Algorithm for Sdar {
    fn name(&self) -> &'static str {
        "sdar"
    }

    fn guide(&self, batch: &[Sequence<'_>], update: u64) -> Result<Guidance, RlError> {
        let coverage = Coverage::all(self.options.truncation_guard);
        Ok(coverage.guide(batch, self.options.coefficient.at(update), None))
    }

    fn auxiliary(&self, token: &GuidedToken) -> TokenTerm {
        let gap = self.gap(token);
        let weight = self.gate(gap);
        TokenTerm {
            loss: weight * gap,
            gradient: -weight,
        }
    }

    fn gate(&self, gap: f64) -> f64 {
        sigmoid(self.options.gate_slope * gap)
    }

    fn normaliser(&self) -> Normaliser {
        Normaliser::Response
    }
}
