//! Whether the log-probs that the rollout recorded are those of the policy.
//!
//! An update takes the recorded log-probs as the old policy's and makes no pass of its own for them. That is right as long
//! as scoring gives the bits that generation gave, so some rows of every iteration are scored again before the weights
//! change.
//!
//! Not for: repairing anything. A difference means that the program or the machine computes wrongly, and then every other
//! number of the iteration is in doubt.

use seed_env::TaskId;
use seed_model::Decoder;
use seed_random::{Draw, RandomKey};
use seed_rollout::{Sequence, Trajectory};
use seed_run::Metrics;
use thiserror::Error;

use super::batch::{self, TrainedSequence};
use crate::TrainError;

/// The first recorded log-prob that scoring did not give again, to the last bit.
#[derive(Clone, Debug, PartialEq, Error)]
#[error(
    "iteration {iteration}: the rollout recorded a log-prob that scoring does not give again: task `{task}`, group \
     {group}, sample {sample}, step {step}, response token {token}: recorded `{recorded}` (bits {:08x}), scored \
     `{scored}` (bits {:08x}); {differing} of the {tokens} tokens in {rows} checked rows differ. Nothing was updated. \
     Continue from the last checkpoint with `--resume`: if the same difference comes back, it is a fault of the \
     program, to be reported; if not, suspect the processor or the memory. `rollout.self_check_share = 0` trains \
     without the check",
    recorded.to_bits(),
    scored.to_bits()
)]
pub struct LogProbMismatch {
    /// The iteration whose rollout it was, from 1.
    pub iteration: u64,
    /// Task of the episode.
    pub task: TaskId,
    /// Group of the episode.
    pub group: u64,
    /// Position of the episode inside the group.
    pub sample: u32,
    /// Step of the episode, from 0.
    pub step: usize,
    /// Index of the token in the step's response, from 0.
    pub token: usize,
    /// What the rollout recorded, in nats.
    pub recorded: f32,
    /// What scoring gives, in nats.
    pub scored: f32,
    /// Tokens that differ, over all checked rows.
    pub differing: usize,
    /// Tokens checked.
    pub tokens: usize,
    /// Rows checked.
    pub rows: usize,
}

/// Indices of the rows to check, increasing: `share` of `count`, rounded up, without repetition.
pub(super) fn choose(count: usize, share: f64, key: RandomKey) -> Vec<usize> {
    let mut rows: Vec<usize> = (0..count).collect();
    key.generator().shuffle(&mut rows);
    rows.truncate((share * count as f64).ceil() as usize);
    rows.sort_unstable();
    rows
}

/// Scores the rows at `chosen` again, whole, and compares every log-prob with the recorded one.
///
/// `temperature` is the rollout's. Counts go to `metrics`.
///
/// # Errors
/// [`LogProbMismatch`] for the first difference in the order of rows and tokens; otherwise as [`Decoder::score`].
pub(super) fn check(
    decoder: &Decoder,
    trajectories: &[Trajectory],
    sequences: &[TrainedSequence],
    chosen: &[usize],
    temperature: f32,
    iteration: u64,
    metrics: &mut Metrics,
) -> Result<(), TrainError> {
    let rows: Vec<&TrainedSequence> = chosen.iter().filter_map(|&index| sequences.get(index)).collect();
    let plain: Vec<&Sequence> = rows.iter().map(|row| &row.sequence).collect();
    let scores = batch::score(decoder, &plain, temperature)?;
    let mut tokens = 0;
    let mut differences = Vec::new();
    for (row, scored) in rows.iter().zip(&scores) {
        let places = row
            .sequence
            .segments
            .iter()
            .flat_map(|segment| (0..segment.positions.len()).map(|token| (segment.step, token)));
        tokens += row.old.len();
        differences.extend(
            row.old
                .iter()
                .zip(scored)
                .zip(places)
                .filter(|((recorded, scored), _)| recorded.to_bits() != scored.to_bits())
                .map(|((&recorded, &scored), place)| (row.trajectory, place, recorded, scored)),
        );
    }
    metrics.set("self_check/rows", rows.len() as f64);
    metrics.set("self_check/tokens", tokens as f64);
    let Some(&(trajectory, (step, token), recorded, scored)) = differences.first() else {
        return Ok(());
    };
    // Sequences are built from these trajectories and hold their indices.
    let Some(trajectory) = trajectories.get(trajectory) else {
        return Ok(());
    };
    Err(Box::new(LogProbMismatch {
        iteration,
        task: trajectory.task.clone(),
        group: trajectory.group,
        sample: trajectory.sample,
        step,
        token,
        recorded,
        scored,
        differing: differences.len(),
        tokens,
        rows: rows.len(),
    })
    .into())
}
