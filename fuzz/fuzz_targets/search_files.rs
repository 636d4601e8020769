//! Files of questions (lines of JSON, gzip or parquet) and of passages.
#![no_main]

use std::sync::Once;

use libfuzzer_sys::fuzz_target;
use seed_search::{Passages, read_questions};

/// The library behind parquet panics on some files, which the reader catches. The fuzzer's own hook would end the process
/// at the panic itself; without it, only panics that reach the fuzzer count.
fn let_caught_panics_pass() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| std::panic::set_hook(Box::new(|_| {})));
}

fuzz_target!(|input: (u8, &[u8])| {
    let_caught_panics_pass();
    let (choice, bytes) = input;
    let folder = tempfile::tempdir().unwrap();
    let name = ["train.jsonl", "train.jsonl.gz", "train.parquet"][usize::from(choice % 3)];
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    match read_questions(&path) {
        Ok(questions) => {
            for question in &questions {
                assert!(question.text.ends_with('?') && !question.golden_answers.is_empty());
                assert!(!question.data_source.is_empty());
            }
        }
        Err(error) => assert!(error.to_string().contains("train.")),
    }
    if choice % 3 != 2 {
        let mut last = 0;
        match Passages::read(&path, &mut |count| last = count) {
            Ok(passages) => assert!(passages.len() == last && last > 0),
            Err(error) => assert!(error.to_string().contains("train.")),
        }
    }
});
