//! From trajectories to the sequences of an update: masks, advantages, spans and recorded log-probs side by side.
//!
//! Everything here is a value with one entry per response token; nothing is recomputed from text.

use seed_model::{Decoder, TokenSequence};
use seed_rl::advantages::{Advantages, Row, advantages};
use seed_rl::gigpo::{StepRow, step_advantages};
use seed_rl::{AdvantageOptions, GigpoOptions, OutcomeLabel, TokenSpan};
use seed_rollout::{Sequence, Trajectory};

use crate::TrainError;

/// One sequence with everything the objective reads about it.
#[derive(Clone, Debug, Default)]
pub struct TrainedSequence {
    /// Index of its trajectory in the iteration.
    pub trajectory: usize,
    /// Ids and response positions.
    pub sequence: Sequence,
    /// Positions of all response ids.
    pub scored: Vec<u32>,
    /// How the episode ended.
    pub outcome: OutcomeLabel,
    /// Whether its group's outcomes all tie.
    pub tied: bool,
    /// Whether the skill context lost ids to truncation.
    pub skill_truncated: bool,
    /// Which response tokens train.
    pub mask: Vec<bool>,
    /// Group-relative advantage of the token's row.
    pub advantages: Vec<f32>,
    /// Behaviour log-probs, as recorded by the rollout.
    pub old: Vec<f32>,
    /// Log-probs under the reference.
    pub reference: Option<Vec<f32>>,
    /// Log-probs with the skill in the context.
    pub skill: Option<Vec<f32>>,
    /// Which tokens have a log-prob in `skill`, where only some steps have a skill; empty = all.
    pub skill_tokens: Vec<bool>,
    /// Log-probs with the step's own skill in the context, where they stand beside `skill`.
    pub step_skill: Option<Vec<f32>>,
    /// Log-probs of the same teacher without the skill, or with another in its place.
    pub placebo: Option<Vec<f32>>,
    /// Action or reasoning.
    pub spans: Vec<TokenSpan>,
    /// Step of each token.
    pub steps: Vec<u32>,
}

impl TrainedSequence {
    /// The view the objective reads.
    pub fn view(&self) -> seed_rl::Sequence<'_> {
        seed_rl::Sequence {
            trajectory: self.trajectory as u64,
            outcome: self.outcome,
            tied: self.tied,
            skill_truncated: self.skill_truncated,
            mask: &self.mask,
            advantages: &self.advantages,
            old: &self.old,
            reference: self.reference.as_deref(),
            skill: self.skill.as_deref(),
            skill_tokens: &self.skill_tokens,
            step_skill: self.step_skill.as_deref(),
            placebo: self.placebo.as_deref(),
            spans: &self.spans,
            steps: &self.steps,
        }
    }

    /// What the decoder scores.
    pub fn tokens(&self) -> TokenSequence<'_> {
        TokenSequence {
            tokens: &self.sequence.tokens,
            scored: &self.scored,
        }
    }
}

/// Computes the advantages of all steps and lays out the sequences of an iteration, in trajectory order. With `gigpo`,
/// step-level advantages are added to the episodes'.
///
/// # Errors
/// When the advantage options refuse the groups.
pub fn build(
    trajectories: &[Trajectory],
    options: &AdvantageOptions,
    gigpo: Option<&GigpoOptions>,
) -> Result<(Vec<TrainedSequence>, Advantages), TrainError> {
    let mut rows = Vec::new();
    let mut first_row = Vec::with_capacity(trajectories.len());
    for (index, trajectory) in trajectories.iter().enumerate() {
        first_row.push(rows.len());
        let score = trajectory.episode_return();
        for (step, record) in trajectory.steps.iter().enumerate() {
            rows.push(Row {
                group: trajectory.group,
                trajectory: index as u64,
                step: step as u32,
                score,
                valid: record.valid,
                trains: trajectory.outcome.trains(),
            });
        }
    }
    let mut computed = advantages(&rows, options)?;
    if let Some(gigpo) = gigpo {
        let steps: Vec<StepRow<'_>> = trajectories
            .iter()
            .flat_map(|trajectory| &trajectory.steps)
            .map(|step| StepRow {
                anchor: &step.observation,
                reward: step.reward,
            })
            .collect();
        let relative = step_advantages(&rows, &steps, options, gigpo);
        for (value, step) in computed.values.iter_mut().zip(relative) {
            *value = (f64::from(*value) + gigpo.weight * f64::from(step)) as f32;
        }
    }
    let mut sequences = Vec::new();
    for (index, (trajectory, &first)) in trajectories.iter().zip(&first_row).enumerate() {
        let excluded = computed
            .excluded
            .iter()
            .any(|excluded| excluded.trajectory == index as u64);
        let trains = trajectory.outcome.trains() && !excluded;
        let outcome = if trajectory.success() {
            OutcomeLabel::Success
        } else {
            OutcomeLabel::Failure
        };
        for sequence in trajectory.sequences() {
            let mut trained = TrainedSequence {
                trajectory: index,
                scored: sequence.scored_positions(),
                outcome,
                ..TrainedSequence::default()
            };
            for segment in &sequence.segments {
                // Segments are built from `trajectory.steps`, and rows were pushed for each of them.
                let Some(step) = trajectory.steps.get(segment.step) else {
                    continue;
                };
                let row = first + segment.step;
                let advantage = computed.values.get(row).copied().unwrap_or_default();
                trained.tied |= computed.tied.get(row).copied().unwrap_or_default();
                for token in 0..step.response_ids.len() {
                    trained.mask.push(trains);
                    trained.advantages.push(advantage);
                    trained.spans.push(if step.action_tokens.contains(&token) {
                        TokenSpan::Action
                    } else {
                        TokenSpan::Reasoning
                    });
                    trained.steps.push(segment.step as u32);
                }
                trained.old.extend(&step.log_probs);
            }
            trained.sequence = sequence;
            sequences.push(trained);
        }
    }
    Ok((sequences, computed))
}

/// Log-probs of every response token of `sequences` under `decoder`, in order.
///
/// # Errors
/// When a sequence does not fit the model or a score is not finite.
pub fn score(
    decoder: &Decoder,
    sequences: &[&Sequence],
    temperature: f32,
) -> Result<Vec<Vec<f32>>, TrainError> {
    let positions: Vec<Vec<u32>> = sequences
        .iter()
        .map(|sequence| sequence.scored_positions())
        .collect();
    let inputs: Vec<TokenSequence<'_>> = sequences
        .iter()
        .zip(&positions)
        .map(|(sequence, scored)| TokenSequence {
            tokens: &sequence.tokens,
            scored,
        })
        .collect();
    Ok(decoder
        .score(&inputs, temperature)?
        .into_iter()
        .map(|scores| scores.log_probs)
        .collect())
}

/// Scores all rows and takes that as the old policy's log-probs. `compare` is given, row by row, what stood there before and
/// what takes its place.
///
/// # Errors
/// As [`score`].
pub(super) fn replace_old(
    decoder: &Decoder,
    rows: &mut [TrainedSequence],
    temperature: f32,
    compare: &mut dyn FnMut(&[f32], &[f32]),
) -> Result<(), TrainError> {
    let plain: Vec<&Sequence> = rows.iter().map(|row| &row.sequence).collect();
    let scores = score(decoder, &plain, temperature)?;
    for (row, scores) in rows.iter_mut().zip(scores) {
        compare(&row.old, &scores);
        row.old = scores;
    }
    Ok(())
}
