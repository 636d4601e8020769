//! How a coefficient changes over the updates of a run.
//!
//! Not for: learning rates, which belong to the optimiser.

use serde::{Deserialize, Serialize};

use crate::RlError;

/// What happens to the coefficient after it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decay {
    /// It keeps its value.
    #[default]
    Constant,
    /// It falls in a straight line and is 0 from `updates` updates after the start on.
    Linear {
        /// Updates until 0.
        updates: u64,
    },
}

/// A coefficient over updates. Updates count from 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CoefficientSchedule {
    /// Full value.
    pub value: f64,
    /// Updates over which it rises in a straight line from `value / warm_up_updates`; 0 = at once.
    pub warm_up_updates: u64,
    /// What follows.
    pub decay: Decay,
    /// Active only at updates greater than this; `None` = from the first update.
    pub start_after: Option<u64>,
    /// Inactive at updates greater than this; `None` = never stops.
    pub stop_after: Option<u64>,
}

impl Default for CoefficientSchedule {
    fn default() -> Self {
        Self::constant(0.0)
    }
}

impl CoefficientSchedule {
    /// The same value at every update.
    pub fn constant(value: f64) -> Self {
        Self {
            value,
            warm_up_updates: 0,
            decay: Decay::Constant,
            start_after: None,
            stop_after: None,
        }
    }

    /// Whether `update` (from 1) lies between start and stop.
    pub fn is_active_at(&self, update: u64) -> bool {
        update > self.start_after.unwrap_or(0) && self.stop_after.is_none_or(|stop| update <= stop)
    }

    /// The coefficient at `update` (from 1).
    pub fn at(&self, update: u64) -> f64 {
        if !self.is_active_at(update) {
            return 0.0;
        }
        let since = update - self.start_after.unwrap_or(0);
        let rise = if since < self.warm_up_updates {
            since as f64 / self.warm_up_updates as f64
        } else {
            1.0
        };
        let fall = match self.decay {
            Decay::Constant => 1.0,
            Decay::Linear { updates } if since > updates => 0.0,
            Decay::Linear { updates } => 1.0 - (since - 1) as f64 / updates as f64,
        };
        self.value * rise * fall
    }

    /// True when start and stop leave no active update; worth a warning.
    pub fn is_never_active(&self) -> bool {
        self.stop_after
            .is_some_and(|stop| self.start_after.unwrap_or(0) >= stop)
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// [`RlError::InvalidOption`] for a coefficient that is negative or not finite, or a decay over no updates.
    pub fn validate(&self) -> Result<(), RlError> {
        if !self.value.is_finite() || self.value < 0.0 {
            return Err(RlError::InvalidOption {
                option: "coefficient.value",
                value: self.value.to_string(),
                rule: "finite and not negative",
            });
        }
        if self.decay == (Decay::Linear { updates: 0 }) {
            return Err(RlError::InvalidOption {
                option: "coefficient.decay.updates",
                value: "0".into(),
                rule: "at least 1",
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_and_stop_are_exclusive_and_inclusive() {
        let schedule = CoefficientSchedule {
            start_after: Some(2),
            stop_after: Some(4),
            ..CoefficientSchedule::constant(0.5)
        };
        let values: Vec<f64> = (1..=6).map(|update| schedule.at(update)).collect();
        assert_eq!(values, [0.0, 0.0, 0.5, 0.5, 0.0, 0.0]);
        let active: Vec<u64> = (1..=6).filter(|&update| schedule.is_active_at(update)).collect();
        assert_eq!(active, [3, 4]);
        assert!(!schedule.is_never_active());
        assert!(
            CoefficientSchedule {
                start_after: Some(4),
                ..schedule
            }
            .is_never_active()
        );
    }

    #[test]
    fn warm_up_counts_from_the_start() {
        let schedule = CoefficientSchedule {
            warm_up_updates: 4,
            start_after: Some(1),
            ..CoefficientSchedule::constant(1.0)
        };
        let values: Vec<f64> = (1..=6).map(|update| schedule.at(update)).collect();
        assert_eq!(values, [0.0, 0.25, 0.5, 0.75, 1.0, 1.0]);
    }

    #[test]
    fn linear_decay_ends_at_zero() {
        let schedule = CoefficientSchedule {
            decay: Decay::Linear { updates: 4 },
            ..CoefficientSchedule::constant(0.5)
        };
        let values: Vec<f64> = (1..=6).map(|update| schedule.at(update)).collect();
        assert_eq!(values, [0.5, 0.375, 0.25, 0.125, 0.0, 0.0]);
    }

    #[test]
    fn bad_values_are_refused() {
        assert!(CoefficientSchedule::constant(-0.1).validate().is_err());
        assert!(CoefficientSchedule::constant(f64::INFINITY).validate().is_err());
        let decay = Decay::Linear { updates: 0 };
        assert!(
            CoefficientSchedule {
                decay,
                ..CoefficientSchedule::constant(1.0)
            }
            .validate()
            .is_err()
        );
    }
}
