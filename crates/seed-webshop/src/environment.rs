//! A visit as an [`Environment`] with the rewards of verl-agent's wrapper.
//!
//! Not for: the pages themselves (see [`Session`]), or step limits.

use std::sync::Arc;

use seed_env::{Environment, EnvironmentError, Observation, TaskId, Transition};
use seed_random::RandomKey;

use crate::world::Tasks;
use crate::{Goal, Session};

/// The reward of a perfect purchase, as in the reference; every other step earns 0.
const REWARD: f32 = 10.0;

/// What a purchase earns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EpisodeReward {
    /// 10 for a perfect purchase, else 0 (the reference).
    Success,
    /// 10 times the score.
    Score,
}

/// Plays the tasks of a [`WebshopWorld`](crate::WebshopWorld).
pub struct WebshopEnvironment {
    tasks: Arc<Tasks>,
    episode: Option<Episode>,
}

struct Episode {
    goal: Goal,
    session: Session,
}

impl WebshopEnvironment {
    pub(crate) fn new(tasks: Arc<Tasks>) -> Self {
        Self { tasks, episode: None }
    }
}

impl Environment for WebshopEnvironment {
    fn reset(&mut self, task: &TaskId, seed: u64) -> Result<Observation, EnvironmentError> {
        let goal = self.tasks.goal(task)?;
        let session = Session::new(RandomKey::new(seed).with_text("webshop", task.as_str()));
        let episode = self.episode.insert(Episode { goal, session });
        let text = episode.session.observation(&self.tasks.shop, &episode.goal);
        Ok(Observation::text(text))
    }

    fn step(&mut self, action: &str) -> Result<Transition, EnvironmentError> {
        let episode = self.episode.as_mut().ok_or(EnvironmentError::NotReset)?;
        let shop = &self.tasks.shop;
        let over = episode.session.purchase().is_some();
        episode.session.act(shop, &episode.goal, action);
        let purchase = episode.session.purchase();
        let score = purchase.map_or(0.0, |purchase| purchase.reward.score);
        let won = purchase.is_some_and(|purchase| purchase.reward.is_perfect());
        let reward = match self.tasks.reward {
            _ if over => 0.0,
            EpisodeReward::Success => f32::from(u8::from(won)) * REWARD,
            EpisodeReward::Score => score as f32 * REWARD,
        };
        Ok(Transition {
            observation: Observation::text(episode.session.observation(shop, &episode.goal)),
            reward,
            terminated: purchase.is_some(),
            truncated: false,
            won,
        })
    }

    fn admissible_actions(&self) -> Vec<String> {
        self.episode.as_ref().map_or_else(Vec::new, |episode| {
            episode.session.admissible_actions(&self.tasks.shop)
        })
    }

    fn task_description(&self) -> String {
        self.episode
            .as_ref()
            .map_or_else(String::new, |episode| episode.goal.instruction.clone())
    }

    fn score(&self) -> Option<f32> {
        let episode = self.episode.as_ref()?;
        let purchase = episode.session.purchase();
        Some(purchase.map_or(0.0, |purchase| purchase.reward.score as f32))
    }
}
