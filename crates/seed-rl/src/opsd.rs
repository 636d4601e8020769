//! OPSD: on-policy self-distillation from a teacher context, without the outcome.
//!
//! ```text
//! L = 0·L_PG + c_kl·K3 − c_H·H + λ·agg( sg[σ(βΔ)]·(ℓ_teacher − ℓ_θ) )        λ = 0.01, β = 5
//! ```
//!
//! The rewards are read by no term. What keeps the policy near its start is the divergence to the reference.
//!
//! Not for: distillation beside the policy loss ([`crate::grpo_opsd`], [`crate::sdar`]).

use crate::algorithm::{Algorithm, Guidance, GuidedToken};
use crate::policy_loss::TokenTerm;
use crate::sdar::{Sdar, SdarOptions};
use crate::seed::Normaliser;
use crate::{RlError, Sequence};

/// The gated gap loss alone.
#[derive(Clone, Debug)]
pub struct Opsd(Sdar);

impl Opsd {
    /// The algorithm with these options.
    ///
    /// # Errors
    /// [`RlError::InvalidOption`] naming the option.
    pub fn new(options: SdarOptions) -> Result<Self, RlError> {
        Sdar::new(options).map(Self)
    }
}

impl Algorithm for Opsd {
    fn name(&self) -> &'static str {
        "opsd"
    }

    fn learns_from_outcome(&self) -> bool {
        false
    }

    fn guide(&self, batch: &[Sequence<'_>], update: u64) -> Result<Guidance, RlError> {
        self.0.guide(batch, update)
    }

    fn auxiliary(&self, token: &GuidedToken) -> TokenTerm {
        self.0.auxiliary(token)
    }

    fn gate(&self, gap: f64) -> f64 {
        self.0.gate(gap)
    }

    fn normaliser(&self) -> Normaliser {
        self.0.normaliser()
    }
}
