//! Batched stepping of many episodes, with a deadline per step and failures that stay with their episode.
//!
//! An [`EnvironmentPool`] holds one environment per *slot*. A batch of resets or steps comes back in the order it was
//! asked for, whatever threads did it. When an environment errs, panics, hangs or talks nonsense, its own episode ends
//! with an [`EpisodeFailure`] and every other one goes on.
//!
//! How a batch is run depends on [`World::is_native`]:
//!
//! * A **native** world runs in this process and always comes back. It is stepped in place, or on
//!   [`PoolOptions::threads`] threads from [`PoolOptions::inline_below`] episodes on. Deadlines are *not* watched.
//! * Any **other** world may hang. Every slot has its own thread, and no call takes longer than its deadline (plus
//!   the time to hand over the batch). A thread that does not come back in time is left behind; its slot is empty
//!   until its next reset, which starts a new one. How many may hang at once is bounded.
//!
//! Not for: deciding actions or keeping trajectories (the rollout does), or isolating a process: an environment that
//! aborts or overflows its stack takes the program with it.

mod failure;
mod isolated;
mod native;
mod perform;

use std::sync::Arc;
use std::time::Duration;

pub use failure::{EpisodeFailure, ErrorBudget, FailureClass, FailureCount, PoolCounters, PoolError};

use self::failure::Ledger;
use self::isolated::Isolated;
use self::native::Native;
use self::perform::Fault;
use crate::{Observation, Outcome, TaskId, Transition, World};

/// A deadline beyond this is a slip of units, and adding it to the clock might overflow.
const LONGEST_DEADLINE: Duration = Duration::from_hours(24);

/// How a pool runs.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolOptions {
    /// Threads that step native environments; `1` runs everything on the caller's.
    pub threads: usize,
    /// Batches with fewer episodes are run on the caller's thread: waking another costs more than a native step.
    pub inline_below: usize,
    /// Longest time of a step, for worlds that are not native.
    pub step_deadline: Duration,
    /// Longest time of a reset, making the environment included, for worlds that are not native.
    pub reset_deadline: Duration,
    /// How many threads may hang at once before no episode is started any more.
    pub maximum_hung_threads: usize,
    /// An observation with more bytes than this ends its episode as a failure.
    pub maximum_observation_bytes: usize,
    /// The share of failing episodes that stops a run.
    pub error_budget: ErrorBudget,
}

impl Default for PoolOptions {
    /// One thread, 30 seconds a step, 120 a reset, 64 hung threads, 256 KiB an observation.
    fn default() -> Self {
        Self {
            threads: 1,
            inline_below: 64,
            step_deadline: Duration::from_secs(30),
            reset_deadline: Duration::from_mins(2),
            maximum_hung_threads: 64,
            maximum_observation_bytes: 256 * 1024,
            error_budget: ErrorBudget::default(),
        }
    }
}

impl PoolOptions {
    fn validate(&self) -> Result<(), PoolError> {
        let refuse = |option, value: String, range| Err(PoolError::Option { option, value, range });
        if self.threads == 0 {
            return refuse("threads", self.threads.to_string(), "at least 1");
        }
        for (option, deadline) in [
            ("step_deadline", self.step_deadline),
            ("reset_deadline", self.reset_deadline),
        ] {
            if deadline.is_zero() || deadline > LONGEST_DEADLINE {
                return refuse(option, format!("{deadline:?}"), "more than 0 and at most a day");
            }
        }
        let share = self.error_budget.share;
        if !(0.0..=1.0).contains(&share) {
            return refuse("error_budget.share", share.to_string(), "between 0 and 1");
        }
        if self.error_budget.window == 0 {
            return refuse("error_budget.window", "0".to_owned(), "at least 1");
        }
        Ok(())
    }
}

/// A request to start an episode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpisodeStart {
    /// Where it runs. Slots are plain numbers from 0, made when first used; an episode still running there is dropped.
    pub slot: usize,
    /// Which task.
    pub task: TaskId,
    /// What drives the environment's own draws; equal within a group.
    pub seed: u64,
}

/// What an episode begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// What is seen first.
    pub observation: Observation,
    /// The task in one sentence.
    pub task_description: String,
    /// Actions possible now, in the environment's canonical order.
    pub admissible_actions: Vec<String>,
}

/// What came of an action.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Observation, reward and whether the episode is over.
    pub transition: Transition,
    /// Actions possible now, in the environment's canonical order.
    pub admissible_actions: Vec<String>,
    /// The result's grade so far, in worlds that have one ([`Environment::score`](crate::Environment::score)).
    pub score: Option<f32>,
}

/// The episode running in a slot.
#[derive(Clone, Debug)]
struct Running {
    task: TaskId,
    /// Steps taken.
    steps: usize,
    /// Number of the episode since the pool was made.
    episode: u64,
}

#[derive(Debug, Default)]
struct Slot {
    running: Option<Running>,
    /// The last batch that named this slot, to find one named twice.
    batch: u64,
}

enum Backend {
    Native(Native),
    Isolated(Isolated),
}

/// Environments of one world, one per slot.
///
/// Native worlds ([`World::is_native`]) are stepped on the caller's thread, or on [`PoolOptions::threads`] threads
/// from [`PoolOptions::inline_below`] episodes on, and no deadline is watched. Any other world has a thread per slot,
/// and no call takes longer than its deadline: episodes that have not answered by then are timed out.
pub struct EnvironmentPool {
    world: Arc<dyn World>,
    options: PoolOptions,
    backend: Backend,
    slots: Vec<Slot>,
    batch: u64,
    ledger: Ledger,
}

impl EnvironmentPool {
    /// A pool without episodes.
    ///
    /// # Errors
    /// [`PoolError::Option`] when an option is out of range, [`PoolError::Thread`] when no thread can be had.
    pub fn new(world: Arc<dyn World>, options: PoolOptions) -> Result<Self, PoolError> {
        options.validate()?;
        let backend = if world.is_native() {
            Backend::Native(Native::new(options.threads, options.inline_below)?)
        } else {
            Backend::Isolated(Isolated::new(
                Arc::clone(&world),
                options.maximum_observation_bytes,
            ))
        };
        Ok(Self {
            world,
            options,
            backend,
            slots: Vec::new(),
            batch: 0,
            ledger: Ledger::default(),
        })
    }

    /// The world the environments belong to.
    pub fn world(&self) -> &Arc<dyn World> {
        &self.world
    }

    /// What was done so far.
    pub fn counters(&self) -> &PoolCounters {
        &self.ledger.counters
    }

    /// Threads that hang in an environment now; one that comes back after all is no longer counted.
    pub fn hung_threads(&self) -> usize {
        match &self.backend {
            Backend::Native(_) => 0,
            Backend::Isolated(isolated) => isolated.hung(),
        }
    }

    /// Whether an episode runs in `slot`. Episodes that terminated still count: only a failure empties a slot.
    pub fn is_running(&self, slot: usize) -> bool {
        self.slots.get(slot).is_some_and(|slot| slot.running.is_some())
    }

    /// Starts one episode.
    ///
    /// # Errors
    /// As [`EnvironmentPool::reset_all`].
    pub fn reset(
        &mut self,
        slot: usize,
        task: &TaskId,
        seed: u64,
    ) -> Result<Result<Opening, EpisodeFailure>, PoolError> {
        let start = EpisodeStart {
            slot,
            task: task.clone(),
            seed,
        };
        let mut openings = self.reset_all(std::slice::from_ref(&start))?;
        // Invariant: one result per request.
        openings.pop().ok_or(PoolError::EmptySlot { slot })
    }

    /// Starts episodes, and returns their openings or failures in the order asked for.
    ///
    /// # Errors
    /// [`PoolError::ErrorBudget`] and [`PoolError::TooManyHungThreads`] before anything is started, when what went
    /// before forbids it; [`PoolError::DuplicateSlot`]; [`PoolError::Thread`].
    pub fn reset_all(
        &mut self,
        starts: &[EpisodeStart],
    ) -> Result<Vec<Result<Opening, EpisodeFailure>>, PoolError> {
        self.check_error_budget()?;
        let hung = self.hung_threads();
        if hung > self.options.maximum_hung_threads {
            return Err(PoolError::TooManyHungThreads {
                hung,
                maximum: self.options.maximum_hung_threads,
                world: self.world.name().to_owned(),
                deadline: self.options.step_deadline,
            });
        }
        self.claim(starts.iter().map(|start| start.slot))?;
        let results = match &mut self.backend {
            Backend::Native(native) => native.reset(
                self.world.as_ref(),
                starts,
                self.options.maximum_observation_bytes,
            ),
            Backend::Isolated(isolated) => isolated.reset(starts, self.options.reset_deadline)?,
        };
        Ok(starts
            .iter()
            .zip(results)
            .map(|(start, result)| {
                let running = Running {
                    task: start.task.clone(),
                    steps: 0,
                    episode: self.ledger.start(self.options.error_budget.window),
                };
                let result = result.map_err(|fault| self.fail(&running, None, fault));
                if let Some(slot) = self.slots.get_mut(start.slot) {
                    slot.running = result.is_ok().then_some(running);
                }
                result
            })
            .collect())
    }

    /// Performs one action in each of the named slots, and returns what came of them in the order asked for.
    ///
    /// # Errors
    /// [`PoolError::DuplicateSlot`] and [`PoolError::EmptySlot`], before anything is done.
    pub fn step_all(
        &mut self,
        actions: &[(usize, &str)],
    ) -> Result<Vec<Result<Step, EpisodeFailure>>, PoolError> {
        if let Some(&(slot, _)) = actions.iter().find(|(slot, _)| !self.is_running(*slot)) {
            return Err(PoolError::EmptySlot { slot });
        }
        self.claim(actions.iter().map(|&(slot, _)| slot))?;
        let results = match &mut self.backend {
            Backend::Native(native) => native.step(actions, self.options.maximum_observation_bytes),
            Backend::Isolated(isolated) => isolated.step(actions, self.options.step_deadline),
        };
        self.ledger.counters.steps += actions.len() as u64;
        let mut settled = Vec::with_capacity(actions.len());
        for (&(slot, _), result) in actions.iter().zip(results) {
            // Empty slots were refused above, so there is one to take; only a step that went well puts it back.
            let place = self.slots.get_mut(slot).map(|slot| &mut slot.running);
            let mut running = place
                .and_then(Option::take)
                .ok_or(PoolError::EmptySlot { slot })?;
            settled.push(match result {
                Ok(step) => {
                    running.steps += 1;
                    if let Some(place) = self.slots.get_mut(slot) {
                        place.running = Some(running);
                    }
                    Ok(step)
                }
                Err(fault) => Err(self.fail(&running, Some(running.steps), fault)),
            });
        }
        Ok(settled)
    }

    /// # Errors
    /// [`PoolError::ErrorBudget`] when too many of the latest episodes failed. [`EnvironmentPool::reset_all`] asks
    /// this itself; ask it once more at the end of a run.
    pub fn check_error_budget(&self) -> Result<(), PoolError> {
        self.ledger.check(&self.options.error_budget)
    }

    /// Makes the slots of a batch where needed, and refuses a batch that names one twice.
    fn claim(&mut self, slots: impl Iterator<Item = usize>) -> Result<(), PoolError> {
        self.batch += 1;
        for slot in slots {
            if self.slots.len() <= slot {
                self.slots.resize_with(slot + 1, Slot::default);
            }
            let claimed = self.slots.get_mut(slot).is_some_and(|place| {
                // True when this batch is the first to claim it since the last.
                std::mem::replace(&mut place.batch, self.batch) != self.batch
            });
            if !claimed {
                return Err(PoolError::DuplicateSlot { slot });
            }
        }
        Ok(())
    }

    /// Counts a failure and gives it its episode.
    fn fail(&mut self, ended: &Running, step: Option<usize>, fault: Fault) -> EpisodeFailure {
        let failure = EpisodeFailure {
            class: fault.class,
            task: ended.task.clone(),
            step,
            message: fault.message,
        };
        if failure.outcome() == Outcome::TimeOut {
            self.ledger.counters.threads_abandoned += 1;
        }
        self.ledger.fail(ended.episode, &failure);
        failure
    }
}
