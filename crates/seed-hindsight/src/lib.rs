//! From finished episodes to skills: analysis prompt, tolerant parser, filters, prompt augmentation, analysers.
//!
//! The way of the data: an [`Episode`] becomes an [`analysis_prompt`]; an [`Analyser`] or the policy itself answers it;
//! [`parse_analysis`] reads the answer ([`annotate`] does all three, and asks again where an answer is of no use);
//! [`ground_skill`] and [`check_skill`] judge the skill; [`augment_episode`] puts it into the prompts of the same
//! trajectory, whose recorded responses are then scored again.
//!
//! Everything that comes from a policy, an environment or an endpoint is untrusted here: bounded, parsed without
//! panic, and unable to change the structure of a prompt.
//!
//! Not for: models, tokens or losses. The policy that analyses itself is asked where the policy lives.

mod analyser;
mod analysis;
mod annotate;
mod augment;
mod endpoint;
mod episode;
mod filter;
mod grounding;
mod lenient_json;
mod parser;
mod prompt;
mod record;

pub use analyser::{Analyser, AnalyserError, AnalysisReply, AnalysisRequest};
pub use analysis::{Analysis, Leniency, SkillMode, response_json};
pub use annotate::{AnalysisJob, Annotation, AnnotationError, annotate};
pub use augment::{
    AugmentOptions, Augmented, BlockPlacement, SectionFormat, Whitespace, augment_episode, augment_step,
};
pub use endpoint::{EndpointAnalyser, EndpointOptions};
pub use episode::{Episode, EpisodeStep, OutcomeLabel, transcript_text};
pub use filter::{
    SkillDefect, SkillFilterOptions, check_skill, copied_ngram_rate, duplicate_rate, limit_words,
};
pub use grounding::{Grounded, ground_skill};
pub use parser::{Acceptance, ParseError, ParseOptions, ParseStatus, parse_analysis};
pub use prompt::{
    AnalysisOptions, FittedPrompt, PromptStyle, TranscriptContent, analysis_prompt, fitted_prompt,
    repair_prompt,
};
pub use record::SftRecord;
