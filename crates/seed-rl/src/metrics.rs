//! What an update did, as sums that can be merged over sequences and optimiser steps.
//!
//! Not for: writing or naming a run's metrics; [`UpdateMetrics::named`] offers this crate's part of them.

use crate::OutcomeLabel;
use crate::gap::GapRecords;
use crate::policy_loss::ClippedToken;

/// Gap size below which a token counts as uninformative in [`UpdateMetrics::named`], in nats: about the noise of
/// half-precision scores.
pub const GAP_NOISE_FLOOR: f64 = 0.05;

/// Sums over the sequences of one or more optimiser steps.
///
/// Loss sums carry the aggregation weights, so that for one step they are the un-weighted terms of the objective;
/// over several steps [`named`](Self::named) divides by the number of steps. Shares are over tokens.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct UpdateMetrics {
    /// Optimiser steps merged.
    pub steps: usize,
    /// Sequences seen.
    pub sequences: usize,
    /// Sequences without a trained token.
    pub empty_sequences: usize,
    /// Trained tokens.
    pub tokens: usize,
    /// Aggregated clipped policy loss.
    pub policy_sum: f64,
    /// Aggregated k3 divergence to the reference.
    pub kl_sum: f64,
    /// Aggregated entropy, in nats.
    pub entropy_sum: f64,
    /// Aggregated auxiliary loss.
    pub auxiliary_sum: f64,
    /// Sum over trained tokens of `ℓ_old − ℓ_θ`.
    pub old_kl_sum: f64,
    /// Sum over trained tokens of `ρ − 1 − ln ρ`.
    pub old_k3_sum: f64,
    /// Largest ratio to the old policy.
    pub largest_ratio: f64,
    /// Tokens held by the upper clip.
    pub clipped_high: usize,
    /// Tokens held by the lower clip.
    pub clipped_low: usize,
    /// Tokens held by the dual clip.
    pub clipped_dual: usize,
    /// Gates of all guided tokens.
    pub gates: GateSums,
    /// Those of successful episodes.
    pub success_gates: GateSums,
    /// Those of failed episodes.
    pub failure_gates: GateSums,
    /// The live gap of every guided token.
    pub gaps: GapRecords,
}

/// Gates of some guided tokens, as sums.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct GateSums {
    /// Tokens.
    pub tokens: usize,
    /// Sum of their gates.
    pub sum: f64,
    /// Tokens whose gate is above one half.
    pub above_half: usize,
}

impl GateSums {
    fn add(&mut self, gate: f64) {
        self.tokens += 1;
        self.sum += gate;
        self.above_half += usize::from(gate > 0.5);
    }

    fn merge(&mut self, other: Self) {
        self.tokens += other.tokens;
        self.sum += other.sum;
        self.above_half += other.above_half;
    }

    /// Named values, `suffix` behind each name; none without tokens.
    fn named(self, suffix: &str) -> Vec<(String, f64)> {
        if self.tokens == 0 {
            return Vec::new();
        }
        let tokens = self.tokens as f64;
        vec![
            (format!("skill/gate_mean{suffix}"), self.sum / tokens),
            (
                format!("skill/gate_above_half{suffix}"),
                self.above_half as f64 / tokens,
            ),
        ]
    }
}

impl UpdateMetrics {
    /// Adds another part; the order of merging is the order of the sums.
    pub fn merge(&mut self, other: Self) {
        self.steps += other.steps;
        self.sequences += other.sequences;
        self.empty_sequences += other.empty_sequences;
        self.tokens += other.tokens;
        self.policy_sum += other.policy_sum;
        self.kl_sum += other.kl_sum;
        self.entropy_sum += other.entropy_sum;
        self.auxiliary_sum += other.auxiliary_sum;
        self.old_kl_sum += other.old_kl_sum;
        self.old_k3_sum += other.old_k3_sum;
        self.largest_ratio = self.largest_ratio.max(other.largest_ratio);
        self.clipped_high += other.clipped_high;
        self.clipped_low += other.clipped_low;
        self.clipped_dual += other.clipped_dual;
        self.gates.merge(other.gates);
        self.success_gates.merge(other.success_gates);
        self.failure_gates.merge(other.failure_gates);
        self.gaps.0.extend(other.gaps.0);
    }

    pub(crate) fn add_policy_token(&mut self, token: &ClippedToken, weight: f64) {
        self.tokens += 1;
        self.policy_sum += weight * token.term.loss;
        self.old_kl_sum -= token.log_ratio;
        self.old_k3_sum += token.ratio - 1.0 - libm::log(token.ratio);
        self.largest_ratio = self.largest_ratio.max(token.ratio);
        self.clipped_high += usize::from(token.clipped_high);
        self.clipped_low += usize::from(token.clipped_low);
        self.clipped_dual += usize::from(token.clipped_dual);
    }

    pub(crate) fn add_gate(&mut self, gate: f64, outcome: OutcomeLabel) {
        self.gates.add(gate);
        match outcome {
            OutcomeLabel::Success => self.success_gates.add(gate),
            OutcomeLabel::Failure => self.failure_gates.add(gate),
            OutcomeLabel::Unknown => {}
        }
    }

    /// The metrics as named values. Losses are un-weighted and averaged over steps; shares are of trained tokens
    /// (`policy/…`) or guided tokens (`skill/…`); gap and gate values are left out when nothing was guided.
    pub fn named(&self) -> Vec<(String, f64)> {
        let per = |sum: f64, count: usize| if count == 0 { 0.0 } else { sum / count as f64 };
        let mut named: Vec<(String, f64)> = [
            ("policy/loss", per(self.policy_sum, self.steps)),
            ("policy/kl_reference", per(self.kl_sum, self.steps)),
            ("policy/entropy", per(self.entropy_sum, self.steps)),
            ("policy/kl_old", per(self.old_kl_sum, self.tokens)),
            ("policy/k3_old", per(self.old_k3_sum, self.tokens)),
            ("policy/largest_ratio", self.largest_ratio),
            (
                "policy/clip_fraction_high",
                per(self.clipped_high as f64, self.tokens),
            ),
            (
                "policy/clip_fraction_low",
                per(self.clipped_low as f64, self.tokens),
            ),
            (
                "policy/clip_fraction_dual",
                per(self.clipped_dual as f64, self.tokens),
            ),
            ("policy/tokens", self.tokens as f64),
            ("policy/empty_sequences", self.empty_sequences as f64),
            ("skill/loss", per(self.auxiliary_sum, self.steps)),
            ("skill/tokens", self.gates.tokens as f64),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
        named.extend(self.gates.named(""));
        named.extend(self.success_gates.named("_success"));
        named.extend(self.failure_gates.named("_failure"));
        if self.gates.tokens > 0 {
            named.push((
                "skill/gap_within_noise".into(),
                self.gaps.share_within(GAP_NOISE_FLOOR),
            ));
            named.extend(self.gaps.named("skill/"));
        }
        named
    }
}
