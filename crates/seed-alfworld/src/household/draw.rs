//! Drawing one household: which room, what is asked, and what lies where.
//!
//! Not for: the rooms themselves, which are drawn once per world.

use std::collections::BTreeSet;
use std::sync::Arc;

use seed_random::{Draw, RandomKey};

use super::catalogue::{ObjectClass, ReceptacleClass};
use super::combination::Combination;
use super::problem::{Household, PlacedObject};
use super::room::{Position, Room, RoomKind, centred, place, weighted};
use crate::Family;

use ObjectClass as O;

/// (class, percent of games of such a room that have it, most instances)
type Stock = &'static [(ObjectClass, usize, usize)];

/// What is found in a room of `kind`.
#[rustfmt::skip]
fn stock(kind: RoomKind) -> Stock {
    match kind {
        RoomKind::Kitchen => &[
            (O::Apple, 100, 3), (O::Bowl, 100, 3), (O::Bread, 100, 2), (O::ButterKnife, 97, 3), (O::Cup, 100, 3),
            (O::DishSponge, 100, 3), (O::Egg, 100, 3), (O::Fork, 100, 3), (O::Knife, 100, 3), (O::Lettuce, 100, 3),
            (O::Mug, 100, 3), (O::Pan, 100, 2), (O::PepperShaker, 100, 3), (O::Plate, 100, 3), (O::Pot, 100, 2),
            (O::Potato, 100, 3), (O::SaltShaker, 100, 3), (O::SoapBottle, 100, 3), (O::Spatula, 100, 3),
            (O::Spoon, 100, 3), (O::Tomato, 100, 3), (O::PaperTowelRoll, 43, 1), (O::Kettle, 42, 2),
            (O::WineBottle, 39, 3), (O::Glassbottle, 35, 3), (O::Ladle, 30, 3), (O::Statue, 29, 2), (O::Vase, 29, 3),
            (O::CellPhone, 24, 3), (O::CreditCard, 23, 3), (O::Book, 11, 2), (O::Pencil, 6, 2), (O::Pen, 5, 3),
            (O::SprayBottle, 5, 3),
        ],
        RoomKind::LivingRoom => &[
            (O::Box, 100, 2), (O::CreditCard, 100, 3), (O::KeyChain, 100, 3), (O::Laptop, 100, 2),
            (O::Pillow, 100, 2), (O::RemoteControl, 100, 3), (O::Statue, 96, 4), (O::Newspaper, 68, 3),
            (O::Vase, 60, 5), (O::Watch, 52, 3), (O::WateringCan, 46, 2), (O::TissueBox, 42, 3), (O::Plate, 36, 3),
            (O::CellPhone, 31, 3), (O::Book, 29, 3), (O::Pen, 19, 3), (O::Pencil, 17, 3), (O::Bowl, 12, 3),
            (O::Candle, 9, 3),
        ],
        RoomKind::Bedroom => &[
            (O::AlarmClock, 100, 3), (O::Book, 100, 3), (O::CD, 100, 3), (O::CellPhone, 100, 3),
            (O::CreditCard, 100, 3), (O::KeyChain, 100, 3), (O::Laptop, 100, 2), (O::Pen, 100, 3),
            (O::Pencil, 100, 3), (O::Pillow, 100, 2), (O::Mug, 57, 3), (O::Bowl, 46, 2), (O::Box, 43, 1),
            (O::TeddyBear, 33, 1), (O::Statue, 13, 2), (O::TissueBox, 13, 3), (O::RemoteControl, 9, 3),
            (O::Watch, 6, 3), (O::Vase, 4, 3),
        ],
        RoomKind::Bathroom => &[
            (O::Candle, 100, 3), (O::Cloth, 100, 3), (O::HandTowel, 100, 2), (O::SoapBar, 100, 3),
            (O::SoapBottle, 100, 3), (O::SprayBottle, 100, 3), (O::ToiletPaper, 100, 4), (O::Towel, 100, 1),
            (O::DishSponge, 22, 3), (O::TissueBox, 22, 3), (O::PaperTowelRoll, 15, 1),
        ],
        // Percentages do not apply: a studio draws a fixed number of things.
        RoomKind::Studio => &[
            (O::AlarmClock, 100, 2), (O::Apple, 100, 2), (O::Book, 100, 2), (O::Bowl, 100, 2), (O::Bread, 100, 2),
            (O::CD, 100, 2), (O::CellPhone, 100, 2), (O::Cloth, 100, 2), (O::CreditCard, 100, 2), (O::Cup, 100, 2),
            (O::DishSponge, 100, 2), (O::Egg, 100, 2), (O::Fork, 100, 2), (O::KeyChain, 100, 2), (O::Knife, 100, 1),
            (O::Laptop, 100, 2), (O::Lettuce, 100, 2), (O::Mug, 100, 2), (O::Newspaper, 100, 2), (O::Pan, 100, 2),
            (O::Pen, 100, 2), (O::Pencil, 100, 2), (O::PepperShaker, 100, 2), (O::Pillow, 100, 2), (O::Plate, 100, 2),
            (O::Pot, 100, 2), (O::Potato, 100, 2), (O::RemoteControl, 100, 2), (O::SaltShaker, 100, 2),
            (O::SoapBar, 100, 2), (O::SoapBottle, 100, 2), (O::Spatula, 100, 2), (O::Spoon, 100, 2),
            (O::Statue, 100, 2), (O::TissueBox, 100, 2), (O::Tomato, 100, 2), (O::Vase, 100, 2), (O::Watch, 100, 2),
        ],
    }
}

/// Fewest and most things in a studio.
const STUDIO_OBJECTS: (usize, usize) = (12, 20);

/// The combinations of `family` that can be asked in `room`: the room has the target and the appliance, and the object
/// can start somewhere else than in its target.
pub(super) fn askable(room: &Room, all: &[Combination], family: Family) -> Vec<Combination> {
    let appliance_stands = match family {
        Family::PickCleanThenPlaceInRecep => room.count(ReceptacleClass::SinkBasin) > 0,
        Family::PickHeatThenPlaceInRecep => room.count(ReceptacleClass::Microwave) > 0,
        Family::PickCoolThenPlaceInRecep => room.count(ReceptacleClass::Fridge) > 0,
        Family::LookAtObjInLight => room.has_lamp(),
        Family::PickAndPlaceSimple | Family::PickTwoObjAndPlace => true,
    };
    if !appliance_stands {
        return Vec::new();
    }
    let stock = stock(room.kind);
    all.iter()
        .filter(|combination| combination.family == family)
        .filter(|combination| stock.iter().any(|&(class, _, _)| class == combination.object))
        .filter(|combination| {
            combination
                .target
                .is_none_or(|target| room.count(target) > 0 && target_allowed(room.kind, family, target))
        })
        .filter(|combination| {
            combination
                .object
                .places()
                .iter()
                .any(|&(class, _)| room.count(class) > 0 && start_allowed(room.kind, **combination, class))
        })
        .copied()
        .collect()
}

/// Studio games are short: at most eight commands. Two objects fit in that only when nothing must be opened.
fn target_allowed(kind: RoomKind, family: Family, target: ReceptacleClass) -> bool {
    !(kind == RoomKind::Studio && family == Family::PickTwoObjAndPlace && target.openable())
}

/// Where an object of the asked class may lie at the start: never in a target, so that no goal is reached already.
fn start_allowed(kind: RoomKind, combination: Combination, class: ReceptacleClass) -> bool {
    Some(class) != combination.target && target_allowed(kind, combination.family, class)
}

/// A room and what may be asked in it for one family and one side of the hold-out.
#[derive(Clone, Debug)]
pub(super) struct Askable {
    pub(super) room: Arc<Room>,
    pub(super) combinations: Vec<Combination>,
}

/// Draws a game in one of the rooms. `None` only when there is none, which a generator rules out when it is made.
pub(super) fn household(key: &RandomKey, trial: String, rooms: &[Askable]) -> Option<Household> {
    let mut draw = key.generator();
    let Askable { room, combinations } = draw.choose(rooms)?;
    let combination = choose_combination(&mut draw, combinations)?;
    let sentence = draw.below(2);
    let start = *draw.choose(&room.standing)?;
    let mut placer = Placer {
        draw: &mut draw,
        room,
        taken: BTreeSet::new(),
        objects: Vec::new(),
    };
    placer.asked(combination);
    match room.kind {
        RoomKind::Studio => placer.studio(combination.object),
        kind => placer.full(combination.object, stock(kind)),
    }
    let objects = placer.objects;
    Some(Household {
        trial,
        room: Arc::clone(room),
        objects,
        start,
        combination,
        sentence,
    })
}

/// Draws the target class first, so that classes that hold everything do not crowd out the others, then the object.
fn choose_combination(draw: &mut impl Draw, askable: &[Combination]) -> Option<Combination> {
    let mut targets: Vec<(Option<ReceptacleClass>, u32)> = Vec::new();
    for combination in askable {
        match targets
            .iter_mut()
            .find(|(target, _)| *target == combination.target)
        {
            Some((_, weight)) => *weight = (*weight + 1).min(4),
            None => targets.push((combination.target, 1)),
        }
    }
    let target = weighted(draw, &targets)?;
    let members: Vec<Combination> = askable
        .iter()
        .copied()
        .filter(|combination| combination.target == target)
        .collect();
    draw.choose(&members).copied()
}

struct Placer<'a, D> {
    draw: &'a mut D,
    room: &'a Room,
    /// Positions in use by class, because ids must differ.
    taken: BTreeSet<(ObjectClass, Position)>,
    objects: Vec<PlacedObject>,
}

impl<D: Draw> Placer<'_, D> {
    /// Puts one object of `class` somewhere; `false` when the room has no place for it.
    fn put(&mut self, class: ObjectClass, allowed: impl Fn(ReceptacleClass) -> bool) -> bool {
        let Some(receptacle) = place(self.draw, class, &self.room.receptacles, allowed) else {
            return false;
        };
        let Some(around) = self
            .room
            .receptacles
            .get(receptacle)
            .map(|receptacle| receptacle.position)
        else {
            return false;
        };
        let position = loop {
            let position = Position {
                x: around.x + centred(self.draw, 30),
                y: around.y + 3,
                z: around.z + centred(self.draw, 30),
            };
            if self.taken.insert((class, position)) {
                break position;
            }
        };
        self.objects.push(PlacedObject {
            class,
            position,
            receptacle,
        });
        true
    }

    /// The asked object, or objects, and sometimes one more of the class.
    fn asked(&mut self, combination: Combination) {
        let kind = self.room.kind;
        let fewest = if combination.family == Family::PickTwoObjAndPlace {
            2
        } else {
            1
        };
        let most = if kind == RoomKind::Studio { 2 } else { 3 };
        let count = fewest + self.draw.below(most);
        for _ in 0..count {
            self.put(combination.object, |class| {
                start_allowed(kind, combination, class)
            });
        }
    }

    fn studio(&mut self, asked: ObjectClass) {
        let (fewest, most) = STUDIO_OBJECTS;
        let count = fewest + self.draw.below(most - fewest + 1);
        let mut classes: Vec<(ObjectClass, usize, usize)> = stock(RoomKind::Studio)
            .iter()
            .copied()
            .filter(|&(class, _, _)| class != asked)
            .collect();
        self.draw.shuffle(&mut classes);
        for (class, _, most) in classes {
            // Every fourth class has a second instance, where it may.
            let instances = if most > 1 && self.draw.below(4) == 0 { 2 } else { 1 };
            for _ in 0..instances {
                if self.objects.len() >= count {
                    return;
                }
                self.put(class, |place| class.fits(place));
            }
        }
    }

    fn full(&mut self, asked: ObjectClass, stock: Stock) {
        for &(class, percent, most) in stock {
            if class == asked || self.draw.below(100) >= percent {
                continue;
            }
            for _ in 0..=self.draw.below(most) {
                self.put(class, |_| true);
            }
        }
    }
}
