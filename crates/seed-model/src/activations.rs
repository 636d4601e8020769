//! Memory for what a layer's forward pass leaves to its backward pass.
//!
//! One buffer per layer holds it for all rows of a training pass, and the sequences that a thread takes through the layers have
//! their share of it. So what is held is what the largest pass needed, however passes are divided.
//! Not for: keys and values, which are in caches, or buffers that do not outlive a layer ([`crate::layer::LayerScratch`]).

use seed_kernels::attention::AttentionShape;

use crate::layer::sized;

/// Values of the forward pass which the backward pass reads; keys and values are in the caches. All `[rows, width]`.
pub(crate) struct LayerActivations<'a> {
    /// The residual stream before the layer.
    pub(crate) input: &'a mut [f32],
    /// The residual stream between attention and MLP.
    pub(crate) middle: &'a mut [f32],
    /// Queries and keys before their per-head norm, where there is one.
    pub(crate) query_raw: &'a mut [f32],
    pub(crate) key_raw: &'a mut [f32],
    /// Rotated queries.
    pub(crate) query: &'a mut [f32],
    /// Attention output before its projection.
    pub(crate) attended: &'a mut [f32],
    pub(crate) log_sum_exp: &'a mut [f32],
    pub(crate) gate: &'a mut [f32],
    pub(crate) up: &'a mut [f32],
}

impl<'a> LayerActivations<'a> {
    /// Cuts what `rows` rows need from the front of `memory`, and returns the rest too.
    fn cut(memory: &'a mut [f32], widths: &Widths, rows: usize) -> (Self, &'a mut [f32]) {
        let mut rest = memory;
        let mut next = |width: usize| {
            let (own, others) = std::mem::take(&mut rest).split_at_mut(rows * width);
            rest = others;
            own
        };
        let activations = Self {
            input: next(widths.input),
            middle: next(widths.middle),
            query_raw: next(widths.query_raw),
            key_raw: next(widths.key_raw),
            query: next(widths.query),
            attended: next(widths.query),
            log_sum_exp: next(widths.heads),
            gate: next(widths.intermediate),
            up: next(widths.intermediate),
        };
        (activations, rest)
    }

    /// All of it for `rows` rows, in a buffer that grows by what it needs.
    pub(crate) fn of(buffer: &'a mut Vec<f32>, widths: &Widths, rows: usize) -> Self {
        Self::cut(sized(buffer, rows * widths.total()), widths, rows).0
    }
}

/// Numbers per row of each part of [`LayerActivations`].
#[derive(Clone, Copy, Default)]
pub(crate) struct Widths {
    input: usize,
    middle: usize,
    query_raw: usize,
    key_raw: usize,
    query: usize,
    heads: usize,
    intermediate: usize,
}

impl Widths {
    /// All that a backward pass reads.
    pub(crate) fn kept(
        shape: &AttentionShape,
        hidden_size: usize,
        intermediate_size: usize,
        query_key_norm: bool,
    ) -> Self {
        Self {
            input: hidden_size,
            middle: hidden_size,
            ..Self::passing(shape, intermediate_size, query_key_norm)
        }
    }

    /// What a forward pass works on when no backward pass follows.
    pub(crate) fn passing(shape: &AttentionShape, intermediate_size: usize, query_key_norm: bool) -> Self {
        let (query, key) = (
            shape.query_heads * shape.head_dim,
            shape.key_value_heads * shape.head_dim,
        );
        let raw = |width: usize| if query_key_norm { width } else { 0 };
        Self {
            input: 0,
            middle: 0,
            query_raw: raw(query),
            key_raw: raw(key),
            query,
            heads: shape.query_heads,
            intermediate: intermediate_size,
        }
    }

    /// The layer's input alone: what is kept where a layer is computed again.
    fn input_only(&self) -> Self {
        Self {
            input: self.input,
            ..Self::default()
        }
    }

    fn total(&self) -> usize {
        let attention = self.query_raw + self.key_raw + 2 * self.query + self.heads;
        self.input + self.middle + attention + 2 * self.intermediate
    }
}

/// What some of a pass's rows keep of all layers.
pub(crate) struct Kept<'a> {
    /// By layer. Where layers are computed again, their inputs alone.
    pub(crate) layers: Vec<LayerActivations<'a>>,
    /// Of the layer that was last computed again.
    pub(crate) again: Option<LayerActivations<'a>>,
}

impl<'a> Kept<'a> {
    /// What the backward pass of a layer reads.
    pub(crate) fn layer(&self, layer: usize) -> &LayerActivations<'a> {
        // A training pass keeps as many layers as the decoder has.
        self.again.as_ref().unwrap_or(&self.layers[layer])
    }
}

/// The memory of training passes.
#[derive(Default)]
pub(crate) struct ActivationMemory {
    layers: Vec<Vec<f32>>,
    again: Vec<f32>,
}

impl ActivationMemory {
    /// Divides the memory between parts of so many rows. With `recompute` there is room for every layer's input, and for
    /// all activations of one layer.
    pub(crate) fn divide(
        &mut self,
        widths: &Widths,
        layers: usize,
        parts: &[usize],
        recompute: bool,
    ) -> Vec<Kept<'_>> {
        let rows: usize = parts.iter().sum();
        let of_layer = if recompute { widths.input_only() } else { *widths };
        self.layers.resize_with(layers, Vec::new);
        let mut memories: Vec<&mut [f32]> = self
            .layers
            .iter_mut()
            .map(|memory| sized(memory, rows * of_layer.total()))
            .collect();
        let again = if recompute { rows * widths.total() } else { 0 };
        let mut again = sized(&mut self.again, again);
        let mut kept = Vec::with_capacity(parts.len());
        for &rows in parts {
            let mut layers = Vec::with_capacity(memories.len());
            for memory in &mut memories {
                let (own, rest) = LayerActivations::cut(std::mem::take(memory), &of_layer, rows);
                *memory = rest;
                layers.push(own);
            }
            let again = recompute.then(|| {
                let (own, rest) = LayerActivations::cut(std::mem::take(&mut again), widths, rows);
                again = rest;
                own
            });
            kept.push(Kept { layers, again });
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn widths() -> Widths {
        let shape = AttentionShape {
            query_heads: 4,
            key_value_heads: 2,
            head_dim: 8,
            scale: 1.0,
        };
        Widths::kept(&shape, 24, 40, true)
    }

    fn held(memory: &ActivationMemory) -> usize {
        memory.layers.iter().map(Vec::capacity).sum::<usize>() + memory.again.capacity()
    }

    #[test]
    fn what_is_held_does_not_depend_on_how_passes_are_divided() {
        // input, middle; queries and keys before their norms; queries, attended; log-sum-exps; gate, up
        let of_row = 2 * 24 + (32 + 16) + 2 * 32 + 4 + 2 * 40;
        let mut memory = ActivationMemory::default();
        for parts in [[100, 0, 0], [20, 30, 50], [1, 98, 1]] {
            let kept = memory.divide(&widths(), 3, &parts, false);
            let rows: Vec<usize> = kept.iter().map(|kept| kept.layer(2).up.len() / 40).collect();
            assert_eq!(rows, parts);
            assert_eq!(held(&memory), 3 * 100 * of_row);
        }
        memory = ActivationMemory::default();
        let kept = memory.divide(&widths(), 3, &[60, 40], true);
        assert_eq!(kept[1].layers[0].input.len(), 40 * 24);
        assert_eq!(kept[1].layers[0].gate.len(), 0);
        assert_eq!(kept[1].layer(0).gate.len(), 40 * 40);
        assert_eq!(held(&memory), 100 * (3 * 24 + of_row));
    }

    #[test]
    fn parts_do_not_share_memory() {
        let mut memory = ActivationMemory::default();
        let mut kept = memory.divide(&widths(), 2, &[3, 5], false);
        let mut value = 0.0;
        for activations in kept.iter_mut().flat_map(|kept| &mut kept.layers) {
            value += 1.0;
            activations.input.fill(value);
            activations.up.fill(value);
        }
        let seen: Vec<f32> = kept
            .iter()
            .flat_map(|kept| &kept.layers)
            .flat_map(|activations| [activations.input[0], activations.up[0]])
            .collect();
        assert_eq!(seen, [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0]);
    }
}
