//! How an episode is shown to a language model, and how its answer becomes an action.
//!
//! A world implements [`Dialogue`] once and supports both context kinds: `windowed`, where every step is a fresh
//! prompt holding the last exchanges as text, and `transcript`, where the episode is one growing conversation.

use std::borrow::Cow;
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// How the policy sees an episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContextKind {
    /// Every step is its own prompt with the last `history_length` exchanges as text (the reference).
    Windowed,
    /// The episode is one growing sequence; nothing is repeated.
    Transcript,
}

/// One past exchange: what was seen, and the projected action taken on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Observation *before* the action.
    pub observation: String,
    /// The projected action.
    pub action: String,
}

/// Everything a prompt may show at one step.
#[derive(Clone, Debug)]
pub struct PromptState<'a> {
    /// The task in one sentence ([`Environment::task_description`](crate::Environment::task_description)).
    pub task_description: &'a str,
    /// The current observation's text.
    pub observation: &'a str,
    /// Actions possible now (canonical order, unfiltered).
    pub admissible_actions: &'a [String],
    /// All exchanges so far, oldest first; its length is the number of steps taken.
    pub history: &'a [Exchange],
    /// How many of them a windowed prompt shows.
    pub history_length: usize,
}

/// A model response turned into an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Projection {
    /// What the environment is told.
    pub action: String,
    /// Whether the response obeyed the format; an invalid response is still executed, and may be penalised.
    pub valid: bool,
    /// Byte range of the action inside the response, when there was one (for action-only token masks).
    pub action_span: Option<Range<usize>>,
}

/// Prompts and projection of one world.
pub trait Dialogue: Send + Sync {
    /// The complete user message of a `windowed` step.
    fn windowed_prompt(&self, state: &PromptState<'_>) -> String;

    /// The first user message of a `transcript` episode.
    fn transcript_opening(&self, state: &PromptState<'_>) -> String;

    /// A later user message of a `transcript` episode: only what is new.
    fn transcript_turn(&self, state: &PromptState<'_>) -> String;

    /// Raw feedback in the words prompts would use for it: what a transcript shows an analyser.
    fn condense<'a>(&self, observation: &'a str) -> Cow<'a, str> {
        Cow::Borrowed(observation)
    }

    /// Projects a response to an action. Never fails: an unreadable response gives an invalid action.
    fn project(&self, response: &str) -> Projection;
}
