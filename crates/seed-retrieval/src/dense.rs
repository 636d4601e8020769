//! A flat index of vectors: every vector is compared with the query.
//!
//! Not for: making vectors ([`crate::SentenceEncoder`]), approximate search, or an index larger than memory.

use rayon::prelude::*;

use crate::ranking::best;
use crate::{Hit, RetrievalError};

/// Partial sums of a dot product: component `i` belongs to sum `i` modulo this. A fixed number, so that a score
/// does not depend on how wide the machine's registers are.
const SUMS: usize = 16;

/// Vectors that one task compares.
const TASK_VECTORS: usize = 4096;

/// Vectors of one length, ranked by inner product with a query: by cosine where all have length 1.
///
/// ```
/// # use seed_retrieval::DenseIndex;
/// let index = DenseIndex::new(2, vec![1.0, 0.0, 0.6, 0.8]).unwrap();
/// let hits = index.search(&[0.0, 1.0], 1).unwrap();
/// assert_eq!((hits[0].document, hits[0].score), (1, 0.8));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct DenseIndex {
    dimension: usize,
    /// `[documents, dimension]`, row-major.
    vectors: Vec<f32>,
}

impl DenseIndex {
    /// An index of `vectors`, `[documents, dimension]` row-major.
    ///
    /// # Errors
    /// [`RetrievalError::VectorShape`] when the numbers do not make whole vectors, [`RetrievalError::NotFinite`] naming
    /// the first document whose vector holds a number that is not finite.
    pub fn new(dimension: usize, vectors: Vec<f32>) -> Result<Self, RetrievalError> {
        if dimension == 0 || !vectors.len().is_multiple_of(dimension) {
            return Err(RetrievalError::VectorShape {
                dimension,
                numbers: vectors.len(),
            });
        }
        if let Some(place) = vectors.iter().position(|number| !number.is_finite()) {
            return Err(RetrievalError::NotFinite {
                document: place / dimension,
            });
        }
        Ok(Self { dimension, vectors })
    }

    /// Number of documents.
    pub fn len(&self) -> usize {
        self.vectors.len() / self.dimension
    }

    /// Whether there are no documents.
    pub fn is_empty(&self) -> bool {
        self.vectors.is_empty()
    }

    /// Numbers per vector.
    pub fn dimension(&self) -> usize {
        self.dimension
    }

    /// All vectors, `[documents, dimension]` row-major.
    pub fn vectors(&self) -> &[f32] {
        &self.vectors
    }

    /// The `count` documents with the largest inner product with `query`, largest first; of equal ones, the one added
    /// first. Scores are sums in a fixed order, the same on any number of threads.
    ///
    /// # Errors
    /// [`RetrievalError::QueryLength`] when `query` has another length than the vectors.
    pub fn search(&self, query: &[f32], count: usize) -> Result<Vec<Hit>, RetrievalError> {
        if query.len() != self.dimension {
            return Err(RetrievalError::QueryLength {
                expected: self.dimension,
                found: query.len(),
            });
        }
        let parts: Vec<Vec<Hit>> = self
            .vectors
            .par_chunks(TASK_VECTORS * self.dimension)
            .enumerate()
            .map(|(part, vectors)| {
                let hits = vectors
                    .chunks_exact(self.dimension)
                    .enumerate()
                    .map(|(index, vector)| Hit {
                        document: part * TASK_VECTORS + index,
                        score: dot(vector, query),
                    })
                    .collect();
                best(hits, count, |document| document)
            })
            .collect();
        Ok(best(parts.concat(), count, |document| document))
    }
}

/// The inner product of two vectors of one length.
fn dot(left: &[f32], right: &[f32]) -> f32 {
    let mut sums = [0.0_f32; SUMS];
    let (left, left_rest) = left.as_chunks::<SUMS>();
    let (right, right_rest) = right.as_chunks::<SUMS>();
    for (left, right) in left.iter().zip(right) {
        for ((sum, left), right) in sums.iter_mut().zip(left).zip(right) {
            *sum += left * right;
        }
    }
    for ((sum, left), right) in sums.iter_mut().zip(left_rest).zip(right_rest) {
        *sum += left * right;
    }
    let mut width = SUMS / 2;
    while width > 0 {
        let (low, high) = sums.split_at_mut(width);
        for (low, high) in low.iter_mut().zip(high) {
            *low += *high;
        }
        width /= 2;
    }
    sums[0]
}
