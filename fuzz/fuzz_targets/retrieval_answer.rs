//! What a retrieval server answers: a whole HTTP response, or the body of one.
#![no_main]

mod server;

use libfuzzer_sys::fuzz_target;
use seed_search::{HttpOptions, HttpRetriever, QueryPayload, Retriever};

/// Longest body read.
const LIMIT: u64 = 1 << 16;

fuzz_target!(|input: (bool, &[u8])| {
    let (is_whole, bytes) = input;
    let address = server::answers(is_whole, bytes);
    let retriever = HttpRetriever::new(HttpOptions {
        payload: QueryPayload::Batch,
        timeout_seconds: 5.0,
        attempts: 1,
        max_response_bytes: LIMIT,
        ..HttpOptions::new(vec![format!("http://{address}/retrieve")])
    })
    .unwrap();
    match retriever.retrieve(&["who?", "where?"], 3) {
        Ok(lists) => assert_eq!(lists.len(), 2),
        Err(error) => assert!(error.message.contains("attempt 1 of 1")),
    }
});
