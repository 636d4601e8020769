//! Environments in general.
//!
//! What an environment is ([`Environment`]), which tasks a world offers ([`World`]), how an episode is shown to a
//! language model and how its answer becomes an action ([`Dialogue`]), and stepping many episodes at once.
//!
//! Not for: anything about models, tokens or training; a particular world's rules (one crate per world).

mod dialogue;
mod environment;
mod household;
mod panel;
mod pool;
mod projection;
mod skill_rules;
mod task;
#[cfg(feature = "testing")]
pub mod testing;

pub use dialogue::{ContextKind, Dialogue, Exchange, Projection, PromptState, TASK_ANCHOR, task_line};
pub use environment::{Environment, EnvironmentError, Image, Observation, Transition};
pub use household::{HouseholdDialogue, HouseholdStyle, compact_observation};
pub use panel::{Panel, PanelError, TrainingSchedule};
pub use pool::{
    EnvironmentPool, EpisodeFailure, EpisodeStart, ErrorBudget, FailureClass, FailureCount, Opening,
    PoolCounters, PoolError, PoolOptions, Step,
};
pub use projection::project_tagged_action;
pub use skill_rules::{FinishedEpisode, RuleAnnotation, SkillLibrary, SkillRules};
pub use task::{Outcome, Split, Task, TaskId, World};
