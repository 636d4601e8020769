//! Playing a fixed panel and reporting success with intervals.
//!
//! With the plain prompt nothing of the method remains at inference. Every task of the panel is played
//! `samples_per_task` times with its own random key, so a panel's result depends only on the weights and the seed.
//!
//! Not for: which skills are put into the prompts ([`crate::prompted`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use seed_env::{EnvironmentPool, Outcome, Task, World};
use seed_random::RandomKey;
use seed_rollout::{
    Conversation, Decoration, EpisodeRequest, Generator, Progress, RolloutOptions, Trajectory, rollout,
};
use serde::{Deserialize, Serialize};

use crate::TrainError;
use crate::statistics::{Interval, mean, wilson};

/// Success within one task family.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FamilyResult {
    /// Episodes played.
    pub episodes: usize,
    /// Episodes won.
    pub successes: usize,
    /// Success rate with its Wilson 95 % interval.
    pub success: Interval,
}

/// The result of one panel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Episodes played, failures of the environment excluded.
    pub episodes: usize,
    /// Episodes won.
    pub successes: usize,
    /// Overall success rate with its Wilson 95 % interval.
    pub success: Interval,
    /// Unweighted mean of the families' success rates.
    pub macro_success: f64,
    /// Mean grade of the results, 0 to 1, in worlds that grade between lost and won.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_score: Option<f64>,
    /// By task family, in name order.
    pub families: BTreeMap<String, FamilyResult>,
    /// Mean turns per episode.
    pub mean_steps: f64,
    /// Share of turns whose response obeyed the action format.
    pub valid_action_rate: f64,
    /// Episodes by how they ended.
    pub outcomes: BTreeMap<String, usize>,
    /// Sampling temperature.
    pub temperature: f32,
}

/// Chooses what is placed in the prompts of a task's sample; `None` for the plain prompt.
pub type Decorate<'a> = &'a dyn Fn(&Task, u32) -> Option<Decoration>;

/// What to play.
pub struct Panel<'a> {
    /// The tasks, each once.
    pub tasks: &'a [Task],
    /// Episodes per task.
    pub samples_per_task: usize,
    /// Root of the panel's randomness: the same at every evaluation, so that curves show the policy, not the draw.
    pub key: RandomKey,
    /// Text placed in the prompts of a task, for measuring what a skill is worth; `None` for the plain protocol.
    pub decoration: Option<Decorate<'a>>,
}

/// Plays a panel and returns its trajectories with the summary.
///
/// # Errors
/// [`TrainError`] when generation or the environments fail as a whole.
pub fn evaluate(
    generator: &mut dyn Generator,
    conversation: &Conversation,
    world: &Arc<dyn World>,
    pool: &mut EnvironmentPool,
    panel: &Panel<'_>,
    options: &RolloutOptions,
    observer: &mut dyn FnMut(Progress),
) -> Result<(Evaluation, Vec<Trajectory>), TrainError> {
    let samples = panel.samples_per_task;
    let _span = tracing::info_span!("evaluation", tasks = panel.tasks.len(), samples).entered();
    let mut requests = Vec::with_capacity(panel.tasks.len() * panel.samples_per_task);
    for (group, task) in panel.tasks.iter().enumerate() {
        let task_key = panel.key.with_text("task", task.id.as_str());
        for sample in 0..panel.samples_per_task as u32 {
            requests.push(EpisodeRequest {
                task: task.clone(),
                group: group as u64,
                sample,
                environment_seed: task_key.to_u64(),
                key: task_key.with("sample", u64::from(sample)),
                decoration: panel.decoration.and_then(|decorate| decorate(task, sample)),
            });
        }
    }
    let report = rollout(generator, conversation, world, pool, requests, options, observer)?;
    Ok((
        summarise(&report.trajectories, options.sampling.temperature),
        report.trajectories,
    ))
}

/// Summarises finished trajectories; episodes whose environment failed are counted in `outcomes` only.
pub fn summarise(trajectories: &[Trajectory], temperature: f32) -> Evaluation {
    let mut outcomes = BTreeMap::new();
    let mut families: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let (mut episodes, mut successes, mut turns, mut valid) = (0, 0, 0, 0);
    for trajectory in trajectories {
        *outcomes
            .entry(outcome_name(trajectory.outcome).to_owned())
            .or_insert(0) += 1;
        if !trajectory.outcome.trains() {
            continue;
        }
        episodes += 1;
        successes += usize::from(trajectory.success());
        turns += trajectory.steps.len();
        valid += trajectory.steps.iter().filter(|step| step.valid).count();
        let family = families.entry(trajectory.family.clone()).or_default();
        family.0 += 1;
        family.1 += usize::from(trajectory.success());
    }
    let families: BTreeMap<String, FamilyResult> = families
        .into_iter()
        .map(|(name, (episodes, successes))| {
            (
                name,
                FamilyResult {
                    episodes,
                    successes,
                    success: wilson(successes, episodes),
                },
            )
        })
        .collect();
    let scores: Vec<f64> = scores(
        trajectories
            .iter()
            .filter(|trajectory| trajectory.outcome.trains()),
    );
    let rates: Vec<f64> = families.values().map(|family| family.success.value).collect();
    Evaluation {
        episodes,
        successes,
        success: wilson(successes, episodes),
        macro_success: mean(&rates),
        mean_score: (!scores.is_empty()).then(|| mean(&scores)),
        families,
        mean_steps: turns as f64 / episodes.max(1) as f64,
        valid_action_rate: valid as f64 / turns.max(1) as f64,
        outcomes,
        temperature,
    }
}

/// The grades of the trajectories that have one.
pub(crate) fn scores<'a>(trajectories: impl IntoIterator<Item = &'a Trajectory>) -> Vec<f64> {
    trajectories
        .into_iter()
        .filter_map(|trajectory| trajectory.score.map(f64::from))
        .collect()
}

/// The name of an outcome in reports.
pub fn outcome_name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Success => "success",
        Outcome::Failure => "failure",
        Outcome::OutOfTurns => "out_of_turns",
        Outcome::OutOfTokens => "out_of_tokens",
        Outcome::EnvironmentError => "environment_error",
        Outcome::TimeOut => "time_out",
        Outcome::EngineError => "engine_error",
        Outcome::Cancelled => "cancelled",
    }
}
