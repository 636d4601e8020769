//! A policy's response and a passage in the search protocol, both dialects, played as an episode.
#![no_main]

use std::sync::{Arc, OnceLock};

use libfuzzer_sys::fuzz_target;
use seed_env::{Split, World};
use seed_search::{
    FoundPassage, Passage, Question, QuestionSplits, Retriever, RetrieverError, SearchDialect, SearchOptions,
    SearchWorld, exact_match, extract_answer, information_block, project_response,
};

/// Finds the query.
struct Echo;

impl Retriever for Echo {
    fn retrieve(&self, queries: &[&str], _: usize) -> Result<Vec<Vec<FoundPassage>>, RetrieverError> {
        let found = |query: &&str| {
            let passage = Passage { id: String::new(), contents: (*query).to_owned() };
            vec![FoundPassage { passage: Arc::new(passage), score: None }]
        };
        Ok(queries.iter().map(found).collect())
    }

    fn identity(&self) -> String {
        String::new()
    }
}

fn worlds() -> &'static [SearchWorld; 2] {
    static WORLDS: OnceLock<[SearchWorld; 2]> = OnceLock::new();
    WORLDS.get_or_init(|| {
        [SearchDialect::VerlAgent, SearchDialect::SearchR1].map(|dialect| {
            let question = Question {
                id: "q".to_owned(),
                data_source: "s".to_owned(),
                text: "why?".to_owned(),
                golden_answers: vec!["so".to_owned()],
            };
            let splits = QuestionSplits::new([(Split::Train, vec![question])]);
            SearchWorld::new("w", splits, Arc::new(Echo), SearchOptions::new(dialect))
        })
    })
}

fuzz_target!(|response: &str| {
    for world in worlds() {
        let dialect = world.options().dialect;
        let projection = project_response(response, dialect);
        assert!(projection.action.len() <= response.len());
        assert!(!projection.valid || projection.action_span.is_some());
        if let Some(span) = projection.action_span {
            assert!(projection.action.contains(&response[span]));
        }
        let mut environment = world.environment();
        environment.reset(&world.tasks(Split::Train)[0].id, 0).unwrap();
        for turn in 1..=world.options().max_turns {
            let transition = environment.step(&projection.action).unwrap();
            assert_eq!(transition.won, transition.reward == 1.0);
            let over = transition.terminated || transition.truncated;
            assert!(over || turn < world.options().max_turns);
            if over {
                break;
            }
        }
        let block = information_block(&[response], dialect);
        assert!(block.starts_with("<information>") && block.ends_with("</information>"));
    }
    if let Some(answer) = extract_answer(response) {
        assert!(exact_match(answer, &[answer]));
    }
});
