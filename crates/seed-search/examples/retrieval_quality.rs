//! How often BM25 and a sentence encoder find what supports an answer, on the recorded questions and passages.
//!
//! `SEED_SHARED=… cargo run --release -p seed-search --example retrieval_quality [ENCODER FOLDER]`

#![expect(clippy::print_stdout, reason = "a measurement prints")]
#![expect(clippy::unwrap_used, reason = "a measurement stops where it cannot go on")]

#[path = "../tests/quality/mod.rs"]
mod quality;

use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use quality::{Supported, quality, questions, recorded};
use seed_search::{
    Accents, Bm25Retriever, DenseRetriever, EncoderOptions, Passages, Retriever, SentenceEncoder,
};

fn report(name: &str, retriever: &dyn Retriever, questions: &[Supported]) {
    let started = Instant::now();
    for (source, [share, any, answer]) in quality(retriever, questions) {
        println!("{name:8} {source:16} support {share:.3}  any {any:.2}  answer {answer:.2}");
    }
    let each = started.elapsed().as_secs_f64() / questions.len() as f64;
    println!("{name:8} {:.1} ms a query", each * 1e3);
}

fn main() {
    let (Some(questions), Some(corpus)) = (questions(), recorded("corpus.jsonl.gz")) else {
        return;
    };
    let passages = Arc::new(Passages::read(&corpus, &mut |_| {}).unwrap());
    for (name, accents) in [("bm25", Accents::Fold), ("accents", Accents::Keep)] {
        let started = Instant::now();
        let bm25 = Bm25Retriever::new(Arc::clone(&passages), accents, &mut |_| {}).unwrap();
        println!(
            "{name:8} {} passages in {:.1} s",
            passages.len(),
            started.elapsed().as_secs_f64()
        );
        report(name, &bm25, &questions);
    }
    let Some(folder) = std::env::args_os().nth(1) else {
        return;
    };
    let encoder = Arc::new(SentenceEncoder::open(folder.as_ref(), EncoderOptions::default()).unwrap());
    let started = Instant::now();
    let dense = DenseRetriever::encode(Arc::clone(&passages), encoder, &mut |done| {
        print!("\r{done}");
        let _ = std::io::stdout().flush();
    })
    .unwrap();
    println!(
        "\rdense    {} passages in {:.1} s",
        passages.len(),
        started.elapsed().as_secs_f64()
    );
    report("dense", &dense, &questions);
}
