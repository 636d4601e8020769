//! One reset or one step of one environment, with everything that can go wrong caught and named.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::failure::{FailureClass, shortened};
use super::{Opening, Step};
use crate::{Environment, EnvironmentError, Observation, TaskId, World};

/// The environment of a slot, kept from episode to episode; `None` before the first and after a failure.
pub(super) type Seat = Option<Box<dyn Environment>>;

/// A failure that does not know its episode yet.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) class: FailureClass,
    pub(super) message: String,
}

impl Fault {
    pub(super) fn new(class: FailureClass, message: &str) -> Self {
        Self {
            class,
            message: shortened(message),
        }
    }
}

impl From<EnvironmentError> for Fault {
    /// Keeps what the episode's failure does not say itself: that one names task and step.
    fn from(error: EnvironmentError) -> Self {
        match error {
            EnvironmentError::UnknownTask { .. } => Self::new(FailureClass::UnknownTask, &error.to_string()),
            EnvironmentError::NotReset => Self::new(FailureClass::Step, &error.to_string()),
            EnvironmentError::Step { message, .. } => Self::new(FailureClass::Step, &message),
            EnvironmentError::Load { source, .. } => {
                // The causes say which file and why; a log line shows nothing but this text.
                let mut message = source.to_string();
                let mut cause = source.source();
                while let Some(error) = cause {
                    message.push_str(": ");
                    message.push_str(&error.to_string());
                    cause = error.source();
                }
                Self::new(FailureClass::Load, &message)
            }
        }
    }
}

/// Loads a task into a seat, making its environment when it has none.
pub(super) fn reset(
    seat: &mut Seat,
    world: &dyn World,
    task: &TaskId,
    seed: u64,
    maximum_bytes: usize,
) -> Result<Opening, Fault> {
    guarded(seat, |seat| {
        let environment = seat.get_or_insert_with(|| world.environment());
        let observation = environment.reset(task, seed)?;
        check_size(&observation, maximum_bytes)?;
        Ok(Opening {
            observation,
            task_description: environment.task_description(),
            admissible_actions: environment.admissible_actions(),
        })
    })
}

/// Performs one action.
pub(super) fn step(seat: &mut Seat, action: &str, maximum_bytes: usize) -> Result<Step, Fault> {
    guarded(seat, |seat| {
        let environment = seat.as_mut().ok_or(EnvironmentError::NotReset)?;
        let transition = environment.step(action)?;
        check_size(&transition.observation, maximum_bytes)?;
        if !transition.reward.is_finite() {
            let message = format!("the reward is `{}`, not a finite number", transition.reward);
            return Err(Fault::new(FailureClass::InvalidReward, &message));
        }
        Ok(Step {
            transition,
            admissible_actions: environment.admissible_actions(),
            score: environment.score(),
        })
    })
}

/// Runs `work`; after any failure the environment is thrown away, since its state can no longer be trusted.
fn guarded<T>(seat: &mut Seat, work: impl FnOnce(&mut Seat) -> Result<T, Fault>) -> Result<T, Fault> {
    // Unwind safety: the only state the closure can leave half changed is the environment, which is dropped below.
    let result = catch_unwind(AssertUnwindSafe(|| work(seat)))
        .unwrap_or_else(|panic| Err(Fault::new(FailureClass::Panic, panic_message(panic.as_ref()))));
    if result.is_err() {
        let broken = seat.take();
        // A broken environment may also panic when it is dropped; the first failure is the one to report.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(broken)));
    }
    result
}

fn check_size(observation: &Observation, maximum_bytes: usize) -> Result<(), Fault> {
    let bytes = observation.text.len().max(observation.anchor.len());
    if bytes <= maximum_bytes {
        return Ok(());
    }
    let message = format!("the observation has {bytes} bytes; at most {maximum_bytes} are accepted");
    Err(Fault::new(FailureClass::ObservationTooLarge, &message))
}

/// The text of a panic: `panic!` carries a `&str` or a `String`.
fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a message")
}
