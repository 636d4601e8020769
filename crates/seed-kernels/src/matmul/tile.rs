//! The register-tiled product that every matrix-like kernel is made of.
//!
//! `C[r, c] (+)= Σ_k A[r, k] · B[k, c]`, each element one chain of fused multiply-adds in increasing `k`. A tile can
//! load `C` and continue its chains, so no choice of tile or block changes a bit, or add its chains to `C`.
//!
//! Not for: threads, packing or cache blocking, which the callers own.

use crate::instruction_set::dispatched;
use crate::lanes::{LANES, Lanes};

/// The most rows that any instruction set's register tile spans.
pub(crate) const MOST_TILE_ROWS: usize = 14;

/// Accumulators under which a tile is bound by loads, and one more per step would cost time.
const FEWEST_ACCUMULATORS_AHEAD: usize = 16;

/// Left operand: element `(r, k)` is at `start + r * row_stride + k * depth_stride`.
#[derive(Clone, Copy)]
pub(crate) struct Left {
    pub(crate) start: *const f32,
    pub(crate) row_stride: usize,
    pub(crate) depth_stride: usize,
}

/// Right operand in vectors of sixteen columns: vector `(k, v)` starts at
/// `start + k * depth_stride + v * vector_stride`.
#[derive(Clone, Copy)]
pub(crate) struct Right {
    pub(crate) start: *const f32,
    pub(crate) depth_stride: usize,
    pub(crate) vector_stride: usize,
}

/// Result: row `r` starts at `start + r * row_stride`.
#[derive(Clone, Copy)]
pub(crate) struct Output {
    pub(crate) start: *mut f32,
    pub(crate) row_stride: usize,
    pub(crate) present: Present,
}

/// What a product does with the values that its output holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Present {
    /// Replaces them by chains from zero.
    Replaced,
    /// Continues them: each is the start of its chain.
    Continued,
    /// Adds to them chains from zero.
    AddedTo,
}

/// The right operand of the product after this one, which row tiles bring nearer while they compute: the first row tile
/// the first vector of columns, the second the second, and so on.
#[derive(Clone, Copy)]
pub(crate) struct Ahead {
    pub(crate) start: *const f32,
    pub(crate) vector_stride: usize,
    /// Vectors of columns that there are.
    pub(crate) vectors: usize,
}

impl Ahead {
    /// Nothing.
    pub(crate) const NONE: Self = Self {
        start: std::ptr::null(),
        vector_stride: 0,
        vectors: 0,
    };
}

/// The extent of a product: `rows` x `columns`, summed over `depth`.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) depth: usize,
}

/// Length of the working memory that [`multiply`] packs a left operand of `depth` into.
pub(crate) fn packing_length(depth: usize) -> usize {
    MOST_TILE_ROWS * depth
}

/// Computes a whole product in register tiles: row tiles outside, so that a tile's left operand stays in the first
/// cache while the right operand streams by.
///
/// With `packing` of at least [`packing_length`] values, each tile's left operand is first copied there, row beside
/// row: worth it when its strides would make its cache lines compete for the same few places. Empty `packing` reads
/// it where it is.
///
/// One function per instruction set, called rather than inlined: its many tiles are compiled once.
///
/// # Safety
///
/// All elements that the extent names are readable (writable for the result, by this call alone), with the right
/// operand readable to whole vectors of sixteen columns.
///
/// # Panics
///
/// Panics when `packing` is neither empty nor long enough.
pub(crate) unsafe fn multiply<V: Lanes>(
    extent: Extent,
    left: Left,
    right: Right,
    output: Output,
    packing: &mut [f32],
) {
    multiply_on(V::SET, extent, left, right, output, Ahead::NONE, packing);
}

/// As [`multiply`], with what to bring nearer meanwhile.
///
/// # Safety
///
/// As for [`multiply`]; what is ahead need not be readable.
pub(crate) unsafe fn multiply_ahead<V: Lanes>(
    extent: Extent,
    left: Left,
    right: Right,
    output: Output,
    ahead: Ahead,
    packing: &mut [f32],
) {
    multiply_on(V::SET, extent, left, right, output, ahead, packing);
}

dispatched! {
    fn multiply_on(
        extent: Extent,
        left: Left,
        right: Right,
        output: Output,
        ahead: Ahead,
        packing: &mut [f32],
    ) = multiply_body;
}

#[inline(always)]
fn multiply_body<V: Lanes>(
    extent: Extent,
    left: Left,
    right: Right,
    output: Output,
    ahead: Ahead,
    packing: &mut [f32],
) {
    let tiles = extent.rows.div_ceil(V::TILE_ROWS);
    let mut row = 0;
    for tile in 0..tiles {
        // Rows are spread evenly, since a tile of one row costs nearly as much as a tile of a few.
        let rows = extent.rows / tiles + usize::from(tile < extent.rows % tiles);
        // SAFETY: the promise of `multiply`; rows `row..row + rows` lie within the extent.
        unsafe {
            let left = Left {
                start: left.start.add(row * left.row_stride),
                ..left
            };
            let output = Output {
                start: output.start.add(row * output.row_stride),
                ..output
            };
            let strip = Extent { rows, ..extent };
            // Lines of the right operand are in order along the depth, so one vector of columns is read with one pointer.
            let near = if tile < ahead.vectors {
                (ahead.start.wrapping_add(tile * ahead.vector_stride), LANES)
            } else {
                (right.start, 0)
            };
            match rows {
                1 => row_strip::<V, 1>(strip, left, right, output, near, packing),
                2 => row_strip::<V, 2>(strip, left, right, output, near, packing),
                3 => row_strip::<V, 3>(strip, left, right, output, near, packing),
                4 => row_strip::<V, 4>(strip, left, right, output, near, packing),
                5 => row_strip::<V, 5>(strip, left, right, output, near, packing),
                6 => row_strip::<V, 6>(strip, left, right, output, near, packing),
                7 => row_strip::<V, 7>(strip, left, right, output, near, packing),
                8 => row_strip::<V, 8>(strip, left, right, output, near, packing),
                9 => row_strip::<V, 9>(strip, left, right, output, near, packing),
                10 => row_strip::<V, 10>(strip, left, right, output, near, packing),
                11 => row_strip::<V, 11>(strip, left, right, output, near, packing),
                12 => row_strip::<V, 12>(strip, left, right, output, near, packing),
                13 => row_strip::<V, 13>(strip, left, right, output, near, packing),
                _ => row_strip::<V, 14>(strip, left, right, output, near, packing),
            }
        }
        row += rows;
    }
}

/// One strip of `R` rows over all columns.
///
/// # Safety
///
/// As for [`multiply`].
#[inline(always)]
unsafe fn row_strip<V: Lanes, const R: usize>(
    extent: Extent,
    left: Left,
    right: Right,
    output: Output,
    near: (*const f32, usize),
    packing: &mut [f32],
) {
    // More rows than the implementation ever asks for: nothing to compile.
    if R > V::TILE_ROWS {
        return;
    }
    // SAFETY: the caller's promise; the packed copy holds `R` rows and the extent's depth.
    unsafe {
        if packing.is_empty() {
            strip_tiles::<V, R>(extent, left, right, output, near);
        } else {
            let packing = &mut packing[..R * extent.depth];
            let mut source = left.start;
            for step in packing.chunks_exact_mut(R) {
                if left.row_stride == 1 {
                    // As arrays: a slice's copy is a call, which costs more than the few values.
                    *step.as_mut_ptr().cast::<[f32; R]>() = *source.cast::<[f32; R]>();
                } else {
                    for (r, value) in step.iter_mut().enumerate() {
                        *value = *source.add(r * left.row_stride);
                    }
                }
                source = source.wrapping_add(left.depth_stride);
            }
            let left = Left {
                start: packing.as_ptr(),
                row_stride: 1,
                depth_stride: R,
            };
            strip_tiles::<V, R>(extent, left, right, output, near);
        }
    }
}

/// The tiles of a strip, each as wide as the registers allow.
///
/// # Safety
///
/// As for [`multiply`].
#[inline(always)]
unsafe fn strip_tiles<V: Lanes, const R: usize>(
    extent: Extent,
    left: Left,
    right: Right,
    output: Output,
    near: (*const f32, usize),
) {
    let mut near = near;
    let mut column = 0;
    let wide = V::ACCUMULATORS / R;
    // SAFETY: each tile's columns are within the extent.
    unsafe {
        if wide >= 8 {
            while column + 7 * LANES < extent.columns {
                column = tile::<V, R, 8>(extent, left, right, output, &mut near, column);
            }
        }
        if wide >= 4 {
            while column + 3 * LANES < extent.columns {
                column = tile::<V, R, 4>(extent, left, right, output, &mut near, column);
            }
        }
        if wide >= 2 {
            while column + LANES < extent.columns {
                column = tile::<V, R, 2>(extent, left, right, output, &mut near, column);
            }
        }
        while column < extent.columns {
            column = tile::<V, R, 1>(extent, left, right, output, &mut near, column);
        }
    }
}

/// One register tile of `R` rows and `N` vectors of columns from `column`; gives the first column after it. Only the
/// last vector may be partial. `near` is an address to bring nearer and its step along the depth.
///
/// # Safety
///
/// As for [`multiply`].
#[inline(always)]
unsafe fn tile<V: Lanes, const R: usize, const N: usize>(
    extent: Extent,
    left: Left,
    right: Right,
    output: Output,
    near: &mut (*const f32, usize),
    column: usize,
) -> usize {
    if output.present == Present::Continued && column + N * LANES < extent.columns {
        // The next tile starts by loading its part of the result.
        for r in 0..R {
            for n in 0..N {
                V::prefetch(
                    output
                        .start
                        .wrapping_add(r * output.row_stride + column + (N + n) * LANES),
                );
            }
        }
    }
    let last = (extent.columns - column - (N - 1) * LANES).min(LANES);
    // SAFETY: the caller's promises; `last` keeps the partial vector of the result within the extent.
    unsafe {
        let result = output.start.add(column);
        let mut accumulators = [[V::splat(0.0); N]; R];
        if output.present == Present::Continued {
            for (r, row) in accumulators.iter_mut().enumerate() {
                let result = result.add(r * output.row_stride);
                for (n, accumulator) in row.iter_mut().enumerate() {
                    let result = result.add(n * LANES);
                    *accumulator = if n + 1 == N && last < LANES {
                        V::read(std::slice::from_raw_parts(result, last), 0, 0.0)
                    } else {
                        V::load_at(result)
                    };
                }
            }
        }
        let mut a = left.start;
        let mut b = right.start.add(column / LANES * right.vector_stride);
        // Only a strip's first tile brings something nearer; the others touch what they have.
        let (mut ahead, step) = std::mem::replace(near, (right.start, 0));
        for _ in 0..extent.depth {
            if R * N >= FEWEST_ACCUMULATORS_AHEAD {
                V::prefetch_far(ahead);
                ahead = ahead.wrapping_add(step);
            }
            let mut vectors = [V::splat(0.0); N];
            for (n, vector) in vectors.iter_mut().enumerate() {
                *vector = V::load_at(b.add(n * right.vector_stride));
            }
            for (r, row) in accumulators.iter_mut().enumerate() {
                let factor = V::splat(*a.add(r * left.row_stride));
                for (accumulator, vector) in row.iter_mut().zip(vectors) {
                    *accumulator = factor.mul_add(vector, *accumulator);
                }
            }
            a = a.wrapping_add(left.depth_stride);
            b = b.wrapping_add(right.depth_stride);
        }
        let added = output.present == Present::AddedTo;
        for (r, row) in accumulators.into_iter().enumerate() {
            let result = result.add(r * output.row_stride);
            for (n, accumulator) in row.into_iter().enumerate() {
                let result = result.add(n * LANES);
                if n + 1 == N && last < LANES {
                    let result = std::slice::from_raw_parts_mut(result, last);
                    let accumulator = if added {
                        V::read(result, 0, 0.0).add(accumulator)
                    } else {
                        accumulator
                    };
                    accumulator.write(result, 0);
                } else {
                    let accumulator = if added {
                        V::load_at(result).add(accumulator)
                    } else {
                        accumulator
                    };
                    accumulator.store_at(result);
                }
            }
        }
    }
    column + N * LANES
}
