//! The rules and texts that surprise, on a kitchen small enough to read.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod common;

use common::{kitchen, light, place, place_two};
use seed_alfworld::{CommandId, Family, Game, Goal, State, Treatment};

struct Play {
    game: Game,
    state: State,
}

impl Play {
    fn new(goal: &str) -> Self {
        let game = Game::from_problem(&kitchen(goal), "do it.", &[], "kitchen").unwrap();
        let state = game.initial_state();
        Self { game, state }
    }

    /// Performs a command; what is said, with `*` in front when the game is won.
    fn say(&mut self, command: &str) -> String {
        let mut text = String::from("old text");
        let outcome = self.game.step(&mut self.state, command, &mut text);
        if outcome.won { format!("*{text}") } else { text }
    }

    fn script(&mut self, lines: &[(&str, &str)]) {
        for (command, expected) in lines {
            assert_eq!(self.say(command), *expected, "after `{command}`");
        }
    }

    fn admissible(&self, verb: &str) -> Vec<String> {
        let mut commands: Vec<CommandId> = Vec::new();
        self.game.admissible_commands(&self.state, &mut commands);
        commands
            .into_iter()
            .map(|command| self.game.command_text(command).to_owned())
            .filter(|text| text.starts_with(verb))
            .collect()
    }
}

#[test]
fn start() {
    let play = Play::new(&place("Mug", "Cabinet", ""));
    assert_eq!(
        play.game.reset_text(),
        "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, you see a \
         cabinet 11, a cabinet 10, a cabinet 9, a cabinet 8, a cabinet 7, a cabinet 6, a cabinet 5, a cabinet 4, a \
         cabinet 3, a cabinet 2, a cabinet 1, a countertop 2, a countertop 1, a fridge 1, a microwave 1, and a \
         sinkbasin 1.\n\nYour task is to: do it."
    );
    assert_eq!(
        play.admissible("")[..4],
        [
            "go to cabinet 1",
            "go to cabinet 10",
            "go to cabinet 11",
            "go to cabinet 2"
        ],
        "byte order, not the order of numbers"
    );
    assert_eq!(play.admissible("").len(), 16 + 3);
    assert_eq!(play.game.family(), Family::PickAndPlaceSimple);
}

#[test]
fn looking_and_failing() {
    let mut play = Play::new(&place("Mug", "Fridge", ""));
    play.script(&[
        (
            "look",
            "You are in the middle of a room. Looking quickly around you, you see nothing.",
        ),
        (
            " look \u{1f}",
            "You are in the middle of a room. Looking quickly around you, you see nothing.",
        ),
        ("Look", "Nothing happens."),
        ("", "Nothing happens."),
        ("go  to fridge 1", "Nothing happens."),
        ("examine countertop 1", "Nothing happens."),
        ("inventory", "You are not carrying anything."),
        (
            "go to cabinet 11",
            "You arrive at cabinet 11. The cabinet 11 is closed.",
        ),
        ("go to cabinet 11", "Nothing happens."),
        ("take mug 1 from cabinet 11", "Nothing happens."),
        (
            "open cabinet 11",
            "You open the cabinet 11. The cabinet 11 is open. In it, you see a mug 1.",
        ),
        ("open cabinet 11", "Nothing happens."),
        ("examine mug 1", "Nothing happens."),
        ("close cabinet 11", "You close the cabinet 11."),
    ]);
    assert!(play.say("help").starts_with("Available commands:\n  look:      "));
    assert!(play.say("help").ends_with("using a sharp object\n"));
}

#[test]
fn shared_places_and_objects_in_two_receptacles() {
    let mut play = Play::new(&place("Pot", "Fridge", ""));
    play.script(&[
        (
            "go to countertop 2",
            "You arrive at countertop 2. On the countertop 2, you see a box 1, a desklamp 1, a mug 2, a pen 1, and a \
             pot 1.",
        ),
        ("go to countertop 1", "Nothing happens."),
        (
            "look",
            "You are facing the countertop 2, and countertop 1. Next to it, you see nothing.",
        ),
        (
            "take pot 1 from countertop 2",
            "You pick up the pot 1 from the countertop 2.",
        ),
        (
            "examine countertop 1",
            "On the countertop 1, you see a apple 1, a desklamp 1, a knife 1, and a pot 1.",
        ),
        (
            "move pot 1 to countertop 1",
            "You move the pot 1 to the countertop 1.",
        ),
        (
            "look",
            "You are facing the countertop 2, and countertop 1. Next to it, you see a pot 1.",
        ),
        (
            "take apple 1 from countertop 1",
            "You pick up the apple 1 from the countertop 1.",
        ),
        (
            "move apple 1 to countertop 2",
            "You move the apple 1 to the countertop 2.",
        ),
        (
            "look",
            "You are facing the countertop 2, and countertop 1. Next to it, you see a apple 1, and a pot 1.",
        ),
    ]);
    assert_eq!(play.admissible("use"), ["use desklamp 1"], "listed once");
    play.script(&[
        ("use desklamp 1", "You turn on the desklamp 1."),
        ("use desklamp 1", "You turn on the desklamp 1."),
    ]);
}

#[test]
fn treatments_and_their_words() {
    let mut play = Play::new(&place("Mug", "Microwave", "(heatable ?o) (isHot ?o)"));
    assert_eq!(play.game.family(), Family::PickHeatThenPlaceInRecep);
    let mug = play.game.find_object("mug 2").unwrap();
    let sink = play.game.find_receptacle("sinkbasin 1").unwrap();
    assert_eq!(play.game.treatment(sink), Some(Treatment::Clean));
    assert!(play.game.is_treatable(mug, Treatment::Cool));
    play.script(&[
        (
            "go to countertop 1",
            "You arrive at countertop 1. On the countertop 1, you see a apple 1, a desklamp 1, a \
          knife 1, and a pot 1.",
        ),
        (
            "take mug 2 from countertop 2",
            "You pick up the mug 2 from the countertop 2.",
        ),
        ("examine mug 2", "There's nothing special about mug 2."),
        (
            "go to fridge 1",
            "You arrive at fridge 1. The fridge 1 is closed.",
        ),
        ("move mug 2 to fridge 1", "Nothing happens."),
        (
            "cool mug 2 with fridge 1",
            "You cool the mug 2 using the fridge 1.",
        ),
        ("examine mug 2", "This is a cold mug 2."),
        (
            "go to sinkbasin 1",
            "You arrive at sinkbasin 1. On the sinkbasin 1, you see nothing.",
        ),
        (
            "clean mug 2 with sinkbasin 1",
            "You clean the mug 2 using the sinkbasin 1.",
        ),
        ("examine mug 2", "This is a cool and clean mug 2."),
        (
            "go to microwave 1",
            "You arrive at microwave 1. The microwave 1 is closed.",
        ),
        (
            "heat mug 2 with microwave 1",
            "You heat the mug 2 using the microwave 1.",
        ),
        ("examine mug 2", "This is a hot and clean mug 2."),
        (
            "open microwave 1",
            "You open the microwave 1. The microwave 1 is open. In it, you see nothing.",
        ),
        (
            "move mug 2 to microwave 1",
            "*You move the mug 2 to the microwave 1.",
        ),
    ]);
}

#[test]
fn slicing_needs_the_knife_in_hand() {
    let mut play = Play::new(&place("Apple", "Fridge", "(coolable ?o) (isCool ?o)"));
    play.say("go to countertop 1");
    assert!(play.admissible("slice").is_empty());
    play.say("take knife 1 from countertop 1");
    assert_eq!(play.admissible("slice"), ["slice apple 1 with knife 1"]);
    play.script(&[
        (
            "slice apple 1 with knife 1",
            "You sliced the apple 1 with the knife 1.",
        ),
        (
            "move knife 1 to countertop 2",
            "You move the knife 1 to the countertop 2.",
        ),
        (
            "take apple 1 from countertop 1",
            "You pick up the apple 1 from the countertop 1.",
        ),
        ("examine apple 1", "This is a sliced apple 1."),
        (
            "go to fridge 1",
            "You arrive at fridge 1. The fridge 1 is closed.",
        ),
        (
            "cool apple 1 with fridge 1",
            "You cool the apple 1 using the fridge 1.",
        ),
        ("examine apple 1", "This is a cool sliced apple 1."),
        (
            "open fridge 1",
            "You open the fridge 1. The fridge 1 is open. In it, you see nothing.",
        ),
        (
            "move apple 1 to fridge 1",
            "*You move the apple 1 to the fridge 1.",
        ),
    ]);
}

#[test]
fn holders_tell_what_is_in_them() {
    let mut play = Play::new(&place("Box", "Cabinet", ""));
    play.say("go to countertop 2");
    play.say("take box 1 from countertop 2");
    assert_eq!(
        play.say("examine box 1"),
        "This is a normal box 1. In it, you see a pen 1."
    );
}

#[test]
fn objects_that_start_cool_count() {
    let mut play = Play::new(&place("Mug", "CounterTop", "(coolable ?o) (isCool ?o)"));
    for command in [
        "go to cabinet 11",
        "open cabinet 11",
        "take mug 1 from cabinet 11",
        "go to countertop 2",
    ] {
        assert_ne!(play.say(command), "Nothing happens.");
    }
    assert_eq!(
        play.say("move mug 1 to countertop 1"),
        "*You move the mug 1 to the countertop 1."
    );
}

#[test]
fn two_must_lie_in_the_same_receptacle() {
    let mut play = Play::new(&place_two("Mug", "CounterTop"));
    for command in [
        "go to cabinet 11",
        "open cabinet 11",
        "take mug 1 from cabinet 11",
        "go to countertop 2",
    ] {
        play.say(command);
    }
    assert_eq!(
        play.say("move mug 1 to countertop 1"),
        "You move the mug 1 to the countertop 1."
    );
    play.say("take mug 1 from countertop 1");
    assert_eq!(
        play.say("move mug 1 to countertop 2"),
        "*You move the mug 1 to the countertop 2."
    );
    assert_eq!(
        play.say("nonsense"),
        "*Nothing happens.",
        "the goal is judged after failed commands too"
    );
}

#[test]
fn light_needs_lamp_and_object_in_any_order() {
    let mut play = Play::new(&light("Mug"));
    assert!(matches!(play.game.goal(), Goal::Light { .. }));
    play.say("go to countertop 1");
    assert_eq!(play.say("use desklamp 1"), "You turn on the desklamp 1.");
    assert_eq!(
        play.say("take mug 2 from countertop 2"),
        "*You pick up the mug 2 from the countertop 2."
    );
    assert_eq!(
        play.say("go to sinkbasin 1"),
        "You arrive at sinkbasin 1. On the sinkbasin 1, you see nothing."
    );
}

#[test]
fn snapshots_restore() {
    let mut play = Play::new(&place("Mug", "Fridge", ""));
    play.say("go to countertop 2");
    let snapshot = play.state.clone();
    let before = play.admissible("");
    for command in [
        "take pot 1 from countertop 2",
        "use desklamp 1",
        "go to fridge 1",
        "open fridge 1",
    ] {
        play.say(command);
    }
    assert_ne!(play.state, snapshot);
    play.state.clone_from(&snapshot);
    assert_eq!(play.state, snapshot);
    assert_eq!(play.admissible(""), before);
    assert!(play.state.size_in_bytes() < 1_000);
}

#[test]
fn what_the_expert_reads() {
    let mut play = Play::new(&place("Mug", "Fridge", ""));
    let (game, state) = (&play.game, &play.state);
    let pot = game.find_object("pot 1").unwrap();
    let names: Vec<&str> = state
        .receptacles_of(game, pot)
        .map(|receptacle| game.receptacle_name(receptacle))
        .collect();
    assert_eq!(names, ["countertop 2", "countertop 1"]);
    let fridge = game.find_receptacle("fridge 1").unwrap();
    assert!(!state.is_accessible(game, fridge) && game.is_openable(fridge));
    assert_eq!(game.class_name(game.receptacle_class(fridge)), "fridge");
    assert_eq!(game.class_name(game.goal().object_class()), "mug");
    assert!(!game.can_contain(fridge, pot));
    assert_eq!(state.location(), None);
    play.say("go to fridge 1");
    assert_eq!(play.state.location(), Some(play.game.receptacle_location(fridge)));
}
