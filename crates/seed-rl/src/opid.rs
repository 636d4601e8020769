//! OPID: GRPO with the teacher's gap in the advantage, from skills of the episode and of single steps.
//!
//! ```text
//! A_t = A + λ·Δ_t                        Δ = ℓ_skill − ℓ_old, λ = 0.001
//! A_t = A + λ·(Δ_episode + Δ_step)       without routing
//! ```
//!
//! Both scores are of the old policy, and the new advantage passes through the policy clip. Routing is critical-first: a
//! step with a skill of its own is scored with that skill, all others with the episode's; the caller hands such scores over
//! as [`Sequence::skill`]. Without routing both are scored for all steps, and the second goes into
//! [`Sequence::step_skill`].
//!
//! Not for: writing skills, or choosing which step has one.

use serde::{Deserialize, Serialize};

use crate::algorithm::{Algorithm, Guidance};
use crate::teacher::{Coverage, Reshape, initial_gap};
use crate::{CoefficientSchedule, RlError, Sequence};

/// Options of [`Opid`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OpidOptions {
    /// `λ` over updates, the same for both kinds of skill.
    pub coefficient: CoefficientSchedule,
    /// Leave out sequences whose skill context was truncated.
    pub truncation_guard: bool,
}

impl Default for OpidOptions {
    /// The published λ 0.001; truncated contexts left out.
    fn default() -> Self {
        Self {
            coefficient: CoefficientSchedule::constant(0.001),
            truncation_guard: true,
        }
    }
}

/// GRPO with the gap in the advantage.
#[derive(Clone, Debug)]
pub struct Opid {
    options: OpidOptions,
}

impl Opid {
    /// The algorithm with these options.
    ///
    /// # Errors
    /// [`RlError::InvalidOption`] naming the option.
    pub fn new(options: OpidOptions) -> Result<Self, RlError> {
        options.coefficient.validate()?;
        Ok(Self { options })
    }
}

impl Algorithm for Opid {
    fn name(&self) -> &'static str {
        "opid"
    }

    fn guide(&self, batch: &[Sequence<'_>], update: u64) -> Result<Guidance, RlError> {
        let coefficient = self.options.coefficient.at(update);
        let coverage = Coverage::all(self.options.truncation_guard);
        let reshape = |sequence: &Sequence<'_>, token: usize| {
            let step_gap = sequence.step_skill.map_or(0.0, |step| {
                f64::from(step[token]) - f64::from(sequence.old[token])
            });
            f64::from(sequence.advantages[token]) + coefficient * (initial_gap(sequence, token) + step_gap)
        };
        let reshape: Option<Reshape<'_>> = if coefficient > 0.0 { Some(&reshape) } else { None };
        Ok(coverage.guide(batch, 0.0, reshape))
    }
}
