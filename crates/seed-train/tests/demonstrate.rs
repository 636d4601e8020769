//! Demonstrations of each kind of world: what a policy is taught to write must be what the world reads.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests fail as tests do")]

use seed_train::config::{DemonstrateConfig, Loaded};
use seed_train::demonstrate::demonstrate;
use seed_train::events::Silent;
use seed_train::examples::{ExampleRecord, Role, read_examples};
use seed_train::hindsight::Hindsight;
use seed_train::world::{OpenWorld, open_world};

/// Demonstrations of a world, and the world.
fn recorded(world: &str, context: &str) -> (Vec<ExampleRecord>, OpenWorld) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.jsonl");
    let mut set = vec![
        format!("world.name={world}"),
        format!("world.context={context}"),
        "world.prompts=compact".to_owned(),
        format!("demonstrations.out={out:?}"),
        "demonstrations.examples=120".to_owned(),
        "demonstrations.act_with_other_skill_share=0.2".to_owned(),
        "seed.analysis_style=compact".to_owned(),
    ];
    if world == "knowledge" {
        set.extend(["world.max_steps=4".to_owned(), "search.top_k=1".to_owned()]);
    }
    let config = Loaded::<DemonstrateConfig>::from_defaults(&set).unwrap().config;
    let open = open_world(&config.world, &config.search).unwrap();
    let hindsight = Hindsight::new(&config.seed);
    demonstrate(&config, &open, &hindsight, &mut Silent).unwrap();
    let bytes = fs_err::read(&out).unwrap();
    demonstrate(&config, &open, &hindsight, &mut Silent).unwrap();
    assert_eq!(fs_err::read(&out).unwrap(), bytes, "the same bytes again");
    (read_examples(&out).unwrap(), open)
}

/// The kinds that occur, sorted.
fn kinds(records: &[ExampleRecord]) -> Vec<&str> {
    let mut kinds: Vec<&str> = records.iter().map(|record| record.kind.as_str()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

/// The messages of the first transcript of a world with that kind and number of messages.
fn conversation(world: &str, kind: &str, messages: usize) -> Vec<String> {
    let (records, _) = recorded(world, "transcript");
    let whole = records
        .iter()
        .find(|record| record.kind == kind && record.messages.len() == messages)
        .unwrap();
    whole
        .messages
        .iter()
        .map(|message| format!("{:?}: {}", message.role, message.content))
        .collect()
}

#[test]
fn every_taught_response_is_a_valid_action() {
    for world in ["household-studio", "knowledge", "shop"] {
        for context in ["transcript", "windowed"] {
            let (records, open) = recorded(world, context);
            assert_eq!(
                kinds(&records),
                ["act", "act_with_other_skill", "act_with_skill", "analyse"],
                "{world}"
            );
            let played = records.iter().filter(|record| record.kind != "analyse");
            for message in played.flat_map(|record| &record.messages) {
                if message.role == Role::Assistant {
                    let projection = open.world.dialogue().project(&message.content);
                    assert!(projection.valid, "{world}: {}", message.content);
                }
            }
        }
    }
}

#[test]
fn skills_stand_in_prompts_and_in_answers() {
    for (world, words) in [("knowledge", "by name"), ("shop", "Search for ")] {
        let (records, _) = recorded(world, "transcript");
        for record in &records {
            let opening = &record.messages[0].content;
            let answer = &record.messages[1].content;
            match record.kind.as_str() {
                "act" => assert!(!opening.contains(words), "{world}: {opening}"),
                "analyse" => assert!(answer.contains(words), "{world}: {answer}"),
                _ => assert!(opening.contains(words), "{world}: {opening}"),
            }
        }
    }
}

#[test]
fn a_played_question_reads_as_the_policy_will_see_it() {
    let text = conversation("knowledge", "act", 6);
    insta::assert_snapshot!(text.join("\n"));
}

#[test]
fn a_played_purchase_reads_as_the_policy_will_see_it() {
    let text = conversation("shop", "act_with_skill", 10);
    insta::assert_snapshot!(text.join("\n"));
}
