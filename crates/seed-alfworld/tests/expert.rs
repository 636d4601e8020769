//! Scripted players on household games: the optimal one against a blind search, the others by their success.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests fail by panicking, like the tests"
)]

use std::collections::BTreeSet;

use seed_alfworld::expert::skill::{Advice, annotate, oracle_skill, wrong_skill};
use seed_alfworld::expert::yardstick::Yardstick;
use seed_alfworld::expert::{
    NoisyExpert, OptimalExpert, PlayedEpisode, Player, RandomPlayer, SearchingExpert, play, shortest_plan,
};
use seed_alfworld::household::{HouseholdGenerator, HouseholdSize};
use seed_alfworld::{Action, Game, State};
use seed_env::Split;
use seed_random::{Draw as _, RandomKey};

fn games(size: HouseholdSize, split: Split, count: usize) -> Vec<Game> {
    let generator = HouseholdGenerator::new(size, 0).unwrap();
    (0..count)
        .map(|index| {
            let household = generator.household(split, index).unwrap();
            Game::from_problem(
                &household.problem(),
                &household.goal_sentence(),
                &[],
                &household.trial,
            )
            .unwrap()
        })
        .collect()
}

/// Length of a shortest winning list of commands of at most `limit`, by breadth-first search over `relevant` actions.
fn search(
    game: &Game,
    start: &State,
    limit: usize,
    relevant: impl Fn(&State, Action) -> bool,
) -> Option<usize> {
    if game.is_won(start) {
        return Some(0);
    }
    let mut seen = BTreeSet::from([format!("{start:?}")]);
    let mut frontier = vec![start.clone()];
    let (mut commands, mut observation) = (Vec::new(), String::new());
    for depth in 1..=limit {
        let mut next = Vec::new();
        for state in &frontier {
            game.admissible_commands(state, &mut commands);
            for &command in &commands {
                if !relevant(state, game.action(command)) {
                    continue;
                }
                let mut after = state.clone();
                if game.perform(&mut after, command, &mut observation).won {
                    return Some(depth);
                }
                if seen.insert(format!("{after:?}")) {
                    next.push(after);
                }
            }
        }
        frontier = next;
    }
    None
}

/// Random play from the start, so that plans are also made from odd states.
fn scrambled(game: &Game, key: &RandomKey, commands: usize) -> State {
    let mut draw = key.generator();
    let mut state = game.initial_state();
    let (mut admissible, mut observation) = (Vec::new(), String::new());
    for _ in 0..commands {
        let before = state.clone();
        game.admissible_commands(&state, &mut admissible);
        let command = *draw.choose(&admissible).unwrap();
        if game.perform(&mut state, command, &mut observation).won {
            return before;
        }
    }
    state
}

#[test]
fn shortest_plans_are_as_short_as_a_search_over_everything_finds() {
    for (index, game) in games(HouseholdSize::Studio, Split::Train, 18).iter().enumerate() {
        let state = scrambled(
            game,
            &RandomKey::new(5).with("game", index as u64),
            3 * (index % 4),
        );
        let plan = shortest_plan(game, &state).unwrap().len();
        let found = search(game, &state, 3, |_, action| {
            !matches!(action, Action::Look | Action::Help | Action::Inventory)
        });
        assert_eq!(found, (plan <= 3).then_some(plan), "{}", game.goal_sentence());
    }
}

#[test]
fn shortest_plans_are_as_short_as_a_search_over_what_matters_finds() {
    let sizes = [(HouseholdSize::Studio, 36), (HouseholdSize::Full, 6)];
    for (size, count) in sizes {
        for (index, game) in games(size, Split::Unseen, count).iter().enumerate() {
            let state = scrambled(
                game,
                &RandomKey::new(6).with("game", index as u64),
                4 * (index % 5),
            );
            let goal = game.goal();
            let wanted = |object| game.object_class(object) == Some(goal.object_class());
            let matters = |state: &State, receptacle| {
                game.receptacle_class(receptacle) == goal.target_class()
                    || game.treatment(receptacle).is_some()
                    || state.contents(game, receptacle).any(|object| {
                        wanted(object) || game.object_class(object) == Some(goal.target_class())
                    })
                    || state
                        .held()
                        .is_some_and(|held| !wanted(held) && game.can_contain(receptacle, held))
            };
            let found = search(game, &state, 12, |state, action| match action {
                Action::GoTo(receptacle) | Action::Open(receptacle) => matters(state, receptacle),
                Action::Take { object, .. } | Action::Treat { object, .. } => wanted(object),
                Action::Move { .. } | Action::Use(_) => true,
                _ => false,
            });
            let plan = shortest_plan(game, &state).unwrap().len();
            assert_eq!(found, Some(plan), "{size:?} {index}: {}", game.goal_sentence());
        }
    }
}

fn success(games: &[Game], max_steps: usize, player: impl Fn(RandomKey) -> Box<dyn Player>) -> f64 {
    let won = games
        .iter()
        .enumerate()
        .filter(|(index, game)| {
            let key = RandomKey::new(7).with("game", *index as u64);
            play(game, player(key).as_mut(), max_steps).won
        })
        .count();
    won as f64 / games.len() as f64
}

#[test]
fn players_differ_in_success_as_they_should() {
    let studio = games(HouseholdSize::Studio, Split::Seen, 120);
    let full = games(HouseholdSize::Full, Split::Unseen, 120);
    for (games, max_steps) in [(&studio, 20), (&full, 30)] {
        assert_eq!(success(games, 10, |_| Box::new(OptimalExpert)), 1.0);
        let searching = success(games, max_steps, |key| Box::new(SearchingExpert::new(key)));
        assert!(searching >= 0.95, "{searching}");
        let noisy = |noise| success(games, max_steps, |key| Box::new(NoisyExpert::new(key, noise)));
        let (calm, wild) = (noisy(0.3), noisy(0.7));
        assert!((0.8..1.0).contains(&calm), "noise 0.3: {calm}");
        assert!((0.15..0.75).contains(&wild), "noise 0.7: {wild}");
        let random = success(games, max_steps, |key| Box::new(RandomPlayer::new(key)));
        assert!(random < 0.05, "{random}");
    }
}

#[test]
fn without_noise_the_noisy_expert_is_the_searching_one_in_success_and_is_deterministic() {
    let games = games(HouseholdSize::Studio, Split::Train, 30);
    for (index, game) in games.iter().enumerate() {
        let key = RandomKey::new(8).with("game", index as u64);
        let one = play(game, &mut NoisyExpert::new(key, 0.4), 20);
        let two = play(game, &mut NoisyExpert::new(key, 0.4), 20);
        assert_eq!(one, two);
        assert!(play(game, &mut NoisyExpert::new(key, 0.0), 20).won);
    }
}

#[test]
fn a_player_can_be_used_for_one_episode_after_another() {
    let games = games(HouseholdSize::Studio, Split::Train, 12);
    let mut players: Vec<Box<dyn Player>> = vec![
        Box::new(SearchingExpert::new(RandomKey::new(1))),
        Box::new(NoisyExpert::new(RandomKey::new(1), 0.5)),
        Box::new(RandomPlayer::new(RandomKey::new(1))),
    ];
    for player in &mut players {
        let first: Vec<PlayedEpisode> = games.iter().map(|game| play(game, player.as_mut(), 20)).collect();
        let again: Vec<PlayedEpisode> = games.iter().map(|game| play(game, player.as_mut(), 20)).collect();
        assert_eq!(first, again);
    }
}

/// Names such as `cabinet 2` in a text.
fn names(text: &str) -> BTreeSet<String> {
    let words: Vec<&str> = text
        .split(|character: char| !character.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    words
        .windows(2)
        .filter(|pair| pair[0].chars().all(char::is_alphabetic) && pair[1].parse::<u32>().is_ok())
        .map(|pair| pair.join(" "))
        .collect()
}

fn texts(episode: &PlayedEpisode) -> String {
    let observations: Vec<&str> = episode
        .steps
        .iter()
        .map(|step| step.observation.as_str())
        .collect();
    format!("{}\n{}", observations.join("\n"), episode.last_observation)
}

#[test]
fn skills_are_short_and_name_only_what_was_shown() {
    let mut lengths = Vec::new();
    for (size, max_steps) in [(HouseholdSize::Studio, 20), (HouseholdSize::Full, 30)] {
        for (index, game) in games(size, Split::Train, 240).iter().enumerate() {
            let key = RandomKey::new(9).with("game", index as u64);
            let noise = [0.0, 0.4, 0.8, 1.0][index / 6 % 4];
            let episode = play(game, &mut NoisyExpert::new(key, noise), max_steps);
            let annotation = annotate(&episode).unwrap();
            let (skill, summary) = (&annotation.episode_skill, &annotation.episode_summary);
            let words = skill.split_whitespace().count();
            assert!((5..=40).contains(&words), "{skill}");
            assert!(summary.split_whitespace().count() <= 40, "{summary}");
            assert!(skill.matches('.').count() <= 3 && skill.ends_with('.'), "{skill}");
            assert!(
                summary.starts_with(if episode.won { "done in " } else { "failed after " }),
                "{summary}"
            );
            let shown = names(&texts(&episode));
            for name in names(skill).union(&names(summary)) {
                // The count of steps reads like a name: `in 7`, `after 20`.
                let count = ["in ", "after "].iter().any(|word| name.starts_with(word));
                assert!(
                    count || shown.contains(name),
                    "`{name}` was never shown: {skill} {summary}"
                );
            }
            lengths.push(words);
        }
    }
    assert!(lengths.iter().max() > Some(&25), "long cases occur");
}

#[test]
fn skills_of_typical_episodes_read_well() {
    let games = games(HouseholdSize::Studio, Split::Train, 48);
    let mut lines = Vec::new();
    for (index, game) in games.iter().enumerate() {
        let key = RandomKey::new(10).with("game", index as u64);
        let (noise, max_steps) = [(0.0, 20), (0.5, 20), (0.5, 8), (1.0, 8)][index / 12];
        let episode = play(game, &mut NoisyExpert::new(key, noise), max_steps);
        let annotation = annotate(&episode).unwrap();
        lines.push(format!(
            "{}\n  {}\n  {}",
            episode.task, annotation.episode_summary, annotation.episode_skill
        ));
    }
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn following_a_skill_shortens_the_search() {
    let games = games(HouseholdSize::Studio, Split::Seen, 150);
    let mut steps = [0usize; 5];
    for (index, game) in games.iter().enumerate() {
        let key = RandomKey::new(11).with("game", index as u64);
        let failed = play(game, &mut NoisyExpert::new(key, 1.0), 10);
        let hindsight = Advice::read(&annotate(&failed).unwrap().episode_skill);
        let (oracle, wrong) = (oracle_skill(game).unwrap(), wrong_skill(game, &key).unwrap());
        assert_ne!(wrong, oracle);
        let (oracle, wrong) = (Advice::read(&oracle), Advice::read(&wrong));
        let mut play_with = |slot: usize, advice: Advice| {
            steps[slot] += play(game, &mut SearchingExpert::advised(key, advice), 40)
                .steps
                .len();
        };
        play_with(0, Advice::default());
        play_with(1, hindsight);
        play_with(2, oracle);
        play_with(3, wrong);
        steps[4] += shortest_plan(game, &game.initial_state()).unwrap().len();
    }
    let [plain, hindsight, oracle, wrong, optimal] = steps.map(|total| total as f64 / games.len() as f64);
    assert!(
        hindsight < plain - 0.2,
        "a failed episode's skill helps: {hindsight} against {plain}"
    );
    assert!(
        oracle < optimal + 0.3,
        "the oracle skill leads nearly straight: {oracle} against {optimal}"
    );
    assert!(
        wrong > oracle + 0.5,
        "the wrong skill misleads: {wrong} against {oracle}"
    );
}

#[test]
fn skills_are_judged_by_what_the_game_holds() {
    let games = games(HouseholdSize::Studio, Split::Seen, 150);
    let (mut wrong_places, mut wrong_procedures) = (0, 0);
    for (index, game) in games.iter().enumerate() {
        let yardstick = Yardstick::of(game).unwrap();
        let oracle = oracle_skill(game).unwrap();
        let judgement = yardstick.judge(&oracle);
        assert!(
            judgement.procedure && judgement.place,
            "{}: {oracle}",
            game.goal_sentence()
        );
        let shouted = yardstick.judge(&oracle.to_uppercase());
        assert!(
            shouted.procedure && shouted.place,
            "letters' case is no mistake: {oracle}"
        );
        let wrong = wrong_skill(game, &RandomKey::new(12).with("game", index as u64)).unwrap();
        let judgement = yardstick.judge(&wrong);
        assert!(
            !(judgement.procedure && judgement.place),
            "{}: {wrong}",
            game.goal_sentence()
        );
        wrong_places += usize::from(!judgement.place);
        wrong_procedures += usize::from(!judgement.procedure);
        let nothing = yardstick.judge("Stay calm and think.");
        assert!(!nothing.procedure && !nothing.place);
    }
    // A wrong skill errs in one of three ways, of which not every task has all.
    assert!(
        wrong_places > 40 && wrong_procedures > 40,
        "{wrong_places} {wrong_procedures}"
    );
}

#[test]
fn free_words_are_judged_too() {
    let game = &games(HouseholdSize::Studio, Split::Seen, 1)[0];
    let yardstick = Yardstick::of(game).unwrap();
    let oracle = Advice::read(&oracle_skill(game).unwrap());
    let place = oracle.look[0].clone();
    let told = yardstick.judge(&format!("First walk over to {place}; it was there last time."));
    assert!(told.place && !told.procedure);
}
