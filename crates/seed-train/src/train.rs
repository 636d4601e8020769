//! `seed train`: iterations in a run directory, with checkpoints that a killed run continues from.
//!
//! The order within an iteration decides what a resumed run may rely on: train, evaluate, append metrics and
//! evaluations, write trajectories, sync, publish the checkpoint. Whatever was appended after the newest checkpoint is
//! removed when the run resumes, and then made again with the same bytes.

use std::collections::BTreeMap;

use std::sync::Arc;

use seed_env::World;
use seed_run::metrics::{MetricNaming, read_records};
use seed_run::{
    Checkpoint, CheckpointStore, LineFile, Metrics, MetricsOptions, MetricsWriter, Retention, RunDirectory,
    RunRecord, StopFlag, SyncPolicy, TensorView, write_atomic, write_json_lines,
};
use serde::{Deserialize, Serialize};

use crate::TrainError;
use crate::compare::{EVALUATIONS, EvaluationRecord, SUMMARY, Summary};
use crate::config::{self, TrainConfig, to_toml};
use crate::events::{Event, Observer};
use crate::policy::Policy;
use crate::prompted::PanelResult;
use crate::resuming::{
    MODEL, STATE, open_run, report_memory, report_rejected, restore_optimiser, write_optimiser,
};
use crate::trainer::{IterationOutput, Trainer};

const TEACHER: &str = "teacher.safetensors";

/// The counters of a run, as a checkpoint keeps them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct State {
    iteration: u64,
    episodes: u64,
    sampled_tokens: u64,
    optimiser_steps: u64,
    /// Digest of the weights the run began with, base and adapter: reference and frozen teacher are read from there again.
    initial_weights: String,
    /// Digest of the world's tasks.
    tasks: String,
    best: Option<Best>,
}

/// The best evaluation so far.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Best {
    iteration: u64,
    success: f64,
}

/// How a run begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// In an empty directory.
    New,
    /// From the newest whole checkpoint of the directory.
    Resume,
}

/// Trains as `config` says and returns the run's summary.
///
/// # Errors
/// [`TrainError::Stopped`] after a requested stop, with everything saved; other errors leave the newest checkpoint to
/// resume from.
pub fn train(
    config: &TrainConfig,
    world: Arc<dyn World>,
    start: Start,
    command: Vec<String>,
    stop: &StopFlag,
    observer: &mut dyn Observer,
) -> Result<Summary, TrainError> {
    let directory = &config.run.directory;
    let (run, trainer) = match start {
        Start::New => {
            // Whatever can be wrong with weights or settings shows before there is a run that would be in the way.
            let trainer = prepare(config, world, observer)?;
            let record = RunRecord::now(
                &config.run.name,
                config.run.seed,
                env!("CARGO_PKG_VERSION"),
                command,
            );
            (
                RunDirectory::create(directory, &record, &to_toml(config))?,
                trainer,
            )
        }
        Start::Resume => {
            let run = open_run(directory, config)?;
            (run, prepare(config, world, observer)?)
        }
    };
    let mut session = Session::open(run, trainer, start, observer)?;
    let summary = session.run(stop, observer)?;
    if let Some(planned) = config.derive(Some(session.trainer.policy.shape())).memory {
        report_memory(planned, observer);
    }
    Ok(summary)
}

/// The trainer at the beginning of its run.
fn prepare(
    config: &TrainConfig,
    world: Arc<dyn World>,
    observer: &mut dyn Observer,
) -> Result<Trainer, TrainError> {
    let policy = Policy::configured(config)?;
    if config.world.context == config::Context::Transcript {
        for change in policy.conversation.history_changes() {
            let text = format!(
                "in a growing conversation the chat template would change earlier turns ({change}); they are kept as sampled"
            );
            observer.event(&Event::Warning { text });
        }
    }
    Trainer::new(config.clone(), world, policy)
}

/// A run with its open files.
struct Session {
    run: RunDirectory,
    store: CheckpointStore,
    trainer: Trainer,
    metrics: MetricsWriter,
    evaluations: LineFile,
    initial_weights: String,
    tasks: String,
    best: Option<Best>,
    /// Iteration of the newest checkpoint.
    saved: Option<u64>,
}

impl Session {
    fn open(
        run: RunDirectory,
        mut trainer: Trainer,
        start: Start,
        observer: &mut dyn Observer,
    ) -> Result<Self, TrainError> {
        let store = run.checkpoints()?;
        let initial_weights = trainer.policy.digest().to_hex().to_string();
        let tasks = trainer.world().digest();
        let mut best = None;
        let mut saved = None;
        if start == Start::Resume {
            let search = store.newest()?;
            report_rejected(&search.rejected, observer);
            match search.found {
                Some(checkpoint) => {
                    let state = restore(&checkpoint, &mut trainer, &initial_weights, &tasks)?;
                    best = state.best;
                    saved = Some(state.iteration);
                    store.mark_latest(state.iteration)?;
                    observer.event(&Event::Note {
                        text: format!("resuming after iteration {}", state.iteration),
                    });
                }
                None => observer.event(&Event::Note {
                    text: "no whole checkpoint yet; starting from the beginning".to_owned(),
                }),
            }
        }
        run.remove_after(trainer.iteration)?;
        let logging = &trainer.config().logging;
        let metrics = MetricsWriter::open(
            run.path(),
            MetricsOptions {
                tensorboard: logging.tensorboard.then_some(naming(logging.metric_names)),
                resume_after: saved,
            },
        )?;
        let mut evaluations = LineFile::open(&run.path().join(EVALUATIONS), SyncPolicy::OnRequest)?;
        evaluations.keep_while(&mut |line| {
            let record: EvaluationRecord = serde_json::from_str(line).map_err(|error| error.to_string())?;
            Ok(saved.is_some_and(|iteration| record.iteration <= iteration))
        })?;
        let session = Self {
            run,
            store,
            trainer,
            metrics,
            evaluations,
            initial_weights,
            tasks,
            best,
            saved,
        };
        if saved.is_some() {
            // The process may have died after a checkpoint was in place and before older ones were removed.
            session.prune()?;
        }
        Ok(session)
    }

    fn run(&mut self, stop: &StopFlag, observer: &mut dyn Observer) -> Result<Summary, TrainError> {
        let config = self.trainer.config().clone();
        let total = config.algorithm.iterations as u64;
        // Without iterations this is the only evaluation.
        let evaluates_first = config.evaluation.before_training || total == 0;
        if self.saved.is_none() && evaluates_first {
            let mut metrics = Metrics::new();
            self.evaluate(&mut metrics, observer)?;
            self.metrics.record(0, &metrics)?;
        }
        while self.trainer.iteration < total {
            if stop.is_set() {
                return self.stop(total, observer);
            }
            let _span = tracing::info_span!("iteration", number = self.trainer.iteration + 1).entered();
            let IterationOutput {
                mut metrics,
                trajectories,
                analyses,
            } = match self.trainer.run_iteration(observer) {
                Ok(output) => output,
                Err(error) => {
                    // Whatever an engine elsewhere does, the iterations before are not lost.
                    if error.is_of_engine() {
                        self.save_unsaved(observer)?;
                    }
                    return Err(error);
                }
            };
            let iteration = self.trainer.iteration;
            let last = iteration == total;
            let every = config.evaluation.every as u64;
            let best = self.best;
            if last || (every > 0 && iteration.is_multiple_of(every)) {
                self.evaluate(&mut metrics, observer)?;
            }
            // The best weights can only be kept if they are saved when they are found.
            let is_best = config.checkpoint.keep_best && self.best != best;
            self.metrics.record(iteration, &metrics)?;
            let logged = config.logging.trajectories_every as u64;
            if logged > 0 && iteration.is_multiple_of(logged) {
                let _span = tracing::info_span!("write_trajectories").entered();
                write_json_lines(&self.run.trajectories_path(iteration), &trajectories)?;
                if !analyses.is_empty() {
                    write_json_lines(&self.run.skills_path(iteration), &analyses)?;
                }
            }
            observer.event(&Event::Iteration {
                iteration,
                total,
                metrics: &metrics,
            });
            if last || is_best || iteration.is_multiple_of(config.checkpoint.every as u64) {
                self.save(observer)?;
            }
        }
        let summary = self.summary()?;
        let mut text = serde_json::to_string_pretty(&summary).map_err(std::io::Error::from)?;
        text.push('\n');
        write_atomic(&self.run.path().join(SUMMARY), text.as_bytes())?;
        Ok(summary)
    }

    /// Saves and reports the stop.
    fn stop(&mut self, total: u64, observer: &mut dyn Observer) -> Result<Summary, TrainError> {
        self.save_unsaved(observer)?;
        let iteration = self.trainer.iteration;
        Err(TrainError::Stopped { iteration, total })
    }

    /// Saves the last iteration unless it is saved.
    fn save_unsaved(&mut self, observer: &mut dyn Observer) -> Result<(), TrainError> {
        let iteration = self.trainer.iteration;
        if iteration > 0 && self.saved != Some(iteration) {
            self.save(observer)?;
        }
        Ok(())
    }

    fn evaluate(&mut self, metrics: &mut Metrics, observer: &mut dyn Observer) -> Result<(), TrainError> {
        let started = std::time::Instant::now();
        let iteration = self.trainer.iteration;
        let mut first = None;
        let splits = self.trainer.config().evaluation.splits.clone();
        for split in splits {
            for played in self.trainer.evaluate(split, observer)? {
                let result = played.result;
                record_evaluation(&result, metrics);
                first.get_or_insert(result.evaluation.success.value);
                observer.event(&Event::Evaluation {
                    iteration,
                    split: result.split,
                    prompt: result.prompt,
                    evaluation: &result.evaluation,
                });
                let record = EvaluationRecord::new(iteration, self.trainer.episodes, result);
                self.evaluations
                    .append(&serde_json::to_string(&record).map_err(std::io::Error::from)?)?;
            }
        }
        if let Some(success) = first
            && self.best.is_none_or(|best| success > best.success)
        {
            self.best = Some(Best { iteration, success });
        }
        metrics.set("timing/evaluation_seconds", started.elapsed().as_secs_f64());
        Ok(())
    }

    fn save(&mut self, observer: &mut dyn Observer) -> Result<(), TrainError> {
        let iteration = self.trainer.iteration;
        let _span = tracing::info_span!("checkpoint", number = iteration).entered();
        self.metrics.sync()?;
        self.evaluations.sync()?;
        let mut draft = self.store.begin(iteration)?;
        let folder = draft.folder(MODEL)?;
        self.trainer.policy.decoder.fetch()?;
        self.trainer.policy.write_into(&folder)?;
        draft.adopt(MODEL)?;
        write_optimiser(&mut draft, &mut self.trainer.optimiser)?;
        if self.trainer.config().seed.teacher.moves()
            && let Some(teacher) = &self.trainer.teacher
        {
            let tensors: Vec<TensorView<'_>> = teacher
                .trained()
                .iter()
                .map(|tensor| TensorView {
                    name: tensor.name.to_owned(),
                    shape: tensor.shape.to_vec(),
                    data: tensor.values,
                })
                .collect();
            draft.write_tensors(TEACHER, &tensors)?;
        }
        draft.write_json(
            STATE,
            &State {
                iteration,
                episodes: self.trainer.episodes,
                sampled_tokens: self.trainer.sampled_tokens,
                optimiser_steps: self.trainer.optimiser.steps(),
                initial_weights: self.initial_weights.clone(),
                tasks: self.tasks.clone(),
                best: self.best,
            },
        )?;
        let checkpoint = draft.publish()?;
        self.prune()?;
        self.saved = Some(iteration);
        observer.event(&Event::Saved {
            iteration,
            path: checkpoint.directory(),
        });
        Ok(())
    }

    /// Removes the checkpoints that are not to be kept.
    fn prune(&self) -> Result<(), TrainError> {
        let section = &self.trainer.config().checkpoint;
        self.store.prune(&Retention {
            keep_last: section.keep,
            best: self.best.filter(|_| section.keep_best).map(|best| best.iteration),
            keep_every: section.keep_every.map(|every| every as u64),
        })?;
        Ok(())
    }

    fn summary(&self) -> Result<Summary, TrainError> {
        let config = self.trainer.config();
        let mut seconds: BTreeMap<String, f64> = BTreeMap::new();
        for record in read_records(&self.run.path().join("timings.jsonl"))? {
            for (name, value) in record.metrics {
                let phase = name
                    .strip_prefix("timing/")
                    .and_then(|rest| rest.strip_suffix("_seconds"));
                if let (Some(phase), Some(value)) = (phase, value) {
                    *seconds.entry(phase.to_owned()).or_default() += value;
                }
            }
        }
        Ok(Summary {
            name: config.run.name.clone(),
            seed: config.run.seed,
            algorithm: config.algorithm.name.word().to_owned(),
            iterations: self.trainer.iteration,
            episodes: self.trainer.episodes,
            seconds,
        })
    }
}

/// Whose metric names dashboards get.
pub(crate) fn naming(names: config::MetricNames) -> MetricNaming {
    match names {
        config::MetricNames::Native => MetricNaming::Native,
        config::MetricNames::Verl => MetricNaming::Verl,
        config::MetricNames::Trl => MetricNaming::Trl,
    }
}

/// Puts a checkpoint's weights, optimiser state and counters into a fresh trainer.
fn restore(
    checkpoint: &Checkpoint,
    trainer: &mut Trainer,
    initial_weights: &str,
    tasks: &str,
) -> Result<State, TrainError> {
    let state: State = checkpoint.read_json(STATE)?;
    if state.initial_weights != initial_weights {
        return Err(TrainError::Mismatch {
            directory: checkpoint.directory().to_owned(),
            differences: format!(
                "`{}` holds other weights than when the run began",
                trainer.config().model.path.display()
            ),
        });
    }
    if state.tasks != tasks {
        return Err(TrainError::Mismatch {
            directory: checkpoint.directory().to_owned(),
            differences: format!(
                "the tasks of the world `{}` are not those the run began with",
                trainer.world().name()
            ),
        });
    }
    let pack_tokens = trainer.config().algorithm.micro_batch_tokens;
    trainer
        .policy
        .restore(&checkpoint.directory().join(MODEL), pack_tokens)?;
    restore_optimiser(checkpoint, &mut trainer.optimiser, state.optimiser_steps)?;
    if trainer.config().seed.teacher.moves()
        && let Some(teacher) = &mut trainer.teacher
    {
        let tensors = checkpoint.read_tensors(TEACHER)?;
        let mismatch = |what: String| TrainError::Mismatch {
            directory: checkpoint.directory().to_owned(),
            differences: format!("`{TEACHER}` {what}"),
        };
        if tensors.len() != teacher.trained().len() {
            return Err(mismatch(format!(
                "has {} tensors, the model {}",
                tensors.len(),
                teacher.trained().len()
            )));
        }
        teacher.update(|parameters| {
            for tensor in &tensors {
                match parameters
                    .index_of(&tensor.name)
                    .map(|index| parameters.get_mut(index))
                {
                    Some(values) if values.len() == tensor.data.len() => values.copy_from_slice(&tensor.data),
                    _ => {
                        return Err(mismatch(format!(
                            "holds `{}`, which is no tensor of the model",
                            tensor.name
                        )));
                    }
                }
            }
            Ok(())
        })?;
    }
    trainer.iteration = state.iteration;
    trainer.episodes = state.episodes;
    trainer.sampled_tokens = state.sampled_tokens;
    Ok(state)
}

/// Records a panel's result under its registered names.
fn record_evaluation(result: &PanelResult, metrics: &mut Metrics) {
    let split = result.split.name();
    let evaluation = &result.evaluation;
    if !result.prompt.is_plain() {
        let name = |what: &str| format!("evaluation/{split}/{}/{what}", result.prompt);
        metrics.set(name("success_rate"), evaluation.success.value);
        metrics.set(name("skill_share"), result.skill_share);
        return;
    }
    let excluded = evaluation.outcomes.values().sum::<usize>() - evaluation.episodes;
    let values = [
        ("success_rate", evaluation.success.value),
        ("success_low", evaluation.success.low),
        ("success_high", evaluation.success.high),
        ("macro_success_rate", evaluation.macro_success),
        ("episodes", evaluation.episodes as f64),
        ("steps_mean", evaluation.mean_steps),
        ("valid_action_share", evaluation.valid_action_rate),
        ("excluded", excluded as f64),
    ];
    let score = evaluation.mean_score.map(|score| ("score_mean", score));
    for (name, value) in values.into_iter().chain(score) {
        metrics.set(format!("evaluation/{split}/{name}"), value);
    }
    for (family, result) in &evaluation.families {
        metrics.set(
            format!("evaluation/{split}/family/{family}/success_rate"),
            result.success.value,
        );
    }
}
