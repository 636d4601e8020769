//! A tiny world for tests of programs that run environments, with failures on demand.
//!
//! A ball lies in one of a few boxes. Opening a wrong box tells on which side the ball is, so an episode can be won by
//! reading. Texts are in ALFWorld's form, and [`HouseholdDialogue`] talks about them. Whether and how an episode fails
//! is a function of its task and seed, so a test can say beforehand which ones must.
//!
//! Not for: training anything worth having.

use std::time::Duration;

use seed_random::RandomKey;

use crate::{
    Dialogue, Environment, EnvironmentError, HouseholdDialogue, HouseholdStyle, Observation, Split, Task,
    TaskId, Transition, World,
};

/// Shares of episodes that fail, each in `0..=1`, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Failures {
    /// Step at which a failing episode fails (0-based).
    pub at_step: usize,
    /// Episodes whose step does not come back for [`Failures::hang_for`].
    pub hang: f64,
    /// How long a hanging step sleeps.
    pub hang_for: Duration,
    /// Episodes whose reset returns an error.
    pub reset_error: f64,
    /// Episodes whose step returns an error.
    pub step_error: f64,
    /// Episodes whose step panics.
    pub panic: f64,
    /// Episodes whose step returns an observation of one megabyte.
    pub oversized: f64,
    /// Episodes whose step returns a reward that is not a number.
    pub invalid_reward: f64,
}

impl Default for Failures {
    /// Nothing fails.
    fn default() -> Self {
        Self {
            at_step: 1,
            hang: 0.0,
            hang_for: Duration::from_hours(1),
            reset_error: 0.0,
            step_error: 0.0,
            panic: 0.0,
            oversized: 0.0,
            invalid_reward: 0.0,
        }
    }
}

/// How an episode of a [`ToyWorld`] is made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Injection {
    /// A step sleeps.
    Hang,
    /// The reset errs.
    ResetError,
    /// A step errs.
    StepError,
    /// A step panics.
    Panic,
    /// A step returns a megabyte.
    Oversized,
    /// A step returns a reward that is not a number.
    InvalidReward,
}

/// What a [`ToyWorld`] is like.
#[derive(Clone, Debug, PartialEq)]
pub struct ToyOptions {
    /// Tasks of each split.
    pub tasks_per_split: usize,
    /// Boxes of each task, at least 1.
    pub boxes: usize,
    /// What [`World::is_native`] says.
    pub native: bool,
    /// What fails.
    pub failures: Failures,
}

impl Default for ToyOptions {
    /// Twenty tasks a split, six boxes, native, nothing fails.
    fn default() -> Self {
        Self {
            tasks_per_split: 20,
            boxes: 6,
            native: true,
            failures: Failures::default(),
        }
    }
}

/// A ball in one of a few boxes. Families are `near` (the first half of the boxes) and `far`.
pub struct ToyWorld {
    options: ToyOptions,
    tasks: [Vec<Task>; 4],
    dialogue: HouseholdDialogue,
}

impl ToyWorld {
    /// A world with a full-style dialogue.
    pub fn new(options: ToyOptions) -> Self {
        let tasks = Split::ALL.map(|split| {
            (0..options.tasks_per_split)
                .map(|index| {
                    let id = TaskId::new(format!("toy/{}/{index:03}", split.name()));
                    let near = ball(&id, options.boxes) <= options.boxes / 2;
                    Task {
                        split,
                        family: if near { "near" } else { "far" }.to_owned(),
                        id,
                    }
                })
                .collect()
        });
        Self {
            options,
            tasks,
            dialogue: HouseholdDialogue::new(HouseholdStyle::Full),
        }
    }

    /// The same world with another dialogue.
    pub fn with_dialogue(mut self, dialogue: HouseholdDialogue) -> Self {
        self.dialogue = dialogue;
        self
    }

    /// The action that wins a task at once.
    pub fn winning_action(&self, task: &TaskId) -> String {
        format!("open box {}", ball(task, self.options.boxes))
    }

    /// How the episode of a task and a seed fails, if it does.
    pub fn injection(&self, task: &TaskId, seed: u64) -> Option<Injection> {
        injection(&self.options.failures, task, seed)
    }
}

impl World for ToyWorld {
    fn name(&self) -> &'static str {
        "toy"
    }

    fn tasks(&self, split: Split) -> &[Task] {
        Split::ALL
            .iter()
            .position(|&other| other == split)
            .and_then(|index| self.tasks.get(index))
            .map_or(&[], Vec::as_slice)
    }

    fn environment(&self) -> Box<dyn Environment> {
        Box::new(ToyEnvironment {
            options: self.options.clone(),
            episode: None,
        })
    }

    fn dialogue(&self) -> &dyn Dialogue {
        &self.dialogue
    }

    fn is_native(&self) -> bool {
        self.options.native
    }

    fn default_max_steps(&self) -> usize {
        8
    }
}

/// The box, from 1, that holds the ball.
fn ball(task: &TaskId, boxes: usize) -> usize {
    let draw = RandomKey::new(0).with_text("ball", task.as_str()).uniform(0);
    1 + (draw * boxes as f64) as usize
}

fn injection(failures: &Failures, task: &TaskId, seed: u64) -> Option<Injection> {
    let mut draw = RandomKey::new(seed)
        .with_text("injection", task.as_str())
        .uniform(0);
    let shares = [
        (failures.hang, Injection::Hang),
        (failures.reset_error, Injection::ResetError),
        (failures.step_error, Injection::StepError),
        (failures.panic, Injection::Panic),
        (failures.oversized, Injection::Oversized),
        (failures.invalid_reward, Injection::InvalidReward),
    ];
    // One draw decides among all kinds, so that their shares add up.
    for (share, injection) in shares {
        if draw < share {
            return Some(injection);
        }
        draw -= share;
    }
    None
}

struct Episode {
    task: TaskId,
    ball: usize,
    opened: Vec<bool>,
    steps: usize,
    won: bool,
    injection: Option<Injection>,
}

struct ToyEnvironment {
    options: ToyOptions,
    episode: Option<Episode>,
}

impl Environment for ToyEnvironment {
    fn reset(&mut self, task: &TaskId, seed: u64) -> Result<Observation, EnvironmentError> {
        if !task.as_str().starts_with("toy/") {
            return Err(EnvironmentError::UnknownTask {
                task: task.clone(),
                world: "toy".to_owned(),
            });
        }
        let injection = injection(&self.options.failures, task, seed);
        if injection == Some(Injection::ResetError) {
            return Err(EnvironmentError::Load {
                task: task.clone(),
                source: "the injected reset error".into(),
            });
        }
        let episode = Episode {
            task: task.clone(),
            ball: ball(task, self.options.boxes),
            opened: vec![false; self.options.boxes],
            steps: 0,
            won: false,
            injection,
        };
        let boxes: Vec<String> = (1..=self.options.boxes)
            .map(|number| format!("a box {number}"))
            .collect();
        self.episode = Some(episode);
        Ok(Observation::text(format!(
            "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, you see {}.\n\nYour task is to: {}",
            boxes.join(", "),
            self.task_description(),
        )))
    }

    fn step(&mut self, action: &str) -> Result<Transition, EnvironmentError> {
        let failures = &self.options.failures;
        let episode = self.episode.as_mut().ok_or(EnvironmentError::NotReset)?;
        let step = episode.steps;
        episode.steps += 1;
        let mut reward = 0.0;
        let mut text = respond(episode, action);
        if step == failures.at_step {
            match episode.injection {
                None | Some(Injection::ResetError) => {}
                Some(Injection::Hang) => std::thread::sleep(failures.hang_for),
                Some(Injection::StepError) => {
                    return Err(EnvironmentError::Step {
                        task: episode.task.clone(),
                        step,
                        message: "the injected step error".to_owned(),
                    });
                }
                #[expect(clippy::panic, reason = "panicking is what this episode is for")]
                Some(Injection::Panic) => panic!("the injected panic of `{}`", episode.task),
                Some(Injection::Oversized) => text = "x".repeat(1 << 20),
                Some(Injection::InvalidReward) => reward = f32::NAN,
            }
        }
        if episode.won {
            reward += 1.0;
        }
        Ok(Transition {
            observation: Observation::text(text),
            reward,
            terminated: episode.won,
            truncated: false,
            won: episode.won,
        })
    }

    fn admissible_actions(&self) -> Vec<String> {
        let Some(episode) = &self.episode else {
            return Vec::new();
        };
        let mut actions: Vec<String> = episode
            .opened
            .iter()
            .enumerate()
            .filter(|(_, opened)| !**opened)
            .map(|(index, _)| format!("open box {}", index + 1))
            .collect();
        actions.extend(["help".to_owned(), "look".to_owned()]);
        actions
    }

    fn task_description(&self) -> String {
        "find the ball.".to_owned()
    }
}

/// Opens a box, and says what is in it.
fn respond(episode: &mut Episode, action: &str) -> String {
    let number: usize = action
        .strip_prefix("open box ")
        .and_then(|number| number.parse().ok())
        .unwrap_or(0);
    let Some(opened) = number
        .checked_sub(1)
        .and_then(|index| episode.opened.get_mut(index))
        .filter(|opened| !**opened)
    else {
        return "Nothing happens.".to_owned();
    };
    *opened = true;
    let found = match number.cmp(&episode.ball) {
        std::cmp::Ordering::Equal => {
            episode.won = true;
            "a ball 1. Well done"
        }
        std::cmp::Ordering::Less => "nothing. The ball is in a later box",
        std::cmp::Ordering::Greater => "nothing. The ball is in an earlier box",
    };
    format!("You open the box {number}. The box {number} is open. In it, you see {found}.")
}
