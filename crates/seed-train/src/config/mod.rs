//! Configurations: a TOML file and `--set` overrides become values that are typed, checked and explained.
//!
//! Three stages: raw ([`source`](self) entries with file and line), validated ([`TrainConfig`], [`SftConfig`] inside
//! [`Loaded`]), derived ([`Derived`]). Each key has one declaration, in [`sections`](TrainConfig) or
//! [`fine_tuning`](SftConfig), that gives its type, default, rule and meaning.
//!
//! Not for: reading weights, opening worlds or anything else that a configuration only names.

mod adapter;
mod choices;
mod demonstrations;
mod derived;
mod engine;
mod error;
mod explain;
mod fine_tuning;
mod loaded;
mod rule;
mod schema;
mod sections;
mod source;
#[cfg(test)]
mod tests;
mod validate;
mod value;

pub use adapter::{AdapterSection, AdapterTarget};
pub use choices::{
    Aggregation, Algorithm, Analyser, AnalysisStyle, CoefficientSchedule, Context, EvaluationPrompt,
    EvaluationSplit, ExampleTruncation, FailedSearch, Family, GapZero, Gate, LearningRateSchedule,
    MetricNames, Normalisation, Normaliser, OutcomeFilter, Placement, Precision, PromptStyle,
    PromptTruncation, Routing, SearchDialect, SearchRetriever, Selection, ShopCatalogue, ShopGoals,
    ShopReward, ShopSplit, SkillFrom, SkillMode, StatisticUnit, Teacher, TokenSelection, WorldName,
};
pub use demonstrations::{DemonstrateConfig, DemonstrationsSection};
pub use derived::{Derived, MemoryEstimate, ModelShape};
pub(crate) use derived::{aligned_table, bytes};
pub use engine::{EngineKind, EngineSection, EngineWeights};
pub use error::ConfigError;
pub use explain::{Explanation, explanation_text, reference_markdown};
pub use fine_tuning::{InitialiseSection, SftConfig, SftSection};
pub use loaded::{Difference, Loaded, differences, nearest, to_toml};
pub use rule::Rule;
pub use schema::{Document, Effect, FieldInfo, Findings, Origins};
pub use sections::{
    AdvantageSection, AlgorithmSection, BaselineSection, CheckpointSection, EndpointSection,
    EvaluationSection, LoggingSection, ModelSection, OptimiserSection, RolloutSection, RunSection,
    SearchSection, SeedSection, TrainConfig, WorldSection,
};
pub use source::{Origin, RawEntry, line_of, to_value};
