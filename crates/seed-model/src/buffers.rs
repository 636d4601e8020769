//! Memory of scoring and training passes, kept between calls so that hot loops do not allocate.
//!
//! Not for: anything that has to outlive a call; contents are overwritten by the next one.

use std::sync::{Mutex, PoisonError};

use seed_kernels::attention::{AttentionShape, KeyValueCache};
use seed_kernels::head::HeadPass;

use crate::backward::BackwardScratch;
use crate::decoder::Slots;
use crate::layer::{LayerActivations, LayerScratch};
use crate::pack::Pack;

/// Buffers of the forward pass.
#[derive(Default)]
pub(crate) struct Workspace {
    /// Residual stream, `[rows, hidden_size]`; after all layers that before the final norm.
    pub(crate) hidden: Vec<f32>,
    pub(crate) activations: LayerActivations,
    pub(crate) scratch: LayerScratch,
}

/// The tokens that a pass scores, and what the output matrix makes of them; one entry for each token.
#[derive(Default)]
pub(crate) struct ScoredRows {
    pub(crate) targets: Vec<u32>,
    /// Residual stream at the rows that predict them, before and after the final norm.
    pub(crate) hidden: Vec<f32>,
    pub(crate) normed: Vec<f32>,
    pub(crate) log_probs: Vec<f32>,
    pub(crate) entropies: Vec<f32>,
}

/// Buffers of a scoring pass.
#[derive(Default)]
pub(crate) struct Buffers {
    pub(crate) pack: Pack,
    /// Rows of the pack from which scored tokens are predicted, increasing.
    pub(crate) rows: Vec<usize>,
    pub(crate) workspace: Workspace,
    pub(crate) scored: ScoredRows,
    /// Keys and values by segment of the pack, then by slot.
    pub(crate) caches: Vec<Vec<KeyValueCache>>,
}

/// Some sequences of a training pass, which one thread takes through all layers.
#[derive(Default)]
pub(crate) struct Part {
    pub(crate) pack: Pack,
    /// Rows of the pack from which scored tokens are predicted, increasing.
    pub(crate) rows: Vec<usize>,
    pub(crate) workspace: Workspace,
    /// Keys and values by segment of the pack, then by slot.
    pub(crate) caches: Vec<Vec<KeyValueCache>>,
    /// All activations of each layer or, under recomputation, its input alone.
    pub(crate) layers: Vec<LayerActivations>,
    pub(crate) backward: BackwardScratch,
    /// Derivative with respect to the residual stream.
    pub(crate) derivative: Vec<f32>,
}

/// Buffers of a training pass.
#[derive(Default)]
pub(crate) struct TrainingBuffers {
    pub(crate) parts: Vec<Part>,
    pub(crate) scored: ScoredRows,
    pub(crate) head: HeadPass,
    pub(crate) d_scored: Vec<f32>,
    pub(crate) d_normed: Vec<f32>,
    pub(crate) inverses: Vec<f32>,
    pub(crate) d_log_probs: Vec<f32>,
    pub(crate) d_entropies: Vec<f32>,
}

/// Makes sure that `caches` has enough for every segment of `pack`.
pub(crate) fn ensure_caches(
    caches: &mut Vec<Vec<KeyValueCache>>,
    pack: &Pack,
    shape: &AttentionShape,
    slots: Slots,
    layers: usize,
) {
    if caches.len() < pack.segments.len() {
        caches.resize_with(pack.segments.len(), Vec::new);
    }
    let count = match slots {
        Slots::PerLayer => layers,
        Slots::Shared => 1,
    };
    for (segment, caches) in pack.segments.iter().zip(caches) {
        while caches.len() < count {
            caches.push(KeyValueCache::new(shape, segment.rows.len()));
        }
    }
}

/// Buffers not in use; as many as there were calls at the same time.
#[derive(Default)]
pub(crate) struct BufferPool<T>(Mutex<Vec<T>>);

impl<T: Default> BufferPool<T> {
    /// Lends buffers to `work`.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        // A panic elsewhere leaves the list whole: it is only pushed to and popped from.
        let spare = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut buffers = spare.unwrap_or_default();
        let result = work(&mut buffers);
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(buffers);
        result
    }
}
