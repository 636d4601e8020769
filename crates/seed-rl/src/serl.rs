//! SERL's weighting: the teacher changes how much an action token counts; all others count as the outcome says.
//!
//! ```text
//! A_t = A·[(1 − λ) + λ·clip(exp(sign(A)·(ℓ_teacher − ℓ_old)), 1 − ε, 1 + ε)]     action tokens
//! A_t = A                                                                         all others
//! λ 0.5 → 0 over 50 updates, ε = 0.2, the log-ratio bounded at ±20
//! ```
//!
//! The outcome decides the direction, the teacher the magnitude. Published with a teacher whose weights are copied from the
//! policy every ten updates, without a divergence term, and with feedback on the episode as the teacher's context; all
//! three are the caller's to choose.
//!
//! Not for: all tokens ([`crate::rlsd`]).

use serde::{Deserialize, Serialize};

use crate::algorithm::{Algorithm, Guidance};
use crate::rlsd::{Rlsd, RlsdOptions};
use crate::schedule::{CoefficientSchedule, Decay};
use crate::seed::TokenSelection;
use crate::{RlError, Sequence};

/// Options of [`Serl`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SerlOptions {
    /// `λ` over updates.
    pub coefficient: CoefficientSchedule,
    /// `ε`: an action token's advantage changes by at most `λ·ε` of itself.
    pub clip: f64,
    /// Leave out sequences whose skill context was truncated.
    pub truncation_guard: bool,
}

impl Default for SerlOptions {
    /// The published λ from 0.5 to 0 over 50 updates, clip 0.2; truncated contexts left out.
    fn default() -> Self {
        Self {
            coefficient: CoefficientSchedule {
                decay: Decay::Linear { updates: 50 },
                ..CoefficientSchedule::constant(0.5)
            },
            clip: 0.2,
            truncation_guard: true,
        }
    }
}

/// GRPO with teacher-reweighted advantages of action tokens.
#[derive(Clone, Debug)]
pub struct Serl(Rlsd);

impl Serl {
    /// The algorithm with these options.
    ///
    /// # Errors
    /// [`RlError::InvalidOption`] naming the option.
    pub fn new(options: SerlOptions) -> Result<Self, RlError> {
        Rlsd::new(RlsdOptions {
            coefficient: options.coefficient,
            clip: options.clip,
            tokens: TokenSelection::Action,
            truncation_guard: options.truncation_guard,
        })
        .map(Self)
    }
}

impl Algorithm for Serl {
    fn name(&self) -> &'static str {
        "serl"
    }

    fn guide(&self, batch: &[Sequence<'_>], update: u64) -> Result<Guidance, RlError> {
        self.0.guide(batch, update)
    }
}
