//! How long the phases of an iteration take.
//!
//! Durations are measured on the monotonic clock and never enter anything that must be reproducible: they become
//! wall-clock metrics, which have a file of their own.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::metrics::Metrics;

/// Adds up the time of named phases since it was made or last taken.
#[derive(Debug)]
pub struct PhaseClock {
    started: Instant,
    phases: BTreeMap<&'static str, Duration>,
}

impl Default for PhaseClock {
    fn default() -> Self {
        Self::new()
    }
}

impl PhaseClock {
    /// A clock that starts now.
    pub fn new() -> Self {
        Self {
            started: Instant::now(),
            phases: BTreeMap::new(),
        }
    }

    /// Runs `work` and adds its time to `metric`, a registered name such as `timing/rollout_seconds`.
    pub fn measure<T>(&mut self, metric: &'static str, work: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let result = work();
        self.add(metric, begin.elapsed());
        result
    }

    /// Adds a duration measured elsewhere.
    pub fn add(&mut self, metric: &'static str, duration: Duration) {
        *self.phases.entry(metric).or_default() += duration;
    }

    /// Seconds of one phase so far.
    pub fn seconds(&self, metric: &str) -> f64 {
        self.phases.get(metric).map_or(0.0, Duration::as_secs_f64)
    }

    /// Seconds since the clock was made or last taken.
    pub fn elapsed_seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Puts every phase, and the whole as `timing/iteration_seconds`, into `metrics`, and starts again from zero.
    pub fn take_into(&mut self, metrics: &mut Metrics) {
        metrics.set("timing/iteration_seconds", self.elapsed_seconds());
        for (metric, duration) in std::mem::take(&mut self.phases) {
            metrics.set(metric, duration.as_secs_f64());
        }
        self.started = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_add_up_and_start_again() {
        let mut clock = PhaseClock::new();
        clock.add("timing/rollout_seconds", Duration::from_millis(1500));
        clock.add("timing/rollout_seconds", Duration::from_millis(500));
        let result = clock.measure("timing/update_seconds", || 7);
        assert_eq!(result, 7);
        assert_eq!(clock.seconds("timing/rollout_seconds"), 2.0);
        let mut metrics = Metrics::new();
        clock.take_into(&mut metrics);
        assert_eq!(metrics.get("timing/rollout_seconds"), Some(2.0));
        assert!(
            metrics.get("timing/iteration_seconds").unwrap() >= metrics.get("timing/update_seconds").unwrap()
        );
        assert_eq!(clock.seconds("timing/rollout_seconds"), 0.0);
    }
}
