//! The engine against the original: recorded episodes, stored walkthroughs, folders, archives and the cache.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::shared_data;
use seed_alfworld::{
    AlfworldWorld, CacheFolder, Family, Library, LibraryError, LibraryOptions, ProblemError, VerifyReport,
    verify_archive, verify_transcripts, verify_walkthroughs,
};
use seed_env::{
    Dialogue, EnvironmentError, HouseholdDialogue, HouseholdStyle, Projection, PromptState, Split, TaskId,
    World,
};

fn without_cache() -> LibraryOptions {
    LibraryOptions {
        cache: CacheFolder::Disabled,
        ..LibraryOptions::default()
    }
}

fn assert_exact(report: &VerifyReport) {
    let first: Vec<String> = report.first_differences.iter().map(ToString::to_string).collect();
    assert!(
        report.is_exact(),
        "{} differences: {first:#?}",
        report.differences
    );
}

#[test]
fn recorded_episodes_and_walkthroughs_of_all_games() {
    let Some(data) = shared_data() else { return };
    let library = Library::open(&data.join("games"), &without_cache()).unwrap();
    let sizes = Split::ALL.map(|split| library.games(split).len());
    assert_eq!(sizes, [3_553, 200, 140, 134]);
    let per_family = Family::ALL.map(|family| {
        let count = |split| {
            let games = library.games(split).iter();
            games.filter(|game| game.family() == family).count()
        };
        [count(Split::Train), count(Split::Seen), count(Split::Unseen)]
    });
    assert_eq!(
        per_family,
        [
            [790, 35, 24],
            [308, 13, 18],
            [650, 27, 31],
            [459, 16, 23],
            [533, 25, 21],
            [813, 24, 17]
        ]
    );
    let report = verify_transcripts(&data.join("transcripts"), &library).unwrap();
    assert_exact(&report);
    assert_eq!((report.episodes, report.steps), (1_054, 26_064));

    let report = verify_walkthroughs(&library, &Split::ALL).unwrap();
    assert_exact(&report);
    assert_eq!(report.episodes, 4_027);
}

#[test]
fn walkthroughs_of_generated_games() {
    let Some(data) = shared_data() else { return };
    let report = verify_archive(&data.join("generated").join("generated_60.tar.zst")).unwrap();
    assert_exact(&report);
    assert_eq!(report.episodes, 60);
}

/// Copies the twelve unpacked sample games to a folder that may be changed.
fn copy_sample(data: &Path, to: &Path) -> Vec<PathBuf> {
    let from = data.join("sample").join("json_2.1.1").join("valid_unseen");
    let mut games = Vec::new();
    for task in fs_err::read_dir(&from).unwrap() {
        for trial in fs_err::read_dir(task.unwrap().path()).unwrap() {
            let trial = trial.unwrap().path();
            let relative = trial.strip_prefix(data.join("sample")).unwrap();
            let folder = to.join(relative);
            fs_err::create_dir_all(&folder).unwrap();
            for name in ["game.tw-pddl", "traj_data.json"] {
                // Written anew, since a copy would be as read-only as its original.
                fs_err::write(folder.join(name), fs_err::read(trial.join(name)).unwrap()).unwrap();
            }
            games.push(folder);
        }
    }
    games.sort();
    games
}

fn edit(path: &Path, from: &str, to: &str) {
    let text = fs_err::read_to_string(path).unwrap();
    let edited = text.replacen(from, to, 1);
    assert_ne!(text, edited, "`{from}` is in {}", path.display());
    fs_err::write(path, edited).unwrap();
}

#[test]
fn folders_and_their_cache() {
    let Some(data) = shared_data() else { return };
    let work = tempfile::tempdir().unwrap();
    let games = copy_sample(&data, work.path());
    let cache = work.path().join("cache");
    let options = LibraryOptions {
        cache: CacheFolder::At(cache.clone()),
        ..LibraryOptions::default()
    };
    let open = || Library::open(work.path(), &options).unwrap();
    let counts = |library: &Library| {
        let counters = library.counters();
        assert_eq!(counters.cache_write_error, None);
        (
            library.len(),
            counters.parsed,
            counters.cached,
            counters.caches_rebuilt,
        )
    };

    let first = open();
    assert_eq!(counts(&first), (12, 12, 0, 0));
    let second = open();
    assert_eq!(counts(&second), (12, 0, 12, 0));
    assert_exact(&verify_walkthroughs(&second, &Split::ALL).unwrap());
    let transcripts = data.join("sample").join("transcripts.jsonl");
    let report = verify_transcripts(&transcripts, &second).unwrap();
    assert_exact(&report);
    assert_eq!(report.episodes, 34);

    // A game that is loaded twice while somebody holds it is one game.
    let game = &second.games(Split::Unseen)[3];
    let loaded = second.load(game).unwrap();
    assert!(Arc::ptr_eq(&loaded, &second.load(game).unwrap()));

    // A damaged cache is made anew.
    let pack = fs_err::read_dir(&cache).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs_err::read(&pack).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs_err::write(&pack, &bytes).unwrap();
    assert_eq!(counts(&open()), (12, 12, 0, 1));
    assert_eq!(counts(&open()), (12, 0, 12, 0));

    // A changed game is read again, and no other.
    edit(
        &games[0].join("game.tw-pddl"),
        "\"solvable\": true",
        "\"solvable\": false",
    );
    assert_eq!(counts(&open()), (11, 1, 11, 0));
    assert_eq!(
        counts(&open()),
        (11, 0, 12, 0),
        "that it is not solvable is remembered"
    );

    // Task types and paths that ALFWorld's loader leaves out.
    edit(
        &games[1].join("traj_data.json"),
        "\"task_type\":\"",
        "\"task_type\":\"pick_and_place_with_movable_recep\",\"x\":\"",
    );
    fs_err::remove_file(games[2].join("traj_data.json")).unwrap();
    let renamed = games[3]
        .parent()
        .unwrap()
        .with_file_name("look_at_obj_in_light-AppleSliced-None-DeskLamp-1");
    fs_err::rename(games[3].parent().unwrap(), renamed).unwrap();
    let left_out = open().len();
    assert_eq!(
        left_out,
        Library::open(work.path(), &without_cache()).unwrap().len()
    );
    assert_eq!(left_out, 8);

    let two = LibraryOptions {
        families: vec![Family::PickTwoObjAndPlace],
        ..options.clone()
    };
    let two = Library::open(work.path(), &two).unwrap();
    assert_eq!(two.len(), 2);
    let mut families = two
        .games(Split::Unseen)
        .iter()
        .map(seed_alfworld::LibraryGame::family);
    assert!(families.all(|family| family == Family::PickTwoObjAndPlace));
}

#[test]
fn folder_archive_and_cached_archive_hold_the_same_games() {
    let Some(data) = shared_data() else { return };
    let cache = tempfile::tempdir().unwrap();
    let options = LibraryOptions {
        cache: CacheFolder::At(cache.path().to_owned()),
        ..LibraryOptions::default()
    };
    let archive = data.join("games").join("valid_unseen.tar.zst");
    let fresh = Library::open(&archive, &options).unwrap();
    let cached = Library::open(&archive, &options).unwrap();
    assert_eq!((fresh.counters().parsed, cached.counters().parsed), (134, 0));
    let folder = Library::open(&data.join("sample"), &without_cache()).unwrap();
    let direct = Library::open(&data.join("sample").join("json_2.1.1"), &without_cache()).unwrap();
    assert_eq!((folder.len(), direct.len()), (12, 12));
    for game in folder.games(Split::Unseen) {
        let reference = folder.load(game).unwrap();
        for library in [&fresh, &cached, &direct] {
            let other = library.load_id(game.id().as_str()).unwrap();
            assert_eq!(other.reset_text(), reference.reset_text());
            assert_eq!(other.initial_state(), reference.initial_state());
            assert!(other.walkthrough().eq(reference.walkthrough()));
        }
    }
    assert_eq!(folder.counters().parsed, 12, "loaded when asked for");
}

#[test]
fn a_world_is_known_by_the_contents_of_its_games() {
    let Some(data) = shared_data() else { return };
    let work = tempfile::tempdir().unwrap();
    let games = copy_sample(&data, work.path());
    let cached = LibraryOptions {
        cache: CacheFolder::At(work.path().join("cache")),
        ..LibraryOptions::default()
    };
    let digest = |options: &LibraryOptions| {
        let library = Library::open(work.path(), options).unwrap();
        let dialogue = Arc::new(HouseholdDialogue::new(HouseholdStyle::Compact));
        AlfworldWorld::new(library, dialogue).digest()
    };
    let before = digest(&cached);
    assert_eq!(before, digest(&cached), "from the cache");
    assert_eq!(before, digest(&without_cache()));
    // The same tasks under the same ids, from another file.
    edit(
        &games[5].join("game.tw-pddl"),
        "\"solvable\": true",
        "\"solvable\":  true",
    );
    let after = digest(&cached);
    assert_ne!(before, after);
    assert_eq!(after, digest(&without_cache()));
}

#[test]
fn missing_damaged_and_foreign_data_are_refused() {
    let empty = tempfile::tempdir().unwrap();
    for path in [empty.path().to_owned(), empty.path().join("nowhere")] {
        let error = Library::open(&path, &without_cache()).unwrap_err();
        assert!(matches!(error, LibraryError::NoGames { .. }), "{error}");
        assert!(error.to_string().contains("alfworld-download"), "{error}");
    }
    let garbage = empty.path().join("games.tar.zst");
    fs_err::write(&garbage, b"no archive at all").unwrap();
    let error = Library::open(&garbage, &without_cache()).unwrap_err();
    assert!(matches!(error, LibraryError::Archive { .. }), "{error}");

    let Some(data) = shared_data() else { return };
    let archive = fs_err::read(data.join("games").join("valid_unseen.tar.zst")).unwrap();
    fs_err::write(&garbage, &archive[..archive.len() / 2]).unwrap();
    let error = Library::open(&garbage, &without_cache()).unwrap_err();
    assert!(matches!(error, LibraryError::Archive { .. }), "{error}");

    let games = copy_sample(&data, empty.path());
    let unwritable = LibraryOptions {
        // A file where the cache folder should be.
        cache: CacheFolder::At(garbage.clone()),
        ..LibraryOptions::default()
    };
    let library = Library::open(empty.path(), &unwritable).unwrap();
    assert_eq!(library.len(), 12);
    assert!(library.counters().cache_write_error.is_some());

    // The verb of the 2.1.1 era.
    edit(
        &games[0].join("game.tw-pddl"),
        "move {o} to {r}",
        "put {o} in/on {r}",
    );
    let error = Library::open(empty.path(), &without_cache()).unwrap_err();
    let LibraryError::Game { game, source, .. } = &error else {
        panic!("{error}");
    };
    assert!(games[0].ends_with(game));
    assert!(matches!(source, ProblemError::Grammar { .. }), "{source}");
    let message = source.to_string();
    for part in [
        seed_alfworld::GRAMMAR_SHA256,
        "sha256",
        "2.1.1",
        "alfworld-download",
    ] {
        assert!(message.contains(part), "{message}");
    }
}

struct Plain;

impl Dialogue for Plain {
    fn windowed_prompt(&self, state: &PromptState<'_>) -> String {
        state.observation.to_owned()
    }

    fn transcript_opening(&self, state: &PromptState<'_>) -> String {
        state.observation.to_owned()
    }

    fn transcript_turn(&self, state: &PromptState<'_>) -> String {
        state.observation.to_owned()
    }

    fn project(&self, response: &str) -> Projection {
        Projection {
            action: response.to_owned(),
            valid: true,
            action_span: None,
        }
    }
}

#[test]
fn the_world_plays_walkthroughs() {
    let Some(data) = shared_data() else { return };
    let world = AlfworldWorld::open(&data.join("sample"), &without_cache(), Arc::new(Plain)).unwrap();
    assert_eq!((world.name(), world.default_max_steps()), ("alfworld", 30));
    assert!(world.tasks(Split::Train).is_empty());
    assert_eq!(world.tasks(Split::Unseen).len(), 12);
    let mut environment = world.environment();
    for task in world.tasks(Split::Unseen) {
        assert!(
            task.id.as_str().starts_with("alfworld/valid_unseen/"),
            "{}",
            task.id
        );
        let game = world.library().load_id(task.id.as_str()).unwrap();
        assert_eq!(game.family().name(), task.family);
        let first = environment.reset(&task.id, 0).unwrap();
        assert_eq!(
            first.text.split("Your task is to: ").nth(1),
            Some(environment.task_description().as_str())
        );
        let mut rewards = Vec::new();
        for command in game.walkthrough() {
            assert!(
                environment
                    .admissible_actions()
                    .iter()
                    .any(|action| action == command)
            );
            let transition = environment.step(command).unwrap();
            assert!(!transition.truncated);
            assert_eq!(transition.terminated, transition.won);
            rewards.push(transition.reward);
        }
        let last = rewards.pop();
        assert_eq!(last, Some(10.0));
        assert!(rewards.iter().all(|&reward| reward == 0.0));
    }
    let unknown = TaskId::new("alfworld/valid_unseen/nothing/none");
    assert!(matches!(
        environment.reset(&unknown, 0),
        Err(EnvironmentError::UnknownTask { .. })
    ));
}
