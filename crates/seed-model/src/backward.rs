//! Backward pass of one decoder layer over some sequences of a pack, and the gradients of its parameters over all.
//!
//! The first looks at each sequence alone, so parts of a pack go side by side. Parameter gradients are then accumulated
//! row after row in the pack's order, each element as one chain which starts from the value already there; so it does
//! not matter how a list of sequences was cut into packs and parts. Not for: the order of layers, the loss, or the
//! output matrix, which belong to the decoder.

use seed_kernels::attention::{KeyValueCache, attention_backward};
use seed_kernels::matmul::{
    OuterPart, accumulate_outer_strip, accumulate_rows, matmul, pack_outer_input, packed_outer_length,
    strip_features,
};
use seed_kernels::norm::{rms_norm, rms_norm_input_gradient, rms_norm_weight_gradient};
use seed_kernels::optimiser::scale;
use seed_kernels::parallel;
use seed_kernels::rotary::rotate_backward;
use seed_kernels::swiglu::{swiglu, swiglu_backward};

use crate::activations::LayerActivations;
use crate::adapter::{LayerAdapter, LayerPairs, Target};
use crate::buffers::Lane;
use crate::gradients::Gradients;
use crate::layer::{LayerContext, LayerScratch, copy_into, sized};
use crate::pack::Pack;
use crate::weights::{LayerLayout, Linear, PackedLayer};

/// Elements per task of the element-wise additions.
const CHUNK: usize = 1 << 14;

/// Derivatives of one layer. What the gradients of its parameters are made of stays until the next layer.
#[derive(Default)]
pub(crate) struct BackwardScratch {
    activated: Vec<f32>,
    residual: Vec<f32>,
    attended: Vec<f32>,
    /// With respect to the outputs of the linear layers.
    down: Vec<f32>,
    gate: Vec<f32>,
    up: Vec<f32>,
    output: Vec<f32>,
    query: Vec<f32>,
    key: Vec<f32>,
    value: Vec<f32>,
    /// With respect to queries and keys after their per-head norm, where there is one.
    query_normed: Vec<f32>,
    key_normed: Vec<f32>,
    /// With respect to the outputs of the two norms, and what those divided by.
    middle_normed: Vec<f32>,
    input_normed: Vec<f32>,
    middle_inverses: Vec<f32>,
    input_inverses: Vec<f32>,
    query_inverses: Vec<f32>,
    key_inverses: Vec<f32>,
    /// Inputs of the linear layers, laid out for the products with the derivatives.
    down_input: Vec<f32>,
    gate_input: Vec<f32>,
    output_input: Vec<f32>,
    query_input: Vec<f32>,
    /// By [`Target::index`].
    pairs: [PairScratch; Target::ALL.len()],
}

/// What the gradients of an adapter's two matrices are made of, besides the derivative and the input of the linear layer.
#[derive(Default)]
struct PairScratch {
    /// Derivative with respect to `x·Aᵀ`.
    lowered: Vec<f32>,
    /// `s·(x·Aᵀ)`, laid out for the product with the derivative.
    input: Vec<f32>,
}

impl BackwardScratch {
    /// Derivative with respect to the output of a linear layer.
    fn derivative(&self, target: Target) -> &[f32] {
        match target {
            Target::Query => &self.query,
            Target::Key => &self.key,
            Target::Value => &self.value,
            Target::Output => &self.output,
            Target::Gate => &self.gate,
            Target::Up => &self.up,
            Target::Down => &self.down,
        }
    }

    /// Input of a linear layer, laid out.
    fn input(&self, target: Target) -> &[f32] {
        match target {
            Target::Query | Target::Key | Target::Value => &self.query_input,
            Target::Output => &self.output_input,
            Target::Gate | Target::Up => &self.gate_input,
            Target::Down => &self.down_input,
        }
    }
}

/// A layer's adapter in both directions.
#[derive(Clone, Copy)]
struct AdapterPass<'a> {
    forward: LayerAdapter<'a>,
    backward: LayerAdapter<'a>,
}

impl AdapterPass<'_> {
    /// Whether any of `targets` has an adapter.
    fn covers(&self, targets: &[Target]) -> bool {
        targets.iter().any(|&target| self.forward.pair(target).is_some())
    }

    /// Continues from the derivative `dy` by a linear layer's output to the adapter's, for the layer's input `x`:
    /// `dx += s·(dy·B)·A`, and `kept` holds what the gradients of `A` and `B` are made of.
    fn backward(
        &self,
        target: Target,
        dy: &[f32],
        x: &[f32],
        rows: usize,
        dx: &mut [f32],
        lowered: &mut Vec<f32>,
        kept: &mut PairScratch,
    ) {
        let (Some(forward), Some(backward)) = (self.forward.pair(target), self.backward.pair(target)) else {
            return;
        };
        let rank = forward.lower.columns();
        // Cheap to compute again: the rank is small.
        self.forward.lower(forward, x, rows, lowered);
        keep_input(lowered, rows, rank, &mut kept.input);
        let d_lowered = sized(&mut kept.lowered, rows * rank);
        matmul(dy, rows, &backward.raise, d_lowered, false);
        scale(d_lowered, self.backward.scale());
        matmul(d_lowered, rows, &backward.lower, dx, true);
    }
}

/// `sum += values`, element by element.
fn add_assign(sum: &mut [f32], values: &[f32]) {
    let _span = tracing::trace_span!("add_assign", values = values.len()).entered();
    let mut chunks: Vec<_> = sum.chunks_mut(CHUNK).zip(values.chunks(CHUNK)).collect();
    parallel::for_each_mut(&mut chunks, |_, (sum, values)| {
        for (sum, value) in sum.iter_mut().zip(*values) {
            *sum += value;
        }
    });
}

/// Keeps the input of a linear layer for the gradient of its weight.
fn keep_input(x: &[f32], rows: usize, inputs: usize, kept: &mut Vec<f32>) {
    pack_outer_input(x, rows, inputs, sized(kept, packed_outer_length(rows, inputs)));
}

/// Turns `derivative`, with respect to the layer's output, into that with respect to its input, in place, and leaves in
/// `scratch` what [`accumulate_parameters`] needs.
///
/// `transposed` holds the matrices packed for the backward direction, `caches[s][slot]` the keys and values of
/// segment `s`, `activations` what [`crate::layer::forward`] kept.
pub(crate) fn backward(
    context: &LayerContext<'_>,
    transposed: &PackedLayer,
    adapter: Option<LayerAdapter<'_>>,
    caches: &[Vec<KeyValueCache>],
    slot: usize,
    activations: &LayerActivations<'_>,
    derivative: &mut [f32],
    forward_scratch: &mut LayerScratch,
    scratch: &mut BackwardScratch,
) {
    let LayerContext {
        epsilon,
        parameters,
        layout,
        pack,
        ..
    } = context;
    let rows = pack.rows();
    let (hidden, intermediate) = (context.hidden_size, context.intermediate_size);

    let adapter = context
        .adapter
        .zip(adapter)
        .map(|(forward, backward)| AdapterPass { forward, backward });
    // The gradient of a frozen matrix is not asked for, and neither is its input, unless an adapter reads it too.
    let keeps = |targets: &[Target]| adapter.is_none_or(|adapter| adapter.covers(targets));

    // MLP: x2 = x1 + down(silu(gate(n)) * up(n)), n = norm(x1). The norm and the product are cheap to compute again.
    copy_into(&mut scratch.down, derivative);
    let activated = sized(&mut forward_scratch.activated, rows * intermediate);
    swiglu(activations.gate, activations.up, activated);
    if keeps(&[Target::Down]) {
        keep_input(activated, rows, intermediate, &mut scratch.down_input);
    }
    let d_activated = sized(&mut scratch.activated, rows * intermediate);
    matmul(derivative, rows, &transposed.down, d_activated, false);
    let lowered = &mut forward_scratch.lowered;
    let pairs = &mut scratch.pairs;
    if let Some(adapter) = &adapter {
        let kept = &mut pairs[Target::Down.index()];
        adapter.backward(
            Target::Down,
            derivative,
            activated,
            rows,
            d_activated,
            lowered,
            kept,
        );
    }
    let d_gate = sized(&mut scratch.gate, rows * intermediate);
    let d_up = sized(&mut scratch.up, rows * intermediate);
    swiglu_backward(activations.gate, activations.up, d_activated, d_gate, d_up);
    let normed = sized(&mut forward_scratch.normed, rows * hidden);
    let middle_norm = parameters.get(layout.middle_norm);
    rms_norm(activations.middle, rows, middle_norm, *epsilon, normed);
    if keeps(&[Target::Gate, Target::Up]) {
        keep_input(normed, rows, hidden, &mut scratch.gate_input);
    }
    let d_normed = sized(&mut scratch.middle_normed, rows * hidden);
    matmul(d_gate, rows, &transposed.gate, d_normed, false);
    matmul(d_up, rows, &transposed.up, d_normed, true);
    if let Some(adapter) = &adapter {
        for (target, dy) in [(Target::Gate, &*d_gate), (Target::Up, &*d_up)] {
            let kept = &mut pairs[target.index()];
            adapter.backward(target, dy, normed, rows, d_normed, lowered, kept);
        }
    }
    let residual = sized(&mut scratch.residual, rows * hidden);
    rms_norm_input_gradient(
        activations.middle,
        rows,
        middle_norm,
        *epsilon,
        d_normed,
        residual,
        sized(&mut scratch.middle_inverses, rows),
    );
    add_assign(derivative, residual);

    // Attention: x1 = x0 + output(attention(q, k, v)), all from n = norm(x0).
    copy_into(&mut scratch.output, derivative);
    let normed = sized(&mut forward_scratch.normed, rows * hidden);
    let input_norm = parameters.get(layout.input_norm);
    rms_norm(activations.input, rows, input_norm, *epsilon, normed);
    if keeps(&[Target::Query, Target::Key, Target::Value]) {
        keep_input(normed, rows, hidden, &mut scratch.query_input);
    }
    if keeps(&[Target::Output]) {
        let width = context.query_width();
        keep_input(activations.attended, rows, width, &mut scratch.output_input);
    }
    let d_attended = sized(&mut scratch.attended, rows * context.query_width());
    matmul(derivative, rows, &transposed.output, d_attended, false);
    let lowered = &mut forward_scratch.lowered;
    if let Some(adapter) = &adapter {
        let kept = &mut scratch.pairs[Target::Output.index()];
        let x = &*activations.attended;
        adapter.backward(Target::Output, derivative, x, rows, d_attended, lowered, kept);
    }
    attention_derivatives(context, caches, slot, activations, scratch);
    let d_normed = sized(&mut scratch.input_normed, rows * hidden);
    matmul(&scratch.query, rows, &transposed.query, d_normed, false);
    matmul(&scratch.key, rows, &transposed.key, d_normed, true);
    matmul(&scratch.value, rows, &transposed.value, d_normed, true);
    if let Some(adapter) = &adapter {
        let derivatives = [
            (Target::Query, &scratch.query),
            (Target::Key, &scratch.key),
            (Target::Value, &scratch.value),
        ];
        for (target, dy) in derivatives {
            let kept = &mut scratch.pairs[target.index()];
            adapter.backward(target, dy, normed, rows, d_normed, lowered, kept);
        }
    }
    let residual = sized(&mut scratch.residual, rows * hidden);
    rms_norm_input_gradient(
        activations.input,
        rows,
        input_norm,
        *epsilon,
        d_normed,
        residual,
        sized(&mut scratch.input_inverses, rows),
    );
    add_assign(derivative, residual);
}

/// From the derivative by what attention makes, in `scratch.attended`, to those by the outputs of the query, key and value
/// projections, left in `scratch.query`, `scratch.key` and `scratch.value`.
fn attention_derivatives(
    context: &LayerContext<'_>,
    caches: &[Vec<KeyValueCache>],
    slot: usize,
    activations: &LayerActivations<'_>,
    scratch: &mut BackwardScratch,
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
    let d_attended = scratch.attended.as_slice();
    let d_query = sized(&mut scratch.query, rows * query_width);
    let d_key = sized(&mut scratch.key, rows * key_width);
    let d_value = sized(&mut scratch.value, rows * key_width);
    let attend = tracing::trace_span!("attend_backward", rows, sequences = pack.segments.len()).entered();
    let mut segments: Vec<_> = pack
        .segments
        .iter()
        .zip(caches)
        .zip(pack.split(d_query, query_width))
        .zip(pack.split(d_key, key_width))
        .zip(pack.split(d_value, key_width))
        .collect();
    parallel::for_each_mut(
        &mut segments,
        |_, ((((segment, caches), d_query), d_key), d_value)| {
            attention_backward(
                Pack::of(segment, activations.query, query_width),
                segment.rows.len(),
                &caches[slot],
                Pack::of(segment, activations.attended, query_width),
                Pack::of(segment, activations.log_sum_exp, heads),
                Pack::of(segment, d_attended, query_width),
                shape,
                d_query,
                d_key,
                d_value,
            );
        },
    );
    attend.exit();
    rotate_backward(d_query, rows, heads, head_dim, &pack.positions, rotary);
    rotate_backward(d_key, rows, key_heads, head_dim, &pack.positions, rotary);
    let Some((query_norm, key_norm)) = layout.query_key_norm else {
        return;
    };
    std::mem::swap(&mut scratch.query, &mut scratch.query_normed);
    std::mem::swap(&mut scratch.key, &mut scratch.key_normed);
    rms_norm_input_gradient(
        activations.query_raw,
        rows * heads,
        parameters.get(query_norm),
        *epsilon,
        &scratch.query_normed,
        sized(&mut scratch.query, rows * query_width),
        sized(&mut scratch.query_inverses, rows * heads),
    );
    rms_norm_input_gradient(
        activations.key_raw,
        rows * key_heads,
        parameters.get(key_norm),
        *epsilon,
        &scratch.key_normed,
        sized(&mut scratch.key, rows * key_width),
        sized(&mut scratch.key_inverses, rows * key_heads),
    );
}

/// Of one part, a norm's input, what it divided by, and the derivative by its output.
type NormPart<'a> = (&'a [f32], &'a [f32], &'a [f32]);

/// A norm's weight with its parts.
type NormGradient<'a> = (usize, Vec<NormPart<'a>>);

/// What of a layer is trained.
pub(crate) enum Trained<'a> {
    /// All its parameters.
    Layer(&'a LayerLayout),
    /// The adapter beside its matrices.
    Adapter(&'a LayerPairs),
}

impl<'a> Trained<'a> {
    /// Every trained matrix and, of each part, the derivative by its output and its input as laid out.
    fn products(&self, lanes: &'a [Lane<'_>]) -> Vec<(&'a Linear, Vec<OuterPart<'a>>)> {
        let of_parts = |operands: &dyn Fn(&'a BackwardScratch) -> (&'a [f32], &'a [f32])| {
            lanes
                .iter()
                .map(|Lane { part, .. }| {
                    let (dy, x) = operands(&part.backward);
                    let rows = part.pack.rows();
                    OuterPart { dy, x, rows }
                })
                .collect()
        };
        match *self {
            Self::Layer(layout) => Target::ALL
                .into_iter()
                .rev()
                .map(|target| {
                    let operands = of_parts(&|scratch| (scratch.derivative(target), scratch.input(target)));
                    (layout.linear(target), operands)
                })
                .collect(),
            Self::Adapter(pairs) => Target::ALL
                .into_iter()
                .filter_map(|target| Some((target, pairs[target.index()].as_ref()?)))
                .flat_map(|(target, pair)| {
                    let kept = move |scratch: &'a BackwardScratch| &scratch.pairs[target.index()];
                    let lower =
                        of_parts(&|scratch| (kept(scratch).lowered.as_slice(), scratch.input(target)));
                    let raise =
                        of_parts(&|scratch| (scratch.derivative(target), kept(scratch).input.as_slice()));
                    [(&pair.lower, lower), (&pair.raise, raise)]
                })
                .collect(),
        }
    }
}

/// Accumulates the gradients of what is trained of layer number `layer`, part after part, from what [`backward`] left.
pub(crate) fn accumulate_parameters(
    trained: &Trained<'_>,
    layer: usize,
    lanes: &[Lane<'_>],
    gradients: &mut Gradients,
) {
    let rows: usize = lanes.iter().map(|lane| lane.part.pack.rows()).sum();
    let _span = tracing::debug_span!("parameter_gradients", rows).entered();
    let products = trained.products(lanes);

    // Every task owns a strip of one tensor, and there are several to a thread, so that none waits for long.
    let mut tensors: Vec<Option<&mut [f32]>> = gradients.split_mut().into_iter().map(Some).collect();
    let mut take = |index: usize| -> &mut [f32] { tensors[index].take().unwrap_or_default() };
    let mut tasks: Vec<Box<dyn FnMut() + Send + '_>> = Vec::new();
    for (linear, parts) in &products {
        let features = strip_features(parallel::threads(), linear.outputs);
        let strips = take(linear.weight).chunks_mut(features * linear.inputs);
        for (index, strip) in strips.enumerate() {
            tasks.push(Box::new(move || {
                accumulate_outer_strip(parts, linear.outputs, linear.inputs, index * features, strip);
            }));
        }
        if let Some(bias) = linear.bias {
            let bias = take(bias);
            tasks.push(Box::new(move || {
                for part in parts {
                    accumulate_rows(part.dy, part.rows, bias);
                }
            }));
        }
    }
    let norms = match trained {
        Trained::Layer(layout) => norm_gradients(layout, layer, lanes),
        Trained::Adapter(_) => Vec::new(),
    };
    for (weight, parts) in norms {
        let weight = take(weight);
        tasks.push(Box::new(move || {
            for (x, inverses, dy) in &parts {
                rms_norm_weight_gradient(x, inverses.len(), inverses, dy, weight);
            }
        }));
    }
    parallel::for_each_mut(&mut tasks, |_, task| task());
}

fn norm_gradients<'a>(layout: &LayerLayout, layer: usize, lanes: &'a [Lane<'_>]) -> Vec<NormGradient<'a>> {
    let of_parts = |gradient: fn(&'a LayerActivations<'_>, &'a BackwardScratch) -> NormPart<'a>| {
        lanes
            .iter()
            .map(|Lane { part, kept }| gradient(kept.layer(layer), &part.backward))
            .collect()
    };
    let mut norms: Vec<NormGradient<'a>> = vec![
        (
            layout.middle_norm,
            of_parts(|kept, scratch| (&*kept.middle, &scratch.middle_inverses, &scratch.middle_normed)),
        ),
        (
            layout.input_norm,
            of_parts(|kept, scratch| (&*kept.input, &scratch.input_inverses, &scratch.input_normed)),
        ),
    ];
    if let Some((query, key)) = layout.query_key_norm {
        norms.push((
            query,
            of_parts(|kept, scratch| (&*kept.query_raw, &scratch.query_inverses, &scratch.query_normed)),
        ));
        norms.push((
            key,
            of_parts(|kept, scratch| (&*kept.key_raw, &scratch.key_inverses, &scratch.key_normed)),
        ));
    }
    norms
}
