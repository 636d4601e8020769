//! Workloads: the same commands every time, and digests that notice every word.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod common;

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use common::{kitchen, place};
use seed_alfworld::{Game, Workload, time_resets, time_steps};
use seed_random::RandomKey;

fn game(goal_sentence: &str) -> Arc<Game> {
    let problem = kitchen(&place("Pot", "Fridge", ""));
    Arc::new(Game::from_problem(&problem, goal_sentence, &["look".to_owned()], "kitchen").unwrap())
}

#[test]
fn random_commands_are_repeatable_and_mostly_admissible() {
    let random = |seed| Workload::random(game("x."), 200, &RandomKey::new(seed));
    let workload = random(1);
    assert_eq!(workload.commands, random(1).commands);
    assert_ne!(workload.commands, random(2).commands);
    let mut state = workload.game.initial_state();
    let mut text = String::new();
    let refused = workload
        .commands
        .iter()
        .filter(|command| !workload.game.step(&mut state, command, &mut text).admissible)
        .count();
    assert_eq!(workload.commands.len(), 200, "the goal cannot be reached");
    assert!(
        (5..40).contains(&refused),
        "about one in twelve is invalid: {refused}"
    );
    for verb in ["take ", "move ", "open ", "go to ", "examine "] {
        assert!(
            workload.commands.iter().any(|command| command.starts_with(verb)),
            "{verb}"
        );
    }
}

#[test]
fn digests_notice_texts_commands_and_order() {
    let workload = |goal, commands: &[&str]| Workload {
        game: game(goal),
        commands: commands.iter().map(|&command| command.to_owned()).collect(),
    };
    let reference = workload("x.", &["look", "go to fridge 1"]).digest();
    assert_eq!(reference.len(), 64);
    assert_eq!(reference, workload("x.", &["look", "go to fridge 1"]).digest());
    for other in [
        workload("y.", &["look", "go to fridge 1"]),
        workload("x.", &["go to fridge 1", "look"]),
        workload("x.", &["look"]),
    ] {
        assert_ne!(reference, other.digest());
    }
    assert_eq!(Workload::walkthrough(game("x.")).commands, ["look"]);
}

#[test]
fn timings_count_work_by_the_clock_they_are_given() {
    let ticks = Cell::new(0);
    let clock = || {
        ticks.set(ticks.get() + 1);
        Duration::from_secs(ticks.get())
    };
    let workloads = [Workload::random(game("x."), 7, &RandomKey::new(0))];
    let steps = time_steps(&workloads, Duration::from_secs(3), &clock);
    assert_eq!((steps.count, steps.elapsed), (21, Duration::from_secs(3)));
    assert_eq!((steps.per_second(), steps.seconds_each()), (7.0, 1.0 / 7.0));
    let resets = time_resets(&workloads, Duration::from_secs(2), &clock);
    assert_eq!((resets.count, resets.elapsed), (2, Duration::from_secs(2)));
    assert_eq!(
        time_steps(&[], Duration::from_secs(9), &clock).count,
        0,
        "no work, no end"
    );
}
