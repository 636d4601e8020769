//! Task identities, splits, outcomes, and the world that offers them.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Dialogue, Environment, SkillRules};

/// Stable identity of one task instance, such as `household-studio/train/000017` or
/// `alfworld/valid_seen/pick_and_place_simple-…/trial_…`. The same id is the same task on every machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(pub Arc<str>);

impl TaskId {
    /// An id from its text.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The id's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Which part of a world a task belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// Tasks a policy may train on.
    Train,
    /// Held-out tasks for choosing hyper-parameters (ALFWorld: `valid_train`).
    Development,
    /// In-distribution evaluation (ALFWorld: `valid_seen`).
    Seen,
    /// Out-of-distribution evaluation (ALFWorld: `valid_unseen`).
    Unseen,
}

impl Split {
    /// All splits.
    pub const ALL: [Self; 4] = [Self::Train, Self::Development, Self::Seen, Self::Unseen];

    /// The name used in ids, configurations and metric names.
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Development => "development",
            Self::Seen => "seen",
            Self::Unseen => "unseen",
        }
    }
}

/// One task of a world.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Stable identity.
    pub id: TaskId,
    /// Split the task belongs to.
    pub split: Split,
    /// Task family, the unit of per-family reporting (ALFWorld: one of six).
    pub family: String,
}

/// How an episode ended. Exactly one per episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The environment terminated and the goal was reached.
    Success,
    /// The environment terminated without the goal.
    Failure,
    /// The turn limit was reached.
    OutOfTurns,
    /// The context or response budget was reached before the environment terminated.
    OutOfTokens,
    /// The environment failed; such an episode is counted and never trained.
    EnvironmentError,
    /// A step exceeded its deadline; such an episode is counted and never trained.
    TimeOut,
    /// The engine that generates did not answer usably; such an episode is counted and never trained.
    EngineError,
    /// The run was stopped while the episode was going on; never trained.
    Cancelled,
}

impl Outcome {
    /// Whether an episode with this outcome may be trained on.
    pub fn trains(self) -> bool {
        !matches!(
            self,
            Self::EnvironmentError | Self::TimeOut | Self::EngineError | Self::Cancelled
        )
    }
}

/// A family of tasks that share rules: it lists tasks, makes environments, and knows how to talk about them.
pub trait World: Send + Sync {
    /// Name used in configurations and task ids.
    fn name(&self) -> &str;

    /// All tasks of a split in their canonical order. Evaluation panels are prefixes or seeded samples of this
    /// list; every task once.
    fn tasks(&self, split: Split) -> &[Task];

    /// Tells worlds apart whose tasks differ, so that a resumed run can refuse to go on with others: a hexadecimal
    /// BLAKE3 digest. The provided one covers name and task ids; a world that reads its tasks from files must cover
    /// their contents.
    fn digest(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.name().as_bytes());
        for split in Split::ALL {
            for task in self.tasks(split) {
                hasher.update(b"\n");
                hasher.update(task.id.as_str().as_bytes());
            }
        }
        hasher.finalize().to_hex().to_string()
    }

    /// A fresh environment able to run any task of this world.
    fn environment(&self) -> Box<dyn Environment>;

    /// How episodes of this world are shown to a language model.
    fn dialogue(&self) -> &dyn Dialogue;

    /// Whether environments of this world run inside this process and always come back, so that they may be stepped
    /// without watching a deadline. A world that waits for a browser, a server or another process must say `false`.
    fn is_native(&self) -> bool {
        true
    }

    /// Rules that write skills about this world's tasks; `None` where there are none.
    fn skill_rules(&self) -> Option<&dyn SkillRules> {
        None
    }

    /// The step limit the world's papers use; configurations may lower or raise it.
    fn default_max_steps(&self) -> usize;
}
