//! Rooms: which receptacles stand where. A room is drawn once per world and shared by all games in it.
//!
//! Not for: what lies in the receptacles; that belongs to a game.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use seed_random::{Draw, RandomKey};

use super::catalogue::{ObjectClass, ReceptacleClass};
use super::furnishing::{full_classes, further_fixtures, studio_classes};

use ObjectClass as O;
use ReceptacleClass as R;

/// What a room is used for. A studio mixes all uses in one small room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RoomKind {
    /// Numbered from 1.
    Kitchen,
    /// Numbered from 201.
    LivingRoom,
    /// Numbered from 301.
    Bedroom,
    /// Numbered from 401.
    Bathroom,
    /// Numbered from 501.
    Studio,
}

/// A point in centimetres; ids spell it in metres with two digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    /// East.
    pub x: i32,
    /// Up.
    pub y: i32,
    /// North.
    pub z: i32,
}

impl Position {
    /// Appends the three coordinates as an id spells them: `_bar__plus_00_dot_59_bar_…`.
    pub(super) fn spell(self, id: &mut String) {
        for value in [self.x, self.y, self.z] {
            let sign = if value < 0 { "minus" } else { "plus" };
            let (metres, centimetres) = (value.abs() / 100, value.abs() % 100);
            // Writing to a `String` cannot fail.
            let _ = write!(id, "_bar__{sign}_{metres:02}_dot_{centimetres:02}");
        }
    }
}

/// Where the agent can stand: quarter-metre cell, quarter turn, camera angle in degrees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Location {
    /// East, in quarter metres.
    pub x: i32,
    /// North, in quarter metres.
    pub z: i32,
    /// Quarter turn, 0 to 3.
    pub rotation: i32,
    /// Camera angle in degrees.
    pub horizon: i32,
}

impl Location {
    /// The id in the game's problem, such as `loc_bar__minus_3_bar_4_bar_1_bar_60`.
    pub fn id(self) -> String {
        let mut id = String::from("loc");
        for value in [self.x, self.z, self.rotation, self.horizon] {
            let _ = if value < 0 {
                write!(id, "_bar__minus_{}", -value)
            } else {
                write!(id, "_bar_{value}")
            };
        }
        id
    }
}

/// One receptacle of a room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receptacle {
    /// Its class.
    pub class: ReceptacleClass,
    /// Where it is; part of its id.
    pub position: Position,
    /// From where it is reached. Several receptacles may share one.
    pub location: Location,
}

impl Receptacle {
    /// The id in the game's problem. Basins are parts of a sink or bathtub and say so.
    pub fn id(&self) -> String {
        let (body, basin) = match self.class {
            R::SinkBasin => ("Sink", "_bar_SinkBasin"),
            R::BathtubBasin => ("Bathtub", "_bar_BathtubBasin"),
            other => (other.name(), ""),
        };
        let mut id = body.to_owned();
        self.position.spell(&mut id);
        id.push_str(basin);
        id
    }
}

/// A thing that belongs to the room and cannot be carried: the desk lamp, a sink, a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixture {
    /// Its class.
    pub class: ObjectClass,
    /// Where it is; part of its id.
    pub position: Position,
    /// From where it is seen.
    pub location: Location,
    /// Index of the receptacle it stands on, if any.
    pub receptacle: Option<usize>,
}

/// A room: receptacles, fixtures, and places to stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// What it is used for.
    pub kind: RoomKind,
    /// Its number in the world, unique over all kinds.
    pub number: usize,
    /// Its receptacles.
    pub receptacles: Vec<Receptacle>,
    /// Its fixtures.
    pub fixtures: Vec<Fixture>,
    /// Locations from which nothing is reached; a game starts at one of them.
    pub standing: Vec<Location>,
}

impl Room {
    /// Draws the room.
    pub(super) fn draw(key: &RandomKey, kind: RoomKind, number: usize) -> Self {
        let mut draw = key.generator();
        let classes = match kind {
            RoomKind::Studio => studio_classes(&mut draw),
            other => full_classes(&mut draw, other),
        };
        let mut surveyor = Surveyor {
            half_width: half_width(kind),
            ..Surveyor::default()
        };
        let mut receptacles: Vec<Receptacle> = classes
            .into_iter()
            .map(|class| {
                let position = surveyor.position(&mut draw, class.height());
                let location = surveyor.location(&mut draw, position);
                Receptacle {
                    class,
                    position,
                    location,
                }
            })
            .collect();
        share_locations(&mut draw, kind, &mut receptacles);
        let fixtures = draw_fixtures(&mut draw, kind, &mut surveyor, &receptacles);
        let standing = (0..4)
            .map(|_| {
                let position = surveyor.position(&mut draw, 0);
                surveyor.location(&mut draw, position)
            })
            .collect();
        Self {
            kind,
            number,
            receptacles,
            fixtures,
            standing,
        }
    }

    /// How many receptacles of each class the room has, in class order: two rooms with the same census look alike.
    pub fn census(&self) -> Vec<(ReceptacleClass, usize)> {
        ReceptacleClass::ALL
            .iter()
            .map(|&class| (class, self.count(class)))
            .filter(|&(_, count)| count > 0)
            .collect()
    }

    /// How many receptacles of `class` it has.
    pub fn count(&self, class: ReceptacleClass) -> usize {
        self.receptacles
            .iter()
            .filter(|receptacle| receptacle.class == class)
            .count()
    }

    /// Whether a desk lamp stands in one of its receptacles.
    pub fn has_lamp(&self) -> bool {
        self.fixtures
            .iter()
            .any(|fixture| fixture.class == O::DeskLamp && fixture.receptacle.is_some())
    }
}

/// Hands out coordinates and locations that are not taken yet.
#[derive(Default)]
pub(super) struct Surveyor {
    /// Half the room's width and depth in centimetres.
    half_width: i32,
    positions: BTreeSet<(i32, i32)>,
    locations: BTreeSet<Location>,
}

impl Surveyor {
    fn position(&mut self, draw: &mut impl Draw, height: i32) -> Position {
        loop {
            let x = centred(draw, self.half_width);
            let z = centred(draw, self.half_width);
            // Heights vary by some centimetres, as in scanned rooms.
            let y = height + draw.below(12) as i32;
            if self.positions.insert((x, z)) {
                return Position { x, y, z };
            }
        }
    }

    fn location(&mut self, draw: &mut impl Draw, near: Position) -> Location {
        loop {
            let location = Location {
                x: near.x / 25 + centred(draw, 2),
                z: near.z / 25 + centred(draw, 2),
                rotation: draw.below(4) as i32,
                horizon: [-30, 0, 30, 45, 60][draw.below(5)],
            };
            if self.locations.insert(location) {
                return location;
            }
        }
    }
}

/// Uniform in `-half..=half`.
pub(super) fn centred(draw: &mut impl Draw, half: i32) -> i32 {
    draw.below((2 * half + 1) as usize) as i32 - half
}

fn half_width(kind: RoomKind) -> i32 {
    match kind {
        RoomKind::Studio | RoomKind::Bathroom => 180,
        RoomKind::Bedroom => 240,
        RoomKind::Kitchen | RoomKind::LivingRoom => 320,
    }
}

/// Lets some receptacles be reached from one location, as burners of a stove or stacked drawers are.
fn share_locations(draw: &mut impl Draw, kind: RoomKind, receptacles: &mut [Receptacle]) {
    let (numerator, denominator) = match kind {
        // One studio in six has one such pair.
        RoomKind::Studio => (1, 6 * receptacles.len().max(1)),
        _ => (1, 9),
    };
    for index in 1..receptacles.len() {
        if draw.below(denominator) < numerator {
            receptacles[index].location = receptacles[index - 1].location;
        }
    }
}

fn draw_fixtures(
    draw: &mut impl Draw,
    kind: RoomKind,
    surveyor: &mut Surveyor,
    receptacles: &[Receptacle],
) -> Vec<Fixture> {
    let mut fixtures = Vec::new();
    for receptacle in receptacles {
        let body = match receptacle.class {
            R::SinkBasin => O::Sink,
            R::BathtubBasin => O::Bathtub,
            _ => continue,
        };
        fixtures.push(Fixture {
            class: body,
            position: receptacle.position,
            location: receptacle.location,
            receptacle: None,
        });
    }
    for &(class, percent, most) in further_fixtures(kind) {
        if draw.below(100) >= percent {
            continue;
        }
        for _ in 0..=draw.below(most) {
            let stand = place(draw, class, receptacles, |_| true);
            let position = surveyor.position(draw, 100);
            let location = match stand.and_then(|index| receptacles.get(index)) {
                Some(receptacle) => receptacle.location,
                None => surveyor.location(draw, position),
            };
            fixtures.push(Fixture {
                class,
                position,
                location,
                receptacle: stand,
            });
        }
    }
    fixtures
}

/// Draws the receptacle (index) an object of `class` lies in: first the receptacle class by its weight, then one of
/// them. `allowed` narrows the classes. `None` when no class of the room qualifies.
pub(super) fn place(
    draw: &mut impl Draw,
    class: ObjectClass,
    receptacles: &[Receptacle],
    allowed: impl Fn(ReceptacleClass) -> bool,
) -> Option<usize> {
    let open: Vec<(ReceptacleClass, u32)> = class
        .places()
        .iter()
        .copied()
        .filter(|&(place, _)| {
            allowed(place) && receptacles.iter().any(|receptacle| receptacle.class == place)
        })
        .collect();
    let chosen = weighted(draw, &open)?;
    let members: Vec<usize> = (0..receptacles.len())
        .filter(|&index| receptacles[index].class == chosen)
        .collect();
    draw.choose(&members).copied()
}

/// Draws an item by its integer weight; `None` when all weights are zero.
pub(super) fn weighted<T: Copy>(draw: &mut impl Draw, items: &[(T, u32)]) -> Option<T> {
    let total: u32 = items.iter().map(|&(_, weight)| weight).sum();
    if total == 0 {
        return None;
    }
    let mut rest = draw.below(total as usize) as u32;
    for &(item, weight) in items {
        if rest < weight {
            return Some(item);
        }
        rest -= weight;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_spell_coordinates_like_alfworld() {
        let receptacle = Receptacle {
            class: R::SinkBasin,
            position: Position { x: -70, y: 93, z: -5 },
            location: Location {
                x: 0,
                z: -3,
                rotation: 3,
                horizon: -30,
            },
        };
        assert_eq!(
            receptacle.id(),
            "Sink_bar__minus_00_dot_70_bar__plus_00_dot_93_bar__minus_00_dot_05_bar_SinkBasin"
        );
        assert_eq!(
            receptacle.location.id(),
            "loc_bar_0_bar__minus_3_bar_3_bar__minus_30"
        );
    }

    #[test]
    fn weighted_choice_follows_the_weights() {
        let mut draw = RandomKey::new(3).generator();
        let mut counts = [0usize; 3];
        for _ in 0..6_000 {
            if let Some(item) = weighted(&mut draw, &[(0, 1), (1, 0), (2, 5)]) {
                counts[item] += 1;
            }
        }
        assert_eq!(counts[1], 0);
        assert!((900..1_100).contains(&counts[0]), "{counts:?}");
        assert_eq!(weighted::<u8>(&mut draw, &[]), None);
    }
}
