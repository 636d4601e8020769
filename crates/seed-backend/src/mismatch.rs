//! How far an engine's log-probs are from the trainer's for the same tokens.
//!
//! Both compute the same function in other orders or precisions. A small difference is rounding; a large one says that
//! weights, temperature or tokens are not the same.
//!
//! Not for: correcting it.

use crate::BackendError;

/// Differences over the tokens of an iteration, in nats.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mismatch {
    /// Tokens compared.
    pub tokens: usize,
    /// Sum of absolute differences.
    sum: f64,
    /// Sum of `exp(d) - 1 - d` with d = trainer - engine.
    divergence: f64,
    /// Largest absolute difference.
    pub largest: f64,
    /// Tokens that differ by more than the mean may.
    pub over: usize,
}

/// What is allowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MismatchLimit {
    /// Mean absolute difference.
    pub mean: f64,
    /// Largest absolute difference of any token.
    pub largest: f64,
}

impl Mismatch {
    /// Adds the tokens of a sequence: the log-probs that the engine gave and those of scoring, in the same order.
    pub fn add(&mut self, engine: &[f32], trainer: &[f32], limit: MismatchLimit) {
        for (&engine, &trainer) in engine.iter().zip(trainer) {
            let difference = f64::from(trainer) - f64::from(engine);
            self.tokens += 1;
            self.sum += difference.abs();
            self.divergence += difference.exp_m1() - difference;
            // `f64::max` would pass over what is not a number.
            if difference.is_nan() || difference.abs() > self.largest {
                self.largest = difference.abs();
            }
            self.over += usize::from(difference.is_nan() || difference.abs() > limit.mean);
        }
    }

    /// Mean absolute difference; 0 over no tokens.
    pub fn mean(&self) -> f64 {
        self.over_tokens(self.sum)
    }

    /// Estimate of the divergence KL(engine ‖ trainer) from the sampled tokens, never negative (Schulman's k3); 0 over no
    /// tokens.
    pub fn divergence(&self) -> f64 {
        self.over_tokens(self.divergence)
    }

    /// Share of tokens that differ by more than the mean may; 0 over no tokens.
    pub fn over_share(&self) -> f64 {
        self.over_tokens(self.over as f64)
    }

    fn over_tokens(&self, sum: f64) -> f64 {
        if self.tokens == 0 {
            0.0
        } else {
            sum / self.tokens as f64
        }
    }

    /// Refuses what is above the limit.
    ///
    /// # Errors
    /// [`BackendError::Mismatch`], also where a difference is not a number.
    pub fn check(&self, limit: MismatchLimit) -> Result<(), BackendError> {
        let measures = [
            ("on average", self.mean(), limit.mean),
            ("at most", self.largest, limit.largest),
        ];
        for (measure, measured, limit) in measures {
            if measured.is_nan() || measured > limit {
                return Err(BackendError::Mismatch {
                    measure,
                    measured,
                    limit,
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: MismatchLimit = MismatchLimit {
        mean: 0.1,
        largest: 1.0,
    };

    #[test]
    fn differences_are_averaged_over_tokens() {
        let mut mismatch = Mismatch::default();
        assert_eq!((mismatch.mean(), mismatch.divergence()), (0.0, 0.0));
        mismatch.add(&[-1.0, -2.0], &[-1.0, -1.75], LIMIT);
        mismatch.add(&[-0.5, -0.5], &[-0.5, -0.5], LIMIT);
        assert_eq!(
            (mismatch.tokens, mismatch.mean(), mismatch.largest),
            (4, 0.0625, 0.25)
        );
        assert_eq!((mismatch.over, mismatch.over_share()), (1, 0.25));
        assert!((mismatch.divergence() - (0.25f64.exp() - 1.25) / 4.0).abs() < 1e-12);
        assert_eq!(mismatch.check(LIMIT), Ok(()));
    }

    #[test]
    fn too_large_differences_are_refused() {
        let refused = |engine: &[f32], trainer: &[f32]| {
            let mut mismatch = Mismatch::default();
            mismatch.add(engine, trainer, LIMIT);
            mismatch.check(LIMIT).unwrap_err().to_string()
        };
        let mean = refused(&[-1.0, -1.0], &[-1.25, -1.25]);
        assert!(
            mean.contains("differ from the trainer's by 0.25 nats on average, more than 0.1"),
            "{mean}"
        );
        let mut many = vec![-1.0; 100];
        let engine = many.clone();
        many[7] = -3.0;
        assert!(refused(&engine, &many).contains("by 2 nats at most, more than 1"));
        assert!(refused(&[-1.0], &[f32::NAN]).contains("NaN"));
    }
}
