//! Matrix products for linear layers, forward and backward.
//!
//! Not for: attention (see [`crate::attention`]), or matrices that change with every call as right operands: packing
//! one costs about as much as multiplying a few rows by it.

mod packed;
pub(crate) mod tile;

pub use packed::PackedMatrix;

use crate::instruction_set::{InstructionSet, dispatched};
use crate::lanes::{LANES, Lanes};
use crate::parallel::{self, SharedOutput};
use crate::scratch;
use tile::{Ahead, Extent, Left, Output, Present, Right};

/// Length of the pieces that the summed index is cut into: a tile's left operand of this length stays in the first
/// cache.
const DEPTH_BLOCK: usize = 256;
/// The longest sum that is one chain. Each step of a chain rounds to the precision of all that came before, and where a
/// residual stream holds values of 10^4, as SmolLM2's does, chains of 1,536 steps onto it cost logits 10^-3. Blocks of
/// [`DEPTH_BLOCK`] that are summed apart cost what PyTorch's products do.
const LONGEST_CHAIN: usize = 512;
/// Columns that one strip of rows goes through at a time.
const COLUMN_BLOCK: usize = 1024;
/// Rows this many values apart share their places in the first cache, which has fewer of them than a tile has rows.
const COMPETING_STRIDE: usize = 1024;
/// The fewest rows that one task takes when rows are spread over threads.
const LEAST_ROWS: usize = 64;
/// Tasks per thread, so that a thread that loses its core to another program does not keep the others waiting.
const TASKS_PER_THREAD: usize = 4;
/// Values of the packed right operand of an outer product, which stays in the second cache.
const OUTER_BLOCK: usize = 3 << 16;

/// `out[rows, columns] (=|+=) a[rows, depth] · B`.
///
/// Up to a depth of 512, each element is one chain of fused multiply-adds in increasing depth, from zero or, with
/// `accumulate`, from the present value. Deeper ones are summed in blocks of 256, each a chain from zero: the first
/// replaces the present value or is added to it, the others are added in order.
///
/// # Panics
///
/// Panics when `a` does not hold `rows * depth` or `out` does not hold `rows * columns` values.
pub fn matmul(a: &[f32], rows: usize, b: &PackedMatrix, out: &mut [f32], accumulate: bool) {
    let blocks = b.depth() > LONGEST_CHAIN;
    multiply(a, rows, b, out, accumulate, blocks);
}

/// `out[rows, columns] = a[rows, depth] · B`, each element one chain from zero whatever the depth (see [`matmul`]).
///
/// # Panics
///
/// Panics when `a` does not hold `rows * depth` or `out` does not hold `rows * columns` values.
pub(crate) fn matmul_in_chains(a: &[f32], rows: usize, b: &PackedMatrix, out: &mut [f32]) {
    multiply(a, rows, b, out, false, false);
}

fn multiply(a: &[f32], rows: usize, b: &PackedMatrix, out: &mut [f32], accumulate: bool, blocks: bool) {
    let (depth, columns) = (b.depth(), b.columns());
    let _span = tracing::trace_span!("matmul", rows, depth, columns).entered();
    assert_eq!(a.len(), rows * depth, "`a` must be [rows, depth]");
    assert_eq!(out.len(), rows * columns, "`out` must be [rows, columns]");
    let set = InstructionSet::current();
    // Up to a few rows cost the same: reading the matrix.
    let threads = parallel::threads_for(rows.max(2) * depth * columns);
    let output = SharedOutput::new(out);
    // Few rows: split the columns, so that each thread reads only its part of the matrix.
    let by_columns = threads > 1 && rows < threads * LEAST_ROWS;
    let (mut row_block, mut column_block) = (rows.max(1), columns.max(1));
    if by_columns {
        column_block = columns.div_ceil(LANES).div_ceil(threads) * LANES;
    } else if threads > 1 {
        row_block = rows.div_ceil(threads * TASKS_PER_THREAD).max(LEAST_ROWS);
    }
    let packing_length = if depth.is_multiple_of(COMPETING_STRIDE) && rows > 1 {
        tile::packing_length(DEPTH_BLOCK)
    } else {
        0
    };
    let row_tasks = rows.div_ceil(row_block);
    let column_tasks = columns.div_ceil(column_block);
    parallel::for_each(threads, row_tasks * column_tasks, |task| {
        let (row, column) = (
            task / column_tasks * row_block,
            task % column_tasks * column_block,
        );
        let extent = Extent {
            rows: row_block.min(rows - row),
            columns: column_block.min(columns - column),
            depth,
        };
        scratch::with(packing_length, |packing| {
            product(
                set,
                extent,
                &a[row * depth..],
                &b.values()[column * depth..],
                output,
                row * columns + column,
                columns,
                accumulate,
                blocks,
                packing,
            );
        });
    });
}

/// The part of a product from output element `first`, in cache blocks. `a` starts at the part's first row and
/// `panels` at its first column.
#[inline(always)]
fn product_body<V: Lanes>(
    extent: Extent,
    a: &[f32],
    panels: &[f32],
    output: SharedOutput,
    first: usize,
    row_stride: usize,
    accumulate: bool,
    blocks: bool,
    packing: &mut [f32],
) {
    let depth = extent.depth;
    let row_tiles = extent.rows.div_ceil(V::TILE_ROWS);
    // One strip of rows meets every value of B once: nothing to keep in a cache, so read it in one go.
    let once = row_tiles <= 1 && packing.is_empty();
    let depth_block = if once && !blocks {
        depth.max(1)
    } else {
        DEPTH_BLOCK
    };
    // With several, a block of B stays in the first cache for all of them, which bring the next block nearer meanwhile.
    // A packed left operand would be packed once more for every block.
    let column_block = match row_tiles {
        // As wide as a tile: the blocks of its columns follow each other in memory.
        0 | 1 if once && blocks => 8 * LANES,
        0 | 1 => COLUMN_BLOCK,
        _ if !packing.is_empty() => COLUMN_BLOCK,
        2 | 3 => 2 * LANES,
        _ => 4 * LANES,
    };
    let panels_from = |column: usize, k: usize| panels.as_ptr().wrapping_add(column * depth + k * LANES);
    for column in (0..extent.columns).step_by(column_block) {
        let columns = column_block.min(extent.columns - column);
        // A depth of zero still has to write zeros.
        for k in (0..depth.max(1)).step_by(depth_block) {
            let block = Extent {
                rows: extent.rows,
                columns,
                depth: depth_block.min(depth - k),
            };
            let (next_column, next_k) = if k + depth_block < depth {
                (column, k + depth_block)
            } else {
                (column + column_block, 0)
            };
            let ahead = Ahead {
                start: panels_from(next_column, next_k),
                vector_stride: depth * LANES,
                vectors: column_block
                    .min(extent.columns.saturating_sub(next_column))
                    .div_ceil(LANES),
            };
            // SAFETY: the caller checked the lengths; tasks own disjoint parts of the output, and panels are padded
            // to sixteen columns.
            unsafe {
                tile::multiply_ahead::<V>(
                    block,
                    Left {
                        start: a.as_ptr().add(k),
                        row_stride: depth,
                        depth_stride: 1,
                    },
                    Right {
                        start: panels_from(column, k),
                        depth_stride: LANES,
                        vector_stride: depth * LANES,
                    },
                    Output {
                        start: output.at(first + column),
                        row_stride,
                        present: match accumulate || k > 0 {
                            false => Present::Replaced,
                            true if blocks => Present::AddedTo,
                            true => Present::Continued,
                        },
                    },
                    ahead,
                    packing,
                );
            }
        }
    }
}

dispatched! {
    fn product(
        extent: Extent,
        a: &[f32],
        panels: &[f32],
        output: SharedOutput,
        first: usize,
        row_stride: usize,
        accumulate: bool,
        blocks: bool,
        packing: &mut [f32],
    ) = product_body;
}

/// `dw[o, i] += Σ_r dy[r, o] · x[r, i]` for `dy` `[rows, out_features]`, `x` `[rows, in_features]` and `dw`
/// `[out_features, in_features]`: the gradient by a linear layer's weight. Each chain starts from `dw`'s value and
/// runs in row order, so splitting the rows over several calls gives the same bits.
///
/// # Panics
///
/// Panics when a slice does not have the stated length.
pub fn accumulate_outer(
    dy: &[f32],
    x: &[f32],
    rows: usize,
    out_features: usize,
    in_features: usize,
    dw: &mut [f32],
) {
    let _span = tracing::trace_span!("accumulate_outer", rows, out_features, in_features).entered();
    assert_eq!(dy.len(), rows * out_features, "`dy` must be [rows, out_features]");
    assert_eq!(x.len(), rows * in_features, "`x` must be [rows, in_features]");
    assert_eq!(
        dw.len(),
        out_features * in_features,
        "`dw` must be [out_features, in_features]"
    );
    if in_features == 0 {
        return;
    }
    let panels = in_features.div_ceil(LANES);
    let row_block = (OUTER_BLOCK / (panels * LANES))
        .clamp(DEPTH_BLOCK, 2 * DEPTH_BLOCK)
        .min(rows.max(1));
    scratch::with(row_block * panels * LANES, |packed| {
        for first in (0..rows).step_by(row_block) {
            let depth = row_block.min(rows - first);
            let threads = parallel::threads_for(depth * out_features * in_features);
            let packed = &mut packed[..depth * panels * LANES];
            pack_rows(threads, &x[first * in_features..], depth, in_features, packed);
            let part = OuterPart {
                dy: &dy[first * out_features..(first + depth) * out_features],
                x: packed,
                rows: depth,
            };
            let features = strip_features(threads, out_features);
            let mut strips: Vec<&mut [f32]> = dw.chunks_mut(features * in_features).collect();
            parallel::for_each_mut(&mut strips, |index, strip| {
                accumulate_outer_strip(&[part], out_features, in_features, index * features, strip);
            });
        }
    });
}

/// Output features per task when an outer product is spread over `threads`: whole register tiles.
pub fn strip_features(threads: usize, out_features: usize) -> usize {
    if threads <= 1 {
        return out_features.max(1);
    }
    out_features
        .div_ceil(threads * TASKS_PER_THREAD)
        .next_multiple_of(tile::MOST_TILE_ROWS)
}

/// Consecutive rows of an outer product.
#[derive(Clone, Copy, Debug)]
pub struct OuterPart<'a> {
    /// The gradient by the layer's output, `[rows, out_features]`.
    pub dy: &'a [f32],
    /// The layer's input as [`pack_outer_input`] lays it out.
    pub x: &'a [f32],
    /// Number of rows.
    pub rows: usize,
}

/// Values that [`pack_outer_input`] writes for `rows` rows of `in_features`.
pub fn packed_outer_length(rows: usize, in_features: usize) -> usize {
    rows * in_features.next_multiple_of(LANES)
}

/// Lays `x` `[rows, in_features]` out for [`accumulate_outer_strip`]. Worth doing right after `x` was computed.
///
/// # Panics
///
/// Panics when `x` or `packed` does not have the length.
pub fn pack_outer_input(x: &[f32], rows: usize, in_features: usize, packed: &mut [f32]) {
    let _span = tracing::trace_span!("pack_outer_input", rows, in_features).entered();
    assert_eq!(x.len(), rows * in_features, "`x` must be [rows, in_features]");
    assert_eq!(
        packed.len(),
        packed_outer_length(rows, in_features),
        "`packed` must have `packed_outer_length` values"
    );
    if x.is_empty() {
        return;
    }
    pack_rows(
        parallel::threads_for_elements(x.len()),
        x,
        rows,
        in_features,
        packed,
    );
}

/// Some output features of an outer product, on this thread: `dw` `[count, in_features]` holds features
/// `first_feature..` of the whole `[out_features, in_features]`, and `parts` its rows in order. The chains are those of
/// [`accumulate_outer`].
///
/// # Panics
///
/// Panics when a slice does not have the stated length.
pub fn accumulate_outer_strip(
    parts: &[OuterPart<'_>],
    out_features: usize,
    in_features: usize,
    first_feature: usize,
    dw: &mut [f32],
) {
    if dw.is_empty() {
        return;
    }
    let count = dw.len() / in_features;
    assert_eq!(dw.len(), count * in_features, "`dw` must be [count, in_features]");
    assert!(
        first_feature + count <= out_features,
        "`dw` must hold features under `out_features`"
    );
    let set = InstructionSet::current();
    let output = SharedOutput::new(dw);
    for part in parts {
        assert_eq!(
            part.dy.len(),
            part.rows * out_features,
            "`dy` must be [rows, out_features]"
        );
        assert_eq!(
            part.x.len(),
            packed_outer_length(part.rows, in_features),
            "`x` must be packed by `pack_outer_input`"
        );
        for first in (0..part.rows).step_by(2 * DEPTH_BLOCK) {
            let extent = Extent {
                rows: count,
                columns: in_features,
                depth: (2 * DEPTH_BLOCK).min(part.rows - first),
            };
            let dy = &part.dy[first * out_features + first_feature..];
            scratch::with(tile::packing_length(extent.depth), |packing| {
                outer(
                    set,
                    extent,
                    dy,
                    out_features,
                    &part.x[first * LANES..],
                    part.rows * LANES,
                    output,
                    packing,
                );
            });
        }
    }
}

/// Lays the first `rows` rows of `x` `[_, columns]` out in panels of sixteen columns, padded with zeros.
fn pack_rows(threads: usize, x: &[f32], rows: usize, columns: usize, packed: &mut [f32]) {
    let panels = columns.div_ceil(LANES);
    let output = SharedOutput::new(&mut packed[..rows * panels * LANES]);
    parallel::for_each(threads, panels, |panel| {
        // SAFETY: tasks own disjoint panels.
        let values = unsafe { output.slice(panel * rows * LANES, rows * LANES) };
        let first = panel * LANES;
        let width = LANES.min(columns - first);
        let (lines, _) = values.as_chunks_mut::<LANES>();
        for (row, line) in lines.iter_mut().enumerate() {
            let source = &x[row * columns + first..][..width];
            // As arrays: a slice's copy is a call, which costs more than the sixteen values.
            if let Some(source) = source.first_chunk() {
                *line = *source;
            } else {
                line[..width].copy_from_slice(source);
                line[width..].fill(0.0);
            }
        }
    });
}

/// `output += dyᵀ · packed` for the extent's rows (output features).
#[inline(always)]
fn outer_body<V: Lanes>(
    extent: Extent,
    dy: &[f32],
    dy_stride: usize,
    packed: &[f32],
    panel_stride: usize,
    output: SharedOutput,
    packing: &mut [f32],
) {
    // SAFETY: the caller checked the lengths; tasks own disjoint rows of the output, and panels are padded.
    unsafe {
        tile::multiply::<V>(
            extent,
            Left {
                start: dy.as_ptr(),
                row_stride: 1,
                depth_stride: dy_stride,
            },
            Right {
                start: packed.as_ptr(),
                depth_stride: LANES,
                vector_stride: panel_stride,
            },
            Output {
                start: output.at(0),
                row_stride: extent.columns,
                present: Present::Continued,
            },
            packing,
        );
    }
}

dispatched! {
    fn outer(
        extent: Extent,
        dy: &[f32],
        dy_stride: usize,
        packed: &[f32],
        panel_stride: usize,
        output: SharedOutput,
        packing: &mut [f32],
    ) = outer_body;
}

/// Adds `bias` to each of `rows` rows of `y`.
///
/// # Panics
///
/// Panics when `y` does not hold `rows * bias.len()` values.
pub fn add_bias(y: &mut [f32], rows: usize, bias: &[f32]) {
    let _span = tracing::trace_span!("add_bias", rows, columns = bias.len()).entered();
    assert_eq!(y.len(), rows * bias.len(), "`y` must be [rows, features]");
    if !bias.is_empty() {
        for row in y.chunks_exact_mut(bias.len()) {
            for (value, bias) in row.iter_mut().zip(bias) {
                *value += bias;
            }
        }
    }
}

/// `db[n] += dy[r, n]` in row order: the gradient by a bias.
///
/// # Panics
///
/// Panics when `dy` does not hold `rows * db.len()` values.
pub fn accumulate_rows(dy: &[f32], rows: usize, db: &mut [f32]) {
    let _span = tracing::trace_span!("accumulate_rows", rows, columns = db.len()).entered();
    assert_eq!(dy.len(), rows * db.len(), "`dy` must be [rows, features]");
    if !db.is_empty() {
        for row in dy.chunks_exact(db.len()) {
            for (sum, value) in db.iter_mut().zip(row) {
                *sum += value;
            }
        }
    }
}
