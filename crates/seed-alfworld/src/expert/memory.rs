//! What a player without knowledge remembers: only what its observations have shown.
//!
//! Not for: deciding what to do with it.

use std::collections::BTreeMap;

use super::reading::{Event, Request, class_word};

/// What is known about one receptacle.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(super) struct Sight {
    /// It was seen closed and not opened since.
    pub(super) closed: bool,
    /// What was in it when last seen; `None` when it has never been seen inside.
    pub(super) contents: Option<Vec<String>>,
}

/// Everything read in one episode so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    /// The task, when its sentence was understood.
    pub(super) request: Option<Request>,
    /// All receptacles in the order of the first observation.
    pub(super) receptacles: Vec<String>,
    /// What is known about the receptacles that were visited.
    pub(super) sights: BTreeMap<String, Sight>,
    /// The receptacle last arrived at.
    pub(super) here: Option<String>,
    /// The object in hand.
    pub(super) held: Option<String>,
    /// (object, verb) pairs of treatments done.
    pub(super) treated: Vec<(String, String)>,
    /// (object, receptacle) pairs of goal objects put into a target.
    pub(super) placed: Vec<(String, String)>,
    /// Lamps turned on.
    pub(super) lit: Vec<String>,
}

impl Memory {
    /// Starts anew from the first observation of an episode.
    pub(super) fn begin(observation: &str) -> Self {
        let mut memory = Self {
            request: Request::read(observation),
            ..Self::default()
        };
        if let Event::Room(receptacles) = Event::read(observation) {
            memory.receptacles = receptacles;
        }
        memory
    }

    /// Takes in an observation.
    pub(super) fn observe(&mut self, observation: &str) {
        match Event::read(observation) {
            Event::Seen {
                receptacle,
                contents,
                arrived,
            } => {
                if arrived {
                    self.here = Some(receptacle.clone());
                }
                let sight = self.sights.entry(receptacle).or_default();
                sight.closed = contents.is_none();
                if contents.is_some() {
                    sight.contents = contents;
                }
            }
            Event::Took { object, receptacle } => {
                if let Some(contents) = self.sights.entry(receptacle).or_default().contents.as_mut() {
                    contents.retain(|name| *name != object);
                }
                self.placed.retain(|(placed, _)| *placed != object);
                self.held = Some(object);
            }
            Event::Moved { object, receptacle } => {
                self.held = None;
                self.sights
                    .entry(receptacle.clone())
                    .or_default()
                    .contents
                    .get_or_insert_default()
                    .push(object.clone());
                if self.is_wanted(&object) && self.is_target(&receptacle) {
                    self.placed.push((object, receptacle));
                }
            }
            Event::Treated { verb, object, .. } => {
                // Heat and cold undo each other.
                let undone = match verb.as_str() {
                    "heat" => "cool",
                    "cool" => "heat",
                    _ => "",
                };
                self.treated
                    .retain(|(treated, by)| *treated != object || (by != undone && *by != verb));
                self.treated.push((object, verb));
            }
            Event::TurnedOn { object } => self.lit.push(object),
            Event::Room(_) | Event::Nothing | Event::Other => {}
        }
    }

    /// Whether the object is of the class the task is about.
    pub(super) fn is_wanted(&self, object: &str) -> bool {
        self.request
            .as_ref()
            .is_some_and(|request| class_word(object) == request.object)
    }

    /// Whether the receptacle is of the class the task names as target.
    pub(super) fn is_target(&self, receptacle: &str) -> bool {
        self.request
            .as_ref()
            .is_some_and(|request| class_word(receptacle) == request.target)
    }

    /// Whether `object` was treated as `verb` says.
    pub(super) fn is_treated(&self, object: &str, verb: &str) -> bool {
        self.treated
            .iter()
            .any(|(treated, by)| treated == object && by == verb)
    }

    /// Where an object for which `wanted` holds was last seen: (object, receptacle), in the order of the room.
    pub(super) fn find(&self, wanted: impl Fn(&str, &str) -> bool) -> Option<(&str, &str)> {
        self.receptacles.iter().find_map(|receptacle| {
            let contents = self.sights.get(receptacle)?.contents.as_ref()?;
            let object = contents.iter().find(|object| wanted(object, receptacle))?;
            Some((object.as_str(), receptacle.as_str()))
        })
    }

    /// Whether the inside of a receptacle has ever been seen.
    pub(super) fn is_searched(&self, receptacle: &str) -> bool {
        self.sights
            .get(receptacle)
            .is_some_and(|sight| sight.contents.is_some())
    }

    /// Whether a receptacle is known to be closed.
    pub(super) fn is_closed(&self, receptacle: &str) -> bool {
        self.sights.get(receptacle).is_some_and(|sight| sight.closed)
    }
}
