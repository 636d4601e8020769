//! `seed eval`: fixed panels with the plain prompt, and on request with rule-written skills in it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use seed_alfworld::expert::skill::oracle_skill;
use seed_env::{EnvironmentPool, Split, Task};
use seed_model::Engine;
use seed_random::RandomKey;
use seed_rollout::Decoration;
use seed_run::write_json_lines;
use serde::Serialize;

use crate::TrainError;
use crate::config::TrainConfig;
use crate::evaluate::{Evaluation, Panel, evaluate};
use crate::events::{Event, Observer, Phase};
use crate::hindsight::Hindsight;
use crate::policy::Policy;
use crate::trainer::{options, panel};
use crate::world::{OpenWorld, WorldError};

/// One panel under one kind of prompt.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PanelResult {
    /// The panel's split.
    pub split: Split,
    /// `plain`, `oracle_skill` or `other_skill`.
    pub prompt: &'static str,
    /// What was measured.
    pub evaluation: Evaluation,
}

/// Evaluates `model.path` on all panels of the configuration. With `with_skills`, each panel is also played with the
/// skill of a perfect episode of the task in the prompt, and with that of the panel's next task: the difference tells
/// what reading a skill is worth, and what merely having one there does.
///
/// # Errors
/// When the model, the environments or a file fail.
pub fn evaluate_panels(
    config: &TrainConfig,
    open: &OpenWorld,
    with_skills: bool,
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
        let prompts: &[&'static str] = if with_skills {
            &["plain", "oracle_skill", "other_skill"]
        } else {
            &["plain"]
        };
        for &prompt in prompts {
            let skills = skills(open, tasks, prompt)?;
            let decorate = |task: &Task, _: u32| -> Option<Decoration> {
                let skill = skills.get(task.id.as_str())?.clone();
                let hindsight = hindsight.clone();
                Some(Arc::new(move |text: &str| hindsight.place(text, &skill)))
            };
            let mut engine = Engine::new(&policy.decoder, options::engine_options(&config.rollout));
            let (evaluation, trajectories) = evaluate(
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
            )?;
            if trajectories_out.is_some() {
                recorded.extend(trajectories);
            }
            results.push(PanelResult {
                split,
                prompt,
                evaluation,
            });
        }
    }
    if let Some(out) = trajectories_out {
        write_json_lines(out, &recorded)?;
    }
    Ok(results)
}

/// The skill each task is played with; none for the plain prompt.
fn skills(open: &OpenWorld, tasks: &[Task], prompt: &str) -> Result<BTreeMap<String, String>, TrainError> {
    let shift = match prompt {
        "oracle_skill" => 0,
        "other_skill" => 1,
        _ => return Ok(BTreeMap::new()),
    };
    let games = open.household_games("rule-written skills")?;
    let mut skills = BTreeMap::new();
    for (task, source) in tasks.iter().zip(tasks.iter().cycle().skip(shift)) {
        let game = games.game(&source.id).map_err(WorldError::from)?;
        if let Some(skill) = oracle_skill(&game) {
            skills.insert(task.id.to_string(), skill);
        }
    }
    Ok(skills)
}
