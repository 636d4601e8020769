//! Which (task family, object class, receptacle class) combinations exist, and which of them are held out.
//!
//! The held-out ones occur only in the unseen split; every other split uses only the rest.

use std::collections::{BTreeMap, BTreeSet};

use seed_random::{Draw, RandomKey};

use super::catalogue::{ObjectClass, ReceptacleClass};
use crate::Family;

/// What a game asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Combination {
    /// The task family.
    pub family: Family,
    /// The class of the object to handle.
    pub object: ObjectClass,
    /// The class of the receptacle to put it into; `None` for the light family, whose lamp is always a desk lamp.
    pub target: Option<ReceptacleClass>,
}

impl Combination {
    /// All combinations that make sense: the object can be treated as the family asks and fits the target, and the
    /// target is not the very appliance that treats it.
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for family in Family::ALL {
            for &object in ObjectClass::ALL {
                let treatable = match family {
                    Family::PickCleanThenPlaceInRecep => object.cleanable(),
                    Family::PickHeatThenPlaceInRecep => object.heatable(),
                    Family::PickCoolThenPlaceInRecep => object.coolable(),
                    Family::PickAndPlaceSimple | Family::PickTwoObjAndPlace | Family::LookAtObjInLight => {
                        object.pickupable()
                    }
                };
                if !treatable || UNASKED.contains(&object) {
                    continue;
                }
                if family == Family::LookAtObjInLight {
                    if carried_to_a_lamp(object) {
                        all.push(Self {
                            family,
                            object,
                            target: None,
                        });
                    }
                    continue;
                }
                for &target in ReceptacleClass::ALL {
                    let treats_it = (family == Family::PickHeatThenPlaceInRecep
                        && target == ReceptacleClass::Microwave)
                        || (family == Family::PickCoolThenPlaceInRecep && target == ReceptacleClass::Fridge);
                    if target.is_target() && object.fits(target) && !treats_it {
                        all.push(Self {
                            family,
                            object,
                            target: Some(target),
                        });
                    }
                }
            }
        }
        all
    }
}

/// Classes that lie about but are never asked for.
const UNASKED: &[ObjectClass] = &[
    ObjectClass::HandTowel,
    ObjectClass::PaperTowelRoll,
    ObjectClass::TeddyBear,
    ObjectClass::Towel,
];

/// Whether one would look at it under a lamp: things of desks and living rooms.
fn carried_to_a_lamp(object: ObjectClass) -> bool {
    use ObjectClass as O;
    matches!(
        object,
        O::AlarmClock
            | O::Book
            | O::Bowl
            | O::Box
            | O::CD
            | O::CellPhone
            | O::CreditCard
            | O::KeyChain
            | O::Laptop
            | O::Mug
            | O::Newspaper
            | O::Pen
            | O::Pencil
            | O::Pillow
            | O::Plate
            | O::RemoteControl
            | O::Statue
            | O::TissueBox
            | O::Vase
            | O::Watch
    )
}

/// The held-out combinations of a world.
#[derive(Clone, Debug)]
pub struct HeldOut(BTreeSet<Combination>);

impl HeldOut {
    /// Draws them: of the objects of each (family, target) pair a fifth, rounded up, but never all. So every target
    /// class with at least two objects is met both in training and in the unseen split.
    pub fn draw(world: &RandomKey) -> Self {
        let mut groups: BTreeMap<(Family, Option<ReceptacleClass>), Vec<Combination>> = BTreeMap::new();
        for combination in Combination::all() {
            groups
                .entry((combination.family, combination.target))
                .or_default()
                .push(combination);
        }
        let mut held_out = BTreeSet::new();
        for ((family, target), mut members) in groups {
            let target = target.map_or("DeskLamp", ReceptacleClass::name);
            world
                .with_text("held out", family.name())
                .with_text("target", target)
                .generator()
                .shuffle(&mut members);
            let count = members.len().div_ceil(5).min(members.len() - 1);
            held_out.extend(members.into_iter().take(count));
        }
        Self(held_out)
    }

    /// Whether `combination` is kept for the unseen split.
    pub fn contains(&self, combination: &Combination) -> bool {
        self.0.contains(combination)
    }

    /// All held-out combinations in order.
    pub fn iter(&self) -> impl Iterator<Item = &Combination> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn about_a_fifth_of_every_family_is_held_out_and_no_target_entirely() {
        let all = Combination::all();
        let held_out = HeldOut::draw(&RandomKey::new(0));
        for family in Family::ALL {
            let of_family: Vec<_> = all.iter().filter(|c| c.family == family).collect();
            let held = of_family.iter().filter(|c| held_out.contains(c)).count();
            let share = held as f64 / of_family.len() as f64;
            assert!(
                (0.15..0.35).contains(&share),
                "{family:?}: {held} of {}",
                of_family.len()
            );
            for &target in ReceptacleClass::ALL {
                let group: Vec<_> = of_family.iter().filter(|c| c.target == Some(target)).collect();
                assert!(
                    group.is_empty() || group.iter().any(|c| !held_out.contains(c)),
                    "{family:?} {target:?}"
                );
            }
        }
        assert!(held_out.iter().all(|c| all.contains(c)));
    }
}
