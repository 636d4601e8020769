//! GRPO+OPSD: GRPO with an ungated gap loss.
//!
//! ```text
//! L = L_GRPO + λ·agg( σ(0)·(ℓ_teacher − ℓ_θ) ) = L_GRPO + (λ/2)·agg( ℓ_teacher − ℓ_θ )        λ = 0.01
//! ```
//!
//! The gate is a constant one half, so the teacher's score drops out of the gradient `−λ/2`: every sampled token is raised
//! alike. On-policy that gradient is zero in expectation. The row is a control for what a gap loss does without its gate.
//!
//! Not for: the gated forms ([`crate::sdar`], [`crate::opsd`]).

use crate::algorithm::{Algorithm, Guidance, GuidedToken};
use crate::policy_loss::TokenTerm;
use crate::sdar::{Sdar, SdarOptions};
use crate::seed::Normaliser;
use crate::{CoefficientSchedule, RlError, Sequence};

/// GRPO with an ungated gap loss.
#[derive(Clone, Debug)]
pub struct GrpoOpsd(Sdar);

impl GrpoOpsd {
    /// The algorithm with `λ` over updates; with `truncation_guard`, sequences whose skill context was truncated are left
    /// out.
    ///
    /// # Errors
    /// [`RlError::InvalidOption`] naming the option.
    pub fn new(coefficient: CoefficientSchedule, truncation_guard: bool) -> Result<Self, RlError> {
        Sdar::new(SdarOptions {
            coefficient,
            gate_slope: 0.0,
            truncation_guard,
        })
        .map(Self)
    }
}

impl Algorithm for GrpoOpsd {
    fn name(&self) -> &'static str {
        "grpo_opsd"
    }

    fn guide(&self, batch: &[Sequence<'_>], update: u64) -> Result<Guidance, RlError> {
        self.0.guide(batch, update)
    }

    fn auxiliary(&self, token: &GuidedToken) -> TokenTerm {
        self.0.auxiliary(token)
    }

    fn normaliser(&self) -> Normaliser {
        self.0.normaliser()
    }
}
