//! A world in which luck decides: whether an action wins depends on its letters. A policy that knows nothing wins some
//! episodes and loses others, so that groups do not tie.

use std::sync::Arc;

use seed_env::{
    Dialogue, Environment, EnvironmentError, FinishedEpisode, HouseholdDialogue, HouseholdStyle, Observation,
    RuleAnnotation, SkillLibrary, SkillRules, Split, Task, TaskId, Transition, World,
};
use seed_random::RandomKey;

const TASKS: usize = 12;

/// The world.
pub(crate) struct Luck {
    tasks: Vec<Vec<Task>>,
    dialogue: HouseholdDialogue,
}

impl Luck {
    pub(crate) fn world() -> Arc<dyn World> {
        Self::of(TASKS)
    }

    /// A world with so many tasks per split.
    pub(crate) fn of(count: usize) -> Arc<dyn World> {
        let task = |split: Split, index: usize| Task {
            id: TaskId::new(format!("luck/{}/{index:02}", split.name())),
            split,
            family: if index.is_multiple_of(2) { "even" } else { "odd" }.to_owned(),
        };
        Arc::new(Self {
            tasks: Split::ALL
                .iter()
                .map(|&split| (0..count).map(|index| task(split, index)).collect())
                .collect(),
            dialogue: HouseholdDialogue::new(HouseholdStyle::Compact),
        })
    }
}

impl World for Luck {
    fn name(&self) -> &'static str {
        "luck"
    }

    fn tasks(&self, split: Split) -> &[Task] {
        let index = Split::ALL.iter().position(|&other| other == split).unwrap();
        &self.tasks[index]
    }

    fn environment(&self) -> Box<dyn Environment> {
        Box::new(LuckEnvironment { number: 0 })
    }

    fn dialogue(&self) -> &dyn Dialogue {
        &self.dialogue
    }

    fn skill_rules(&self) -> Option<&dyn SkillRules> {
        Some(&LuckRules)
    }

    fn default_max_steps(&self) -> usize {
        3
    }
}

/// Rules whose skills say what they are.
struct LuckRules;

fn number(task: &TaskId) -> u32 {
    task.as_str().bytes().map(u32::from).sum()
}

impl SkillRules for LuckRules {
    fn oracle_skill(&self, task: &TaskId) -> Result<Option<String>, EnvironmentError> {
        Ok(Some(format!("Go to desk {} at once.", number(task))))
    }

    fn wrong_skill(&self, task: &TaskId, key: &RandomKey) -> Result<Option<String>, EnvironmentError> {
        Ok(Some(format!(
            "Go to bed {} and {}.",
            number(task),
            key.to_u64() % 7
        )))
    }

    fn annotate(&self, episode: &FinishedEpisode<'_>) -> Option<RuleAnnotation> {
        Some(RuleAnnotation {
            summary: format!("Saw {} things.", episode.observations.len()),
            skill: format!(
                "Look for what {} asks, won {}.",
                episode.task_description, episode.won
            ),
            step_skills: [(1, "Now go to shelf 2.".to_owned())].into(),
        })
    }

    fn library(&self, tasks: &[Task]) -> Result<Box<dyn SkillLibrary>, EnvironmentError> {
        Ok(Box::new(LuckLibrary(tasks.len())))
    }
}

struct LuckLibrary(usize);

impl SkillLibrary for LuckLibrary {
    fn skill(&self, task: &TaskId) -> Result<Option<String>, EnvironmentError> {
        // It knows two kinds of task, and nothing of one of them.
        Ok((!number(task).is_multiple_of(5)).then(|| format!("Open drawer {}.", self.0)))
    }
}

struct LuckEnvironment {
    number: u32,
}

impl Environment for LuckEnvironment {
    fn reset(&mut self, task: &TaskId, _: u64) -> Result<Observation, EnvironmentError> {
        self.number = number(task);
        Ok(Observation::text(format!(
            "You are in the middle of a room. Looking quickly around you, you see a bed 1, a desk 1, and a shelf 2.\n\n\
             Your task is to: {}",
            self.task_description()
        )))
    }

    fn step(&mut self, action: &str) -> Result<Transition, EnvironmentError> {
        let sum: u32 = action.bytes().map(u32::from).sum();
        let won = (sum + self.number).is_multiple_of(4);
        Ok(Transition {
            observation: Observation::text(if won { "You are lucky." } else { "Nothing happens." }),
            reward: f32::from(u8::from(won)),
            terminated: won,
            truncated: false,
            won,
        })
    }

    fn admissible_actions(&self) -> Vec<String> {
        ["go to bed 1", "go to desk 1", "go to shelf 2", "look"]
            .map(str::to_owned)
            .to_vec()
    }

    fn task_description(&self) -> String {
        format!("find ring {}.", self.number % 10)
    }
}
