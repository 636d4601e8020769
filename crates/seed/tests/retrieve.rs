//! `seed retrieve`, as a person or another program runs it.

mod common;

use std::process::Command;

use common::{exchange, failure, listening, seed};

const PASSAGES: &str = "{\"id\": \"0\", \"contents\": \"\\\"Tea\\\"\\nA hot drink made of leaves.\"}\n\
                        {\"id\": \"1\", \"contents\": \"\\\"Rome\\\"\\nThe capital of Italy.\"}\n";

#[test]
fn passages_are_served_until_the_server_is_told_to_stop() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("passages.jsonl");
    fs_err::write(&path, PASSAGES).unwrap();
    let (mut server, line) = listening(&["retrieve", "serve", path.to_str().unwrap()]);
    let address = line
        .strip_prefix("2 passages at http://")
        .and_then(|rest| rest.strip_suffix("/retrieve"))
        .unwrap();
    let answer = exchange(
        address,
        "POST",
        "/retrieve",
        "{\"query\": \"Which city is the capital?\", \"topk\": 1}",
    );
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(
        answer.ends_with(
            "{\"result\":[[{\"id\":\"1\",\"contents\":\"\\\"Rome\\\"\\nThe capital of Italy.\"}]]}"
        ),
        "{answer}"
    );
    let stopped = Command::new("kill")
        .arg(server.id().to_string())
        .status()
        .unwrap();
    assert!(stopped.success());
    assert_eq!(server.wait().unwrap().code(), Some(0));
}

#[test]
fn what_cannot_be_served_or_indexed_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let shown = |text: &str| text.replace(&folder.path().display().to_string(), "[scratch]");
    let path = folder.path().join("passages.jsonl");
    let passages = path.to_str().unwrap();
    let serve = |more: &[&str]| {
        shown(&failure(&seed(
            &[&["retrieve", "serve", passages], more].concat(),
        )))
    };
    let absent = serve(&[]);
    fs_err::write(&path, PASSAGES).unwrap();
    let messages = [
        absent,
        serve(&["--address", "0.0.0.0:0"]),
        serve(&[
            "--address",
            "0.0.0.0:0",
            "--token-env",
            "SEED_TEST_TOKEN_THAT_IS_NOT_SET",
        ]),
        serve(&["--top-k", "0"]),
        shown(&failure(&seed(&[
            "retrieve",
            "index",
            passages,
            "--encoder",
            folder.path().to_str().unwrap(),
            "--out",
            "index",
        ]))),
    ];
    insta::assert_snapshot!(messages.join("\n"), @r#"
    exit code 3
    error: could not read `[scratch]/passages.jsonl`
      caused by: failed to open file `[scratch]/passages.jsonl`: No such file or directory (os error 2)
    exit code 2
    error: `0.0.0.0:0` can be reached from other machines: name an environment variable with a token, or listen on a loopback address such as `127.0.0.1`
    exit code 2
    error: environment variable `SEED_TEST_TOKEN_THAT_IS_NOT_SET` holds no token: set it to one word of visible ASCII characters
    exit code 2
    error: `default_count` is `0`; it must be at least 1
    exit code 3
    error: `[scratch]/config.json` is not usable as a sentence encoder: failed to query resolved metadata `[scratch]/config.json`: No such file or directory (os error 2)
    "#);
}
