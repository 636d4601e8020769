//! Episodes in both dialects, splits, digests, and what a failing retriever does.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests fail as tests do")]

use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use seed_env::{EnvironmentError, Split, TaskId, World};
use seed_search::{
    FailureHandling, FoundPassage, Passage, Question, QuestionSplits, Retriever, RetrieverError,
    SearchDialect, SearchError, SearchOptions, SearchWorld,
};

/// Finds one passage that repeats the query, unless the query asks for something else; remembers what it was asked.
#[derive(Default)]
struct Echo {
    queries: Mutex<Vec<(String, usize)>>,
}

impl Retriever for Echo {
    fn retrieve(&self, queries: &[&str], count: usize) -> Result<Vec<Vec<FoundPassage>>, RetrieverError> {
        let mut asked = self.queries.lock().unwrap();
        queries
            .iter()
            .map(|&query| {
                asked.push((query.to_owned(), count));
                match query {
                    "down" => Err(RetrieverError {
                        message: "`http://x` did not answer".into(),
                    }),
                    "nothing" => Ok(Vec::new()),
                    _ => Ok(vec![FoundPassage {
                        passage: Arc::new(Passage {
                            id: "0".into(),
                            contents: format!("\"Echo\"\n{query}"),
                        }),
                        score: Some(1.0),
                    }]),
                }
            })
            .collect()
    }

    fn identity(&self) -> String {
        "echo".into()
    }
}

fn question(source: &str, text: &str, answer: &str) -> Question {
    Question {
        id: "q".into(),
        data_source: source.into(),
        text: text.into(),
        golden_answers: vec![answer.into()],
    }
}

fn world(options: SearchOptions) -> (SearchWorld, Arc<Echo>) {
    let echo = Arc::new(Echo::default());
    let splits = QuestionSplits::new([(
        Split::Train,
        vec![
            question("nq", "Who?", "Ada Lovelace"),
            question("popqa", "Where?", "Paris"),
        ],
    )]);
    (
        SearchWorld::new(
            "search-qa",
            splits,
            Arc::clone(&echo) as Arc<dyn Retriever>,
            options,
        ),
        echo,
    )
}

/// Plays actions and writes down what comes of each.
fn play(options: SearchOptions, actions: &[&str]) -> String {
    let (world, echo) = world(options);
    let mut environment = world.environment();
    let first = environment
        .reset(&TaskId::new("search-qa/train/000000"), 0)
        .unwrap();
    let mut text = format!("{}\n", first.text);
    for action in actions {
        let line = match environment.step(action) {
            Ok(transition) => format!(
                "{action:?} -> {:?} reward {}{}{}{}",
                transition.observation.text,
                transition.reward,
                if transition.terminated { " terminated" } else { "" },
                if transition.truncated { " truncated" } else { "" },
                if transition.won { " won" } else { "" },
            ),
            Err(error) => format!("{action:?} -> {error}"),
        };
        text.push_str(&line);
        text.push('\n');
    }
    format!("{text}asked: {:?}", echo.queries.lock().unwrap())
}

fn verl() -> SearchOptions {
    SearchOptions::new(SearchDialect::VerlAgent)
}

fn search_r1() -> SearchOptions {
    SearchOptions::new(SearchDialect::SearchR1)
}

#[test]
fn steps_of_the_verl_agent_dialect() {
    insta::assert_snapshot!(play(verl(), &["<search>first  name</search>", "", "<answer>ada lovelace.</answer>"]), @r#"
    Who?
    "<search>first  name</search>" -> "<information>{\"result\": \"Doc 1: \\\"Echo\\\"\\nfirst  name\\n\"}</information>" reward 0
    "" -> "" reward 0
    "<answer>ada lovelace.</answer>" -> "" reward 1 terminated won
    asked: [("first  name", 3)]
    "#);
    insta::assert_snapshot!(play(verl(), &["<search>nothing</search>", "<search></search>", "<answer>Grace</answer>"]), @r#"
    Who?
    "<search>nothing</search>" -> "<information>{\"result\": \"No search results found.\"}</information>" reward 0
    "<search></search>" -> "<information>{\"result\": \"Doc 1: \\\"Echo\\\"\\n\"}</information>" reward 0
    "<answer>Grace</answer>" -> "" reward 0 terminated
    asked: [("nothing", 3), ("", 3)]
    "#);
    // The last turn ends the episode and searches no more.
    insta::assert_snapshot!(play(verl(), &["", "", "", "<search>too late</search>"]), @r#"
    Who?
    "" -> "" reward 0
    "" -> "" reward 0
    "" -> "" reward 0
    "<search>too late</search>" -> "" reward 0 truncated
    asked: []
    "#);
    // An answer inside of a query ends the episode and is scored.
    insta::assert_snapshot!(play(verl(), &["<search>is it <answer>Ada Lovelace</answer>?</search>"]), @r#"
    Who?
    "<search>is it <answer>Ada Lovelace</answer>?</search>" -> "" reward 1 terminated won
    asked: []
    "#);
}

#[test]
fn steps_of_the_search_r1_dialect() {
    insta::assert_snapshot!(play(search_r1(), &["<think>so</think> <search> who </search>", "hm", "<think></think><answer>Ada Lovelace</answer>"]), @r#"
    Who?
    "<think>so</think> <search> who </search>" -> "<information>Doc 1(Title: \"Echo\") who</information>" reward 0
    "hm" -> "That was neither a search nor an answer. A query has to stand between <search> and </search>, a final answer between <answer> and </answer>. I will try once more." reward 0
    "<think></think><answer>Ada Lovelace</answer>" -> "" reward 1 terminated won
    asked: [("who", 3)]
    "#);
    // Four searches, and a last response in which none is executed.
    insta::assert_snapshot!(play(search_r1(), &["<search>1</search>", "<search>2</search>", "<search>3</search>", "<search>4</search>", "<search>5</search>"]), @r#"
    Who?
    "<search>1</search>" -> "<information>Doc 1(Title: \"Echo\") 1</information>" reward 0
    "<search>2</search>" -> "<information>Doc 1(Title: \"Echo\") 2</information>" reward 0
    "<search>3</search>" -> "<information>Doc 1(Title: \"Echo\") 3</information>" reward 0
    "<search>4</search>" -> "<information>Doc 1(Title: \"Echo\") 4</information>" reward 0
    "<search>5</search>" -> "" reward 0 truncated
    asked: [("1", 3), ("2", 3), ("3", 3), ("4", 3)]
    "#);
    // The first closed block acts, the last answer counts.
    insta::assert_snapshot!(play(search_r1(), &["<search>a <answer>Ada Lovelace</answer></search>", "?", "?", "?", "?"]), @r#"
    Who?
    "<search>a <answer>Ada Lovelace</answer></search>" -> "<information>Doc 1(Title: \"Echo\") a <answer>Ada Lovelace</answer></information>" reward 0
    "?" -> "That was neither a search nor an answer. A query has to stand between <search> and </search>, a final answer between <answer> and </answer>. I will try once more." reward 0
    "?" -> "That was neither a search nor an answer. A query has to stand between <search> and </search>, a final answer between <answer> and </answer>. I will try once more." reward 0
    "?" -> "That was neither a search nor an answer. A query has to stand between <search> and </search>, a final answer between <answer> and </answer>. I will try once more." reward 0
    "?" -> "" reward 0 truncated
    asked: [("a <answer>Ada Lovelace</answer>", 3)]
    "#);
}

#[test]
fn a_failed_search_ends_the_episode_or_is_shown() {
    insta::assert_snapshot!(play(verl(), &["<search>down</search>"]), @r#"
    Who?
    "<search>down</search>" -> task `search-qa/train/000000` failed at step 0: the search failed: `http://x` did not answer
    asked: [("down", 3)]
    "#);
    let shown = SearchOptions {
        failures: FailureHandling::Observation,
        ..verl()
    };
    insta::assert_snapshot!(play(shown, &["<search>down</search>", "<answer>Ada Lovelace</answer>"]), @r#"
    Who?
    "<search>down</search>" -> "<information>{\"result\": \"Search error: `http://x` did not answer\"}</information>" reward 0
    "<answer>Ada Lovelace</answer>" -> "" reward 1 terminated won
    asked: [("down", 3)]
    "#);
}

#[test]
fn tasks_are_numbered_and_unknown_ones_refused() {
    let (world, _) = world(verl());
    let tasks = world.tasks(Split::Train);
    assert_eq!(tasks[1].id.as_str(), "search-qa/train/000001");
    assert_eq!(tasks[1].family, "popqa");
    assert_eq!(world.question(&tasks[1].id).unwrap().text, "Where?");
    assert!(world.tasks(Split::Unseen).is_empty());
    assert_eq!((world.default_max_steps(), world.is_native()), (4, true));
    let mut environment = world.environment();
    assert!(matches!(environment.step("x"), Err(EnvironmentError::NotReset)));
    assert_eq!(environment.task_description(), "");
    for id in [
        "search-qa/train/000002",
        "search-qa/train/0",
        "search-qa/train/+00000",
        "search-qa/seen/000000",
        "search-qa/train/",
        "other/train/000000",
        "",
    ] {
        let error = environment.reset(&TaskId::new(id), 0).unwrap_err();
        assert!(matches!(error, EnvironmentError::UnknownTask { .. }), "{id}");
    }
    environment.reset(&tasks[1].id, 0).unwrap();
    assert_eq!(environment.task_description(), "Where?");
}

#[test]
fn the_digest_moves_with_everything_that_matters() {
    let digest = |source: &str, text: &str, answer: &str, options: SearchOptions| {
        let splits = QuestionSplits::new([(Split::Train, vec![question(source, text, answer)])]);
        SearchWorld::new("search-qa", splits, Arc::new(Echo::default()), options).digest()
    };
    let digests = [
        digest("nq", "Who?", "Ada", verl()),
        digest("nq", "Who?", "Bob", verl()),
        digest("nq", "Why?", "Ada", verl()),
        digest("hotpotqa", "Who?", "Ada", verl()),
        digest("nq", "Who?", "Ada", search_r1()),
        digest("nq", "Who?", "Ada", SearchOptions { top_k: 5, ..verl() }),
    ];
    for (index, left) in digests.iter().enumerate() {
        assert_eq!(left.len(), 64);
        assert!(!digests[index + 1..].contains(left), "{index}");
    }
    assert_eq!(digests[0], digest("nq", "Who?", "Ada", verl()));
}

#[test]
fn test_questions_of_sources_trained_on_are_seen_and_the_others_unseen() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(
        QuestionSplits::read(folder.path()),
        Err(SearchError::NoQuestionFiles { .. })
    ));
    let write = |name: &str, sources: &[&str]| {
        let lines: Vec<String> = sources
            .iter()
            .map(|source| format!("{{\"question\": \"{name}?\", \"golden_answers\": [\"x\"], \"data_source\": \"{source}\"}}\n"))
            .collect();
        fs_err::write(folder.path().join(name), lines.concat()).unwrap();
    };
    write("train.jsonl", &["nq", "hotpotqa"]);
    write("test.jsonl", &["popqa", "hotpotqa", "nq", "popqa"]);
    let splits = QuestionSplits::read(folder.path()).unwrap();
    let sources = |split| -> Vec<String> {
        splits
            .questions(split)
            .iter()
            .map(|question| question.data_source.clone())
            .collect()
    };
    assert_eq!(sources(Split::Train), ["nq", "hotpotqa"]);
    assert_eq!(sources(Split::Seen), ["hotpotqa", "nq"]);
    assert_eq!(sources(Split::Unseen), ["popqa", "popqa"]);
    assert!(splits.questions(Split::Development).is_empty());
}

proptest! {
    /// Whatever the actions are: the episode ends with the last turn at the latest, and reward comes only then.
    #[test]
    fn any_episode_ends_in_time(actions in proptest::collection::vec("(<search>|</search>|<answer>|</answer>|Ada Lovelace|\\PC){0,6}", 5)) {
        for options in [verl(), search_r1()] {
            let (world, _) = world(options);
            let mut environment = world.environment();
            environment.reset(&TaskId::new("search-qa/train/000000"), 0).unwrap();
            for turn in 1..=options.max_turns {
                let transition = environment.step(&actions[turn - 1]).unwrap();
                let over = transition.terminated || transition.truncated;
                prop_assert!(over || transition.reward == 0.0);
                prop_assert_eq!(transition.won, transition.reward == 1.0);
                prop_assert!(over || turn < options.max_turns);
                if over {
                    break;
                }
            }
        }
    }
}
