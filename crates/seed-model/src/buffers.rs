//! Memory of scoring and training passes, kept between calls so that hot loops do not allocate.
//!
//! Not for: anything that has to outlive a call; contents are overwritten by the next one.

use std::sync::{Mutex, PoisonError};

use seed_kernels::attention::{AttentionShape, KeyValueCache};
use seed_kernels::head::HeadPass;

use crate::activations::{ActivationMemory, Kept};
use crate::backward::BackwardScratch;
use crate::decoder::Slots;
use crate::layer::LayerScratch;
use crate::pack::Pack;

/// Buffers of the forward pass.
#[derive(Default)]
pub(crate) struct Workspace {
    /// Residual stream, `[rows, hidden_size]`; after all layers that before the final norm.
    pub(crate) hidden: Vec<f32>,
    /// Of the layer at work, where nothing is kept of it.
    pub(crate) activations: Vec<f32>,
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
    pub(crate) backward: BackwardScratch,
    /// Derivative with respect to the residual stream.
    pub(crate) derivative: Vec<f32>,
    /// Rows of the largest pack so far, which the buffers are held for.
    most_rows: usize,
}

impl Part {
    /// Positions whose keys and values are held.
    fn held_positions(&self) -> usize {
        let of_segment = |caches: &Vec<KeyValueCache>| caches.first().map_or(0, KeyValueCache::capacity);
        self.caches.iter().map(of_segment).sum()
    }
}

/// A part at work, with its share of the memory for activations.
pub(crate) struct Lane<'a> {
    pub(crate) part: &'a mut Part,
    pub(crate) kept: Kept<'a>,
}

/// Makes sure that there is a part for each of `rows`, the numbers of rows they are to take.
///
/// Every part keeps the buffers of the largest it has been, and passes are divided in ever other ways, so that together they
/// would come to hold several times what one pass needs. Where they would hold more than twice `most_rows`, the most rows of
/// a pass, they begin anew.
pub(crate) fn ensure_parts(parts: &mut Vec<Part>, rows: &[usize], most_rows: usize) {
    if parts.len() < rows.len() {
        parts.resize_with(rows.len(), Part::default);
    }
    let held = |parts: &[Part]| {
        let rows: usize = parts.iter().map(|part| part.most_rows).sum();
        rows.max(parts.iter().map(Part::held_positions).sum())
    };
    for (part, &rows) in parts.iter_mut().zip(rows) {
        part.most_rows = part.most_rows.max(rows);
    }
    if held(parts) > 2 * most_rows.max(rows.iter().sum()) {
        parts.clear();
        parts.extend(rows.iter().map(|&rows| Part {
            most_rows: rows,
            ..Part::default()
        }));
    }
}

/// Buffers of a training pass.
#[derive(Default)]
pub(crate) struct TrainingBuffers {
    pub(crate) parts: Vec<Part>,
    pub(crate) activations: ActivationMemory,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_begin_anew_where_they_would_hold_too_much() {
        let mut parts = Vec::new();
        let held = |parts: &[Part]| parts.iter().map(|part| part.most_rows).collect::<Vec<_>>();
        ensure_parts(&mut parts, &[100], 100);
        ensure_parts(&mut parts, &[40, 60], 100);
        assert_eq!(held(&parts), [100, 60]);
        ensure_parts(&mut parts, &[30, 30, 40], 100);
        assert_eq!(held(&parts), [100, 60, 40]);
        // 100 + 60 + 60 are more than two packs.
        ensure_parts(&mut parts, &[30, 10, 60], 100);
        assert_eq!(held(&parts), [30, 10, 60]);
        // A sequence longer than a pack is one.
        ensure_parts(&mut parts, &[150], 100);
        assert_eq!(held(&parts), [150, 10, 60]);
    }

    #[test]
    fn keys_and_values_count_too() {
        let shape = AttentionShape {
            query_heads: 1,
            key_value_heads: 1,
            head_dim: 8,
            scale: 1.0,
        };
        let mut parts = Vec::new();
        ensure_parts(&mut parts, &[64], 64);
        for lengths in [[48, 16], [16, 48]] {
            let mut pack = Pack::default();
            for length in lengths {
                pack.push(&vec![0; length], 0);
            }
            ensure_caches(&mut parts[0].caches, &pack, &shape, Slots::PerLayer, 2);
        }
        parts[0].caches.push(vec![KeyValueCache::new(&shape, 80)]);
        assert!(parts[0].held_positions() >= 48 + 16 + 80);
        ensure_parts(&mut parts, &[64], 64);
        assert_eq!(parts[0].held_positions(), 0);
    }
}
