//! The expert that must search: it knows the rules and what households are like, and of this one only what it has read.
//!
//! It looks first where things of the class usually lie and where looking is cheap, opens what is closed, treats what
//! it found and brings it. Not for: knowing better than its observations.

use seed_random::RandomKey;

use super::memory::Memory;
use super::prior::promising;
use super::reading::class_word;
use super::skill::Advice;
use super::{Decision, Player, View};
use crate::household::{ObjectClass, ReceptacleClass};

/// Plays from texts alone.
#[derive(Clone, Debug)]
pub struct SearchingExpert {
    key: RandomKey,
    advice: Advice,
    pub(super) memory: Memory,
}

impl SearchingExpert {
    /// An expert whose choices between equally good places are drawn from `key`.
    pub fn new(key: RandomKey) -> Self {
        Self::advised(key, Advice::default())
    }

    /// An expert that first looks where it is advised to.
    pub fn advised(key: RandomKey, advice: Advice) -> Self {
        Self {
            key,
            advice,
            memory: Memory::default(),
        }
    }

    /// Takes in the latest observation. Called once a step, before [`SearchingExpert::choose`].
    pub(super) fn observe(&mut self, view: &View<'_>) {
        if view.last_command.is_none() {
            self.memory = Memory::begin(view.observation);
        } else {
            self.memory.observe(view.observation);
        }
    }

    /// What to do now.
    pub(super) fn choose(&mut self, admissible: &[String]) -> Decision {
        let Some(request) = self.memory.request.clone() else {
            return decision("look", "look around");
        };
        let object = request.object.as_str();
        let held = self.memory.held.clone();
        if let Some(held) = held.as_deref() {
            if !self.memory.is_wanted(held) {
                return self.put_aside(held, admissible);
            }
            if let Some((verb, appliance)) = request.treatment()
                && !self.memory.is_treated(held, verb)
            {
                let purpose = format!("{verb} the {object}");
                return self.at_one_of(appliance, admissible, &purpose, |place| {
                    format!("{verb} {held} with {place}")
                });
            }
            if request.places() == 0 {
                return self.light(&request.target, admissible);
            }
            let pronoun = if request.places() == 2 { "the" } else { "it" };
            return self.bring(held, object, pronoun, admissible);
        }
        // Placed without winning means that something was missing: what was treated by mistake in memory only.
        let memory = &self.memory;
        let usable = |name: &str, place: &str| {
            memory.is_wanted(name)
                && !(request.places() == 2 && memory.placed.iter().any(|(_, target)| target == place))
        };
        if let Some((name, place)) = memory.find(usable) {
            let (name, place) = (name.to_owned(), place.to_owned());
            let purpose = format!("take the {object}");
            return at(&place, admissible, &purpose, true, |place| {
                format!("take {name} from {place}")
            });
        }
        let second = request.places() == 2 && !self.memory.placed.is_empty();
        let purpose = format!("find {} {object}", if second { "another" } else { "the" });
        self.search(object, admissible, &purpose)
    }

    /// Like [`at`] for any receptacle of a class.
    fn at_one_of(
        &self,
        class: &str,
        admissible: &[String],
        purpose: &str,
        command: impl Fn(&str) -> String,
    ) -> Decision {
        match self
            .memory
            .receptacles
            .iter()
            .find(|name| class_word(name) == class)
        {
            Some(place) => at(place, admissible, purpose, false, command),
            None => decision("look", purpose),
        }
    }

    /// Brings the held object to a target: to where the first of two was put; else to one here, to one that needs no
    /// opening, or to the first.
    fn bring(&self, held: &str, object: &str, pronoun: &str, admissible: &[String]) -> Decision {
        let memory = &self.memory;
        let first_placed = memory.placed.last().map(|(_, place)| place.as_str());
        let mut targets: Vec<&str> = memory
            .receptacles
            .iter()
            .map(String::as_str)
            .filter(|name| memory.is_target(name))
            .collect();
        targets.sort_by_key(|&place| {
            let here = memory.here.as_deref() == Some(place);
            let advised = self.advice.target.as_deref() == Some(place);
            let doorless = ReceptacleClass::parse(class_word(place)).is_some_and(|class| !class.openable());
            let open = memory.is_searched(place) && !memory.is_closed(place);
            (
                first_placed != Some(place),
                !advised,
                !here,
                !(doorless || open),
                self.tie(place),
            )
        });
        let Some(place) = targets.first() else {
            return decision("look", "find a place");
        };
        let what = if pronoun == "it" {
            "it".to_owned()
        } else {
            format!("the {object}")
        };
        let purpose = format!("put {what} in {place}");
        at(place, admissible, &purpose, true, |place| {
            format!("move {held} to {place}")
        })
    }

    /// Takes the held object to a lamp and turns it on.
    fn light(&mut self, lamp: &str, admissible: &[String]) -> Decision {
        if let Some((name, place)) = self.memory.find(|name, _| class_word(name) == lamp) {
            let purpose = format!("turn on the {lamp}");
            return at(place, admissible, &purpose, false, |_| format!("use {name}"));
        }
        self.search(lamp, admissible, &format!("find the {lamp}"))
    }

    /// Looks into the most promising receptacle not yet seen inside.
    fn search(&mut self, object: &str, admissible: &[String], purpose: &str) -> Decision {
        // Who stands before a closed door opens it first, if the place is worth it at all.
        let next = self.most_promising(object);
        let Some(place) = next else {
            // All was seen and it was nowhere: what is remembered must be wrong.
            self.memory.sights.clear();
            return decision("look", purpose);
        };
        let possible = |command: &str| admissible.iter().any(|other| other == command);
        let (go, open) = (format!("go to {place}"), format!("open {place}"));
        if possible(&open) {
            decision(&open, &format!("open the {}", class_word(&place)))
        } else if possible(&go) {
            decision(&go, purpose)
        } else {
            decision(&format!("examine {place}"), purpose)
        }
    }

    /// The next place to look into: where advice says, else the best chance per command.
    fn most_promising(&self, sought: &str) -> Option<String> {
        let mut ranked = promising(&self.memory, sought, |place| self.tie(place));
        let advice = &self.advice;
        let lamp = self
            .memory
            .request
            .as_ref()
            .is_some_and(|request| request.places() == 0 && request.target == sought);
        // Stable, so that the order by chance remains within each group.
        ranked.sort_by_key(|place| {
            let advised = if lamp {
                advice.target.as_ref() == Some(place)
            } else {
                advice.look.contains(place)
            };
            (!advised, advice.avoid.contains(place))
        });
        ranked.into_iter().next()
    }

    /// Puts down an object that the task does not need.
    fn put_aside(&self, held: &str, admissible: &[String]) -> Decision {
        let purpose = format!("put the {} away", class_word(held));
        let prefix = format!("move {held} to ");
        if let Some(command) = admissible.iter().find(|command| command.starts_with(&prefix)) {
            return decision(command, &purpose);
        }
        let class = ObjectClass::parse(class_word(held));
        let fits = |name: &str| {
            ReceptacleClass::parse(class_word(name))
                .is_some_and(|place| class.is_some_and(|class| class.fits(place)) && !place.openable())
        };
        let place = (self.memory.receptacles.iter())
            .filter(|name| fits(name))
            .min_by_key(|name| self.tie(name));
        match place {
            Some(place) => at(place, admissible, &purpose, true, |place| {
                format!("move {held} to {place}")
            }),
            None => decision("inventory", &purpose),
        }
    }

    /// A drawn but fixed order of places.
    fn tie(&self, place: &str) -> u64 {
        self.key.with_text("tie", place).to_u64()
    }
}

/// Goes to `place` if need be, opens it if that is needed and it is closed, then gives `command`.
fn at(
    place: &str,
    admissible: &[String],
    purpose: &str,
    inside: bool,
    command: impl Fn(&str) -> String,
) -> Decision {
    let final_command = command(place);
    let go = format!("go to {place}");
    let open = format!("open {place}");
    let possible = |command: &str| admissible.iter().any(|other| other == command);
    if possible(&final_command) {
        return decision(&final_command, purpose);
    }
    if possible(&go) {
        return decision(&go, purpose);
    }
    if inside && possible(&open) {
        return decision(&open, &format!("open the {}", class_word(place)));
    }
    // The memory is wrong about this place, or the command is impossible; look again.
    decision(&format!("examine {place}"), purpose)
}

fn decision(command: &str, intention: &str) -> Decision {
    Decision {
        command: command.to_owned(),
        intention: intention.to_owned(),
    }
}

impl Player for SearchingExpert {
    fn decide(&mut self, view: &View<'_>) -> Decision {
        self.observe(view);
        self.choose(view.admissible_commands)
    }
}
