//! `seed sft`: fine-tuning in a run directory, with checkpoints that a killed run continues from.
//!
//! The result lies in `model/` of the run directory as a Hugging Face folder, an adapter in PEFT's layout.

use std::collections::BTreeMap;

use seed_random::RandomKey;
use seed_run::{
    Checkpoint, CheckpointStore, FileRecord, Metrics, MetricsOptions, MetricsWriter, Retention, RunDirectory,
    RunRecord, StopFlag, file_record,
};
use serde::{Deserialize, Serialize};

use crate::TrainError;
use crate::config::{Selection, SftConfig, SftSection, bytes, to_toml};
use crate::events::{Event, Observer, Phase};
use crate::examples::{ExampleRecord, read_examples};
use crate::fine_tune::{ExampleSet, FineTuner, Loss, UpdateOutput};
use crate::policy::Policy;
use crate::resuming::{
    MODEL, STATE, open_run, report_memory, report_rejected, restore_optimiser, write_optimiser,
};
use crate::train::{Start, naming};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct State {
    update: u64,
    optimiser_steps: u64,
    best: Option<(u64, f64)>,
    /// The files of examples as they were.
    data: BTreeMap<String, FileRecord>,
}

/// What fine-tuning amounts to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SftSummary {
    /// Updates done.
    pub updates: u64,
    /// Examples trained on.
    pub training_examples: usize,
    /// Examples validated on.
    pub validation_examples: usize,
    /// Validation loss of the result, nats per token.
    pub validation_loss: f64,
    /// The same by kind of example.
    pub validation_loss_by_kind: BTreeMap<String, f64>,
    /// Where the result lies.
    pub model: std::path::PathBuf,
}

/// Fine-tunes as `config` says.
///
/// # Errors
/// [`TrainError::Stopped`] after a requested stop, with everything saved.
pub fn sft(
    config: &SftConfig,
    start: Start,
    command: Vec<String>,
    stop: &StopFlag,
    observer: &mut dyn Observer,
) -> Result<SftSummary, TrainError> {
    let data = file_records(&config.sft)?;
    let records = read_all(&config.sft.data)?;
    let validation = config
        .sft
        .validation_data
        .as_ref()
        .map(|paths| read_all(paths))
        .transpose()?;
    let key = RandomKey::new(config.run.seed);
    let opened = match start {
        Start::New => None,
        Start::Resume => Some(open_run(&config.run.directory, config)?),
    };
    let mut policy = if config.initialise.enabled {
        observer.event(&Event::Note {
            text: format!(
                "making a tokenizer of {} tokens from the examples",
                config.initialise.vocabulary_size
            ),
        });
        Policy::initialise(&config.initialise, &records, key)?
    } else {
        Policy::load(&config.model.path, config.model.thinking)?
    };
    policy.prepare(&config.adapter, key, &config.model.path)?;
    policy.place(&config.model)?;
    let set = ExampleSet::new(&records, validation.as_deref(), &policy, &config.sft, key)?;
    drop(records);
    if set.dropped > 0 {
        observer.event(&Event::Warning {
            text: format!(
                "{} examples are longer than `sft.max_length` and were left out",
                set.dropped
            ),
        });
    }
    let planned = config.memory(policy.shape());
    observer.event(&Event::Note {
        text: format!(
            "memory planned: weights {}, gradient and optimiser {}, passes over a micro-batch {}; {} in all",
            bytes(planned.weights),
            bytes(planned.training_state),
            bytes(planned.activations),
            bytes(planned.peak())
        ),
    });
    let mut tuner = FineTuner::new(
        policy,
        set,
        &config.sft,
        config.run.seed,
        config.model.recompute_activations,
        config.sft.micro_batch_tokens,
    );
    // Whatever can be wrong with weights or examples has shown before there is a run that would be in the way.
    let run = if let Some(run) = opened {
        run
    } else {
        let record = RunRecord::now(
            &config.run.name,
            config.run.seed,
            env!("CARGO_PKG_VERSION"),
            command,
        );
        RunDirectory::create(&config.run.directory, &record, &to_toml(config))?
    };
    let store = run.checkpoints()?;
    let mut best = None;
    let mut saved = None;
    if start == Start::Resume {
        let search = store.newest()?;
        report_rejected(&search.rejected, observer);
        if let Some(checkpoint) = search.found {
            let state = restore(&checkpoint, &mut tuner, &data, config.sft.micro_batch_tokens)?;
            best = state.best;
            saved = Some(state.update);
            store.mark_latest(state.update)?;
            observer.event(&Event::Note {
                text: format!("resuming after update {}", state.update),
            });
        }
    }
    let metrics = MetricsWriter::open(
        run.path(),
        MetricsOptions {
            tensorboard: config
                .logging
                .tensorboard
                .then_some(naming(config.logging.metric_names)),
            resume_after: saved,
        },
    )?;
    let summary = Session {
        config,
        run,
        store,
        tuner,
        data,
        metrics,
        best,
        saved,
    }
    .run(stop, observer)?;
    report_memory(planned, observer);
    Ok(summary)
}

/// Sizes and digests of the files of examples.
fn file_records(section: &SftSection) -> Result<BTreeMap<String, FileRecord>, TrainError> {
    section
        .data
        .iter()
        .chain(section.validation_data.iter().flatten())
        .map(|path| Ok((path.display().to_string(), file_record(path)?)))
        .collect()
}

fn read_all(paths: &[std::path::PathBuf]) -> Result<Vec<ExampleRecord>, TrainError> {
    let mut records = Vec::new();
    for path in paths {
        records.extend(read_examples(path)?);
    }
    Ok(records)
}

struct Session<'a> {
    config: &'a SftConfig,
    run: RunDirectory,
    store: CheckpointStore,
    tuner: FineTuner,
    data: BTreeMap<String, FileRecord>,
    metrics: MetricsWriter,
    /// Update and validation loss of the best weights so far.
    best: Option<(u64, f64)>,
    saved: Option<u64>,
}

impl Session<'_> {
    fn run(mut self, stop: &StopFlag, observer: &mut dyn Observer) -> Result<SftSummary, TrainError> {
        let mut validation = None;
        loop {
            if stop.is_set() {
                self.save(observer)?;
                return Err(TrainError::Stopped {
                    iteration: self.tuner.update,
                    total: self.tuner.total,
                });
            }
            let started = std::time::Instant::now();
            let span = tracing::info_span!("update", number = self.tuner.update + 1).entered();
            let Some(output) = self.tuner.step()? else { break };
            span.exit();
            let update = self.tuner.update;
            let last = update == self.tuner.total;
            let mut metrics = Metrics::new();
            record(&output, &mut metrics);
            metrics.set("timing/update_seconds", started.elapsed().as_secs_f64());
            let every = self.config.sft.validate_every as u64;
            let mut is_best = false;
            if last || output.ends_epoch || (every > 0 && update.is_multiple_of(every)) {
                let loss = self.tuner.validate()?;
                metrics.set("sft/validation_loss", loss.mean);
                observer.event(&Event::Note {
                    text: describe(update, &loss),
                });
                is_best = self.tuner.validation_examples() > 0
                    && self.best.is_none_or(|(_, lowest)| loss.mean < lowest);
                if is_best {
                    self.best = Some((update, loss.mean));
                }
                validation = Some(loss);
            }
            self.metrics.record(update, &metrics)?;
            observer.event(&Event::Progress {
                iteration: output.epoch + 1,
                phase: Phase::Update,
                done: update as usize,
                total: self.tuner.total as usize,
            });
            let select_best = self.config.sft.selection == Selection::Best;
            if last || update.is_multiple_of(self.config.checkpoint.every as u64) || (is_best && select_best)
            {
                self.save(observer)?;
            }
        }
        if self.config.sft.selection == Selection::Best
            && let Some((update, _)) = self.best
        {
            let checkpoint = self.store.load(update)?;
            self.tuner.policy.restore(
                &checkpoint.directory().join(MODEL),
                self.config.sft.micro_batch_tokens,
            )?;
            validation = Some(self.tuner.validate()?);
        }
        let validation = match validation {
            Some(loss) => loss,
            None => self.tuner.validate()?,
        };
        let model = self.run.path().join(MODEL);
        if model.exists() {
            // A finished run that is resumed ends with the same weights again.
            fs_err::remove_dir_all(&model)?;
        }
        self.tuner.policy.decoder.fetch()?;
        self.tuner.policy.save(&model)?;
        Ok(SftSummary {
            updates: self.tuner.update,
            training_examples: self.tuner.training_examples(),
            validation_examples: self.tuner.validation_examples(),
            validation_loss: validation.mean,
            validation_loss_by_kind: validation
                .kinds
                .iter()
                .map(|(kind, (sum, tokens))| (kind.clone(), sum / (*tokens).max(1) as f64))
                .collect(),
            model,
        })
    }

    fn save(&mut self, observer: &mut dyn Observer) -> Result<(), TrainError> {
        let update = self.tuner.update;
        if update == 0 || self.saved == Some(update) {
            return Ok(());
        }
        let _span = tracing::info_span!("checkpoint", number = update).entered();
        self.metrics.sync()?;
        let mut draft = self.store.begin(update)?;
        let folder = draft.folder(MODEL)?;
        self.tuner.policy.decoder.fetch()?;
        self.tuner.policy.write_into(&folder)?;
        draft.adopt(MODEL)?;
        write_optimiser(&mut draft, &mut self.tuner.optimiser)?;
        draft.write_json(
            STATE,
            &State {
                update,
                optimiser_steps: self.tuner.optimiser.steps(),
                best: self.best,
                data: self.data.clone(),
            },
        )?;
        let checkpoint = draft.publish()?;
        self.store.prune(&Retention {
            keep_last: self.config.checkpoint.keep,
            best: self.best.map(|(update, _)| update),
            keep_every: self.config.checkpoint.keep_every.map(|every| every as u64),
        })?;
        self.saved = Some(update);
        observer.event(&Event::Saved {
            iteration: update,
            path: checkpoint.directory(),
        });
        Ok(())
    }
}

fn restore(
    checkpoint: &Checkpoint,
    tuner: &mut FineTuner,
    data: &BTreeMap<String, FileRecord>,
    pack_tokens: usize,
) -> Result<State, TrainError> {
    let state: State = checkpoint.read_json(STATE)?;
    let changed: Vec<String> = data
        .iter()
        .filter_map(|(path, now)| {
            let before = state.data.get(path).filter(|before| *before != now)?;
            Some(format!(
                "`{path}` had the digest `{}`, now `{}`",
                before.blake3, now.blake3
            ))
        })
        .collect();
    if !changed.is_empty() {
        return Err(TrainError::Mismatch {
            directory: checkpoint.directory().to_owned(),
            differences: changed.join("; "),
        });
    }
    tuner
        .policy
        .restore(&checkpoint.directory().join(MODEL), pack_tokens)?;
    restore_optimiser(checkpoint, &mut tuner.optimiser, state.optimiser_steps)?;
    tuner.seek(state.update);
    Ok(state)
}

fn record(output: &UpdateOutput, metrics: &mut Metrics) {
    metrics.set("sft/loss", output.loss.mean);
    metrics.set("sft/tokens", output.loss.tokens as f64);
    metrics.set("sft/gradient_norm", output.gradient_norm);
    metrics.set("sft/learning_rate", output.learning_rate);
    metrics.set("sft/epoch", output.epoch as f64);
}

fn describe(update: u64, loss: &Loss) -> String {
    let kinds: Vec<String> = loss
        .kinds
        .iter()
        .map(|(kind, (sum, tokens))| format!("{kind} {:.4}", sum / (*tokens).max(1) as f64))
        .collect();
    format!(
        "update {update}: validation loss {:.4} nats a token ({})",
        loss.mean,
        kinds.join(", ")
    )
}
