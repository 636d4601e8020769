//! `seed collect`: a policy plays tasks with the plain prompt and its trajectories are recorded.

use std::path::Path;
use std::sync::Arc;

use seed_env::{EnvironmentPool, Split, World};
use seed_model::Engine;
use seed_random::RandomKey;
use seed_run::write_json_lines;

use crate::TrainError;
use crate::config::TrainConfig;
use crate::evaluate::{Evaluation, Panel, evaluate};
use crate::events::{Observer, Phase};
use crate::policy::Policy;
use crate::trainer::{options, panel, progress};

/// Plays a seeded sample of `tasks` tasks of `split`, `rollout.samples_per_task` times each, and writes the trajectories.
///
/// # Errors
/// When the model, the environments or the file fail.
pub fn collect(
    config: &TrainConfig,
    world: &Arc<dyn World>,
    split: Split,
    tasks: usize,
    out: &Path,
    observer: &mut dyn Observer,
) -> Result<Evaluation, TrainError> {
    let policy = Policy::placed(&config.model)?;
    let mut pool = EnvironmentPool::new(world.clone(), options::pool_options(config))?;
    let sample = panel(&**world, split, Some(tasks), config.run.seed)?;
    let panel = Panel {
        tasks: sample.tasks(),
        samples_per_task: config.rollout.samples_per_task,
        key: RandomKey::new(config.run.seed).with_text("purpose", "collect"),
        decoration: None,
    };
    let mut engine = Engine::new(&policy.decoder, options::engine_options(&config.rollout));
    let (evaluation, trajectories) = evaluate(
        &mut engine,
        &policy.conversation,
        world,
        &mut pool,
        &panel,
        &options::rollout_options(config, &policy.end_tokens),
        &mut progress(observer, 0, Phase::Rollout),
    )?;
    write_json_lines(out, &trajectories)?;
    Ok(evaluation)
}
