//! `seed annotate`: recorded trajectories become hindsight-skill records for fine-tuning.

use std::collections::BTreeMap;
use std::path::Path;

use seed_env::World;
use seed_hindsight::SftRecord;
use seed_random::RandomKey;
use seed_rollout::Trajectory;
use seed_run::{read_json_lines, write_json_lines};

use crate::TrainError;
use crate::config::TrainConfig;
use crate::events::{Event, Observer, Phase};
use crate::hindsight::{Analysis, Hindsight, trajectory_text, written_by_rules};
use crate::policy::Policy;
use crate::trainer::counted;

/// Who writes the skills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Annotator {
    /// The endpoint of the configuration.
    Endpoint,
    /// The policy itself.
    Policy,
    /// The world's rules.
    Rules,
}

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnnotationReport {
    /// Trajectories read.
    pub trajectories: usize,
    /// Records written: those with a skill.
    pub records: usize,
    /// The other trajectories, counted by why they have no skill.
    pub left_out: BTreeMap<String, usize>,
}

/// What was written about one trajectory: summary and skill, or why there is no skill.
type Written = Result<(String, String), String>;

/// Annotates all trajectories of a file. Those without a usable skill give no record; the observer is warned of them.
///
/// An endpoint's skills need five words at least and something besides punctuation, and an answer that is of no use is
/// asked for again (`endpoint.parse_attempts`). Skills of the endpoint and of the policy then pass the filters of the
/// `[seed]` table; those of rules stand as they were written.
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
            let written = trajectories
                .iter()
                .map(|trajectory| by_rules(world, trajectory).ok_or_else(|| "no_rule".to_owned()))
                .collect();
            (hindsight, None, written)
        }
        Annotator::Endpoint | Annotator::Policy => {
            let mut hindsight = match annotator {
                Annotator::Endpoint => Hindsight::with_endpoint(config)?,
                _ => Hindsight::new(&config.seed),
            };
            let policy = Policy::placed(&config.model)?;
            let key = RandomKey::new(config.run.seed).with_text("purpose", "annotate");
            let analyses = hindsight.analyse(
                config,
                &policy.decoder,
                &policy,
                dialogue,
                &trajectories,
                0,
                key,
                &mut counted(observer, 0, Phase::Analysis),
            )?;
            if let Some(failed) = analyses
                .iter()
                .find(|analysis| analysis.status.starts_with("failed: "))
            {
                observer.event(&Event::Warning {
                    text: format!("an analysis {}", failed.status),
                });
            }
            let written: Vec<Written> = analyses.into_iter().map(accepted).collect();
            (hindsight, Some(policy), written)
        }
    };
    let records: Vec<SftRecord> = trajectories
        .iter()
        .zip(&written)
        .filter_map(|(trajectory, written)| {
            let (summary, skill) = written.as_ref().ok()?;
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
    let mut left_out = BTreeMap::new();
    for reason in written.iter().filter_map(|written| written.as_ref().err()) {
        *left_out.entry(reason.clone()).or_insert(0) += 1;
    }
    if !left_out.is_empty() {
        let reasons: Vec<String> = left_out
            .iter()
            .map(|(reason, count)| format!("{count} {reason}"))
            .collect();
        observer.event(&Event::Warning {
            text: format!("trajectories without a record: {}", reasons.join(", ")),
        });
    }
    Ok(AnnotationReport {
        trajectories: trajectories.len(),
        records: records.len(),
        left_out,
    })
}

/// What an analysis is worth as a record.
fn accepted(analysis: Analysis) -> Written {
    let was_read = analysis.was_read();
    match (analysis.skill, analysis.status.as_str()) {
        (Some(skill), _) => Ok((analysis.summary.unwrap_or_default(), skill)),
        (None, _) if was_read => Err("refused".to_owned()),
        // The message of a failure differs from one trajectory to the next.
        (None, status) => Err(status.split(':').next().unwrap_or(status).to_owned()),
    }
}

/// Summary and skill by the world's rules; `None` for an episode that broke off, and where the world has no rules or they
/// cannot read the task.
fn by_rules(world: &dyn World, trajectory: &Trajectory) -> Option<(String, String)> {
    if !trajectory.outcome.trains() {
        return None;
    }
    let written = written_by_rules(world.skill_rules()?, trajectory)?;
    Some((written.summary, written.skill))
}
