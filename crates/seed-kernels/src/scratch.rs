//! Aligned working memory, kept per thread so that hot functions do not allocate.
//!
//! Not for: results.

use std::cell::RefCell;

use bytemuck::{Pod, Zeroable};

use crate::lanes::LANES;

/// One cache line of values; a `Vec` of these is aligned for vector loads.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C, align(64))]
pub(crate) struct Line([f32; LANES]);

impl Line {
    /// Sixteen zeros.
    pub(crate) const ZERO: Self = Self([0.0; LANES]);
}

thread_local! {
    // A stack of free buffers rather than one: a caller that lends one takes part in its own tasks, which borrow more.
    static FREE: RefCell<Vec<Vec<Line>>> = const { RefCell::new(Vec::new()) };
}

/// Calls `body` with `length` values of working memory, whose contents are whatever was left there.
pub(crate) fn with<R>(length: usize, body: impl FnOnce(&mut [f32]) -> R) -> R {
    let mut lines = FREE.with_borrow_mut(Vec::pop).unwrap_or_default();
    let needed = length.div_ceil(LANES);
    if lines.len() < needed {
        lines.resize(needed, Line::ZERO);
    }
    let result = body(&mut bytemuck::cast_slice_mut(&mut lines[..needed])[..length]);
    FREE.with_borrow_mut(|free| free.push(lines));
    result
}
