//! One trained sequence: the recorded scores of its response tokens and what is known about it.
//!
//! In windowed contexts a sequence is one environment step; in transcript contexts it is a whole episode whose
//! response tokens lie between observations. Slices hold response tokens only, in order.
//!
//! Not for: token ids, prompts or tensors.

use serde::{Deserialize, Serialize};

use crate::RlError;

/// How the episode ended, as far as hindsight is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeLabel {
    /// The goal was reached.
    Success,
    /// It was not.
    Failure,
    /// It is not known.
    #[default]
    Unknown,
}

/// What a response token is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenSpan {
    /// The text the environment acts on.
    Action,
    /// What precedes or surrounds it: reasoning, tags, the end token.
    #[default]
    Reasoning,
}

/// The recorded scores of one sequence. Every non-empty slice has one value per response token, in nats where it is
/// a log-prob, all at the rollout temperature and from the same scoring code.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sequence<'a> {
    /// The trajectory it comes from; unique over all groups.
    pub trajectory: u64,
    /// How that trajectory ended.
    pub outcome: OutcomeLabel,
    /// The outcomes of its group all tie ([`Advantages::tied`](crate::Advantages::tied)).
    pub tied: bool,
    /// The skill-augmented context lost tokens to truncation, so its scores are not to be trusted.
    pub skill_truncated: bool,
    /// Which response tokens train. All false: the sequence adds to no numerator and no denominator.
    pub mask: &'a [bool],
    /// Advantage of each token (a row's advantage on all of its tokens).
    pub advantages: &'a [f32],
    /// Log-probs under the policy that acted, before the update (`ℓ_old`).
    pub old: &'a [f32],
    /// Log-probs under the frozen reference (`ℓ_ref`); needed when the KL coefficient is not 0.
    pub reference: Option<&'a [f32]>,
    /// Log-probs with the skill in the context (`ℓ_skill`); `None` when the trajectory has no skill.
    pub skill: Option<&'a [f32]>,
    /// Which tokens have a score in `skill`, where only some steps have a skill; empty = all. The others hold any finite
    /// value and are not guided.
    pub skill_tokens: &'a [bool],
    /// Log-probs with the step's own skill in the context, where they stand beside `skill` and not in it; a token of a step
    /// without a skill holds its old log-prob.
    pub step_skill: Option<&'a [f32]>,
    /// Log-probs by the same teacher without the skill, or with a neutral block of equal length in its place; the
    /// optional zero point of the gap.
    pub placebo: Option<&'a [f32]>,
    /// What each token is part of; empty = all [`TokenSpan::Reasoning`].
    pub spans: &'a [TokenSpan],
    /// Environment step of each token; empty = no split of metrics by step.
    pub steps: &'a [u32],
}

impl Sequence<'_> {
    /// Response tokens, trained or not.
    pub fn len(&self) -> usize {
        self.mask.len()
    }

    /// Whether there is no response token at all.
    pub fn is_empty(&self) -> bool {
        self.mask.is_empty()
    }

    /// Whether `skill`, where there is one, has a score for this token.
    pub fn has_skill_score(&self, token: usize) -> bool {
        self.skill_tokens.get(token).copied().unwrap_or(true)
    }

    /// What token `token` is part of.
    pub fn span(&self, token: usize) -> TokenSpan {
        self.spans.get(token).copied().unwrap_or_default()
    }

    /// Checks lengths, and that every score under the mask is finite. `index` names the sequence in errors.
    ///
    /// # Errors
    /// [`RlError::LengthMismatch`], [`RlError::NonFinite`].
    pub fn validate(&self, index: usize) -> Result<(), RlError> {
        let required = [("advantages", self.advantages), ("old", self.old)];
        let optional = [
            ("reference", self.reference),
            ("skill", self.skill),
            ("step_skill", self.step_skill),
            ("placebo", self.placebo),
        ];
        let scores = required.into_iter().chain(
            optional
                .into_iter()
                .filter_map(|(field, values)| Some((field, values?))),
        );
        for (field, values) in scores {
            self.check_scores(index, field, values)?;
        }
        for (field, found) in [
            ("spans", self.spans.len()),
            ("steps", self.steps.len()),
            ("skill_tokens", self.skill_tokens.len()),
        ] {
            if found != 0 && found != self.len() {
                return Err(RlError::LengthMismatch {
                    sequence: index,
                    field,
                    found,
                    expected: self.len(),
                });
            }
        }
        Ok(())
    }

    /// Checks one slice of per-token numbers against the mask.
    pub(crate) fn check_scores(
        &self,
        index: usize,
        field: &'static str,
        values: &[f32],
    ) -> Result<(), RlError> {
        if values.len() != self.len() {
            return Err(RlError::LengthMismatch {
                sequence: index,
                field,
                found: values.len(),
                expected: self.len(),
            });
        }
        let bad = values
            .iter()
            .zip(self.mask)
            .position(|(value, &trained)| trained && !value.is_finite());
        match bad {
            None => Ok(()),
            Some(token) => Err(RlError::NonFinite {
                sequence: index,
                trajectory: self.trajectory,
                field,
                token,
                value: values[token],
            }),
        }
    }
}
