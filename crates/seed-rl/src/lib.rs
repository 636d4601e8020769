//! Advantages, losses, gates and schedules as pure functions of slices.
//!
//! The data's way through this crate: step rewards become row scores, scores become group-relative
//! [`advantages`](advantages::advantages), and the recorded scores of every sequence (old policy, reference,
//! skill-conditioned) become a per-token loss gradient through [`UpdatePlan`] and [`MiniBatchObjective`]. An
//! [`Algorithm`] says what is added to the shared clipped policy loss; a new one is one file and one line in
//! [`algorithm`].
//!
//! All sums run in a fixed order in `f64`; inputs and gradients are `f32`. Denominators are computed from masks
//! before the first forward pass, so gradients and metrics do not depend on how a mini-batch is split.
//!
//! Not for: models, tokens, environments, or deciding when an optimiser steps.

pub mod advantages;
pub mod aggregation;
pub mod algorithm;
mod error;
pub mod gap;
pub mod gate;
pub mod gigpo;
pub mod grpo;
pub mod grpo_opsd;
pub mod kl;
pub mod metrics;
pub mod objective;
pub mod opid;
pub mod opsd;
pub mod policy_loss;
pub mod returns;
pub mod rlsd;
pub mod schedule;
pub mod sdar;
pub mod seed;
pub mod sequence;
pub mod serl;
pub mod skill_sd;
mod teacher;

pub use advantages::{AdvantageOptions, Advantages, Normalisation, PenaltyPlacement, Row, StatisticUnit};
pub use aggregation::{Aggregation, DenominatorScope};
pub use algorithm::{Algorithm, AlgorithmOptions, Guidance};
pub use error::RlError;
pub use gate::GateMode;
pub use gigpo::GigpoOptions;
pub use metrics::{GateSums, UpdateMetrics};
pub use objective::{MiniBatchObjective, SequenceGradients, UpdatePlan};
pub use opid::OpidOptions;
pub use policy_loss::PolicyOptions;
pub use rlsd::RlsdOptions;
pub use schedule::{CoefficientSchedule, Decay};
pub use sdar::SdarOptions;
pub use seed::{Normaliser, OutcomeFilter, Placement, SeedOptions, TokenSelection};
pub use sequence::{OutcomeLabel, Sequence, TokenSpan};
pub use serl::SerlOptions;
pub use skill_sd::SkillSdOptions;
