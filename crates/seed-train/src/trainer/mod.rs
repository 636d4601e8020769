//! One iteration after the other: act, look back, score again, update.
//!
//! A [`Trainer`] holds everything an iteration needs and nothing that is not either configuration, weights, optimiser
//! state or a counter, so that a checkpoint of those is the whole run. All randomness is keyed by (seed, iteration,
//! task, sample, step), so a resumed run draws what the uninterrupted one would have drawn.
//!
//! Not for: where a run is written (`crate::train`), or what it prints.

pub mod batch;
mod cost;
mod names;
pub mod options;
mod rollout_metrics;
mod self_check;
#[cfg(test)]
mod tests;
mod update;

use std::sync::Arc;

use seed_env::{EnvironmentPool, Panel, Split, TrainingSchedule, World};
use seed_model::{AdamW, Decoder, Engine, Gradients, Schedule};
use seed_random::RandomKey;
use seed_rl::{Algorithm, AlgorithmOptions};
use seed_rollout::{EpisodeRequest, Progress, Sequence, Trajectory, rollout};
use seed_run::{Metrics, PhaseClock, process_cpu_seconds};

use self::batch::TrainedSequence;
use self::cost::Cost;
use crate::TrainError;
use crate::config::{self, TrainConfig};
use crate::evaluate::{self, Evaluation, evaluate};
use crate::events::{Event, Observer, Phase};
use crate::hindsight::{Analysis, Hindsight};
use crate::policy::Policy;

pub use self::self_check::LogProbMismatch;
pub use self::update::moving_average;

/// A training run in memory.
pub struct Trainer {
    config: TrainConfig,
    world: Arc<dyn World>,
    pool: EnvironmentPool,
    /// The policy being trained.
    pub policy: Policy,
    /// The initial policy, for the divergence; `None` when its coefficient is 0.
    reference: Option<Decoder>,
    /// Whose weights score the skill context when that is not the policy itself.
    pub teacher: Option<Decoder>,
    /// The optimiser with its state.
    pub optimiser: AdamW,
    gradients: Gradients,
    learning_rate: Schedule,
    schedule: TrainingSchedule,
    algorithm: Box<dyn Algorithm>,
    hindsight: Hindsight,
    key: RandomKey,
    /// Iterations finished.
    pub iteration: u64,
    /// Training episodes played.
    pub episodes: u64,
    /// Training tokens sampled.
    pub sampled_tokens: u64,
}

/// What an iteration leaves behind.
pub struct IterationOutput {
    /// Metrics by registered name; all but timings are a function of seed and configuration alone.
    pub metrics: Metrics,
    /// The trajectories, in request order.
    pub trajectories: Vec<Trajectory>,
    /// Their analyses, one per trajectory; empty when none were made.
    pub analyses: Vec<Analysis>,
}

impl Trainer {
    /// Prepares a run from its beginning. `policy` becomes the actor, the analyser and the reference.
    ///
    /// # Errors
    /// When the world has too few tasks, the environments cannot be set up, or the options do not fit together.
    pub fn new(config: TrainConfig, world: Arc<dyn World>, mut policy: Policy) -> Result<Self, TrainError> {
        policy.decoder = policy
            .decoder
            .with_pack_tokens(config.algorithm.micro_batch_tokens);
        let pool = EnvironmentPool::new(world.clone(), options::pool_options(&config))?;
        let tasks = panel(&*world, Split::Train, config.world.train_tasks, config.run.seed)?
            .tasks()
            .to_vec();
        let schedule = TrainingSchedule::new(tasks, config.rollout.tasks_per_iteration, config.run.seed)?;
        let algorithm = options::algorithm_options(&config).build()?;
        let separate_teacher = config.algorithm.name == config::Algorithm::Seed
            && config.seed.teacher != config::Teacher::Policy;
        let parameters = policy.decoder.parameters();
        Ok(Self {
            reference: (config.algorithm.kl_coefficient > 0.0).then(|| policy.decoder.clone()),
            teacher: separate_teacher.then(|| policy.decoder.clone()),
            optimiser: AdamW::new(options::optimiser_options(&config.optimiser), parameters),
            gradients: Gradients::zeros(policy.decoder.config()),
            learning_rate: options::learning_rate(
                config.optimiser.learning_rate,
                config.optimiser.schedule,
                config.optimiser.warmup_ratio,
                config.optimiser.final_ratio,
                config.algorithm.iterations as u64,
            ),
            schedule,
            algorithm,
            hindsight: Hindsight::from_config(&config)?,
            key: RandomKey::new(config.run.seed),
            iteration: 0,
            episodes: 0,
            sampled_tokens: 0,
            config,
            world,
            pool,
            policy,
        })
    }

    /// The configuration.
    pub fn config(&self) -> &TrainConfig {
        &self.config
    }

    /// Runs the next iteration.
    ///
    /// # Errors
    /// [`LogProbMismatch`] when the rollout's log-probs are not the policy's, with the weights as they were; otherwise
    /// when generation, scoring or the environments fail as a whole. The weights are then those before the iteration
    /// or part of its update; continue from the last checkpoint.
    pub fn run_iteration(&mut self, observer: &mut dyn Observer) -> Result<IterationOutput, TrainError> {
        let iteration = self.iteration + 1;
        let mut metrics = Metrics::new();
        let mut clock = PhaseClock::new();
        let cpu_seconds = process_cpu_seconds();
        let mut cost = Cost::from(self.rows_computed());

        let trajectories = clock.measure("timing/rollout_seconds", || {
            let _span = tracing::info_span!("rollout").entered();
            self.roll_out(iteration, &mut metrics, observer)
        })?;
        cost.record("cost/rollout_tokens", self.rows_computed(), &mut metrics);
        let (mut sequences, advantages) =
            batch::build(&trajectories, &options::advantage_options(&self.config.advantage))?;
        rollout_metrics::record_advantages(&sequences, &advantages, &mut metrics);
        clock.measure("timing/self_check_seconds", || {
            let _span = tracing::info_span!("self_check").entered();
            self.self_check(iteration, &trajectories, &sequences, &mut metrics)
        })?;
        cost.record("cost/self_check_tokens", self.rows_computed(), &mut metrics);

        let analyses = if self.analyses(iteration) {
            clock.measure("timing/analysis_seconds", || {
                let _span = tracing::info_span!("analysis").entered();
                self.analyse(iteration, &trajectories, &mut metrics, observer)
            })?
        } else {
            Vec::new()
        };
        cost.record("cost/analysis_tokens", self.rows_computed(), &mut metrics);
        clock.measure("timing/rescore_seconds", || {
            let _span = tracing::info_span!("rescore").entered();
            self.score(
                iteration,
                &trajectories,
                &analyses,
                &mut sequences,
                &mut metrics,
                observer,
            )
        })?;
        cost.record("cost/rescore_tokens", self.rows_computed(), &mut metrics);
        let temperature = self.config.rollout.temperature as f32;
        clock.measure("timing/update_seconds", || {
            let _span = tracing::info_span!("update", number = iteration).entered();
            update::update(
                &mut self.policy.decoder,
                &mut self.optimiser,
                &mut self.gradients,
                &*self.algorithm,
                &options::policy_options(&self.config),
                &sequences,
                iteration,
                &update::UpdateOptions {
                    epochs: self.config.algorithm.epochs,
                    mini_batch_rows: self.config.algorithm.mini_batch_rows,
                    learning_rate: self.learning_rate.rate(self.iteration),
                    temperature,
                    recompute: self.config.model.recompute_activations,
                },
                &mut metrics,
                &mut |done, total| {
                    observer.event(&Event::Progress {
                        iteration,
                        phase: Phase::Update,
                        done,
                        total,
                    });
                },
            )
        })?;
        cost.record("cost/update_tokens", self.rows_computed(), &mut metrics);
        cost.record_per_trained_token(&sequences, &mut metrics);
        if let AlgorithmOptions::Seed(seed) = options::algorithm_options(&self.config) {
            metrics.set("seed/coefficient", seed.coefficient.at(iteration));
        }
        if self.config.seed.teacher == config::Teacher::Ema
            && let Some(teacher) = &mut self.teacher
        {
            moving_average(teacher, &self.policy.decoder, self.config.seed.ema_decay);
        }
        self.iteration = iteration;
        self.episodes += trajectories.len() as u64;
        self.sampled_tokens += trajectories
            .iter()
            .map(|trajectory| trajectory.response_tokens() as u64)
            .sum::<u64>();
        metrics.set("episode/total", self.episodes as f64);
        metrics.set("response/tokens_total", self.sampled_tokens as f64);
        clock.take_into(&mut metrics);
        if let (Some(before), Some(now)) = (cpu_seconds, process_cpu_seconds()) {
            metrics.set("timing/cpu_seconds", now - before);
        }
        rollout_metrics::record_speed(&trajectories, &sequences, &mut metrics);
        Ok(IterationOutput {
            metrics,
            trajectories,
            analyses,
        })
    }

    /// Tokens all decoders have computed so far.
    fn rows_computed(&self) -> u64 {
        [
            Some(&self.policy.decoder),
            self.reference.as_ref(),
            self.teacher.as_ref(),
        ]
        .into_iter()
        .flatten()
        .map(Decoder::rows_computed)
        .sum()
    }

    /// The world it trains on.
    pub fn world(&self) -> &dyn World {
        &*self.world
    }

    /// Whether the schedule distils in this iteration: without that, analyses would cost time and change nothing.
    fn analyses(&self, iteration: u64) -> bool {
        match options::algorithm_options(&self.config) {
            AlgorithmOptions::Seed(seed) => seed.coefficient.is_active_at(iteration),
            _ => false,
        }
    }

    /// The policy plays this iteration's groups.
    fn roll_out(
        &mut self,
        iteration: u64,
        metrics: &mut Metrics,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Trajectory>, TrainError> {
        let key = self
            .key
            .with("iteration", iteration)
            .with_text("purpose", "rollout");
        let samples = self.config.rollout.samples_per_task as u32;
        let mut requests = Vec::new();
        for (group, task) in self.schedule.tasks(iteration - 1).into_iter().enumerate() {
            let environment_seed = self.schedule.environment_seed(iteration - 1, &task.id);
            let task_key = key.with_text("task", task.id.as_str());
            for sample in 0..samples {
                requests.push(EpisodeRequest {
                    task: task.clone(),
                    group: group as u64,
                    sample,
                    environment_seed,
                    key: task_key.with("sample", u64::from(sample)),
                    decoration: None,
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
            &mut progress(observer, iteration, Phase::Rollout),
        )?;
        rollout_metrics::record_episodes(&report.trajectories, metrics);
        rollout_metrics::record_times(report.environment_time, engine.times(), metrics);
        Ok(report.trajectories)
    }

    /// Scores some rows again and stops where the rollout recorded something else.
    fn self_check(
        &self,
        iteration: u64,
        trajectories: &[Trajectory],
        sequences: &[TrainedSequence],
        metrics: &mut Metrics,
    ) -> Result<(), TrainError> {
        let key = self
            .key
            .with("iteration", iteration)
            .with_text("purpose", "self-check");
        let chosen = self_check::choose(sequences.len(), self.config.rollout.self_check_share, key);
        self_check::check(
            &self.policy.decoder,
            trajectories,
            sequences,
            &chosen,
            self.config.rollout.temperature as f32,
            iteration,
            metrics,
        )
    }

    /// Finished episodes become skills.
    fn analyse(
        &mut self,
        iteration: u64,
        trajectories: &[Trajectory],
        metrics: &mut Metrics,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Analysis>, TrainError> {
        let decoder = match self.config.seed.analyser {
            config::Analyser::Teacher => self.teacher.as_ref().unwrap_or(&self.policy.decoder),
            config::Analyser::Policy | config::Analyser::Endpoint => &self.policy.decoder,
        };
        let key = self
            .key
            .with("iteration", iteration)
            .with_text("purpose", "analysis");
        let analyses = self.hindsight.analyse(
            &self.config,
            decoder,
            &self.policy,
            self.world.dialogue(),
            trajectories,
            iteration,
            key,
            &mut |done, total| {
                observer.event(&Event::Progress {
                    iteration,
                    phase: Phase::Analysis,
                    done,
                    total,
                });
            },
        )?;
        self.hindsight.record(&analyses, metrics);
        Ok(analyses)
    }

    /// Scores the sampled tokens again: under the reference, and with the skill in the context.
    fn score(
        &self,
        iteration: u64,
        trajectories: &[Trajectory],
        analyses: &[Analysis],
        sequences: &mut [TrainedSequence],
        metrics: &mut Metrics,
        observer: &mut dyn Observer,
    ) -> Result<(), TrainError> {
        let temperature = self.config.rollout.temperature as f32;
        let passes = usize::from(self.reference.is_some()) + usize::from(!analyses.is_empty());
        observer.event(&Event::Progress {
            iteration,
            phase: Phase::Scoring,
            done: 0,
            total: passes,
        });
        if let Some(reference) = &self.reference {
            let plain: Vec<&Sequence> = sequences.iter().map(|trained| &trained.sequence).collect();
            let scores = batch::score(reference, &plain, temperature)?;
            for (trained, scores) in sequences.iter_mut().zip(scores) {
                trained.reference = Some(scores);
            }
        }
        if analyses.iter().all(|analysis| analysis.skill.is_none()) {
            return Ok(());
        }
        let teacher = self.teacher.as_ref().unwrap_or(&self.policy.decoder);
        let cut = options::sequence_options(&self.config, self.policy.decoder.config().max_positions);
        let mut rewritten = Vec::new();
        let span = tracing::debug_span!("rewrite_prompts", trajectories = trajectories.len()).entered();
        for (trajectory, analysis) in trajectories.iter().zip(analyses) {
            let Some(skill) = &analysis.skill else {
                rewritten.push(Vec::new());
                continue;
            };
            rewritten.push(
                trajectory.rewritten_sequences(&self.policy.conversation, &cut, |prompt| {
                    self.hindsight.place(prompt, skill)
                }),
            );
        }
        span.exit();
        // A rewritten sequence belongs to the plain one whose first response is the same step.
        let mut pairs = Vec::new();
        for (index, trained) in sequences.iter().enumerate() {
            let first = trained.sequence.segments.first().map(|segment| segment.step);
            let matching = rewritten.get(trained.trajectory).and_then(|candidates| {
                candidates
                    .iter()
                    .find(|candidate| candidate.segments.first().map(|segment| segment.step) == first)
            });
            if let Some(matching) = matching {
                pairs.push((index, matching));
            }
        }
        let contexts: Vec<&Sequence> = pairs.iter().map(|(_, sequence)| *sequence).collect();
        let skill_scores = batch::score(teacher, &contexts, temperature)?;
        let placebo_scores =
            if self.config.seed.gap_zero == config::GapZero::Teacher && self.teacher.is_some() {
                let plain: Vec<&Sequence> = pairs
                    .iter()
                    .filter_map(|&(index, _)| sequences.get(index))
                    .map(|trained| &trained.sequence)
                    .collect();
                Some(batch::score(teacher, &plain, temperature)?)
            } else {
                None
            };
        let (mut longest, mut total) = (0, 0);
        let mut truncated = 0;
        let updates: Vec<(usize, bool, usize)> = pairs
            .iter()
            .map(|(index, sequence)| {
                (
                    *index,
                    sequence.segments.iter().any(|segment| segment.truncated > 0),
                    sequence.tokens.len(),
                )
            })
            .collect();
        for (position, ((index, cut, length), scores)) in updates.into_iter().zip(skill_scores).enumerate() {
            let Some(trained) = sequences.get_mut(index) else {
                continue;
            };
            longest = longest.max(length);
            total += length;
            truncated += usize::from(cut);
            trained.skill_truncated = cut;
            trained.placebo = match (&placebo_scores, self.config.seed.gap_zero) {
                (Some(scores), _) => scores.get(position).cloned(),
                // The policy is its own teacher: its plain scores are the recorded ones.
                (None, config::GapZero::Teacher) => Some(trained.old.clone()),
                (None, config::GapZero::Student) => None,
            };
            trained.skill = Some(scores);
        }
        metrics.set(
            "seed/prompt_tokens_mean",
            total as f64 / contexts.len().max(1) as f64,
        );
        metrics.set("seed/prompt_tokens_maximum", longest as f64);
        metrics.set("seed/prompts_truncated", truncated as f64);
        Ok(())
    }

    /// Plays the panel of `split` with the current policy and the plain prompt.
    ///
    /// # Errors
    /// When generation or the environments fail as a whole.
    pub fn evaluate(
        &mut self,
        split: config::EvaluationSplit,
        observer: &mut dyn Observer,
    ) -> Result<(Evaluation, Vec<Trajectory>), TrainError> {
        let section = &self.config.evaluation;
        let panel = panel(&*self.world, split.into(), section.tasks, section.seed)?;
        let mut engine = Engine::new(
            &self.policy.decoder,
            options::engine_options(&self.config.rollout),
        );
        evaluate(
            &mut engine,
            &self.policy.conversation,
            &self.world,
            &mut self.pool,
            &evaluate::Panel {
                tasks: panel.tasks(),
                samples_per_task: section.samples_per_task,
                key: RandomKey::new(section.seed).with_text("purpose", "evaluation"),
                decoration: None,
            },
            &options::evaluation_options(&self.config, &self.policy.end_tokens),
            &mut progress(observer, self.iteration, Phase::Evaluation),
        )
    }
}

/// The tasks of a split, or a sample of `count` of them drawn with `seed`.
///
/// # Errors
/// When the split has no tasks.
pub fn panel(world: &dyn World, split: Split, count: Option<usize>, seed: u64) -> Result<Panel, TrainError> {
    Ok(match count {
        Some(count) => Panel::sample(world, split, count.min(world.tasks(split).len()), seed)?,
        None => Panel::all(world, split)?,
    })
}

/// Turns rollout progress into events.
fn progress(observer: &mut dyn Observer, iteration: u64, phase: Phase) -> impl FnMut(Progress) {
    move |progress| {
        observer.event(&Event::Progress {
            iteration,
            phase,
            done: progress.finished,
            total: progress.total,
        });
    }
}
