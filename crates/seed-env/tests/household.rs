//! Every form of the household prompts, and the losslessness of the compact one on recorded ALFWorld episodes.

use std::collections::HashMap;
use std::io::Read;
use std::path::PathBuf;

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use seed_env::{
    Dialogue, Exchange, HouseholdDialogue, HouseholdStyle, PromptState, TASK_ANCHOR, compact_observation,
};

const RESET: &str = "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, \
you see a desk 1, a drawer 2, a drawer 1, and a shelf 1.\n\nYour task is to: put a mug in desk.";

fn exchange(observation: &str, action: &str) -> Exchange {
    Exchange {
        observation: observation.into(),
        action: action.into(),
    }
}

fn history() -> Vec<Exchange> {
    vec![
        exchange(RESET, "go to drawer 1"),
        exchange("You arrive at drawer 1. The drawer 1 is closed.", "open drawer 1"),
        exchange(
            "You open the drawer 1. The drawer 1 is open. In it, you see a mug 2, and a pen 1.",
            "take mug 2 from drawer 1",
        ),
    ]
}

fn commands(text: &str) -> Vec<String> {
    text.split(',').map(str::to_owned).collect()
}

/// The four prompts of an episode in order of appearance: first windowed, later windowed, opening, turn.
fn prompts(dialogue: &HouseholdDialogue, history_length: usize) -> String {
    let history = history();
    let first = commands("go to desk 1,go to drawer 1,help,inventory,look");
    let later = commands("examine drawer 1,go to desk 1,help,inventory,look,move mug 2 to drawer 1");
    let start = PromptState {
        task_description: "put a mug in desk.",
        observation: RESET,
        admissible_actions: &first,
        history: &[],
        history_length,
    };
    let middle = PromptState {
        observation: "You pick up the mug 2 from the drawer 1.",
        admissible_actions: &later,
        history: &history,
        ..start.clone()
    };
    [
        ("windowed, first step", dialogue.windowed_prompt(&start)),
        ("windowed, later step", dialogue.windowed_prompt(&middle)),
        ("transcript, opening", dialogue.transcript_opening(&start)),
        ("transcript, turn", dialogue.transcript_turn(&middle)),
    ]
    .map(|(name, prompt)| format!("=== {name}\n{prompt}«end»\n"))
    .concat()
}

#[test]
fn full_style() {
    insta::assert_snapshot!(prompts(&HouseholdDialogue::new(HouseholdStyle::Full), 2));
}

#[test]
fn full_style_without_commands_in_the_transcript() {
    let dialogue = HouseholdDialogue::new(HouseholdStyle::Full).with_commands_in_transcript(false);
    insta::assert_snapshot!(prompts(&dialogue, 0));
}

#[test]
fn compact_style() {
    insta::assert_snapshot!(prompts(&HouseholdDialogue::new(HouseholdStyle::Compact), 2));
}

#[test]
fn compact_style_with_commands_in_the_transcript() {
    let dialogue = HouseholdDialogue::new(HouseholdStyle::Compact).with_commands_in_transcript(true);
    insta::assert_snapshot!(prompts(&dialogue, 50));
}

#[test]
fn compact_observations() {
    let texts = [
        RESET,
        "You are in the middle of a room. Looking quickly around you, you see nothing.",
        "You arrive at desk 1. On the desk 1, you see a book 1.",
        "You arrive at drawer 1. The drawer 1 is closed.",
        "You arrive at fridge 1. The fridge 1 is open. In it, you see a apple 1, and a egg 2.",
        "On the desk 1, you see nothing.",
        "The fridge 1 is open. In it, you see nothing.",
        "You open the fridge 1. The fridge 1 is open. In it, you see a apple 1.",
        "You close the fridge 1.",
        "You are facing the stoveburner 4, and stoveburner 2. Next to it, you see a pan 1, and a pot 1.",
        "You are facing the desk 1. Next to it, you see nothing.",
        "You pick up the apple 1 from the fridge 1.",
        "You move the apple 1 to the desk 1.",
        "You heat the apple 1 using the microwave 1.",
        "You sliced the apple 1 with the knife 1.",
        "You turn on the desklamp 1.",
        "You are carrying: a apple 1.",
        "You are not carrying anything.",
        "This is a hot and clean sliced apple 1.",
        "This is a normal plate 1. In it, you see a apple 1.",
        "There's nothing special about apple 1.",
        "Nothing happens.",
        "Available commands:\n  look:  look around your current location\n",
        "",
    ];
    let pairs: Vec<String> = texts
        .iter()
        .map(|text| format!("{text:?}\n    {:?}", compact_observation(text)))
        .collect();
    insta::assert_snapshot!(pairs.join("\n"));
}

#[test]
fn raw_feedback_is_condensed_as_the_style_would_show_it() {
    let text = "You arrive at desk 1. On the desk 1, you see a book 1.";
    let condensed = |style| HouseholdDialogue::new(style).condense(text).into_owned();
    assert_eq!(condensed(HouseholdStyle::Full), text);
    assert_eq!(condensed(HouseholdStyle::Compact), "desk 1: book 1.");
}

/// The task line is where a skill is put: it must be there, once in front, in every prompt that opens a context.
#[test]
fn every_prompt_that_opens_a_context_has_a_task_line() {
    for style in [HouseholdStyle::Full, HouseholdStyle::Compact] {
        let dialogue = HouseholdDialogue::new(style);
        let history = history();
        // One observation states the task, the other is of a world that does not.
        for observation in [RESET, "You wake up."] {
            let start = PromptState {
                task_description: "put a mug in desk.",
                observation,
                admissible_actions: &[],
                history: &[],
                history_length: 5,
            };
            let later = PromptState {
                history: &history,
                ..start.clone()
            };
            for prompt in [
                dialogue.windowed_prompt(&start),
                dialogue.windowed_prompt(&later),
                dialogue.transcript_opening(&start),
            ] {
                let line = prompt.lines().find(|line| line.contains(TASK_ANCHOR));
                assert!(
                    line.is_some_and(|line| line.ends_with("Your task is to: put a mug in desk.")),
                    "{prompt}"
                );
                assert_eq!(
                    prompt.contains("Now it's your turn"),
                    style == HouseholdStyle::Full,
                    "{prompt}"
                );
            }
        }
    }
}

#[expect(clippy::print_stdout, reason = "a skipped test must say so")]
fn shared(path: &str) -> Option<PathBuf> {
    let root = std::env::var_os("SEED_SHARED").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared")),
        PathBuf::from,
    );
    let path = root.join(path);
    if path.exists() {
        return Some(path);
    }
    println!("skipped: shared data not found at {}", path.display());
    None
}

/// Knowing the command, the compact text must give back the original: no two originals may share one short form.
#[test]
fn compact_observations_lose_nothing_on_recorded_episodes() {
    let mut original_of: HashMap<(String, String), String> = HashMap::new();
    let (mut steps, mut bytes, mut short) = (0, 0, 0);
    for name in ["episodes_a", "episodes_b", "scripted_multi", "scripted_states"] {
        let Some(path) = shared(&format!("data/alfworld/transcripts/{name}.jsonl.gz")) else {
            return;
        };
        let mut text = String::new();
        flate2::read::MultiGzDecoder::new(fs_err::File::open(path).unwrap())
            .read_to_string(&mut text)
            .unwrap();
        for line in text.lines() {
            let episode: serde_json::Value = serde_json::from_str(line).unwrap();
            let reset = episode["reset"].as_str().unwrap();
            let task = reset.split_once(TASK_ANCHOR).unwrap().1;
            let moves = episode["steps"]
                .as_array()
                .unwrap()
                .iter()
                .map(|step| (step["cmd"].as_str().unwrap(), step["obs"].as_str().unwrap()));
            for (command, observation) in std::iter::once((task, reset)).chain(moves) {
                let compact = compact_observation(observation).into_owned();
                steps += 1;
                bytes += observation.len();
                short += compact.len();
                let original = original_of
                    .entry((command.to_owned(), compact))
                    .or_insert_with_key(|_| observation.to_owned());
                assert_eq!(original.trim_end(), observation.trim_end(), "after `{command}`");
            }
        }
    }
    println!("{steps} observations, {bytes} bytes, {short} in the compact form");
    assert!(steps > 26_000);
    assert!(
        short * 3 < bytes * 2,
        "the compact form is worth its name: {short} of {bytes}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn prompts_and_projection_take_any_text(
        observation in any::<String>(),
        action in any::<String>(),
        task in any::<String>(),
        history_length in 0usize..4,
    ) {
        let history = vec![exchange(&observation, &action); 2];
        let admissible = [action.clone(), "help".to_owned()];
        let state = PromptState {
            task_description: &task,
            observation: &observation,
            admissible_actions: &admissible,
            history: &history,
            history_length,
        };
        for style in [HouseholdStyle::Full, HouseholdStyle::Compact] {
            let dialogue = HouseholdDialogue::new(style);
            prop_assert!(dialogue.windowed_prompt(&state).contains(TASK_ANCHOR));
            prop_assert!(dialogue.transcript_opening(&state).contains(TASK_ANCHOR));
            let _ = dialogue.transcript_turn(&state);
            if let Some(span) = dialogue.project(&action).action_span {
                prop_assert!(action.get(span).is_some());
            }
        }
    }

    /// A sentence of no known form must come through untouched.
    #[test]
    fn unknown_sentences_are_kept(text in "[A-Z][a-z]{2,9} [a-z ,.]{0,30}[a-z]") {
        prop_assume!(!["On ", "The ", "You "].iter().any(|start| text.starts_with(start)));
        prop_assert_eq!(compact_observation(&text), text.as_str());
    }
}
