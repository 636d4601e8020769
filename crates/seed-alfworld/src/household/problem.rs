//! A drawn household, and its `pddl_problem` text in the style of ALFWorld's game files, so that this engine and the
//! original read it alike.
//!
//! Not for: deciding what is in the household.

use std::fmt::Write as _;
use std::sync::Arc;

use super::catalogue::{ObjectClass, ReceptacleClass};
use super::combination::Combination;
use super::room::{Location, Position, Room};
use crate::Family;

/// An object and where it lies at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedObject {
    /// Its class.
    pub class: ObjectClass,
    /// Where it is; part of its id.
    pub position: Position,
    /// Index of its receptacle in the room.
    pub receptacle: usize,
}

/// One game before it is text: a room, what lies in it, where the agent stands, and what is asked.
#[derive(Clone, Debug)]
pub struct Household {
    /// Name of the trial, such as `trial_household_studio_train_000017`.
    pub trial: String,
    /// The room.
    pub room: Arc<Room>,
    /// Everything that can be carried.
    pub objects: Vec<PlacedObject>,
    /// Where the agent starts.
    pub start: Location,
    /// What is asked.
    pub combination: Combination,
    /// Which of the family's two sentences asks for it: 0 or 1.
    pub sentence: usize,
}

impl Household {
    /// The goal in ALFWorld's words, with its period.
    pub fn goal_sentence(&self) -> String {
        let object = self.combination.object.word();
        let target = self
            .combination
            .target
            .map_or_else(String::new, ReceptacleClass::word);
        let first = self.sentence == 0;
        match self.combination.family {
            Family::PickAndPlaceSimple if first => format!("put a {object} in {target}."),
            Family::PickAndPlaceSimple => format!("put some {object} on {target}."),
            Family::LookAtObjInLight if first => format!("look at {object} under the desklamp."),
            Family::LookAtObjInLight => format!("examine the {object} with the desklamp."),
            Family::PickCleanThenPlaceInRecep if first => format!("put a clean {object} in {target}."),
            Family::PickCleanThenPlaceInRecep => format!("clean some {object} and put it in {target}."),
            Family::PickHeatThenPlaceInRecep if first => format!("put a hot {object} in {target}."),
            Family::PickHeatThenPlaceInRecep => format!("heat some {object} and put it in {target}."),
            Family::PickCoolThenPlaceInRecep if first => format!("put a cool {object} in {target}."),
            Family::PickCoolThenPlaceInRecep => format!("cool some {object} and put it in {target}."),
            Family::PickTwoObjAndPlace if first => format!("put two {object} in {target}."),
            Family::PickTwoObjAndPlace => format!("find two {object} and put them in {target}."),
        }
    }

    /// The `pddl_problem` text.
    pub fn problem(&self) -> String {
        // Large enough for most games; full kitchens grow it once or twice.
        let mut text = String::with_capacity(48 * 1024);
        let sheet = Sheet::new(self);
        // Writing to a `String` cannot fail, so the results are dropped.
        let _ = write!(
            text,
            "\n(define (problem plan_{})\n(:domain alfred)\n(:objects\nagent1 - agent\n",
            self.trial
        );
        sheet.declarations(&mut text);
        text.push_str("        )\n    \n\n(:init\n\n\n");
        sheet.facts(&mut text, self);
        text.push_str("        )\n    \n\n        (:goal\n");
        write_goal(&mut text, self.combination);
        text
    }
}

/// A carried object or a fixture with its id spelt out.
struct Item {
    class: ObjectClass,
    id: String,
    location: Location,
    receptacle: Option<usize>,
}

/// The ids of one household.
struct Sheet {
    items: Vec<Item>,
    receptacles: Vec<(ReceptacleClass, String, String)>,
    /// Locations in order, without repeats.
    locations: Vec<String>,
}

impl Sheet {
    fn new(household: &Household) -> Self {
        let room = &household.room;
        let spell = |class: ObjectClass, position: Position| {
            let mut id = class.name().to_owned();
            position.spell(&mut id);
            id
        };
        let mut items: Vec<Item> = room
            .fixtures
            .iter()
            .map(|fixture| Item {
                class: fixture.class,
                id: spell(fixture.class, fixture.position),
                location: fixture.location,
                receptacle: fixture.receptacle,
            })
            .collect();
        for object in &household.objects {
            // A placed object's receptacle is an index the generator took from this very room.
            if let Some(receptacle) = room.receptacles.get(object.receptacle) {
                items.push(Item {
                    class: object.class,
                    id: spell(object.class, object.position),
                    location: receptacle.location,
                    receptacle: Some(object.receptacle),
                });
            }
        }
        items.sort_by(|a, b| a.id.cmp(&b.id));
        let receptacles = room
            .receptacles
            .iter()
            .map(|receptacle| (receptacle.class, receptacle.id(), receptacle.location.id()))
            .collect();
        let mut locations: Vec<Location> = room
            .receptacles
            .iter()
            .map(|receptacle| receptacle.location)
            .collect();
        locations.extend(room.fixtures.iter().map(|fixture| fixture.location));
        locations.extend(room.standing.iter().copied());
        locations.sort_unstable();
        locations.dedup();
        Self {
            items,
            receptacles,
            locations: locations.into_iter().map(Location::id).collect(),
        }
    }

    fn declarations(&self, text: &mut String) {
        declare(
            text,
            "object",
            "",
            ObjectClass::ALL.iter().map(|class| class.name()),
        );
        declare(
            text,
            "otype",
            "Type",
            ObjectClass::ALL.iter().map(|class| class.name()),
        );
        declare(
            text,
            "rtype",
            "Type",
            ReceptacleClass::ALL.iter().map(|class| class.name()),
        );
        text.push_str("\n\n");
        let entries = (self.items.iter().map(|item| (item.id.as_str(), "object")))
            .chain(
                self.receptacles
                    .iter()
                    .map(|(_, id, _)| (id.as_str(), "receptacle")),
            )
            .chain(self.locations.iter().map(|id| (id.as_str(), "location")));
        for (id, kind) in entries {
            let _ = writeln!(text, "        {id} - {kind}");
        }
    }

    fn facts(&self, text: &mut String, household: &Household) {
        let mut fact = |predicate: &str, arguments: &[&str]| {
            let _ = write!(text, "        ({predicate}");
            for argument in arguments {
                text.push(' ');
                text.push_str(argument);
            }
            text.push_str(")\n");
        };
        let mut type_name = String::new();
        let mut with_type = |fact: &mut dyn FnMut(&str, &[&str]), predicate: &str, id: &str, class: &str| {
            type_name.clear();
            type_name.push_str(class);
            type_name.push_str("Type");
            fact(predicate, &[id, &type_name]);
        };
        for (class, id, _) in &self.receptacles {
            with_type(&mut fact, "receptacleType", id, class.name());
        }
        for item in &self.items {
            with_type(&mut fact, "objectType", &item.id, item.class.name());
        }
        self.containment(&mut fact);
        for (predicate, holds) in PROPERTIES {
            for item in self.items.iter().filter(|item| holds(item.class)) {
                fact(predicate, &[&item.id]);
            }
        }
        for (_, id, _) in self.receptacles.iter().filter(|(class, _, _)| class.openable()) {
            fact("openable", &[id]);
        }
        fact("atLocation", &["agent1", &household.start.id()]);
        for item in &self.items {
            if let Some((_, receptacle, _)) = item.receptacle.and_then(|index| self.receptacles.get(index)) {
                fact("inReceptacle", &[&item.id, receptacle]);
            }
        }
        for (_, id, location) in &self.receptacles {
            fact("receptacleAtLocation", &[id, location]);
        }
        for item in &self.items {
            fact("objectAtLocation", &[&item.id, &item.location.id()]);
        }
    }

    /// `canContain` for the classes that occur in this household.
    fn containment(&self, fact: &mut dyn FnMut(&str, &[&str])) {
        for &place in ReceptacleClass::ALL {
            if !self.receptacles.iter().any(|&(class, _, _)| class == place) {
                continue;
            }
            let place_type = format!("{}Type", place.name());
            for &object in place.contains() {
                if self.items.iter().any(|item| item.class == object) {
                    fact("canContain", &[&place_type, &format!("{}Type", object.name())]);
                }
            }
        }
    }
}

/// Unary predicates of objects, and which classes have them.
type Property = (&'static str, fn(ObjectClass) -> bool);
const PROPERTIES: [Property; 7] = [
    ("pickupable", ObjectClass::pickupable),
    ("isReceptacleObject", ObjectClass::is_receptacle),
    ("cleanable", ObjectClass::cleanable),
    ("heatable", ObjectClass::heatable),
    ("coolable", ObjectClass::coolable),
    ("toggleable", ObjectClass::toggleable),
    ("sliceable", ObjectClass::sliceable),
];

/// A typed list of constants; ALFWorld's files leave its first entry unindented.
fn declare<'a>(text: &mut String, kind: &str, suffix: &str, names: impl Iterator<Item = &'a str>) {
    let mut indent = "";
    for name in names {
        let _ = writeln!(text, "{indent}{name}{suffix} - {kind}");
        indent = "        ";
    }
}

fn write_goal(text: &mut String, combination: Combination) {
    let object = combination.object.name();
    let target = combination.target.map_or("DeskLamp", ReceptacleClass::name);
    let treated = match combination.family {
        Family::PickAndPlaceSimple => None,
        Family::PickCleanThenPlaceInRecep => Some(("cleanable", "isClean")),
        Family::PickHeatThenPlaceInRecep => Some(("heatable", "isHot")),
        Family::PickCoolThenPlaceInRecep => Some(("coolable", "isCool")),
        Family::LookAtObjInLight => {
            let _ = write!(
                text,
                "             (and
                 (exists (?ot - object
                          ?r - receptacle
                          ?a - agent
                          ?l - location)
                     (and
                         (objectType ?ot {target}Type)
                         (toggleable ?ot)
                         (isToggled ?ot)
                         (receptacleAtLocation ?r ?l)
                         (atLocation ?a ?l)
                         (inReceptacle ?ot ?r)
                     )
                 )
                 (exists (?o - object
                          ?a - agent)
                     (and
                         (objectType ?o {object}Type)
                         (holds ?a ?o)
                     )
                 )
             )
        )
    )
    "
            );
            return;
        }
        Family::PickTwoObjAndPlace => {
            let _ = write!(
                text,
                "            (and
                (exists (?r - receptacle)
                    (exists (?o1 - object)
                        (and
                            (objectType ?o1 {object}Type)
                            (receptacleType ?r {target}Type)
                            (inReceptacle ?o1 ?r)
                            (exists (?o2 - object)
                                (and
                                    (not (= ?o1 ?o2))
                                    (objectType ?o2 {object}Type)
                                    (receptacleType ?r {target}Type)
                                    (inReceptacle ?o2 ?r)
                                )
                            )
                        )
                    )
                )
            )
        )
    )
    "
            );
            return;
        }
    };
    text.push_str(
        "            (and
                (exists (?r - receptacle)
                    (exists (?o - object)
                        (and
",
    );
    if let Some((able, _)) = treated {
        let _ = writeln!(text, "                            ({able} ?o)");
    }
    let _ = write!(
        text,
        "                            (objectType ?o {object}Type)
                            (receptacleType ?r {target}Type)
"
    );
    if let Some((_, state)) = treated {
        let _ = writeln!(text, "                            ({state} ?o)");
    }
    text.push_str(
        "                            (inReceptacle ?o ?r)
                        )
                    )
                )
            )
        )
    )
    ",
    );
}
