//! Skills that no model writes, and whose skill an episode is scored with.
//!
//! A skill's content is one thing and its presence another. To tell them apart an episode can be given the skill of another
//! task (placebo), of a successful sibling, of rules that know the solution (oracle), of a static library, or a misleading
//! one. Every choice is drawn from a key, and recorded with the skill.
//!
//! Not for: skills that a model writes ([`crate::hindsight`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use seed_env::{EnvironmentError, SkillLibrary, SkillRules, Split, TaskId, World};
use seed_random::{Draw, RandomKey};
use seed_rollout::Trajectory;
use seed_run::Metrics;
use serde::{Deserialize, Serialize};

use crate::TrainError;
use crate::config::{self, Algorithm, Analyser, EvaluationPrompt, GapZero, SkillFrom, TrainConfig};
use crate::hindsight::Analysis;
use crate::world::WorldError;

/// Where the skill of an episode is from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkillSource {
    /// Written about the episode itself.
    #[default]
    Own,
    /// Written about another episode of its group.
    Sibling,
    /// Written about an episode of another task.
    OtherTask,
    /// By rules that know the task's solution.
    Oracle,
    /// From the static library.
    Library,
    /// By rules that mislead.
    Wrong,
}

impl SkillSource {
    /// Whether this is the episode's own skill.
    pub fn is_own(&self) -> bool {
        *self == Self::Own
    }

    /// The word in metric names.
    fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Sibling => "sibling",
            Self::OtherTask => "other_task",
            Self::Oracle => "oracle",
            Self::Library => "library",
            Self::Wrong => "wrong",
        }
    }
}

/// The world's rules and library, as far as a configuration asks for them.
pub struct TaskSkills {
    world: Arc<dyn World>,
    library: Option<Box<dyn SkillLibrary>>,
}

impl TaskSkills {
    /// Makes the library when the configuration asks for it.
    ///
    /// # Errors
    /// [`TrainError::NoSkillRules`] when the configuration asks for rule-written skills and the world has no rules.
    pub fn new(config: &TrainConfig, world: Arc<dyn World>) -> Result<Self, TrainError> {
        let seed = &config.seed;
        let prompts = &config.evaluation.prompts;
        let trains_with_skills =
            config.algorithm.name.has_teacher() || config.algorithm.name == Algorithm::SkillGrpo;
        let wants_library = prompts.contains(&EvaluationPrompt::LibrarySkill)
            || (trains_with_skills && seed.analyser == Analyser::Library);
        let wants_rules = prompts.iter().any(|prompt| prompt.needs_rules())
            || (trains_with_skills
                && (matches!(
                    seed.analyser,
                    Analyser::Rules | Analyser::Oracle | Analyser::Library
                ) || seed.wrong_skill_share > 0.0));
        if wants_rules && world.skill_rules().is_none() {
            return Err(TrainError::NoSkillRules {
                world: world.name().to_owned(),
            });
        }
        let library = match world.skill_rules() {
            Some(rules) if wants_library => Some(
                rules
                    .library(world.tasks(Split::Train))
                    .map_err(WorldError::from)?,
            ),
            _ => None,
        };
        Ok(Self { world, library })
    }

    /// The rules of the world.
    ///
    /// # Errors
    /// [`TrainError::NoSkillRules`] when it has none.
    pub fn rules(&self) -> Result<&dyn SkillRules, TrainError> {
        self.world.skill_rules().ok_or_else(|| TrainError::NoSkillRules {
            world: self.world.name().to_owned(),
        })
    }

    /// The skill of a task that is known before it is played; `None` where `analyser` reads finished episodes, or has
    /// nothing to say about this task.
    ///
    /// # Errors
    /// When the task cannot be loaded.
    pub fn of_task(&self, analyser: Analyser, task: &TaskId) -> Result<Option<String>, TrainError> {
        let skill: Result<_, EnvironmentError> = match (analyser, &self.library) {
            (Analyser::Oracle, _) => self.rules()?.oracle_skill(task),
            (Analyser::Library, Some(library)) => library.skill(task),
            _ => Ok(None),
        };
        Ok(skill.map_err(WorldError::from)?)
    }

    /// Analyses of trajectories whose skills are known from their tasks.
    ///
    /// # Errors
    /// When a task cannot be loaded.
    pub fn analyses(
        &self,
        analyser: Analyser,
        trajectories: &[Trajectory],
    ) -> Result<Vec<Analysis>, TrainError> {
        let source = match analyser {
            Analyser::Library => SkillSource::Library,
            _ => SkillSource::Oracle,
        };
        // A group shares its task, and to make its skill a whole game may be read.
        let mut known: BTreeMap<&TaskId, Option<String>> = BTreeMap::new();
        trajectories
            .iter()
            .map(|trajectory| {
                let asked = trajectory.outcome.trains() && !trajectory.steps.is_empty();
                let skill = match known.get(&trajectory.task) {
                    _ if !asked => None,
                    Some(skill) => skill.clone(),
                    None => known
                        .entry(&trajectory.task)
                        .or_insert(self.of_task(analyser, &trajectory.task)?)
                        .clone(),
                };
                Ok(Analysis {
                    skill,
                    source,
                    ..Analysis::of(trajectory)
                })
            })
            .collect()
    }

    /// Gives every episode that has a skill the one it is scored with: another's where the configuration says so, then a
    /// wrong one for the configured share. An episode without a skill of its own gets none, so that the arms differ in what
    /// skills say and not in how many episodes have one.
    ///
    /// # Errors
    /// When a task cannot be loaded.
    pub fn assign(
        &self,
        config: &TrainConfig,
        trajectories: &[Trajectory],
        analyses: &mut [Analysis],
        key: RandomKey,
    ) -> Result<(), TrainError> {
        let seed = &config.seed;
        // By default nobody is given another's, and there is nothing to look up.
        let reads_others = seed.skill_from != SkillFrom::Own || seed.gap_zero == GapZero::OtherSkill;
        let own = if reads_others {
            analyses.to_vec()
        } else {
            Vec::new()
        };
        let drawn = |purpose: &str, index: usize, fits: &dyn Fn(usize) -> bool| {
            let candidates: Vec<&Analysis> = (0..own.len())
                .filter(|&other| other != index && fits(other))
                .filter_map(|other| own.get(other))
                .filter(|analysis| analysis.has_skill())
                .collect();
            let mut draw = key
                .with_text("purpose", purpose)
                .with("trajectory", index as u64)
                .generator();
            draw.choose(&candidates).map(|&analysis| analysis.clone())
        };
        // Other tasks and siblings are told by what was played, not by what was written about it.
        let task = |index: usize| trajectories.get(index).map(|trajectory| &trajectory.task);
        let group = |index: usize| trajectories.get(index).map(|trajectory| trajectory.group);
        let won = |index: usize| trajectories.get(index).is_some_and(Trajectory::success);
        for (index, analysis) in analyses.iter_mut().enumerate() {
            if !analysis.has_skill() {
                continue;
            }
            if seed.gap_zero == GapZero::OtherSkill {
                let other = drawn("gap-zero", index, &|other| task(other) != task(index));
                analysis.placebo = other.and_then(|other| other.skill);
            }
            let given = match seed.skill_from {
                SkillFrom::Own => None,
                SkillFrom::Sibling => {
                    let fits = |other| group(other) == group(index) && won(other);
                    Some((drawn("sibling", index, &fits), SkillSource::Sibling))
                }
                SkillFrom::OwnOrSibling if won(index) => None,
                SkillFrom::OwnOrSibling => {
                    let fits = |other| group(other) == group(index) && won(other);
                    drawn("sibling", index, &fits).map(|sibling| (Some(sibling), SkillSource::Sibling))
                }
                SkillFrom::OtherTask => {
                    let fits = |other| task(other) != task(index);
                    Some((drawn("other-task", index, &fits), SkillSource::OtherTask))
                }
            };
            if let Some((given, source)) = given {
                analysis.source = source;
                analysis.skill = given.as_ref().and_then(|given| given.skill.clone());
                let steps = trajectories
                    .get(index)
                    .map_or(0, |trajectory| trajectory.steps.len());
                analysis.step_skills = given.map(|given| given.step_skills).unwrap_or_default();
                analysis.step_skills.retain(|&step, _| step < steps);
            }
            self.mislead(seed, index, task(index), analysis, key)?;
        }
        Ok(())
    }

    /// Replaces the configured share of skills by wrong ones.
    fn mislead(
        &self,
        seed: &config::SeedSection,
        index: usize,
        task: Option<&TaskId>,
        analysis: &mut Analysis,
        key: RandomKey,
    ) -> Result<(), TrainError> {
        let key = key.with_text("purpose", "wrong").with("trajectory", index as u64);
        if seed.wrong_skill_share == 0.0 || key.generator().unit() >= seed.wrong_skill_share {
            return Ok(());
        }
        let Some(task) = task else { return Ok(()) };
        let wrong = self.rules()?.wrong_skill(task, &key.with_text("draw", "skill"));
        if let Some(wrong) = wrong.map_err(WorldError::from)? {
            analysis.skill = Some(wrong);
            analysis.step_skills.clear();
            analysis.source = SkillSource::Wrong;
        }
        Ok(())
    }
}

/// Records where the skills are from that episodes are scored with.
pub fn record_sources(analyses: &[Analysis], metrics: &mut Metrics) {
    let mut counts: BTreeMap<SkillSource, usize> = BTreeMap::new();
    for analysis in analyses.iter().filter(|analysis| analysis.has_skill()) {
        *counts.entry(analysis.source).or_default() += 1;
    }
    for (source, count) in counts {
        metrics.set(format!("skill/source/{}", source.name()), count as f64);
    }
}
