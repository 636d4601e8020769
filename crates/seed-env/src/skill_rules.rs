//! Skills written by rule: yardsticks of what a skill is worth, for worlds whose texts rules can read.
//!
//! An oracle skill knows the task's solution, a wrong one misleads in the same form, a library's skill knows the kind of
//! task and not this one. Training with each of them shows how much of a method's gain the skill's content explains.
//!
//! Not for: skills that a model writes.

use std::collections::BTreeMap;

use seed_random::RandomKey;

use crate::{EnvironmentError, Task, TaskId};

/// A finished episode as rules read it.
#[derive(Clone, Copy, Debug)]
pub struct FinishedEpisode<'a> {
    /// The task in one sentence.
    pub task_description: &'a str,
    /// All observations in order; the first was seen before any action.
    pub observations: &'a [&'a str],
    /// Whether the goal was reached.
    pub won: bool,
}

/// What rules write about a finished episode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleAnnotation {
    /// One sentence on what happened.
    pub summary: String,
    /// How to do the task.
    pub skill: String,
    /// What to do at single steps, by 0-based step.
    pub step_skills: BTreeMap<usize, String>,
}

/// A static library of skills, looked up by what the policy is told of a task.
pub trait SkillLibrary: Send + Sync {
    /// The skill for tasks like this one; `None` when the library has none.
    ///
    /// # Errors
    /// [`EnvironmentError`] when the task is unknown or cannot be loaded.
    fn skill(&self, task: &TaskId) -> Result<Option<String>, EnvironmentError>;
}

/// Rules that write skills. Equal arguments give equal skills.
pub trait SkillRules: Send + Sync {
    /// The skill of a perfect episode of `task`; `None` when the rules cannot read it.
    ///
    /// # Errors
    /// [`EnvironmentError`] when the task is unknown or cannot be loaded.
    fn oracle_skill(&self, task: &TaskId) -> Result<Option<String>, EnvironmentError>;

    /// A skill of the right form that misleads; `key` draws how. `None` when the rules cannot read the task.
    ///
    /// # Errors
    /// [`EnvironmentError`] when the task is unknown or cannot be loaded.
    fn wrong_skill(&self, task: &TaskId, key: &RandomKey) -> Result<Option<String>, EnvironmentError>;

    /// What a finished episode teaches, from its texts alone; `None` when the rules cannot read it.
    fn annotate(&self, episode: &FinishedEpisode<'_>) -> Option<RuleAnnotation>;

    /// The library that perfect episodes of `tasks` teach. A few tasks of each family are enough: the first ones in the
    /// given order are read.
    ///
    /// # Errors
    /// [`EnvironmentError`] when a task is unknown or cannot be loaded.
    fn library(&self, tasks: &[Task]) -> Result<Box<dyn SkillLibrary>, EnvironmentError>;
}
