//! GiGPO: GRPO with a second, step-level advantage among steps that started from the same observation.
//!
//! ```text
//! R_t    = r_t + γ·R_{t+1}                                  rewards of the trajectory, penalties included, γ = 0.95
//! S      = returns of the group's steps that saw the same observation
//! A_step = R_t − mean(S)        or  (R_t − mean(S)) / (std(S) + 1e-6)
//! A      = A_episode + w·A_step                             w = 1
//! ```
//!
//! Members of a group begin in the same state and pass through common ones; steps that saw the same observation are
//! alternatives to each other. A step that no other shares its observation with has step advantage 0. Normalisation and
//! deviation are those of the episode's advantage ([`AdvantageOptions`]); the published setting subtracts the mean only.
//! Observations are the same when their texts are; clustering similar texts is not here.
//!
//! Not for: teachers; there is none.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::advantages::{AdvantageOptions, Row, all_equal};
use crate::algorithm::{Algorithm, Guidance};
use crate::returns::discounted_returns;
use crate::{RlError, Sequence};

/// Options of [`Gigpo`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GigpoOptions {
    /// `w`: weight of the step advantage.
    pub weight: f64,
    /// `γ`: discount of step rewards.
    pub discount: f64,
}

impl Default for GigpoOptions {
    /// The published w 1, γ 0.95.
    fn default() -> Self {
        Self {
            weight: 1.0,
            discount: 0.95,
        }
    }
}

/// What step-level grouping knows of one row beyond [`Row`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepRow<'a> {
    /// The raw observation the step started from.
    pub anchor: &'a str,
    /// Reward of the step.
    pub reward: f32,
}

/// Advantages of `rows` among the steps that saw the same observation, one per row; `steps` runs beside them. Rows that
/// may not train, and rows of trajectories with a reward that is not finite, have advantage 0 and are in no group.
pub fn step_advantages(
    rows: &[Row],
    steps: &[StepRow<'_>],
    advantage: &AdvantageOptions,
    options: &GigpoOptions,
) -> Vec<f32> {
    let mut trajectories: BTreeMap<(u64, u64), Vec<usize>> = BTreeMap::new();
    for (index, row) in rows.iter().enumerate() {
        trajectories
            .entry((row.group, row.trajectory))
            .or_default()
            .push(index);
    }
    // Groups in the order of their ids and texts, members in that of trajectory and step: sums have one order.
    let mut groups: BTreeMap<(u64, &str), Vec<(usize, f64)>> = BTreeMap::new();
    for ((group, _), mut members) in trajectories {
        members.sort_by_key(|&index| rows[index].step);
        let rewards: Vec<f32> = members
            .iter()
            .map(|&index| {
                let (penalty, _) = advantage.penalties(rows[index].valid);
                steps.get(index).map_or(0.0, |step| step.reward) - penalty as f32
            })
            .collect();
        let counts = |index: usize| rows[index].trains && rows[index].score.is_finite();
        if !rewards.iter().all(|reward| reward.is_finite()) || !members.iter().all(|&index| counts(index)) {
            continue;
        }
        for (index, value) in members
            .into_iter()
            .zip(discounted_returns(&rewards, options.discount))
        {
            if let Some(step) = steps.get(index) {
                groups
                    .entry((group, step.anchor))
                    .or_default()
                    .push((index, value));
            }
        }
    }
    let mut advantages = vec![0.0; rows.len()];
    for members in groups.values() {
        let returns = || members.iter().map(|member| member.1);
        // Exactly 0 for steps alone and for equal returns, which a rounded mean may miss by a bit.
        if all_equal(returns()) {
            continue;
        }
        let mean = returns().sum::<f64>() / members.len() as f64;
        let scale = advantage.scale(returns(), mean);
        for &(index, value) in members {
            advantages[index] = ((value - mean) / scale) as f32;
        }
    }
    advantages
}

/// GRPO over advantages to which [`step_advantages`] were added.
#[derive(Clone, Copy, Debug)]
pub struct Gigpo;

impl Gigpo {
    /// The algorithm; its options act where rows become advantages.
    ///
    /// # Errors
    /// [`RlError::InvalidOption`] naming the option.
    pub fn new(options: &GigpoOptions) -> Result<Self, RlError> {
        let GigpoOptions { weight, discount } = *options;
        if !weight.is_finite() || weight < 0.0 || !(0.0..=1.0).contains(&discount) {
            return Err(RlError::InvalidOption {
                option: "gigpo",
                value: format!("weight {weight}, discount {discount}"),
                rule: "a weight that is finite and not negative, and a discount in [0, 1]",
            });
        }
        Ok(Self)
    }
}

impl Algorithm for Gigpo {
    fn name(&self) -> &'static str {
        "gigpo"
    }

    fn reads_skills(&self) -> bool {
        false
    }

    fn guide(&self, batch: &[Sequence<'_>], _update: u64) -> Result<Guidance, RlError> {
        Ok(Guidance::none(batch.len()))
    }
}
