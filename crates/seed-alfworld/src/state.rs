//! The part of a game that changes.
//!
//! A [`State`] is a few hundred bytes; a snapshot is its clone, and to restore is to clone back (or to
//! `clone_from`, which reuses the memory). Not for: the rules, which are in the engine.

use crate::game::Layout;
use crate::{Game, LocationId, ObjectId, ReceptacleId};

/// Everything that changes while a game is played. Only meaningful together with its [`Game`].
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// Bit rows; see [`Layout`] for what lies where.
    pub(crate) words: Box<[u64]>,
    /// (object, receptacle) pairs that a `take` ended and no `move` made anew, sorted. `look` shows them.
    pub(crate) taken_from: Vec<(ObjectId, ReceptacleId)>,
    pub(crate) held: Option<ObjectId>,
    /// Where the agent is; `None` at the starting place.
    pub(crate) location: Option<LocationId>,
}

impl Clone for State {
    fn clone(&self) -> Self {
        Self {
            words: self.words.clone(),
            taken_from: self.taken_from.clone(),
            held: self.held,
            location: self.location,
        }
    }

    fn clone_from(&mut self, source: &Self) {
        self.words.clone_from(&source.words);
        self.taken_from.clone_from(&source.taken_from);
        self.held = source.held;
        self.location = source.location;
    }
}

/// Tests a bit of a row.
pub(crate) fn test(row: &[u64], index: usize) -> bool {
    row[index / 64] >> (index % 64) & 1 == 1
}

/// Sets or clears a bit of a row.
pub(crate) fn assign(row: &mut [u64], index: usize, value: bool) {
    let mask = 1 << (index % 64);
    if value {
        row[index / 64] |= mask;
    } else {
        row[index / 64] &= !mask;
    }
}

/// The positions of set bits, rising.
pub(crate) fn ones(row: &[u64]) -> impl Iterator<Item = usize> {
    row.iter().enumerate().flat_map(|(word, &bits)| {
        let mut rest = bits;
        std::iter::from_fn(move || {
            if rest == 0 {
                return None;
            }
            let bit = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            Some(word * 64 + bit)
        })
    })
}

impl State {
    /// Where the agent is: `None` only at the starting place, before the first `go to`.
    pub fn location(&self) -> Option<LocationId> {
        self.location
    }

    /// The object in the agent's hand.
    pub fn held(&self) -> Option<ObjectId> {
        self.held
    }

    /// Whether an openable receptacle stands open. Always false for receptacles without a door.
    pub fn is_open(&self, game: &Game, receptacle: ReceptacleId) -> bool {
        test(self.row(game.layout.opened()), receptacle.index())
    }

    /// Whether what is in the receptacle can be seen and taken: it has no door, or is open.
    pub fn is_accessible(&self, game: &Game, receptacle: ReceptacleId) -> bool {
        !game.is_openable(receptacle) || self.is_open(game, receptacle)
    }

    /// Whether the object is in the receptacle. An object may be in several at once.
    pub fn is_in(&self, game: &Game, object: ObjectId, receptacle: ReceptacleId) -> bool {
        test(self.row(game.layout.inside(receptacle)), object.index())
    }

    /// What is in a receptacle, in the order of observations, seen or not.
    pub fn contents(&self, game: &Game, receptacle: ReceptacleId) -> impl Iterator<Item = ObjectId> {
        ones(self.row(game.layout.inside(receptacle))).map(ObjectId::at)
    }

    /// The receptacles an object is in, seen or not: none when it is held, or stands on the floor.
    pub fn receptacles_of(&self, game: &Game, object: ObjectId) -> impl Iterator<Item = ReceptacleId> {
        game.receptacles()
            .filter(move |&receptacle| self.is_in(game, object, receptacle))
    }

    /// Whether the object was cleaned.
    pub fn is_clean(&self, game: &Game, object: ObjectId) -> bool {
        test(self.row(game.layout.clean()), object.index())
    }

    /// Whether the object is hot.
    pub fn is_hot(&self, game: &Game, object: ObjectId) -> bool {
        test(self.row(game.layout.hot()), object.index())
    }

    /// Whether the object is cool.
    pub fn is_cool(&self, game: &Game, object: ObjectId) -> bool {
        test(self.row(game.layout.cool()), object.index())
    }

    /// Whether the object was turned on. Nothing ever turns it off.
    pub fn is_toggled(&self, game: &Game, object: ObjectId) -> bool {
        test(self.row(game.layout.toggled()), object.index())
    }

    /// Whether the object was sliced.
    pub fn is_sliced(&self, game: &Game, object: ObjectId) -> bool {
        test(self.row(game.layout.sliced()), object.index())
    }

    /// Size in bytes, with what it owns on the heap.
    pub fn size_in_bytes(&self) -> usize {
        size_of::<Self>()
            + size_of_val::<[u64]>(&self.words)
            + self.taken_from.capacity() * size_of::<(ObjectId, ReceptacleId)>()
    }

    pub(crate) fn row(&self, range: std::ops::Range<usize>) -> &[u64] {
        &self.words[range]
    }

    pub(crate) fn row_mut(&mut self, range: std::ops::Range<usize>) -> &mut [u64] {
        &mut self.words[range]
    }

    pub(crate) fn empty(layout: Layout) -> Self {
        Self {
            words: vec![0; layout.words()].into_boxed_slice(),
            taken_from: Vec::new(),
            held: None,
            location: None,
        }
    }
}
