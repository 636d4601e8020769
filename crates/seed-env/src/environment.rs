//! The environment trait and what passes through it.

use thiserror::Error;

use crate::TaskId;

/// An image observation: 8-bit RGB, row-major, `width * height * 3` bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Pixels per row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// `width * height * 3` bytes.
    pub rgb: Vec<u8>,
}

/// What the environment shows after a reset or a step.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Observation {
    /// The text shown to the policy.
    pub text: String,
    /// Raw feedback without history: the state key of step-level grouping, and what the analyser reads.
    pub anchor: String,
    /// The picture, for visual worlds.
    pub image: Option<Image>,
}

impl Observation {
    /// A text observation whose anchor is the text itself.
    pub fn text(text: impl Into<String>) -> Self {
        let text = text.into();
        Self {
            anchor: text.clone(),
            text,
            image: None,
        }
    }
}

/// The result of one step.
#[derive(Clone, Debug, PartialEq)]
pub struct Transition {
    /// What is seen now.
    pub observation: Observation,
    /// Reward of this step.
    pub reward: f32,
    /// The task itself ended (goal reached or lost). Never set by a step limit.
    pub terminated: bool,
    /// The environment's own limit cut the episode.
    pub truncated: bool,
    /// The goal is reached.
    pub won: bool,
}

/// Why an environment could not do what was asked.
#[derive(Debug, Error)]
pub enum EnvironmentError {
    /// The task id names no task of this world.
    #[error("no task `{task}` in world `{world}`; `seed env tasks {world}` lists them")]
    UnknownTask {
        /// The id asked for.
        task: TaskId,
        /// The world it was asked of.
        world: String,
    },
    /// `step` before a successful `reset`.
    #[error("the environment was stepped before a task was loaded; call `reset` first")]
    NotReset,
    /// The world's data could not be read.
    #[error("task `{task}` could not be loaded")]
    Load {
        /// The task being loaded.
        task: TaskId,
        /// What went wrong.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The environment broke while running.
    #[error("task `{task}` failed at step {step}: {message}")]
    Step {
        /// The running task.
        task: TaskId,
        /// 0-based step.
        step: usize,
        /// What went wrong.
        message: String,
    },
}

/// One episode's environment. Reset loads a task; the same object can be reset to another task at any time.
pub trait Environment: Send {
    /// Loads `task` and returns the first observation. `seed` drives whatever the environment draws itself; members
    /// of a group get the same seed and so the same initial state.
    ///
    /// # Errors
    /// [`EnvironmentError`] when the task is unknown or cannot be loaded.
    fn reset(&mut self, task: &TaskId, seed: u64) -> Result<Observation, EnvironmentError>;

    /// Performs one action. An action the environment does not understand is not an error: it costs a step.
    ///
    /// # Errors
    /// [`EnvironmentError`] when the environment itself breaks; the episode then ends and is never trained.
    fn step(&mut self, action: &str) -> Result<Transition, EnvironmentError>;

    /// The actions possible now, in the environment's canonical order; empty where actions are free text.
    fn admissible_actions(&self) -> Vec<String>;

    /// The task in one sentence, as the policy is told it, without an introduction such as `Your task is to:`.
    fn task_description(&self) -> String;

    /// How good the episode's result is so far, 0 to 1, in worlds that grade results between lost and won; `None` in the
    /// others. A goal reached has 1. Not the reward: what is trained on is the world's choice.
    fn score(&self) -> Option<f32> {
        None
    }
}
