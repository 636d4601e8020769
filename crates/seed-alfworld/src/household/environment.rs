//! One episode of a game as a [`seed_env::Environment`].
//!
//! Not for: where games come from; a [`GameSource`] knows.

use std::sync::Arc;

use seed_env::{Environment, EnvironmentError, Observation, TaskId, Transition};

use crate::{CommandId, Game, State};

/// The reward of the step that reaches the goal, as in the reference's ALFWorld environment; every other step earns 0.
const REWARD: f32 = 10.0;

/// Finds the game of a task.
pub trait GameSource: Send + Sync {
    /// The game of `task`.
    ///
    /// # Errors
    /// [`EnvironmentError::UnknownTask`] or [`EnvironmentError::Load`].
    fn game(&self, task: &TaskId) -> Result<Arc<Game>, EnvironmentError>;
}

/// Plays any game of a source.
pub struct GameEnvironment {
    source: Arc<dyn GameSource>,
    episode: Option<Episode>,
}

struct Episode {
    game: Arc<Game>,
    state: State,
    won: bool,
}

impl GameEnvironment {
    /// An environment over the games of `source`.
    pub fn new(source: Arc<dyn GameSource>) -> Self {
        Self {
            source,
            episode: None,
        }
    }
}

impl Environment for GameEnvironment {
    fn reset(&mut self, task: &TaskId, _seed: u64) -> Result<Observation, EnvironmentError> {
        let game = self.source.game(task)?;
        let state = game.initial_state();
        let observation = Observation::text(game.reset_text());
        self.episode = Some(Episode {
            game,
            state,
            won: false,
        });
        Ok(observation)
    }

    fn step(&mut self, action: &str) -> Result<Transition, EnvironmentError> {
        let episode = self.episode.as_mut().ok_or(EnvironmentError::NotReset)?;
        let mut text = String::new();
        let outcome = episode.game.step(&mut episode.state, action, &mut text);
        // A game that was won earns nothing more.
        let reward = if outcome.won && !episode.won { REWARD } else { 0.0 };
        episode.won = outcome.won;
        Ok(Transition {
            observation: Observation::text(text),
            reward,
            terminated: outcome.won,
            truncated: false,
            won: outcome.won,
        })
    }

    fn admissible_actions(&self) -> Vec<String> {
        let Some(episode) = &self.episode else {
            return Vec::new();
        };
        let mut commands: Vec<CommandId> = Vec::new();
        episode.game.admissible_commands(&episode.state, &mut commands);
        commands
            .into_iter()
            .map(|command| episode.game.command_text(command).to_owned())
            .collect()
    }

    fn task_description(&self) -> String {
        self.episode
            .as_ref()
            .map_or_else(String::new, |episode| episode.game.goal_sentence().to_owned())
    }
}
