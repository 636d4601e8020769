//! The gated activation `silu(gate) · up` (arXiv 2002.05202) of a decoder's feed-forward layer.
//!
//! Not for: the linear layers around it.

use crate::instruction_set::{InstructionSet, dispatched};
use crate::lanes::{LANES, Lanes};
use crate::math::sigmoid_lanes;
use crate::parallel::{self, SharedOutput};

/// Values that one task takes.
const BLOCK: usize = 1 << 13;

/// `out = gate · sigmoid(gate) · up`, element by element.
///
/// # Panics
///
/// Panics when the slices differ in length.
pub fn swiglu(gate: &[f32], up: &[f32], out: &mut [f32]) {
    let count = gate.len();
    let _span = tracing::trace_span!("swiglu", values = count).entered();
    assert_eq!(up.len(), count, "`up` must be as long as `gate`");
    assert_eq!(out.len(), count, "`out` must be as long as `gate`");
    let set = InstructionSet::current();
    let output = SharedOutput::new(out);
    parallel::for_each(
        parallel::threads_for_elements(count),
        count.div_ceil(BLOCK),
        |task| {
            let range = task * BLOCK..count.min((task + 1) * BLOCK);
            // SAFETY: tasks own disjoint blocks.
            let out = unsafe { output.slice(range.start, range.len()) };
            forward(set, &gate[range.clone()], &up[range], out);
        },
    );
}

#[inline(always)]
fn forward_body<V: Lanes>(gate: &[f32], up: &[f32], out: &mut [f32]) {
    for start in (0..out.len()).step_by(LANES) {
        let gate = V::read(gate, start, 0.0);
        gate.mul(sigmoid_lanes(gate))
            .mul(V::read(up, start, 0.0))
            .write(out, start);
    }
}

dispatched! {
    fn forward(gate: &[f32], up: &[f32], out: &mut [f32]) = forward_body;
}

/// The backward pass of [`swiglu`]: overwrites `dgate` and `dup`, given `dout`, the gradient by the output.
///
/// # Panics
///
/// Panics when the slices differ in length.
pub fn swiglu_backward(gate: &[f32], up: &[f32], dout: &[f32], dgate: &mut [f32], dup: &mut [f32]) {
    let count = gate.len();
    let _span = tracing::trace_span!("swiglu_backward", values = count).entered();
    assert_eq!(up.len(), count, "`up` must be as long as `gate`");
    assert_eq!(dout.len(), count, "`dout` must be as long as `gate`");
    assert_eq!(dgate.len(), count, "`dgate` must be as long as `gate`");
    assert_eq!(dup.len(), count, "`dup` must be as long as `gate`");
    let set = InstructionSet::current();
    let (dgate, dup) = (SharedOutput::new(dgate), SharedOutput::new(dup));
    parallel::for_each(
        parallel::threads_for_elements(count),
        count.div_ceil(BLOCK),
        |task| {
            let range = task * BLOCK..count.min((task + 1) * BLOCK);
            // SAFETY: tasks own disjoint blocks.
            let (dgate, dup) = unsafe {
                (
                    dgate.slice(range.start, range.len()),
                    dup.slice(range.start, range.len()),
                )
            };
            backward(
                set,
                &gate[range.clone()],
                &up[range.clone()],
                &dout[range],
                dgate,
                dup,
            );
        },
    );
}

#[inline(always)]
fn backward_body<V: Lanes>(gate: &[f32], up: &[f32], dout: &[f32], dgate: &mut [f32], dup: &mut [f32]) {
    let one = V::splat(1.0);
    for start in (0..dup.len()).step_by(LANES) {
        let gate = V::read(gate, start, 0.0);
        let dout = V::read(dout, start, 0.0);
        let sigmoid = sigmoid_lanes(gate);
        dout.mul(gate.mul(sigmoid)).write(dup, start);
        // silu'(g) = σ(g) · (1 + g · (1 - σ(g)))
        let slope = sigmoid.mul(gate.mul_add(one.sub(sigmoid), one));
        dout.mul(V::read(up, start, 0.0)).mul(slope).write(dgate, start);
    }
}

dispatched! {
    fn backward(gate: &[f32], up: &[f32], dout: &[f32], dgate: &mut [f32], dup: &mut [f32]) = backward_body;
}
