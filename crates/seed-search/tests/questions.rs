//! Reading questions: every form of record, the staged files, and input that is wrong.

#![expect(clippy::print_stdout, reason = "a skipped test says so")]

mod common;

use std::path::{Path, PathBuf};

use common::recorded;
use seed_search::{Question, SearchError, read_questions};
use serde_json::json;

#[test]
fn every_form_of_record_is_read() {
    let expected = Question {
        id: "7".into(),
        data_source: "nq".into(),
        text: "who won?".into(),
        golden_answers: vec!["Ada".into(), "Ada L.".into()],
    };
    let answers = json!(["Ada", "Ada L."]);
    for record in [
        json!({"question": "who won?", "golden_answers": answers, "data_source": "nq"}),
        // As the field writes it before preparation.
        json!({"id": null, "question": " who won \n", "golden_answers": answers, "data_source": "nq"}),
        // Search-R1's parquet.
        json!({"question": "who won?", "data_source": "nq", "golden_answers": null,
            "reward_model": {"style": "rule", "ground_truth": {"target": answers}}}),
        // verl's parquet, which has no `question` column of its own.
        json!({"data_source": "nq", "extra_info": {"question": "who won?"},
            "reward_model": {"ground_truth": {"target": answers}}}),
        json!({"env_kwargs": {"question": "who won?", "data_source": "nq", "ground_truth": {"target": answers}}}),
        json!({"question": "who won?", "data_source": "nq", "reward_model": {"ground_truth": answers}}),
    ] {
        assert_eq!(
            Question::from_record(&record, 7).as_ref(),
            Ok(&expected),
            "{record}"
        );
    }
    let named = json!({"id": "q-1", "question": "why", "golden_answers": "so", "data_source": "x"});
    let named = Question::from_record(&named, 0).unwrap();
    assert_eq!(
        (named.id.as_str(), named.golden_answers.as_slice()),
        ("q-1", &["so".to_owned()][..])
    );
}

#[test]
fn a_wrong_record_is_named_with_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train.jsonl");
    let good = json!({"question": "why?", "golden_answers": ["so"], "data_source": "x"});
    let mut messages = String::new();
    for (field, value) in [
        ("question", json!(null)),
        ("question", json!("  ")),
        ("question", json!(["why?"])),
        ("golden_answers", json!(null)),
        ("golden_answers", json!([])),
        ("golden_answers", json!(["so", 4])),
        ("golden_answers", json!({"answer": "so"})),
        ("data_source", json!("")),
        ("data_source", json!(null)),
    ] {
        let mut bad = good.clone();
        bad[field] = value;
        fs_err::write(&path, format!("{good}\n\n{bad}\n")).unwrap();
        let error = read_questions(&path).unwrap_err();
        assert!(
            matches!(&error, SearchError::Question { record: 2, .. }),
            "{error}"
        );
        let message = error
            .to_string()
            .replace(&folder.path().display().to_string(), "FOLDER");
        messages.push_str(&message);
        messages.push('\n');
    }
    insta::assert_snapshot!(messages, @r#"
    record 2 of `FOLDER/train.jsonl` is no question: it has no `question` (looked for `question`, `env_kwargs.question`, `extra_info.question`)
    record 2 of `FOLDER/train.jsonl` is no question: its `question` is empty
    record 2 of `FOLDER/train.jsonl` is no question: its `question` is no text
    record 2 of `FOLDER/train.jsonl` is no question: it has no `golden_answers` (looked for `golden_answers`, `env_kwargs.ground_truth.target`, `reward_model.ground_truth.target`, `env_kwargs.ground_truth`, `reward_model.ground_truth`)
    record 2 of `FOLDER/train.jsonl` is no question: its `golden_answers` are empty: nothing could be right
    record 2 of `FOLDER/train.jsonl` is no question: one of its `golden_answers` is no text
    record 2 of `FOLDER/train.jsonl` is no question: its `golden_answers` are no list of texts
    record 2 of `FOLDER/train.jsonl` is no question: its `data_source` is no name
    record 2 of `FOLDER/train.jsonl` is no question: it has no `data_source` (looked for `data_source`, `env_kwargs.data_source`)
    "#);
}

#[test]
fn files_that_cannot_be_questions_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.jsonl");
    assert!(
        read_questions(&path)
            .unwrap_err()
            .to_string()
            .contains("test.jsonl")
    );
    fs_err::write(&path, "\n").unwrap();
    assert!(matches!(
        read_questions(&path),
        Err(SearchError::NoQuestions { .. })
    ));
    fs_err::write(&path, "{\"question\": \"why\n").unwrap();
    assert!(read_questions(&path).unwrap_err().to_string().contains("line 1"));
    let path = folder.path().join("test.parquet");
    for bytes in [&b""[..], b"PAR1", b"PAR1 no parquet at all PAR1", &[0; 4096]] {
        fs_err::write(&path, bytes).unwrap();
        let error = read_questions(&path).unwrap_err();
        assert!(matches!(error, SearchError::Parquet { .. }), "{error}");
        assert!(error.to_string().contains("test.parquet"), "{error}");
    }
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name)
}

/// Files written by `golden/make_question_files.py`.
#[test]
fn parquet_files_of_both_preparations_hold_the_same_questions() {
    let search_r1 = read_questions(&golden("search_r1.parquet")).unwrap();
    assert_eq!(
        search_r1[2],
        Question {
            id: "test_2".into(),
            data_source: "popqa".into(),
            text: "What is the capital of the Toledo District?".into(),
            golden_answers: vec!["Punta Gorda".into(), "Punta Gorda Town".into()],
        }
    );
    assert_eq!(search_r1[0].golden_answers, ["Wilhelm Conrad Röntgen"]);
    let verl = read_questions(&golden("verl.parquet")).unwrap();
    assert_eq!(verl.len(), 3);
    for (index, (left, right)) in search_r1.into_iter().zip(verl).enumerate() {
        assert_eq!(
            Question {
                id: index.to_string(),
                ..left
            },
            right
        );
    }
}

#[test]
fn missing_parquet_columns_are_named() {
    let error = read_questions(&golden("no_answers.parquet")).unwrap_err();
    let message = error.to_string();
    let message = message.split_once("no_answers.parquet").unwrap().1;
    insta::assert_snapshot!(message, @"` lacks the columns `golden_answers` or `env_kwargs` or `reward_model`; it has `question`, `data_source`");
}

#[test]
fn a_damaged_parquet_file_is_an_error_or_other_questions_but_no_panic() {
    let whole = fs_err::read(golden("plain.parquet")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train.parquet");
    let mut refused = 0;
    for place in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[place] ^= 1 << (place % 8);
        fs_err::write(&path, &damaged).unwrap();
        refused += usize::from(read_questions(&path).is_err());
        fs_err::write(&path, &whole[..place]).unwrap();
        assert!(read_questions(&path).is_err(), "cut at {place}");
    }
    assert!(refused > 50, "{refused} of {} flips refused", whole.len());
}

#[test]
fn the_recorded_question_files_are_read_whole() {
    for (name, count, sources) in [
        (
            "questions.jsonl",
            231,
            &["hotpotqa", "musique", "2wikimultihopqa"][..],
        ),
        ("bamboogle.jsonl", 125, &["bamboogle"]),
        ("2wiki_500.jsonl", 500, &["2wiki"]),
        ("musique_500.jsonl", 500, &["musique"]),
    ] {
        let Some(path) = recorded(name) else { continue };
        let questions = read_questions(&path).unwrap();
        assert_eq!(questions.len(), count, "{name}");
        let mut found: Vec<&str> = Vec::new();
        for question in &questions {
            assert!(question.text.ends_with('?') && !question.golden_answers.is_empty());
            if !found.contains(&question.data_source.as_str()) {
                found.push(&question.data_source);
            }
        }
        found.sort_unstable();
        let mut sources = sources.to_vec();
        sources.sort_unstable();
        assert_eq!(found, sources, "{name}");
    }
}
