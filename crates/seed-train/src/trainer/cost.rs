//! What an iteration costs, in tokens that a decoder computes: unlike seconds, the same on every machine.
//!
//! Not for: evaluation, which is no part of an iteration.

use seed_run::Metrics;

use super::batch::TrainedSequence;

/// Counts the tokens computed from phase to phase.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    begin: u64,
    now: u64,
    /// Those of the phase recorded last.
    last: u64,
}

impl Cost {
    /// A count from `computed`, the tokens computed before the iteration.
    pub(super) fn from(computed: u64) -> Self {
        Self {
            begin: computed,
            now: computed,
            last: 0,
        }
    }

    /// Records the tokens computed since the phase before as `metric`, when `computed` have been until now.
    pub(super) fn record(&mut self, metric: &'static str, computed: u64, metrics: &mut Metrics) {
        self.last = computed - self.now;
        self.now = computed;
        metrics.set(metric, self.last as f64);
    }

    /// Records the update's tokens, which is the phase recorded last, and those of the whole iteration, for each
    /// response token that trains.
    pub(super) fn record_per_trained_token(&self, sequences: &[TrainedSequence], metrics: &mut Metrics) {
        let trained = sequences
            .iter()
            .flat_map(|sequence| &sequence.mask)
            .filter(|trains| **trains)
            .count();
        if trained > 0 {
            let per_token = |tokens: u64| tokens as f64 / trained as f64;
            metrics.set("cost/update_tokens_per_trained_token", per_token(self.last));
            metrics.set("cost/tokens_per_trained_token", per_token(self.now - self.begin));
        }
    }
}
