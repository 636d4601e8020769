//! Keys and values of one sequence in one layer.
//!
//! Not for: deciding what to keep; the owner appends, truncates and clones.

use super::AttentionShape;
use crate::lanes::LANES;

/// Positions by which a full cache grows. Doubling would hold up to twice the memory in use, in every sequence that is
/// decoded at once; a step of this size costs a copy per so many positions.
const GROWTH: usize = 256;

/// Keys and values of one sequence in one layer. Cloning it forks the sequence.
///
/// Keys are kept so that sixteen consecutive positions of one dimension are contiguous (`[position / 16][dim][16]` per
/// head, unused positions zero); values are kept by position (`[position][dim]` per head, rows padded with zeros to a
/// multiple of sixteen).
#[derive(Clone, Debug)]
pub struct KeyValueCache {
    head_dim: usize,
    length: usize,
    heads: Vec<Head>,
}

#[derive(Clone, Debug)]
struct Head {
    keys: Vec<f32>,
    values: Vec<f32>,
}

/// Makes room for `needed` values, and for at most `step` more.
fn grow(values: &mut Vec<f32>, needed: usize, step: usize) {
    if values.capacity() < needed {
        values.reserve_exact(needed.next_multiple_of(step) - values.len());
    }
}

impl KeyValueCache {
    /// An empty cache with room for `capacity` positions; it grows past them when needed.
    ///
    /// # Panics
    ///
    /// Panics when the shape's query heads are not a multiple of its key-value heads.
    pub fn new(shape: &AttentionShape, capacity: usize) -> Self {
        shape.check();
        let positions = capacity.next_multiple_of(LANES);
        let heads = (0..shape.key_value_heads)
            .map(|_| Head {
                keys: Vec::with_capacity(positions * shape.head_dim),
                values: Vec::with_capacity(positions * shape.head_dim.next_multiple_of(LANES)),
            })
            .collect();
        Self {
            head_dim: shape.head_dim,
            length: 0,
            heads,
        }
    }

    /// Number of positions held.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether no position is held.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Number of positions there is room for.
    pub fn capacity(&self) -> usize {
        let of_head = |head: &Head| head.keys.capacity() / self.head_dim.max(1);
        self.heads.first().map_or(0, of_head)
    }

    /// Memory held, in bytes.
    pub fn bytes(&self) -> usize {
        self.heads
            .iter()
            .map(|head| (head.keys.capacity() + head.values.capacity()) * size_of::<f32>())
            .sum()
    }

    /// Appends `rows` positions; `k` and `v` are `[rows, key_value_heads * head_dim]`.
    ///
    /// # Panics
    ///
    /// Panics when `k` or `v` has another length.
    pub fn append(&mut self, k: &[f32], v: &[f32], rows: usize) {
        let _span = tracing::trace_span!("cache_append", rows).entered();
        let dim = self.head_dim;
        let width = self.heads.len() * dim;
        assert_eq!(
            k.len(),
            rows * width,
            "`k` must be [rows, key_value_heads * head_dim]"
        );
        assert_eq!(
            v.len(),
            rows * width,
            "`v` must be [rows, key_value_heads * head_dim]"
        );
        let blocks = (self.length + rows).div_ceil(LANES);
        let padded_dim = dim.next_multiple_of(LANES);
        for (h, head) in self.heads.iter_mut().enumerate() {
            grow(&mut head.keys, blocks * dim * LANES, GROWTH * dim);
            grow(
                &mut head.values,
                (self.length + rows) * padded_dim,
                GROWTH * padded_dim,
            );
            head.keys.resize(blocks * dim * LANES, 0.0);
            for row in 0..rows {
                let position = self.length + row;
                let block = &mut head.keys[position / LANES * dim * LANES..][..dim * LANES];
                let source = row * width + h * dim;
                for (line, value) in block.chunks_exact_mut(LANES).zip(&k[source..source + dim]) {
                    line[position % LANES] = *value;
                }
                head.values.extend_from_slice(&v[source..source + dim]);
                head.values.resize((position + 1) * padded_dim, 0.0);
            }
        }
        self.length += rows;
    }

    /// Forgets all positions from `length` on; does nothing when there are none.
    pub fn truncate(&mut self, length: usize) {
        if length >= self.length {
            return;
        }
        self.length = length;
        let dim = self.head_dim;
        for head in &mut self.heads {
            head.values.truncate(length * dim.next_multiple_of(LANES));
            head.keys.truncate(length.div_ceil(LANES) * dim * LANES);
            if !length.is_multiple_of(LANES) {
                for line in head.keys[length / LANES * dim * LANES..].chunks_exact_mut(LANES) {
                    line[length % LANES..].fill(0.0);
                }
            }
        }
    }

    /// Keys of one head, `[blocks][head_dim][16]`.
    pub(super) fn keys(&self, head: usize) -> &[f32] {
        &self.heads[head].keys
    }

    /// Values of one head, `[positions][head_dim rounded up to 16]`.
    pub(super) fn values(&self, head: usize) -> &[f32] {
        &self.heads[head].values
    }

    /// Number of key-value heads and head dimension.
    pub(super) fn shape(&self) -> (usize, usize) {
        (self.heads.len(), self.head_dim)
    }
}
