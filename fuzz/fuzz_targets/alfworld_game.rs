//! ALFWorld's games: a file, a problem's text, or edits of a generated problem; after a byte 0xff the commands played.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use seed_alfworld::household::{HouseholdGenerator, HouseholdSize};
use seed_alfworld::{Game, read_game_file};
use seed_env::Split;

/// The words of a problem that a generator made.
fn words() -> &'static Vec<String> {
    static WORDS: OnceLock<Vec<String>> = OnceLock::new();
    WORDS.get_or_init(|| {
        let generator = HouseholdGenerator::new(HouseholdSize::Studio, 1).unwrap();
        let problem = generator.household(Split::Train, 0).unwrap().problem();
        problem
            .split_inclusive([' ', '\n', '(', ')'])
            .map(str::to_owned)
            .collect()
    })
}

/// The generated problem with words removed, doubled, or replaced by others of it.
fn edited(edits: &[u8]) -> String {
    let mut words: Vec<&str> = words().iter().map(String::as_str).collect();
    for edit in edits.as_chunks::<5>().0 {
        let place = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % words.len();
        let other = words[usize::from(u16::from_le_bytes([edit[2], edit[3]])) % words.len()];
        match edit[4] % 3 {
            0 => words[place] = other,
            1 => words.insert(place, other),
            _ if words.len() > 1 => drop(words.remove(place)),
            _ => {}
        }
    }
    words.concat()
}

fn play(game: &Game, choices: &[u8]) {
    let mut state = game.initial_state();
    let (mut admissible, mut observation) = (Vec::new(), String::new());
    for &choice in choices.iter().take(40) {
        game.admissible_commands(&state, &mut admissible);
        assert!(admissible.is_sorted_by(|&left, &right| game.command_text(left) < game.command_text(right)));
        let Some(&command) = admissible.get(usize::from(choice) % admissible.len().max(1)) else {
            break;
        };
        let text = game.command_text(command);
        assert_eq!(game.find_command(text), Some(command));
        let outcome = game.step(&mut state, text, &mut observation);
        assert!(outcome.admissible && !observation.is_empty());
        // What is refused changes nothing.
        let before = state.clone();
        assert!(!game.step(&mut state, "sing 1", &mut observation).admissible);
        assert!(state == before);
    }
}

fuzz_target!(|input: (u8, &[u8])| {
    let (choice, bytes) = input;
    let end = bytes.iter().position(|&byte| byte == 0xff).unwrap_or(bytes.len());
    let (bytes, commands) = (&bytes[..end], bytes.get(end + 1..).unwrap_or_default());
    let text = match choice % 3 {
        0 => {
            let _ = read_game_file(bytes, "file");
            return;
        }
        1 => String::from_utf8_lossy(bytes).into_owned(),
        _ => edited(bytes),
    };
    if let Ok(game) = Game::from_problem(&text, "put a mug in desk.", &[], "game") {
        play(&game, commands);
    }
});
