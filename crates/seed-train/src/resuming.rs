//! What training and fine-tuning share about checkpoints: the optimiser's file, the check that a run goes on as it was
//! begun, and reports to the observer.
//!
//! Not for: the checkpoint protocol itself (`seed-run`), or the counters that each program keeps.

use std::path::Path;

use seed_model::AdamW;
use seed_model::optimiser::StateTensor;
use seed_run::{
    Checkpoint, CheckpointDraft, NamedTensor, Rejected, RunDirectory, TensorView, process_memory,
};

use crate::TrainError;
use crate::config::{Document, Effect, Loaded, MemoryEstimate, bytes, differences};
use crate::events::{Event, Observer};

/// A checkpoint's counters.
pub(crate) const STATE: &str = "state.json";
/// A checkpoint's model, as a Hugging Face folder or, where an adapter is trained, the adapter alone in PEFT's layout.
pub(crate) const MODEL: &str = "model";
const OPTIMISER: &str = "optimiser.safetensors";

/// The directory of a run to go on with.
///
/// # Errors
/// [`TrainError::Mismatch`] naming every setting that would change the result; or the directory cannot be opened.
pub(crate) fn open_run<C: Document>(directory: &Path, config: &C) -> Result<RunDirectory, TrainError> {
    let run = RunDirectory::open(directory)?;
    let before = Loaded::<C>::from_file(&run.config_path(), &[])?.config;
    let changed: Vec<String> = differences(&before, config)
        .into_iter()
        .filter(|difference| difference.effect == Effect::Result)
        .map(|difference| {
            format!(
                "`{}` was `{}`, now `{}`",
                difference.key, difference.before, difference.after
            )
        })
        .collect();
    if changed.is_empty() {
        return Ok(run);
    }
    Err(TrainError::Mismatch {
        directory: directory.to_owned(),
        differences: changed.join("; "),
    })
}

/// Adds the optimiser's moments to a checkpoint.
///
/// # Errors
/// The failed write, or a device that fails to give its moments.
pub(crate) fn write_optimiser(
    draft: &mut CheckpointDraft<'_>,
    optimiser: &mut AdamW,
) -> Result<(), TrainError> {
    optimiser.fetch()?;
    let state = optimiser.state();
    let tensors: Vec<TensorView<'_>> = state
        .iter()
        .map(|tensor| TensorView {
            name: tensor.name.clone(),
            shape: tensor.shape.clone(),
            data: &tensor.values,
        })
        .collect();
    Ok(draft.write_tensors(OPTIMISER, &tensors)?)
}

/// Puts a checkpoint's moments back; `steps` are the optimiser steps done until then.
///
/// # Errors
/// When the file is damaged or belongs to another model.
pub(crate) fn restore_optimiser(
    checkpoint: &Checkpoint,
    optimiser: &mut AdamW,
    steps: u64,
) -> Result<(), TrainError> {
    let tensors: Vec<StateTensor> = checkpoint
        .read_tensors(OPTIMISER)?
        .into_iter()
        .map(|NamedTensor { name, shape, data }| StateTensor {
            name,
            shape,
            values: data,
        })
        .collect();
    Ok(optimiser.restore(steps, &tensors)?)
}

/// Says which checkpoints were passed over, and why.
pub(crate) fn report_rejected(rejected: &[Rejected], observer: &mut dyn Observer) {
    for Rejected { directory, fault } in rejected {
        let text = format!("passed over the checkpoint `{}`: {fault}", directory.display());
        observer.event(&Event::Warning { text });
    }
}

/// Puts the memory that a run took beside what its configuration let expect.
pub(crate) fn report_memory(planned: MemoryEstimate, observer: &mut dyn Observer) {
    if let Some((_, highest)) = process_memory() {
        observer.event(&Event::Note {
            text: format!(
                "memory at its highest: {}; planned: {}",
                bytes(highest),
                bytes(planned.peak())
            ),
        });
    }
}
