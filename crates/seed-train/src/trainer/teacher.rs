//! The sampled tokens, scored again: under the reference, and by the teacher with skills in the context.
//!
//! Not for: what the scores do to the loss (`seed-rl`).

use std::ops::Range;

use seed_model::Decoder;
use seed_rollout::{Sequence, SequenceOptions, Trajectory};
use seed_run::Metrics;

use super::batch::{self, TrainedSequence};
use crate::TrainError;
use crate::config::{GapZero, Routing};
use crate::hindsight::{Analysis, Hindsight};
use crate::policy::Policy;

/// Who scores what, and how contexts are made.
pub(super) struct Teacher<'a> {
    /// The weights that read the skill.
    pub(super) decoder: &'a Decoder,
    /// Whether they are the policy's, whose plain scores are recorded.
    pub(super) is_policy: bool,
    pub(super) policy: &'a Policy,
    pub(super) hindsight: &'a Hindsight,
    pub(super) cut: SequenceOptions,
    pub(super) gap_zero: GapZero,
    pub(super) routing: Routing,
    pub(super) temperature: f32,
}

/// A sequence to score, and which trained sequence it belongs to.
struct Context {
    index: usize,
    sequence: Sequence,
}

impl Context {
    fn is_cut(&self) -> bool {
        self.sequence.segments.iter().any(|segment| segment.truncated > 0)
    }
}

/// The context of one step with a skill of its own.
struct StepContext {
    context: Context,
    /// The step's tokens among those of the trained sequence.
    tokens: Range<usize>,
}

/// What the gap of a trained sequence is measured from.
struct Placebo {
    index: usize,
    scores: Vec<f32>,
    /// Whether its context lost ids to truncation.
    is_cut: bool,
}

/// Scores all sequences under the reference.
///
/// # Errors
/// When a score is not finite.
pub(super) fn score_reference(
    reference: &Decoder,
    sequences: &mut [TrainedSequence],
    temperature: f32,
) -> Result<(), TrainError> {
    let plain: Vec<&Sequence> = sequences.iter().map(|trained| &trained.sequence).collect();
    let scores = batch::score(reference, &plain, temperature)?;
    for (trained, scores) in sequences.iter_mut().zip(scores) {
        trained.reference = Some(scores);
    }
    Ok(())
}

impl Teacher<'_> {
    /// Scores all sequences whose trajectories have skills, and records the length of what was read.
    pub(super) fn score(
        &self,
        trajectories: &[Trajectory],
        analyses: &[Analysis],
        sequences: &mut [TrainedSequence],
        metrics: &mut Metrics,
    ) -> Result<(), TrainError> {
        let span = tracing::debug_span!("rewrite_prompts", trajectories = trajectories.len()).entered();
        let episodes = self.contexts(trajectories, analyses, sequences, |analysis| {
            analysis.skill.as_deref()
        });
        let steps = self.step_contexts(trajectories, analyses, sequences);
        span.exit();
        let placebos = self.placebos(trajectories, analyses, sequences, &episodes)?;
        let episode_scores = self.scores(episodes.iter())?;
        for (context, scores) in episodes.iter().zip(episode_scores) {
            if let Some(trained) = sequences.get_mut(context.index) {
                trained.skill_truncated = context.is_cut();
                trained.skill = Some(scores);
            }
        }
        let step_scores = self.scores(steps.iter().map(|step| &step.context))?;
        for (step, scores) in steps.iter().zip(step_scores) {
            if let Some(trained) = sequences.get_mut(step.context.index) {
                trained.skill_truncated |= step.context.is_cut();
                self.add_step(trained, step.tokens.clone(), &scores);
            }
        }
        for placebo in placebos {
            if let Some(trained) = sequences.get_mut(placebo.index) {
                trained.skill_truncated |= placebo.is_cut;
                trained.placebo = Some(placebo.scores);
            }
        }
        if self.gap_zero != GapZero::Student {
            for trained in sequences.iter_mut().filter(|trained| trained.placebo.is_none()) {
                // Without its zero a gap cannot be taken.
                (trained.skill, trained.step_skill, trained.skill_truncated) = (None, None, false);
            }
        }
        let read: Vec<&Context> = episodes
            .iter()
            .chain(steps.iter().map(|step| &step.context))
            .collect();
        let lengths = || read.iter().map(|context| context.sequence.tokens.len());
        metrics.set(
            "seed/prompt_tokens_mean",
            lengths().sum::<usize>() as f64 / read.len().max(1) as f64,
        );
        metrics.set(
            "seed/prompt_tokens_maximum",
            lengths().max().unwrap_or_default() as f64,
        );
        metrics.set(
            "seed/prompts_truncated",
            read.iter().filter(|context| context.is_cut()).count() as f64,
        );
        Ok(())
    }

    /// Every sequence with the skill that `skill` picks in its prompts; none for trajectories without one, and for
    /// sequences that do not fit.
    fn contexts<'s>(
        &self,
        trajectories: &[Trajectory],
        analyses: &'s [Analysis],
        sequences: &[TrainedSequence],
        skill: impl Fn(&'s Analysis) -> Option<&'s str>,
    ) -> Vec<Context> {
        let mut rewritten: Vec<Vec<Option<Sequence>>> = trajectories
            .iter()
            .zip(analyses)
            .map(|(trajectory, analysis)| {
                let Some(skill) = skill(analysis) else {
                    return Vec::new();
                };
                let conversation = &self.policy.conversation;
                trajectory
                    .rewritten_sequences(conversation, &self.cut, |prompt| {
                        self.hindsight.place(prompt, skill)
                    })
                    .into_iter()
                    .map(Some)
                    .collect()
            })
            .collect();
        // A rewritten sequence belongs to the plain one whose first response is the same step.
        let first = |sequence: &Sequence| sequence.segments.first().map(|segment| segment.step);
        let mut contexts = Vec::new();
        for (index, trained) in sequences.iter().enumerate() {
            let matching = rewritten.get_mut(trained.trajectory).and_then(|candidates| {
                candidates
                    .iter_mut()
                    .find(|candidate| {
                        candidate
                            .as_ref()
                            .is_some_and(|candidate| first(candidate) == first(&trained.sequence))
                    })
                    .and_then(Option::take)
            });
            if let Some(sequence) = matching {
                contexts.push(Context { index, sequence });
            }
        }
        contexts
    }

    /// The steps that have a skill of their own.
    fn step_contexts(
        &self,
        trajectories: &[Trajectory],
        analyses: &[Analysis],
        sequences: &[TrainedSequence],
    ) -> Vec<StepContext> {
        let mut contexts = Vec::new();
        for (index, trained) in sequences.iter().enumerate() {
            let found = trajectories
                .get(trained.trajectory)
                .zip(analyses.get(trained.trajectory));
            let Some((trajectory, analysis)) = found else {
                continue;
            };
            let mut start = 0;
            for segment in &trained.sequence.segments {
                let tokens = start..start + segment.positions.len();
                start = tokens.end;
                let Some(skill) = analysis.step_skills.get(&segment.step) else {
                    continue;
                };
                let conversation = &self.policy.conversation;
                let rewritten = trajectory.rewritten_step(conversation, &self.cut, segment.step, |prompt| {
                    self.hindsight.place_step(prompt, skill)
                });
                if let Some(sequence) = rewritten {
                    let context = Context { index, sequence };
                    contexts.push(StepContext { context, tokens });
                }
            }
        }
        contexts
    }

    /// Puts the scores of a step where the routing wants them.
    fn add_step(&self, trained: &mut TrainedSequence, tokens: Range<usize>, scores: &[f32]) {
        let beside =
            self.routing == Routing::Additive && trained.skill.is_some() && trained.skill_tokens.is_empty();
        let values = if beside {
            trained.step_skill.get_or_insert_with(|| trained.old.clone())
        } else {
            if trained.skill.is_none() {
                trained.skill_tokens = vec![false; trained.old.len()];
            }
            if let Some(covered) = trained.skill_tokens.get_mut(tokens.clone()) {
                covered.fill(true);
            }
            trained.skill.get_or_insert_with(|| trained.old.clone())
        };
        if let Some(values) = values.get_mut(tokens)
            && values.len() == scores.len()
        {
            values.copy_from_slice(scores);
        }
    }

    /// What gaps are measured from, where it is not the student's own score.
    fn placebos(
        &self,
        trajectories: &[Trajectory],
        analyses: &[Analysis],
        sequences: &[TrainedSequence],
        episodes: &[Context],
    ) -> Result<Vec<Placebo>, TrainError> {
        let indices: Vec<usize> = match self.gap_zero {
            GapZero::Student => return Ok(Vec::new()),
            GapZero::OtherSkill => {
                let contexts = self.contexts(trajectories, analyses, sequences, |analysis| {
                    analysis.placebo.as_deref()
                });
                let scores = self.scores(contexts.iter())?;
                let with = |(context, scores): (&Context, _)| Placebo {
                    index: context.index,
                    scores,
                    is_cut: context.is_cut(),
                };
                return Ok(contexts.iter().zip(scores).map(with).collect());
            }
            // Step skills have no sequence of their own here: all sequences of their trajectories are scored.
            GapZero::Teacher if analyses.iter().any(|analysis| !analysis.step_skills.is_empty()) => {
                let has_skill = |trained: &TrainedSequence| {
                    analyses.get(trained.trajectory).is_some_and(Analysis::has_skill)
                };
                (0..sequences.len())
                    .filter(|&index| sequences.get(index).is_some_and(has_skill))
                    .collect()
            }
            GapZero::Teacher => episodes.iter().map(|context| context.index).collect(),
        };
        let plain: Vec<&TrainedSequence> = indices.iter().filter_map(|&index| sequences.get(index)).collect();
        let scores: Vec<Vec<f32>> = if self.is_policy {
            // The policy is its own teacher: its plain scores are the recorded ones.
            plain.iter().map(|trained| trained.old.clone()).collect()
        } else {
            let plain: Vec<&Sequence> = plain.iter().map(|trained| &trained.sequence).collect();
            batch::score(self.decoder, &plain, self.temperature)?
        };
        let plain = |(index, scores)| Placebo {
            index,
            scores,
            is_cut: false,
        };
        Ok(indices.into_iter().zip(scores).map(plain).collect())
    }

    fn scores<'c>(&self, contexts: impl Iterator<Item = &'c Context>) -> Result<Vec<Vec<f32>>, TrainError> {
        let sequences: Vec<&Sequence> = contexts.map(|context| &context.sequence).collect();
        batch::score(self.decoder, &sequences, self.temperature)
    }
}
