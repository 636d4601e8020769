//! How rooms are furnished: which receptacles and fixtures they have, and how many. The shares and counts of full rooms
//! are rounded from ALFWorld's scenes.
//!
//! Not for: where things stand.

use seed_random::Draw;

use super::catalogue::{ObjectClass, ReceptacleClass};
use super::room::{RoomKind, weighted};

use ObjectClass as O;
use ReceptacleClass as R;

/// A studio: what every task family needs, and further furniture up to about a dozen receptacles.
pub(super) fn studio_classes(draw: &mut impl Draw) -> Vec<ReceptacleClass> {
    const LAMP_STANDS: [ReceptacleClass; 4] = [R::Desk, R::SideTable, R::Dresser, R::Shelf];
    // (class, weight, most of it in one studio)
    const FURTHER: [(ReceptacleClass, u32, usize); 17] = [
        (R::Cabinet, 5, 3),
        (R::Drawer, 5, 3),
        (R::Shelf, 3, 2),
        (R::SideTable, 3, 2),
        (R::GarbageCan, 3, 1),
        (R::Bed, 3, 1),
        (R::Sofa, 3, 1),
        (R::CoffeeTable, 3, 1),
        (R::DiningTable, 3, 1),
        (R::ArmChair, 2, 1),
        (R::Desk, 2, 1),
        (R::Dresser, 2, 1),
        (R::Safe, 2, 1),
        (R::StoveBurner, 2, 1),
        (R::CoffeeMachine, 2, 1),
        (R::Toilet, 1, 1),
        (R::Ottoman, 1, 1),
    ];
    let mut classes = vec![R::Fridge, R::Microwave, R::SinkBasin, R::CounterTop];
    classes.push(LAMP_STANDS[draw.below(LAMP_STANDS.len())]);
    let size = 10 + draw.below(4);
    while classes.len() < size {
        let open: Vec<(ReceptacleClass, u32)> = FURTHER
            .iter()
            .filter(|&&(class, _, most)| classes.iter().filter(|&&c| c == class).count() < most)
            .map(|&(class, weight, _)| (class, weight))
            .collect();
        match weighted(draw, &open) {
            Some(class) => classes.push(class),
            None => break,
        }
    }
    classes
}

/// (class, percent of rooms that have it, fewest, most)
type Furnishing = &'static [(ReceptacleClass, usize, usize, usize)];

fn furnishing(kind: RoomKind) -> Furnishing {
    match kind {
        RoomKind::Bathroom => &[
            (R::GarbageCan, 100, 1, 1),
            (R::HandTowelHolder, 100, 1, 3),
            (R::SinkBasin, 100, 1, 2),
            (R::Toilet, 100, 1, 1),
            (R::ToiletPaperHanger, 100, 1, 1),
            (R::TowelHolder, 100, 1, 2),
            (R::CounterTop, 86, 1, 2),
            (R::BathtubBasin, 63, 1, 1),
            (R::Cabinet, 51, 2, 7),
            (R::Drawer, 49, 2, 8),
            (R::Shelf, 28, 1, 4),
            (R::Cart, 10, 1, 1),
            (R::Dresser, 7, 1, 1),
            (R::SideTable, 7, 1, 1),
        ],
        RoomKind::Bedroom => &[
            (R::Bed, 100, 1, 1),
            (R::GarbageCan, 100, 1, 1),
            (R::Drawer, 95, 2, 11),
            (R::Desk, 74, 1, 2),
            (R::Shelf, 72, 1, 9),
            (R::SideTable, 55, 1, 2),
            (R::Dresser, 38, 1, 1),
            (R::LaundryHamper, 36, 1, 1),
            (R::Safe, 26, 1, 1),
            (R::ArmChair, 14, 1, 3),
            (R::Cabinet, 13, 2, 4),
            (R::DiningTable, 10, 1, 1),
        ],
        RoomKind::LivingRoom => &[
            (R::GarbageCan, 100, 1, 1),
            (R::Sofa, 100, 1, 2),
            (R::ArmChair, 92, 1, 2),
            (R::SideTable, 85, 1, 3),
            (R::CoffeeTable, 78, 1, 2),
            (R::Drawer, 78, 1, 10),
            (R::DiningTable, 44, 1, 2),
            (R::Dresser, 43, 1, 1),
            (R::Shelf, 41, 2, 13),
            (R::TVStand, 29, 1, 1),
            (R::Cabinet, 25, 2, 6),
            (R::Safe, 9, 1, 1),
            (R::Ottoman, 8, 1, 1),
        ],
        // A studio is furnished by `studio_classes`.
        RoomKind::Kitchen | RoomKind::Studio => &[
            (R::CoffeeMachine, 100, 1, 1),
            (R::CounterTop, 100, 1, 4),
            (R::Fridge, 100, 1, 1),
            (R::GarbageCan, 100, 1, 1),
            (R::Microwave, 100, 1, 1),
            (R::SinkBasin, 100, 1, 1),
            (R::StoveBurner, 100, 4, 4),
            (R::Toaster, 100, 1, 1),
            (R::Cabinet, 100, 4, 21),
            (R::Drawer, 97, 2, 9),
            (R::DiningTable, 51, 1, 2),
            (R::Shelf, 34, 3, 3),
            (R::SideTable, 9, 1, 1),
            (R::Safe, 3, 1, 1),
        ],
    }
}

/// The receptacle classes of a room of ALFWorld's size.
pub(super) fn full_classes(draw: &mut impl Draw, kind: RoomKind) -> Vec<ReceptacleClass> {
    let mut classes = Vec::new();
    for &(class, percent, fewest, most) in furnishing(kind) {
        if draw.below(100) < percent {
            let count = fewest + draw.below(most - fewest + 1);
            classes.extend(std::iter::repeat_n(class, count));
        }
    }
    classes
}

/// Things that belong to a room, basins' bodies aside: (class, percent of rooms that have it, most).
pub(super) fn further_fixtures(kind: RoomKind) -> &'static [(ObjectClass, usize, usize)] {
    match kind {
        RoomKind::Studio => &[(O::DeskLamp, 100, 1)],
        RoomKind::Kitchen => &[
            (O::HousePlant, 47, 1),
            (O::Chair, 86, 3),
            (O::LightSwitch, 100, 1),
            (O::StoveKnob, 100, 4),
            (O::Window, 91, 2),
        ],
        RoomKind::LivingRoom => &[
            (O::DeskLamp, 50, 1),
            (O::HousePlant, 100, 1),
            (O::Television, 100, 1),
            (O::Chair, 65, 6),
            (O::FloorLamp, 100, 1),
            (O::LightSwitch, 100, 1),
            (O::Painting, 100, 3),
            (O::Window, 90, 4),
        ],
        RoomKind::Bedroom => &[
            (O::DeskLamp, 85, 1),
            (O::HousePlant, 23, 1),
            (O::Blinds, 90, 2),
            (O::Chair, 81, 2),
            (O::LightSwitch, 100, 1),
            (O::Mirror, 100, 1),
            (O::Window, 100, 2),
        ],
        RoomKind::Bathroom => &[
            (O::LightSwitch, 100, 1),
            (O::Mirror, 100, 1),
            (O::ScrubBrush, 100, 1),
            (O::Plunger, 100, 1),
            (O::ShowerDoor, 63, 1),
            (O::Window, 63, 1),
        ],
    }
}
