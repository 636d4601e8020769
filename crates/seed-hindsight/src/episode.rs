//! A finished episode as the analyser sees it.
//!
//! Not for: recording episodes; these are borrowed views of what a rollout recorded.

use serde::{Deserialize, Serialize};

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

impl OutcomeLabel {
    /// The label's word in prompts and records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Unknown => "unknown",
        }
    }
}

/// One step of a finished episode.
#[derive(Clone, Copy, Debug, Default)]
pub struct EpisodeStep<'a> {
    /// Raw environment feedback before the action, without history.
    pub observation: &'a str,
    /// The complete response, reasoning included.
    pub response: &'a str,
    /// The action projected from it.
    pub action: &'a str,
    /// Whether the response obeyed the action format.
    pub valid: bool,
    /// The observation is an image attached to the request; the text then shows a placeholder.
    pub has_image: bool,
}

/// A finished episode.
#[derive(Clone, Copy, Debug, Default)]
pub struct Episode<'a> {
    /// The task in one sentence, when known.
    pub task_description: Option<&'a str>,
    /// How it ended.
    pub outcome: OutcomeLabel,
    /// Its steps, oldest first.
    pub steps: &'a [EpisodeStep<'a>],
    /// 0-based steps that may get a step skill; empty = all. Read in step modes only.
    pub candidate_steps: &'a [usize],
}

/// Observations and actions of an episode, one per line: what the trajectory shows, for [`crate::ground_skill`] and
/// [`crate::check_skill`].
pub fn transcript_text(episode: &Episode<'_>) -> String {
    let mut text = String::new();
    for step in episode.steps {
        for part in [step.observation, step.action] {
            text.push_str(part);
            text.push('\n');
        }
    }
    text
}
