//! Training records of the hindsight-skill stage.
//!
//! Not for: reading or writing files, or holding records out for validation, which fine-tuning does for all examples.

use serde::{Deserialize, Serialize};

/// One pair of analysis prompt and answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SftRecord {
    /// The analysis prompt: one user message, before any chat template.
    pub prompt: String,
    /// The answer: a compact JSON object.
    pub response: String,
    /// The trajectory the skill came from, as `task:rollout`.
    pub skill_id: String,
    /// The task.
    pub task_id: String,
    /// Its family.
    pub task_type: String,
    /// Whether that trajectory succeeded; `None` when unknown.
    pub source_success: Option<bool>,
    /// Its number of environment steps.
    pub source_num_steps: usize,
}
