//! The forward pass.
//!
//! Not for: gradients.

use super::{AttentionShape, KeyValueCache};
use crate::instruction_set::{InstructionSet, dispatched};
use crate::lanes::{LANES, Lanes};
use crate::math::{self, exp_lanes};
use crate::matmul::tile::{self, Extent, Left, MOST_TILE_ROWS, Output, Right};
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
        attend(set, queries, cache, output, log_sum_exp);
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
) {
    let shape = queries.shape;
    let dim = shape.head_dim;
    let padded_dim = dim.next_multiple_of(LANES);
    let keys = cache.keys(queries.key_value_head);
    let values = cache.values(queries.key_value_head);
    let count = queries.rows * shape.group();
    let most_keys = queries.visible(count - 1).next_multiple_of(LANES);
    let tile_queries = V::TILE_ROWS.min(count);
    scratch::with(tile_queries * (most_keys + dim + padded_dim), |buffer| {
        let (scores, rest) = buffer.split_at_mut(tile_queries * most_keys);
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
            // scratch slices are sized for `tile_queries` rows of `most_keys` scores.
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
                        row_stride: most_keys,
                        accumulate: false,
                    },
                );
            }
            let mut inverses = [0.0; MOST_TILE_ROWS];
            for index in 0..count {
                let (row, head) = queries.row_and_head(first + index);
                let visible = queries.visible(first + index);
                let (sum, greatest) = soft_max::<V>(&mut scores[index * most_keys..][..visible], shape.scale);
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
                        row_stride: most_keys,
                        depth_stride: 1,
                    },
                    right(0),
                    Output {
                        start: sums.as_mut_ptr(),
                        row_stride: padded_dim,
                        accumulate: false,
                    },
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
                                start: scores.as_ptr().add(index * most_keys + fewest),
                                row_stride: most_keys,
                                depth_stride: 1,
                            },
                            right(fewest),
                            Output {
                                start: sums.as_mut_ptr().add(index * padded_dim),
                                row_stride: padded_dim,
                                accumulate: true,
                            },
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
    });
}

dispatched! {
    fn attend(
        queries: Queries<'_>,
        cache: &KeyValueCache,
        output: SharedOutput,
        log_sum_exp: Option<SharedOutput>,
    ) = attend_body;
}

/// Replaces raw scores by `exp(scale · score - greatest)`; gives their sum and the greatest scaled score.
#[inline(always)]
fn soft_max<V: Lanes>(scores: &mut [f32], scale: f32) -> (f32, f32) {
    let scale = V::splat(scale);
    let mut greatest = V::splat(f32::NEG_INFINITY);
    for start in (0..scores.len()).step_by(LANES) {
        let scaled = V::read(scores, start, f32::NEG_INFINITY).mul(scale);
        greatest = greatest.maximum(scaled);
        scaled.write(scores, start);
    }
    let greatest = greatest.greatest();
    let shift = V::splat(greatest);
    let mut sum = V::splat(0.0);
    for start in (0..scores.len()).step_by(LANES) {
        let weight = exp_lanes(V::read(scores, start, f32::NEG_INFINITY).sub(shift));
        sum = sum.add(weight);
        weight.write(scores, start);
    }
    (sum.sum(), greatest)
}
