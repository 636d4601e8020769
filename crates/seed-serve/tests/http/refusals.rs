//! What is refused, and how it is said.

use serde_json::{Value, json};

use crate::support::{CONTEXT, Running, model};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

/// Status, field, code and message of a refusal.
fn refusal(server: &Running, path: &str, extra: &Value) -> (u16, Value, Value, String) {
    let mut body = match path {
        CHAT => json!({"model": "tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": 2}),
        _ => json!({"model": "tiny", "prompt": "x", "max_tokens": 2}),
    };
    body.as_object_mut()
        .unwrap()
        .extend(extra.as_object().unwrap().clone());
    let (status, answer) = server.post(path, &body);
    assert!(status >= 400, "{answer}");
    let error = &answer["error"];
    assert_eq!(error["type"], "invalid_request_error");
    let message = error["message"].as_str().unwrap().to_owned();
    (status, error["param"].clone(), error["code"].clone(), message)
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    let server = Running::start(|_| {});
    for (path, extra, param) in [
        (CHAT, json!({"tools": [{"type": "function"}]}), "tools"),
        (CHAT, json!({"presence_penalty": 0.5}), "presence_penalty"),
        (
            CHAT,
            json!({"response_format": {"type": "json_object"}}),
            "response_format",
        ),
        (CHAT, json!({"logit_bias": {"5": 1}}), "logit_bias"),
        (CHAT, json!({"top_logprobs": 2}), "top_logprobs"),
        (
            CHAT,
            json!({"logprobs": true, "top_logprobs": 21}),
            "top_logprobs",
        ),
        (CHAT, json!({"temperature": -1}), "temperature"),
        (CHAT, json!({"temperature": "hot"}), "temperature"),
        (CHAT, json!({"top_p": 0}), "top_p"),
        (CHAT, json!({"top_k": -2}), "top_k"),
        (CHAT, json!({"n": 0}), "n"),
        (CHAT, json!({"random_key": "5"}), "random_key"),
        (CHAT, json!({"random_key": "0".repeat(64), "n": 2}), "random_key"),
        (CHAT, json!({"max_tokens": 0}), "max_tokens"),
        (
            CHAT,
            json!({"max_tokens": 1, "max_completion_tokens": 2}),
            "max_tokens",
        ),
        (CHAT, json!({"stop": [""]}), "stop"),
        (CHAT, json!({"stop_token_ids": [320]}), "stop_token_ids"),
        (
            CHAT,
            json!({"stream_options": {"include_usage": true}}),
            "stream_options",
        ),
        (CHAT, json!({"messages": []}), "messages"),
        (CHAT, json!({"messages": null}), "messages"),
        (
            CHAT,
            json!({"messages": [{"role": "tool", "content": "x"}]}),
            "messages[0].role",
        ),
        (
            CHAT,
            json!({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}),
            "messages[0].content",
        ),
        (
            CHAT,
            json!({"messages": [{"role": "user", "content": "x", "name": "a"}]}),
            "messages[0].name",
        ),
        (CHAT, json!({"no_such_field": 1}), "no_such_field"),
        (COMPLETIONS, json!({"echo": true}), "echo"),
        (COMPLETIONS, json!({"best_of": 2}), "best_of"),
        (COMPLETIONS, json!({"prompt": [320]}), "prompt"),
        (COMPLETIONS, json!({"prompt": []}), "prompt"),
        (COMPLETIONS, json!({"prompt": [[5], "x"]}), "prompt"),
        (COMPLETIONS, json!({"prompt": null}), "prompt"),
        (COMPLETIONS, json!({"messages": []}), "messages"),
        (COMPLETIONS, json!({"logprobs": true}), "logprobs"),
    ] {
        let (status, found, _, message) = refusal(&server, path, &extra);
        assert_eq!((status, &found), (400, &json!(param)), "{extra}: {message}");
        assert!(message.contains(&format!("`{param}`")), "{message}");
    }
    let (status, _, code, message) = refusal(&server, CHAT, &json!({"model": "other"}));
    assert_eq!((status, code), (404, json!("model_not_found")));
    assert_eq!(message, "there is no model `other` here; this server has `tiny`");
}

#[test]
fn what_changes_nothing_is_accepted() {
    let server = Running::start(|_| {});
    let body = json!({
        "model": "tiny", "max_completion_tokens": 4, "seed": 1, "user": "me", "metadata": {"run": "1"},
        "presence_penalty": 0, "frequency_penalty": 0.0, "logit_bias": {}, "tools": [], "tool_choice": "auto",
        "response_format": {"type": "text"}, "stream_options": null, "store": false, "stop": null,
        "messages": [
            {"role": "developer", "content": [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}]},
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": "y", "refusal": null, "tool_calls": [], "annotations": []},
            {"role": "user", "content": "z"},
        ],
    });
    let plain = json!({
        "model": "tiny", "max_tokens": 4, "seed": 1,
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": "y"},
            {"role": "user", "content": "z"},
        ],
    });
    assert_eq!(server.choices(CHAT, &body), server.choices(CHAT, &plain));
}

#[test]
fn a_prompt_that_fills_the_context_is_refused_with_its_length() {
    let server = Running::start(|_| {});
    let ids = vec![5u32; CONTEXT];
    let (status, param, code, message) = refusal(&server, COMPLETIONS, &json!({"prompt": ids}));
    assert_eq!(
        (status, param, code),
        (400, json!("prompt"), json!("context_length_exceeded"))
    );
    assert_eq!(
        message,
        "the prompt has 256 tokens; this model's context holds 256, of which at least one must be left for the \
         response: shorten the prompt"
    );
    let messages = json!([{"role": "user", "content": "drawer ".repeat(300)}]);
    let (status, param, code, _) = refusal(&server, CHAT, &json!({"messages": messages}));
    assert_eq!(
        (status, param, code),
        (400, json!("messages"), json!("context_length_exceeded"))
    );
    // One less leaves room for one token.
    let body = json!({"model": "tiny", "prompt": vec![5u32; CONTEXT - 1]});
    let (status, answer) = server.post(COMPLETIONS, &body);
    assert_eq!((status, &answer["usage"]["completion_tokens"]), (200, &json!(1)));
}

#[test]
fn a_model_without_a_template_answers_plain_completions_only() {
    let mut directory = model();
    directory.chat = None;
    let server = Running::with_model(directory, |_| {});
    let (status, _, _, message) = refusal(&server, CHAT, &json!({}));
    assert_eq!(status, 400);
    assert!(message.contains("`/v1/completions`"), "{message}");
    assert_eq!(
        server
            .post(COMPLETIONS, &json!({"model": "tiny", "prompt": "x"}))
            .0,
        200
    );
}

#[test]
fn other_paths_methods_and_bodies() {
    let server = Running::start(|_| {});
    let error = |method: &str, path: &str, body: &str, headers: &[(&str, &str)]| {
        let (status, text) = server.send(method, path, body, headers);
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert!(answer["error"]["message"].is_string(), "{text}");
        status
    };
    assert_eq!(error("GET", "/v1/engines", "", &[]), 404);
    assert_eq!(error("GET", "/v1/models/other", "", &[]), 404);
    assert_eq!(error("GET", CHAT, "", &[]), 405);
    assert_eq!(error("POST", CHAT, "{", &[]), 400);
    assert_eq!(error("POST", CHAT, "[]", &[]), 400);
    assert_eq!(error("POST", CHAT, "{}", &[]), 400);
    let deep = "[".repeat(100_000);
    assert_eq!(error("POST", CHAT, &deep, &[]), 400);
    // What a page in a browser can send without asking first.
    assert_eq!(error("POST", CHAT, "{}", &[("content-type", "text/plain")]), 415);
    let (status, text) = server.send("GET", "/v1/models", "", &[]);
    let list: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((status, &list["data"][0]["id"]), (200, &json!("tiny")));
    assert_eq!(list["data"][0]["max_model_len"], CONTEXT);
    assert_eq!(server.send("GET", "/v1/models/tiny", "", &[]).0, 200);
    assert_eq!(
        server.send("GET", "/health", "", &[]),
        (200, r#"{"status":"ok"}"#.to_owned())
    );
}
