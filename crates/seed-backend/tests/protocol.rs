//! The calls that go to an engine, against a stub that answers with recorded exchanges.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests fail as tests do")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::thread::JoinHandle;

use seed_backend::{BackendError, BackendOptions, Client, Dialect, PublishedWeights};
use serde_json::{Value, json};

/// A stub that answers one connection after the other, and returns the paths and bodies it got.
fn stub(answers: Vec<(u16, Value)>) -> (String, JoinHandle<Vec<(String, Value)>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let thread = std::thread::spawn(move || {
        let exchange = |(status, answer): (u16, Value)| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            let path = line.split(' ').nth(1).unwrap().to_owned();
            let mut length = 0;
            loop {
                let mut header = String::new();
                reader.read_line(&mut header).unwrap();
                let header = header.trim().to_ascii_lowercase();
                if header.is_empty() {
                    break;
                }
                if let Some(value) = header.strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let answer = answer.to_string();
            write!(
                stream,
                "HTTP/1.1 {status} x\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{answer}",
                answer.len()
            )
            .unwrap();
            (path, serde_json::from_slice(&body).unwrap())
        };
        answers.into_iter().map(exchange).collect()
    });
    (url, thread)
}

fn client(url: &str, dialect: Dialect) -> Client {
    let options = BackendOptions {
        attempts: 2,
        first_delay_milliseconds: 1,
        ..BackendOptions::new(url, dialect, "policy")
    };
    Client::new(options).unwrap()
}

#[test]
fn sglang_reads_a_model_from_disk() {
    let taken =
        json!({"success": true, "message": "Succeeded to update model weights.", "num_paused_requests": 0});
    // The first attempt meets a busy engine.
    let (url, calls) = stub(vec![(503, json!({})), (200, taken)]);
    let published = client(&url, Dialect::Sglang)
        .publish_model(Path::new("/weights/step-2"), "step-2")
        .unwrap();
    let version = "step-2".to_owned();
    assert_eq!(published, PublishedWeights::Model { version });
    let calls = calls.join().unwrap();
    assert_eq!(calls[0], calls[1]);
    assert_eq!(calls[0].0, "/update_weights_from_disk");
    assert_eq!(
        calls[0].1,
        json!({
            "model_path": "/weights/step-2", "weight_version": "step-2", "flush_cache": true,
            "abort_all_requests": false,
        })
    );
}

#[test]
fn an_engine_that_does_not_take_the_weights_is_an_error() {
    let refused = json!({"success": false, "message": "no such folder"});
    let (url, _calls) = stub(vec![(200, refused)]);
    let error = client(&url, Dialect::Sglang)
        .publish_model(Path::new("/weights"), "1")
        .unwrap_err();
    assert!(error.to_string().contains("no such folder"), "{error}");
    let error = client("http://127.0.0.1:1", Dialect::Vllm)
        .publish_model(Path::new("/weights"), "1")
        .unwrap_err();
    assert!(matches!(error, BackendError::Unsupported { .. }));
}

#[test]
fn adapters_get_a_new_name_and_the_old_one_goes() {
    for (dialect, prefix) in [(Dialect::Vllm, "/v1"), (Dialect::Sglang, "")] {
        let (url, calls) = stub(vec![(200, json!("Success")); 3]);
        let client = client(&url, dialect);
        let first = client
            .publish_adapter(Path::new("/adapters/1"), "policy-1", &PublishedWeights::Initial)
            .unwrap();
        let second = client
            .publish_adapter(Path::new("/adapters/2"), "policy-2", &first)
            .unwrap();
        let name = "policy-2".to_owned();
        assert_eq!(second, PublishedWeights::Adapter { name });
        let (load, unload) = (
            format!("{prefix}/load_lora_adapter"),
            format!("{prefix}/unload_lora_adapter"),
        );
        assert_eq!(
            calls.join().unwrap(),
            [
                (
                    load.clone(),
                    json!({"lora_name": "policy-1", "lora_path": "/adapters/1"})
                ),
                (load, json!({"lora_name": "policy-2", "lora_path": "/adapters/2"})),
                (unload, json!({"lora_name": "policy-1"})),
            ]
        );
    }
}

#[test]
fn calls_end_after_their_attempts() {
    let publish = |url: &str| {
        client(url, Dialect::Vllm)
            .publish_adapter(Path::new("/a"), "a", &PublishedWeights::Initial)
            .unwrap_err()
    };
    let (url, calls) = stub(vec![(500, json!({"error": "out of memory"})); 2]);
    assert_eq!(
        publish(&url),
        BackendError::Status {
            url: format!("{url}/v1/load_lora_adapter"),
            status: 500,
            attempts: 2,
            excerpt: r#"{"error":"out of memory"}"#.to_owned(),
        }
    );
    assert_eq!(calls.join().unwrap().len(), 2);
    // What the engine refuses is not asked again.
    let (url, calls) = stub(vec![(404, json!({}))]);
    assert!(matches!(publish(&url), BackendError::Status { attempts: 1, .. }));
    calls.join().unwrap();
    for url in ["http://user:word@host", "nothing", "http://host/?a"] {
        let options = BackendOptions::new(url, Dialect::Vllm, "policy");
        let error = Client::new(options).unwrap_err().to_string();
        assert!(!error.contains("word@"), "{error}");
    }
}
