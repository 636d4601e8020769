//! Against what Anserini 0.21 (Lucene 9) made of a catalogue of products, where the recordings are present.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test stops at the first surprise, and a skipped one says so"
)]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;

use flate2::read::GzDecoder;
use seed_retrieval::{Bm25Index, Bm25Options, Document, TieOrder, analyse};
use serde::Deserialize;
use serde::de::DeserializeOwned;

fn folder() -> Option<PathBuf> {
    let folder = std::env::var_os("SEED_SHARED")
        .map_or_else(
            || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
            PathBuf::from,
        )
        .join("data/webshop");
    if folder.is_dir() {
        return Some(folder);
    }
    println!("skipped: `{}` is not there", folder.display());
    None
}

fn lines<T: DeserializeOwned>(name: &str) -> Option<Vec<T>> {
    let file = fs_err::File::open(folder()?.join(name)).unwrap();
    let lines = BufReader::new(GzDecoder::new(file)).lines();
    Some(
        lines
            .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
            .collect(),
    )
}

#[derive(Deserialize)]
struct Product {
    id: String,
    contents: String,
}

fn index(products: &[Product]) -> Bm25Index {
    let documents: Vec<Document> = products
        .iter()
        .map(|product| Document {
            id: &product.id,
            text: &product.contents,
        })
        .collect();
    let options = Bm25Options {
        ties: TieOrder::Id,
        ..Bm25Options::default()
    };
    Bm25Index::build(&documents, options).unwrap()
}

#[test]
fn texts_are_analysed_as_recorded() {
    #[derive(Deserialize)]
    struct Analysed {
        text: String,
        tokens: Vec<String>,
    }
    let Some(texts) = lines::<Analysed>("analyzer_golden.jsonl.gz") else {
        return;
    };
    assert_eq!(texts.len(), 60);
    for Analysed { text, tokens } in texts {
        assert_eq!(analyse(&text), tokens, "{text}");
    }
}

#[test]
fn documents_have_the_recorded_lengths() {
    #[derive(Deserialize)]
    struct Length {
        id: String,
        n: u32,
    }
    let Some(products) = lines::<Product>("products_1k.documents.jsonl.gz") else {
        return;
    };
    let path = folder().unwrap().join("bm25_doc_lengths.json");
    let lengths: Vec<Length> = serde_json::from_reader(fs_err::File::open(path).unwrap()).unwrap();
    let index = index(&products);
    assert_eq!(lengths.len(), 1_000);
    for (position, Length { id, n }) in lengths.iter().enumerate() {
        assert_eq!(index.id(position), Some(id.as_str()));
        assert_eq!(index.document_length(position), Some(*n), "{id}");
    }
}

#[test]
fn queries_are_ranked_as_recorded() {
    #[derive(Deserialize)]
    struct Ranked {
        query: String,
        analyzed: Vec<String>,
        hits: Vec<(String, f32)>,
    }
    let Some(products) = lines::<Product>("products_1k.documents.jsonl.gz") else {
        return;
    };
    let rankings = lines::<Ranked>("bm25_golden.jsonl.gz").unwrap();
    let index = index(&products);
    assert_eq!(rankings.len(), 298);
    for Ranked {
        query,
        analyzed,
        hits,
    } in rankings
    {
        assert_eq!(analyse(&query), analyzed, "{query}");
        let found = index.search(&query, 50);
        let ids: Vec<&str> = found.iter().map(|hit| index.id(hit.document).unwrap()).collect();
        let expected: Vec<&str> = hits.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(ids, expected, "{query}");
        for (hit, (id, score)) in found.iter().zip(&hits) {
            // Recorded with four digits; of documents with one score each later one is lowered by a millionth.
            assert!(
                (hit.score - score).abs() <= 1.5e-4,
                "{query}: {id} has {} and not {score}",
                hit.score
            );
        }
    }
}
