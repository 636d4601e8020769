//! SEED: GRPO with gated distillation of the policy's own hindsight skills (arXiv 2607.14777).
//!
//! ```text
//! Δ = ℓ_skill − sg[ℓ_θ]          gap of a sampled token, in nats
//! g = sg[σ(βΔ)]                  gate
//! e = g·(ℓ_skill − ℓ_θ)          token loss; gradient −g
//! L = L_GRPO + λ·Σ m·e / Σ m     m = response mask · row mask
//! ```
//!
//! [`Placement::AsLoss`] is the paper's form. [`Placement::AsAdvantage`] adds `λ·weight(Δ₀)`, `Δ₀ = ℓ_skill − ℓ_old`,
//! to the token's advantage instead, so that the same trust region that bounds the policy loss bounds the
//! distillation. The neighbouring methods have files of their own: [`crate::sdar`], [`crate::skill_sd`], [`crate::opid`].
//!
//! Not for: producing skills or scoring tokens.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::algorithm::{Algorithm, Guidance, GuidanceReport, GuidedToken, SequenceGuidance};
use crate::gap::GapRecord;
use crate::gate::{Gate, GateMode};
use crate::policy_loss::TokenTerm;
use crate::skill_sd::weighted_k3;
use crate::{CoefficientSchedule, OutcomeLabel, RlError, Sequence, TokenSpan};

/// Where the distillation signal enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// A loss of its own beside the policy loss (the paper), with the live gap.
    AsLoss,
    /// A per-token advantage that passes through the policy clip, with the gap before the update.
    AsAdvantage,
}

/// Which trajectories distil, and how outcome and gap combine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeFilter {
    /// All with a skill (the paper).
    All,
    /// Successful trajectories only.
    SuccessOnly,
    /// The outcome decides the direction. `A ≥ 0`: the gate's weight, without its negative part. `A < 0`: the
    /// mirrored weight `−w(−Δ)` (for the sigmoid gate `−(1 − g)`), without its positive part. Tied group:
    /// `2g − 1`, for the outcome says nothing there.
    AdvAware,
}

/// What the distillation loss is divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Normaliser {
    /// Distilled tokens in the denominator scope (the paper).
    Mask,
    /// All response tokens in the denominator scope: a token's strength does not depend on how many others distil.
    Response,
    /// All response tokens of the mini-batch, whatever the scope.
    GlobalMini,
}

/// Which response tokens distil.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenSelection {
    /// All (the paper).
    All,
    /// Those the environment acts on.
    Action,
    /// All others.
    Reasoning,
}

impl TokenSelection {
    /// The selected tokens of a sequence, under its response mask.
    pub(crate) fn mask(self, sequence: &Sequence<'_>) -> Vec<bool> {
        let selected = |token| match self {
            Self::All => true,
            Self::Action => sequence.span(token) == TokenSpan::Action,
            Self::Reasoning => sequence.span(token) == TokenSpan::Reasoning,
        };
        sequence
            .mask
            .iter()
            .enumerate()
            .map(|(token, &trained)| trained && selected(token) && sequence.has_skill_score(token))
            .collect()
    }
}

/// What the skill-conditioned score is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GapZero {
    /// The student in the plain context (the paper).
    Student,
    /// The same teacher without the skill, or with a neutral block in its place: removes what the mere presence of
    /// a block, or a teacher that differs from the student, does to the score.
    Placebo,
}

/// Options of [`Seed`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SeedOptions {
    /// `λ` over updates.
    pub coefficient: CoefficientSchedule,
    /// Loss or advantage.
    pub placement: Placement,
    /// Shape of the gate.
    pub gate: GateMode,
    /// `β`, per nat.
    pub gate_slope: f64,
    /// Tokens with `|Δ|` below this many nats have weight 0; 0 = off.
    pub gate_epsilon: f64,
    /// Bound of the weight of [`GateMode::Delta`], in nats.
    pub delta_clip: f64,
    /// Which trajectories distil.
    pub outcome_filter: OutcomeFilter,
    /// What the loss is divided by. Not used by [`Placement::AsAdvantage`].
    pub normaliser: Normaliser,
    /// Which tokens distil.
    pub tokens: TokenSelection,
    /// Leave out sequences whose skill context was truncated.
    pub truncation_guard: bool,
    /// Keep a trajectory only if its mean `Δ₀` over action tokens is above this many nats (success), below its
    /// negative (failure), or either (unknown outcome). Without action spans all tokens count.
    pub trajectory_gap_margin: Option<f64>,
    /// Stop the loss's gradient where the ratio to the old policy is outside `1 ± this`. [`Placement::AsLoss`] only.
    pub ratio_limit: Option<f64>,
    /// What the skill-conditioned score is compared with.
    pub gap_zero: GapZero,
}

impl Default for SeedOptions {
    /// The paper: λ 0.01, β 5, sigmoid gate, all tokens of all analysed trajectories; truncated contexts left out.
    fn default() -> Self {
        Self {
            coefficient: CoefficientSchedule::constant(0.01),
            placement: Placement::AsLoss,
            gate: GateMode::Sigmoid,
            gate_slope: 5.0,
            gate_epsilon: 0.0,
            delta_clip: 1.0,
            outcome_filter: OutcomeFilter::All,
            normaliser: Normaliser::Mask,
            tokens: TokenSelection::All,
            truncation_guard: true,
            trajectory_gap_margin: None,
            ratio_limit: None,
            gap_zero: GapZero::Student,
        }
    }
}

impl SeedOptions {
    /// Checks the options' ranges.
    ///
    /// # Errors
    /// [`RlError::InvalidOption`] naming the option.
    pub fn validate(&self) -> Result<(), RlError> {
        self.coefficient.validate()?;
        let positive = "positive";
        let not_negative = "finite and not negative";
        let rules: [(&'static str, f64, &'static str, bool); 5] = [
            (
                "gate_slope",
                self.gate_slope,
                not_negative,
                self.gate_slope >= 0.0 && self.gate_slope.is_finite(),
            ),
            (
                "gate_epsilon",
                self.gate_epsilon,
                not_negative,
                self.gate_epsilon >= 0.0 && self.gate_epsilon.is_finite(),
            ),
            ("delta_clip", self.delta_clip, positive, self.delta_clip > 0.0),
            (
                "trajectory_gap_margin",
                self.trajectory_gap_margin.unwrap_or(0.0),
                not_negative,
                self.trajectory_gap_margin
                    .is_none_or(|margin| margin >= 0.0 && margin.is_finite()),
            ),
            (
                "ratio_limit",
                self.ratio_limit.unwrap_or(1.0),
                positive,
                self.ratio_limit.is_none_or(|limit| limit > 0.0),
            ),
        ];
        for (option, value, rule, holds) in rules {
            if !holds {
                return Err(RlError::InvalidOption {
                    option,
                    value: value.to_string(),
                    rule,
                });
            }
        }
        Ok(())
    }
}

/// GRPO with hindsight-skill distillation.
#[derive(Clone, Debug)]
pub struct Seed {
    options: SeedOptions,
    gate: Gate,
}

/// Why a sequence distils nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeftOut {
    WithoutSkill,
    Truncated,
    Outcome,
    GapGate,
}

impl Seed {
    /// The algorithm with these options.
    ///
    /// # Errors
    /// [`RlError::InvalidOption`] naming the option.
    pub fn new(options: SeedOptions) -> Result<Self, RlError> {
        options.validate()?;
        let gate = Gate {
            mode: options.gate,
            slope: options.gate_slope,
            delta_clip: options.delta_clip,
        };
        Ok(Self { options, gate })
    }

    /// The signed weight of a token: positive raises its log-prob.
    pub fn weight(&self, gap: f64, advantage: f64, tied: bool) -> f64 {
        if gap.abs() < self.options.gate_epsilon {
            return 0.0;
        }
        if self.options.outcome_filter != OutcomeFilter::AdvAware {
            return self.gate.weight(gap);
        }
        if tied {
            self.gate.centered(gap)
        } else if advantage >= 0.0 {
            self.gate.weight(gap).max(0.0)
        } else {
            -self.gate.weight(-gap).max(0.0)
        }
    }

    /// The gap before the update.
    fn initial_gap(&self, sequence: &Sequence<'_>, token: usize) -> f64 {
        let skill = sequence.skill.map_or(0.0, |skill| f64::from(skill[token]));
        let zero = match (self.options.gap_zero, sequence.placebo) {
            (GapZero::Placebo, Some(placebo)) => placebo[token],
            _ => sequence.old[token],
        };
        skill - f64::from(zero)
    }

    /// Trajectories whose mean gap over action tokens does not clear the margin in their outcome's direction.
    fn gated_trajectories(&self, batch: &[Sequence<'_>], margin: f64) -> BTreeMap<u64, bool> {
        let mut sums: BTreeMap<u64, (f64, usize, OutcomeLabel)> = BTreeMap::new();
        for sequence in batch.iter().filter(|sequence| sequence.skill.is_some()) {
            let selection = if sequence.spans.is_empty() {
                TokenSelection::All
            } else {
                TokenSelection::Action
            };
            let entry = sums
                .entry(sequence.trajectory)
                .or_insert((0.0, 0, sequence.outcome));
            for (token, selected) in selection.mask(sequence).into_iter().enumerate() {
                if selected {
                    entry.0 += self.initial_gap(sequence, token);
                    entry.1 += 1;
                }
            }
        }
        sums.into_iter()
            .map(|(trajectory, (sum, count, outcome))| {
                let mean = if count == 0 { 0.0 } else { sum / count as f64 };
                let keeps = match outcome {
                    OutcomeLabel::Success => mean > margin,
                    OutcomeLabel::Failure => mean < -margin,
                    OutcomeLabel::Unknown => mean.abs() > margin,
                };
                (trajectory, !keeps)
            })
            .collect()
    }

    fn left_out(&self, sequence: &Sequence<'_>, gated: &BTreeMap<u64, bool>) -> Option<LeftOut> {
        if sequence.skill.is_none() {
            Some(LeftOut::WithoutSkill)
        } else if self.options.truncation_guard && sequence.skill_truncated {
            Some(LeftOut::Truncated)
        } else if self.options.outcome_filter == OutcomeFilter::SuccessOnly
            && sequence.outcome != OutcomeLabel::Success
        {
            Some(LeftOut::Outcome)
        } else if gated.get(&sequence.trajectory).copied().unwrap_or(false) {
            Some(LeftOut::GapGate)
        } else {
            None
        }
    }
}

impl Algorithm for Seed {
    fn name(&self) -> &'static str {
        "seed"
    }

    fn guide(&self, batch: &[Sequence<'_>], update: u64) -> Result<Guidance, RlError> {
        if self.options.gap_zero == GapZero::Placebo {
            let lacking = |sequence: &Sequence<'_>| sequence.skill.is_some() && sequence.placebo.is_none();
            if let Some(sequence) = batch.iter().position(lacking) {
                return Err(RlError::MissingScores {
                    sequence,
                    field: "placebo",
                    option: "gap_zero",
                });
            }
        }
        let coefficient = self.options.coefficient.at(update);
        let gated = match self.options.trajectory_gap_margin {
            Some(margin) => self.gated_trajectories(batch, margin),
            None => BTreeMap::new(),
        };
        let reasons: Vec<Option<LeftOut>> = batch
            .iter()
            .map(|sequence| self.left_out(sequence, &gated))
            .collect();
        let as_advantage = self.options.placement == Placement::AsAdvantage && coefficient > 0.0;
        let sequences: Vec<SequenceGuidance> = batch
            .iter()
            .zip(&reasons)
            .map(|(sequence, reason)| {
                if reason.is_some() {
                    return SequenceGuidance::default();
                }
                let mask = self.options.tokens.mask(sequence);
                let advantages = as_advantage.then(|| {
                    (0..sequence.len())
                        .map(|token| {
                            let advantage = sequence.advantages[token];
                            if !mask[token] {
                                return advantage;
                            }
                            let gap = self.initial_gap(sequence, token);
                            let weight = self.weight(gap, f64::from(advantage), sequence.tied);
                            (f64::from(advantage) + coefficient * weight) as f32
                        })
                        .collect()
                });
                SequenceGuidance { advantages, mask }
            })
            .collect();

        let mut report = guidance_report(batch, &sequences, |sequence, token| {
            self.initial_gap(sequence, token) as f32
        });
        for ((sequence, guided), reason) in batch.iter().zip(&sequences).zip(&reasons) {
            if !sequence.mask.contains(&true) {
                continue;
            }
            match reason {
                Some(LeftOut::WithoutSkill) => report.without_skill += 1,
                Some(LeftOut::Truncated) => report.truncated += 1,
                Some(LeftOut::Outcome) => report.outcome_filtered += 1,
                Some(LeftOut::GapGate) => report.gap_gated += 1,
                None if !guided.mask.contains(&true) => report.without_selected_tokens += 1,
                None => {}
            }
        }
        let coefficient = if as_advantage { 0.0 } else { coefficient };
        Ok(Guidance {
            coefficient,
            sequences,
            report,
        })
    }

    fn auxiliary(&self, token: &GuidedToken) -> TokenTerm {
        let gap = self.gap(token);
        let weight = self.weight(gap, token.advantage, token.tied);
        let follows_outcome = self.options.outcome_filter == OutcomeFilter::AdvAware && token.tied;
        let mut term = if weight == 0.0 {
            TokenTerm::default()
        } else if self.options.gate == GateMode::K3Is && !follows_outcome {
            weighted_k3(token.student, token.student + gap, token.old)
        } else {
            TokenTerm {
                loss: weight * gap,
                gradient: -weight,
            }
        };
        if let Some(limit) = self.options.ratio_limit {
            let ratio = libm::exp(token.student - token.old);
            if ratio > 1.0 + limit || ratio < 1.0 - limit {
                term.gradient = 0.0;
            }
        }
        term
    }

    fn gap(&self, token: &GuidedToken) -> f64 {
        match (self.options.gap_zero, token.placebo) {
            (GapZero::Placebo, Some(placebo)) => token.skill - placebo,
            _ => token.skill - token.student,
        }
    }

    fn gate(&self, gap: f64) -> f64 {
        self.gate.openness(gap)
    }

    fn normaliser(&self) -> Normaliser {
        self.options.normaliser
    }
}

/// Coverage and initial gaps of a guided batch; the reasons for leaving sequences out are the caller's to add.
pub(crate) fn guidance_report(
    batch: &[Sequence<'_>],
    guided: &[SequenceGuidance],
    gap: impl Fn(&Sequence<'_>, usize) -> f32,
) -> GuidanceReport {
    let mut report = GuidanceReport::default();
    for (sequence, guidance) in batch.iter().zip(guided) {
        let valid = sequence.mask.iter().filter(|&&trained| trained).count();
        if valid == 0 {
            continue;
        }
        let tokens = guidance.mask.iter().filter(|&&token| token).count();
        report.sequences += 1;
        report.guided += usize::from(tokens > 0);
        report.tokens.add(valid, tokens);
        match sequence.outcome {
            OutcomeLabel::Success => report.success_tokens.add(valid, tokens),
            OutcomeLabel::Failure => report.failure_tokens.add(valid, tokens),
            OutcomeLabel::Unknown => {}
        }
        let records = guidance
            .mask
            .iter()
            .enumerate()
            .filter(|&(_, &token)| token)
            .map(|(token, _)| GapRecord {
                gap: gap(sequence, token),
                outcome: sequence.outcome,
                span: sequence.span(token),
                step: sequence.steps.get(token).copied(),
            });
        report.gaps.0.extend(records);
    }
    report
}
