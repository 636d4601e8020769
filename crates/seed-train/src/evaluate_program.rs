//! `seed eval`: a model on fixed panels, with every kind of prompt that its configuration asks for.
//!
//! Not for: the evaluations of a training run ([`crate::trainer`]), though both play alike ([`crate::prompted`]).

use std::path::Path;

use seed_env::{EnvironmentPool, Split};
use seed_run::write_json_lines;

use crate::TrainError;
use crate::config::TrainConfig;
use crate::events::Observer;
use crate::policy::Policy;
use crate::prompted::{PanelResult, PromptedPanels};
use crate::skills::TaskSkills;
use crate::trainer::options;
use crate::world::OpenWorld;

/// Evaluates `model.path` on all panels of the configuration, each with all of `evaluation.prompts`.
///
/// # Errors
/// When the model, the environments or a file fail, or the world lacks the rules that a prompt needs.
pub fn evaluate_panels(
    config: &TrainConfig,
    open: &OpenWorld,
    trajectories_out: Option<&Path>,
    observer: &mut dyn Observer,
) -> Result<Vec<PanelResult>, TrainError> {
    let policy = Policy::placed(&config.model)?;
    let skills = TaskSkills::new(config, open.world.clone())?;
    let mut pool = EnvironmentPool::new(open.world.clone(), options::pool_options(config))?;
    let mut panels = PromptedPanels {
        config,
        policy: &policy,
        world: &open.world,
        skills: &skills,
        pool: &mut pool,
        iteration: 0,
    };
    let mut results = Vec::new();
    let mut recorded = Vec::new();
    for &split in &config.evaluation.splits {
        for played in panels.play(Split::from(split), observer)? {
            results.push(played.result);
            if trajectories_out.is_some() {
                recorded.extend(played.trajectories);
            }
        }
    }
    if let Some(out) = trajectories_out {
        write_json_lines(out, &recorded)?;
    }
    Ok(results)
}
