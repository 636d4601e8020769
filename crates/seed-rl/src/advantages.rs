//! Group-relative advantages (GRPO, arXiv 2402.03300, as used by SEED, arXiv 2607.14777).
//!
//! For a group `u` of trajectories sampled for one task, with `S_u` the scores that enter its statistics:
//!
//! ```text
//! mean_std:  A_r = (s_r − mean(S_u)) / (max(std(S_u), floor) + 1e-6)
//! mean:      A_r =  s_r − mean(S_u)
//! ```
//!
//! `S_u` holds every row of the group ([`StatisticUnit::Step`], the released code: long trajectories weigh more) or
//! one score per trajectory ([`StatisticUnit::Trajectory`], the paper's formula). Groups are formed by id and summed
//! in a canonical order, so the order in which rollouts finish cannot change a bit.
//!
//! Not for: per-token shaping, which an [`Algorithm`](crate::Algorithm) adds later.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use crate::RlError;

/// Added to the standard deviation before dividing.
const SIGMA_EPSILON: f64 = 1e-6;

/// What one sample of a group's statistics is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StatisticUnit {
    /// Every row (environment step): the released code's behaviour.
    Step,
    /// The first row of every trajectory: the paper's formula.
    Trajectory,
}

/// How scores of a group are brought to a common scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Normalisation {
    /// Subtract the mean, divide by the standard deviation.
    MeanStd,
    /// Subtract the mean only.
    Mean,
}

/// Where the invalid-action penalty enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PenaltyPlacement {
    /// Subtracted from the row's score before the statistics (the reference). In a group whose outcomes tie, the
    /// normalisation then blows the penalty up to full size.
    InScore,
    /// Subtracted from the finished advantage; statistics see outcomes only.
    OutsideNormalisation,
}

/// Options of [`advantages`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdvantageOptions {
    /// What one sample of the statistics is.
    pub statistic_unit: StatisticUnit,
    /// Mean only, or mean and standard deviation.
    pub normalisation: Normalisation,
    /// Delta degrees of freedom of the standard deviation: 1 = sample, 0 = population.
    pub ddof: u8,
    /// Smallest standard deviation divided by (before the 1e-6); 0 = none. In units of the score.
    pub sigma_floor: f64,
    /// Subtracted for a row whose action is invalid; 0 = none. In units of the score.
    pub invalid_action_penalty: f64,
    /// Where that penalty enters.
    pub penalty_placement: PenaltyPlacement,
    /// Accept groups with one trajectory, at advantage 0.
    pub allow_single: bool,
}

impl Default for AdvantageOptions {
    /// The paper's ALFWorld run: step statistics, sample deviation, penalty 0.1 inside the score.
    fn default() -> Self {
        Self {
            statistic_unit: StatisticUnit::Step,
            normalisation: Normalisation::MeanStd,
            ddof: 1,
            sigma_floor: 0.0,
            invalid_action_penalty: 0.1,
            penalty_placement: PenaltyPlacement::InScore,
            allow_single: false,
        }
    }
}

impl AdvantageOptions {
    /// Checks the options' ranges.
    ///
    /// # Errors
    /// [`RlError::InvalidOption`] naming the option.
    pub fn validate(&self) -> Result<(), RlError> {
        let rules: [(&'static str, f64); 2] = [
            ("sigma_floor", self.sigma_floor),
            ("invalid_action_penalty", self.invalid_action_penalty),
        ];
        for (option, value) in rules {
            if !value.is_finite() || value < 0.0 {
                return Err(RlError::InvalidOption {
                    option,
                    value: value.to_string(),
                    rule: "finite and not negative",
                });
            }
        }
        if self.ddof > 1 {
            return Err(RlError::InvalidOption {
                option: "ddof",
                value: self.ddof.to_string(),
                rule: "0 (population) or 1 (sample)",
            });
        }
        Ok(())
    }

    /// What a row's action costs: inside the score, and outside of the normalisation.
    pub(crate) fn penalties(&self, valid: bool) -> (f64, f64) {
        let penalty = if valid { 0.0 } else { self.invalid_action_penalty };
        match self.penalty_placement {
            PenaltyPlacement::InScore => (penalty, 0.0),
            PenaltyPlacement::OutsideNormalisation => (0.0, penalty),
        }
    }

    /// What differences to `mean` are divided by, from two or more scores, summed in their order.
    pub(crate) fn scale(&self, scores: impl ExactSizeIterator<Item = f64>, mean: f64) -> f64 {
        match self.normalisation {
            Normalisation::Mean => 1.0,
            Normalisation::MeanStd => {
                let count = scores.len();
                let squares: f64 = scores.map(|score| (score - mean) * (score - mean)).sum();
                // With two scores or more the divisor is at least 1.
                let sigma = (squares / (count - usize::from(self.ddof)) as f64).sqrt();
                sigma.max(self.sigma_floor) + SIGMA_EPSILON
            }
        }
    }
}

/// One environment step as the statistics see it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// The group (task instance) it belongs to.
    pub group: u64,
    /// Its trajectory; unique over all groups.
    pub trajectory: u64,
    /// 0-based step in the trajectory.
    pub step: u32,
    /// Undiscounted episode return, the same for every row of the trajectory, without penalty.
    pub score: f32,
    /// Whether the response obeyed the action format.
    pub valid: bool,
    /// Whether the row may train. A row that may not (environment error, cancelled) has advantage 0 and does not
    /// enter the statistics. A row that should count but not train has an empty response mask instead.
    pub trains: bool,
}

/// A trajectory left out because its score is not a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExcludedTrajectory {
    /// Its group.
    pub group: u64,
    /// The trajectory.
    pub trajectory: u64,
    /// The first step whose score is not finite.
    pub step: u32,
    /// That score.
    pub score: f32,
}

/// Advantages of a batch, with what happened on the way.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Advantages {
    /// One advantage per row, in the order the rows were given.
    pub values: Vec<f32>,
    /// Per row: whether the outcomes of its group all tie, so that outcome says nothing about the row.
    pub tied: Vec<bool>,
    /// Groups with at least one row that counts.
    pub groups: usize,
    /// Groups whose statistic scores (penalties included where they are in the score) are all equal. Their
    /// advantages are exactly 0 (apart from a penalty outside the normalisation).
    pub zero_std_groups: usize,
    /// Groups whose scores without penalties are all equal.
    pub tied_outcome_groups: usize,
    /// Groups left with one trajectory; advantage 0.
    pub single_groups: usize,
    /// Trajectories with a non-finite score, in canonical order; advantage 0.
    pub excluded: Vec<ExcludedTrajectory>,
    /// Rows that may not train; advantage 0.
    pub untrained_rows: usize,
}

impl Advantages {
    /// Share of groups with zero standard deviation; 0 for an empty batch.
    pub fn frac_zero_std(&self) -> f64 {
        if self.groups == 0 {
            0.0
        } else {
            self.zero_std_groups as f64 / self.groups as f64
        }
    }
}

/// Group-relative advantages of `rows` (any order, any interleaving of groups).
///
/// # Errors
/// [`RlError::GroupOfOne`] when a group was given one trajectory and `allow_single` is off;
/// [`RlError::InvalidOption`] from [`AdvantageOptions::validate`].
pub fn advantages(rows: &[Row], options: &AdvantageOptions) -> Result<Advantages, RlError> {
    options.validate()?;
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by(|&left, &right| canonical(&rows[left], &rows[right]));

    let mut result = Advantages {
        values: vec![0.0; rows.len()],
        tied: vec![false; rows.len()],
        untrained_rows: rows.iter().filter(|row| !row.trains).count(),
        ..Advantages::default()
    };
    for group in order.chunk_by(|&left, &right| rows[left].group == rows[right].group) {
        group_advantages(rows, group, options, &mut result)?;
    }
    Ok(result)
}

/// The order of summation: by ids, then by content, so that equal keys are interchangeable.
fn canonical(left: &Row, right: &Row) -> Ordering {
    let key = |row: &Row| (row.group, row.trajectory, row.step, row.valid, row.trains);
    key(left)
        .cmp(&key(right))
        .then(left.score.total_cmp(&right.score))
}

/// Advantages of one group; `group` holds its row indices in canonical order.
fn group_advantages(
    rows: &[Row],
    group: &[usize],
    options: &AdvantageOptions,
    result: &mut Advantages,
) -> Result<(), RlError> {
    let mut counted: Vec<usize> = Vec::with_capacity(group.len());
    let mut first_rows: Vec<usize> = Vec::new();
    let mut given = 0;
    for trajectory in group.chunk_by(|&left, &right| rows[left].trajectory == rows[right].trajectory) {
        given += 1;
        if let Some(&bad) = trajectory.iter().find(|&&row| !rows[row].score.is_finite()) {
            let Row {
                group,
                trajectory,
                step,
                score,
                ..
            } = rows[bad];
            result.excluded.push(ExcludedTrajectory {
                group,
                trajectory,
                step,
                score,
            });
            continue;
        }
        let before = counted.len();
        counted.extend(trajectory.iter().copied().filter(|&row| rows[row].trains));
        first_rows.extend(counted.get(before).copied());
    }
    let Some(&first) = group.first() else {
        return Ok(());
    };
    if given == 1 && !options.allow_single {
        return Err(RlError::GroupOfOne {
            group: rows[first].group,
        });
    }
    if counted.is_empty() {
        return Ok(());
    }
    result.groups += 1;

    let outcome = |row: usize| f64::from(rows[row].score);
    let score = |row: usize| outcome(row) - options.penalties(rows[row].valid).0;
    let outcomes_tie = all_equal(counted.iter().map(|&row| outcome(row)));
    result.tied_outcome_groups += usize::from(outcomes_tie);
    for &row in &counted {
        result.tied[row] = outcomes_tie;
    }
    if first_rows.len() == 1 {
        result.single_groups += 1;
        return Ok(());
    }

    let sample: &[usize] = match options.statistic_unit {
        StatisticUnit::Step => &counted,
        StatisticUnit::Trajectory => &first_rows,
    };
    let zero_std = all_equal(sample.iter().map(|&row| score(row)));
    result.zero_std_groups += usize::from(zero_std);
    // The mean of equal numbers is taken as that number: a rounded sum divided by the count may miss it by a bit,
    // and the advantage of a tied group has to be exactly 0.
    let mean = if zero_std {
        sample.first().map_or(0.0, |&row| score(row))
    } else {
        sample.iter().map(|&row| score(row)).sum::<f64>() / sample.len() as f64
    };
    // Two trajectories give at least two samples.
    let scale = options.scale(sample.iter().map(|&row| score(row)), mean);
    for &row in &counted {
        let (_, outside) = options.penalties(rows[row].valid);
        // Statistics over first rows may tie while a later row carries a penalty: dividing by the bare epsilon
        // would give it an advantage of 1e5.
        let relative =
            if zero_std && options.sigma_floor == 0.0 && options.normalisation == Normalisation::MeanStd {
                0.0
            } else {
                (score(row) - mean) / scale
            };
        result.values[row] = (relative - outside) as f32;
    }
    Ok(())
}

/// Whether no two values differ.
pub(crate) fn all_equal(mut values: impl Iterator<Item = f64>) -> bool {
    let first = values.next();
    values.all(|value| Some(value) == first)
}
