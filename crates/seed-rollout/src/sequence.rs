//! Token sequences to score or train, built from recorded ids.
//!
//! A windowed trajectory gives one sequence per step; a transcript trajectory gives one sequence for the episode.
//! Either way each response is a [`Segment`], and it is segments (the rows of the losses) that carry advantages and
//! masks. The response ids are copied from the record, never re-encoded.

use std::ops::Range;

use seed_env::ContextKind;

use crate::{Conversation, Trajectory, Truncation};

/// One response inside a sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Step of the trajectory.
    pub step: usize,
    /// Positions of the response's ids inside the sequence.
    pub positions: Range<usize>,
    /// Prompt ids that were cut from the left of this segment's context.
    pub truncated: usize,
}

/// Ids with the responses to score.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Sequence {
    /// All ids, prompts and responses in order.
    pub tokens: Vec<u32>,
    /// The responses, in order.
    pub segments: Vec<Segment>,
}

impl Sequence {
    /// Positions of all response ids, increasing.
    pub fn scored_positions(&self) -> Vec<u32> {
        self.segments
            .iter()
            .flat_map(|segment| segment.positions.clone())
            .map(|position| position as u32)
            .collect()
    }
}

/// How a changed context (a skill in the prompt) is cut to the limit.
#[derive(Clone, Copy, Debug)]
pub struct SequenceOptions {
    /// Longest prompt of a windowed step, in ids.
    pub max_prompt_tokens: usize,
    /// What happens to a longer one. Rows that would lose ids under [`Truncation::Error`] are left out.
    pub truncation: Truncation,
    /// Longest transcript sequence, in ids; a longer one gives no sequence.
    pub context_length: usize,
}

impl Trajectory {
    /// The sequences as they were sampled.
    pub fn sequences(&self) -> Vec<Sequence> {
        self.assemble(
            |_, step| Some((step.prompt_ids.clone(), step.prompt_ids_truncated)),
            usize::MAX,
        )
    }

    /// The same responses under changed prompts: `rewrite` maps a user message to the one with the skill in it. In a
    /// transcript only the opening changes, so the skill goes in once and everything after it is the recorded ids.
    pub fn rewritten_sequences(
        &self,
        conversation: &Conversation,
        options: &SequenceOptions,
        mut rewrite: impl FnMut(&str) -> String,
    ) -> Vec<Sequence> {
        let transcript = self.context == ContextKind::Transcript;
        let limit = if transcript {
            options.context_length
        } else {
            usize::MAX
        };
        self.assemble(
            |index, step| {
                if transcript && index > 0 {
                    return Some((step.prompt_ids.clone(), 0));
                }
                let mut ids = conversation.opening(&rewrite(&step.prompt_text));
                let cut = if transcript {
                    0
                } else {
                    options.truncation.cut(&mut ids, options.max_prompt_tokens)?
                };
                Some((ids, cut))
            },
            limit,
        )
    }

    /// The response of one step alone, under a changed prompt of that step: what came before it is the recorded ids. `None`
    /// where there is no such step, or the sequence does not fit.
    pub fn rewritten_step(
        &self,
        conversation: &Conversation,
        options: &SequenceOptions,
        step: usize,
        rewrite: impl FnOnce(&str) -> String,
    ) -> Option<Sequence> {
        let changed = self.steps.get(step)?;
        let text = rewrite(&changed.prompt_text);
        let mut tokens = Vec::new();
        match (
            self.context,
            step.checked_sub(1).and_then(|last| self.steps.get(last)),
        ) {
            (ContextKind::Transcript, Some(before)) => {
                for earlier in self.steps.iter().take(step) {
                    tokens.extend(&earlier.prompt_ids);
                    tokens.extend(&earlier.response_ids);
                }
                tokens.extend(conversation.next_turn(&text, before.response_ids.last().copied()));
            }
            _ => tokens = conversation.opening(&text),
        }
        let truncated = if self.context == ContextKind::Windowed {
            options.truncation.cut(&mut tokens, options.max_prompt_tokens)?
        } else {
            0
        };
        let start = tokens.len();
        tokens.extend(&changed.response_ids);
        let fits = self.context == ContextKind::Windowed || tokens.len() <= options.context_length;
        fits.then(|| Sequence {
            segments: vec![Segment {
                step,
                positions: start..tokens.len(),
                truncated,
            }],
            tokens,
        })
    }

    fn assemble(
        &self,
        mut prompt: impl FnMut(usize, &crate::Step) -> Option<(Vec<u32>, usize)>,
        limit: usize,
    ) -> Vec<Sequence> {
        let mut sequences = Vec::new();
        let mut current = Sequence::default();
        for (index, step) in self.steps.iter().enumerate() {
            if self.context == ContextKind::Windowed {
                current = Sequence::default();
            }
            let Some((ids, truncated)) = prompt(index, step) else {
                continue;
            };
            current.tokens.extend(ids);
            let start = current.tokens.len();
            current.tokens.extend(&step.response_ids);
            current.segments.push(Segment {
                step: index,
                positions: start..current.tokens.len(),
                truncated,
            });
            if self.context == ContextKind::Windowed {
                sequences.push(std::mem::take(&mut current));
            }
        }
        if !current.segments.is_empty() {
            sequences.push(current);
        }
        sequences.retain(|sequence| sequence.tokens.len() <= limit);
        sequences
    }
}
