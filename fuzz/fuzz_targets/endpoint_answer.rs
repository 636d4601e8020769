//! What an analysis endpoint answers: a whole HTTP response, or the body of one.
#![no_main]

mod server;

use libfuzzer_sys::fuzz_target;
use seed_hindsight::{Analyser, AnalysisRequest, EndpointAnalyser, EndpointOptions};

/// Longest body read.
const LIMIT: usize = 1 << 16;

fuzz_target!(|input: (bool, &[u8])| {
    let (is_whole, bytes) = input;
    let address = server::answers(is_whole, bytes);
    let mut analyser = EndpointAnalyser::new(EndpointOptions {
        base_url: format!("http://{address}/v1"),
        model: "m".to_owned(),
        timeout_seconds: 5.0,
        attempts: 1,
        concurrency: 1,
        max_response_bytes: LIMIT as u64,
        ..EndpointOptions::default()
    })
    .unwrap();
    let answers = analyser.analyse(&[AnalysisRequest {
        id: "t".to_owned(),
        prompt: "p".to_owned(),
    }]);
    assert_eq!(answers.len(), 1);
    match &answers[0] {
        Ok(reply) => assert!(reply.text.len() <= LIMIT),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
