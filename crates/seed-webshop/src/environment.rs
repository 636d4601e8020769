//! A visit as an [`Environment`]: observation, reward and actions as verl-agent's wrapper gives them to a policy.
//!
//! Not for: the pages themselves (see [`Session`]), or step limits.

use std::borrow::Cow;
use std::sync::Arc;

use seed_env::{Environment, EnvironmentError, Observation, TaskId, Transition};
use seed_random::RandomKey;

use crate::session::SEPARATOR;
use crate::world::Tasks;
use crate::{Goal, Session, Shop};

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
        Ok(episode.observation(&self.tasks.shop))
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
            observation: episode.observation(shop),
            reward,
            terminated: purchase.is_some(),
            truncated: false,
            won,
        })
    }

    /// `search[<your query>]` where there is a search bar, then a click on everything that can be clicked; among them
    /// `click[search]`, which does nothing, as in the reference.
    fn admissible_actions(&self) -> Vec<String> {
        let Some(episode) = &self.episode else {
            return Vec::new();
        };
        let clickables = episode.session.clickables(&self.tasks.shop);
        let search = episode
            .session
            .has_search_bar()
            .then(|| "search[<your query>]".to_owned());
        search
            .into_iter()
            .chain(clickables.iter().map(|text| format!("click[{text}]")))
            .collect()
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

impl Episode {
    /// The texts after the instruction, each in quotes; a page without the instruction (the last one) as it is.
    fn observation(&self, shop: &Shop) -> Observation {
        let texts = self.session.texts(shop, &self.goal);
        let task = texts
            .iter()
            .position(|text| *text == self.goal.instruction.trim());
        let Some(after) = task.and_then(|task| texts.get(task + 1..)) else {
            return Observation::text(texts.join(SEPARATOR));
        };
        let mut shown = String::with_capacity(after.iter().map(|text| text.len() + 9).sum());
        for text in after {
            if !shown.is_empty() {
                shown.push_str(SEPARATOR);
            }
            let text: &Cow<'_, str> = text;
            shown.push('\'');
            shown.push_str(text);
            shown.push('\'');
        }
        Observation::text(shown)
    }
}
