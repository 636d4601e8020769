//! Goals as tasks of a [`World`]: ids, splits, fresh environments.
//!
//! There is one order of goals for a seed, and every goal belongs to one split, so nothing leaks from evaluation into
//! training. (In the reference each group of a training run draws its own order, and most goals held out under one are
//! trained on under others.)
//!
//! Not for: drawing goals (see [`Shop`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use seed_env::{Dialogue, Environment, EnvironmentError, Split, Task, TaskId, World};
use seed_random::RandomKey;

use crate::{EpisodeReward, Goal, Shop, WebshopDialogue, WebshopEnvironment, WebshopStyle};

/// Steps after which an episode is cut, unless the configuration says otherwise.
const DEFAULT_MAX_STEPS: usize = 15;

/// Goals of the published test set: the first ones of the order.
const SEEN: usize = 500;

/// Goals of the published development set: those that follow.
const DEVELOPMENT: usize = 1_000;

/// Share of the wanted products that are held out where goals are split by product.
const UNSEEN_SHARE: f64 = 0.1;

/// How goals are divided into splits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GoalSplit {
    /// By place in the order, as published: the first 500 are `seen`, the next 1,000 `development`, all others
    /// `train`. Goals of one product fall into several splits; there is no `unseen`.
    Order,
    /// As by order, but a tenth of the wanted products is held out: all goals that want one are `unseen`.
    Product,
}

/// What a world offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorldOptions {
    /// Name in configurations and task ids.
    pub name: String,
    /// How goals are divided.
    pub split: GoalSplit,
    /// What a purchase earns.
    pub reward: EpisodeReward,
    /// How episodes are shown to a language model.
    pub style: WebshopStyle,
}

/// The goals of a shop as tasks. Ids read `webshop/train/001734`, where the number is the goal's place in the order.
pub struct WebshopWorld {
    tasks: Arc<Tasks>,
    lists: BTreeMap<Split, Vec<Task>>,
    dialogue: WebshopDialogue,
    digest: String,
}

/// What environments share.
pub(crate) struct Tasks {
    name: String,
    pub(crate) shop: Arc<Shop>,
    pub(crate) reward: EpisodeReward,
    /// By goal.
    splits: Vec<Split>,
}

impl Tasks {
    fn id(&self, split: Split, index: usize) -> TaskId {
        TaskId::new(format!("{}/{}/{index:06}", self.name, split.name()))
    }

    /// The goal of a task.
    pub(crate) fn goal(&self, task: &TaskId) -> Result<Goal, EnvironmentError> {
        let index = task
            .as_str()
            .rsplit('/')
            .next()
            .and_then(|digits| digits.parse().ok());
        index
            // Only the canonical spelling is an id, with the split that the goal belongs to.
            .filter(|&index: &usize| {
                self.splits
                    .get(index)
                    .is_some_and(|&split| self.id(split, index) == *task)
            })
            .and_then(|index| self.shop.goal(index))
            .ok_or_else(|| EnvironmentError::UnknownTask {
                task: task.clone(),
                world: self.name.clone(),
            })
    }
}

impl WebshopWorld {
    /// The tasks of a shop.
    pub fn new(shop: Arc<Shop>, options: WorldOptions) -> Self {
        let splits = splits(&shop, options.split);
        let digest = digest(&shop, &splits);
        let tasks = Tasks {
            name: options.name,
            reward: options.reward,
            splits,
            shop,
        };
        let mut lists: BTreeMap<Split, Vec<Task>> = BTreeMap::new();
        for (index, &split) in tasks.splits.iter().enumerate() {
            let product = tasks.shop.goal_product(index);
            let product = product.and_then(|place| tasks.shop.catalogue().product(place));
            lists.entry(split).or_default().push(Task {
                id: tasks.id(split, index),
                split,
                family: product.map_or_else(String::new, |product| product.category.clone()),
            });
        }
        Self {
            tasks: Arc::new(tasks),
            lists,
            dialogue: WebshopDialogue::new(options.style),
            digest,
        }
    }

    /// The shop behind the tasks.
    pub fn shop(&self) -> &Arc<Shop> {
        &self.tasks.shop
    }

    /// The goal of a task.
    ///
    /// # Errors
    /// [`EnvironmentError::UnknownTask`] for an id that is none of this world's.
    pub fn goal(&self, task: &TaskId) -> Result<Goal, EnvironmentError> {
        self.tasks.goal(task)
    }
}

fn splits(shop: &Shop, rule: GoalSplit) -> Vec<Split> {
    let held_out = |index: usize| {
        let product = shop
            .goal_product(index)
            .and_then(|place| shop.catalogue().product(place));
        product.is_some_and(|product| {
            let key = RandomKey::new(0).with_text("held-out product", &product.asin);
            key.uniform(0) < UNSEEN_SHARE
        })
    };
    // Held-out goals do not use up places of the other splits.
    let mut place = 0;
    (0..shop.goal_count())
        .map(|index| {
            if rule == GoalSplit::Product && held_out(index) {
                return Split::Unseen;
            }
            place += 1;
            match place {
                ..=SEEN => Split::Seen,
                _ if place <= SEEN + DEVELOPMENT => Split::Development,
                _ => Split::Train,
            }
        })
        .collect()
}

/// Covers everything that decides about an episode, down to the words of products.
fn digest(shop: &Shop, splits: &[Split]) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(shop.catalogue().digest().as_bytes());
    for (index, split) in splits.iter().enumerate() {
        hasher.update(split.name().as_bytes());
        if let Some(goal) = shop.goal(index) {
            hasher.update(&(goal.product as u64).to_le_bytes());
            hasher.update(goal.instruction.as_bytes());
        }
    }
    hasher.finalize().to_hex().to_string()
}

impl World for WebshopWorld {
    fn name(&self) -> &str {
        &self.tasks.name
    }

    fn tasks(&self, split: Split) -> &[Task] {
        self.lists.get(&split).map_or(&[], Vec::as_slice)
    }

    /// Products and goals can change under the same ids: their contents count.
    fn digest(&self) -> String {
        self.digest.clone()
    }

    fn environment(&self) -> Box<dyn Environment> {
        Box::new(WebshopEnvironment::new(Arc::clone(&self.tasks)))
    }

    fn dialogue(&self) -> &dyn Dialogue {
        &self.dialogue
    }

    fn default_max_steps(&self) -> usize {
        DEFAULT_MAX_STEPS
    }
}
