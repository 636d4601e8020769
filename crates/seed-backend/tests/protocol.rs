//! The calls that go to an engine, against a stub that answers with recorded exchanges.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests fail as tests do")]

mod support;

use std::path::Path;

use seed_backend::{BackendError, BackendOptions, Client, Dialect, PublishedWeights};
use serde_json::json;
use support::{Answer, stub};

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
    let (url, calls) = stub(vec![Answer::Body(503, "{}".to_owned()), Answer::json(&taken)]);
    let client = client(&url, Dialect::Sglang);
    let published = client
        .publish_model(Path::new("/weights/step-2"), "step-2", "0123")
        .unwrap();
    assert_eq!(client.retries(), 1);
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
    let (url, _calls) = stub(vec![Answer::json(&refused)]);
    let error = client(&url, Dialect::Sglang)
        .publish_model(Path::new("/weights"), "1", "0123")
        .unwrap_err();
    assert!(error.to_string().contains("no such folder"), "{error}");
    let error = client("http://127.0.0.1:1", Dialect::Vllm)
        .publish_model(Path::new("/weights"), "1", "0123")
        .unwrap_err();
    assert!(matches!(error, BackendError::Unsupported { .. }));
}

#[test]
fn an_engine_that_read_other_weights_is_an_error() {
    let publish = |dialect, digest: serde_json::Value| {
        let taken = json!({"success": true, "message": "", "weights_digest": digest});
        let (url, _calls) = stub(vec![Answer::json(&taken)]);
        client(&url, dialect).publish_model(Path::new("/weights"), "1", "0123")
    };
    assert!(publish(Dialect::Seed, json!("0123")).is_ok());
    assert_eq!(
        publish(Dialect::Seed, json!("4567")).unwrap_err(),
        BackendError::Digest {
            folder: "/weights".to_owned(),
            expected: "0123".to_owned(),
            found: "4567".to_owned(),
        }
    );
    let silent = publish(Dialect::Seed, json!(null)).unwrap_err().to_string();
    assert!(silent.contains("does not say which weights it read"), "{silent}");
    // SGLang has no digest; answers name the version.
    assert!(publish(Dialect::Sglang, json!(null)).is_ok());
}

/// Known elsewhere as miles#1087: merged weights were synced, then the adapter was loaded over them.
#[test]
fn an_adapter_is_not_loaded_over_merged_weights() {
    let taken = json!({"success": true, "message": ""});
    let (url, calls) = stub(vec![Answer::json(&taken)]);
    let client = client(&url, Dialect::Sglang);
    let merged = client
        .publish_model(Path::new("/weights/1"), "seed-model-000001-00", "0123")
        .unwrap();
    let error = client
        .publish_adapter(Path::new("/adapters/2"), "seed-adapter-000002-00", &merged)
        .unwrap_err();
    assert_eq!(
        error,
        BackendError::AppliedTwice {
            weights: "seed-model-000001-00".to_owned()
        }
    );
    assert!(error.to_string().contains("applied twice"), "{error}");
    // The engine was not asked to load it.
    assert_eq!(calls.join().unwrap().len(), 1);
}

#[test]
fn adapters_get_a_new_name_and_the_old_one_goes() {
    for (dialect, prefix) in [(Dialect::Vllm, "/v1"), (Dialect::Sglang, "")] {
        let (url, calls) = stub(vec![Answer::json(&json!("Success")); 3]);
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

/// The answer to a first attempt was lost, or the engine was started anew: neither is a failure.
#[test]
fn adapters_that_are_there_or_gone_already_are_as_they_should_be() {
    let status = |status, text: &str| Answer::Body(status, json!({"message": text}).to_string());
    let (url, calls) = stub(vec![
        status(400, "The lora adapter 'policy-2' has already been loaded."),
        status(404, "The lora adapter 'policy-1' cannot be found."),
    ]);
    let before = PublishedWeights::Adapter {
        name: "policy-1".to_owned(),
    };
    let name = "policy-2".to_owned();
    assert_eq!(
        client(&url, Dialect::Vllm).publish_adapter(Path::new("/adapters/2"), "policy-2", &before),
        Ok(PublishedWeights::Adapter { name })
    );
    assert_eq!(calls.join().unwrap().len(), 2);
    let (url, _calls) = stub(vec![status(400, "No such folder: /adapters/2")]);
    let refused = client(&url, Dialect::Vllm).publish_adapter(Path::new("/adapters/2"), "policy-2", &before);
    assert!(matches!(refused, Err(BackendError::Status { status: 400, .. })));
}

#[test]
fn calls_end_after_their_attempts() {
    let publish = |url: &str| {
        client(url, Dialect::Vllm)
            .publish_adapter(Path::new("/a"), "a", &PublishedWeights::Initial)
            .unwrap_err()
    };
    let (url, calls) = stub(vec![
        Answer::Body(500, r#"{"error":"out of memory"}"#.to_owned());
        2
    ]);
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
    let (url, calls) = stub(vec![Answer::Body(404, "{}".to_owned())]);
    assert!(matches!(publish(&url), BackendError::Status { attempts: 1, .. }));
    calls.join().unwrap();
    for url in ["http://user:word@host", "nothing", "http://host/?a"] {
        let options = BackendOptions::new(url, Dialect::Vllm, "policy");
        let error = Client::new(options).unwrap_err().to_string();
        assert!(!error.contains("word@"), "{error}");
    }
}
