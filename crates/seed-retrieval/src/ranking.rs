//! The best of many scored documents.
//!
//! Not for: scoring.

use std::cmp::Ordering;

/// A document found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hit {
    /// Position of the document in the order in which the documents were added.
    pub document: usize,
    /// Its score, above 0 when it holds a term of the query.
    pub score: f32,
}

/// The `count` best hits, best first; of equal scores, the one whose document has the smaller rank. Ranks must
/// differ, so that the order is total.
pub(crate) fn best(mut hits: Vec<Hit>, count: usize, rank: impl Fn(usize) -> usize) -> Vec<Hit> {
    let compare = |left: &Hit, right: &Hit| -> Ordering {
        right
            .score
            .total_cmp(&left.score)
            .then_with(|| rank(left.document).cmp(&rank(right.document)))
    };
    if count < hits.len() && count > 0 {
        hits.select_nth_unstable_by(count - 1, compare);
    }
    hits.truncate(count);
    hits.sort_unstable_by(compare);
    hits
}
