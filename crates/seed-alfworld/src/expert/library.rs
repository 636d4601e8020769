//! A static skill library: what perfect episodes of training tasks have in common, by family and object.
//!
//! A library skill is the sentence an oracle skill would be, with kinds of places instead of places: where objects of the
//! asked class mostly lay, how the family treats them, and where the task wants them. It knows the procedure and nothing of
//! the room.
//!
//! Not for: skills of a finished episode ([`super::skill`]).

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use seed_env::{EnvironmentError, FinishedEpisode, RuleAnnotation, SkillLibrary, SkillRules, Task, TaskId};
use seed_random::RandomKey;

use super::reading::{Request, class_word};
use super::skill::{Missing, Recipe, annotate_with_steps, any_of, oracle_recipe, oracle_skill, wrong_skill};
use crate::{Family, GameSource};

/// Tasks of a family that are read.
const TASKS_PER_FAMILY: usize = 32;
/// Kinds of places named at most.
const KINDS: usize = 2;

/// How often each kind of place was right.
type Counts = BTreeMap<String, usize>;

/// What was learned of one family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Entry {
    /// Where objects lay, by class word of the object.
    by_object: BTreeMap<String, Counts>,
    /// The same over all objects.
    sources: Counts,
    /// Where the lamps stood (light family only).
    lamps: Counts,
}

/// What the tasks taught.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HouseholdLibrary {
    /// By family name.
    entries: BTreeMap<&'static str, Entry>,
}

impl HouseholdLibrary {
    /// Reads the first tasks of each family.
    ///
    /// # Errors
    /// When a game cannot be made or read.
    pub fn build(games: &dyn GameSource, tasks: &[Task]) -> Result<Self, EnvironmentError> {
        let mut library = Self::default();
        let mut read: BTreeMap<&str, usize> = BTreeMap::new();
        for task in tasks {
            let count = read.entry(&task.family).or_default();
            if *count == TASKS_PER_FAMILY {
                continue;
            }
            *count += 1;
            let game = games.game(&task.id)?;
            let Some(recipe) = oracle_recipe(&game) else {
                continue;
            };
            let request = recipe.request;
            let entry = library.entries.entry(request.family.name()).or_default();
            for source in &recipe.sources {
                let kind = class_word(source).to_owned();
                *entry.sources.entry(kind.clone()).or_default() += 1;
                let object = entry.by_object.entry(request.object.clone()).or_default();
                *object.entry(kind).or_default() += 1;
            }
            if let (Family::LookAtObjInLight, Some(lamp)) = (request.family, &recipe.target) {
                *entry.lamps.entry(class_word(lamp).to_owned()).or_default() += 1;
            }
        }
        Ok(library)
    }

    /// The skill for a task sentence; `None` when it is not one of ALFWorld's, or no task of its family was read.
    pub fn skill(&self, task_description: &str) -> Option<String> {
        let request = Request::read(task_description)?;
        let entry = self.entries.get(request.family.name())?;
        let sources = entry.by_object.get(&request.object).unwrap_or(&entry.sources);
        let light = request.places() == 0;
        let recipe = Recipe {
            // No place is known, only where such things mostly lie.
            sources: Vec::new(),
            missing: Some(Missing::Object),
            next: usual(sources),
            appliance: request.treatment().map(|(_, appliance)| appliance.to_owned()),
            target: Some(if light {
                any_of(&usual(&entry.lamps))
            } else {
                request.target.clone()
            }),
            lamp: light.then(|| request.target.clone()),
            vain: Vec::new(),
            warning: None,
            request,
        };
        Some(recipe.text())
    }
}

/// The most frequent kinds, the most frequent first and equally frequent ones by name.
fn usual(counts: &Counts) -> Vec<String> {
    let mut kinds: Vec<(&String, &usize)> = counts.iter().collect();
    kinds.sort_by_key(|&(kind, &count)| (Reverse(count), kind));
    kinds
        .into_iter()
        .take(KINDS)
        .map(|(kind, _)| kind.clone())
        .collect()
}

/// A library with the games whose task sentences it is asked for.
struct LibraryOfGames {
    library: HouseholdLibrary,
    games: Arc<dyn GameSource>,
}

impl SkillLibrary for LibraryOfGames {
    fn skill(&self, task: &TaskId) -> Result<Option<String>, EnvironmentError> {
        Ok(self.library.skill(self.games.game(task)?.goal_sentence()))
    }
}

/// The rules for the games of a source.
pub struct GameSkills(Arc<dyn GameSource>);

impl GameSkills {
    /// The rules for these games.
    pub fn new(games: Arc<dyn GameSource>) -> Self {
        Self(games)
    }
}

impl SkillRules for GameSkills {
    fn oracle_skill(&self, task: &TaskId) -> Result<Option<String>, EnvironmentError> {
        Ok(oracle_skill(&*self.0.game(task)?))
    }

    fn wrong_skill(&self, task: &TaskId, key: &RandomKey) -> Result<Option<String>, EnvironmentError> {
        Ok(wrong_skill(&*self.0.game(task)?, key))
    }

    fn annotate(&self, episode: &FinishedEpisode<'_>) -> Option<RuleAnnotation> {
        let (annotation, step_skills) =
            annotate_with_steps(episode.task_description, episode.observations, episode.won)?;
        Some(RuleAnnotation {
            summary: annotation.episode_summary,
            skill: annotation.episode_skill,
            step_skills,
        })
    }

    fn library(&self, tasks: &[Task]) -> Result<Box<dyn SkillLibrary>, EnvironmentError> {
        Ok(Box::new(LibraryOfGames {
            library: HouseholdLibrary::build(&*self.0, tasks)?,
            games: Arc::clone(&self.0),
        }))
    }
}
