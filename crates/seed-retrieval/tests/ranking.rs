//! What holds of rankings whatever the documents.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use proptest::prelude::*;
use seed_retrieval::{Bm25Builder, Bm25Index, Bm25Options, Document, Hit, RetrievalError, TieOrder, analyse};

fn documents<'a>(texts: &'a [String], ids: &'a [String]) -> Vec<Document<'a>> {
    texts
        .iter()
        .zip(ids)
        .map(|(text, id)| Document { id, text })
        .collect()
}

fn build(texts: &[&str], ties: TieOrder) -> Bm25Index {
    let ids = ["c", "b", "a", "d"];
    let documents: Vec<Document> = texts
        .iter()
        .zip(ids)
        .map(|(text, id)| Document { id, text })
        .collect();
    Bm25Index::build(
        &documents,
        Bm25Options {
            ties,
            ..Bm25Options::default()
        },
    )
    .unwrap()
}

fn positions(hits: &[Hit]) -> Vec<usize> {
    hits.iter().map(|hit| hit.document).collect()
}

/// By hand: N = 2, df = 1, idf = ln 2; lengths 2 and 4, so avgdl = 3.
#[test]
fn a_score_is_the_formulas() {
    let index = build(&["red shoe", "red red blue coat"], TieOrder::Position);
    let hits = index.search("blue", 10);
    let expected = 2.0_f64.ln() / (1.0 + 0.9 * (0.6 + 0.4 * 4.0 / 3.0));
    assert_eq!(positions(&hits), [1]);
    assert!((f64::from(hits[0].score) - expected).abs() < 1e-6);
    let twice = index.search("blue blues", 10);
    assert!((f64::from(twice[0].score) - 2.0 * expected).abs() < 1e-6);
}

#[test]
fn equal_scores_come_in_the_order_asked_for() {
    let texts = ["tea pot", "tea cup", "tea can", "milk jug"];
    assert_eq!(
        positions(&build(&texts, TieOrder::Position).search("tea", 9)),
        [0, 1, 2]
    );
    assert_eq!(positions(&build(&texts, TieOrder::Id).search("tea", 2)), [2, 1]);
}

#[test]
fn nothing_is_found_where_nothing_is() {
    let index = build(&["tea pot", "the of"], TieOrder::Position);
    assert_eq!(index.search("the", 5), []);
    assert_eq!(index.search("coffee", 5), []);
    assert_eq!(index.search("tea", 0), []);
    assert_eq!(index.document_length(1), Some(0));
    let empty = build(&[], TieOrder::Id);
    assert!(empty.is_empty());
    assert_eq!(empty.search("tea", 5), []);
}

#[test]
fn constants_out_of_range_are_refused() {
    let with = |k1, b| {
        Bm25Builder::new(Bm25Options {
            k1,
            b,
            ..Bm25Options::default()
        })
        .map(drop)
    };
    assert_eq!(with(f32::NAN, 0.4), Err(RetrievalError::K1("NaN".into())));
    assert_eq!(with(-0.5, 0.4), Err(RetrievalError::K1("-0.5".into())));
    assert_eq!(with(0.9, 1.5), Err(RetrievalError::B("1.5".into())));
    assert_eq!(with(0.0, 1.0), Ok(()));
}

proptest! {
    #[test]
    fn a_ranking_is_a_prefix_of_the_whole_and_parts_change_nothing(
        texts in prop::collection::vec("[abc]( [abcde]{1,2}){0,6}", 1..12),
        query in "[abcde]( [abc]){0,3}",
        count in 0usize..14,
        cut in 0usize..12,
    ) {
        let ids: Vec<String> = (0..texts.len()).map(|index| format!("{}", (index * 7) % 5)).collect();
        let documents = documents(&texts, &ids);
        let options = Bm25Options { ties: TieOrder::Id, ..Bm25Options::default() };
        let whole = Bm25Index::build(&documents, options).unwrap();
        let mut builder = Bm25Builder::new(options).unwrap();
        let cut = cut.min(documents.len());
        builder.add(&documents[..cut]).unwrap();
        builder.add(&documents[cut..]).unwrap();
        let all = whole.search(&query, usize::MAX);
        prop_assert_eq!(&builder.finish().search(&query, usize::MAX), &all);
        prop_assert_eq!(whole.search(&query, count), &all[..count.min(all.len())]);
        let terms = analyse(&query);
        for (position, text) in texts.iter().enumerate() {
            let holds = analyse(text).iter().any(|term| terms.contains(term));
            prop_assert_eq!(holds, all.iter().any(|hit| hit.document == position));
        }
        for pair in all.windows(2) {
            prop_assert!(pair[0].score >= pair[1].score);
            let key = |hit: &Hit| (ids[hit.document].clone(), hit.document);
            prop_assert!(pair[0].score > pair[1].score || key(&pair[0]) < key(&pair[1]));
        }
    }
}
