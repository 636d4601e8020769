//! `seed annotate`: recorded trajectories become hindsight-skill records for fine-tuning.

use std::path::Path;

use seed_alfworld::expert::skill::annotate_texts;
use seed_env::World;
use seed_hindsight::SftRecord;
use seed_random::RandomKey;
use seed_rollout::Trajectory;
use seed_run::{read_json_lines, write_json_lines};

use crate::TrainError;
use crate::config::TrainConfig;
use crate::events::{Event, Observer, Phase};
use crate::hindsight::{Hindsight, trajectory_text};
use crate::policy::Policy;

/// Who writes the skills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Annotator {
    /// The endpoint of the configuration.
    Endpoint,
    /// The policy itself.
    Policy,
    /// Rules over the household's texts.
    Rules,
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnnotationReport {
    /// Trajectories read.
    pub trajectories: usize,
    /// Records written: those with a skill.
    pub records: usize,
}

/// Annotates all trajectories of a file. Those without a usable skill give no record.
///
/// # Errors
/// When the trajectories cannot be read, the model or the endpoint's settings fail, or the file cannot be written.
pub fn annotate(
    config: &TrainConfig,
    world: &dyn World,
    trajectories: &Path,
    out: &Path,
    annotator: Annotator,
    observer: &mut dyn Observer,
) -> Result<AnnotationReport, TrainError> {
    let trajectories = read_json_lines::<Trajectory>(trajectories)?.collect::<Result<Vec<_>, _>>()?;
    let dialogue = world.dialogue();
    let (hindsight, policy, written) = match annotator {
        Annotator::Rules => {
            let hindsight = Hindsight::new(&config.seed);
            (hindsight, None, trajectories.iter().map(by_rules).collect())
        }
        Annotator::Endpoint | Annotator::Policy => {
            let mut hindsight = match annotator {
                Annotator::Endpoint => Hindsight::with_endpoint(config)?,
                _ => Hindsight::new(&config.seed),
            };
            let policy = Policy::load(&config.model.path, config.model.thinking)?;
            let key = RandomKey::new(config.run.seed).with_text("purpose", "annotate");
            let analyses = hindsight.analyse(
                config,
                &policy.decoder,
                &policy,
                dialogue,
                &trajectories,
                0,
                key,
                &mut |done, total| {
                    observer.event(&Event::Progress {
                        iteration: 0,
                        phase: Phase::Analysis,
                        done,
                        total,
                    });
                },
            )?;
            let written: Vec<Option<(String, String)>> = analyses
                .into_iter()
                .map(|analysis| Some((analysis.summary.unwrap_or_default(), analysis.skill?)))
                .collect();
            (hindsight, Some(policy), written)
        }
    };
    let records: Vec<SftRecord> = trajectories
        .iter()
        .zip(&written)
        .filter_map(|(trajectory, written)| {
            let (summary, skill) = written.as_ref()?;
            let text = trajectory_text(dialogue, trajectory);
            Some(SftRecord {
                // The prompt the policy will be asked with, whoever wrote the answer. Rules read no model.
                prompt: match &policy {
                    Some(policy) => {
                        hindsight
                            .fitted_prompt(&text, config, &policy.decoder, policy)
                            .text
                    }
                    None => hindsight.prompt(&text),
                },
                response: hindsight.record_json(summary, skill),
                skill_id: format!("{}:{}", trajectory.group, trajectory.sample),
                task_id: trajectory.task.to_string(),
                task_type: trajectory.family.clone(),
                source_success: Some(trajectory.success()),
                source_num_steps: trajectory.steps.len(),
            })
        })
        .collect();
    write_json_lines(out, &records)?;
    Ok(AnnotationReport {
        trajectories: trajectories.len(),
        records: records.len(),
    })
}

/// Summary and skill by rule; `None` for an episode that failed or whose task the rules cannot read.
pub fn by_rules(trajectory: &Trajectory) -> Option<(String, String)> {
    if !trajectory.outcome.trains() {
        return None;
    }
    let observations = trajectory
        .steps
        .iter()
        .map(|step| step.observation.as_str())
        .chain([trajectory.final_observation.as_str()]);
    let annotation = annotate_texts(&trajectory.task_description, observations, trajectory.success())?;
    Some((annotation.episode_summary, annotation.episode_skill))
}
