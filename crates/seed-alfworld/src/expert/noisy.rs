//! The searching expert with a rate of mistakes, for demonstrations that are good but not perfect.
//!
//! Not for: modelling any particular player.

use seed_random::{Draw, RandomKey};

use super::random::random_command;
use super::searching::SearchingExpert;
use super::skill::Advice;
use super::{Decision, Player, View};

/// At every step errs with probability `noise`: a random command, a wrong receptacle, or a step left out (a door not
/// opened, a treatment skipped). What it learns from the answer it uses like the expert.
#[derive(Clone, Debug)]
pub struct NoisyExpert {
    expert: SearchingExpert,
    key: RandomKey,
    noise: f64,
    step: u64,
}

impl NoisyExpert {
    /// A player that errs with probability `noise` (0 to 1) a step; all draws come from `key`.
    pub fn new(key: RandomKey, noise: f64) -> Self {
        Self::advised(key, noise, Advice::default())
    }

    /// The same player with advice on where to look and where to go.
    pub fn advised(key: RandomKey, noise: f64, advice: Advice) -> Self {
        Self {
            expert: SearchingExpert::advised(key.with_text("player", "expert"), advice),
            key,
            noise,
            step: 0,
        }
    }

    /// A wrong decision in place of `right`.
    fn mistake(&mut self, draw: &mut impl Draw, right: Decision, admissible: &[String]) -> Decision {
        match draw.below(4) {
            0 => Decision {
                command: random_command(draw, admissible),
                intention: "try something".to_owned(),
            },
            1 | 2 => {
                let places: Vec<&String> = admissible
                    .iter()
                    .filter(|command| command.starts_with("go to ") && **command != right.command)
                    .collect();
                let command = draw
                    .choose(&places)
                    .map_or_else(|| right.command.clone(), |&command| command.clone());
                Decision { command, ..right }
            }
            _ => self.leave_out(right, admissible),
        }
    }

    /// Goes on as if the step were done. The memory is wrong until an observation corrects it.
    fn leave_out(&mut self, right: Decision, admissible: &[String]) -> Decision {
        let memory = &mut self.expert.memory;
        if let Some(place) = right.command.strip_prefix("open ") {
            let sight = memory.sights.entry(place.to_owned()).or_default();
            sight.closed = false;
            sight.contents.get_or_insert_default();
            return self.expert.choose(admissible);
        }
        let treatment = memory.request.as_ref().and_then(super::Request::treatment);
        if let (Some((verb, _)), Some(held)) = (treatment, memory.held.clone())
            && memory.is_wanted(&held)
            && !memory.is_treated(&held, verb)
        {
            memory.treated.push((held, verb.to_owned()));
            return self.expert.choose(admissible);
        }
        right
    }

    /// A treated object that lies in a target has not won: the treatment must have been left out.
    fn realise_omission(&mut self) {
        let memory = &mut self.expert.memory;
        if memory
            .request
            .as_ref()
            .is_some_and(|request| request.treatment().is_some())
        {
            let placed = std::mem::take(&mut memory.placed);
            memory
                .treated
                .retain(|(object, _)| !placed.iter().any(|(other, _)| other == object));
        }
    }
}

impl Player for NoisyExpert {
    fn decide(&mut self, view: &View<'_>) -> Decision {
        self.step = if view.last_command.is_none() {
            0
        } else {
            self.step + 1
        };
        self.expert.observe(view);
        self.realise_omission();
        let right = self.expert.choose(view.admissible_commands);
        let mut draw = self.key.with("step", self.step).generator();
        if draw.chance(self.noise) {
            self.mistake(&mut draw, right, view.admissible_commands)
        } else {
            right
        }
    }
}
