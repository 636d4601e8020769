//! The protocol's rules against what Python makes of them (`golden/make_protocol_golden.py`), and the texts of prompts.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests fail as tests do")]

use proptest::prelude::*;
use seed_env::{Dialogue, Exchange, PromptState};
use seed_search::{
    SearchDialect, SearchDialogue, SearchStyle, exact_match, extract_answer, failure_block,
    information_block, normalise_answer, project_response, score_transcript,
};
use serde_json::Value;

fn golden() -> Value {
    serde_json::from_str(include_str!("golden/protocol.json")).unwrap()
}

#[test]
fn responses_are_projected_as_in_python() {
    let golden = golden();
    let cases = golden["responses"].as_array().unwrap();
    assert_eq!(cases.len(), 500);
    for case in cases {
        let text = case["text"].as_str().unwrap();
        let block = project_response(text, SearchDialect::VerlAgent);
        assert_eq!(
            (block.action.as_str(), block.valid),
            (
                case["block"][0].as_str().unwrap(),
                case["block"][1].as_bool().unwrap()
            ),
            "{text:?}"
        );
        if let Some(span) = &block.action_span {
            let inner = block.action.split_once('>').unwrap().1;
            assert_eq!(text[span.clone()], inner[..inner.len() - "</search>".len()]);
        }
        assert_eq!(block.action_span.is_some(), !block.action.is_empty());
        let growing = project_response(text, SearchDialect::SearchR1);
        assert_eq!(growing.action, case["growing"][0].as_str().unwrap(), "{text:?}");
        assert_eq!(growing.valid, case["growing"][1].is_string(), "{text:?}");
        assert_eq!(
            growing.action_span.map(|span| &text[span]),
            case["growing"][2].as_str(),
            "{text:?}"
        );
        assert_eq!(extract_answer(text), case["answer"].as_str(), "{text:?}");
    }
}

#[test]
fn answers_are_normalised_as_in_python() {
    let golden = golden();
    let cases = golden["answers"].as_array().unwrap();
    assert_eq!(cases.len(), 300);
    for case in cases {
        let (answer, expected) = (case[0].as_str().unwrap(), case[1].as_str().unwrap());
        assert_eq!(normalise_answer(answer), expected, "{answer:?}");
    }
}

#[test]
fn results_are_written_as_in_python() {
    let golden = golden();
    let cases = golden["results"].as_array().unwrap();
    assert_eq!(cases.len(), 60);
    for case in cases {
        let contents: Vec<&str> = case["contents"]
            .as_array()
            .unwrap()
            .iter()
            .map(|text| text.as_str().unwrap())
            .collect();
        for (dialect, expected) in [
            (SearchDialect::VerlAgent, &case["step"]),
            (SearchDialect::SearchR1, &case["plain"]),
        ] {
            assert_eq!(information_block(&contents, dialect), expected.as_str().unwrap());
        }
    }
}

#[test]
fn nothing_found_and_failures_are_said_in_the_result_block() {
    let none: [&str; 0] = [];
    assert_eq!(
        information_block(&none, SearchDialect::VerlAgent),
        r#"<information>{"result": "No search results found."}</information>"#
    );
    assert_eq!(
        information_block(&none, SearchDialect::SearchR1),
        "<information></information>"
    );
    assert_eq!(
        failure_block("`é`\nis down", SearchDialect::VerlAgent),
        r#"<information>{"result": "Search error: `\u00e9`\nis down"}</information>"#
    );
    assert_eq!(
        failure_block("down", SearchDialect::SearchR1),
        "<information>Search error: down</information>"
    );
}

#[test]
fn the_last_answer_is_scored_by_exact_match() {
    let golden = ["The Beatles", "Beatles, The"];
    for (transcript, score) in [
        ("<answer>beatles</answer>", 1.0),
        ("<answer>\n the  BEATLES! </answer>", 1.0),
        ("<answer>The Beatles were</answer>", 0.0),
        ("<answer>Oasis</answer> no: <answer>Beatles</answer>", 1.0),
        ("<answer>Beatles</answer> no: <answer>Oasis</answer>", 0.0),
        ("<answer>Beatles</answer> <answer>Oasis", 1.0),
        ("<Answer>Beatles</Answer>", 0.0),
        ("Beatles", 0.0),
        ("", 0.0),
    ] {
        assert_eq!(score_transcript(transcript, &golden), score, "{transcript}");
    }
    // What the rule does at its edges: an answer of nothing but articles is nothing.
    assert!(exact_match("the", &["A"]));
    assert!(!exact_match("theatre", &["atre"]));
}

fn prompts(dialect: SearchDialect, style: SearchStyle) -> String {
    let dialogue = SearchDialogue::new(dialect, style);
    let exchange = |observation: &str, action: &str| Exchange {
        observation: observation.into(),
        action: action.into(),
    };
    let question = "Who directed the film that was shot in Leland?";
    let found = |text: &str| information_block(&[format!("\"{text}\"\nIt is a film.")], dialect);
    let history = [
        exchange(question, "<search>films shot in Leland</search>"),
        exchange(&found("Bullet"), ""),
        exchange("", "<search>Overdrive</search>"),
    ];
    let start = PromptState {
        task_description: question,
        observation: question,
        admissible_actions: &[],
        history: &[],
        history_length: 2,
    };
    let last = found("Overdrive");
    let middle = PromptState {
        observation: &last,
        history: &history,
        ..start.clone()
    };
    let invalid = PromptState {
        observation: "",
        history: &history[..2],
        ..start.clone()
    };
    [
        ("windowed, first step", dialogue.windowed_prompt(&start)),
        ("windowed, later step", dialogue.windowed_prompt(&middle)),
        ("transcript, opening", dialogue.transcript_opening(&start)),
        ("transcript, turn", dialogue.transcript_turn(&middle)),
        (
            "transcript, after an invalid response",
            dialogue.transcript_turn(&invalid),
        ),
    ]
    .map(|(name, text)| format!("== {name}\n{text}"))
    .join("\n")
}

#[test]
fn prompts_in_full() {
    insta::assert_snapshot!(
        "verl_agent_full",
        prompts(SearchDialect::VerlAgent, SearchStyle::Full)
    );
    insta::assert_snapshot!(
        "search_r1_full",
        prompts(SearchDialect::SearchR1, SearchStyle::Full)
    );
}

#[test]
fn compact_prompts() {
    insta::assert_snapshot!(
        "search_r1_compact",
        prompts(SearchDialect::SearchR1, SearchStyle::Compact)
    );
}

#[test]
fn a_history_length_of_zero_gives_the_first_prompt_at_every_step() {
    let dialogue = SearchDialogue::new(SearchDialect::VerlAgent, SearchStyle::Full);
    let history = [Exchange {
        observation: "Why?".into(),
        action: "<search>why</search>".into(),
    }];
    let first = PromptState {
        task_description: "Why?",
        observation: "Why?",
        admissible_actions: &[],
        history: &[],
        history_length: 0,
    };
    let later = PromptState {
        observation: "<information>{\"result\": \"\"}</information>",
        history: &history,
        ..first.clone()
    };
    assert_eq!(dialogue.windowed_prompt(&later), dialogue.windowed_prompt(&first));
}

proptest! {
    /// Python reads back what was written, and nothing but printable ASCII is in it.
    #[test]
    fn a_result_block_is_ascii_and_reads_back(contents in "\\PC{0,40}|[\\x00-\\x20]{0,9}") {
        let block = information_block(&[&contents], SearchDialect::VerlAgent);
        let json = block.strip_prefix("<information>").unwrap().strip_suffix("</information>").unwrap();
        prop_assert!(json.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
        let read: Value = serde_json::from_str(json).unwrap();
        let shown = read["result"].as_str().unwrap().strip_prefix("Doc 1: ").unwrap().to_owned();
        prop_assert!(contents.contains(shown.strip_suffix('\n').unwrap()));
    }

    /// Whatever a response is, an action is no longer than it and spans lie inside it.
    #[test]
    fn any_response_has_a_projection(response in "(<search>|</search>|<answer>|</answer>|\\PC){0,12}") {
        for dialect in [SearchDialect::VerlAgent, SearchDialect::SearchR1] {
            let projection = project_response(&response, dialect);
            prop_assert!(projection.action.len() <= response.len());
            if let Some(span) = projection.action_span {
                prop_assert!(response.get(span).is_some());
            }
        }
    }

    /// Normalising twice changes nothing more, unless an article was spelled with what normalising removes.
    #[test]
    fn normalised_answers_match_themselves(answer in "\\PC{0,30}") {
        prop_assert!(exact_match(&answer, &[&answer]));
        let normal = normalise_answer(&answer);
        prop_assert!(!normal.starts_with(' ') && !normal.ends_with(' ') && !normal.contains("  "));
    }
}
