//! Root-mean-square normalisation over rows.
//!
//! `y = w · x / sqrt(mean(x²) + ε)` (arXiv 1910.07467). A model's per-head query and key norms use it too, with one
//! row per token and head.
//!
//! Not for: layer norm.

use crate::instruction_set::{InstructionSet, dispatched};
use crate::lanes::{LANES, Lanes};
use crate::parallel::{self, SharedOutput};
use crate::scratch;

/// Rows that one task takes.
const ROW_BLOCK: usize = 64;

/// Normalises `rows` rows of `x` into `out`; the row length is `weight.len()`.
///
/// # Panics
///
/// Panics when `x` or `out` does not hold `rows * weight.len()` values.
pub fn rms_norm(x: &[f32], rows: usize, weight: &[f32], eps: f32, out: &mut [f32]) {
    let dim = weight.len();
    let _span = tracing::trace_span!("rms_norm", rows, dim).entered();
    assert_eq!(x.len(), rows * dim, "`x` must be [rows, dim]");
    assert_eq!(out.len(), rows * dim, "`out` must be [rows, dim]");
    let set = InstructionSet::current();
    let output = SharedOutput::new(out);
    parallel::for_each(
        parallel::threads_for_elements(rows * dim),
        rows.div_ceil(ROW_BLOCK),
        |task| {
            let first = task * ROW_BLOCK * dim;
            let length = (ROW_BLOCK * dim).min(rows * dim - first);
            // SAFETY: tasks own disjoint blocks of rows.
            let out = unsafe { output.slice(first, length) };
            forward(set, &x[first..first + length], weight, eps, out);
        },
    );
}

/// `1 / sqrt(mean(x²) + ε)` of a row.
#[inline(always)]
fn inverse_root<V: Lanes>(x: &[f32], eps: f32) -> f32 {
    let mut squares = V::splat(0.0);
    for start in (0..x.len()).step_by(LANES) {
        let x = V::read(x, start, 0.0);
        squares = x.mul_add(x, squares);
    }
    1.0 / (squares.sum() / x.len() as f32 + eps).sqrt()
}

#[inline(always)]
fn forward_body<V: Lanes>(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let dim = weight.len();
    if dim == 0 {
        return;
    }
    for (x, out) in x.chunks_exact(dim).zip(out.chunks_exact_mut(dim)) {
        let inverse = V::splat(inverse_root::<V>(x, eps));
        for start in (0..dim).step_by(LANES) {
            let normal = V::read(x, start, 0.0).mul(inverse);
            V::read(weight, start, 0.0).mul(normal).write(out, start);
        }
    }
}

dispatched! {
    fn forward(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) = forward_body;
}

/// The backward pass of [`rms_norm`]: overwrites `dx` and adds to `dweight` in row order, given `dy`, the gradient by
/// the output.
///
/// # Panics
///
/// Panics when `x`, `dy` or `dx` does not hold `rows * weight.len()` values or `dweight` differs in length from
/// `weight`.
pub fn rms_norm_backward(
    x: &[f32],
    rows: usize,
    weight: &[f32],
    eps: f32,
    dy: &[f32],
    dx: &mut [f32],
    dweight: &mut [f32],
) {
    scratch::with(rows, |inverses| {
        rms_norm_input_gradient(x, rows, weight, eps, dy, dx, inverses);
        rms_norm_weight_gradient(x, rows, inverses, dy, dweight);
    });
}

/// The part of [`rms_norm_backward`] that looks at each row alone: overwrites `dx`, and `inverses` `[rows]` with
/// `1 / sqrt(mean(x²) + ε)`, which [`rms_norm_weight_gradient`] needs.
///
/// # Panics
///
/// Panics when `x`, `dy` or `dx` does not hold `rows * weight.len()` values or `inverses` not `rows`.
pub fn rms_norm_input_gradient(
    x: &[f32],
    rows: usize,
    weight: &[f32],
    eps: f32,
    dy: &[f32],
    dx: &mut [f32],
    inverses: &mut [f32],
) {
    let dim = weight.len();
    let _span = tracing::trace_span!("rms_norm_input_gradient", rows, dim).entered();
    assert_eq!(x.len(), rows * dim, "`x` must be [rows, dim]");
    assert_eq!(dy.len(), rows * dim, "`dy` must be [rows, dim]");
    assert_eq!(dx.len(), rows * dim, "`dx` must be [rows, dim]");
    assert_eq!(inverses.len(), rows, "`inverses` must be [rows]");
    let set = InstructionSet::current();
    let output = SharedOutput::new(dx);
    let shared_inverses = SharedOutput::new(inverses);
    let threads = parallel::threads_for_elements(rows * dim);
    parallel::for_each(threads, rows.div_ceil(ROW_BLOCK), |task| {
        let row = task * ROW_BLOCK;
        let count = ROW_BLOCK.min(rows - row);
        let range = row * dim..(row + count) * dim;
        // SAFETY: tasks own disjoint blocks of rows.
        let (dx, inverses) = unsafe {
            (
                output.slice(range.start, range.len()),
                shared_inverses.slice(row, count),
            )
        };
        backward(set, &x[range.clone()], weight, eps, &dy[range], dx, inverses);
    });
}

/// Adds to `dweight` `[dim]` the gradient by the norm's weight, each element a chain in row order from its present
/// value, so splitting the rows over several calls gives the same bits.
///
/// # Panics
///
/// Panics when `x` or `dy` does not hold `rows * dweight.len()` values or `inverses` not `rows`.
pub fn rms_norm_weight_gradient(x: &[f32], rows: usize, inverses: &[f32], dy: &[f32], dweight: &mut [f32]) {
    let dim = dweight.len();
    let _span = tracing::trace_span!("rms_norm_weight_gradient", rows, dim).entered();
    assert_eq!(x.len(), rows * dim, "`x` must be [rows, dim]");
    assert_eq!(dy.len(), rows * dim, "`dy` must be [rows, dim]");
    assert_eq!(inverses.len(), rows, "`inverses` must be [rows]");
    let set = InstructionSet::current();
    let threads = parallel::threads_for_elements(rows * dim);
    let strip = dim.div_ceil(threads).next_multiple_of(LANES).max(LANES);
    let dweight = SharedOutput::new(dweight);
    parallel::for_each(threads, dim.div_ceil(strip), |task| {
        let first = task * strip;
        // SAFETY: tasks own disjoint strips of columns.
        let dweight = unsafe { dweight.slice(first, strip.min(dim - first)) };
        weight_gradient(set, x, dim, first, inverses, dy, dweight);
    });
}

#[inline(always)]
fn backward_body<V: Lanes>(
    x: &[f32],
    weight: &[f32],
    eps: f32,
    dy: &[f32],
    dx: &mut [f32],
    inverses: &mut [f32],
) {
    let dim = weight.len();
    if dim == 0 {
        return;
    }
    let rows = x
        .chunks_exact(dim)
        .zip(dy.chunks_exact(dim))
        .zip(dx.chunks_exact_mut(dim));
    for (((x, dy), dx), inverse) in rows.zip(inverses) {
        *inverse = inverse_root::<V>(x, eps);
        // With n = x/rms: dx = (w·dy - n · mean(w·dy·n)) / rms.
        let mut products = V::splat(0.0);
        for start in (0..dim).step_by(LANES) {
            let scaled = V::read(weight, start, 0.0).mul(V::read(dy, start, 0.0));
            products = scaled.mul_add(V::read(x, start, 0.0), products);
        }
        let scale = V::splat(*inverse);
        let shift = V::splat(-(products.sum() / dim as f32 * *inverse * *inverse));
        for start in (0..dim).step_by(LANES) {
            let scaled = V::read(weight, start, 0.0).mul(V::read(dy, start, 0.0));
            V::read(x, start, 0.0)
                .mul_add(shift, scaled)
                .mul(scale)
                .write(dx, start);
        }
    }
}

dispatched! {
    fn backward(x: &[f32], weight: &[f32], eps: f32, dy: &[f32], dx: &mut [f32], inverses: &mut [f32]) = backward_body;
}

/// Adds the weight gradient of columns `first..first + dweight.len()`.
#[inline(always)]
fn weight_gradient_body<V: Lanes>(
    x: &[f32],
    dim: usize,
    first: usize,
    inverses: &[f32],
    dy: &[f32],
    dweight: &mut [f32],
) {
    let width = dweight.len();
    for (row, inverse) in inverses.iter().enumerate() {
        let range = row * dim + first..row * dim + first + width;
        let (x, dy) = (&x[range.clone()], &dy[range]);
        for start in (0..width).step_by(LANES) {
            let normal = V::read(x, start, 0.0).mul(V::splat(*inverse));
            V::read(dy, start, 0.0)
                .mul_add(normal, V::read(dweight, start, 0.0))
                .write(dweight, start);
        }
    }
}

dispatched! {
    fn weight_gradient(x: &[f32], dim: usize, first: usize, inverses: &[f32], dy: &[f32], dweight: &mut [f32]) = weight_gradient_body;
}
