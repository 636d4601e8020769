//! Backward pass of one decoder layer over a pack of sequences.
//!
//! Parameter gradients are accumulated row after row in the pack's order, each element as one chain which starts from
//! the value already there; so it does not matter how a list of sequences was cut into packs. Not for: the order of
//! layers, the loss, or the output matrix, which belong to the decoder.

use rayon::prelude::*;
use seed_kernels::attention::{KeyValueCache, attention_backward};
use seed_kernels::matmul::{PackedMatrix, accumulate_outer, accumulate_rows, matmul};
use seed_kernels::norm::{rms_norm, rms_norm_backward};
use seed_kernels::rotary::rotate_backward;
use seed_kernels::swiglu::{swiglu, swiglu_backward};

use crate::gradients::Gradients;
use crate::layer::{LayerActivations, LayerContext, LayerScratch, sized};
use crate::pack::Pack;
use crate::weights::{Linear, PackedLayer};

/// Elements per task of the element-wise additions.
const CHUNK: usize = 1 << 14;

/// Buffers of derivatives whose content does not outlive a layer.
#[derive(Default)]
pub(crate) struct BackwardScratch {
    activated: Vec<f32>,
    gate: Vec<f32>,
    up: Vec<f32>,
    normed: Vec<f32>,
    residual: Vec<f32>,
    attended: Vec<f32>,
    query: Vec<f32>,
    key: Vec<f32>,
    value: Vec<f32>,
    query_raw: Vec<f32>,
    key_raw: Vec<f32>,
}

/// `sum += values`, element by element.
pub(crate) fn add_assign(sum: &mut [f32], values: &[f32]) {
    let _span = tracing::trace_span!("add_assign", values = values.len()).entered();
    sum.par_chunks_mut(CHUNK)
        .zip(values.par_chunks(CHUNK))
        .for_each(|(sum, values)| {
            for (sum, value) in sum.iter_mut().zip(values) {
                *sum += value;
            }
        });
}

/// Gradients of a linear layer's weight and bias, from `dy` as `[rows, outputs]` and `x` as `[rows, inputs]`.
fn linear_parameters(dy: &[f32], x: &[f32], rows: usize, linear: &Linear, gradients: &mut Gradients) {
    accumulate_outer(
        dy,
        x,
        rows,
        linear.outputs,
        linear.inputs,
        gradients.get_mut(linear.weight),
    );
    if let Some(bias) = linear.bias {
        accumulate_rows(dy, rows, gradients.get_mut(bias));
    }
}

/// Turns `derivative`, with respect to the layer's output, into that with respect to its input, in place, and
/// accumulates the layer's parameter gradients.
///
/// `transposed` holds the matrices packed for the backward direction, `caches[s][slot]` the keys and values of
/// segment `s`, `activations` what [`crate::layer::forward`] kept.
pub(crate) fn backward(
    context: &LayerContext<'_>,
    transposed: &PackedLayer,
    caches: &[&mut [KeyValueCache]],
    slot: usize,
    activations: &LayerActivations,
    derivative: &mut [f32],
    forward_scratch: &mut LayerScratch,
    scratch: &mut BackwardScratch,
    gradients: &mut Gradients,
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
    let residual = sized(&mut scratch.residual, rows * hidden);
    let d_normed = sized(&mut scratch.normed, rows * hidden);

    // MLP: x2 = x1 + down(silu(gate(n)) * up(n)), n = norm(x1). The norm and the product are cheap to compute again.
    let activated = sized(&mut forward_scratch.activated, rows * intermediate);
    swiglu(&activations.gate, &activations.up, activated);
    linear_parameters(derivative, activated, rows, &layout.down, gradients);
    let d_activated = sized(&mut scratch.activated, rows * intermediate);
    matmul(derivative, rows, &transposed.down, d_activated, false);
    let d_gate = sized(&mut scratch.gate, rows * intermediate);
    let d_up = sized(&mut scratch.up, rows * intermediate);
    swiglu_backward(&activations.gate, &activations.up, d_activated, d_gate, d_up);
    let normed = sized(&mut forward_scratch.normed, rows * hidden);
    let middle_norm = parameters.get(layout.middle_norm);
    rms_norm(&activations.middle, rows, middle_norm, *epsilon, normed);
    linear_parameters(d_gate, normed, rows, &layout.gate, gradients);
    linear_parameters(d_up, normed, rows, &layout.up, gradients);
    matmul(d_gate, rows, &transposed.gate, d_normed, false);
    matmul(d_up, rows, &transposed.up, d_normed, true);
    rms_norm_backward(
        &activations.middle,
        rows,
        middle_norm,
        *epsilon,
        d_normed,
        residual,
        gradients.get_mut(layout.middle_norm),
    );
    add_assign(derivative, residual);

    // Attention: x1 = x0 + output(attention(q, k, v)), all from n = norm(x0).
    let normed = sized(&mut forward_scratch.normed, rows * hidden);
    let input_norm = parameters.get(layout.input_norm);
    rms_norm(&activations.input, rows, input_norm, *epsilon, normed);
    attention_derivatives(
        context,
        transposed,
        caches,
        slot,
        activations,
        derivative,
        scratch,
        gradients,
    );
    let d_normed = sized(&mut scratch.normed, rows * hidden);
    for (index, (linear, packed, d_output)) in [
        (&layout.query, &transposed.query, &scratch.query),
        (&layout.key, &transposed.key, &scratch.key),
        (&layout.value, &transposed.value, &scratch.value),
    ]
    .into_iter()
    .enumerate()
    {
        linear_parameters(d_output, normed, rows, linear, gradients);
        input_derivative(d_output, rows, packed, d_normed, index > 0);
    }
    let residual = sized(&mut scratch.residual, rows * hidden);
    rms_norm_backward(
        &activations.input,
        rows,
        input_norm,
        *epsilon,
        d_normed,
        residual,
        gradients.get_mut(layout.input_norm),
    );
    add_assign(derivative, residual);
}

fn input_derivative(dy: &[f32], rows: usize, packed: &PackedMatrix, dx: &mut [f32], accumulate: bool) {
    matmul(dy, rows, packed, dx, accumulate);
}

/// Derivatives with respect to the outputs of the query, key and value projections, left in `scratch.query`,
/// `scratch.key` and `scratch.value`; accumulates the gradients of the output projection and of the per-head norms.
fn attention_derivatives(
    context: &LayerContext<'_>,
    transposed: &PackedLayer,
    caches: &[&mut [KeyValueCache]],
    slot: usize,
    activations: &LayerActivations,
    derivative: &[f32],
    scratch: &mut BackwardScratch,
    gradients: &mut Gradients,
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
    linear_parameters(derivative, &activations.attended, rows, &layout.output, gradients);
    let d_attended = sized(&mut scratch.attended, rows * query_width);
    matmul(derivative, rows, &transposed.output, d_attended, false);
    let d_attended = &*d_attended;
    let d_query = sized(&mut scratch.query, rows * query_width);
    let d_key = sized(&mut scratch.key, rows * key_width);
    let d_value = sized(&mut scratch.value, rows * key_width);
    let attend = tracing::trace_span!("attend_backward", rows, sequences = pack.segments.len()).entered();
    pack.segments
        .iter()
        .zip(caches)
        .zip(pack.split(d_query, query_width))
        .zip(pack.split(d_key, key_width))
        .zip(pack.split(d_value, key_width))
        .collect::<Vec<_>>()
        .into_par_iter()
        .for_each(|((((segment, caches), d_query), d_key), d_value)| {
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
        });
    attend.exit();
    rotate_backward(d_query, rows, heads, head_dim, &pack.positions, rotary);
    rotate_backward(d_key, rows, key_heads, head_dim, &pack.positions, rotary);
    let Some((query_norm, key_norm)) = layout.query_key_norm else {
        return;
    };
    let raw = sized(&mut scratch.query_raw, rows * query_width);
    rms_norm_backward(
        &activations.query_raw,
        rows * heads,
        parameters.get(query_norm),
        *epsilon,
        d_query,
        raw,
        gradients.get_mut(query_norm),
    );
    let raw = sized(&mut scratch.key_raw, rows * key_width);
    rms_norm_backward(
        &activations.key_raw,
        rows * key_heads,
        parameters.get(key_norm),
        *epsilon,
        d_key,
        raw,
        gradients.get_mut(key_norm),
    );
    std::mem::swap(&mut scratch.query, &mut scratch.query_raw);
    std::mem::swap(&mut scratch.key, &mut scratch.key_raw);
}
