//! Skills on trial: the task is played again with the skill and without, and only a skill that helps is used.
//!
//! The plain replays of a task are shared by all skills of its group. Replays are training episodes like any other in what
//! they cost, and are counted among them; they are not trained on.
//!
//! Not for: judging a skill by its text (`seed-hindsight`).

use seed_rollout::Trajectory;
use seed_run::Metrics;

use super::Trainer;
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
        // What is played: a group's task with the skill of a trajectory, or plain, which stands before its skills.
        let mut trials: Vec<(u64, Option<usize>)> = Vec::new();
        for (index, (trajectory, analysis)) in trajectories.iter().zip(&*analyses).enumerate() {
            if analysis.skill.is_some() {
                // Trajectories come group by group.
                if trials.last().is_none_or(|last| last.0 != trajectory.group) {
                    trials.push((trajectory.group, None));
                }
                trials.push((trajectory.group, Some(index)));
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
        let tasks = self.schedule.tasks(iteration - 1);
        let mut requests = Vec::with_capacity(trials.len() * replays);
        for (trial, &(group, skill_of)) in trials.iter().enumerate() {
            let Some(&task) = tasks.get(group as usize) else {
                continue;
            };
            let skill = skill_of.and_then(|index| analyses.get(index)?.skill.clone());
            let decoration = skill.map(|skill| self.hindsight.decoration(skill));
            // The trials of a task have the same keys, so that they differ in the skill alone.
            requests.extend(self.group(iteration, task, trial as u64, replays, decoration, key));
        }
        let (report, _) = self.play(iteration, requests, Phase::Analysis, observer)?;
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
        let (mut tried, mut accepted, mut gains) = (0usize, 0usize, 0.0);
        let mut without = 0;
        for (&(_, skill_of), &with) in trials.iter().zip(&wins) {
            let Some(index) = skill_of else {
                without = with;
                continue;
            };
            let Some(analysis) = analyses.get_mut(index) else {
                continue;
            };
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
