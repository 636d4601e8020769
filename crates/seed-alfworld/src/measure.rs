//! Fixed sequences of commands, to measure engines and to compare what they say.
//!
//! Not for: choosing good commands (see [`expert`](crate::expert)).

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use seed_random::{Draw, RandomKey};
use sha2::{Digest, Sha256};

use crate::{CommandId, Game};

/// One command in this many is one that no game knows.
const INVALID_EVERY: usize = 12;
const INVALID_COMMAND: &str = "go to somewhere 1";

/// A game and the commands to play on it.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The game.
    pub game: Arc<Game>,
    /// The commands, in order.
    pub commands: Vec<String>,
}

impl Workload {
    /// At most `steps` random commands, fewer when they win. Verbs are drawn first and then a command of the verb, so
    /// that the many ways to go somewhere do not crowd out everything else; now and then the command is an invalid one.
    pub fn random(game: Arc<Game>, steps: usize, key: &RandomKey) -> Self {
        let mut draw = key.generator();
        let mut state = game.initial_state();
        let mut admissible: Vec<CommandId> = Vec::new();
        let mut observation = String::new();
        let mut commands = Vec::with_capacity(steps);
        for _ in 0..steps {
            game.admissible_commands(&state, &mut admissible);
            let verb = |command: CommandId| game.command_text(command).split(' ').next();
            let mut verbs: Vec<Option<&str>> = admissible.iter().map(|&command| verb(command)).collect();
            verbs.dedup();
            let wanted = draw.choose(&verbs).copied().flatten();
            admissible.retain(|&command| verb(command) == wanted);
            let text = match draw.choose(&admissible) {
                Some(&command) if draw.below(INVALID_EVERY) > 0 => game.command_text(command),
                _ => INVALID_COMMAND,
            };
            commands.push(text.to_owned());
            if game.step(&mut state, text, &mut observation).won {
                break;
            }
        }
        Self { game, commands }
    }

    /// The game's stored walkthrough.
    pub fn walkthrough(game: Arc<Game>) -> Self {
        let commands = game.walkthrough().map(str::to_owned).collect();
        Self { game, commands }
    }

    /// SHA-256, in hexadecimal, of all that an engine says: for the reset and each command the observation, a zero
    /// byte, each admissible command followed by a byte 1, and a byte 2 followed by `1` when the game is won, else `0`.
    pub fn digest(&self) -> String {
        let mut hasher = Sha256::new();
        let mut state = self.game.initial_state();
        let mut admissible = Vec::new();
        let mut observation = self.game.reset_text().to_owned();
        let mut won = self.game.is_won(&state);
        let mut commands = self.commands.iter();
        loop {
            self.game.admissible_commands(&state, &mut admissible);
            hasher.update(&observation);
            hasher.update([0]);
            for &command in &admissible {
                hasher.update(self.game.command_text(command));
                hasher.update([1]);
            }
            hasher.update([2, if won { b'1' } else { b'0' }]);
            let Some(command) = commands.next() else {
                return crate::game_file::hex(&hasher.finalize());
            };
            won = self.game.step(&mut state, command, &mut observation).won;
        }
    }
}

/// Work done and the time it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Units of work: steps, or resets.
    pub count: u64,
    /// Time by the clock that was given.
    pub elapsed: Duration,
}

impl Timing {
    /// Units per second.
    pub fn per_second(&self) -> f64 {
        self.count as f64 / self.elapsed.as_secs_f64()
    }

    /// Seconds per unit.
    pub fn seconds_each(&self) -> f64 {
        self.elapsed.as_secs_f64() / self.count as f64
    }
}

/// Plays workloads over and over until `minimum` has passed on `clock`, and counts the steps. Each step writes the
/// observation, builds the full admissible list and reads the text of every command in it.
pub fn time_steps(workloads: &[Workload], minimum: Duration, clock: &dyn Fn() -> Duration) -> Timing {
    let mut admissible = Vec::new();
    let mut observation = String::new();
    time_rounds(minimum, clock, || {
        let mut steps = 0;
        for workload in workloads {
            let game = &*workload.game;
            let mut state = game.initial_state();
            for command in &workload.commands {
                black_box(game.step(&mut state, command, &mut observation));
                black_box(&observation);
                game.admissible_commands(&state, &mut admissible);
                for &command in &admissible {
                    black_box(game.command_text(command));
                }
                steps += 1;
            }
        }
        steps
    })
}

/// Resets games over and over until `minimum` has passed on `clock`, and counts the resets. Each makes the state, the
/// first observation and the full admissible list.
pub fn time_resets(workloads: &[Workload], minimum: Duration, clock: &dyn Fn() -> Duration) -> Timing {
    let mut admissible = Vec::new();
    let mut observation = String::new();
    time_rounds(minimum, clock, || {
        for workload in workloads {
            let game = &*workload.game;
            let state = black_box(game.initial_state());
            observation.clear();
            observation.push_str(game.reset_text());
            black_box(&observation);
            game.admissible_commands(&state, &mut admissible);
            for &command in &admissible {
                black_box(game.command_text(command));
            }
        }
        workloads.len() as u64
    })
}

/// Repeats rounds of work, each of which tells its units, until `minimum` has passed.
fn time_rounds(minimum: Duration, clock: &dyn Fn() -> Duration, mut round: impl FnMut() -> u64) -> Timing {
    let start = clock();
    let mut count = 0;
    loop {
        let units = round();
        count += units;
        let elapsed = clock().saturating_sub(start);
        if elapsed >= minimum || units == 0 {
            return Timing { count, elapsed };
        }
    }
}
