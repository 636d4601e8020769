//! What is right in a hindsight skill, judged from knowledge of the game: the procedure it gives, and the place where it
//! says to look.
//!
//! Words are looked for, not a form of sentences, so that skills in a model's own words can be judged too; what says
//! nothing of a place has no right place.
//!
//! Not for: filters of training, which may not know the game.

use super::reading::{Request, class_word};
use super::skill::Advice;
use crate::Game;

/// What a game's right skill must say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Yardstick {
    request: Request,
    /// All receptacles of the room.
    receptacles: Vec<String>,
    /// Those that hold an object of the class asked for when the episode begins.
    holders: Vec<String>,
}

/// What of a skill is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// It names the object and the target of the task, the treatment where there is one and no other, and says that two
    /// objects are wanted where they are.
    pub procedure: bool,
    /// The first place where it says to look holds an object of the class asked for when the episode begins.
    pub place: bool,
}

/// The treatments a task may ask for.
const TREATMENTS: [&str; 3] = ["clean", "heat", "cool"];

impl Yardstick {
    /// The yardstick of a game; `None` when its task sentence is not one of ALFWorld's.
    pub fn of(game: &Game) -> Option<Self> {
        let request = Request::read(game.goal_sentence())?;
        let start = game.initial_state();
        let mut receptacles = Vec::new();
        let mut holders = Vec::new();
        for receptacle in game.receptacles() {
            let name = game.receptacle_name(receptacle).to_owned();
            let is_wanted = |object| class_word(game.object_name(object)) == request.object;
            if start.contents(game, receptacle).any(is_wanted) {
                holders.push(name.clone());
            }
            receptacles.push(name);
        }
        Some(Self {
            request,
            receptacles,
            holders,
        })
    }

    /// Judges a skill.
    pub fn judge(&self, skill: &str) -> Judgement {
        let text = words(skill);
        let says = |word: &str| text.contains(&format!(" {word} "));
        let treatment = self.request.treatment().map(|(verb, _)| verb);
        let is_treated_right = TREATMENTS
            .iter()
            .all(|verb| says(verb) == (treatment == Some(*verb)));
        let is_count_right = self.request.places() != 2 || says("two") || says("both");
        let advice = Advice::read(&skill.to_lowercase());
        let is_target_right = match &advice.target {
            // Of the light family the target is a lamp, and the advice says where it is.
            Some(target) if self.request.places() > 0 => class_word(target) == self.request.target,
            _ => says(&self.request.target),
        };
        let procedure = says(&self.request.object) && is_target_right && is_treated_right && is_count_right;
        let place = advice
            .look
            .into_iter()
            .next()
            .or_else(|| self.first_named(&text))
            .is_some_and(|place| self.holders.contains(&place));
        Judgement { procedure, place }
    }

    /// The receptacle that is named first.
    fn first_named(&self, text: &str) -> Option<String> {
        self.receptacles
            .iter()
            .filter_map(|name| Some((text.find(&format!(" {name} "))?, name)))
            .min()
            .map(|(_, name)| name.clone())
    }
}

/// Lower-case words with one space around each.
fn words(text: &str) -> String {
    let words: Vec<String> = text
        .split(|found: char| !found.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    format!(" {} ", words.join(" "))
}
