//! The forward pass.
//!
//! Not for: gradients.

use super::{AttentionShape, KeyValueCache, spread_stride};
use crate::instruction_set::{InstructionSet, dispatched};
use crate::lanes::{LANES, Lanes};
use crate::math::{self, exp_lanes};
use crate::matmul::tile::{self, Extent, Left, MOST_TILE_ROWS, Output, Present, Right};
use crate::parallel::{self, SharedOutput};
use crate::scratch;

/// Queries (rows times heads of one group) that one task takes at a time.
const TASK_QUERIES: usize = 56;

/// Attention of `rows` consecutive queries of one sequence, at positions `first_position..`, over the cache's keys and
/// values: row `r` sees positions `0..=first_position + r`.
///
/// `q` and `out` are `[rows, query_heads * head_dim]`. `log_sum_exp`, when given, is `[rows, query_heads]` and receives
/// the logarithm of the sum of exponentials of the scaled scores, which the backward pass needs.
///
/// # Panics
///
/// Panics when a slice does not have the stated length, the cache has another shape, or it does not yet hold the last
/// row's position.
pub fn attention(
    q: &[f32],
    rows: usize,
    cache: &KeyValueCache,
    first_position: usize,
    shape: &AttentionShape,
    out: &mut [f32],
    log_sum_exp: Option<&mut [f32]>,
) {
    let keys = first_position + rows;
    let _span = tracing::trace_span!("attention", rows, keys, heads = shape.query_heads).entered();
    shape.check();
    let width = shape.query_width();
    assert_eq!(
        q.len(),
        rows * width,
        "`q` must be [rows, query_heads * head_dim]"
    );
    assert_eq!(
        out.len(),
        rows * width,
        "`out` must be [rows, query_heads * head_dim]"
    );
    assert_eq!(
        cache.shape(),
        (shape.key_value_heads, shape.head_dim),
        "the cache must have the layer's shape"
    );
    assert!(
        first_position + rows <= cache.len(),
        "the cache must hold the positions of all rows"
    );
    if let Some(log_sum_exp) = &log_sum_exp {
        assert_eq!(
            log_sum_exp.len(),
            rows * shape.query_heads,
            "`log_sum_exp` must be [rows, query_heads]"
        );
    }
    let set = InstructionSet::current();
    let work = 2 * rows * (first_position + rows) * width;
    let threads = parallel::threads_for(work);
    let output = SharedOutput::new(out);
    let log_sum_exp = log_sum_exp.map(SharedOutput::new);
    let task_rows = TASK_QUERIES.div_ceil(shape.group());
    let row_tasks = rows.div_ceil(task_rows);
    parallel::for_each(threads, row_tasks * shape.key_value_heads, |task| {
        // The last rows see the most keys: started first, they leave the threads less uneven at the end.
        let first_row = (row_tasks - 1 - task / shape.key_value_heads) * task_rows;
        let queries = Queries {
            q,
            shape,
            key_value_head: task % shape.key_value_heads,
            first_row,
            rows: task_rows.min(rows - first_row),
            first_position,
        };
        scratch::with(queries.scratch_length(), |buffer| {
            attend(set, queries, cache, output, log_sum_exp, buffer);
        });
    });
}

/// Consecutive rows' queries of the heads that share one key-value head, numbered row by row.
#[derive(Clone, Copy)]
struct Queries<'a> {
    q: &'a [f32],
    shape: &'a AttentionShape,
    key_value_head: usize,
    first_row: usize,
    rows: usize,
    first_position: usize,
}

impl Queries<'_> {
    /// Number of queries.
    #[inline(always)]
    fn count(&self) -> usize {
        self.rows * self.shape.group()
    }

    /// Distance between two queries' scores: room for the keys that some query sees, in whole blocks.
    #[inline(always)]
    fn score_stride(&self) -> usize {
        spread_stride(self.visible(self.count() - 1))
    }

    /// Values of working memory: a tile's scores, queries and outputs.
    fn scratch_length(&self) -> usize {
        let dim = self.shape.head_dim;
        MOST_TILE_ROWS * (self.score_stride() + dim + dim.next_multiple_of(LANES))
    }

    /// The row and head of query `index`.
    #[inline(always)]
    fn row_and_head(&self, index: usize) -> (usize, usize) {
        let group = self.shape.group();
        (
            self.first_row + index / group,
            self.key_value_head * group + index % group,
        )
    }

    /// Number of keys that query `index` sees.
    #[inline(always)]
    fn visible(&self, index: usize) -> usize {
        self.first_position + self.row_and_head(index).0 + 1
    }
}

#[inline(always)]
fn attend_body<V: Lanes>(
    queries: Queries<'_>,
    cache: &KeyValueCache,
    output: SharedOutput,
    log_sum_exp: Option<SharedOutput>,
    buffer: &mut [f32],
) {
    let shape = queries.shape;
    let dim = shape.head_dim;
    let padded_dim = dim.next_multiple_of(LANES);
    let keys = cache.keys(queries.key_value_head);
    let values = cache.values(queries.key_value_head);
    let count = queries.count();
    let stride = queries.score_stride();
    let tile_queries = V::TILE_ROWS;
    let (scores, rest) = buffer.split_at_mut(tile_queries * stride);
    let (tile_q, sums) = rest.split_at_mut(tile_queries * dim);
    for first in (0..count).step_by(tile_queries) {
        let count = tile_queries.min(count - first);
        for index in 0..count {
            let (row, head) = queries.row_and_head(first + index);
            tile_q[index * dim..][..dim]
                .copy_from_slice(&queries.q[row * shape.query_width() + head * dim..][..dim]);
        }
        let fewest = queries.visible(first);
        let most = queries.visible(first + count - 1);
        // SAFETY: `keys` holds whole blocks of sixteen positions up to `most`, which `attention` checked; the
        // scratch slices are sized for `tile_queries` rows of `stride` scores.
        unsafe {
            tile::multiply::<V>(
                Extent {
                    rows: count,
                    columns: most.next_multiple_of(LANES),
                    depth: dim,
                },
                Left {
                    start: tile_q.as_ptr(),
                    row_stride: dim,
                    depth_stride: 1,
                },
                Right {
                    start: keys.as_ptr(),
                    depth_stride: LANES,
                    vector_stride: dim * LANES,
                },
                Output {
                    start: scores.as_mut_ptr(),
                    row_stride: stride,
                    present: Present::Replaced,
                },
                &mut [],
            );
        }
        let mut inverses = [0.0; MOST_TILE_ROWS];
        for index in 0..count {
            let (row, head) = queries.row_and_head(first + index);
            let visible = queries.visible(first + index);
            let (sum, greatest) =
                soft_max::<V>(&mut scores[index * stride..][..stride], visible, shape.scale);
            inverses[index] = 1.0 / sum;
            if let Some(log_sum_exp) = log_sum_exp {
                // SAFETY: each row and head belongs to one task; `attention` checked the length.
                unsafe {
                    *log_sum_exp.at(row * shape.query_heads + head) =
                        greatest + math::log(f64::from(sum)) as f32;
                }
            }
        }
        // Keys that every query of the tile sees go through the register tiles; each query's few others continue
        // its chain alone.
        // SAFETY: `values` holds `most` rows of `padded_dim`; scratch as above.
        unsafe {
            let right = |key: usize| Right {
                start: values.as_ptr().add(key * padded_dim),
                depth_stride: padded_dim,
                vector_stride: LANES,
            };
            tile::multiply::<V>(
                Extent {
                    rows: count,
                    columns: padded_dim,
                    depth: fewest,
                },
                Left {
                    start: scores.as_ptr(),
                    row_stride: stride,
                    depth_stride: 1,
                },
                right(0),
                Output {
                    start: sums.as_mut_ptr(),
                    row_stride: padded_dim,
                    present: Present::Replaced,
                },
                &mut [],
            );
            for index in 0..count {
                let visible = queries.visible(first + index);
                if visible > fewest {
                    tile::multiply::<V>(
                        Extent {
                            rows: 1,
                            columns: padded_dim,
                            depth: visible - fewest,
                        },
                        Left {
                            start: scores.as_ptr().add(index * stride + fewest),
                            row_stride: stride,
                            depth_stride: 1,
                        },
                        right(fewest),
                        Output {
                            start: sums.as_mut_ptr().add(index * padded_dim),
                            row_stride: padded_dim,
                            present: Present::Continued,
                        },
                        &mut [],
                    );
                }
            }
        }
        for index in 0..count {
            let (row, head) = queries.row_and_head(first + index);
            // SAFETY: each row and head belongs to one task; `attention` checked the length.
            let out = unsafe { output.slice(row * shape.query_width() + head * dim, dim) };
            let inverse = V::splat(inverses[index]);
            let sums = &sums[index * padded_dim..][..padded_dim];
            for start in (0..dim).step_by(LANES) {
                V::read(sums, start, 0.0).mul(inverse).write(out, start);
            }
        }
    }
}

dispatched! {
    fn attend(
        queries: Queries<'_>,
        cache: &KeyValueCache,
        output: SharedOutput,
        log_sum_exp: Option<SharedOutput>,
        buffer: &mut [f32],
    ) = attend_body;
}

/// Replaces the first `visible` raw scores by `exp(scale · score - greatest)`, and what follows in their last block of
/// sixteen by zero; gives their sum and the greatest scaled score.
#[inline(always)]
fn soft_max<V: Lanes>(scores: &mut [f32], visible: usize, scale: f32) -> (f32, f32) {
    let scale = V::splat(scale);
    let unseen = V::splat(f32::NEG_INFINITY);
    let (blocks, _) = scores[..visible.next_multiple_of(LANES)].as_chunks_mut();
    let mut greatest = unseen;
    for (block, start) in blocks.iter_mut().zip((0..).step_by(LANES)) {
        let mut scaled = V::load(block).mul(scale);
        if start + LANES > visible {
            scaled = scaled.first(visible - start, unseen);
        }
        greatest = greatest.maximum(scaled);
        scaled.store(block);
    }
    let greatest = greatest.greatest();
    let shift = V::splat(greatest);
    let mut sum = V::splat(0.0);
    for block in blocks {
        let weight = exp_lanes(V::load(block).sub(shift));
        sum = sum.add(weight);
        weight.store(block);
    }
    (sum.sum(), greatest)
}
