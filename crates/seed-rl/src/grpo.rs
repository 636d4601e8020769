//! GRPO alone: the clipped policy loss with group-relative advantages, divergence to the reference and entropy.
//!
//! ```text
//! L = L_PG − c_H·H + c_kl·KL_k3(π_θ ‖ π_ref)
//! ```
//!
//! Not for: anything with skills; this is the arm SEED is compared against.

use crate::algorithm::{Algorithm, Guidance};
use crate::{RlError, Sequence};

/// The algorithm that adds nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Grpo;

impl Algorithm for Grpo {
    fn name(&self) -> &'static str {
        "grpo"
    }

    fn reads_skills(&self) -> bool {
        false
    }

    fn guide(&self, batch: &[Sequence<'_>], _update: u64) -> Result<Guidance, RlError> {
        Ok(Guidance::none(batch.len()))
    }
}
