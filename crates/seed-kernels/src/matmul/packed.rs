//! The right operand of a product, laid out for the register tiles.
//!
//! Not for: multiplying (see the parent module).

use crate::lanes::LANES;
use crate::parallel::{self, SharedOutput};
use crate::scratch::Line;

/// A `depth` x `columns` matrix `B` in panels of sixteen columns: panel by panel, all of its rows of sixteen values,
/// the last panel padded with zeros. Owns cache-line-aligned memory.
#[derive(Clone, Debug, PartialEq)]
pub struct PackedMatrix {
    depth: usize,
    columns: usize,
    lines: Vec<Line>,
}

impl PackedMatrix {
    fn zeros(depth: usize, columns: usize) -> Self {
        Self {
            depth,
            columns,
            lines: vec![Line::ZERO; depth * columns.div_ceil(LANES)],
        }
    }

    /// Packs `B = wᵀ` from `w` `[columns, depth]` (a linear layer's `[out, in]` weight), so that `x · B` is the
    /// layer's product.
    ///
    /// # Panics
    ///
    /// Panics when `w` does not hold `columns * depth` values.
    pub fn from_transposed(w: &[f32], columns: usize, depth: usize) -> Self {
        let mut packed = Self::zeros(depth, columns);
        packed.repack_transposed(w);
        packed
    }

    /// Packs `B = w` from `w` `[depth, columns]`. With a linear layer's `[out, in]` weight, `dy · B` is the gradient
    /// by its input.
    ///
    /// # Panics
    ///
    /// Panics when `w` does not hold `depth * columns` values.
    pub fn from_plain(w: &[f32], depth: usize, columns: usize) -> Self {
        let mut packed = Self::zeros(depth, columns);
        packed.repack_plain(w);
        packed
    }

    /// Overwrites the values as [`PackedMatrix::from_transposed`] would, without allocating.
    ///
    /// # Panics
    ///
    /// Panics when `w` does not hold `columns * depth` values.
    pub fn repack_transposed(&mut self, w: &[f32]) {
        let (depth, columns) = (self.depth, self.columns);
        let _span = tracing::trace_span!("repack_transposed", depth, columns).entered();
        assert_eq!(w.len(), columns * depth, "`w` must be [columns, depth]");
        self.fill(|panel, values| {
            let width = LANES.min(columns - panel * LANES);
            // Sixteen by sixteen at a time, so that both sides stay in the first cache.
            for start in (0..depth).step_by(LANES) {
                let end = depth.min(start + LANES);
                for column in 0..width {
                    let source = &w[(panel * LANES + column) * depth..][start..end];
                    for (value, line) in source.iter().zip(values[start * LANES..].chunks_exact_mut(LANES)) {
                        line[column] = *value;
                    }
                }
            }
        });
    }

    /// Overwrites the values as [`PackedMatrix::from_plain`] would, without allocating.
    ///
    /// # Panics
    ///
    /// Panics when `w` does not hold `depth * columns` values.
    pub fn repack_plain(&mut self, w: &[f32]) {
        let (depth, columns) = (self.depth, self.columns);
        let _span = tracing::trace_span!("repack_plain", depth, columns).entered();
        assert_eq!(w.len(), columns * depth, "`w` must be [depth, columns]");
        self.fill(|panel, values| {
            let first = panel * LANES;
            let width = LANES.min(columns - first);
            for (k, line) in values.chunks_exact_mut(LANES).enumerate() {
                line[..width].copy_from_slice(&w[k * columns + first..][..width]);
            }
        });
    }

    /// Calls `panel(index, values)` for every panel, on several threads.
    fn fill(&mut self, panel: impl Fn(usize, &mut [f32]) + Sync) {
        let size = self.depth * LANES;
        let count = self.columns.div_ceil(LANES);
        let threads = parallel::threads_for(size * count);
        let output = SharedOutput::new(bytemuck::cast_slice_mut(&mut self.lines));
        parallel::for_each(threads, count, |index| {
            // SAFETY: the panels of `size` values are disjoint and `count` of them make up the slice.
            panel(index, unsafe { output.slice(index * size, size) });
        });
    }

    /// Rows of `B`: the length of the summed index.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Columns of `B`: the width of the product.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The panels, `depth * 16` values each.
    pub(crate) fn values(&self) -> &[f32] {
        bytemuck::cast_slice(&self.lines)
    }
}
