//! Skills by rule on household games: the library knows the procedure and nothing of the room.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests fail by panicking, like the tests"
)]

use std::collections::BTreeMap;

use seed_alfworld::GameSource;
use seed_alfworld::expert::{HouseholdLibrary, Request};
use seed_alfworld::household::{HouseholdConfig, HouseholdSize, HouseholdWorld};
use seed_env::{FinishedEpisode, Split, Task, TaskId, World};
use seed_random::RandomKey;

fn world() -> HouseholdWorld {
    HouseholdWorld::new(HouseholdConfig {
        train: 256,
        ..HouseholdConfig::new(HouseholdSize::Studio)
    })
    .unwrap()
}

#[test]
fn the_library_says_how_and_only_kinds_of_places() {
    let world = world();
    let rules = world.skill_rules().unwrap();
    let library = rules.library(world.tasks(Split::Train)).unwrap();
    let mut by_family = BTreeMap::new();
    for task in world.tasks(Split::Unseen) {
        let game = world.game(&task.id).unwrap();
        let skill = library.skill(&task.id).unwrap().unwrap();
        assert!(!skill.contains(|letter: char| letter.is_ascii_digit()), "{skill}");
        let request = Request::read(game.goal_sentence()).unwrap();
        assert!(
            skill.contains(&request.object) && skill.contains(&request.target),
            "{skill}"
        );
        if let Some((verb, appliance)) = request.treatment() {
            assert!(skill.contains(&format!("{verb} it with {appliance}")), "{skill}");
        }
        by_family.entry(task.family.clone()).or_insert(skill);
    }
    assert_eq!(by_family.len(), 6, "{by_family:?}");
    let two = &by_family["pick_two_obj_and_place"];
    assert!(two.contains("two ") && two.contains("put both in "), "{two}");
    let light = &by_family["look_at_obj_in_light"];
    assert!(
        light.contains("then take it to ") && light.contains("use desklamp"),
        "{light}"
    );
    assert!(library.skill(&TaskId::new("elsewhere/train/0")).is_err());
}

#[test]
fn the_library_is_a_function_of_the_first_tasks_of_each_family() {
    let world = world();
    let build = |tasks: &[Task]| HouseholdLibrary::build(&world, tasks).unwrap();
    let tasks = world.tasks(Split::Train);
    let sentence = "put a clean mug in shelf.";
    let first = build(tasks);
    assert_eq!(build(tasks), first);
    assert_eq!(first.skill("make me a sandwich."), None);
    let cleaned: Vec<_> = tasks
        .iter()
        .filter(|task| task.family == "pick_clean_then_place_in_recep")
        .cloned()
        .collect();
    let narrow = build(&cleaned);
    assert!(first.skill(sentence).is_some());
    assert_eq!(narrow.skill(sentence), first.skill(sentence));
    assert_eq!(
        narrow.skill("put a mug in shelf."),
        None,
        "nothing was learned of that family"
    );
}

#[test]
fn oracle_and_wrong_skills_are_of_the_task() {
    let world = world();
    let rules = world.skill_rules().unwrap();
    let task = &world.tasks(Split::Train)[3].id;
    let oracle = rules.oracle_skill(task).unwrap().unwrap();
    for draw in 0..8 {
        let key = RandomKey::new(draw);
        let wrong = rules.wrong_skill(task, &key).unwrap().unwrap();
        assert_ne!(wrong, oracle);
        assert_eq!(rules.wrong_skill(task, &key).unwrap().unwrap(), wrong);
    }
    let error = rules.oracle_skill(&TaskId::new("elsewhere/train/0")).unwrap_err();
    assert!(error.to_string().contains("elsewhere/train/0"), "{error}");
}

#[test]
fn rules_annotate_from_texts_alone() {
    let world = world();
    let rules = world.skill_rules().unwrap();
    let episode = FinishedEpisode {
        task_description: "put a mug in shelf.",
        observations: &[
            "You are in the middle of a room. Looking quickly around you, you see a desk 1, a shelf 1.\n\nYour task is \
             to: put a mug in shelf.",
            "You arrive at desk 1. On the desk 1, you see a mug 2.",
            "Nothing happens.",
            "You pick up the mug 2 from the desk 1.",
            "You arrive at shelf 1. On the shelf 1, you see nothing.",
        ],
        won: false,
    };
    let annotation = rules.annotate(&episode).unwrap();
    assert!(
        annotation.skill.contains("look in desk 1 for the mug"),
        "{}",
        annotation.skill
    );
    assert!(
        annotation.summary.starts_with("failed after 4 steps"),
        "{}",
        annotation.summary
    );
    let steps: Vec<(usize, &str)> = annotation
        .step_skills
        .iter()
        .map(|(&step, skill)| (step, skill.as_str()))
        .collect();
    assert_eq!(steps, [(1, "take mug 2 from desk 1."), (3, "put it in shelf 1.")]);
    let unreadable = FinishedEpisode {
        task_description: "make me a sandwich.",
        ..episode
    };
    assert_eq!(rules.annotate(&unreadable), None);
}
