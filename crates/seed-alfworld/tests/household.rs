//! The household generator: seed-exact, disjoint, balanced, solvable, of realistic size.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests fail by panicking, like the tests"
)]

use std::collections::{BTreeMap, BTreeSet};

use seed_alfworld::household::{
    Combination, Household, HouseholdConfig, HouseholdGenerator, HouseholdSize, HouseholdWorld, RoomKind,
};
use seed_alfworld::{Family, Game, GameSource as _};
use seed_env::{EnvironmentError, Split, TaskId, World as _};

const SIZES: [HouseholdSize; 2] = [HouseholdSize::Studio, HouseholdSize::Full];

fn generator(size: HouseholdSize) -> HouseholdGenerator {
    HouseholdGenerator::new(size, 0).unwrap()
}

fn households(size: HouseholdSize, split: Split, count: usize) -> Vec<Household> {
    let generator = generator(size);
    (0..count)
        .map(|index| generator.household(split, index).unwrap())
        .collect()
}

/// Pinned on purpose: a generator that moves makes every recorded household run irreproducible.
#[test]
fn games_are_seed_exact() {
    let mut digests = Vec::new();
    for size in SIZES {
        for split in Split::ALL {
            let mut hasher = blake3::Hasher::new();
            for household in households(size, split, 24) {
                hasher.update(household.problem().as_bytes());
                hasher.update(household.goal_sentence().as_bytes());
            }
            let digest = hasher.finalize().to_hex();
            digests.push(format!("{}/{} {}", size.name(), split.name(), &digest[..16]));
        }
    }
    insta::assert_snapshot!(digests.join("\n"));
}

#[test]
fn other_world_seeds_make_other_worlds() {
    let other = HouseholdGenerator::new(HouseholdSize::Studio, 1).unwrap();
    let usual = generator(HouseholdSize::Studio);
    assert_ne!(
        other.household(Split::Train, 0).unwrap().problem(),
        usual.household(Split::Train, 0).unwrap().problem()
    );
    for seed in 2..8 {
        for size in SIZES {
            HouseholdGenerator::new(size, seed).unwrap();
        }
    }
}

#[test]
fn unseen_rooms_and_combinations_are_disjoint_from_the_others() {
    for size in SIZES {
        let generator = generator(size);
        let layouts = |split: Split| -> BTreeSet<String> {
            generator
                .rooms(split)
                .iter()
                .map(|room| format!("{:?}", room.census()))
                .collect()
        };
        assert!(layouts(Split::Train).is_disjoint(&layouts(Split::Unseen)));
        assert_eq!(layouts(Split::Train), layouts(Split::Seen));
        let receptacles = |split: Split| -> BTreeSet<String> {
            let rooms = generator.rooms(split).iter();
            rooms
                .flat_map(|room| {
                    room.receptacles
                        .iter()
                        .map(seed_alfworld::household::Receptacle::id)
                })
                .collect()
        };
        let shared = receptacles(Split::Train)
            .intersection(&receptacles(Split::Unseen))
            .count();
        assert_eq!(
            shared, 0,
            "no receptacle of an unseen room stands in a training room"
        );

        let mut asked: BTreeMap<bool, BTreeSet<Combination>> = BTreeMap::new();
        for split in Split::ALL {
            for household in households(size, split, 600) {
                let held_out = generator.held_out().contains(&household.combination);
                assert_eq!(
                    held_out,
                    split == Split::Unseen,
                    "{} {:?}",
                    split.name(),
                    household.combination
                );
                asked.entry(held_out).or_default().insert(household.combination);
            }
        }
        assert!(
            asked[&true].len() >= 80 && asked[&false].len() >= 300,
            "both sides are varied"
        );
        for family in Family::ALL {
            let variety = asked[&true]
                .iter()
                .filter(|combination| combination.family == family)
                .count();
            assert!(variety >= 4, "{size:?} {family:?}: {variety} unseen combinations");
        }
    }
}

#[test]
fn no_game_occurs_twice() {
    for size in SIZES {
        let mut problems = BTreeSet::new();
        for split in Split::ALL {
            for mut household in households(size, split, 400) {
                // The trial's name alone must not make the difference.
                household.trial = String::new();
                assert!(problems.insert(*blake3::hash(household.problem().as_bytes()).as_bytes()));
            }
        }
    }
}

#[test]
fn families_are_balanced_in_every_block_of_six() {
    for size in SIZES {
        let generator = generator(size);
        for split in Split::ALL {
            let mut orders = BTreeSet::new();
            for block in 0..20 {
                let families: Vec<Family> = (0..6)
                    .map(|offset| generator.family(split, 6 * block + offset))
                    .collect();
                let distinct: BTreeSet<Family> = families.iter().copied().collect();
                assert_eq!(distinct.len(), 6);
                orders.insert(families);
            }
            assert!(orders.len() > 10, "the order within blocks is drawn");
        }
    }
}

#[test]
fn walkthroughs_win_with_their_last_command_and_not_before() {
    for size in SIZES {
        let world = HouseholdWorld::new(HouseholdConfig::new(size)).unwrap();
        let longest = if size == HouseholdSize::Studio { 8 } else { 11 };
        let mut environment = world.environment();
        for split in Split::ALL {
            for task in &world.tasks(split)[..90] {
                let game = world.game(&task.id).unwrap();
                assert_eq!(game.family().name(), task.family);
                let commands: Vec<&str> = game.walkthrough().collect();
                assert!(
                    (3..=longest).contains(&commands.len()),
                    "{}: {commands:?}",
                    task.id
                );
                environment.reset(&task.id, 0).unwrap();
                for (step, command) in commands.iter().enumerate() {
                    assert!(
                        environment
                            .admissible_actions()
                            .iter()
                            .any(|action| action == command)
                    );
                    let transition = environment.step(command).unwrap();
                    let last = step + 1 == commands.len();
                    assert_eq!(
                        (transition.won, transition.terminated),
                        (last, last),
                        "{} {command}",
                        task.id
                    );
                    assert_eq!(transition.reward, if last { 10.0 } else { 0.0 });
                    assert!(!transition.truncated);
                }
            }
        }
    }
}

fn mean(values: impl Iterator<Item = usize>) -> f64 {
    let values: Vec<usize> = values.collect();
    values.iter().sum::<usize>() as f64 / values.len() as f64
}

#[test]
fn studios_have_about_a_dozen_receptacles() {
    let games = households(HouseholdSize::Studio, Split::Train, 400);
    for game in &games {
        assert!((10..=13).contains(&game.room.receptacles.len()));
        assert!((12..=20).contains(&game.objects.len()));
        assert!(game.room.has_lamp());
    }
    let opened = mean(games.iter().map(|game| {
        let receptacles = game.room.receptacles.iter();
        receptacles
            .filter(|receptacle| receptacle.class.openable())
            .count()
    }));
    assert!((3.0..6.0).contains(&opened), "{opened}");
}

#[test]
fn full_rooms_are_of_alfworlds_size() {
    // ALFWorld's games: 6 to 54 receptacles, mean 23.5; kitchens 32, bedrooms 15, bathrooms 14, living rooms 16.
    // Objects in receptacles: kitchens 45, bedrooms 23, bathrooms 15, living rooms 21.
    let games = households(HouseholdSize::Full, Split::Train, 900);
    let all = mean(games.iter().map(|game| game.room.receptacles.len()));
    assert!((20.0..28.0).contains(&all), "{all}");
    for (kind, receptacles, objects) in [
        (RoomKind::Kitchen, 32.0, 45.0),
        (RoomKind::LivingRoom, 16.0, 21.0),
        (RoomKind::Bedroom, 15.0, 23.0),
        (RoomKind::Bathroom, 14.0, 15.0),
    ] {
        let of_kind: Vec<&Household> = games.iter().filter(|game| game.room.kind == kind).collect();
        assert!(of_kind.len() > 40);
        for game in &of_kind {
            assert!((6..=54).contains(&game.room.receptacles.len()), "{}", game.trial);
        }
        let found = mean(of_kind.iter().map(|game| game.room.receptacles.len()));
        assert!(
            (found / receptacles - 1.0).abs() < 0.2,
            "{kind:?}: {found} receptacles"
        );
        let found = mean(of_kind.iter().map(|game| game.objects.len()));
        assert!((found / objects - 1.0).abs() < 0.25, "{kind:?}: {found} objects");
    }
    let sharing = games
        .iter()
        .filter(|game| {
            let locations: BTreeSet<_> = game
                .room
                .receptacles
                .iter()
                .map(|receptacle| receptacle.location)
                .collect();
            locations.len() < game.room.receptacles.len()
        })
        .count() as f64
        / games.len() as f64;
    assert!((0.6..0.95).contains(&sharing), "ALFWorld: 0.74; here {sharing}");
}

#[test]
fn both_sentences_of_every_family_occur() {
    let sentences: BTreeSet<(Family, usize)> = households(HouseholdSize::Studio, Split::Train, 120)
        .into_iter()
        .map(|household| (household.combination.family, household.sentence))
        .collect();
    assert_eq!(sentences.len(), 12);
}

#[test]
fn worlds_answer_only_for_their_own_ids() {
    let world = HouseholdWorld::new(HouseholdConfig {
        train: 10,
        ..HouseholdConfig::new(HouseholdSize::Studio)
    })
    .unwrap();
    assert_eq!(
        (world.name(), world.default_max_steps()),
        ("household-studio", 20)
    );
    let tasks = world.tasks(Split::Train);
    assert_eq!(tasks.len(), 10);
    assert_eq!(tasks[7].id.as_str(), "household-studio/train/000007");
    assert_eq!(world.tasks(Split::Seen).len(), 128);
    for id in [
        "household-studio/train/000010",
        "household-studio/train/7",
        "household-studio/train/+00007",
        "household-studio/valid/000001",
        "household-full/train/000001",
        "household-studio",
        "",
    ] {
        let error = world.environment().reset(&TaskId::new(id), 0).unwrap_err();
        assert!(
            matches!(error, EnvironmentError::UnknownTask { .. }),
            "{id}: {error}"
        );
    }
    assert!(matches!(
        world.environment().step("look"),
        Err(EnvironmentError::NotReset)
    ));
}

#[test]
fn games_do_not_depend_on_the_cache() {
    let config = HouseholdConfig::new(HouseholdSize::Studio);
    let (one, two) = (
        HouseholdWorld::new(config.clone()).unwrap(),
        HouseholdWorld::new(config).unwrap(),
    );
    let first = &one.tasks(Split::Train)[3].id;
    let text = |game: &Game| {
        (
            game.reset_text().to_owned(),
            game.walkthrough().map(str::to_owned).collect::<Vec<_>>(),
        )
    };
    let before = text(&one.game(first).unwrap());
    // More games than are kept.
    for task in &one.tasks(Split::Train)[..600] {
        one.game(&task.id).unwrap();
    }
    assert_eq!(before, text(&one.game(first).unwrap()));
    assert_eq!(before, text(&two.game(first).unwrap()));
}
