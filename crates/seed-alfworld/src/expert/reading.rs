//! Reading ALFWorld's texts: what a task asks for, and what an observation tells.
//!
//! Not for: the meaning of commands; only what was answered counts.

use crate::Family;

/// What a task sentence asks for, in the words of the sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The task family.
    pub family: Family,
    /// Word of the object's class, such as `mug`.
    pub object: String,
    /// Word of the target's class, such as `cabinet`; `desklamp` for the light family.
    pub target: String,
}

impl Request {
    /// Reads one of ALFWorld's twelve sentences; text before `Your task is to: ` is skipped. `None` for any other.
    pub fn read(text: &str) -> Option<Self> {
        let sentence = text.rsplit("Your task is to: ").next()?.trim();
        let sentence = sentence.strip_suffix('.').unwrap_or(sentence);
        let words: Vec<&str> = sentence.split(' ').collect();
        let (family, object, target) = match words.as_slice() {
            ["put", "a", object, "in", target] | ["put", "some", object, "on", target] => {
                (Family::PickAndPlaceSimple, object, target)
            }
            ["put", "two", object, "in", target]
            | ["find", "two", object, "and", "put", "them", "in", target] => {
                (Family::PickTwoObjAndPlace, object, target)
            }
            ["put", "a", how @ ("clean" | "hot" | "cool"), object, "in", target]
            | [
                how @ ("clean" | "heat" | "cool"),
                "some",
                object,
                "and",
                "put",
                "it",
                "in",
                target,
            ] => {
                let family = match *how {
                    "clean" => Family::PickCleanThenPlaceInRecep,
                    "cool" => Family::PickCoolThenPlaceInRecep,
                    _ => Family::PickHeatThenPlaceInRecep,
                };
                (family, object, target)
            }
            ["look", "at", object, "under", "the", lamp]
            | ["examine", "the", object, "with", "the", lamp] => (Family::LookAtObjInLight, object, lamp),
            _ => return None,
        };
        Some(Self {
            family,
            object: (*object).to_owned(),
            target: (*target).to_owned(),
        })
    }

    /// How the object must be treated: the verb, and the class word of what does it.
    pub fn treatment(&self) -> Option<(&'static str, &'static str)> {
        match self.family {
            Family::PickCleanThenPlaceInRecep => Some(("clean", "sinkbasin")),
            Family::PickHeatThenPlaceInRecep => Some(("heat", "microwave")),
            Family::PickCoolThenPlaceInRecep => Some(("cool", "fridge")),
            Family::PickAndPlaceSimple | Family::PickTwoObjAndPlace | Family::LookAtObjInLight => None,
        }
    }

    /// How many objects must be placed; none for the light family.
    pub fn places(&self) -> usize {
        match self.family {
            Family::LookAtObjInLight => 0,
            Family::PickTwoObjAndPlace => 2,
            _ => 1,
        }
    }
}

/// What one observation tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The room's receptacles, at the start.
    Room(Vec<String>),
    /// A receptacle and, unless it is closed, what is in it.
    Seen {
        /// The receptacle's name.
        receptacle: String,
        /// Names of what is in it; `None` when it is closed.
        contents: Option<Vec<String>>,
        /// Whether the agent has just arrived there.
        arrived: bool,
    },
    /// An object was taken.
    Took {
        /// The object's name.
        object: String,
        /// From where.
        receptacle: String,
    },
    /// An object was put down.
    Moved {
        /// The object's name.
        object: String,
        /// To where.
        receptacle: String,
    },
    /// An object was cleaned, heated or cooled.
    Treated {
        /// `clean`, `heat` or `cool`.
        verb: String,
        /// The object's name.
        object: String,
        /// With what.
        receptacle: String,
    },
    /// A lamp was turned on.
    TurnedOn {
        /// The lamp's name.
        object: String,
    },
    /// The command was not possible.
    Nothing,
    /// Anything else, such as an inventory.
    Other,
}

impl Event {
    /// Reads an observation.
    pub fn read(observation: &str) -> Self {
        Self::read_known(observation).unwrap_or(Self::Other)
    }

    fn read_known(observation: &str) -> Option<Self> {
        let text = observation.trim();
        if text == "Nothing happens." {
            return Some(Self::Nothing);
        }
        if text.contains("Your task is to: ") {
            let list = text
                .split("Looking quickly around you, you see ")
                .nth(1)?
                .lines()
                .next()?;
            return Some(Self::Room(names(list)));
        }
        if let Some(rest) = text.strip_prefix("You arrive at ") {
            return seen(rest.split_once(". ")?.1, true);
        }
        if let Some(rest) = text.strip_prefix("You open the ") {
            return seen(rest.split_once(". ")?.1, false);
        }
        if let Some(rest) = text.strip_prefix("You close the ") {
            let receptacle = rest.strip_suffix('.')?.to_owned();
            return Some(Self::Seen {
                receptacle,
                contents: None,
                arrived: false,
            });
        }
        let sentence = text.strip_suffix('.')?;
        if let Some(rest) = sentence.strip_prefix("You pick up the ") {
            let (object, receptacle) = pair(rest, " from the ")?;
            return Some(Self::Took { object, receptacle });
        }
        if let Some(rest) = sentence.strip_prefix("You move the ") {
            let (object, receptacle) = pair(rest, " to the ")?;
            return Some(Self::Moved { object, receptacle });
        }
        if let Some(rest) = sentence.strip_prefix("You turn on the ") {
            return Some(Self::TurnedOn {
                object: rest.to_owned(),
            });
        }
        for verb in ["clean", "heat", "cool"] {
            if let Some(rest) = sentence
                .strip_prefix("You ")
                .and_then(|rest| rest.strip_prefix(verb))
            {
                let (object, receptacle) = pair(rest.strip_prefix(" the ")?, " using the ")?;
                return Some(Self::Treated {
                    verb: verb.to_owned(),
                    object,
                    receptacle,
                });
            }
        }
        seen(text, false)
    }
}

/// `The R is closed.`, `The R is open. In it, you see LIST.` or `On the R, you see LIST.`
fn seen(text: &str, arrived: bool) -> Option<Event> {
    if let Some(rest) = text.strip_prefix("On the ") {
        let (receptacle, list) = rest.split_once(", you see ")?;
        return Some(Event::Seen {
            receptacle: receptacle.to_owned(),
            contents: Some(names(list)),
            arrived,
        });
    }
    let rest = text.strip_prefix("The ")?;
    if let Some((receptacle, list)) = rest.split_once(" is open. In it, you see ") {
        return Some(Event::Seen {
            receptacle: receptacle.to_owned(),
            contents: Some(names(list)),
            arrived,
        });
    }
    let receptacle = rest.strip_suffix(" is closed.")?;
    Some(Event::Seen {
        receptacle: receptacle.to_owned(),
        contents: None,
        arrived,
    })
}

fn pair(text: &str, middle: &str) -> Option<(String, String)> {
    let (left, right) = text.split_once(middle)?;
    Some((left.to_owned(), right.to_owned()))
}

/// The names in `a X, a Y, and a Z.`; none in `nothing.`
fn names(list: &str) -> Vec<String> {
    list.trim_end_matches('.')
        .split(", ")
        .filter_map(|item| item.strip_prefix("and ").unwrap_or(item).strip_prefix("a "))
        .map(str::to_owned)
        .collect()
}

/// The class word of a printed name: `cabinet` of `cabinet 3`.
pub(super) fn class_word(name: &str) -> &str {
    name.split(' ').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Texts may come from anywhere; reading them never fails.
        #[test]
        fn any_text_is_read(
            opening in prop::sample::select(vec![
                "", "You arrive at ", "You open the ", "You close the ", "On the ", "The ", "You pick up the ",
                "You move the ", "You heat the ", "Your task is to: ", "put a ", "You turn on the ",
            ]),
            rest in ".{0,60}",
        ) {
            let text = format!("{opening}{rest}");
            Event::read(&text);
            Request::read(&text);
            crate::expert::skill::Advice::read(&text);
            crate::expert::skill::annotate_texts(&text, [text.as_str(), text.as_str()], false);
        }

        /// What a sentence asks for is what is read, for any words.
        #[test]
        fn requests_are_read_for_any_words(object in "[a-z]{1,12}", target in "[a-z]{1,12}") {
            let request = Request::read(&format!("heat some {object} and put it in {target}.")).unwrap();
            prop_assert_eq!((request.family, &request.object, &request.target),
                (Family::PickHeatThenPlaceInRecep, &object, &target));
        }
    }

    #[test]
    fn all_twelve_sentences_are_read() {
        use Family::*;
        for (sentence, family, object, target) in [
            ("put a mug in desk.", PickAndPlaceSimple, "mug", "desk"),
            ("put some mug on desk.", PickAndPlaceSimple, "mug", "desk"),
            (
                "put a clean bowl in cabinet.",
                PickCleanThenPlaceInRecep,
                "bowl",
                "cabinet",
            ),
            (
                "clean some bowl and put it in cabinet.",
                PickCleanThenPlaceInRecep,
                "bowl",
                "cabinet",
            ),
            (
                "put a hot egg in fridge.",
                PickHeatThenPlaceInRecep,
                "egg",
                "fridge",
            ),
            (
                "heat some egg and put it in fridge.",
                PickHeatThenPlaceInRecep,
                "egg",
                "fridge",
            ),
            (
                "put a cool pan in shelf.",
                PickCoolThenPlaceInRecep,
                "pan",
                "shelf",
            ),
            (
                "cool some pan and put it in shelf.",
                PickCoolThenPlaceInRecep,
                "pan",
                "shelf",
            ),
            ("put two cd in safe.", PickTwoObjAndPlace, "cd", "safe"),
            (
                "find two cd and put them in safe.",
                PickTwoObjAndPlace,
                "cd",
                "safe",
            ),
            (
                "look at book under the desklamp.",
                LookAtObjInLight,
                "book",
                "desklamp",
            ),
            (
                "examine the book with the desklamp.",
                LookAtObjInLight,
                "book",
                "desklamp",
            ),
        ] {
            let request = Request::read(&format!("…\n\nYour task is to: {sentence}")).unwrap();
            assert_eq!(
                (request.family, request.object.as_str(), request.target.as_str()),
                (family, object, target),
                "{sentence}"
            );
        }
        assert_eq!(Request::read("wash the car."), None);
    }

    #[test]
    fn observations_are_read() {
        let seen = |receptacle: &str, contents: Option<&[&str]>, arrived| Event::Seen {
            receptacle: receptacle.to_owned(),
            contents: contents.map(|names| names.iter().map(|&name| name.to_owned()).collect()),
            arrived,
        };
        for (text, event) in [
            (
                "You arrive at desk 1. On the desk 1, you see a mug 2, and a pen 1.",
                seen("desk 1", Some(&["mug 2", "pen 1"]), true),
            ),
            (
                "You arrive at safe 1. The safe 1 is closed.",
                seen("safe 1", None, true),
            ),
            (
                "You open the safe 1. The safe 1 is open. In it, you see nothing.",
                seen("safe 1", Some(&[]), false),
            ),
            (
                "The safe 1 is open. In it, you see a cd 1.",
                seen("safe 1", Some(&["cd 1"]), false),
            ),
            ("You close the safe 1.", seen("safe 1", None, false)),
            ("Nothing happens.", Event::Nothing),
            ("There's nothing special about mug 1.", Event::Other),
            ("You are carrying: a mug 1.", Event::Other),
            (
                "You heat the mug 1 using the microwave 1.",
                Event::Treated {
                    verb: "heat".to_owned(),
                    object: "mug 1".to_owned(),
                    receptacle: "microwave 1".to_owned(),
                },
            ),
            (
                "You turn on the desklamp 1.",
                Event::TurnedOn {
                    object: "desklamp 1".to_owned(),
                },
            ),
            (
                "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, you \
                 see a bed 1, and a desk 1.\n\nYour task is to: put a mug in desk.",
                Event::Room(vec!["bed 1".to_owned(), "desk 1".to_owned()]),
            ),
        ] {
            assert_eq!(Event::read(text), event, "{text}");
        }
    }
}
