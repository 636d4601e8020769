//! The backward pass over a whole sequence: probabilities are computed again from the saved log-sum-exp.
//!
//! Not for: sequences whose first positions carry no gradient; those rows simply have zero gradients.

use super::{AttentionShape, KeyValueCache, spread_stride};
use crate::instruction_set::{InstructionSet, dispatched};
use crate::lanes::{LANES, Lanes};
use crate::math::exp_lanes;
use crate::matmul::tile::{self, Extent, Left, Output, Present, Right};
use crate::parallel::{self, SharedOutput};
use crate::scratch;

/// Queries handled together. Part of the numeric law only in that it is one constant for every instruction set.
const TILE_QUERIES: usize = 56;

/// The backward pass of [`super::attention`] over a whole sequence (`first_position` 0, all `rows` positions in the
/// cache): overwrites `dq` `[rows, query_heads * head_dim]` and `dk`, `dv` `[rows, key_value_heads * head_dim]`.
///
/// `out` and `log_sum_exp` are the forward pass's results and `dout` the gradient by `out`. Key and value gradients are
/// chains over queries in order (row by row, head by head within a group); query gradients are chains over keys.
///
/// # Panics
///
/// Panics when a slice does not have the stated length or the cache does not hold exactly `rows` positions.
pub fn attention_backward(
    q: &[f32],
    rows: usize,
    cache: &KeyValueCache,
    out: &[f32],
    log_sum_exp: &[f32],
    dout: &[f32],
    shape: &AttentionShape,
    dq: &mut [f32],
    dk: &mut [f32],
    dv: &mut [f32],
) {
    let _span =
        tracing::trace_span!("attention_backward", rows, keys = rows, heads = shape.query_heads).entered();
    shape.check();
    let (width, key_value_width) = (shape.query_width(), shape.key_value_width());
    assert_eq!(
        cache.shape(),
        (shape.key_value_heads, shape.head_dim),
        "the cache must have the layer's shape"
    );
    assert_eq!(cache.len(), rows, "the cache must hold exactly the sequence");
    assert_eq!(
        log_sum_exp.len(),
        rows * shape.query_heads,
        "`log_sum_exp` must be [rows, query_heads]"
    );
    for (name, length) in [
        ("q", q.len()),
        ("out", out.len()),
        ("dout", dout.len()),
        ("dq", dq.len()),
    ] {
        assert_eq!(
            length,
            rows * width,
            "`{name}` must be [rows, query_heads * head_dim]"
        );
    }
    for (name, length) in [("dk", dk.len()), ("dv", dv.len())] {
        assert_eq!(
            length,
            rows * key_value_width,
            "`{name}` must be [rows, key_value_heads * head_dim]"
        );
    }
    let set = InstructionSet::current();
    let threads = parallel::threads_for(5 * rows * rows * width / 2);
    let (dq, dk, dv) = (
        SharedOutput::new(dq),
        SharedOutput::new(dk),
        SharedOutput::new(dv),
    );
    parallel::for_each(threads, shape.key_value_heads, |head| {
        let sequence = Sequence {
            q,
            rows,
            cache,
            out,
            log_sum_exp,
            dout,
            shape,
        };
        scratch::with(sequence.scratch_length(), |buffer| {
            head_backward(set, sequence, head, dq, dk, dv, buffer);
        });
    });
}

/// What the backward pass reads.
#[derive(Clone, Copy)]
struct Sequence<'a> {
    q: &'a [f32],
    rows: usize,
    cache: &'a KeyValueCache,
    out: &'a [f32],
    log_sum_exp: &'a [f32],
    dout: &'a [f32],
    shape: &'a AttentionShape,
}

impl Sequence<'_> {
    /// Values of working memory for one key-value head: four matrices by position, three by query of a tile, and two of
    /// scores.
    fn scratch_length(&self) -> usize {
        let rows = self.rows.next_multiple_of(LANES);
        let dim = self.shape.head_dim.next_multiple_of(LANES);
        4 * rows * dim + 3 * TILE_QUERIES * dim + 2 * TILE_QUERIES * spread_stride(self.rows)
    }
}

/// All gradients of one key-value head and its group of query heads.
#[inline(always)]
fn head_backward_body<V: Lanes>(
    sequence: Sequence<'_>,
    key_value_head: usize,
    dq: SharedOutput,
    dk: SharedOutput,
    dv: SharedOutput,
    buffer: &mut [f32],
) {
    let Sequence {
        q,
        rows,
        cache,
        out,
        log_sum_exp,
        dout,
        shape,
    } = sequence;
    if rows == 0 {
        return;
    }
    let dim = shape.head_dim;
    let padded_dim = dim.next_multiple_of(LANES);
    let padded_rows = rows.next_multiple_of(LANES);
    let group = shape.group();
    let keys = cache.keys(key_value_head);
    let values = cache.values(key_value_head);
    let matrix = padded_rows * padded_dim;
    let tile_matrix = TILE_QUERIES * padded_dim;
    let score_stride = spread_stride(rows);
    let tile_scores = TILE_QUERIES * score_stride;
    // Keys by position and values by dimension: the other way round from the cache.
    let (key_rows, rest) = buffer.split_at_mut(matrix);
    let (value_blocks, rest) = rest.split_at_mut(matrix);
    let (key_sums, rest) = rest.split_at_mut(matrix);
    let (value_sums, rest) = rest.split_at_mut(matrix);
    let (tile_q, rest) = rest.split_at_mut(tile_matrix);
    let (tile_dout, rest) = rest.split_at_mut(tile_matrix);
    let (tile_dq, rest) = rest.split_at_mut(tile_matrix);
    let (probabilities, rest) = rest.split_at_mut(tile_scores);
    let score_gradients = &mut rest[..tile_scores];
    for position in 0..rows {
        let (block, lane) = (position / LANES, position % LANES);
        let row = &mut key_rows[position * padded_dim..][..padded_dim];
        for (d, value) in row[..dim].iter_mut().enumerate() {
            *value = keys[(block * dim + d) * LANES + lane];
        }
        row[dim..].fill(0.0);
        for d in 0..dim {
            value_blocks[(block * dim + d) * LANES + lane] = values[position * padded_dim + d];
        }
    }
    if !rows.is_multiple_of(LANES) {
        for line in value_blocks[rows / LANES * dim * LANES..][..dim * LANES].chunks_exact_mut(LANES) {
            line[rows % LANES..].fill(0.0);
        }
    }
    key_sums.fill(0.0);
    value_sums.fill(0.0);
    let place = |index: usize| (index / group, key_value_head * group + index % group);
    let total = rows * group;
    for first in (0..total).step_by(TILE_QUERIES) {
        let count = TILE_QUERIES.min(total - first);
        for index in 0..count {
            let (row, head) = place(first + index);
            let range = row * shape.query_width() + head * dim..row * shape.query_width() + (head + 1) * dim;
            for (tile, source) in [(&mut *tile_q, q), (&mut *tile_dout, dout)] {
                let tile = &mut tile[index * padded_dim..][..padded_dim];
                tile[..dim].copy_from_slice(&source[range.clone()]);
                tile[dim..].fill(0.0);
            }
        }
        let visible = place(first + count - 1).0 + 1;
        let columns = visible.next_multiple_of(LANES);
        let by_key = |scores: &[f32]| Left {
            start: scores.as_ptr(),
            row_stride: 1,
            depth_stride: score_stride,
        };
        let by_query = |tile: &[f32]| Left {
            start: tile.as_ptr(),
            row_stride: padded_dim,
            depth_stride: 1,
        };
        let blocks = |values: &[f32]| Right {
            start: values.as_ptr(),
            depth_stride: LANES,
            vector_stride: dim * LANES,
        };
        let plain = |values: &[f32]| Right {
            start: values.as_ptr(),
            depth_stride: padded_dim,
            vector_stride: LANES,
        };
        let into = |out: &mut [f32], row_stride: usize, present: Present| Output {
            start: out.as_mut_ptr(),
            row_stride,
            present,
        };
        let scores = Extent {
            rows: count,
            columns,
            depth: dim,
        };
        let by_position = Extent {
            rows: visible,
            columns: padded_dim,
            depth: count,
        };
        // SAFETY: every operand is a scratch slice sized above for `TILE_QUERIES` queries and `padded_rows`
        // positions, or the cache's blocks, and `columns <= padded_rows`.
        unsafe {
            tile::multiply::<V>(
                scores,
                by_query(tile_q),
                blocks(keys),
                into(probabilities, score_stride, Present::Replaced),
                &mut [],
            );
            tile::multiply::<V>(
                scores,
                by_query(tile_dout),
                blocks(value_blocks),
                into(score_gradients, score_stride, Present::Replaced),
                &mut [],
            );
        }
        for index in 0..count {
            let (row, head) = place(first + index);
            let range = row * shape.query_width() + head * dim..row * shape.query_width() + (head + 1) * dim;
            let scores = index * score_stride..index * score_stride + columns;
            score_gradient::<V>(
                &mut probabilities[scores.clone()],
                &mut score_gradients[scores],
                row + 1,
                shape.scale,
                log_sum_exp[row * shape.query_heads + head],
                dot::<V>(&out[range.clone()], &dout[range]),
            );
        }
        // SAFETY: as above.
        unsafe {
            tile::multiply::<V>(
                Extent {
                    rows: count,
                    columns: padded_dim,
                    depth: visible,
                },
                Left {
                    start: score_gradients.as_ptr(),
                    row_stride: score_stride,
                    depth_stride: 1,
                },
                plain(key_rows),
                into(tile_dq, padded_dim, Present::Replaced),
                &mut [],
            );
            tile::multiply::<V>(
                by_position,
                by_key(score_gradients),
                plain(tile_q),
                into(key_sums, padded_dim, Present::Continued),
                &mut [],
            );
            tile::multiply::<V>(
                by_position,
                by_key(probabilities),
                plain(tile_dout),
                into(value_sums, padded_dim, Present::Continued),
                &mut [],
            );
        }
        for index in 0..count {
            let (row, head) = place(first + index);
            // SAFETY: each row and query head belongs to one key-value head, hence to one task.
            let dq = unsafe { dq.slice(row * shape.query_width() + head * dim, dim) };
            scaled_copy::<V>(&tile_dq[index * padded_dim..], shape.scale, dq);
        }
    }
    for position in 0..rows {
        let start = position * shape.key_value_width() + key_value_head * dim;
        // SAFETY: each position and key-value head belongs to one task.
        let (dk, dv) = unsafe { (dk.slice(start, dim), dv.slice(start, dim)) };
        scaled_copy::<V>(&key_sums[position * padded_dim..], shape.scale, dk);
        dv.copy_from_slice(&value_sums[position * padded_dim..][..dim]);
    }
}

dispatched! {
    fn head_backward(
        sequence: Sequence<'_>,
        key_value_head: usize,
        dq: SharedOutput,
        dk: SharedOutput,
        dv: SharedOutput,
        buffer: &mut [f32],
    ) = head_backward_body;
}

/// The sum of products of two slices of one length, by sixteen partial sums.
#[inline(always)]
fn dot<V: Lanes>(a: &[f32], b: &[f32]) -> f32 {
    let mut sum = V::splat(0.0);
    for start in (0..a.len()).step_by(LANES) {
        sum = V::read(a, start, 0.0).mul_add(V::read(b, start, 0.0), sum);
    }
    sum.sum()
}

/// Turns one query's raw scores into probabilities and the gradients by its probabilities into gradients by its scaled
/// scores: `ds = p · (dp - Σ out · dout)`. Both are zero from `visible` on.
#[inline(always)]
fn score_gradient<V: Lanes>(
    scores: &mut [f32],
    gradients: &mut [f32],
    visible: usize,
    scale: f32,
    log_sum_exp: f32,
    out_dot_dout: f32,
) {
    let (scale, shift, mean) = (V::splat(scale), V::splat(log_sum_exp), V::splat(out_dot_dout));
    let zero = V::splat(0.0);
    let (scores, _) = scores.as_chunks_mut();
    let (gradients, _) = gradients.as_chunks_mut();
    for ((score, gradient), start) in scores.iter_mut().zip(gradients).zip((0..).step_by(LANES)) {
        if start >= visible {
            zero.store(score);
            zero.store(gradient);
            continue;
        }
        let mut probability = exp_lanes(V::load(score).mul(scale).sub(shift));
        if start + LANES > visible {
            probability = probability.first(visible - start, zero);
        }
        probability.mul(V::load(gradient).sub(mean)).store(gradient);
        probability.store(score);
    }
}

/// `out = source[..out.len()] · factor`.
#[inline(always)]
fn scaled_copy<V: Lanes>(source: &[f32], factor: f32, out: &mut [f32]) {
    let factor = V::splat(factor);
    for start in (0..out.len()).step_by(LANES) {
        V::read(source, start, 0.0).mul(factor).write(out, start);
    }
}
