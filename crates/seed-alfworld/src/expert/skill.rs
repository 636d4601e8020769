//! Hindsight skills by rule: what a finished episode teaches about its task, in one to three short sentences.
//!
//! A skill says where to look, how to treat what is found, and where to bring it; after a failure also where the search
//! was in vain and what was left out. It uses only what the episode's texts showed. The vocabulary is small and the
//! sentences regular, so that a small policy can learn to write and to follow them. [`oracle_skill`] and
//! [`wrong_skill`] are the same sentences from knowledge, for tests and yardsticks; [`Advice`] reads them back.
//!
//! Not for: skills in a language model's own words.

use std::collections::BTreeMap;

use seed_random::{Draw, RandomKey};

use super::memory::Memory;
use super::prior::promising;
use super::reading::{Event, Request, class_word};
use super::{OptimalExpert, PlayedEpisode, play};
use crate::Game;

/// Commands within which the optimal expert solves any game.
const OPTIMAL_STEPS: usize = 64;
/// Places named at most as searched in vain.
const VAIN_PLACES: usize = 4;
/// Places named at most as worth a look.
const NEXT_PLACES: usize = 2;
/// From how many impossible commands on a skill warns of them.
const IDLE_COMMANDS: usize = 3;

/// What the annotator writes about one episode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// One sentence on what happened.
    pub episode_summary: String,
    /// One to three sentences, at most 40 words, on how to do the task.
    pub episode_skill: String,
}

/// Annotates a played episode; `None` when its task sentence is not one of ALFWorld's.
pub fn annotate(episode: &PlayedEpisode) -> Option<Annotation> {
    let observations = episode
        .steps
        .iter()
        .map(|step| step.observation.as_str())
        .chain([episode.last_observation.as_str()]);
    annotate_texts(&episode.task, observations, episode.won)
}

/// Annotates an episode given as texts: the task sentence, all observations (the first before any command), and
/// whether it was won. `None` when the task sentence is not one of ALFWorld's.
pub fn annotate_texts<'a>(
    task: &str,
    observations: impl IntoIterator<Item = &'a str>,
    won: bool,
) -> Option<Annotation> {
    let findings = Findings::gather(task, observations, won)?;
    Some(findings.annotation(&findings.recipe()))
}

/// As [`annotate_texts`], with the skills of single steps by 0-based step: what to do next where the asked object came
/// into sight, into the hand, or out of its treatment.
pub(super) fn annotate_with_steps(
    task: &str,
    observations: &[&str],
    won: bool,
) -> Option<(Annotation, BTreeMap<usize, String>)> {
    let findings = Findings::gather(task, observations.iter().copied(), won)?;
    let recipe = findings.recipe();
    // Nothing follows the last observation.
    let acted_on = observations.len().saturating_sub(1);
    let steps = observations
        .iter()
        .take(acted_on)
        .enumerate()
        .skip(1)
        .filter_map(|(step, observation)| Some((step, recipe.next_after(&Event::read(observation))?)))
        .collect();
    Some((findings.annotation(&recipe), steps))
}

/// The skill of a perfect episode of `game`.
pub fn oracle_skill(game: &Game) -> Option<String> {
    Some(oracle_recipe(game)?.text())
}

/// A skill of the right form that misleads: it names a wrong place to look, leaves out the treatment, or names a wrong
/// place to put the object. `key` draws which.
pub fn wrong_skill(game: &Game, key: &RandomKey) -> Option<String> {
    let mut recipe = oracle_recipe(game)?;
    let mut draw = key.generator();
    let request = &recipe.request;
    let other = |draw: &mut dyn FnMut(&[String]) -> Option<String>, wrong: &dyn Fn(&str) -> bool| {
        let names: Vec<String> = game
            .receptacles()
            .map(|receptacle| game.receptacle_name(receptacle).to_owned())
            .filter(|name| wrong(name))
            .collect();
        draw(&names)
    };
    let start = game.initial_state();
    let holds_none = |name: &str| {
        game.find_receptacle(name).is_some_and(|place| {
            start
                .contents(game, place)
                .all(|object| class_word(game.object_name(object)) != request.object)
        })
    };
    let wrong_target = |name: &str| class_word(name) != request.target;
    let mut choose = |names: &[String]| draw.choose(names).cloned();
    let place = other(&mut choose, &holds_none)?;
    let target = other(&mut choose, &wrong_target)?;
    match draw.below(3) {
        0 if recipe.appliance.is_some() => recipe.appliance = None,
        1 if recipe.target.is_some() && recipe.request.places() > 0 => recipe.target = Some(target),
        _ => recipe.sources = vec![place],
    }
    Some(recipe.text())
}

/// What a perfect episode of `game` shows of how its task is done.
pub(super) fn oracle_recipe(game: &Game) -> Option<Recipe> {
    let episode = play(game, &mut OptimalExpert, OPTIMAL_STEPS);
    let observations = episode
        .steps
        .iter()
        .map(|step| step.observation.as_str())
        .chain([episode.last_observation.as_str()]);
    Some(Findings::gather(&episode.task, observations, episode.won)?.recipe())
}

/// What an episode showed that matters for its task.
struct Findings {
    request: Request,
    won: bool,
    steps: usize,
    memory: Memory,
    /// (object, place where it was first seen) of objects of the asked class.
    found: Vec<(String, String)>,
    /// (lamp, place) of the first lamp seen.
    lamp: Option<(String, String)>,
    /// Receptacles seen inside, in order.
    searched: Vec<String>,
    /// The object of the asked class taken last.
    taken: Option<String>,
    /// What treated an object of the asked class as the task asks.
    appliance: Option<String>,
    /// Whether an object was put into a target without its treatment.
    untreated: bool,
    /// The target used.
    target: Option<String>,
    idle_commands: usize,
}

impl Findings {
    fn gather<'a>(task: &str, observations: impl IntoIterator<Item = &'a str>, won: bool) -> Option<Self> {
        let request = Request::read(task)?;
        let mut observations = observations.into_iter();
        let memory = Memory {
            request: Some(request.clone()),
            ..Memory::begin(observations.next().unwrap_or_default())
        };
        let mut findings = Self {
            request,
            won,
            steps: 0,
            memory,
            found: Vec::new(),
            lamp: None,
            searched: Vec::new(),
            taken: None,
            appliance: None,
            untreated: false,
            target: None,
            idle_commands: 0,
        };
        for observation in observations {
            findings.steps += 1;
            findings.take_in(observation);
        }
        Some(findings)
    }

    fn take_in(&mut self, observation: &str) {
        let event = Event::read(observation);
        self.memory.observe(observation);
        match event {
            Event::Seen {
                receptacle,
                contents: Some(contents),
                ..
            } => {
                for object in &contents {
                    self.notice(object, &receptacle);
                }
                if !self.searched.contains(&receptacle) {
                    self.searched.push(receptacle);
                }
            }
            Event::Took { object, receptacle } => {
                self.notice(&object, &receptacle);
                if self.memory.is_wanted(&object) {
                    self.taken = Some(object);
                }
            }
            Event::Moved { object, receptacle } => {
                if self.memory.is_wanted(&object) && self.memory.is_target(&receptacle) {
                    self.untreated |= (self.request.treatment())
                        .is_some_and(|(verb, _)| !self.memory.is_treated(&object, verb));
                    self.target = Some(receptacle);
                }
            }
            Event::Treated {
                verb,
                object,
                receptacle,
            } => {
                let asked = (self.request.treatment()).is_some_and(|(asked, _)| asked == verb);
                if asked && self.memory.is_wanted(&object) {
                    self.appliance = Some(receptacle);
                }
            }
            Event::Nothing => self.idle_commands += 1,
            Event::Seen { .. } | Event::Room(_) | Event::TurnedOn { .. } | Event::Other => {}
        }
    }

    fn notice(&mut self, object: &str, place: &str) {
        if self.memory.is_wanted(object) && !self.found.iter().any(|(known, _)| known == object) {
            self.found.push((object.to_owned(), place.to_owned()));
        }
        if self.request.places() == 0 && class_word(object) == self.request.target && self.lamp.is_none() {
            self.lamp = Some((object.to_owned(), place.to_owned()));
        }
    }

    /// Where the objects came from that the task was done with, or could be done with.
    fn sources(&self) -> Vec<String> {
        let origin = |object: &str| {
            (self.found.iter())
                .find(|(known, _)| known == object)
                .map(|(_, place)| place.clone())
        };
        let needed = self.request.places().max(1);
        let mut sources: Vec<String> = if self.request.places() == 2 {
            (self.memory.placed.iter())
                .filter_map(|(object, _)| origin(object))
                .collect()
        } else {
            self.taken.iter().filter_map(|object| origin(object)).collect()
        };
        let placed = |object: &str| self.memory.placed.iter().any(|(other, _)| other == object);
        for (object, place) in &self.found {
            let used = self.request.places() != 2 && self.taken.as_ref() == Some(object);
            if sources.len() < needed && !used && !(self.request.places() == 2 && placed(object)) {
                sources.push(place.clone());
            }
        }
        sources.truncate(needed);
        sources
    }

    fn recipe(&self) -> Recipe {
        let request = self.request.clone();
        let sources = self.sources();
        let first_of = |class: &str| {
            (self.memory.receptacles.iter())
                .find(|name| class_word(name) == class)
                .cloned()
        };
        let light = request.places() == 0;
        let missing = if sources.len() < request.places().max(1) {
            Some(if sources.is_empty() {
                Missing::Object
            } else {
                Missing::Second
            })
        } else if light && self.lamp.is_none() {
            Some(Missing::Lamp)
        } else {
            None
        };
        let (mut vain, mut next) = (Vec::new(), Vec::new());
        if let Some(missing) = missing {
            let sought = if missing == Missing::Lamp {
                &request.target
            } else {
                &request.object
            };
            vain = (self.searched.iter())
                .filter(|place| !sources.contains(place))
                .take(VAIN_PLACES)
                .cloned()
                .collect();
            next = promising(&self.memory, sought, |_| 0);
            next.truncate(NEXT_PLACES);
        }
        let warning = if self.won {
            None
        } else if self.untreated {
            Some(Warning::Untreated)
        } else if self.idle_commands >= IDLE_COMMANDS {
            Some(Warning::Idle)
        } else {
            None
        };
        let appliance = request
            .treatment()
            .and_then(|(_, class)| self.appliance.clone().or_else(|| first_of(class)));
        let target = if light {
            self.lamp.as_ref().map(|(_, place)| place.clone())
        } else {
            self.target.clone().or_else(|| first_of(&request.target))
        };
        Recipe {
            sources,
            appliance,
            target,
            lamp: self.lamp.as_ref().map(|(lamp, _)| lamp.clone()),
            missing,
            vain,
            next,
            warning,
            request,
        }
    }

    fn annotation(&self, recipe: &Recipe) -> Annotation {
        Annotation {
            episode_summary: self.summary(),
            episode_skill: recipe.text(),
        }
    }

    fn summary(&self) -> String {
        let object = &self.request.object;
        let start = if self.won {
            format!("done in {} steps: ", self.steps)
        } else {
            format!("failed after {} steps: ", self.steps)
        };
        let mut sources = self.sources();
        sources.dedup();
        if sources.is_empty() {
            let count = self.searched.len();
            return format!("{start}did not find the {object} in {count} places.");
        }
        let mut parts = vec![format!("found the {object} in {}", listed(&sources, "and"))];
        if self.taken.is_none() {
            parts.push("did not take it".to_owned());
        } else if let Some((verb, _)) = self.request.treatment() {
            match &self.appliance {
                Some(appliance) => parts.push(format!("used {appliance} to {verb} it")),
                None => parts.push(format!("did not {verb} it")),
            }
        }
        match (&self.target, self.request.places()) {
            (_, 0) => match (&self.lamp, self.won) {
                (Some((lamp, place)), true) => parts.push(format!("used {lamp} at {place}")),
                (Some((lamp, _)), false) => parts.push(format!("did not use {lamp} with it")),
                (None, _) => parts.push("did not find a desklamp".to_owned()),
            },
            (Some(target), 2) if !self.won => parts.push(format!("put only one in {target}")),
            (Some(target), _) => parts.push(format!("put it in {target}")),
            (None, _) => parts.push(format!("did not put it in a {}", self.request.target)),
        }
        format!("{start}{}.", parts.join(", "))
    }
}

/// What an episode did not find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// Any object of the asked class.
    Object,
    /// The other one of two.
    Second,
    /// The lamp.
    Lamp,
}

/// What a failed episode is warned of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Warning {
    /// The object was put down without its treatment.
    Untreated,
    /// Many commands were impossible.
    Idle,
}

/// A way to do a task, known in full or in part.
#[derive(Clone, Debug)]
pub(super) struct Recipe {
    /// What the task asks for.
    pub(super) request: Request,
    /// Where objects of the asked class lie: as many as needed, when known.
    pub(super) sources: Vec<String>,
    /// What treats the object.
    pub(super) appliance: Option<String>,
    /// Where to bring the object: a receptacle, or the place of the lamp.
    pub(super) target: Option<String>,
    /// The lamp to use.
    pub(super) lamp: Option<String>,
    /// What is yet to be found.
    pub(super) missing: Option<Missing>,
    /// Where what is missing is not.
    pub(super) vain: Vec<String>,
    /// Where it may be.
    pub(super) next: Vec<String>,
    /// What to avoid.
    pub(super) warning: Option<Warning>,
}

impl Recipe {
    /// What to do after such an observation, where it decides something.
    fn next_after(&self, event: &Event) -> Option<String> {
        let wanted = |object: &str| class_word(object) == self.request.object;
        match event {
            Event::Seen {
                receptacle,
                contents: Some(contents),
                ..
            } => {
                let object = contents.iter().find(|object| wanted(object))?;
                let at_target = Some(receptacle) == self.target.as_ref();
                (!at_target).then(|| format!("take {object} from {receptacle}."))
            }
            Event::Took { object, .. } if wanted(object) => match (self.request.treatment(), &self.appliance)
            {
                (Some((verb, _)), Some(appliance)) => Some(format!("{verb} it with {appliance}.")),
                (Some(_), None) => None,
                (None, _) => self.bring(),
            },
            Event::Treated { object, .. } if wanted(object) => self.bring(),
            _ => None,
        }
    }

    /// Where the object in the hand goes.
    fn bring(&self) -> Option<String> {
        let place = self.target.as_ref()?;
        Some(match &self.lamp {
            Some(lamp) if self.request.places() == 0 => format!("take it to {place} and use {lamp}."),
            _ => format!("put it in {place}."),
        })
    }

    /// The recipe as a skill.
    pub(super) fn text(&self) -> String {
        let object = self.request.object.as_str();
        let two = self.request.places() == 2;
        let mut places = self.sources.clone();
        places.dedup();
        let mut look = listed(&places, "and");
        if matches!(self.missing, Some(Missing::Object | Missing::Second)) {
            let next = any_of(&self.next);
            look = if places.is_empty() {
                next
            } else {
                format!("{look} and {next}")
            };
        }
        let (what, it) = if two { ("two", "both") } else { ("the", "it") };
        let mut clauses = vec![format!("look in {look} for {what} {object}")];
        if let (Some((verb, _)), Some(appliance)) = (self.request.treatment(), &self.appliance) {
            clauses.push(format!("{verb} it with {appliance}"));
        }
        clauses.push(match (&self.target, &self.lamp) {
            (Some(place), Some(lamp)) if self.request.places() == 0 => {
                format!("then take it to {place} and use {lamp}")
            }
            (Some(place), _) => format!("then put {it} in {place}"),
            (None, _) if self.missing == Some(Missing::Lamp) && !self.next.is_empty() => {
                format!(
                    "then look in {} for the {}",
                    listed(&self.next, "or"),
                    self.request.target
                )
            }
            (None, _) => format!("then find a {}", self.request.target),
        });
        let mut sentences = vec![format!("{}.", clauses.join(", "))];
        if let (Some(missing), false) = (self.missing, self.vain.is_empty()) {
            let sought = match missing {
                Missing::Object => format!("the {object}"),
                Missing::Second => format!("the other {object}"),
                Missing::Lamp => format!("the {}", self.request.target),
            };
            sentences.push(format!("{sought} is not in {}.", listed(&self.vain, "or")));
        }
        match (self.warning, self.request.treatment()) {
            (Some(Warning::Untreated), Some((verb, _))) => {
                sentences.push(format!("{verb} it before you put it down."));
            }
            (Some(Warning::Idle), _) => sentences.push("do not repeat what does nothing.".to_owned()),
            _ => {}
        }
        sentences.join(" ")
    }
}

/// `A`, `A or B`, `A, B or C`; every place when none is named.
pub(super) fn any_of(places: &[String]) -> String {
    if places.is_empty() {
        "every place".to_owned()
    } else {
        listed(places, "or")
    }
}

/// `A`, `A and B`, `A, B and C`.
fn listed(names: &[String], last: &str) -> String {
    match names {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., end] => format!("{} {last} {end}", first.join(", ")),
    }
}

/// What a skill of this module's form advises, read from its text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advice {
    /// Where to look for the object first.
    pub look: Vec<String>,
    /// Where not to look.
    pub avoid: Vec<String>,
    /// Where to put the object, or where the lamp is.
    pub target: Option<String>,
}

impl Advice {
    /// Reads a skill. What is not understood is ignored.
    pub fn read(skill: &str) -> Self {
        let mut advice = Self::default();
        for clause in skill
            .split(['.', ';'])
            .flat_map(|sentence| sentence.split(", then "))
        {
            let clause = clause.trim();
            if let Some(rest) = clause.strip_prefix("look in ") {
                advice
                    .look
                    .extend(place_names(rest.split(" for ").next().unwrap_or(rest)));
            } else if let Some((_, rest)) = clause.split_once(" is not in ") {
                advice.avoid.extend(place_names(rest));
            } else if let Some((_, rest)) = clause
                .split_once("put it in ")
                .or_else(|| clause.split_once("put both in "))
            {
                advice.target = place_names(rest).into_iter().next();
            } else if let Some(rest) = clause.strip_prefix("take it to ") {
                advice.target = place_names(rest.split(" and use ").next().unwrap_or(rest))
                    .into_iter()
                    .next();
            }
        }
        advice
    }
}

/// The names in `A, B and C`: a word and a number each.
fn place_names(list: &str) -> Vec<String> {
    list.split(", ")
        .flat_map(|part| part.split(" and "))
        .flat_map(|part| part.split(" or "))
        .map(str::trim)
        .filter(|name| {
            name.split_once(' ')
                .is_some_and(|(_, number)| number.parse::<u32>().is_ok())
        })
        .map(str::to_owned)
        .collect()
}
