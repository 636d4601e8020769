//! Scripted players, and what they write about an episode afterwards.
//!
//! [`OptimalExpert`] knows the game; [`SearchingExpert`] knows only what it has read and says what it intends;
//! [`NoisyExpert`] errs at a chosen rate; [`RandomPlayer`] draws from what is possible. [`skill`] writes the hindsight
//! skills of finished episodes by rule, and [`HouseholdLibrary`] a static library of them. They make the demonstrations
//! that a small policy is first trained on, and the yardsticks of tests.
//!
//! Not for: learned policies.

mod library;
mod memory;
mod noisy;
mod optimal;
mod prior;
mod random;
mod reading;
mod searching;
pub mod skill;
pub mod yardstick;

use crate::{CommandId, Game, State};

pub use library::{GameSkills, HouseholdLibrary};
pub use noisy::NoisyExpert;
pub use optimal::{OptimalExpert, shortest_plan, walkthrough};
pub use random::RandomPlayer;
pub use reading::{Event, Request};
pub use searching::SearchingExpert;

/// What a player is shown at one step. Players that claim no knowledge read only the texts.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The latest observation; at the first step the room and the task.
    pub observation: &'a str,
    /// The command that led to it; `None` at the first step of an episode, at which a player forgets the last one.
    pub last_command: Option<&'a str>,
    /// The commands possible now.
    pub admissible_commands: &'a [String],
    /// The game, for players with knowledge.
    pub game: &'a Game,
    /// Its state, for players with knowledge.
    pub state: &'a State,
}

/// What a player does, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The command.
    pub command: String,
    /// What it is for, in a few words, such as `find the mug` or `put it in cabinet 2`.
    pub intention: String,
}

/// Anything that plays.
pub trait Player {
    /// Chooses the next command.
    fn decide(&mut self, view: &View<'_>) -> Decision;
}

/// One step of a played episode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlayedStep {
    /// What was seen before the command.
    pub observation: String,
    /// The command.
    pub command: String,
    /// What it was for.
    pub intention: String,
}

/// A finished episode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlayedEpisode {
    /// The goal sentence.
    pub task: String,
    /// All steps in order.
    pub steps: Vec<PlayedStep>,
    /// What was seen after the last command.
    pub last_observation: String,
    /// Whether the goal was reached.
    pub won: bool,
}

/// Lets `player` play `game` from its start, for at most `max_steps` commands.
pub fn play(game: &Game, player: &mut dyn Player, max_steps: usize) -> PlayedEpisode {
    let mut state = game.initial_state();
    let mut observation = game.reset_text().to_owned();
    let mut steps: Vec<PlayedStep> = Vec::new();
    let mut ids: Vec<CommandId> = Vec::new();
    let mut won = false;
    while !won && steps.len() < max_steps {
        game.admissible_commands(&state, &mut ids);
        let admissible: Vec<String> = ids.iter().map(|&id| game.command_text(id).to_owned()).collect();
        let decision = player.decide(&View {
            observation: &observation,
            last_command: steps.last().map(|step| step.command.as_str()),
            admissible_commands: &admissible,
            game,
            state: &state,
        });
        let mut next = String::new();
        won = game.step(&mut state, &decision.command, &mut next).won;
        steps.push(PlayedStep {
            observation: std::mem::replace(&mut observation, next),
            command: decision.command,
            intention: decision.intention,
        });
    }
    PlayedEpisode {
        task: game.goal_sentence().to_owned(),
        steps,
        last_observation: observation,
        won,
    }
}
