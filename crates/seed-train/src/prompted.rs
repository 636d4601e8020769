//! Panels with something in the prompts: the difference to plain play tells what reading a skill is worth, and with another
//! task's skill, what merely having one there does.
//!
//! One way for all who evaluate: a training run, `seed eval`, and the panels of a study.
//!
//! Not for: skills that training scores episodes with ([`crate::skills`], [`crate::hindsight`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use seed_env::{EnvironmentPool, Split, Task, World};
use seed_model::Engine;
use seed_random::RandomKey;
use seed_rollout::{Decoration, Trajectory};
use serde::{Deserialize, Serialize};

use crate::TrainError;
use crate::config::{Analyser, EvaluationPrompt, SeedSection, SkillMode, TrainConfig};
use crate::evaluate::{Evaluation, Panel, evaluate};
use crate::events::{Observer, Phase};
use crate::hindsight::Hindsight;
use crate::policy::Policy;
use crate::skills::TaskSkills;
use crate::trainer::{counted, options, panel, progress};

/// One panel with one kind of prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PanelResult {
    /// The panel's split.
    pub split: Split,
    /// What was in the prompts.
    pub prompt: EvaluationPrompt,
    /// Share of the episodes that had a skill in their prompts: a policy's own analysis may have failed.
    pub skill_share: f64,
    /// What was measured.
    pub evaluation: Evaluation,
}

/// A panel's result with its episodes.
pub struct PlayedPanel {
    /// The result.
    pub result: PanelResult,
    /// The episodes: task by task, the samples of one after the other.
    pub trajectories: Vec<Trajectory>,
}

/// What the panels of one policy are played with.
pub struct PromptedPanels<'a> {
    /// Says which tasks, how often, and with which prompts.
    pub config: &'a TrainConfig,
    /// The policy that plays, and that writes its own skills.
    pub policy: &'a Policy,
    /// Where it plays.
    pub world: &'a Arc<dyn World>,
    /// The skills that rules write.
    pub skills: &'a TaskSkills,
    /// The environments.
    pub pool: &'a mut EnvironmentPool,
    /// Iterations the policy was trained for; only progress shows it.
    pub iteration: u64,
}

/// Skills by task, one or more samples each; a sample beyond the last has none.
type Skills = BTreeMap<String, Vec<Option<String>>>;

impl PromptedPanels<'_> {
    /// Plays the panel of a split, once for each of `evaluation.prompts`, in their order. A policy's own skills are written
    /// about plain episodes, which are played for them in any case.
    ///
    /// # Errors
    /// When generation or the environments fail as a whole, or a task cannot be loaded.
    pub fn play(
        &mut self,
        split: Split,
        observer: &mut dyn Observer,
    ) -> Result<Vec<PlayedPanel>, TrainError> {
        let section = &self.config.evaluation;
        let panel = panel(&**self.world, split, section.tasks, section.seed)?;
        let tasks = panel.tasks();
        let prompts = section.prompts.as_slice();
        let mut plain = None;
        if prompts
            .iter()
            .any(|prompt| matches!(prompt, EvaluationPrompt::Plain | EvaluationPrompt::OwnSkill))
        {
            plain = Some(self.episodes(tasks, &Skills::new(), observer)?);
        }
        let mut own = None;
        if let Some((_, trajectories)) = &plain
            && prompts.contains(&EvaluationPrompt::OwnSkill)
        {
            own = Some(self.own_skills(trajectories, observer)?);
        }
        let mut results = Vec::with_capacity(prompts.len());
        for &prompt in prompts {
            let skills = match prompt {
                EvaluationPrompt::Plain => Skills::new(),
                EvaluationPrompt::OwnSkill => own.clone().unwrap_or_default(),
                EvaluationPrompt::LibrarySkill => self.task_skills(Analyser::Library, tasks, 0)?,
                EvaluationPrompt::OracleSkill => self.task_skills(Analyser::Oracle, tasks, 0)?,
                EvaluationPrompt::OtherSkill => self.task_skills(Analyser::Oracle, tasks, 1)?,
            };
            let (evaluation, trajectories) = match plain.take_if(|_| prompt.is_plain()) {
                Some(plain) => plain,
                None => self.episodes(tasks, &skills, observer)?,
            };
            let written = skills.values().flatten().flatten().count();
            let episodes = tasks.len() * section.samples_per_task;
            results.push(PlayedPanel {
                result: PanelResult {
                    split,
                    prompt,
                    skill_share: written as f64 / episodes.max(1) as f64,
                    evaluation,
                },
                trajectories,
            });
        }
        Ok(results)
    }

    /// Plays every task with its skills in the prompts.
    fn episodes(
        &mut self,
        tasks: &[Task],
        skills: &Skills,
        observer: &mut dyn Observer,
    ) -> Result<(Evaluation, Vec<Trajectory>), TrainError> {
        let section = &self.config.evaluation;
        let hindsight = Hindsight::new(&self.config.seed);
        let decorate = |task: &Task, sample: u32| -> Option<Decoration> {
            let skill = skills.get(task.id.as_str())?.get(sample as usize)?.clone()?;
            Some(hindsight.decoration(skill))
        };
        let mut engine = Engine::new(
            &self.policy.decoder,
            options::engine_options(&self.config.rollout),
        );
        evaluate(
            &mut engine,
            &self.policy.conversation,
            self.world,
            self.pool,
            &Panel {
                tasks,
                samples_per_task: section.samples_per_task,
                key: RandomKey::new(section.seed).with_text("purpose", "evaluation"),
                decoration: Some(&decorate),
            },
            &options::evaluation_options(self.config, &self.policy.end_tokens),
            &mut progress(observer, self.iteration, Phase::Evaluation),
        )
    }

    /// For each task the rule-written skill of the task so many places further on the panel.
    fn task_skills(&self, analyser: Analyser, tasks: &[Task], shift: usize) -> Result<Skills, TrainError> {
        let samples = self.config.evaluation.samples_per_task;
        tasks
            .iter()
            .zip(tasks.iter().cycle().skip(shift))
            .map(|(task, source)| {
                let skill = self.skills.of_task(analyser, &source.id)?;
                Ok((task.id.to_string(), vec![skill; samples]))
            })
            .collect()
    }

    /// What the policy writes about its own episodes, successes and failures alike, after the configuration's filters.
    fn own_skills(
        &self,
        trajectories: &[Trajectory],
        observer: &mut dyn Observer,
    ) -> Result<Skills, TrainError> {
        let section = SeedSection {
            failed_only: false,
            failed_only_after: None,
            skill_mode: SkillMode::Episode,
            ..self.config.seed.clone()
        };
        let analyses = Hindsight::new(&section).analyse(
            self.config,
            &self.policy.decoder,
            self.policy,
            self.world.dialogue(),
            trajectories,
            0,
            RandomKey::new(self.config.evaluation.seed).with_text("purpose", "analysis of an evaluation"),
            &mut counted(observer, self.iteration, Phase::Analysis),
        )?;
        let mut skills = Skills::new();
        for (trajectory, analysis) in trajectories.iter().zip(analyses) {
            let samples = skills.entry(trajectory.task.to_string()).or_default();
            samples.resize(samples.len().max(trajectory.sample as usize + 1), None);
            if let Some(slot) = samples.get_mut(trajectory.sample as usize) {
                *slot = analysis.skill;
            }
        }
        Ok(skills)
    }
}
