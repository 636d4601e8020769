//! What the methods with a teacher context have in common: which tokens the teacher's scores guide, and the report of it.
//!
//! A teacher scores the sampled tokens again with a skill in the context. The methods differ in what they do with the
//! score: a loss of its own ([`crate::sdar`], [`crate::opsd`], [`crate::grpo_opsd`], [`crate::skill_sd`]), or another
//! advantage ([`crate::rlsd`], [`crate::serl`], [`crate::opid`]).
//!
//! Not for: SEED's filters and gates ([`crate::seed`]).

use crate::Sequence;
use crate::algorithm::{Guidance, SequenceGuidance};
use crate::seed::{TokenSelection, guidance_report};

/// Gives a token of a sequence its new advantage.
pub(crate) type Reshape<'a> = &'a dyn Fn(&Sequence<'_>, usize) -> f64;

/// Which sequences and tokens a teacher guides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Coverage {
    /// Which response tokens.
    pub(crate) tokens: TokenSelection,
    /// Leave out sequences whose skill context was truncated.
    pub(crate) truncation_guard: bool,
}

impl Coverage {
    /// All response tokens.
    pub(crate) fn all(truncation_guard: bool) -> Self {
        Self {
            tokens: TokenSelection::All,
            truncation_guard,
        }
    }

    /// The guidance of all covered tokens: an auxiliary loss of weight `coefficient`, and advantages where `reshape`
    /// gives them.
    pub(crate) fn guide(
        self,
        batch: &[Sequence<'_>],
        coefficient: f64,
        reshape: Option<Reshape<'_>>,
    ) -> Guidance {
        let covered = |sequence: &Sequence<'_>| {
            sequence.skill.is_some() && !(self.truncation_guard && sequence.skill_truncated)
        };
        let sequences: Vec<SequenceGuidance> = batch
            .iter()
            .map(|sequence| {
                if !covered(sequence) {
                    return SequenceGuidance::default();
                }
                let mask = self.tokens.mask(sequence);
                let advantages = reshape.map(|reshape| {
                    mask.iter()
                        .zip(sequence.advantages)
                        .enumerate()
                        .map(|(token, (&guided, &advantage))| {
                            if guided {
                                reshape(sequence, token) as f32
                            } else {
                                advantage
                            }
                        })
                        .collect()
                });
                SequenceGuidance { advantages, mask }
            })
            .collect();
        let mut report = guidance_report(batch, &sequences, |sequence, token| {
            initial_gap(sequence, token) as f32
        });
        for (sequence, guided) in batch.iter().zip(&sequences) {
            if sequence.mask.contains(&true) && !guided.mask.contains(&true) {
                match sequence.skill {
                    None => report.without_skill += 1,
                    Some(_) if !covered(sequence) => report.truncated += 1,
                    Some(_) => report.without_selected_tokens += 1,
                }
            }
        }
        Guidance {
            coefficient,
            sequences,
            report,
        }
    }
}

/// `ℓ_skill − ℓ_old` of a token, in nats; 0 without a skill.
pub(crate) fn initial_gap(sequence: &Sequence<'_>, token: usize) -> f64 {
    sequence.skill.map_or(0.0, |skill| {
        f64::from(skill[token]) - f64::from(sequence.old[token])
    })
}
