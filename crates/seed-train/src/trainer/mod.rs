//! One iteration after the other: act, look back, score again, update.
//!
//! A [`Trainer`] holds everything an iteration needs and nothing that is not either configuration, weights, optimiser
//! state or a counter, so that a checkpoint of those is the whole run. All randomness is keyed by (seed, iteration,
//! task, sample, step), so a resumed run draws what the uninterrupted one would have drawn.
//!
//! Not for: where a run is written (`crate::train`), or what it prints.

pub mod batch;
mod cost;
mod external;
mod mismatch;
mod names;
pub mod options;
mod rollout_metrics;
mod self_check;
mod teacher;
#[cfg(test)]
mod tests;
mod update;
mod verify;

use std::sync::Arc;

use seed_env::{EnvironmentPool, Panel, Split, Task, TaskId, TrainingSchedule, World};
use seed_model::{AdamW, Decoder, Engine, EngineTimes, Gradients, Schedule};
use seed_random::RandomKey;
use seed_rl::Algorithm;
use seed_rollout::{Decoration, EpisodeRequest, Generator, Progress, RolloutReport, Trajectory, rollout};
use seed_run::{Metrics, PhaseClock, process_cpu_seconds};

use self::batch::TrainedSequence;
use self::cost::Cost;
use self::external::ExternalEngine;
use crate::TrainError;
use crate::config::{self, TrainConfig};
use crate::events::{Event, Observer, Phase};
use crate::hindsight::{Analysis, Hindsight};
use crate::policy::Policy;
use crate::prompted::{PlayedPanel, PromptedPanels};
use crate::skills::{TaskSkills, record_sources};

pub use self::mismatch::DeviceMismatch;
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
    /// The initial policy, where it is the analyser.
    frozen_analyser: Option<Decoder>,
    /// The optimiser with its state.
    pub optimiser: AdamW,
    gradients: Gradients,
    learning_rate: Schedule,
    schedule: TrainingSchedule,
    algorithm: Box<dyn Algorithm>,
    hindsight: Hindsight,
    skills: TaskSkills,
    /// Who samples episodes, where that is not the engine in this process.
    engine: Option<ExternalEngine>,
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
        let has_teacher = config.algorithm.name.has_teacher();
        let separate_teacher = has_teacher && config.seed.teacher != config::Teacher::Policy;
        let frozen_analyser = has_teacher && config.seed.analyser == config::Analyser::Frozen;
        // Copies share the base. A fresh adapter adds nothing, so that the base alone is the initial policy.
        let reference = || match policy.decoder.adapter() {
            Some(adapter) if adapter.is_neutral() => policy.decoder.without_adapter(),
            _ => policy.decoder.clone(),
        };
        Ok(Self {
            reference: (config.algorithm.kl_coefficient > 0.0).then(reference),
            teacher: separate_teacher.then(|| policy.decoder.clone()),
            frozen_analyser: frozen_analyser.then(|| policy.decoder.clone()),
            optimiser: AdamW::new(
                options::optimiser_options(&config.optimiser),
                policy.decoder.trained(),
            ),
            gradients: Gradients::of(&policy.decoder),
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
            skills: TaskSkills::new(&config, world.clone())?,
            engine: ExternalEngine::from_config(&config)?,
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
    /// [`LogProbMismatch`], or on a device [`DeviceMismatch`], when the rollout's log-probs are not the policy's, and whatever is
    /// of an engine elsewhere ([`TrainError::is_of_engine`]), with the weights as they were; otherwise when generation,
    /// scoring or the environments fail as a whole. The weights are then those before the iteration
    /// or part of its update; continue from the last checkpoint.
    pub fn run_iteration(&mut self, observer: &mut dyn Observer) -> Result<IterationOutput, TrainError> {
        let iteration = self.iteration + 1;
        let mut metrics = Metrics::new();
        let mut clock = PhaseClock::new();
        let cpu_seconds = process_cpu_seconds();
        let mut cost = Cost::from(self.rows_computed());
        let temperature = self.config.rollout.temperature as f32;

        if let Some(engine) = &mut self.engine {
            let key = self
                .key
                .with("iteration", iteration)
                .with_text("purpose", "probe");
            clock.measure("timing/engine_sync_seconds", || {
                let _span = tracing::info_span!("engine_sync").entered();
                engine.sync(&self.policy, iteration, temperature, key)
            })?;
        }
        let trajectories = clock.measure("timing/rollout_seconds", || {
            let _span = tracing::info_span!("rollout").entered();
            self.roll_out(iteration, &mut metrics, observer)
        })?;
        cost.record("cost/rollout_tokens", self.rows_computed(), &mut metrics);
        let gigpo = options::gigpo_options(&self.config.baseline);
        let (mut sequences, advantages) = batch::build(
            &trajectories,
            &options::advantage_options(&self.config.advantage),
            (self.config.algorithm.name == config::Algorithm::Gigpo).then_some(&gigpo),
        )?;
        rollout_metrics::record_advantages(&sequences, &advantages, &mut metrics);
        clock.measure("timing/self_check_seconds", || {
            let _span = tracing::info_span!("self_check").entered();
            match &mut self.engine {
                // Its bits are not to be expected here.
                Some(engine) => {
                    engine.compare(&self.policy.decoder, &mut sequences, temperature, &mut metrics)
                }
                None if self.policy.decoder.place().is_native() => {
                    self.self_check(iteration, &trajectories, &sequences, &mut metrics)
                }
                None => self.score_old(iteration, &mut sequences, &mut metrics),
            }
        })?;
        cost.record("cost/self_check_tokens", self.rows_computed(), &mut metrics);

        let mut replayed = 0;
        let analyses = if self.distils(iteration) {
            clock.measure("timing/analysis_seconds", || {
                let _span = tracing::info_span!("analysis").entered();
                let mut analyses = self.analyse(iteration, &trajectories, &mut metrics, observer)?;
                if self.config.seed.verification_replays > 0 {
                    replayed =
                        self.verify(iteration, &trajectories, &mut analyses, &mut metrics, observer)?;
                }
                record_sources(&analyses, &mut metrics);
                Ok::<_, TrainError>(analyses)
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
                &mut counted(observer, iteration, Phase::Update),
            )
        })?;
        cost.record("cost/update_tokens", self.rows_computed(), &mut metrics);
        cost.record_per_trained_token(&sequences, &mut metrics);
        if let Some(coefficient) = options::algorithm_options(&self.config).coefficient() {
            metrics.set("seed/coefficient", coefficient.at(iteration));
        }
        self.policy.decoder.fetch()?;
        self.move_teacher(iteration);
        self.iteration = iteration;
        self.episodes += trajectories.len() as u64 + replayed;
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
            self.frozen_analyser.as_ref(),
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

    /// Whether the schedule distils in this iteration: without that, skills would cost time and change nothing.
    fn distils(&self, iteration: u64) -> bool {
        options::algorithm_options(&self.config)
            .coefficient()
            .is_some_and(|coefficient| {
                let faded = coefficient.value > 0.0 && coefficient.at(iteration) == 0.0;
                coefficient.is_active_at(iteration) && !faded
            })
    }

    /// Brings a teacher that moves to where it is to be after `iteration`.
    fn move_teacher(&mut self, iteration: u64) {
        let Some(teacher) = &mut self.teacher else { return };
        match self.config.seed.teacher {
            config::Teacher::Ema => {
                moving_average(teacher, &self.policy.decoder, self.config.seed.ema_decay);
            }
            config::Teacher::Periodic if iteration.is_multiple_of(self.config.seed.teacher_every as u64) => {
                let policy = self.policy.decoder.trained();
                teacher.update(|parameters| parameters.flat_mut().copy_from_slice(policy.flat()));
            }
            config::Teacher::Periodic | config::Teacher::Policy | config::Teacher::Frozen => {}
        }
    }

    /// What training prompts of a task are played with: nothing, but for Skill-GRPO.
    fn decoration(&self, task: &TaskId) -> Result<Option<Decoration>, TrainError> {
        if self.config.algorithm.name != config::Algorithm::SkillGrpo {
            return Ok(None);
        }
        let skill = self.skills.of_task(self.config.seed.analyser, task)?;
        Ok(skill.map(|skill| self.hindsight.decoration(skill)))
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
        let samples = self.config.rollout.samples_per_task;
        let mut requests = Vec::new();
        for (group, task) in self.schedule.tasks(iteration - 1).into_iter().enumerate() {
            let decoration = self.decoration(&task.id)?;
            requests.extend(self.group(iteration, task, group as u64, samples, decoration, key));
        }
        let (report, times) = self.play(iteration, requests, Phase::Rollout, observer)?;
        rollout_metrics::record_episodes(&report.trajectories, metrics);
        rollout_metrics::record_times(report.environment_time, times, metrics);
        if self.engine.is_some() {
            external::record_broken(&report.trajectories, metrics);
        }
        Ok(report.trajectories)
    }

    /// `samples` episodes of a task in an iteration. They differ in their keys alone, each from `key`, the task and the
    /// place in the group.
    fn group(
        &self,
        iteration: u64,
        task: &Task,
        group: u64,
        samples: usize,
        decoration: Option<Decoration>,
        key: RandomKey,
    ) -> impl Iterator<Item = EpisodeRequest> {
        let environment_seed = self.schedule.environment_seed(iteration - 1, &task.id);
        let key = key.with_text("task", task.id.as_str());
        (0..samples as u32).map(move |sample| EpisodeRequest {
            task: task.clone(),
            group,
            sample,
            environment_seed,
            key: key.with("sample", u64::from(sample)),
            decoration: decoration.clone(),
        })
    }

    /// The policy plays episodes as in training. Also returns how long its engine worked.
    fn play(
        &mut self,
        iteration: u64,
        requests: Vec<EpisodeRequest>,
        phase: Phase,
        observer: &mut dyn Observer,
    ) -> Result<(RolloutReport, EngineTimes), TrainError> {
        let decoder = &self.policy.decoder;
        let mut play = |generator: &mut dyn Generator, requests| {
            rollout(
                generator,
                &self.policy.conversation,
                &self.world,
                &mut self.pool,
                requests,
                &options::rollout_options(&self.config, &self.policy.end_tokens),
                &mut progress(observer, iteration, phase),
            )
        };
        if let Some(engine) = &self.engine {
            let mut generator = engine.generator(decoder, requests.len());
            return Ok((play(&mut generator, requests)?, EngineTimes::default()));
        }
        let mut engine = Engine::new(decoder, options::engine_options(&self.config.rollout));
        let report = play(&mut engine, requests)?;
        Ok((report, engine.times()))
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

    /// On a device: scores every row, takes that as the old policy's log-probs, and stops where the rollout recorded
    /// something too different.
    fn score_old(
        &self,
        iteration: u64,
        sequences: &mut [TrainedSequence],
        metrics: &mut Metrics,
    ) -> Result<(), TrainError> {
        mismatch::score_old(
            &self.policy.decoder,
            sequences,
            self.config.rollout.temperature as f32,
            self.config.rollout.device_mismatch,
            iteration,
            metrics,
        )
    }

    /// Finished episodes become skills, and each gets the one it is scored with.
    fn analyse(
        &mut self,
        iteration: u64,
        trajectories: &[Trajectory],
        metrics: &mut Metrics,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Analysis>, TrainError> {
        let own = &self.policy.decoder;
        let analyser = self.config.seed.analyser;
        let key = self
            .key
            .with("iteration", iteration)
            .with_text("purpose", "analysis");
        let mut analyses = match analyser {
            config::Analyser::Oracle | config::Analyser::Library => {
                self.skills.analyses(analyser, trajectories)?
            }
            config::Analyser::Rules => {
                let dialogue = self.world.dialogue();
                self.hindsight
                    .analyse_by_rules(self.skills.rules()?, dialogue, trajectories, iteration)
            }
            config::Analyser::Policy
            | config::Analyser::Teacher
            | config::Analyser::Frozen
            | config::Analyser::Endpoint => {
                let decoder = match analyser {
                    config::Analyser::Teacher => self.teacher.as_ref().unwrap_or(own),
                    config::Analyser::Frozen => self.frozen_analyser.as_ref().unwrap_or(own),
                    _ => own,
                };
                let mut native = Engine::new(decoder, options::engine_options(&self.config.rollout));
                let mut external = self
                    .engine
                    .as_ref()
                    .filter(|_| analyser.is_own_model() && std::ptr::eq(decoder, own))
                    .map(|engine| engine.generator(decoder, trajectories.len()));
                let generator: &mut dyn Generator = match &mut external {
                    Some(generator) => generator,
                    None => &mut native,
                };
                self.hindsight.analyse_on(
                    generator,
                    &self.config,
                    decoder,
                    &self.policy,
                    self.world.dialogue(),
                    trajectories,
                    iteration,
                    key,
                    &mut counted(observer, iteration, Phase::Analysis),
                )?
            }
        };
        self.hindsight.record(&analyses, metrics);
        self.skills
            .assign(&self.config, trajectories, &mut analyses, key)?;
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
            teacher::score_reference(reference, sequences, temperature)?;
        }
        if !analyses.iter().any(Analysis::has_skill) {
            return Ok(());
        }
        let is_seed = self.config.algorithm.name == config::Algorithm::Seed;
        teacher::Teacher {
            decoder: self.teacher.as_ref().unwrap_or(&self.policy.decoder),
            is_policy: self.teacher.is_none(),
            policy: &self.policy,
            hindsight: &self.hindsight,
            cut: options::sequence_options(&self.config, self.policy.decoder.config().max_positions),
            // The other methods measure the gap from the student.
            gap_zero: if is_seed {
                self.config.seed.gap_zero
            } else {
                config::GapZero::Student
            },
            routing: if self.config.algorithm.name == config::Algorithm::Opid {
                self.config.seed.routing
            } else {
                config::Routing::StepFirst
            },
            temperature,
        }
        .score(trajectories, analyses, sequences, metrics)
    }

    /// Plays the panel of `split` with the current policy, once for each of `evaluation.prompts`, in their order.
    ///
    /// # Errors
    /// When generation or the environments fail as a whole, or a task cannot be loaded.
    pub fn evaluate(
        &mut self,
        split: config::EvaluationSplit,
        observer: &mut dyn Observer,
    ) -> Result<Vec<PlayedPanel>, TrainError> {
        PromptedPanels {
            config: &self.config,
            policy: &self.policy,
            world: &self.world,
            skills: &self.skills,
            pool: &mut self.pool,
            iteration: self.iteration,
        }
        .play(split.into(), observer)
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
pub(crate) fn progress(observer: &mut dyn Observer, iteration: u64, phase: Phase) -> impl FnMut(Progress) {
    let mut report = counted(observer, iteration, phase);
    move |progress| report(progress.finished, progress.total)
}

/// Turns what is done of a total into events.
pub(crate) fn counted(observer: &mut dyn Observer, iteration: u64, phase: Phase) -> impl FnMut(usize, usize) {
    move |done, total| {
        observer.event(&Event::Progress {
            iteration,
            phase,
            done,
            total,
        });
    }
}
