//! The generated knowledge world: pinned texts, splits that do not leak, and every question answered by searching.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests fail as tests do")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use seed_env::{Split, World};
use seed_search::{
    KnowledgeConfig, KnowledgeWorld, QuestionKind, SearchDialect, SearchError, SearchOptions,
    normalise_answer,
};

fn world(seed: u64) -> KnowledgeWorld {
    KnowledgeWorld::new(
        &KnowledgeConfig::new(seed),
        SearchOptions::new(SearchDialect::SearchR1),
    )
    .unwrap()
}

/// Texts pinned on purpose: if they move, every recorded run stops being reproducible.
#[test]
fn the_world_is_pinned() {
    let world = world(0);
    assert_eq!(world.name(), "knowledge");
    insta::assert_snapshot!(format!("{}\n{}", world.passages().digest(), world.digest()), @r#"
    a013ade8cf5935a2a22a2806b33d396f2c586d6e13c62e20109c4db44af94247
    9ab27ebb621e8ecb8cb3a9e1e9547bec58f7ba0b4c2e8b2d34336f12f127f3f3
    "#);
    let mut text = String::new();
    for split in Split::ALL {
        for task in world.tasks(split).iter().take(4) {
            let question = world.search_world().question(&task.id).unwrap();
            let plan = world.plan(&task.id).unwrap();
            let _ = write!(text, "{} {}\n  {:?}\n", task.id, question.text, plan.actions());
        }
    }
    for passage in world.passages().iter().take(12) {
        text.push_str(&passage.contents);
        text.push('\n');
    }
    insta::assert_snapshot!("knowledge", text);
}

#[test]
fn another_seed_is_another_world() {
    let (first, second) = (world(0), world(7));
    assert_eq!(second.name(), "knowledge-7");
    assert_ne!(first.passages().digest(), second.passages().digest());
    assert_eq!(first.passages().digest(), world(0).passages().digest());
}

#[test]
fn splits_have_their_sizes_and_do_not_leak() {
    for seed in [0, 1, 2] {
        let world = world(seed);
        let mut questions = BTreeSet::new();
        let mut subjects: BTreeMap<Split, BTreeSet<String>> = BTreeMap::new();
        let mut answers: BTreeMap<Split, BTreeSet<String>> = BTreeMap::new();
        for (split, count) in [
            (Split::Train, 4096),
            (Split::Development, 256),
            (Split::Seen, 128),
            (Split::Unseen, 128),
        ] {
            assert_eq!(world.tasks(split).len(), count);
            let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
            for task in world.tasks(split) {
                let question = world.search_world().question(&task.id).unwrap();
                let plan = world.plan(&task.id).unwrap();
                assert!(
                    questions.insert(question.text.clone()),
                    "{} occurs twice",
                    question.text
                );
                assert_eq!(
                    (plan.kind.name(), plan.queries.len()),
                    (task.family.as_str(), plan.kind.hops())
                );
                assert!(split == Split::Unseen || !plan.kind.is_held_out());
                *kinds.entry(plan.kind.name()).or_default() += 1;
                subjects
                    .entry(split)
                    .or_default()
                    .extend(plan.queries.iter().cloned());
                answers.entry(split).or_default().insert(plan.answer.clone());
            }
            let expected = if split == Split::Unseen { 12 } else { 10 };
            assert_eq!(kinds.len(), expected, "{kinds:?}");
            if split != Split::Train {
                // Dealt in turn: no kind has more than one above its share.
                assert!(
                    kinds.values().all(|&kind| kind <= count / expected + 2),
                    "{kinds:?}"
                );
            }
        }
        let names = |split: Split| subjects[&split].iter().chain(&answers[&split]);
        let known: BTreeSet<&String> = names(Split::Train)
            .filter(|name| name.parse::<u32>().is_err())
            .collect();
        let leaked: Vec<&String> = names(Split::Unseen).filter(|name| known.contains(name)).collect();
        assert!(leaked.is_empty(), "{leaked:?}");
    }
}

/// The passage that tells the next step is among the three that the plan's query finds; so every question can be
/// answered by reading.
#[test]
fn every_question_can_be_answered_by_searching() {
    let world = world(0);
    let retriever = world.search_world().retriever();
    let (mut asked, mut told) = (0, 0);
    for split in Split::ALL {
        for task in world.tasks(split) {
            let plan = world.plan(&task.id).unwrap();
            let answers = plan.queries.iter().skip(1).chain([&plan.answer]);
            for (query, next) in plan.queries.iter().zip(answers) {
                asked += 1;
                let found = retriever.retrieve(&[query], 3).unwrap().remove(0);
                let next = normalise_answer(next);
                let title = format!("\"{query}\"\n");
                let own = found
                    .iter()
                    .find(|found| found.passage.contents.starts_with(&title));
                told += usize::from(
                    own.is_some_and(|own| normalise_answer(&own.passage.contents).contains(&next)),
                );
            }
        }
    }
    assert_eq!((asked, told), (6_665, 6_665));
}

#[test]
fn one_who_knows_the_world_always_wins() {
    for dialect in [SearchDialect::SearchR1, SearchDialect::VerlAgent] {
        let world = KnowledgeWorld::new(&KnowledgeConfig::new(3), SearchOptions::new(dialect)).unwrap();
        let mut environment = world.environment();
        for split in Split::ALL {
            for task in world.tasks(split).iter().take(60) {
                environment.reset(&task.id, 0).unwrap();
                let actions = world.plan(&task.id).unwrap().actions();
                assert!(actions.len() <= world.default_max_steps());
                for (index, action) in actions.iter().enumerate() {
                    let transition = environment.step(action).unwrap();
                    assert_eq!(transition.won, index + 1 == actions.len(), "{}", task.id);
                }
            }
        }
    }
}

#[test]
fn kinds_have_different_names_and_a_world_has_its_limits() {
    let names: BTreeSet<&str> = QuestionKind::ALL.iter().map(|kind| kind.name()).collect();
    assert_eq!(names.len(), QuestionKind::ALL.len());
    let config = KnowledgeConfig {
        train: 100_000,
        ..KnowledgeConfig::new(0)
    };
    let error = KnowledgeWorld::new(&config, SearchOptions::new(SearchDialect::SearchR1))
        .err()
        .unwrap();
    assert!(
        matches!(
            error,
            SearchError::TooFewQuestions {
                split: "train",
                wanted: 100_000,
                ..
            }
        ),
        "{error}"
    );
}
