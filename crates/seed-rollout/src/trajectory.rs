//! What an episode leaves behind.

use std::ops::Range;

use seed_env::{ContextKind, Outcome, Split, TaskId};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

/// Why a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishKind {
    /// An end token was sampled; it is the response's last id.
    Stop,
    /// The response budget was used up.
    Length,
    /// The model's context was full.
    Context,
}

/// One turn: what was shown, what was sampled, what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Raw environment feedback the policy acted on (no history): the grouping key and the analyser's transcript.
    pub observation: String,
    /// The user message as shown, before the chat template.
    pub prompt_text: String,
    /// Ids computed before this response. `windowed`: the whole prompt of the step. `transcript`: what was appended
    /// since the previous response.
    pub prompt_ids: Vec<u32>,
    /// Prompt ids that truncation removed from the left.
    pub prompt_ids_truncated: usize,
    /// Sampled ids, the end token included when it was sampled.
    pub response_ids: Vec<u32>,
    /// Behaviour log-probs (nats, at the sampling temperature), one per response id.
    #[serde(deserialize_with = "finite_numbers")]
    pub log_probs: Vec<f32>,
    /// Decoded response without control tokens.
    pub response_text: String,
    /// Why the response ended.
    pub finish: FinishKind,
    /// The action the environment was told.
    pub action: String,
    /// Indices into `response_ids` of the tokens that make up the action; empty when the response held none.
    pub action_tokens: Range<usize>,
    /// Whether the response obeyed the action format.
    pub valid: bool,
    /// Reward of this step.
    #[serde(deserialize_with = "finite_number")]
    pub reward: f32,
}

/// One finished episode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trajectory {
    /// The task played.
    pub task: TaskId,
    /// Split of the task.
    pub split: Split,
    /// Task family, for per-family reporting.
    pub family: String,
    /// Group id: trajectories of one group share a task and an initial state.
    pub group: u64,
    /// Position inside the group.
    pub sample: u32,
    /// Context kind the episode was played in.
    pub context: ContextKind,
    /// The task in one sentence.
    pub task_description: String,
    /// Turns in order.
    pub steps: Vec<Step>,
    /// Raw feedback after the last action.
    pub final_observation: String,
    /// How the episode ended.
    pub outcome: Outcome,
    /// The result's grade, 0 to 1, in worlds that grade between lost and won.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f32>,
    /// What failed, when the outcome is an error.
    pub error: Option<String>,
}

impl Trajectory {
    /// Undiscounted sum of step rewards.
    pub fn episode_return(&self) -> f32 {
        self.steps.iter().map(|step| step.reward).sum()
    }

    /// Whether the goal was reached.
    pub fn success(&self) -> bool {
        self.outcome == Outcome::Success
    }

    /// Sampled tokens over all turns.
    pub fn response_tokens(&self) -> usize {
        self.steps.iter().map(|step| step.response_ids.len()).sum()
    }
}

/// Refuses a number that is too large for an `f32`: read as an infinity, it could not be written again.
fn finite_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f32, D::Error> {
    let number = f64::deserialize(deserializer)?;
    let narrowed = number as f32;
    if narrowed.is_finite() {
        Ok(narrowed)
    } else {
        Err(D::Error::custom(format_args!("`{number}` is too large")))
    }
}

fn finite_numbers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f32>, D::Error> {
    #[derive(Deserialize)]
    #[serde(transparent)]
    struct Finite(#[serde(deserialize_with = "finite_number")] f32);

    let numbers = Vec::<Finite>::deserialize(deserializer)?;
    Ok(numbers.into_iter().map(|Finite(number)| number).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(log_prob: &str, reward: &str) -> Result<Step, serde_json::Error> {
        serde_json::from_str(&format!(
            r#"{{"observation":"","prompt_text":"","prompt_ids":[],"prompt_ids_truncated":0,"response_ids":[5],
            "log_probs":[{log_prob}],"response_text":"","finish":"stop","action":"","action_tokens":{{"start":0,"end":0}},
            "valid":true,"reward":{reward}}}"#
        ))
    }

    #[test]
    fn numbers_that_no_f32_holds_are_refused() {
        let read = step("-0.1", "10").unwrap();
        assert_eq!(
            (read.log_probs.as_slice(), read.reward),
            ([-0.1].as_slice(), 10.0)
        );
        for (log_prob, reward) in [("-1e39", "0"), ("0", "1e39")] {
            let message = step(log_prob, reward).unwrap_err().to_string();
            assert!(message.contains("is too large"), "{message}");
        }
        assert_eq!(step("-3.4e38", "0").unwrap().log_probs, [-3.4e38]);
    }
}
