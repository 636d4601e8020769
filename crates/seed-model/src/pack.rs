//! Rows of several sequences laid end to end, so that linear layers run over all of them at once without padding.
//!
//! Not for: deciding which sequences go together; the decoder and the engine do that.

use std::ops::Range;

/// One sequence's consecutive rows in a pack.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    /// Rows of the pack.
    pub(crate) rows: Range<usize>,
    /// Position in the sequence of the first of these rows.
    pub(crate) first_position: usize,
}

/// Token rows of several sequences, each row with its id and its position in its own sequence.
#[derive(Debug, Default)]
pub(crate) struct Pack {
    pub(crate) segments: Vec<Segment>,
    pub(crate) tokens: Vec<u32>,
    pub(crate) positions: Vec<u32>,
}

impl Pack {
    /// Forgets all rows but keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.segments.clear();
        self.tokens.clear();
        self.positions.clear();
    }

    /// Appends the tokens of one sequence which stand at `first_position..`; nothing happens for no tokens.
    pub(crate) fn push(&mut self, tokens: &[u32], first_position: usize) {
        if tokens.is_empty() {
            return;
        }
        let start = self.rows();
        self.tokens.extend_from_slice(tokens);
        self.positions
            .extend((0..tokens.len()).map(|offset| (first_position + offset) as u32));
        self.segments.push(Segment {
            rows: start..self.rows(),
            first_position,
        });
    }

    /// Number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.tokens.len()
    }

    /// One more than the largest position, the number of rotary rows needed.
    pub(crate) fn positions_needed(&self) -> usize {
        self.segments
            .iter()
            .map(|segment| segment.first_position + segment.rows.len())
            .max()
            .unwrap_or(0)
    }

    /// Splits a `[rows, width]` buffer into one mutable slice per segment, in order.
    pub(crate) fn split<'a>(&self, mut buffer: &'a mut [f32], width: usize) -> Vec<&'a mut [f32]> {
        self.segments
            .iter()
            .map(|segment| {
                let (head, tail) = std::mem::take(&mut buffer).split_at_mut(segment.rows.len() * width);
                buffer = tail;
                head
            })
            .collect()
    }

    /// The rows of one segment in a `[rows, width]` buffer.
    pub(crate) fn of<'a>(segment: &Segment, buffer: &'a [f32], width: usize) -> &'a [f32] {
        &buffer[segment.rows.start * width..segment.rows.end * width]
    }
}
