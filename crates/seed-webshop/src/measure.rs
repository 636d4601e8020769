//! Fixed visits, to measure how fast the shop answers.
//!
//! Not for: choosing good actions (see [`Shopper`]).

use std::hint::black_box;
use std::time::Duration;

use seed_env::{Environment, EnvironmentError, TaskId, World};
use seed_random::RandomKey;

use crate::{Shopper, WebshopWorld, play};

/// A task and the actions to take in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// The task.
    pub task: TaskId,
    /// The actions, in order.
    pub actions: Vec<String>,
}

impl Workload {
    /// What a noisy shopper does: it searches, pages, opens products and their details, chooses options, buys.
    ///
    /// # Errors
    /// [`EnvironmentError::UnknownTask`] for a task of another world.
    pub fn noisy(
        world: &WebshopWorld,
        task: &TaskId,
        noise: f64,
        key: &RandomKey,
    ) -> Result<Self, EnvironmentError> {
        let goal = world.goal(task)?;
        let visit = play(
            world.shop(),
            &goal,
            Shopper::Noisy(noise),
            key,
            world.default_max_steps(),
        );
        Ok(Self {
            task: task.clone(),
            actions: visit.steps.into_iter().map(|step| step.action).collect(),
        })
    }
}

/// Work done and the time it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Steps taken; the resets before them are timed with them.
    pub steps: u64,
    /// Of these, searches.
    pub searches: u64,
    /// Time by the clock that was given.
    pub elapsed: Duration,
}

impl Timing {
    /// Steps per second.
    pub fn per_second(&self) -> f64 {
        self.steps as f64 / self.elapsed.as_secs_f64()
    }
}

/// Plays workloads over and over until `minimum` has passed on `clock`. Every step goes through the general interface:
/// it writes the observation and makes a string of each action possible then.
///
/// # Errors
/// [`EnvironmentError`] when a workload is another world's.
pub fn time_steps(
    world: &WebshopWorld,
    workloads: &[Workload],
    minimum: Duration,
    clock: &dyn Fn() -> Duration,
) -> Result<Timing, EnvironmentError> {
    let mut environment: Box<dyn Environment> = world.environment();
    let start = clock();
    let (mut steps, mut searches) = (0, 0);
    loop {
        for workload in workloads {
            black_box(environment.reset(&workload.task, 0)?);
            black_box(environment.admissible_actions());
            for action in &workload.actions {
                black_box(environment.step(action)?);
                black_box(environment.admissible_actions());
                searches += u64::from(action.starts_with("search["));
                steps += 1;
            }
        }
        let elapsed = clock().saturating_sub(start);
        if elapsed >= minimum || steps == 0 {
            return Ok(Timing {
                steps,
                searches,
                elapsed,
            });
        }
    }
}
