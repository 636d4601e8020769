//! Household games as tasks of a [`World`]: ids, splits, games made on demand.
//!
//! Not for: drawing a game (see [`HouseholdGenerator`]).

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use seed_env::{
    Dialogue, Environment, EnvironmentError, HouseholdDialogue, HouseholdStyle, SkillRules, Split, Task,
    TaskId, World,
};

use super::environment::{GameEnvironment, GameSource};
use super::generator::{HouseholdError, HouseholdGenerator, HouseholdSize};
use crate::Game;
use crate::expert::{GameSkills, walkthrough};

/// Parsed games kept at hand; members of a group play the same game one after the other.
const CACHED_GAMES: usize = 512;

/// What a household world offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HouseholdConfig {
    /// How large the households are.
    pub size: HouseholdSize,
    /// From what everything is drawn. Another seed is another world, with its own name.
    pub world_seed: u64,
    /// Number of training tasks.
    pub train: usize,
    /// Number of tasks for choosing hyper-parameters, in training rooms.
    pub development: usize,
    /// Number of evaluation tasks in training rooms.
    pub seen: usize,
    /// Number of evaluation tasks in held-out rooms with held-out combinations.
    pub unseen: usize,
    /// How episodes are shown to a language model.
    pub style: HouseholdStyle,
}

impl HouseholdConfig {
    /// The usual world of a size: 4,096 training, 256 development, 128 seen and 128 unseen tasks.
    pub fn new(size: HouseholdSize) -> Self {
        Self {
            size,
            world_seed: 0,
            train: 4_096,
            development: 256,
            seen: 128,
            unseen: 128,
            style: match size {
                HouseholdSize::Studio => HouseholdStyle::Compact,
                HouseholdSize::Full => HouseholdStyle::Full,
            },
        }
    }

    fn count(&self, split: Split) -> usize {
        match split {
            Split::Train => self.train,
            Split::Development => self.development,
            Split::Seen => self.seen,
            Split::Unseen => self.unseen,
        }
    }

    /// The world's name: `household-studio` or `household-full`, with the seed when it is not the usual one.
    pub fn name(&self) -> String {
        match self.world_seed {
            0 => format!("household-{}", self.size.name()),
            seed => format!("household-{}-{seed}", self.size.name()),
        }
    }
}

/// The tasks of one household world. Ids read `household-studio/train/000017`.
pub struct HouseholdWorld {
    name: String,
    config: HouseholdConfig,
    tasks: BTreeMap<Split, Vec<Task>>,
    games: Arc<Games>,
    dialogue: HouseholdDialogue,
    skills: GameSkills,
}

impl HouseholdWorld {
    /// Draws the world's rooms and lists its tasks. Games are made when they are first played.
    ///
    /// # Errors
    /// [`HouseholdError`] when the world seed allows no such world.
    pub fn new(config: HouseholdConfig) -> Result<Self, HouseholdError> {
        let generator = HouseholdGenerator::new(config.size, config.world_seed)?;
        let name = config.name();
        let tasks = Split::ALL
            .into_iter()
            .map(|split| {
                let tasks = (0..config.count(split))
                    .map(|index| Task {
                        id: TaskId::new(format!("{name}/{}/{index:06}", split.name())),
                        split,
                        family: generator.family(split, index).name().to_owned(),
                    })
                    .collect();
                (split, tasks)
            })
            .collect();
        let dialogue = HouseholdDialogue::new(config.style);
        let games = Arc::new(Games {
            name: name.clone(),
            config: config.clone(),
            generator,
            cache: Mutex::default(),
        });
        Ok(Self {
            name,
            config,
            tasks,
            skills: GameSkills::new(Arc::clone(&games) as Arc<dyn GameSource>),
            games,
            dialogue,
        })
    }

    /// What the world was made from.
    pub fn config(&self) -> &HouseholdConfig {
        &self.config
    }

    /// The generator behind the tasks.
    pub fn generator(&self) -> &HouseholdGenerator {
        &self.games.generator
    }
}

impl GameSource for HouseholdWorld {
    fn game(&self, task: &TaskId) -> Result<Arc<Game>, EnvironmentError> {
        self.games.game(task)
    }
}

impl World for HouseholdWorld {
    fn name(&self) -> &str {
        &self.name
    }

    fn tasks(&self, split: Split) -> &[Task] {
        self.tasks.get(&split).map_or(&[], Vec::as_slice)
    }

    fn environment(&self) -> Box<dyn Environment> {
        Box::new(GameEnvironment::new(
            Arc::clone(&self.games) as Arc<dyn GameSource>
        ))
    }

    fn dialogue(&self) -> &dyn Dialogue {
        &self.dialogue
    }

    fn skill_rules(&self) -> Option<&dyn SkillRules> {
        Some(&self.skills)
    }

    fn default_max_steps(&self) -> usize {
        match self.config.size {
            HouseholdSize::Studio => 20,
            HouseholdSize::Full => 30,
        }
    }
}

/// Makes games by id and keeps the latest.
struct Games {
    name: String,
    config: HouseholdConfig,
    generator: HouseholdGenerator,
    cache: Mutex<Cache>,
}

#[derive(Default)]
struct Cache {
    games: BTreeMap<TaskId, Arc<Game>>,
    /// Ids in the order in which they were made; the oldest leaves first.
    order: VecDeque<TaskId>,
}

impl Games {
    /// Split and index of an id of this world.
    fn address(&self, task: &TaskId) -> Option<(Split, usize)> {
        let rest = task.as_str().strip_prefix(&self.name)?.strip_prefix('/')?;
        let (split_name, digits) = rest.split_once('/')?;
        let split = Split::ALL.into_iter().find(|split| split.name() == split_name)?;
        let index: usize = digits.parse().ok()?;
        // Only the canonical spelling is an id: no signs, no missing zeros.
        (index < self.config.count(split) && format!("{index:06}") == digits).then_some((split, index))
    }
}

impl GameSource for Games {
    fn game(&self, task: &TaskId) -> Result<Arc<Game>, EnvironmentError> {
        let (split, index) = self.address(task).ok_or_else(|| EnvironmentError::UnknownTask {
            task: task.clone(),
            world: self.name.clone(),
        })?;
        // A cache left behind by a panicking thread is still a cache.
        let lock = || self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(game) = lock().games.get(task) {
            return Ok(Arc::clone(game));
        }
        // Made outside the lock: others may make theirs meanwhile, and a game made twice is the same game.
        let game = Arc::new(
            make_game(&self.generator, split, index, task.as_str()).map_err(|source| {
                EnvironmentError::Load {
                    task: task.clone(),
                    source: Box::new(source),
                }
            })?,
        );
        let mut cache = lock();
        if cache.games.insert(task.clone(), Arc::clone(&game)).is_none() {
            cache.order.push_back(task.clone());
        }
        while cache.order.len() > CACHED_GAMES {
            if let Some(oldest) = cache.order.pop_front() {
                cache.games.remove(&oldest);
            }
        }
        Ok(game)
    }
}

/// Draws, parses and solves one game.
pub(super) fn make_game(
    generator: &HouseholdGenerator,
    split: Split,
    index: usize,
    id: &str,
) -> Result<Game, HouseholdError> {
    let household = generator.household(split, index)?;
    let mut game =
        Game::from_problem(&household.problem(), &household.goal_sentence(), &[], id).map_err(|source| {
            HouseholdError::Problem {
                game: id.to_owned(),
                source,
            }
        })?;
    let commands = walkthrough(&game, &game.initial_state())
        .ok_or_else(|| HouseholdError::Unsolvable { game: id.to_owned() })?;
    game.set_walkthrough(&commands);
    Ok(game)
}
