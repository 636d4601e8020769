//! The seam between the shared policy loss and what one algorithm adds to it, and the registry of algorithms.
//!
//! An algorithm acts twice. Once per iteration, before the first optimiser step, [`Algorithm::guide`] may reshape
//! per-token advantages and says which tokens its auxiliary loss covers. Then, for every covered token and fresh
//! student score, [`Algorithm::auxiliary`] gives that loss. To add one: write its file, add a variant of
//! [`AlgorithmOptions`] and a line in [`AlgorithmOptions::build`].
//!
//! Not for: advantages over groups ([`crate::advantages`]) or the clipped loss ([`crate::policy_loss`]).

use std::fmt::Debug;

use serde::{Deserialize, Serialize};

use crate::RlError;
use crate::gap::GapRecords;
use crate::gigpo::{Gigpo, GigpoOptions};
use crate::grpo::Grpo;
use crate::grpo_opsd::GrpoOpsd;
use crate::opid::{Opid, OpidOptions};
use crate::opsd::Opsd;
use crate::policy_loss::TokenTerm;
use crate::rlsd::{Rlsd, RlsdOptions};
use crate::schedule::CoefficientSchedule;
use crate::sdar::{Sdar, SdarOptions};
use crate::seed::{Normaliser, Seed, SeedOptions};
use crate::sequence::Sequence;
use crate::serl::{Serl, SerlOptions};
use crate::skill_sd::{SkillSd, SkillSdOptions};

/// What an algorithm decides about a batch before its first optimiser step.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Guidance {
    /// Weight of the auxiliary loss at this update; 0 = the loss is not evaluated.
    pub coefficient: f64,
    /// One entry per sequence of the batch.
    pub sequences: Vec<SequenceGuidance>,
    /// Counts and the gap before any update.
    pub report: GuidanceReport,
}

impl Guidance {
    /// Nothing for any of so many sequences.
    pub fn none(sequences: usize) -> Self {
        Self {
            sequences: vec![SequenceGuidance::default(); sequences],
            ..Self::default()
        }
    }
}

/// An algorithm's decisions about one sequence.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct SequenceGuidance {
    /// Reshaped advantages, one per response token; `None` = as given.
    pub advantages: Option<Vec<f32>>,
    /// Tokens the algorithm guides (under the response mask); empty = none.
    pub mask: Vec<bool>,
}

/// How much of a batch an algorithm guides, and why the rest is left out. Each sequence with response tokens to
/// train is counted once: guided, or under the first reason that applies, in the order of the fields.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct GuidanceReport {
    /// Sequences with at least one token under the response mask.
    pub sequences: usize,
    /// Of those: with at least one guided token.
    pub guided: usize,
    /// Of those: without skill scores.
    pub without_skill: usize,
    /// Of those: left out because the skill context was truncated.
    pub truncated: usize,
    /// Of those: left out by the outcome filter.
    pub outcome_filtered: usize,
    /// Of those: left out by the trajectory gap gate.
    pub gap_gated: usize,
    /// Of those: holding no token of the selected span.
    pub without_selected_tokens: usize,
    /// Tokens under the response mask, and the guided ones among them: all, of successes, of failures.
    pub tokens: TokenCoverage,
    /// See [`GuidanceReport::tokens`].
    pub success_tokens: TokenCoverage,
    /// See [`GuidanceReport::tokens`].
    pub failure_tokens: TokenCoverage,
    /// `Δ₀ = ℓ_skill − ℓ_old` of all guided tokens.
    pub gaps: GapRecords,
}

/// Guided tokens among those that train.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TokenCoverage {
    /// Tokens under the response mask.
    pub valid: usize,
    /// Guided tokens.
    pub guided: usize,
}

impl TokenCoverage {
    /// Guided share; 0 without tokens.
    pub fn share(self) -> f64 {
        if self.valid == 0 {
            0.0
        } else {
            self.guided as f64 / self.valid as f64
        }
    }

    /// Adds one sequence.
    pub fn add(&mut self, valid: usize, guided: usize) {
        self.valid += valid;
        self.guided += guided;
    }
}

impl GuidanceReport {
    /// Share of sequences with at least one guided token; 0 without sequences.
    pub fn guided_share(&self) -> f64 {
        if self.sequences == 0 {
            0.0
        } else {
            self.guided as f64 / self.sequences as f64
        }
    }

    /// The report as named values.
    pub fn named(&self) -> Vec<(String, f64)> {
        let mut named: Vec<(String, f64)> = [
            ("skill/coverage_sequences", self.guided_share()),
            ("skill/coverage_tokens", self.tokens.share()),
            ("skill/coverage_tokens_success", self.success_tokens.share()),
            ("skill/coverage_tokens_failure", self.failure_tokens.share()),
            ("skill/sequences_without_skill", self.without_skill as f64),
            ("skill/sequences_truncated", self.truncated as f64),
            ("skill/sequences_outcome_filtered", self.outcome_filtered as f64),
            ("skill/sequences_gap_gated", self.gap_gated as f64),
            (
                "skill/sequences_without_selected_tokens",
                self.without_selected_tokens as f64,
            ),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
        named.extend(self.gaps.named("skill/initial_"));
        named
    }
}

/// Everything an auxiliary loss may look at for one guided token. Log-probs in nats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GuidedToken {
    /// `ℓ_θ`, fresh.
    pub student: f64,
    /// `ℓ_old`.
    pub old: f64,
    /// `ℓ_skill`.
    pub skill: f64,
    /// The same teacher without the skill, when recorded.
    pub placebo: Option<f64>,
    /// The token's advantage as computed from the group.
    pub advantage: f64,
    /// The outcomes of its group all tie.
    pub tied: bool,
}

/// One algorithm on top of the clipped policy loss.
pub trait Algorithm: Debug + Send + Sync {
    /// Name used in configurations, logs and reports.
    fn name(&self) -> &'static str;

    /// Decides advantages and masks of a batch at `update` (from 1). Sequences have been validated.
    ///
    /// # Errors
    /// [`RlError::MissingScores`] when the options need scores a sequence lacks.
    fn guide(&self, batch: &[Sequence<'_>], update: u64) -> Result<Guidance, RlError>;

    /// Whether skill scores play a part, so that there is coverage to report.
    fn reads_skills(&self) -> bool {
        true
    }

    /// Whether the clipped policy loss takes part, and so the outcome.
    fn learns_from_outcome(&self) -> bool {
        true
    }

    /// Unweighted auxiliary loss of a guided token and its derivative by the student's log-prob.
    fn auxiliary(&self, _token: &GuidedToken) -> TokenTerm {
        TokenTerm::default()
    }

    /// The gap of a guided token as this algorithm sees it, in nats.
    fn gap(&self, token: &GuidedToken) -> f64 {
        token.skill - token.student
    }

    /// The gate `σ(βΔ)` that metrics report, for a gap in nats.
    fn gate(&self, _gap: f64) -> f64 {
        0.5
    }

    /// Denominator of the auxiliary loss.
    fn normaliser(&self) -> Normaliser {
        Normaliser::Mask
    }
}

/// The configured algorithm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case")]
pub enum AlgorithmOptions {
    /// Group-relative policy optimisation alone.
    Grpo,
    /// GRPO with hindsight-skill distillation.
    Seed(SeedOptions),
    /// GRPO with a gated gap loss.
    Sdar(SdarOptions),
    /// The gated gap loss without the outcome.
    Opsd(SdarOptions),
    /// GRPO with an ungated gap loss; the gate's slope is not read.
    GrpoOpsd(SdarOptions),
    /// GRPO with an importance-weighted k3 loss.
    SkillSd(SkillSdOptions),
    /// GRPO with teacher-reweighted advantages.
    Rlsd(RlsdOptions),
    /// GRPO with teacher-reweighted advantages of action tokens.
    Serl(SerlOptions),
    /// GRPO with the gap in the advantage.
    Opid(OpidOptions),
    /// GRPO with a step-level advantage.
    Gigpo(GigpoOptions),
}

impl AlgorithmOptions {
    /// Names of all algorithms, for messages and completion.
    pub const NAMES: [&'static str; 10] = [
        "grpo",
        "seed",
        "sdar",
        "opsd",
        "grpo_opsd",
        "skill_sd",
        "rlsd",
        "serl",
        "opid",
        "gigpo",
    ];

    /// Validates the options and builds the algorithm.
    ///
    /// # Errors
    /// [`RlError::InvalidOption`] naming the option.
    pub fn build(&self) -> Result<Box<dyn Algorithm>, RlError> {
        Ok(match self {
            Self::Grpo => Box::new(Grpo),
            Self::Seed(options) => Box::new(Seed::new(options.clone())?),
            Self::Sdar(options) => Box::new(Sdar::new(options.clone())?),
            Self::Opsd(options) => Box::new(Opsd::new(options.clone())?),
            Self::GrpoOpsd(options) => Box::new(GrpoOpsd::new(
                options.coefficient.clone(),
                options.truncation_guard,
            )?),
            Self::SkillSd(options) => Box::new(SkillSd::new(options.clone())?),
            Self::Rlsd(options) => Box::new(Rlsd::new(options.clone())?),
            Self::Serl(options) => Box::new(Serl::new(options.clone())?),
            Self::Opid(options) => Box::new(Opid::new(options.clone())?),
            Self::Gigpo(options) => Box::new(Gigpo::new(options)?),
        })
    }

    /// The weight of the teacher's signal over updates; `None` for an algorithm that reads no skill scores. Where it is
    /// not active, analysis and re-scoring need not run.
    pub fn coefficient(&self) -> Option<&CoefficientSchedule> {
        match self {
            Self::Grpo | Self::Gigpo(_) => None,
            Self::Seed(options) => Some(&options.coefficient),
            Self::Sdar(options) | Self::Opsd(options) | Self::GrpoOpsd(options) => Some(&options.coefficient),
            Self::SkillSd(options) => Some(&options.coefficient),
            Self::Rlsd(options) => Some(&options.coefficient),
            Self::Serl(options) => Some(&options.coefficient),
            Self::Opid(options) => Some(&options.coefficient),
        }
    }
}
