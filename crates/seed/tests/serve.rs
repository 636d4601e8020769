//! `seed serve` as a process: where it says it listens, what it answers, and how it ends.

mod common;

use std::net::TcpListener;
use std::process::{Child, Command};

use common::{exchange, failure, listening, seed};
use serde_json::{Value, json};

/// The server on the built-in policy, and the line it prints when it listens.
fn start(arguments: &[&str]) -> (Child, String) {
    listening(&[&["serve", "embedded:household-tiny"], arguments].concat())
}

/// The part of a served address that names machine and port.
fn host(url: &str) -> &str {
    url.trim_start_matches("http://").trim_end_matches("/v1")
}

#[test]
fn a_served_policy_answers_and_a_signal_ends_it() {
    let (server, url) = start(&[]);
    let body = json!({"model": "household-tiny", "prompt": "go to", "max_tokens": 3, "seed": 1});
    let answer = exchange(host(&url), "POST", "/v1/completions", &body.to_string());
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    let (_, answer) = answer.split_once("\r\n\r\n").unwrap();
    let answer: Value = serde_json::from_str(answer).unwrap();
    assert_eq!(answer["usage"]["completion_tokens"], 3);
    let status = Command::new("kill")
        .args(["-TERM", &server.id().to_string()])
        .status();
    assert!(status.unwrap().success());
    let ended = server.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0));
    insta::assert_snapshot!(
        String::from_utf8(ended.stderr).unwrap().trim_end(),
        @"household-tiny (llama), context 2048 tokens; 64 sequences at a time hold 640.0 MiB of keys and values at most"
    );
}

#[test]
fn programs_read_where_it_listens() {
    let (mut server, line) = start(&["--json", "--name", "policy"]);
    let event: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(event["event"], "listening");
    assert_eq!(event["model"], "policy");
    let models = exchange(host(event["url"].as_str().unwrap()), "GET", "/v1/models", "");
    assert!(models.contains(r#""id":"policy""#), "{models}");
    server.kill().unwrap();
    server.wait().unwrap();
}

#[test]
fn what_keeps_a_server_from_starting() {
    let open = seed(&["serve", "embedded:household-tiny", "--address", "0.0.0.0:0"]);
    insta::assert_snapshot!(failure(&open), @r"
    exit code 2
    error: `0.0.0.0:0` can be reached from other machines: name an environment variable with a token, or listen on a loopback address such as `127.0.0.1`
    ");
    let missing = seed(&["serve", "/no/such/model"]);
    insta::assert_snapshot!(failure(&missing), @r"
    exit code 3
    error: `/no/such/model/config.json` is missing: name the directory of a model in the Hugging Face layout
    ");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let passages = folder.path().join("passages.jsonl");
    fs_err::write(&passages, "{\"contents\": \"\\\"Tea\\\"\\nA drink.\"}\n").unwrap();
    for words in [
        &["serve", "embedded:household-tiny"][..],
        &["retrieve", "serve", passages.to_str().unwrap()],
    ] {
        let ended = seed(&[words, &["--address", &address]].concat());
        assert_eq!(ended.code, Some(2), "{}", ended.errors);
        assert!(
            ended.errors.contains(&format!("listen on `{address}`")),
            "{}",
            ended.errors
        );
    }
}
