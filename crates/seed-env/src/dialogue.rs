//! How an episode is shown to a language model, and how its answer becomes an action.
//!
//! A world implements [`Dialogue`] once and supports both context kinds: `windowed`, where every step is a fresh
//! prompt holding the last exchanges as text, and `transcript`, where the episode is one growing conversation.

use std::borrow::Cow;
use std::fmt::Write as _;
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

impl Exchange {
    /// The action as one line: an untagged response can put a line break into an action.
    pub fn action_line(&self) -> String {
        let words: Vec<&str> = self.action.split_whitespace().collect();
        words.join(" ")
    }
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

impl<'a> PromptState<'a> {
    /// The last `history_length` exchanges, and the number of the first of them, counted from 1.
    pub fn window(&self) -> (usize, &'a [Exchange]) {
        let skipped = self.history.len().saturating_sub(self.history_length);
        (skipped + 1, self.history.get(skipped..).unwrap_or_default())
    }

    /// What a prompt in the reference's layout says of the past: the number of steps, and the window with each action
    /// beside what was seen before it.
    pub fn past_in_full(&self) -> String {
        let mut past = format!("You have acted for {} step(s) so far.", self.history.len());
        let (first, shown) = self.window();
        if !shown.is_empty() {
            // Writing to a string cannot fail, here and below.
            let _ = write!(
                past,
                " The latest {} observation(s), each with the action you took on it:",
                shown.len()
            );
            for (offset, exchange) in shown.iter().enumerate() {
                let number = first + offset;
                let _ = write!(
                    past,
                    "\n[Observation {number}: '{}', Action {number}: '{}']",
                    exchange.observation, exchange.action
                );
            }
        }
        past
    }

    /// The window in few words: a line for what was seen, shortened by `shorten`, and one for the action, each with a
    /// line break before it.
    pub fn past_in_short(&self, shorten: impl for<'t> Fn(&'t str) -> Cow<'t, str>) -> String {
        let mut past = String::new();
        for exchange in self.window().1 {
            let _ = write!(
                past,
                "\n{}\n> {}",
                shorten(&exchange.observation),
                exchange.action_line()
            );
        }
        past
    }
}

/// What the task line of a prompt begins with, or holds after the role sentence. A skill finds its place by it.
pub const TASK_ANCHOR: &str = "Your task is to: ";

/// The line that states a task.
pub fn task_line(task: &str) -> String {
    format!("{TASK_ANCHOR}{}", task.trim())
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
