//! How often a retriever finds what supports an answer, on recorded questions.

#[path = "../common/mod.rs"]
mod common;

use std::collections::BTreeMap;

use seed_search::{Retriever, normalise_answer};
use serde::Deserialize;

pub(crate) use common::recorded;

/// A question with the passages that support its answer.
#[derive(Deserialize)]
pub(crate) struct Supported {
    data_source: String,
    question: String,
    golden_answers: Vec<String>,
    gold_doc_ids: Vec<String>,
    context_doc_ids: Vec<String>,
}

/// By source: mean share of the supporting passages among the first three, share of questions with at least one of
/// them, share with an answer's words in them.
pub(crate) fn quality(retriever: &dyn Retriever, questions: &[Supported]) -> BTreeMap<String, [f64; 3]> {
    let mut sums: BTreeMap<String, (f64, [f64; 3])> = BTreeMap::new();
    for question in questions {
        let found = retriever.retrieve(&[&question.question], 3).unwrap().remove(0);
        let support = if question.gold_doc_ids.is_empty() {
            &question.context_doc_ids
        } else {
            &question.gold_doc_ids
        };
        let hits = support
            .iter()
            .filter(|id| found.iter().any(|found| found.passage.id == **id))
            .count();
        let text: Vec<String> = found
            .iter()
            .map(|found| normalise_answer(&found.passage.contents))
            .collect();
        let answered = question.golden_answers.iter().any(|answer| {
            let answer = normalise_answer(answer);
            text.iter().any(|text| text.contains(&answer))
        });
        let entry = sums.entry(question.data_source.clone()).or_default();
        entry.0 += 1.0;
        entry.1[0] += hits as f64 / support.len() as f64;
        entry.1[1] += f64::from(u8::from(hits > 0));
        entry.1[2] += f64::from(u8::from(answered));
    }
    sums.into_iter()
        .map(|(source, (count, sums))| (source, sums.map(|sum| sum / count)))
        .collect()
}

/// The recorded questions with their supporting passages.
pub(crate) fn questions() -> Option<Vec<Supported>> {
    let text = fs_err::read_to_string(recorded("questions.jsonl")?).unwrap();
    Some(
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect(),
    )
}
