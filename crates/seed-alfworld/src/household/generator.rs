//! The generator of one household world: its rooms, its hold-out, and the game of any (split, index).
//!
//! Not for: playing. A drawn [`Household`] becomes a game by its text.

use std::collections::BTreeSet;
use std::sync::Arc;

use seed_env::Split;
use seed_random::{Draw, RandomKey};
use thiserror::Error;

use super::combination::{Combination, HeldOut};
use super::draw::{self, Askable};
use super::problem::Household;
use super::room::{Room, RoomKind};
use crate::{Family, ProblemError};

/// How large the households of a world are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HouseholdSize {
    /// One small room of 10 to 13 receptacles in which all six task families occur; solved in 3 to 8 commands.
    Studio,
    /// Kitchens, living rooms, bedrooms and bathrooms of ALFWorld's size.
    Full,
}

impl HouseholdSize {
    /// The word in world names and ids.
    pub fn name(self) -> &'static str {
        match self {
            Self::Studio => "studio",
            Self::Full => "full",
        }
    }

    /// (kind, first number, rooms for training, rooms held out)
    fn rooms(self) -> &'static [(RoomKind, usize, usize, usize)] {
        match self {
            Self::Studio => &[(RoomKind::Studio, 501, 24, 8)],
            Self::Full => &[
                (RoomKind::Kitchen, 1, 28, 4),
                (RoomKind::LivingRoom, 201, 28, 4),
                (RoomKind::Bedroom, 301, 28, 4),
                (RoomKind::Bathroom, 401, 24, 4),
            ],
        }
    }
}

/// Why a household world or one of its games could not be made.
#[derive(Debug, Error)]
pub enum HouseholdError {
    /// No acceptable room was found for a room number.
    #[error(
        "no room `{number}` of a `{size}` household fits the world seed `{world_seed}`; choose another seed"
    )]
    NoRoom {
        /// The room's number.
        number: usize,
        /// The size's name.
        size: &'static str,
        /// The world seed.
        world_seed: u64,
    },
    /// No room of a split can ask for a family.
    #[error(
        "no room of split `{split}` of a `{size}` household can ask for `{family}`; choose another world seed"
    )]
    NoTask {
        /// The split's name.
        split: &'static str,
        /// The size's name.
        size: &'static str,
        /// The family's name.
        family: &'static str,
    },
    /// The engine refused a game: a user's file that is none, or (a defect) a generated one.
    #[error("the game `{game}` was refused")]
    Problem {
        /// The game's id, or the file's path.
        game: String,
        /// The engine's reason.
        #[source]
        source: ProblemError,
    },
    /// A file could not be read or written.
    #[error("a game file could not be read or written")]
    File(#[source] std::io::Error),
    /// The generated game has no solution.
    #[error("the generated game `{game}` has no solution; this is a defect of the generator")]
    Unsolvable {
        /// The game's id.
        game: String,
    },
}

/// Room layouts tried for one number before giving up.
const ROOM_ATTEMPTS: u64 = 500;
/// Receptacles of a room, as in ALFWorld's games.
const ROOM_RECEPTACLES: std::ops::RangeInclusive<usize> = 6..=54;
/// Combinations a studio must offer for each family, so that its games differ.
const STUDIO_VARIETY: usize = 4;

/// Draws the games of one household world.
#[derive(Clone, Debug)]
pub struct HouseholdGenerator {
    size: HouseholdSize,
    key: RandomKey,
    held_out: HeldOut,
    training_rooms: Vec<Arc<Room>>,
    unseen_rooms: Vec<Arc<Room>>,
    /// What may be asked in training rooms, by family.
    training: Vec<Vec<Askable>>,
    /// What may be asked in unseen rooms, by family.
    unseen: Vec<Vec<Askable>>,
}

impl HouseholdGenerator {
    /// Draws the world's rooms and its hold-out from `world_seed`.
    ///
    /// # Errors
    /// [`HouseholdError::NoRoom`] and [`HouseholdError::NoTask`] for a world seed that allows no such world.
    pub fn new(size: HouseholdSize, world_seed: u64) -> Result<Self, HouseholdError> {
        let key = RandomKey::new(world_seed).with_text("household", size.name());
        // The hold-out does not depend on the size: what a studio policy never met, a full one has not met either.
        let held_out = HeldOut::draw(&RandomKey::new(world_seed).with_text("household", "hold-out"));
        let (kept, allowed): (Vec<_>, Vec<_>) = Combination::all()
            .into_iter()
            .partition(|combination| held_out.contains(combination));
        let mut census_taken = BTreeSet::new();
        let mut draw_room = |kind, number: usize, combinations: &[Combination]| {
            (0..ROOM_ATTEMPTS)
                .map(|attempt| {
                    Room::draw(
                        &key.with("room", number as u64).with("attempt", attempt),
                        kind,
                        number,
                    )
                })
                .find(|room| {
                    let varied = kind != RoomKind::Studio
                        || Family::ALL
                            .into_iter()
                            .all(|family| draw::askable(room, combinations, family).len() >= STUDIO_VARIETY);
                    let sized = ROOM_RECEPTACLES.contains(&room.receptacles.len());
                    sized && varied && census_taken.insert(room.census())
                })
                .map(Arc::new)
                .ok_or(HouseholdError::NoRoom {
                    number,
                    size: size.name(),
                    world_seed,
                })
        };
        let (mut training_rooms, mut unseen_rooms) = (Vec::new(), Vec::new());
        for &(kind, first, training, unseen) in size.rooms() {
            for number in first..first + training {
                training_rooms.push(draw_room(kind, number, &allowed)?);
            }
            for number in first + training..first + training + unseen {
                unseen_rooms.push(draw_room(kind, number, &kept)?);
            }
        }
        let training = askable_by_family(size, &training_rooms, &allowed, Split::Train)?;
        let unseen = askable_by_family(size, &unseen_rooms, &kept, Split::Unseen)?;
        Ok(Self {
            size,
            key,
            held_out,
            training_rooms,
            unseen_rooms,
            training,
            unseen,
        })
    }

    /// The size of its households.
    pub fn size(&self) -> HouseholdSize {
        self.size
    }

    /// The combinations kept for the unseen split.
    pub fn held_out(&self) -> &HeldOut {
        &self.held_out
    }

    /// The rooms in which the games of `split` take place.
    pub fn rooms(&self, split: Split) -> &[Arc<Room>] {
        match split {
            Split::Train | Split::Development | Split::Seen => &self.training_rooms,
            Split::Unseen => &self.unseen_rooms,
        }
    }

    /// The family of game `index` of `split`. Every block of six games holds each family once, in a drawn order.
    pub fn family(&self, split: Split, index: usize) -> Family {
        let mut order = Family::ALL;
        self.key
            .with_text("families", split.name())
            .with("block", (index / order.len()) as u64)
            .generator()
            .shuffle(&mut order);
        order[index % order.len()]
    }

    /// Game `index` of `split`: the same on every machine, and independent of all other games.
    ///
    /// # Errors
    /// [`HouseholdError::NoTask`], which [`HouseholdGenerator::new`] has already ruled out.
    pub fn household(&self, split: Split, index: usize) -> Result<Household, HouseholdError> {
        let family = self.family(split, index);
        let by_family = if split == Split::Unseen {
            &self.unseen
        } else {
            &self.training
        };
        let key = self
            .key
            .with_text("split", split.name())
            .with("game", index as u64);
        let trial = format!("trial_household_{}_{}_{index:06}", self.size.name(), split.name());
        by_family
            .get(
                Family::ALL
                    .iter()
                    .position(|&other| other == family)
                    .unwrap_or(usize::MAX),
            )
            .and_then(|rooms| draw::household(&key, trial, rooms))
            .ok_or(HouseholdError::NoTask {
                split: split.name(),
                size: self.size.name(),
                family: family.name(),
            })
    }
}

/// What may be asked where, indexed by the family's position in [`Family::ALL`].
fn askable_by_family(
    size: HouseholdSize,
    rooms: &[Arc<Room>],
    combinations: &[Combination],
    split: Split,
) -> Result<Vec<Vec<Askable>>, HouseholdError> {
    Family::ALL
        .into_iter()
        .map(|family| {
            let able: Vec<Askable> = rooms
                .iter()
                .map(|room| Askable {
                    room: Arc::clone(room),
                    combinations: draw::askable(room, combinations, family),
                })
                .filter(|askable| !askable.combinations.is_empty())
                .collect();
            if able.is_empty() {
                return Err(HouseholdError::NoTask {
                    split: split.name(),
                    size: size.name(),
                    family: family.name(),
                });
            }
            Ok(able)
        })
        .collect()
}
