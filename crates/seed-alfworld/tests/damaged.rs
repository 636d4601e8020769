//! Whatever comes in, the parser answers and never panics; and what it accepts can be played.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod common;

use common::{kitchen, place};
use proptest::prelude::*;
use seed_alfworld::{CommandId, Game, ProblemError, State, read_game_file};

/// Checks a state's admissible list against the test of single commands.
fn check_list(game: &Game, state: &State) -> Vec<CommandId> {
    let mut listed = Vec::new();
    game.admissible_commands(state, &mut listed);
    let texts: Vec<&str> = listed.iter().map(|&command| game.command_text(command)).collect();
    assert!(
        texts.windows(2).all(|pair| pair[0] < pair[1]),
        "sorted and distinct: {texts:?}"
    );
    let mut all: Vec<CommandId> = Vec::new();
    for text in &texts {
        all.extend(game.find_command(text));
    }
    assert_eq!(all, listed, "every text is found");
    listed
}

/// All commands of a game's table, by way of every text that its names can make.
fn all_commands(game: &Game) -> Vec<CommandId> {
    let objects: Vec<&str> = game.objects().map(|object| game.object_name(object)).collect();
    let receptacles: Vec<&str> = game
        .receptacles()
        .map(|receptacle| game.receptacle_name(receptacle))
        .collect();
    let mut texts = vec!["look".to_owned(), "help".to_owned(), "inventory".to_owned()];
    for receptacle in &receptacles {
        for verb in ["go to", "examine", "open", "close"] {
            texts.push(format!("{verb} {receptacle}"));
        }
    }
    for object in &objects {
        texts.extend([format!("examine {object}"), format!("use {object}")]);
        texts.extend(objects.iter().map(|knife| format!("slice {object} with {knife}")));
        for receptacle in &receptacles {
            texts.push(format!("take {object} from {receptacle}"));
            texts.push(format!("move {object} to {receptacle}"));
            for verb in ["clean", "heat", "cool"] {
                texts.push(format!("{verb} {object} with {receptacle}"));
            }
        }
    }
    let mut commands: Vec<CommandId> = texts.iter().filter_map(|text| game.find_command(text)).collect();
    commands.sort_unstable();
    assert_eq!(
        commands.len(),
        game.command_count(),
        "the table holds nothing else"
    );
    commands
}

/// Plays a game by numbers, checking at each step that list and test agree.
fn walk(game: &Game, choices: &[usize]) {
    let commands = all_commands(game);
    let mut state = game.initial_state();
    let mut text = String::new();
    for &choice in choices {
        let listed = check_list(game, &state);
        let tested: Vec<CommandId> = commands
            .iter()
            .copied()
            .filter(|&command| game.is_admissible(&state, command))
            .collect();
        assert_eq!(listed, tested);
        let Some(&command) = listed.get(choice % listed.len().max(1)) else {
            return;
        };
        let before = state.clone();
        let outcome = game.perform(&mut state, command, &mut text);
        assert!(outcome.admissible && !text.is_empty());
        assert_eq!(outcome.won, game.is_won(&state));
        let mut again = before;
        assert_eq!(
            game.step(&mut again, game.command_text(command), &mut text),
            outcome
        );
        assert_eq!(again, state);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn arbitrary_bytes_are_no_game(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
        prop_assert!(read_game_file(&bytes, "x").is_err());
    }

    #[test]
    fn arbitrary_text_is_no_problem(text in "\\PC{0,300}") {
        prop_assert!(Game::from_problem(&text, "x.", &[], "x").is_err());
    }

    #[test]
    fn arbitrary_tokens_never_panic(tokens in proptest::collection::vec(
        prop_oneof![
            Just("("), Just(")"), Just("(define (problem x) (:domain alfred) (:init"), Just(":goal"), Just("and"),
            Just("exists"), Just("not"), Just("="), Just("?o"), Just("?r"), Just("inReceptacle"), Just("-"),
            Just("objectType"), Just("receptacleType"), Just("a_bar_1"), Just("b_bar_2"), Just("xType"), Just("; c\n"),
        ], 0..80)) {
        let _ = Game::from_problem(&tokens.join(" "), "x.", &[], "x");
    }

    /// A good problem with a piece cut out, doubled or overwritten is refused or can be played.
    #[test]
    fn damaged_problems_never_panic(
        start in 0usize..4_000, length in 0usize..200, way in 0u8..3, byte in any::<u8>(),
        choices in proptest::collection::vec(any::<usize>(), 10),
    ) {
        let text = kitchen(&place("Mug", "Fridge", "")).into_bytes();
        let start = start % text.len();
        let end = (start + length).min(text.len());
        let mut damaged = text[..start].to_vec();
        match way {
            0 => {}
            1 => {
                damaged.extend_from_slice(&text[start..end]);
                damaged.extend_from_slice(&text[start..end]);
            }
            _ => damaged.extend(std::iter::repeat_n(byte, end - start)),
        }
        damaged.extend_from_slice(&text[end..]);
        if let Ok(text) = String::from_utf8(damaged)
            && let Ok(game) = Game::from_problem(&text, "x.", &[], "x")
        {
            walk(&game, &choices);
        }
    }

    #[test]
    fn lists_and_tests_agree(choices in proptest::collection::vec(any::<usize>(), 40)) {
        let game = Game::from_problem(&kitchen(&place("Pot", "Fridge", "")), "x.", &[], "x").unwrap();
        walk(&game, &choices);
    }

    #[test]
    fn commands_of_any_text_are_answered(command in "\\PC{0,60}") {
        let game = Game::from_problem(&kitchen(&place("Pot", "Fridge", "")), "x.", &[], "x").unwrap();
        let mut state = game.initial_state();
        let mut text = String::new();
        let outcome = game.step(&mut state, &command, &mut text);
        prop_assert_eq!(outcome.admissible, text != "Nothing happens.");
    }
}

#[test]
fn refusals_say_what_and_where() {
    let good = kitchen(&place("Mug", "Fridge", ""));
    let refusal = |from: &str, to: &str| {
        let text = good.replacen(from, to, 1);
        assert_ne!(text, good, "`{from}` is in the problem");
        Game::from_problem(&text, "x.", &[], "x").unwrap_err().to_string()
    };
    let cases = [
        (
            "(atLocation agent1 loc_bar_start)",
            "",
            "the problem's facts do not make a game: no `atLocation` fact says where the agent starts",
        ),
        (
            "(atLocation agent1 loc_bar_start)",
            "(atLocation agent1 loc_bar_k)",
            "the problem's facts do not make a game: the agent starts where a receptacle is; ALFWorld's games never do",
        ),
        (
            "(:domain alfred)",
            "(:domain blocks)",
            "problem, line 2 (byte 53): found `blocks`, not `alfred`",
        ),
        (
            "(openable Fridge_bar_a)",
            "(opened Fridge_bar_a)",
            "is not a predicate that holds at the start of ALFWorld's games",
        ),
        (
            "(receptacleType Fridge_bar_a FridgeType)",
            "",
            "receptacle `fridge 1` has no `receptacleType`",
        ),
        (
            "(receptacleAtLocation Fridge_bar_a loc_bar_f)",
            "(receptacleAtLocation Fridge_bar_a loc_bar_f) (receptacleAtLocation Fridge_bar_a loc_bar_k)",
            "`fridge_bar_a` has two locations",
        ),
        (
            "(objectType Pot_bar_a PotType)",
            "(objectType Pot_bar_a PotType) (objectType Fridge_bar_a PotType)",
            "`fridge_bar_a` is an object here and a receptacle before",
        ),
        (
            "(objectType Pot_bar_a PotType)",
            "(objectType Pot PotType)",
            "the id `pot` holds no `_bar_`",
        ),
        ("(:goal ", "(:metric ", "section `:metric` is not supported"),
        (
            "(isCool Mug_bar_b)",
            "(isCool Mug_bar_b",
            "found `(` where the end of the fact is expected",
        ),
    ];
    for (from, to, expected) in cases {
        let message = refusal(from, to);
        assert!(
            message.contains(expected),
            "`{message}` does not contain `{expected}`"
        );
    }
    let cut = &good[..good.len() - 4];
    assert!(matches!(
        Game::from_problem(cut, "x.", &[], "x"),
        Err(ProblemError::Malformed { .. })
    ));
}

#[test]
fn sizes_are_bounded() {
    let crowd = (0..3_000)
        .map(|number| format!("(objectType Pen_bar_{number} PenType) (pickupable Pen_bar_{number})"))
        .collect::<Vec<String>>()
        .concat();
    let text = kitchen(&place("Mug", "Fridge", "")).replacen("(:init", &format!("(:init {crowd}"), 1);
    assert!(matches!(
        Game::from_problem(&text, "x.", &[], "x"),
        Err(ProblemError::TooMany {
            what: "objects",
            found: 3_008,
            ..
        })
    ));
    let crowd = (0..2_000)
        .map(|number| {
            format!(
                "(objectType Pen_bar_{number} PenType) (pickupable Pen_bar_{number}) \
                 (receptacleType Cart_bar_{} CartType) (receptacleAtLocation Cart_bar_{} loc_bar_cart) \
                 (canContain CartType PenType)",
                number % 100,
                number % 100
            )
        })
        .collect::<Vec<String>>()
        .concat();
    let text = kitchen(&place("Mug", "Fridge", "")).replacen("(:init", &format!("(:init {crowd}"), 1);
    assert!(matches!(
        Game::from_problem(&text, "x.", &[], "x"),
        Err(ProblemError::TooMany { what: "commands", .. })
    ));
}
