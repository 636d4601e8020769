//! Statistics of the skill gap: what hindsight changes about the sampled tokens.
//!
//! Not for: the loss; nothing here feeds a gradient.

use crate::{OutcomeLabel, TokenSpan};

/// One token's gap, with what it is split by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GapRecord {
    /// `Δ` in nats.
    pub gap: f32,
    /// How the token's trajectory ended.
    pub outcome: OutcomeLabel,
    /// What the token is part of.
    pub span: TokenSpan,
    /// Its environment step, when known.
    pub step: Option<u32>,
}

/// Gaps of many tokens in the order they were recorded.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct GapRecords(pub Vec<GapRecord>);

/// Distribution of a set of gaps, in nats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GapStatistics {
    /// Tokens.
    pub tokens: usize,
    /// Mean.
    pub mean: f64,
    /// Population standard deviation.
    pub std: f64,
    /// 5th percentile (linear interpolation between order statistics, as for all percentiles here).
    pub percentile_5: f64,
    /// Median.
    pub median: f64,
    /// 95th percentile.
    pub percentile_95: f64,
}

impl GapStatistics {
    /// The distribution of `gaps`; `None` for no tokens.
    pub fn of(gaps: impl IntoIterator<Item = f32>) -> Option<Self> {
        let mut sorted: Vec<f32> = gaps.into_iter().collect();
        if sorted.is_empty() {
            return None;
        }
        // Sorting first makes the sums independent of the recording order.
        sorted.sort_by(f32::total_cmp);
        let count = sorted.len() as f64;
        let mean = sorted.iter().map(|&gap| f64::from(gap)).sum::<f64>() / count;
        let variance = sorted
            .iter()
            .map(|&gap| {
                let difference = f64::from(gap) - mean;
                difference * difference
            })
            .sum::<f64>()
            / count;
        Some(Self {
            tokens: sorted.len(),
            mean,
            std: variance.sqrt(),
            percentile_5: percentile(&sorted, 0.05),
            median: percentile(&sorted, 0.5),
            percentile_95: percentile(&sorted, 0.95),
        })
    }
}

/// Percentile of a sorted, non-empty slice.
fn percentile(sorted: &[f32], share: f64) -> f64 {
    let position = share * (sorted.len() - 1) as f64;
    let below = position.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    let (low, high) = (f64::from(sorted[below]), f64::from(sorted[above]));
    low + (high - low) * (position - below as f64)
}

impl GapRecords {
    /// The distribution over the records that `keep` selects; `None` when there are none.
    pub fn statistics(&self, keep: impl Fn(&GapRecord) -> bool) -> Option<GapStatistics> {
        GapStatistics::of(
            self.0
                .iter()
                .filter(|record| keep(record))
                .map(|record| record.gap),
        )
    }

    /// Mean gap of every environment step that occurs, in step order.
    pub fn mean_by_step(&self) -> Vec<(u32, f64)> {
        let mut steps: Vec<u32> = self.0.iter().filter_map(|record| record.step).collect();
        steps.sort_unstable();
        steps.dedup();
        let mean = |step| {
            self.statistics(|record| record.step == Some(step))
                .map(|found| (step, found.mean))
        };
        steps.into_iter().filter_map(mean).collect()
    }

    /// Share of records with `|Δ| < epsilon`; 0 for none.
    pub fn share_within(&self, epsilon: f64) -> f64 {
        if self.0.is_empty() {
            return 0.0;
        }
        let near = self
            .0
            .iter()
            .filter(|record| f64::from(record.gap.abs()) < epsilon)
            .count();
        near as f64 / self.0.len() as f64
    }

    /// Named values: the whole, then by outcome, then by span; `prefix` is put before each name. Empty subsets are
    /// left out.
    pub fn named(&self, prefix: &str) -> Vec<(String, f64)> {
        let mut named = Vec::new();
        let mut put = |name: &str, found: Option<GapStatistics>| {
            if let Some(found) = found {
                named.push((format!("{prefix}{name}_mean"), found.mean));
                named.push((format!("{prefix}{name}_std"), found.std));
                named.push((format!("{prefix}{name}_p05"), found.percentile_5));
                named.push((format!("{prefix}{name}_p50"), found.median));
                named.push((format!("{prefix}{name}_p95"), found.percentile_95));
            }
        };
        put("gap", self.statistics(|_| true));
        put(
            "gap_success",
            self.statistics(|record| record.outcome == OutcomeLabel::Success),
        );
        put(
            "gap_failure",
            self.statistics(|record| record.outcome == OutcomeLabel::Failure),
        );
        put(
            "gap_action",
            self.statistics(|record| record.span == TokenSpan::Action),
        );
        put(
            "gap_reasoning",
            self.statistics(|record| record.span == TokenSpan::Reasoning),
        );
        named
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(gap: f32, outcome: OutcomeLabel, step: u32) -> GapRecord {
        GapRecord {
            gap,
            outcome,
            span: TokenSpan::Action,
            step: Some(step),
        }
    }

    #[test]
    fn percentiles_interpolate() {
        // numpy.percentile([0..20], [5, 50, 95]) = [1, 10, 19]
        let found = GapStatistics::of((0u8..=20).rev().map(f32::from)).unwrap();
        assert_eq!(
            (found.percentile_5, found.median, found.percentile_95),
            (1.0, 10.0, 19.0)
        );
        assert_eq!(found.mean, 10.0);
        // numpy.percentile([1, 2], 5) = 1.05
        let found = GapStatistics::of([2.0, 1.0]).unwrap();
        assert!((found.percentile_5 - 1.05).abs() < 1e-12);
        assert_eq!(found.std, 0.5);
        assert_eq!(GapStatistics::of([]), None);
    }

    #[test]
    fn splits_by_outcome_and_step() {
        let records = GapRecords(vec![
            record(1.0, OutcomeLabel::Success, 3),
            record(-1.0, OutcomeLabel::Failure, 0),
            record(3.0, OutcomeLabel::Success, 0),
        ]);
        assert_eq!(records.mean_by_step(), [(0, 1.0), (3, 1.0)]);
        let named = records.named("x/");
        let value = |name: &str| {
            named
                .iter()
                .find(|(found, _)| found == name)
                .map(|(_, value)| *value)
        };
        assert_eq!(value("x/gap_mean"), Some(1.0));
        assert_eq!(value("x/gap_success_mean"), Some(2.0));
        assert_eq!(value("x/gap_failure_p50"), Some(-1.0));
        assert_eq!(value("x/gap_reasoning_mean"), None);
        assert_eq!(records.share_within(1.5), 2.0 / 3.0);
    }
}
