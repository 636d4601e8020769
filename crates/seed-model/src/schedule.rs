//! Learning-rate schedules.
//!
//! The factors of transformers' `get_constant_schedule_with_warmup`, `get_linear_schedule_with_warmup` and
//! `get_cosine_schedule_with_warmup`. Not for: applying the rate; see [`crate::optimiser`].

/// How the rate goes on after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decay {
    /// Stays.
    Constant,
    /// Falls in a straight line to `minimum` at the last step.
    Linear {
        /// Share of the peak at the end.
        minimum: f64,
    },
    /// Falls along half a cosine to `minimum` at the last step.
    Cosine {
        /// Share of the peak at the end.
        minimum: f64,
    },
}

/// A warm-up in a straight line from 0, then a decay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    /// Rate after the warm-up.
    pub peak: f64,
    /// Number of warm-up steps; 0 for none.
    pub warmup_steps: u64,
    /// Number of all steps, the end of the decay.
    pub total_steps: u64,
    /// What comes after the warm-up.
    pub decay: Decay,
}

impl Schedule {
    /// The same rate throughout.
    pub fn constant(rate: f64) -> Self {
        Self {
            peak: rate,
            warmup_steps: 0,
            total_steps: 0,
            decay: Decay::Constant,
        }
    }

    /// The rate of step `step`, counted from 0: in a warm-up of `w` steps it is `peak * step / w`, so the very first
    /// step has rate 0, as in transformers. Past the last step the rate stays at its end value.
    pub fn rate(&self, step: u64) -> f64 {
        self.peak * self.factor(step)
    }

    fn factor(&self, step: u64) -> f64 {
        if step < self.warmup_steps {
            return step as f64 / self.warmup_steps as f64;
        }
        let length = self.total_steps.saturating_sub(self.warmup_steps).max(1) as f64;
        let progress = ((step - self.warmup_steps) as f64 / length).min(1.0);
        let falling = |minimum: f64, share: f64| minimum + (1.0 - minimum) * share;
        match self.decay {
            Decay::Constant => 1.0,
            Decay::Linear { minimum } => falling(minimum, 1.0 - progress),
            Decay::Cosine { minimum } => {
                falling(minimum, 0.5 * (1.0 + libm::cos(std::f64::consts::PI * progress)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(decay: Decay, steps: &[u64]) -> Vec<f64> {
        let schedule = Schedule {
            peak: 2.0,
            warmup_steps: 4,
            total_steps: 12,
            decay,
        };
        steps.iter().map(|&step| schedule.rate(step)).collect()
    }

    #[test]
    fn warm_up_starts_at_zero_and_reaches_the_peak() {
        assert_eq!(
            rates(Decay::Constant, &[0, 1, 3, 4, 100]),
            [0.0, 0.5, 1.5, 2.0, 2.0]
        );
        assert_eq!(Schedule::constant(3.0).rate(0), 3.0);
    }

    #[test]
    fn linear_and_cosine_fall_to_their_minimum_and_stay() {
        assert_eq!(
            rates(Decay::Linear { minimum: 0.0 }, &[4, 6, 8, 12, 13]),
            [2.0, 1.5, 1.0, 0.0, 0.0]
        );
        let cosine = rates(Decay::Cosine { minimum: 0.1 }, &[4, 6, 8, 12, 99]);
        // 0.1 + 0.9 * (1 + cos(pi / 4)) / 2 = 0.868198...
        let expected = [2.0, 2.0 * 0.868_198_051_533_946_4, 1.1, 0.2, 0.2];
        for (rate, expected) in cosine.iter().zip(expected) {
            assert!((rate - expected).abs() < 1e-12, "{rate} {expected}");
        }
    }

    #[test]
    fn a_schedule_shorter_than_its_warm_up_does_not_divide_by_zero() {
        let schedule = Schedule {
            peak: 1.0,
            warmup_steps: 5,
            total_steps: 3,
            decay: Decay::Linear { minimum: 0.0 },
        };
        assert_eq!([4, 5, 6].map(|step| schedule.rate(step)), [0.8, 1.0, 0.0]);
    }
}
