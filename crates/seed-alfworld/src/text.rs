//! The observation texts of ALFWorld's grammar.
//!
//! Not for: prompts. These are the words of the world itself, letter by letter.

use crate::commands::Action;
use crate::{Game, ObjectId, ReceptacleId, State, Treatment};

const HELP: &str = "\
Available commands:
  look:                             look around your current location
  inventory:                        check your current inventory
  go to (receptacle):               move to a receptacle
  open (receptacle):                open a receptacle
  close (receptacle):               close a receptacle
  take (object) from (receptacle):  take an object from a receptacle
  move (object) to (receptacle):  place an object in or on a receptacle
  examine (something):              examine a receptacle or an object
  use (object):                     use an object
  heat (object) with (receptacle):  heat an object using a receptacle
  clean (object) with (receptacle): clean an object using a receptacle
  cool (object) with (receptacle):  cool an object using a receptacle
  slice (object) with (object):     slice an object using a sharp object
";

const MIDDLE_OF_ROOM: &str = "You are in the middle of a room. Looking quickly around you, you see ";

/// Appends several pieces.
macro_rules! push {
    ($out:expr, $($piece:expr),+ $(,)?) => {{ $($out.push_str($piece);)+ }};
}

/// Appends a list: `nothing`, or names joined by commas with `, and ` before the last.
fn push_list<'a>(out: &mut String, article: &str, names: impl Iterator<Item = &'a str>) {
    let mut names = names.peekable();
    let mut first = true;
    while let Some(name) = names.next() {
        if !first {
            out.push_str(if names.peek().is_some() { ", " } else { ", and " });
        }
        first = false;
        push!(out, article, name);
    }
    if first {
        out.push_str("nothing");
    }
}

impl Game {
    pub(crate) fn compose_reset_text(&self) -> String {
        let mut out = String::from("-= Welcome to TextWorld, ALFRED! =-\n\n");
        out.push_str(MIDDLE_OF_ROOM);
        push_list(
            &mut out,
            "a ",
            self.receptacles()
                .map(|receptacle| self.receptacle_name(receptacle)),
        );
        push!(out, ".\n\nYour task is to: ", self.goal_sentence());
        out
    }

    /// Appends what is seen after an admissible action; `state` is the one it led to.
    pub(crate) fn describe(&self, state: &State, action: Action, out: &mut String) {
        match action {
            Action::Help => out.push_str(HELP),
            Action::Look => self.push_look(state, out),
            Action::Inventory => match state.held() {
                Some(object) => push!(out, "You are carrying: a ", self.object_name(object), "."),
                None => out.push_str("You are not carrying anything."),
            },
            Action::GoTo(receptacle) => {
                push!(out, "You arrive at ", self.receptacle_name(receptacle), ". ");
                self.push_receptacle(state, receptacle, out);
            }
            Action::ExamineReceptacle(receptacle) => self.push_receptacle(state, receptacle, out),
            Action::ExamineObject(object) => self.push_object(state, object, out),
            Action::Open(receptacle) => {
                push!(out, "You open the ", self.receptacle_name(receptacle), ". ");
                self.push_receptacle(state, receptacle, out);
            }
            Action::Close(receptacle) => {
                push!(out, "You close the ", self.receptacle_name(receptacle), ".");
            }
            Action::Take { object, receptacle } => {
                self.push_pair(["You pick up the ", " from the "], object, receptacle, out);
            }
            Action::Move { object, receptacle } => {
                self.push_pair(["You move the ", " to the "], object, receptacle, out);
            }
            Action::Treat { object, receptacle } => {
                let verb = match self.treatment(receptacle) {
                    Some(Treatment::Heat) => "You heat the ",
                    Some(Treatment::Cool) => "You cool the ",
                    Some(Treatment::Clean) | None => "You clean the ",
                };
                self.push_pair([verb, " using the "], object, receptacle, out);
            }
            Action::Use(object) => push!(out, "You turn on the ", self.object_name(object), "."),
            Action::Slice { object, knife } => push!(
                out,
                "You sliced the ",
                self.object_name(object),
                " with the ",
                self.object_name(knife),
                "."
            ),
        }
    }

    fn push_pair(
        &self,
        [before, between]: [&str; 2],
        object: ObjectId,
        receptacle: ReceptacleId,
        out: &mut String,
    ) {
        let (object, receptacle) = (self.object_name(object), self.receptacle_name(receptacle));
        push!(out, before, object, between, receptacle, ".");
    }

    fn push_receptacle(&self, state: &State, receptacle: ReceptacleId, out: &mut String) {
        let name = self.receptacle_name(receptacle);
        if !self.is_openable(receptacle) {
            push!(out, "On the ", name, ", you see ");
        } else if state.is_open(self, receptacle) {
            push!(out, "The ", name, " is open. In it, you see ");
        } else {
            push!(out, "The ", name, " is closed.");
            return;
        }
        let contents = state.contents(self, receptacle);
        push_list(out, "a ", contents.map(|object| self.object_name(object)));
        out.push('.');
    }

    fn push_look(&self, state: &State, out: &mut String) {
        let Some(location) = state.location() else {
            // The grammar's rule for this place finds no receptacle at it, so even here the list is empty.
            push!(out, MIDDLE_OF_ROOM, "nothing.");
            return;
        };
        let here = self.receptacles_at(location);
        out.push_str("You are facing the ");
        push_list(
            out,
            "",
            here.iter().map(|&receptacle| self.receptacle_name(receptacle)),
        );
        out.push_str(". Next to it, you see ");
        let at = state.row(self.layout.at(location));
        let beside = state
            .taken_from
            .iter()
            .filter(|(object, receptacle)| {
                crate::state::test(at, object.index()) && self.receptacle_location(*receptacle) == location
            })
            .map(|&(object, _)| self.object_name(object));
        push_list(out, "a ", beside);
        out.push('.');
    }

    /// The first rule that fits counts.
    fn push_object(&self, state: &State, object: ObjectId, out: &mut String) {
        let name = self.object_name(object);
        if self.is_holder(object) {
            push!(out, "This is a normal ", name, ". In it, you see ");
            let nested = &self.objects[object.index()].nested;
            push_list(out, "a ", nested.iter().map(|&inner| self.object_name(inner)));
            out.push('.');
            return;
        }
        let clean = state.is_clean(self, object);
        let (hot, cool) = (state.is_hot(self, object), state.is_cool(self, object));
        let sliced = state.is_sliced(self, object);
        let adjectives = match (clean, hot, cool, sliced) {
            (true, true, _, true) => "hot and clean sliced ",
            (true, _, true, true) => "cool and clean sliced ",
            (true, _, _, true) => "clean sliced ",
            (_, true, _, true) => "hot sliced ",
            (_, _, true, true) => "cool sliced ",
            (true, true, _, _) => "hot and clean ",
            (true, _, true, _) => "cool and clean ",
            (_, true, _, _) => "hot ",
            (true, _, _, _) => "clean ",
            (_, _, true, _) => "cold ",
            _ if self.is_toggleable(object) && state.is_toggled(self, object) => {
                push!(out, "This ", name, " is on.");
                return;
            }
            (_, _, _, true) => "sliced ",
            _ => {
                push!(out, "There's nothing special about ", name, ".");
                return;
            }
        };
        push!(out, "This is a ", adjectives, name, ".");
    }
}
