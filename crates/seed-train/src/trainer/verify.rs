//! Skills on trial: the task is played again with the skill and without, and only a skill that helps is used.
//!
//! The plain replays of a task are shared by all skills of its group. Replays are training episodes like any other in what
//! they cost, and are counted among them; they are not trained on.
//!
//! Not for: judging a skill by its text (`seed-hindsight`).

use std::collections::BTreeMap;

use seed_env::Task;
use seed_model::Engine;
use seed_rollout::{EpisodeRequest, Trajectory, rollout};
use seed_run::Metrics;

use super::{Trainer, options, progress};
use crate::TrainError;
use crate::events::{Observer, Phase};
use crate::hindsight::{Analysis, UNVERIFIED};

/// Whether `with` successes of `replays` against `without` are a gain of at least one success and of `gain` in rate.
fn helps(with: usize, without: usize, replays: usize, gain: f64) -> bool {
    with > without && (with - without) as f64 >= gain * replays as f64
}

impl Trainer {
    /// Plays the tasks again and drops the skills that do not help. Returns the number of episodes played.
    pub(super) fn verify(
        &mut self,
        iteration: u64,
        trajectories: &[Trajectory],
        analyses: &mut [Analysis],
        metrics: &mut Metrics,
        observer: &mut dyn Observer,
    ) -> Result<u64, TrainError> {
        let replays = self.config.seed.verification_replays;
        let tasks: BTreeMap<String, Task> = self
            .schedule
            .tasks(iteration - 1)
            .into_iter()
            .map(|task| (task.id.to_string(), task.clone()))
            .collect();
        // What is played: a task with the skill of a trajectory, or plain.
        let mut trials: Vec<(String, Option<usize>)> = Vec::new();
        for (index, (trajectory, analysis)) in trajectories.iter().zip(&*analyses).enumerate() {
            if analysis.skill.is_some() {
                let task = trajectory.task.to_string();
                if !trials.contains(&(task.clone(), None)) {
                    trials.push((task.clone(), None));
                }
                trials.push((task, Some(index)));
            }
        }
        if trials.is_empty() {
            metrics.set("verification/episodes", 0.0);
            return Ok(0);
        }
        let key = self
            .key
            .with("iteration", iteration)
            .with_text("purpose", "verification");
        let mut requests = Vec::with_capacity(trials.len() * replays);
        for (group, (name, skill_of)) in trials.iter().enumerate() {
            let Some(task) = tasks.get(name) else { continue };
            let skill = skill_of.and_then(|index| analyses.get(index)?.skill.clone());
            let decoration = skill.map(|skill| self.hindsight.decoration(skill));
            // Members of a trial differ in their key; the trials of a task do not, so that they differ in the skill alone.
            let task_key = key.with_text("task", name);
            for sample in 0..replays as u32 {
                requests.push(EpisodeRequest {
                    task: task.clone(),
                    group: group as u64,
                    sample,
                    environment_seed: self.schedule.environment_seed(iteration - 1, &task.id),
                    key: task_key.with("sample", u64::from(sample)),
                    decoration: decoration.clone(),
                });
            }
        }
        let mut engine = Engine::new(
            &self.policy.decoder,
            options::engine_options(&self.config.rollout),
        );
        let report = rollout(
            &mut engine,
            &self.policy.conversation,
            &self.world,
            &mut self.pool,
            requests,
            &options::rollout_options(&self.config, &self.policy.end_tokens),
            &mut progress(observer, iteration, Phase::Analysis),
        )?;
        let mut wins = vec![0; trials.len()];
        for trajectory in report
            .trajectories
            .iter()
            .filter(|trajectory| trajectory.success())
        {
            if let Some(wins) = wins.get_mut(trajectory.group as usize) {
                *wins += 1;
            }
        }
        let plain: BTreeMap<&str, usize> = trials
            .iter()
            .zip(&wins)
            .filter(|((_, skill_of), _)| skill_of.is_none())
            .map(|((name, _), &wins)| (name.as_str(), wins))
            .collect();
        let (mut tried, mut accepted, mut gains) = (0usize, 0usize, 0.0);
        for ((name, skill_of), &with) in trials.iter().zip(&wins) {
            let Some(analysis) = skill_of.and_then(|index| analyses.get_mut(index)) else {
                continue;
            };
            let without = plain.get(name.as_str()).copied().unwrap_or_default();
            let gain = (with as f64 - without as f64) / replays as f64;
            tried += 1;
            gains += gain;
            analysis.verified_gain = Some(gain);
            if helps(with, without, replays, self.config.seed.verification_gain) {
                accepted += 1;
            } else {
                analysis.skill = None;
                UNVERIFIED.clone_into(&mut analysis.status);
            }
        }
        let share = |sum: f64| sum / tried.max(1) as f64;
        metrics.set("verification/episodes", report.trajectories.len() as f64);
        metrics.set("verification/accepted_share", share(accepted as f64));
        metrics.set("verification/gain_mean", share(gains));
        Ok(report.trajectories.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::helps;

    #[test]
    fn a_gain_is_a_success_more_and_the_rate_asked_for() {
        assert!(helps(1, 0, 8, 0.125));
        assert!(!helps(1, 0, 16, 0.125), "one in sixteen is half of the rate");
        assert!(helps(4, 2, 16, 0.125));
        assert!(!helps(3, 3, 8, 0.0), "no success more");
        assert!(!helps(2, 5, 8, 0.125));
    }
}
