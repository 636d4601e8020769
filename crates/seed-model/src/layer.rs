//! Forward pass of one decoder layer over a pack of sequences.
//!
//! The one forward of this crate: scoring, training and generation all come through [`forward`]. Every row's result
//! depends on its own sequence alone, never on what else is in the pack or on how a sequence was cut into calls.
//! Not for: the embedding, the final norm and the output matrix, which belong to the decoder.

use seed_kernels::attention::{AttentionShape, KeyValueCache, attention};
use seed_kernels::matmul::{add_bias, matmul};
use seed_kernels::norm::rms_norm;
use seed_kernels::parallel;
use seed_kernels::rotary::{RotaryTable, rotate};
use seed_kernels::swiglu::swiglu;

use crate::activations::{LayerActivations, Widths};
use crate::adapter::{LayerAdapter, Target};
use crate::pack::Pack;
use crate::parameters::Parameters;
use crate::weights::{LayerLayout, PackedLayer};

/// What one layer needs to know besides its inputs.
pub(crate) struct LayerContext<'a> {
    pub(crate) shape: &'a AttentionShape,
    pub(crate) epsilon: f32,
    pub(crate) hidden_size: usize,
    pub(crate) intermediate_size: usize,
    pub(crate) parameters: &'a Parameters,
    pub(crate) layout: &'a LayerLayout,
    pub(crate) packed: &'a PackedLayer,
    pub(crate) adapter: Option<LayerAdapter<'a>>,
    pub(crate) rotary: &'a RotaryTable,
    pub(crate) pack: &'a Pack,
}

impl LayerContext<'_> {
    pub(crate) fn query_width(&self) -> usize {
        self.shape.query_heads * self.shape.head_dim
    }

    pub(crate) fn key_width(&self) -> usize {
        self.shape.key_value_heads * self.shape.head_dim
    }

    /// Numbers per row that the layer works on when no backward pass follows.
    pub(crate) fn passing_widths(&self) -> Widths {
        Widths::passing(
            self.shape,
            self.intermediate_size,
            self.layout.query_key_norm.is_some(),
        )
    }

    /// `out (=|+=) x·Wᵀ + b`, then `out += s·(x·Aᵀ)·Bᵀ` where the matrix has an adapter: the chains of the base's product
    /// go on in the adapter's. `lowered` is a buffer.
    fn project(
        &self,
        target: Target,
        x: &[f32],
        rows: usize,
        out: &mut [f32],
        accumulate: bool,
        lowered: &mut Vec<f32>,
    ) {
        matmul(x, rows, self.packed.matrix(target), out, accumulate);
        if let Some(bias) = self.layout.linear(target).bias {
            add_bias(out, rows, self.parameters.get(bias));
        }
        if let Some(adapter) = &self.adapter
            && let Some(pair) = adapter.pair(target)
        {
            adapter.lower(pair, x, rows, lowered);
            matmul(lowered, rows, &pair.raise, out, true);
        }
    }
}

/// Buffers whose content does not outlive a layer.
#[derive(Default)]
pub(crate) struct LayerScratch {
    pub(crate) normed: Vec<f32>,
    key: Vec<f32>,
    value: Vec<f32>,
    /// Keys of all rows before their per-head norm, where a layer runs for some rows alone.
    key_raw: Vec<f32>,
    pub(crate) activated: Vec<f32>,
    /// Inputs of an adapter's second matrix.
    pub(crate) lowered: Vec<f32>,
}

/// The buffer with exactly `length` elements, whose values are whatever was there. It grows by what it needs: packs are of
/// nearly one size, and doubling would hold up to twice the largest.
pub(crate) fn sized(buffer: &mut Vec<f32>, length: usize) -> &mut [f32] {
    buffer.reserve_exact(length.saturating_sub(buffer.len()));
    buffer.resize(length, 0.0);
    buffer
}

/// Replaces the buffer's content; it grows as in [`sized`].
pub(crate) fn copy_into(buffer: &mut Vec<f32>, values: &[f32]) {
    buffer.clear();
    buffer.reserve_exact(values.len());
    buffer.extend_from_slice(values);
}

/// Runs one layer in place on `hidden`, `[rows, hidden_size]`.
///
/// `caches[s][slot]` holds the keys and values of segment `s` in this layer; it is cut to the segment's first
/// position and the segment's own are appended, so that one slot can serve all layers when nothing is kept.
/// `activations` have room for the pack's rows; with `keep`, they hold afterwards all that the backward pass needs.
pub(crate) fn forward(
    context: &LayerContext<'_>,
    hidden: &mut [f32],
    caches: &mut [&mut [KeyValueCache]],
    slot: usize,
    activations: &mut LayerActivations<'_>,
    scratch: &mut LayerScratch,
    keep: bool,
) {
    let LayerContext {
        shape,
        epsilon,
        parameters,
        layout,
        rotary,
        pack,
        ..
    } = context;
    let rows = pack.rows();
    let (query_width, key_width) = (context.query_width(), context.key_width());
    let (heads, key_heads, head_dim) = (shape.query_heads, shape.key_value_heads, shape.head_dim);
    if keep {
        activations.input.copy_from_slice(hidden);
    }

    let normed = sized(&mut scratch.normed, rows * context.hidden_size);
    rms_norm(hidden, rows, parameters.get(layout.input_norm), *epsilon, normed);
    let query = &mut *activations.query;
    let key = sized(&mut scratch.key, rows * key_width);
    let value = sized(&mut scratch.value, rows * key_width);
    if let Some((query_norm, key_norm)) = layout.query_key_norm {
        let query_raw = &mut *activations.query_raw;
        let key_raw = &mut *activations.key_raw;
        context.project(
            Target::Query,
            normed,
            rows,
            query_raw,
            false,
            &mut scratch.lowered,
        );
        context.project(Target::Key, normed, rows, key_raw, false, &mut scratch.lowered);
        rms_norm(
            query_raw,
            rows * heads,
            parameters.get(query_norm),
            *epsilon,
            query,
        );
        rms_norm(key_raw, rows * key_heads, parameters.get(key_norm), *epsilon, key);
    } else {
        context.project(Target::Query, normed, rows, query, false, &mut scratch.lowered);
        context.project(Target::Key, normed, rows, key, false, &mut scratch.lowered);
    }
    context.project(Target::Value, normed, rows, value, false, &mut scratch.lowered);
    rotate(query, rows, heads, head_dim, &pack.positions, rotary);
    rotate(key, rows, key_heads, head_dim, &pack.positions, rotary);

    let attended = &mut *activations.attended;
    let log_sum_exp = &mut *activations.log_sum_exp;
    let (query, key, value) = (&*query, &*key, &*value);
    let attend = tracing::trace_span!("attend", rows, sequences = pack.segments.len()).entered();
    let mut segments: Vec<_> = pack
        .segments
        .iter()
        .zip(caches.iter_mut())
        .zip(pack.split(attended, query_width))
        .zip(pack.split(log_sum_exp, heads))
        .collect();
    parallel::for_each_mut(
        &mut segments,
        |_, (((segment, caches), attended), log_sum_exp)| {
            let cache = &mut caches[slot];
            cache.truncate(segment.first_position);
            cache.append(
                Pack::of(segment, key, key_width),
                Pack::of(segment, value, key_width),
                segment.rows.len(),
            );
            attention(
                Pack::of(segment, query, query_width),
                segment.rows.len(),
                cache,
                segment.first_position,
                shape,
                attended,
                keep.then_some(log_sum_exp),
            );
        },
    );
    attend.exit();
    // The product starts from the residual stream, so the addition is part of its chain of fused multiply-adds.
    context.project(
        Target::Output,
        activations.attended,
        rows,
        hidden,
        true,
        &mut scratch.lowered,
    );

    if keep {
        activations.middle.copy_from_slice(hidden);
    }
    feed_forward(context, hidden, rows, activations, scratch);
}

/// The second half of a layer, in place on `hidden`, `[rows, hidden_size]`.
fn feed_forward(
    context: &LayerContext<'_>,
    hidden: &mut [f32],
    rows: usize,
    activations: &mut LayerActivations<'_>,
    scratch: &mut LayerScratch,
) {
    let LayerContext {
        epsilon,
        parameters,
        layout,
        ..
    } = context;
    let normed = sized(&mut scratch.normed, rows * context.hidden_size);
    rms_norm(hidden, rows, parameters.get(layout.middle_norm), *epsilon, normed);
    let (gate, up) = (&mut *activations.gate, &mut *activations.up);
    let activated = sized(&mut scratch.activated, rows * context.intermediate_size);
    context.project(Target::Gate, normed, rows, gate, false, &mut scratch.lowered);
    context.project(Target::Up, normed, rows, up, false, &mut scratch.lowered);
    swiglu(gate, up, activated);
    context.project(Target::Down, activated, rows, hidden, true, &mut scratch.lowered);
}

/// Runs a model's last layer for the rows `wanted` alone, which increase: what `hidden` says of the others is not needed any
/// more, but their keys and values go into the caches as in [`forward`]. Leaves `[wanted.len(), hidden_size]` in `hidden`,
/// with the bits that [`forward`] gives.
pub(crate) fn forward_wanted(
    context: &LayerContext<'_>,
    hidden: &mut Vec<f32>,
    wanted: &[usize],
    caches: &mut [&mut [KeyValueCache]],
    slot: usize,
    activations: &mut Vec<f32>,
    scratch: &mut LayerScratch,
) {
    let LayerContext {
        shape,
        epsilon,
        parameters,
        layout,
        rotary,
        pack,
        ..
    } = context;
    let (rows, count) = (pack.rows(), wanted.len());
    let (width, query_width, key_width) = (context.hidden_size, context.query_width(), context.key_width());
    let (heads, key_heads, head_dim) = (shape.query_heads, shape.key_value_heads, shape.head_dim);

    let normed = sized(&mut scratch.normed, rows * width);
    rms_norm(hidden, rows, parameters.get(layout.input_norm), *epsilon, normed);
    let key = sized(&mut scratch.key, rows * key_width);
    let value = sized(&mut scratch.value, rows * key_width);
    context.project(Target::Key, normed, rows, key, false, &mut scratch.lowered);
    context.project(Target::Value, normed, rows, value, false, &mut scratch.lowered);
    // Rows only move to the front, so the two buffers can be cut down in place.
    keep_rows(hidden, wanted, width);
    keep_rows(&mut scratch.normed, wanted, width);
    let mut activations = LayerActivations::of(activations, &context.passing_widths(), count);
    let query = &mut *activations.query;
    context.project(
        Target::Query,
        &scratch.normed,
        count,
        query,
        false,
        &mut scratch.lowered,
    );
    if let Some((query_norm, key_norm)) = layout.query_key_norm {
        activations.query_raw.copy_from_slice(query);
        copy_into(&mut scratch.key_raw, key);
        let (query_norm, key_norm) = (parameters.get(query_norm), parameters.get(key_norm));
        rms_norm(activations.query_raw, count * heads, query_norm, *epsilon, query);
        rms_norm(&scratch.key_raw, rows * key_heads, key_norm, *epsilon, key);
    }
    let positions: Vec<u32> = wanted.iter().map(|&row| pack.positions[row]).collect();
    rotate(query, count, heads, head_dim, &positions, rotary);
    rotate(key, rows, key_heads, head_dim, &pack.positions, rotary);

    let attended = &mut *activations.attended;
    let (query, key, value) = (&*query, &*key, &*value);
    let attend = tracing::trace_span!("attend", rows = count, sequences = pack.segments.len()).entered();
    let (mut rest, mut first) = (attended, 0);
    let mut segments = Vec::with_capacity(pack.segments.len());
    for (segment, caches) in pack.segments.iter().zip(caches.iter_mut()) {
        let own = wanted[first..].partition_point(|&row| row < segment.rows.end);
        let (attended, others) = std::mem::take(&mut rest).split_at_mut(own * query_width);
        segments.push((segment, &mut caches[slot], first..first + own, attended));
        (rest, first) = (others, first + own);
    }
    parallel::for_each_mut(&mut segments, |_, (segment, cache, own, attended)| {
        cache.truncate(segment.first_position);
        cache.append(
            Pack::of(segment, key, key_width),
            Pack::of(segment, value, key_width),
            segment.rows.len(),
        );
        let mut start = own.start;
        for run in wanted[own.clone()].chunk_by(|row, next| row + 1 == *next) {
            let rows = start..start + run.len();
            let out = (rows.start - own.start) * query_width..(rows.end - own.start) * query_width;
            attention(
                &query[rows.start * query_width..rows.end * query_width],
                run.len(),
                cache,
                segment.first_position + run[0] - segment.rows.start,
                shape,
                &mut attended[out],
                None,
            );
            start = rows.end;
        }
    });
    attend.exit();
    context.project(
        Target::Output,
        activations.attended,
        count,
        hidden,
        true,
        &mut scratch.lowered,
    );
    feed_forward(context, hidden, count, &mut activations, scratch);
}

/// Keeps the rows `wanted`, which increase, of a `[_, width]` buffer.
fn keep_rows(buffer: &mut Vec<f32>, wanted: &[usize], width: usize) {
    for (place, &row) in wanted.iter().enumerate() {
        buffer.copy_within(row * width..(row + 1) * width, place * width);
    }
    buffer.truncate(wanted.len() * width);
}
