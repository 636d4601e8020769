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
use seed_kernels::parallel;
use seed_kernels::rotary::rotate_backward;
use seed_kernels::swiglu::{swiglu, swiglu_backward};

use crate::buffers::Part;
use crate::gradients::Gradients;
use crate::layer::{LayerActivations, LayerContext, LayerScratch, copy_into, sized};
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
    caches: &[Vec<KeyValueCache>],
    slot: usize,
    activations: &LayerActivations,
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

    // MLP: x2 = x1 + down(silu(gate(n)) * up(n)), n = norm(x1). The norm and the product are cheap to compute again.
    copy_into(&mut scratch.down, derivative);
    let activated = sized(&mut forward_scratch.activated, rows * intermediate);
    swiglu(&activations.gate, &activations.up, activated);
    keep_input(activated, rows, intermediate, &mut scratch.down_input);
    let d_activated = sized(&mut scratch.activated, rows * intermediate);
    matmul(derivative, rows, &transposed.down, d_activated, false);
    let d_gate = sized(&mut scratch.gate, rows * intermediate);
    let d_up = sized(&mut scratch.up, rows * intermediate);
    swiglu_backward(&activations.gate, &activations.up, d_activated, d_gate, d_up);
    let normed = sized(&mut forward_scratch.normed, rows * hidden);
    let middle_norm = parameters.get(layout.middle_norm);
    rms_norm(&activations.middle, rows, middle_norm, *epsilon, normed);
    keep_input(normed, rows, hidden, &mut scratch.gate_input);
    let d_normed = sized(&mut scratch.middle_normed, rows * hidden);
    matmul(d_gate, rows, &transposed.gate, d_normed, false);
    matmul(d_up, rows, &transposed.up, d_normed, true);
    let residual = sized(&mut scratch.residual, rows * hidden);
    rms_norm_input_gradient(
        &activations.middle,
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
    rms_norm(&activations.input, rows, input_norm, *epsilon, normed);
    keep_input(normed, rows, hidden, &mut scratch.query_input);
    attention_derivatives(
        context,
        transposed,
        caches,
        slot,
        activations,
        derivative,
        scratch,
    );
    let d_normed = sized(&mut scratch.input_normed, rows * hidden);
    matmul(&scratch.query, rows, &transposed.query, d_normed, false);
    matmul(&scratch.key, rows, &transposed.key, d_normed, true);
    matmul(&scratch.value, rows, &transposed.value, d_normed, true);
    let residual = sized(&mut scratch.residual, rows * hidden);
    rms_norm_input_gradient(
        &activations.input,
        rows,
        input_norm,
        *epsilon,
        d_normed,
        residual,
        sized(&mut scratch.input_inverses, rows),
    );
    add_assign(derivative, residual);
}

/// Derivatives with respect to the outputs of the query, key and value projections, left in `scratch.query`,
/// `scratch.key` and `scratch.value`.
fn attention_derivatives(
    context: &LayerContext<'_>,
    transposed: &PackedLayer,
    caches: &[Vec<KeyValueCache>],
    slot: usize,
    activations: &LayerActivations,
    derivative: &[f32],
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
    keep_input(
        &activations.attended,
        rows,
        query_width,
        &mut scratch.output_input,
    );
    let d_attended = sized(&mut scratch.attended, rows * query_width);
    matmul(derivative, rows, &transposed.output, d_attended, false);
    let d_attended = &*d_attended;
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
                Pack::of(segment, &activations.query, query_width),
                segment.rows.len(),
                &caches[slot],
                Pack::of(segment, &activations.attended, query_width),
                Pack::of(segment, &activations.log_sum_exp, heads),
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
        &activations.query_raw,
        rows * heads,
        parameters.get(query_norm),
        *epsilon,
        &scratch.query_normed,
        sized(&mut scratch.query, rows * query_width),
        sized(&mut scratch.query_inverses, rows * heads),
    );
    rms_norm_input_gradient(
        &activations.key_raw,
        rows * key_heads,
        parameters.get(key_norm),
        *epsilon,
        &scratch.key_normed,
        sized(&mut scratch.key, rows * key_width),
        sized(&mut scratch.key_inverses, rows * key_heads),
    );
}

/// A linear layer with its derivative and its packed input in a part's buffers.
type LinearGradient<'a> = (
    &'a Linear,
    fn(&BackwardScratch) -> &[f32],
    fn(&BackwardScratch) -> &[f32],
);

/// Of one part, a norm's input, what it divided by, and the derivative by its output.
type NormPart<'a> = (&'a [f32], &'a [f32], &'a [f32]);

/// A norm's weight with its parts.
type NormGradient<'a> = (usize, Vec<NormPart<'a>>);

/// Accumulates the gradients of all parameters of layer number `layer`, part after part, from what [`backward`] left.
pub(crate) fn accumulate_parameters(
    layout: &LayerLayout,
    layer: usize,
    parts: &[Part],
    recompute: bool,
    gradients: &mut Gradients,
) {
    let rows: usize = parts.iter().map(|part| part.pack.rows()).sum();
    let _span = tracing::debug_span!("parameter_gradients", rows).entered();
    let linears: [LinearGradient<'_>; 7] = [
        (
            &layout.down,
            |scratch| &scratch.down,
            |scratch| &scratch.down_input,
        ),
        (
            &layout.gate,
            |scratch| &scratch.gate,
            |scratch| &scratch.gate_input,
        ),
        (&layout.up, |scratch| &scratch.up, |scratch| &scratch.gate_input),
        (
            &layout.output,
            |scratch| &scratch.output,
            |scratch| &scratch.output_input,
        ),
        (
            &layout.query,
            |scratch| &scratch.query,
            |scratch| &scratch.query_input,
        ),
        (
            &layout.key,
            |scratch| &scratch.key,
            |scratch| &scratch.query_input,
        ),
        (
            &layout.value,
            |scratch| &scratch.value,
            |scratch| &scratch.query_input,
        ),
    ];
    let products: Vec<(&Linear, Vec<OuterPart<'_>>)> = linears
        .into_iter()
        .map(|(linear, derivative, input)| {
            let parts = parts
                .iter()
                .map(|part| OuterPart {
                    dy: derivative(&part.backward),
                    x: input(&part.backward),
                    rows: part.pack.rows(),
                })
                .collect();
            (linear, parts)
        })
        .collect();

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
    for (weight, parts) in norm_gradients(layout, layer, parts, recompute) {
        let weight = take(weight);
        tasks.push(Box::new(move || {
            for (x, inverses, dy) in &parts {
                rms_norm_weight_gradient(x, inverses.len(), inverses, dy, weight);
            }
        }));
    }
    parallel::for_each_mut(&mut tasks, |_, task| task());
}

fn norm_gradients<'a>(
    layout: &LayerLayout,
    layer: usize,
    parts: &'a [Part],
    recompute: bool,
) -> Vec<NormGradient<'a>> {
    let of_parts = |gradient: fn(&'a LayerActivations, &'a BackwardScratch) -> NormPart<'a>| {
        parts
            .iter()
            .map(|part| {
                let activations = if recompute {
                    &part.workspace.activations
                } else {
                    &part.layers[layer]
                };
                gradient(activations, &part.backward)
            })
            .collect()
    };
    let mut norms: Vec<NormGradient<'a>> = vec![
        (
            layout.middle_norm,
            of_parts(|kept, scratch| (&kept.middle, &scratch.middle_inverses, &scratch.middle_normed)),
        ),
        (
            layout.input_norm,
            of_parts(|kept, scratch| (&kept.input, &scratch.input_inverses, &scratch.input_normed)),
        ),
    ];
    if let Some((query, key)) = layout.query_key_norm {
        norms.push((
            query,
            of_parts(|kept, scratch| (&kept.query_raw, &scratch.query_inverses, &scratch.query_normed)),
        ));
        norms.push((
            key,
            of_parts(|kept, scratch| (&kept.key_raw, &scratch.key_inverses, &scratch.key_normed)),
        ));
    }
    norms
}
