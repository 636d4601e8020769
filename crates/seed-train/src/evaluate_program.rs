//! `seed eval`: fixed panels with the plain prompt, and on request with skills in it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use seed_alfworld::expert::skill::oracle_skill;
use seed_env::{EnvironmentPool, Split, Task};
use seed_model::Engine;
use seed_random::RandomKey;
use seed_rollout::{Decoration, Trajectory};
use seed_run::write_json_lines;
use serde::{Deserialize, Serialize};

use crate::TrainError;
use crate::config::{SeedSection, TrainConfig};
use crate::evaluate::{Evaluation, Panel, evaluate};
use crate::events::{Event, Observer, Phase};
use crate::hindsight::Hindsight;
use crate::policy::Policy;
use crate::trainer::{options, panel};
use crate::world::{OpenWorld, WorldError};

/// What is placed in the prompts of a panel: the difference to plain play tells what reading a skill is worth, and with
/// another task's skill, what merely having one there does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SkillPrompt {
    /// Nothing.
    #[serde(rename = "plain")]
    Plain,
    /// The skill that the policy wrote about its own plain episode of the same task and sample.
    #[serde(rename = "own_skill")]
    Own,
    /// The skill of a perfect episode of the task.
    #[serde(rename = "oracle_skill")]
    Oracle,
    /// The skill of a perfect episode of the panel's next task.
    #[serde(rename = "other_skill")]
    Other,
}

impl SkillPrompt {
    /// All of them; the plain prompt comes first.
    pub const ALL: [Self; 4] = [Self::Plain, Self::Own, Self::Oracle, Self::Other];

    /// The word in files and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Own => "own_skill",
            Self::Oracle => "oracle_skill",
            Self::Other => "other_skill",
        }
    }
}

impl fmt::Display for SkillPrompt {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// One panel under one kind of prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PanelResult {
    /// The panel's split.
    pub split: Split,
    /// What was in the prompts.
    pub prompt: SkillPrompt,
    /// Share of the episodes that had a skill in their prompts: a policy's own analysis may have failed.
    pub skill_share: f64,
    /// What was measured.
    pub evaluation: Evaluation,
}

/// Skills by task, one or more samples each; a sample beyond the last has none.
type Skills = BTreeMap<String, Vec<Option<String>>>;

/// Evaluates `model.path` on all panels of the configuration, under each of `prompts`. A policy's own skills are written
/// about plain episodes, which are played for them in any case.
///
/// # Errors
/// When the model, the environments or a file fail.
pub fn evaluate_panels(
    config: &TrainConfig,
    open: &OpenWorld,
    prompts: &[SkillPrompt],
    trajectories_out: Option<&Path>,
    observer: &mut dyn Observer,
) -> Result<Vec<PanelResult>, TrainError> {
    let policy = Policy::load(&config.model.path, config.model.thinking)?;
    let hindsight = Arc::new(Hindsight::new(&config.seed));
    let mut pool = EnvironmentPool::new(open.world.clone(), options::pool_options(config))?;
    let mut results = Vec::new();
    let mut recorded = Vec::new();
    for &split in &config.evaluation.splits {
        let split = Split::from(split);
        let panel = panel(
            &*open.world,
            split,
            config.evaluation.tasks,
            config.evaluation.seed,
        )?;
        let tasks = panel.tasks();
        let mut play = |skills: &Skills, observer: &mut dyn Observer| {
            let decorate = |task: &Task, sample: u32| -> Option<Decoration> {
                let skill = skills.get(task.id.as_str())?.get(sample as usize)?.clone()?;
                let hindsight = hindsight.clone();
                Some(Arc::new(move |text: &str| hindsight.place(text, &skill)))
            };
            let mut engine = Engine::new(&policy.decoder, options::engine_options(&config.rollout));
            evaluate(
                &mut engine,
                &policy.conversation,
                &open.world,
                &mut pool,
                &Panel {
                    tasks,
                    samples_per_task: config.evaluation.samples_per_task,
                    key: RandomKey::new(config.evaluation.seed).with_text("purpose", "evaluation"),
                    decoration: Some(&decorate),
                },
                &options::evaluation_options(config, &policy.end_tokens),
                &mut |progress| {
                    observer.event(&Event::Progress {
                        iteration: 0,
                        phase: Phase::Evaluation,
                        done: progress.finished,
                        total: progress.total,
                    });
                },
            )
        };
        let mut plain = None;
        if prompts.contains(&SkillPrompt::Plain) || prompts.contains(&SkillPrompt::Own) {
            plain = Some(play(&Skills::new(), observer)?);
        }
        for &prompt in prompts {
            let skills = match (prompt, &plain) {
                (SkillPrompt::Own, Some((_, trajectories))) => {
                    own_skills(config, &policy, open, trajectories, observer)?
                }
                (SkillPrompt::Oracle, _) => oracle_skills(config, open, tasks, 0)?,
                (SkillPrompt::Other, _) => oracle_skills(config, open, tasks, 1)?,
                _ => Skills::new(),
            };
            let played;
            let (evaluation, trajectories) = if let (SkillPrompt::Plain, Some(plain)) = (prompt, &plain) {
                plain
            } else {
                played = play(&skills, observer)?;
                &played
            };
            if trajectories_out.is_some() {
                recorded.extend(trajectories.iter().cloned());
            }
            let written = skills.values().flatten().flatten().count();
            let episodes = tasks.len() * config.evaluation.samples_per_task;
            results.push(PanelResult {
                split,
                prompt,
                skill_share: written as f64 / episodes.max(1) as f64,
                evaluation: evaluation.clone(),
            });
        }
    }
    if let Some(out) = trajectories_out {
        write_json_lines(out, &recorded)?;
    }
    Ok(results)
}

/// What the policy writes about its own episodes, successes and failures alike, after the configuration's filters.
fn own_skills(
    config: &TrainConfig,
    policy: &Policy,
    open: &OpenWorld,
    trajectories: &[Trajectory],
    observer: &mut dyn Observer,
) -> Result<Skills, TrainError> {
    let section = SeedSection {
        failed_only: false,
        failed_only_after: None,
        ..config.seed.clone()
    };
    let analyses = Hindsight::new(&section).analyse(
        config,
        &policy.decoder,
        policy,
        open.world.dialogue(),
        trajectories,
        0,
        RandomKey::new(config.evaluation.seed).with_text("purpose", "analysis of an evaluation"),
        &mut |done, total| {
            observer.event(&Event::Progress {
                iteration: 0,
                phase: Phase::Analysis,
                done,
                total,
            });
        },
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

/// For each task the skill of a perfect episode of the task so many places further on the panel.
fn oracle_skills(
    config: &TrainConfig,
    open: &OpenWorld,
    tasks: &[Task],
    shift: usize,
) -> Result<Skills, TrainError> {
    let games = open.household_games("rule-written skills")?;
    let mut skills = Skills::new();
    for (task, source) in tasks.iter().zip(tasks.iter().cycle().skip(shift)) {
        let game = games.game(&source.id).map_err(WorldError::from)?;
        let skill = oracle_skill(&game);
        skills.insert(
            task.id.to_string(),
            vec![skill; config.evaluation.samples_per_task],
        );
    }
    Ok(skills)
}
