//! From configuration sections to the options of the crates that do the work.

use std::sync::Arc;

use seed_env::{ContextKind, ErrorBudget, PoolOptions, Split};
use seed_model::{AdamWOptions, Decay, EngineOptions, Sampling, Schedule};
use seed_rl::{
    AdvantageOptions, Aggregation, AlgorithmOptions, CoefficientSchedule, DenominatorScope, GateMode,
    GigpoOptions, Normaliser, OpidOptions, OutcomeFilter, PenaltyPlacement, Placement, PolicyOptions,
    RlsdOptions, SdarOptions, SeedOptions, SerlOptions, SkillSdOptions, StatisticUnit, TokenSelection,
};
use seed_rollout::{RolloutOptions, SequenceOptions, TokenBudget, Truncation};

use crate::config;

impl From<config::Context> for ContextKind {
    fn from(context: config::Context) -> Self {
        match context {
            config::Context::Windowed => Self::Windowed,
            config::Context::Transcript => Self::Transcript,
        }
    }
}

impl From<config::EvaluationSplit> for Split {
    fn from(split: config::EvaluationSplit) -> Self {
        match split {
            config::EvaluationSplit::Train => Self::Train,
            config::EvaluationSplit::Development => Self::Development,
            config::EvaluationSplit::Seen => Self::Seen,
            config::EvaluationSplit::Unseen => Self::Unseen,
        }
    }
}

/// How advantages are computed.
pub fn advantage_options(section: &config::AdvantageSection) -> AdvantageOptions {
    AdvantageOptions {
        statistic_unit: match section.statistic_unit {
            config::StatisticUnit::Step => StatisticUnit::Step,
            config::StatisticUnit::Trajectory => StatisticUnit::Trajectory,
        },
        normalisation: match section.normalisation {
            config::Normalisation::MeanDeviation => seed_rl::Normalisation::MeanStd,
            config::Normalisation::Mean => seed_rl::Normalisation::Mean,
        },
        sigma_floor: section.deviation_floor,
        invalid_action_penalty: section.invalid_action_penalty,
        penalty_placement: if section.penalty_in_statistics {
            PenaltyPlacement::InScore
        } else {
            PenaltyPlacement::OutsideNormalisation
        },
        allow_single: section.allow_single_sample,
        ..AdvantageOptions::default()
    }
}

/// The shared part of the loss.
pub fn policy_options(config: &config::TrainConfig) -> PolicyOptions {
    let section = &config.algorithm;
    PolicyOptions {
        clip_low: section.clip_low,
        clip_high: section.clip_high,
        dual_clip: section.dual_clip.unwrap_or(f64::INFINITY),
        policy_coefficient: section.policy_coefficient,
        kl_coefficient: section.kl_coefficient,
        entropy_coefficient: section.entropy_coefficient,
        aggregation: match section.aggregation {
            config::Aggregation::TokenMean => Aggregation::TokenMean,
            config::Aggregation::RowMeanTokenSum => Aggregation::SeqMeanTokenSum,
            config::Aggregation::RowMeanTokenMean => Aggregation::SeqMeanTokenMean,
            config::Aggregation::RowMeanTokenSumFixed => Aggregation::SeqMeanTokenSumNorm {
                width: config.rollout.max_response_tokens as u32,
            },
        },
        denominator_scope: DenominatorScope::MiniBatch,
    }
}

/// What the algorithm adds to it.
pub fn algorithm_options(config: &config::TrainConfig) -> AlgorithmOptions {
    let baseline = &config.baseline;
    let truncation_guard = config.seed.mask_truncated_prompts;
    // A method's defaults are the published settings.
    let coefficient = |published: CoefficientSchedule| {
        let schedule = CoefficientSchedule {
            value: baseline.coefficient.unwrap_or(published.value),
            decay: match (published.decay, baseline.decay_iterations) {
                (seed_rl::Decay::Linear { .. }, Some(iterations)) => seed_rl::Decay::Linear {
                    updates: iterations as u64,
                },
                (decay, _) => decay,
            },
            ..published
        };
        within_start_and_stop(config, schedule)
    };
    let sdar = || SdarOptions {
        coefficient: coefficient(SdarOptions::default().coefficient),
        gate_slope: baseline.beta,
        truncation_guard,
    };
    match config.algorithm.name {
        config::Algorithm::Grpo | config::Algorithm::SkillGrpo => AlgorithmOptions::Grpo,
        config::Algorithm::Seed => AlgorithmOptions::Seed(seed_options(config)),
        config::Algorithm::Sdar => AlgorithmOptions::Sdar(sdar()),
        config::Algorithm::Opsd => AlgorithmOptions::Opsd(sdar()),
        config::Algorithm::GrpoOpsd => AlgorithmOptions::GrpoOpsd(sdar()),
        config::Algorithm::SkillSd => AlgorithmOptions::SkillSd(SkillSdOptions {
            coefficient: coefficient(SkillSdOptions::default().coefficient),
            truncation_guard,
        }),
        config::Algorithm::Rlsd => AlgorithmOptions::Rlsd(RlsdOptions {
            coefficient: coefficient(RlsdOptions::default().coefficient),
            clip: baseline.clip,
            truncation_guard,
            ..RlsdOptions::default()
        }),
        config::Algorithm::Serl => AlgorithmOptions::Serl(SerlOptions {
            coefficient: coefficient(SerlOptions::default().coefficient),
            clip: baseline.clip,
            truncation_guard,
        }),
        config::Algorithm::Opid => AlgorithmOptions::Opid(OpidOptions {
            coefficient: coefficient(OpidOptions::default().coefficient),
            truncation_guard,
        }),
        config::Algorithm::Gigpo => AlgorithmOptions::Gigpo(gigpo_options(baseline)),
    }
}

/// GiGPO's step advantage.
pub fn gigpo_options(section: &config::BaselineSection) -> GigpoOptions {
    GigpoOptions {
        weight: section.coefficient.unwrap_or(GigpoOptions::default().weight),
        discount: section.discount,
    }
}

/// A coefficient that is active between `seed.start_after` and `seed.stop_after`.
fn within_start_and_stop(
    config: &config::TrainConfig,
    mut schedule: CoefficientSchedule,
) -> CoefficientSchedule {
    schedule.start_after = config.seed.start_after.map(|iterations| iterations as u64);
    schedule.stop_after = config.seed.stop_after.map(|iterations| iterations as u64);
    schedule
}

fn seed_options(config: &config::TrainConfig) -> SeedOptions {
    let section = &config.seed;
    let schedule = CoefficientSchedule {
        value: section.coefficient,
        warm_up_updates: section.warmup_iterations as u64,
        decay: match section.schedule {
            config::CoefficientSchedule::Constant => seed_rl::Decay::Constant,
            config::CoefficientSchedule::Linear => seed_rl::Decay::Linear {
                updates: section.stop_after.unwrap_or(config.algorithm.iterations).max(1) as u64,
            },
        },
        ..CoefficientSchedule::default()
    };
    SeedOptions {
        coefficient: within_start_and_stop(config, schedule),
        placement: match section.placement {
            config::Placement::Loss => Placement::AsLoss,
            config::Placement::Advantage => Placement::AsAdvantage,
        },
        gate: match section.gate {
            config::Gate::Sigmoid => GateMode::Sigmoid,
            config::Gate::Centered => GateMode::Centered,
            config::Gate::Delta => GateMode::Delta,
            config::Gate::PositiveOnly => GateMode::PositiveOnly,
            config::Gate::K3Is => GateMode::K3Is,
        },
        gate_slope: section.beta,
        gate_epsilon: section.gate_epsilon,
        delta_clip: section.delta_clip,
        outcome_filter: match section.outcome_filter {
            config::OutcomeFilter::All => OutcomeFilter::All,
            config::OutcomeFilter::SuccessOnly => OutcomeFilter::SuccessOnly,
            config::OutcomeFilter::AdvantageAware => OutcomeFilter::AdvAware,
        },
        normaliser: match section.normaliser {
            config::Normaliser::Mask => Normaliser::Mask,
            config::Normaliser::Response => Normaliser::Response,
            config::Normaliser::MiniBatch => Normaliser::GlobalMini,
        },
        tokens: match section.token_selection {
            config::TokenSelection::All => TokenSelection::All,
            config::TokenSelection::Action => TokenSelection::Action,
            config::TokenSelection::Reasoning => TokenSelection::Reasoning,
        },
        truncation_guard: section.mask_truncated_prompts,
        trajectory_gap_margin: section.trajectory_gap_margin,
        ratio_limit: section.trust_region.then_some(config.algorithm.clip_high),
        gap_zero: match section.gap_zero {
            config::GapZero::Student => seed_rl::seed::GapZero::Student,
            config::GapZero::Teacher | config::GapZero::OtherSkill => seed_rl::seed::GapZero::Placebo,
        },
    }
}

/// How episodes are played for training.
pub fn rollout_options(config: &config::TrainConfig, end_tokens: &Arc<[u32]>) -> RolloutOptions {
    RolloutOptions {
        context: config.world.context.into(),
        history_length: config.world.history_length,
        max_steps: config.world.max_steps,
        max_active: config.rollout.max_active_sequences,
        tokens: TokenBudget {
            prompt: config.rollout.max_prompt_tokens,
            response: config.rollout.max_response_tokens,
            context: config.model.context_length,
            truncation: truncation(config.rollout.prompt_truncation),
        },
        sampling: Sampling {
            temperature: config.rollout.temperature as f32,
            top_p: config.rollout.top_p as f32,
            top_k: config.rollout.top_k,
        },
        end_tokens: end_tokens.clone(),
    }
}

/// The same for evaluation: its own temperature and the full distribution.
pub fn evaluation_options(config: &config::TrainConfig, end_tokens: &Arc<[u32]>) -> RolloutOptions {
    RolloutOptions {
        sampling: Sampling::at_temperature(config.evaluation.temperature as f32),
        ..rollout_options(config, end_tokens)
    }
}

/// How contexts with a skill are cut.
pub fn sequence_options(config: &config::TrainConfig, max_positions: usize) -> SequenceOptions {
    SequenceOptions {
        max_prompt_tokens: config.rollout.max_prompt_tokens + config.seed.extra_prompt_tokens,
        truncation: truncation(config.rollout.prompt_truncation),
        context_length: (config.model.context_length + config.seed.extra_prompt_tokens).min(max_positions),
    }
}

fn truncation(choice: config::PromptTruncation) -> Truncation {
    match choice {
        config::PromptTruncation::Left => Truncation::Left,
        config::PromptTruncation::Error => Truncation::Error,
    }
}

/// How many sequences are generated at once.
pub fn engine_options(section: &config::RolloutSection) -> EngineOptions {
    EngineOptions {
        max_active: section.max_active_sequences,
        prefill_chunk: section.prefill_tokens,
    }
}

/// How environments are stepped.
pub fn pool_options(config: &config::TrainConfig) -> PoolOptions {
    PoolOptions {
        threads: rayon::current_num_threads(),
        step_deadline: std::time::Duration::from_secs_f64(config.world.step_timeout_seconds),
        error_budget: ErrorBudget {
            share: config.rollout.max_error_share,
            ..ErrorBudget::default()
        },
        ..PoolOptions::default()
    }
}

/// The optimiser's settings.
pub fn optimiser_options(section: &config::OptimiserSection) -> AdamWOptions {
    AdamWOptions {
        beta1: section.beta1 as f32,
        beta2: section.beta2 as f32,
        epsilon: section.epsilon as f32,
        weight_decay: section.weight_decay as f32,
        decay_vectors: false,
        max_norm: section.gradient_clip,
    }
}

/// A learning-rate schedule over `steps`.
pub fn learning_rate(
    peak: f64,
    schedule: config::LearningRateSchedule,
    warmup_ratio: f64,
    final_ratio: f64,
    steps: u64,
) -> Schedule {
    Schedule {
        peak,
        warmup_steps: (warmup_ratio * steps as f64).round() as u64,
        total_steps: steps,
        decay: match schedule {
            config::LearningRateSchedule::Constant => Decay::Constant,
            config::LearningRateSchedule::Linear => Decay::Linear { minimum: final_ratio },
            config::LearningRateSchedule::Cosine => Decay::Cosine { minimum: final_ratio },
        },
    }
}
