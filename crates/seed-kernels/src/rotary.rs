//! Rotary position embedding (arXiv 2104.09864) in the "rotate half" pairing: elements `i` and `i + head_dim / 2` of a
//! head turn together.
//!
//! Not for: computing the frequencies, which depend on a model's configuration.

use crate::instruction_set::{InstructionSet, dispatched};
use crate::lanes::{LANES, Lanes};
use crate::math;
use crate::parallel::{self, SharedOutput};

/// Cosines and sines for every position and frequency.
#[derive(Clone, Debug)]
pub struct RotaryTable {
    inverse_frequencies: Vec<f32>,
    attention_scaling: f32,
    /// `[positions, frequencies]`.
    cosines: Vec<f32>,
    sines: Vec<f32>,
}

impl RotaryTable {
    /// A table for positions `0..positions`. `inverse_frequencies` holds `head_dim / 2` values in radians per
    /// position; `attention_scaling` multiplies all cosines and sines (1 except for YaRN and its kin).
    ///
    /// Angles are products in `f32`, as in Hugging Face's implementation; their cosines and sines are computed in
    /// double precision.
    pub fn new(inverse_frequencies: &[f32], attention_scaling: f32, positions: usize) -> Self {
        let mut table = Self {
            inverse_frequencies: inverse_frequencies.to_vec(),
            attention_scaling,
            cosines: Vec::new(),
            sines: Vec::new(),
        };
        table.ensure(positions);
        table
    }

    /// Grows the table to at least `positions` positions.
    pub fn ensure(&mut self, positions: usize) {
        for position in self.positions()..positions {
            for frequency in &self.inverse_frequencies {
                let (sine, cosine) = math::sin_cos(f64::from(position as f32 * frequency));
                self.cosines.push(cosine as f32 * self.attention_scaling);
                self.sines.push(sine as f32 * self.attention_scaling);
            }
        }
    }

    /// Number of positions covered.
    pub fn positions(&self) -> usize {
        if self.inverse_frequencies.is_empty() {
            0
        } else {
            self.cosines.len() / self.inverse_frequencies.len()
        }
    }
}

/// Rotates every head of `x` `[rows, heads * head_dim]` by its row's position.
///
/// # Panics
///
/// Panics when `x` does not hold `rows * heads * head_dim` values, `positions` does not hold `rows`, `head_dim` is not
/// twice the table's number of frequencies, or a position is not covered by the table.
pub fn rotate(
    x: &mut [f32],
    rows: usize,
    heads: usize,
    head_dim: usize,
    positions: &[u32],
    table: &RotaryTable,
) {
    let _span = tracing::trace_span!("rotate", rows, heads, head_dim).entered();
    turn(x, rows, heads, head_dim, positions, table, 1.0);
}

/// The backward pass of [`rotate`], in place on the gradient: the transposed rotation.
///
/// # Panics
///
/// As [`rotate`].
pub fn rotate_backward(
    dx: &mut [f32],
    rows: usize,
    heads: usize,
    head_dim: usize,
    positions: &[u32],
    table: &RotaryTable,
) {
    let _span = tracing::trace_span!("rotate_backward", rows, heads, head_dim).entered();
    turn(dx, rows, heads, head_dim, positions, table, -1.0);
}

/// Rotates by the position's angle times `direction` (1 or -1).
fn turn(
    x: &mut [f32],
    rows: usize,
    heads: usize,
    head_dim: usize,
    positions: &[u32],
    table: &RotaryTable,
    direction: f32,
) {
    let half = table.inverse_frequencies.len();
    assert_eq!(
        x.len(),
        rows * heads * head_dim,
        "`x` must be [rows, heads * head_dim]"
    );
    assert_eq!(positions.len(), rows, "`positions` must have one entry per row");
    assert_eq!(
        head_dim,
        2 * half,
        "`head_dim` must be twice the number of frequencies"
    );
    if x.is_empty() {
        return;
    }
    let set = InstructionSet::current();
    let width = heads * head_dim;
    let threads = parallel::threads_for_elements(x.len());
    let block = rows.div_ceil(threads * 2);
    let output = SharedOutput::new(x);
    parallel::for_each(threads, rows.div_ceil(block), |task| {
        let first = task * block;
        let positions = &positions[first..rows.min(first + block)];
        // SAFETY: tasks own disjoint blocks of rows.
        let x = unsafe { output.slice(first * width, positions.len() * width) };
        turn_rows(set, x, head_dim, positions, table, direction);
    });
}

#[inline(always)]
fn turn_rows_body<V: Lanes>(
    x: &mut [f32],
    head_dim: usize,
    positions: &[u32],
    table: &RotaryTable,
    direction: f32,
) {
    let half = head_dim / 2;
    let width = x.len() / positions.len();
    for (row, position) in x.chunks_exact_mut(width).zip(positions) {
        let range = *position as usize * half..(*position as usize + 1) * half;
        let (cosines, sines) = (&table.cosines[range.clone()], &table.sines[range]);
        for head in row.chunks_exact_mut(head_dim) {
            let (low, high) = head.split_at_mut(half);
            for start in (0..half).step_by(LANES) {
                let cosine = V::read(cosines, start, 0.0);
                let sine = V::read(sines, start, 0.0).mul(V::splat(direction));
                let (a, b) = (V::read(low, start, 0.0), V::read(high, start, 0.0));
                let minus_b = V::splat(0.0).sub(b);
                minus_b.mul_add(sine, a.mul(cosine)).write(low, start);
                a.mul_add(sine, b.mul(cosine)).write(high, start);
            }
        }
    }
}

dispatched! {
    fn turn_rows(x: &mut [f32], head_dim: usize, positions: &[u32], table: &RotaryTable, direction: f32) = turn_rows_body;
}
