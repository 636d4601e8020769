//! What can go wrong with an episode, what can go wrong with a pool, and the counts of both.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Outcome, TaskId};

/// Longest failure message that is kept, in characters; a broken environment may send a megabyte.
const MESSAGE_CHARACTERS: usize = 500;

/// Kind of an episode failure: the unit in which failures are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// The world has no such task.
    UnknownTask,
    /// The task could not be loaded.
    Load,
    /// The environment returned an error while running.
    Step,
    /// The environment panicked.
    Panic,
    /// A reset exceeded its deadline.
    ResetTimeOut,
    /// A step exceeded its deadline.
    StepTimeOut,
    /// An observation was longer than [`PoolOptions::maximum_observation_bytes`](crate::PoolOptions).
    ObservationTooLarge,
    /// A reward was not a finite number.
    InvalidReward,
}

impl FailureClass {
    /// The name used in metrics and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::UnknownTask => "unknown_task",
            Self::Load => "load",
            Self::Step => "step",
            Self::Panic => "panic",
            Self::ResetTimeOut => "reset_time_out",
            Self::StepTimeOut => "step_time_out",
            Self::ObservationTooLarge => "observation_too_large",
            Self::InvalidReward => "invalid_reward",
        }
    }

    /// How an episode that failed so has ended.
    pub fn outcome(self) -> Outcome {
        match self {
            Self::ResetTimeOut | Self::StepTimeOut => Outcome::TimeOut,
            _ => Outcome::EnvironmentError,
        }
    }
}

impl fmt::Display for FailureClass {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// An episode that ended because its environment failed. It is counted and never trained.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("task `{task}` failed at {} ({class}): {message}", place(*.step))]
pub struct EpisodeFailure {
    /// What kind of failure.
    pub class: FailureClass,
    /// The task of the episode.
    pub task: TaskId,
    /// 0-based step that failed; `None` for the reset.
    pub step: Option<usize>,
    /// What the environment said, at most 500 characters of it.
    pub message: String,
}

impl EpisodeFailure {
    /// How the episode has ended: [`Outcome::TimeOut`] or [`Outcome::EnvironmentError`].
    pub fn outcome(&self) -> Outcome {
        self.class.outcome()
    }
}

fn place(step: Option<usize>) -> String {
    step.map_or_else(|| "reset".to_owned(), |step| format!("step {step}"))
}

/// Why a pool cannot go on. Unlike an [`EpisodeFailure`] it concerns the run, not one episode.
#[derive(Debug, Error)]
pub enum PoolError {
    /// Too many episodes failed.
    #[error(
        "the error budget is spent: {failed} of the last {episodes} episodes failed, more than a share of `{share}`; \
         most often `{class}`, for example: {sample}; repair the environment, or raise the budget"
    )]
    ErrorBudget {
        /// Failed episodes among the last `episodes`.
        failed: usize,
        /// Episodes looked at.
        episodes: usize,
        /// The share that is allowed.
        share: f64,
        /// The class that failed most often since the pool was made.
        class: FailureClass,
        /// One failure of that class.
        sample: Box<EpisodeFailure>,
    },
    /// More threads hang in environments than the options allow.
    #[error(
        "`{hung}` threads hang inside environments of world `{world}`, and `{maximum}` are allowed; find out why its \
         steps exceed the deadline of {deadline:?}"
    )]
    TooManyHungThreads {
        /// Threads that have not come back.
        hung: usize,
        /// The limit.
        maximum: usize,
        /// The world they hang in.
        world: String,
        /// Deadline of a step.
        deadline: Duration,
    },
    /// A batch names a slot twice.
    #[error("slot `{slot}` is named twice in one batch; an episode takes one action at a time")]
    DuplicateSlot {
        /// The slot.
        slot: usize,
    },
    /// A slot without a running episode was stepped.
    #[error("slot `{slot}` has no running episode; reset it before stepping it")]
    EmptySlot {
        /// The slot.
        slot: usize,
    },
    /// A share or a count of the options is outside its range.
    #[error("option `{option}` of the environment pool is `{value}`; it must be {range}")]
    Option {
        /// The option's name.
        option: &'static str,
        /// Its value.
        value: String,
        /// What is allowed.
        range: &'static str,
    },
    /// The operating system refused a thread.
    #[error("no thread could be started for environments; lower the number of episodes that run at once")]
    Thread(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// How many episodes may fail before the pool refuses to start more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ErrorBudget {
    /// Largest share of failed episodes, in `0..=1`; `1` never stops a run.
    pub share: f64,
    /// How many of the latest episodes the share is taken over. A long good past does not excuse a broken present.
    pub window: usize,
    /// No verdict before this many episodes.
    pub minimum: usize,
}

impl Default for ErrorBudget {
    /// A tenth of the last 256 episodes, judged from 32 episodes on.
    fn default() -> Self {
        Self {
            share: 0.1,
            window: 256,
            minimum: 32,
        }
    }
}

/// Failures of one class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureCount {
    /// How many episodes failed so.
    pub count: u64,
    /// The first of them.
    pub sample: EpisodeFailure,
}

/// What a pool has done since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolCounters {
    /// Episodes started, failed resets included.
    pub episodes: u64,
    /// Steps asked for, failed ones included.
    pub steps: u64,
    /// Failures by class.
    pub failures: BTreeMap<FailureClass, FailureCount>,
    /// Threads given up because an environment did not come back, in all.
    pub threads_abandoned: u64,
}

impl PoolCounters {
    /// Failed episodes of all classes.
    pub fn failed(&self) -> u64 {
        self.failures.values().map(|failures| failures.count).sum()
    }
}

/// Counters and the sliding window of the error budget.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) counters: PoolCounters,
    /// Whether each of the latest episodes failed, oldest first.
    latest: VecDeque<bool>,
}

impl Ledger {
    /// Notes a new episode and returns its number.
    pub(super) fn start(&mut self, window: usize) -> u64 {
        if self.latest.len() >= window {
            self.latest.pop_front();
        }
        self.latest.push_back(false);
        self.counters.episodes += 1;
        self.counters.episodes - 1
    }

    /// Notes that episode number `episode` failed.
    pub(super) fn fail(&mut self, episode: u64, failure: &EpisodeFailure) {
        self.counters
            .failures
            .entry(failure.class)
            .and_modify(|failures| failures.count += 1)
            .or_insert_with(|| FailureCount {
                count: 1,
                sample: failure.clone(),
            });
        let age = (self.counters.episodes - episode) as usize;
        if let Some(failed) = self
            .latest
            .len()
            .checked_sub(age)
            .and_then(|index| self.latest.get_mut(index))
        {
            *failed = true;
        }
    }

    /// # Errors
    /// [`PoolError::ErrorBudget`] when more of the latest episodes failed than the budget allows.
    pub(super) fn check(&self, budget: &ErrorBudget) -> Result<(), PoolError> {
        let episodes = self.latest.len();
        let failed = self.latest.iter().filter(|&&failed| failed).count();
        if episodes < budget.minimum || failed as f64 <= budget.share * episodes as f64 {
            return Ok(());
        }
        // The class with most failures; of two with the same number, the first by name order.
        let worst = self
            .counters
            .failures
            .iter()
            .max_by(|left, right| left.1.count.cmp(&right.1.count).then(right.0.cmp(left.0)));
        worst.map_or(Ok(()), |(&class, failures)| {
            Err(PoolError::ErrorBudget {
                failed,
                episodes,
                share: budget.share,
                class,
                sample: Box::new(failures.sample.clone()),
            })
        })
    }
}

/// The message, cut to a length that a log can hold.
pub(super) fn shortened(message: &str) -> String {
    match message.char_indices().nth(MESSAGE_CHARACTERS) {
        None => message.to_owned(),
        Some((end, _)) => format!("{}… ({} bytes)", &message[..end], message.len()),
    }
}
