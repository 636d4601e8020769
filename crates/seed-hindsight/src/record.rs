//! Training records of the hindsight-skill stage and their split.
//!
//! Not for: reading or writing files.

use seed_random::{Draw, RandomKey};
use serde::{Deserialize, Serialize};

/// One pair of analysis prompt and answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SftRecord {
    /// The analysis prompt: one user message, before any chat template.
    pub prompt: String,
    /// The answer: a compact JSON object.
    pub response: String,
    /// The trajectory the skill came from, as `task:rollout`.
    pub skill_id: String,
    /// The task.
    pub task_id: String,
    /// Its family.
    pub task_type: String,
    /// Whether that trajectory succeeded; `None` when unknown.
    pub source_success: Option<bool>,
    /// Its number of environment steps.
    pub source_num_steps: usize,
}

/// Indices of records, each in exactly one part, both in shuffled order.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RecordSplit {
    /// For training.
    pub train: Vec<usize>,
    /// For validation.
    pub validation: Vec<usize>,
}

/// Shuffles `count` records with `key` and puts `round(validation_share · count)`, at least one and not all, aside
/// for validation. A single record trains.
pub fn split_records(count: usize, key: RandomKey, validation_share: f64) -> RecordSplit {
    let mut order: Vec<usize> = (0..count).collect();
    key.generator().shuffle(&mut order);
    let wanted = (validation_share * count as f64).round().max(0.0) as usize;
    let validation = if count < 2 { 0 } else { wanted.clamp(1, count - 1) };
    let train = order.split_off(validation);
    RecordSplit {
        train,
        validation: order,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_paper_s_share() {
        let split = split_records(1440, RandomKey::new(2026), 0.1);
        assert_eq!((split.train.len(), split.validation.len()), (1296, 144));
        assert_eq!(split, split_records(1440, RandomKey::new(2026), 0.1));
        assert_ne!(
            split.validation,
            split_records(1440, RandomKey::new(2027), 0.1).validation
        );
        assert_ne!(split.validation, (0..144).collect::<Vec<_>>());
    }

    #[test]
    fn small_sets_keep_something_on_both_sides() {
        let sizes = |count, share| {
            let split = split_records(count, RandomKey::new(1), share);
            (split.train.len(), split.validation.len())
        };
        assert_eq!(sizes(0, 0.1), (0, 0));
        assert_eq!(sizes(1, 0.1), (1, 0));
        assert_eq!(sizes(2, 0.1), (1, 1));
        assert_eq!(sizes(3, 1.0), (1, 2));
        assert_eq!(sizes(15, 0.1), (13, 2));
    }

    proptest! {
        #[test]
        fn every_record_is_in_one_part(count in 0usize..200, seed in any::<u64>()) {
            let split = split_records(count, RandomKey::new(seed), 0.1);
            let mut all = [split.train, split.validation].concat();
            all.sort_unstable();
            prop_assert_eq!(all, (0..count).collect::<Vec<_>>());
        }
    }
}
