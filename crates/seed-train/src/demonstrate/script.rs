//! How each kind of world is played by script, as texts: what was seen, what was answered, and what is learned from it.
//!
//! The players and the rules that write skills belong to the worlds; here they meet one interface. Not for: prompts, or
//! the mixture of examples.

use std::borrow::Cow;
use std::sync::Arc;

use seed_alfworld::expert::skill::{Advice, Annotation, annotate_texts};
use seed_alfworld::expert::{NoisyExpert, play};
use seed_alfworld::{Game, GameSource};
use seed_env::{ContextKind, Dialogue, Task};
use seed_random::RandomKey;
use seed_search::{KnowledgeWorld, play_knowledge};
use seed_webshop::{WebshopWorld, read_and_buy};

use crate::TrainError;
use crate::hindsight::{EpisodeText, scripted_text};
use crate::world::{OpenWorld, WorldError};

/// A player of one world that errs at a chosen rate.
pub(super) trait Script: Sync {
    /// Plays a task with mistakes at a share `noise` of the steps, following `skill` where one is given.
    fn play(
        &self,
        task: &Task,
        noise: f64,
        skill: Option<&str>,
        key: RandomKey,
    ) -> Result<ScriptedEpisode, TrainError>;
}

/// One step as a policy would have seen and answered it.
pub(super) struct ScriptedStep {
    /// What was seen before the action.
    pub(super) observation: String,
    /// The whole response.
    pub(super) response: String,
    /// The action in it.
    pub(super) action: String,
}

/// A finished episode.
pub(super) struct ScriptedEpisode {
    /// The task in one sentence.
    pub(super) task: String,
    /// All steps in order.
    pub(super) steps: Vec<ScriptedStep>,
    won: bool,
    kept: Kept,
}

/// What an episode keeps to tell more than its steps.
enum Kept {
    /// A household tells it from its game and its texts, which takes time.
    Household {
        /// The game where prompts list its commands.
        game: Option<Arc<Game>>,
        /// What was seen after the last step.
        last_observation: String,
    },
    /// Others know it from playing.
    Known {
        /// What was possible before each step; empty where no prompt shows it.
        admissible_actions: Vec<Vec<String>>,
        /// What is learned from the episode.
        lesson: Annotation,
    },
}

impl ScriptedEpisode {
    /// What the script writes about the episode.
    pub(super) fn lesson(&self) -> Result<Annotation, TrainError> {
        match &self.kept {
            Kept::Known { lesson, .. } => Ok(lesson.clone()),
            Kept::Household { last_observation, .. } => {
                let observations = self.steps.iter().map(|step| step.observation.as_str());
                let observations = observations.chain([last_observation.as_str()]);
                annotate_texts(&self.task, observations, self.won).ok_or_else(|| TrainError::UnreadableTask {
                    task: self.task.clone(),
                })
            }
        }
    }

    /// What was possible before each step, as many lists as steps; empty where no prompt shows it.
    pub(super) fn admissible_actions(&self) -> Cow<'_, [Vec<String>]> {
        match &self.kept {
            Kept::Known {
                admissible_actions, ..
            } => Cow::Borrowed(admissible_actions),
            Kept::Household { game: None, .. } => Cow::Owned(vec![Vec::new(); self.steps.len()]),
            Kept::Household { game: Some(game), .. } => Cow::Owned(admissible_commands(game, &self.steps)),
        }
    }

    /// The episode as an analyser is shown it.
    pub(super) fn text<'a>(&'a self, dialogue: &'a dyn Dialogue) -> EpisodeText<'a> {
        let steps = self.steps.iter().map(|step| {
            (
                step.observation.as_str(),
                step.response.as_str(),
                step.action.as_str(),
            )
        });
        scripted_text(dialogue, &self.task, self.won, steps)
    }
}

/// The script of a world.
pub(super) fn script_of(
    open: &OpenWorld,
    context: ContextKind,
    max_steps: usize,
) -> Result<Box<dyn Script + '_>, WorldError> {
    if let Some(shop) = &open.shop {
        return Ok(Box::new(ShopScript {
            world: shop,
            max_steps,
        }));
    }
    if let Some(world) = &open.knowledge {
        return Ok(Box::new(KnowledgeScript { world }));
    }
    let games = open.games.as_ref().ok_or_else(|| WorldError::NoScript {
        world: open.world.name().to_owned(),
    })?;
    Ok(Box::new(HouseholdScript {
        games: &**games,
        max_steps,
        shows_commands: context == ContextKind::Windowed,
    }))
}

struct HouseholdScript<'a> {
    games: &'a dyn GameSource,
    max_steps: usize,
    /// Whether prompts list what is possible.
    shows_commands: bool,
}

impl Script for HouseholdScript<'_> {
    fn play(
        &self,
        task: &Task,
        noise: f64,
        skill: Option<&str>,
        key: RandomKey,
    ) -> Result<ScriptedEpisode, TrainError> {
        let game = self.games.game(&task.id).map_err(WorldError::from)?;
        let mut player = match skill {
            Some(skill) => NoisyExpert::advised(key, noise, Advice::read(skill)),
            None => NoisyExpert::new(key, noise),
        };
        let played = play(&game, &mut player, self.max_steps);
        Ok(ScriptedEpisode {
            steps: played
                .steps
                .into_iter()
                .map(|step| ScriptedStep {
                    observation: step.observation,
                    response: tagged_response(&step.intention, &step.command),
                    action: step.command,
                })
                .collect(),
            task: played.task,
            won: played.won,
            kept: Kept::Household {
                game: self.shows_commands.then_some(game),
                last_observation: played.last_observation,
            },
        })
    }
}

/// The commands possible at each step of a played episode.
fn admissible_commands(game: &Game, steps: &[ScriptedStep]) -> Vec<Vec<String>> {
    let mut state = game.initial_state();
    let (mut ids, mut text) = (Vec::new(), String::new());
    steps
        .iter()
        .map(|step| {
            game.admissible_commands(&state, &mut ids);
            let list = ids.iter().map(|&id| game.command_text(id).to_owned()).collect();
            text.clear();
            game.step(&mut state, &step.action, &mut text);
            list
        })
        .collect()
}

struct KnowledgeScript<'a> {
    world: &'a KnowledgeWorld,
}

impl Script for KnowledgeScript<'_> {
    // A skill tells how the task's own kind of question is answered, which the player knows: it errs less often.
    fn play(
        &self,
        task: &Task,
        noise: f64,
        _skill: Option<&str>,
        key: RandomKey,
    ) -> Result<ScriptedEpisode, TrainError> {
        let played = play_knowledge(self.world, &task.id, noise, &key).map_err(WorldError::from)?;
        Ok(ScriptedEpisode {
            task: played.question,
            won: played.won,
            kept: Kept::Known {
                // Everything can be searched for: no prompt lists it.
                admissible_actions: vec![Vec::new(); played.turns.len()],
                lesson: Annotation {
                    episode_summary: played.summary,
                    episode_skill: played.skill,
                },
            },
            steps: played
                .turns
                .into_iter()
                .map(|turn| ScriptedStep {
                    observation: turn.observation,
                    response: format!("<think>{}</think>{}", turn.intention, turn.action),
                    action: turn.action,
                })
                .collect(),
        })
    }
}

struct ShopScript<'a> {
    world: &'a WebshopWorld,
    max_steps: usize,
}

impl Script for ShopScript<'_> {
    fn play(
        &self,
        task: &Task,
        noise: f64,
        skill: Option<&str>,
        key: RandomKey,
    ) -> Result<ScriptedEpisode, TrainError> {
        let goal = self.world.goal(&task.id).map_err(WorldError::from)?;
        let visit = read_and_buy(self.world.shop(), &goal, skill, noise, &key, self.max_steps);
        let won = visit
            .purchase
            .as_ref()
            .is_some_and(|purchase| purchase.reward.is_perfect());
        let (steps, admissible_actions) = visit
            .steps
            .into_iter()
            .map(|step| {
                let shown = ScriptedStep {
                    observation: step.observation,
                    response: tagged_response(&step.intention, &step.action),
                    action: step.action,
                };
                (shown, step.admissible_actions)
            })
            .unzip();
        Ok(ScriptedEpisode {
            steps,
            task: goal.instruction,
            won,
            kept: Kept::Known {
                admissible_actions,
                lesson: Annotation {
                    episode_summary: visit.summary,
                    episode_skill: visit.skill,
                },
            },
        })
    }
}

/// A response in the format of worlds whose actions stand between action tags.
fn tagged_response(thought: &str, action: &str) -> String {
    format!("<think>{thought}</think><action>{action}</action>")
}
