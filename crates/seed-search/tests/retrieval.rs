//! Retrieval on real passages and questions, and a dense index's files.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests fail as tests do")]
#![expect(clippy::print_stdout, reason = "a skipped test says so")]

mod quality;

use std::sync::Arc;

use quality::{quality, questions, recorded};
use seed_search::{
    Accents, Bm25Retriever, DenseRetriever, EncoderOptions, Passage, Passages, Retriever, SearchError,
    SentenceEncoder,
};

#[test]
fn bm25_finds_what_it_was_recorded_to_find() {
    let (Some(questions), Some(corpus)) = (questions(), recorded("corpus.jsonl.gz")) else {
        return;
    };
    assert_eq!(questions.len(), 231);
    let mut reports = Vec::new();
    let passages = Passages::read(&corpus, &mut |count| reports.push(count)).unwrap();
    assert_eq!(
        (passages.len(), reports.len(), reports.last()),
        (9002, 10, Some(&9002))
    );
    let passages = Arc::new(passages);
    // Pinned: Lucene's analysis and Anserini's constants leave no room.
    for (accents, musique) in [
        (Accents::Keep, [0.428_333, 0.75, 0.34]),
        (Accents::Fold, [0.443_333, 0.78, 0.34]),
    ] {
        let retriever = Bm25Retriever::new(Arc::clone(&passages), accents, &mut |_| {}).unwrap();
        let quality = quality(&retriever, &questions);
        for (source, pinned) in [
            ("hotpotqa", [0.67, 0.94, 0.55]),
            ("musique", musique),
            ("2wikimultihopqa", [0.908_602, 1.0, 0.870_968]),
        ] {
            for (value, pinned) in quality[source].iter().zip(pinned) {
                assert!(
                    (value - pinned).abs() < 1e-6,
                    "{accents:?} {source}: {:?}",
                    quality[source]
                );
            }
        }
    }
}

#[test]
fn passages_of_other_forms_are_read_and_wrong_ones_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("passages.jsonl");
    let read = |text: &str| {
        fs_err::write(&path, text).unwrap();
        Passages::read(&path, &mut |_| {})
    };
    let passages =
        read("{\"contents\": \"\\\"T\\\"\\nx\"}\n{\"id\": 9, \"title\": \"T\", \"text\": \"x\"}\n").unwrap();
    let ids: Vec<&str> = passages.iter().map(|passage| passage.id.as_str()).collect();
    assert_eq!(ids, ["0", "9"]);
    assert!(passages.iter().all(|passage| passage.contents == "\"T\"\nx"));
    let error = read("{\"contents\": \"x\"}\n{\"title\": \"T\"}\n").unwrap_err();
    assert!(matches!(error, SearchError::Passage { record: 2, .. }), "{error}");
    assert!(matches!(read(""), Err(SearchError::NoPassages { .. })));
    assert!(read("nonsense").unwrap_err().to_string().contains("line 1"));
    // Same texts, same digest; another order is another collection.
    let digest = |text: &str| read(text).unwrap().digest().to_owned();
    let (first, second) = (
        "{\"contents\": \"x\", \"id\": \"a\"}\n",
        "{\"contents\": \"y\", \"id\": \"b\"}\n",
    );
    assert_eq!(digest(first), digest(&first.replace(", ", ",  ")));
    assert_ne!(
        digest(&[first, second].concat()),
        digest(&[second, first].concat())
    );
}

/// Needs a sentence encoder: index, save, load, find, and refuse what does not fit.
#[test]
fn a_dense_index_returns_from_its_files() {
    let Some(folder) = std::env::var_os("SEED_MINILM") else {
        println!("skipped: `SEED_MINILM` names no folder with all-MiniLM-L6-v2");
        return;
    };
    let open = |options| Arc::new(SentenceEncoder::open(folder.as_ref(), options).unwrap());
    let encoder = open(EncoderOptions::default());
    let texts = [
        "\"Tea\"\nA hot drink made of leaves.",
        "\"Rome\"\nThe capital of Italy.",
        "\"Violin\"\nA string instrument.",
    ];
    let collection = |texts: &[&str]| {
        let passage = |(index, text): (usize, &&str)| Passage {
            id: index.to_string(),
            contents: (*text).to_owned(),
        };
        Arc::new(Passages::new(texts.iter().enumerate().map(passage)))
    };
    let passages = collection(&texts);
    let mut done = 0;
    let made = DenseRetriever::encode(Arc::clone(&passages), Arc::clone(&encoder), &mut |count| {
        done = count;
    })
    .unwrap();
    assert_eq!(done, 3);
    let scratch = tempfile::tempdir().unwrap();
    let index = scratch.path().join("index");
    made.save(&index).unwrap();
    made.save(&index).unwrap();
    let load = |passages: &Arc<Passages>, encoder: &Arc<SentenceEncoder>| {
        DenseRetriever::load(&index, Arc::clone(passages), Arc::clone(encoder))
    };
    let loaded = load(&passages, &encoder).unwrap();
    let queries = ["What do people drink?", "Which city governs Italy?", "music"];
    let found = loaded.retrieve(&queries, 2).unwrap();
    assert_eq!(found, made.retrieve(&queries, 2).unwrap());
    let best: Vec<&str> = found.iter().map(|list| list[0].passage.id.as_str()).collect();
    assert_eq!(best, ["0", "1", "2"]);
    assert_eq!(loaded.identity(), made.identity());
    let refused = |result: Result<DenseRetriever, SearchError>, reason: &str| {
        let error = result.unwrap_err();
        assert!(matches!(error, SearchError::Index { .. }), "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    };
    refused(load(&collection(&texts[..2]), &encoder), "other passages");
    refused(
        load(&collection(&[texts[0], texts[1], "other"]), &encoder),
        "other passages",
    );
    let prefixed = open(EncoderOptions {
        passage_prefix: "passage: ".into(),
        ..EncoderOptions::default()
    });
    refused(load(&passages, &prefixed), "another encoder");
    let vectors = index.join("vectors.f32");
    let whole = fs_err::read(&vectors).unwrap();
    let mut flipped = whole.clone();
    flipped[100] ^= 1;
    fs_err::write(&vectors, flipped).unwrap();
    refused(load(&passages, &encoder), "the digest does not match");
    fs_err::write(&vectors, &whole[..whole.len() - 1]).unwrap();
    refused(load(&passages, &encoder), "bytes instead of");
    fs_err::write(index.join("index.json"), "{").unwrap();
    refused(load(&passages, &encoder), "damaged");
    fs_err::remove_file(index.join("index.json")).unwrap();
    refused(load(&passages, &encoder), "has no `index.json`");
}
