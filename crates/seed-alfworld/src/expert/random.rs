//! The player that draws uniformly from what is possible.
//!
//! Not for: making sense.

use seed_random::{Draw, RandomKey};

use super::{Decision, Player, View};

/// Draws a command at every step, `help` aside.
#[derive(Clone, Debug)]
pub struct RandomPlayer {
    key: RandomKey,
    step: u64,
}

impl RandomPlayer {
    /// A player whose draws come from `key`.
    pub fn new(key: RandomKey) -> Self {
        Self { key, step: 0 }
    }
}

/// A drawn possible command; `look` when there is none.
pub(super) fn random_command(draw: &mut impl Draw, admissible: &[String]) -> String {
    let offered: Vec<&String> = admissible.iter().filter(|command| *command != "help").collect();
    draw.choose(&offered)
        .map_or_else(|| "look".to_owned(), |&command| command.clone())
}

impl Player for RandomPlayer {
    fn decide(&mut self, view: &View<'_>) -> Decision {
        self.step = if view.last_command.is_none() {
            0
        } else {
            self.step + 1
        };
        let mut draw = self.key.with("step", self.step).generator();
        Decision {
            command: random_command(&mut draw, view.admissible_commands),
            intention: "try something".to_owned(),
        }
    }
}
