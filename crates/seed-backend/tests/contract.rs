//! What vLLM and SGLang are asked, field by field, and what becomes of their answers, against recorded exchanges.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests fail as tests do")]

mod support;

use std::sync::Arc;

use seed_backend::{BackendOptions, Client, Dialect, PublishedWeights, RemoteGenerator};
use seed_model::{Decoder, FinishReason, GenerateRequest, Generation, ModelError, Sampling};
use seed_random::RandomKey;
use seed_rollout::{FailedRequest, Generator};
use serde_json::{Value, json};
use support::{Answer, CONTEXT, Call, model, stub};

const BOTH: [Dialect; 2] = [Dialect::Vllm, Dialect::Sglang];

/// What came of a request for a turn of at most six tokens after the ids 5, 9, 12.
struct Outcome {
    generations: Vec<Generation>,
    failures: Vec<FailedRequest>,
    error: Option<ModelError>,
    calls: Vec<Call>,
    retries: u64,
}

struct Asked {
    weights: PublishedWeights,
    allowed_failures: usize,
    max_length: usize,
    attempts: u32,
}

impl Default for Asked {
    fn default() -> Self {
        Self {
            weights: PublishedWeights::Initial,
            allowed_failures: 1,
            max_length: CONTEXT,
            attempts: 1,
        }
    }
}

fn key() -> RandomKey {
    RandomKey::new(3).with("step", 1)
}

fn ask(dialect: Dialect, asked: &Asked, answers: Vec<Answer>) -> Outcome {
    let directory = model(1);
    let decoder = Decoder::new(directory.config, directory.parameters).unwrap();
    let (url, calls) = stub(answers);
    let client = Arc::new(
        Client::new(BackendOptions {
            attempts: asked.attempts,
            first_delay_milliseconds: 1,
            timeout_seconds: 1.0,
            ..BackendOptions::new(url, dialect, "policy")
        })
        .unwrap(),
    );
    let mut generator = RemoteGenerator::new(&client, &decoder, &asked.weights, asked.allowed_failures);
    let state = generator.prefill(generator.empty_state(), &[5, 9]).unwrap();
    let request = GenerateRequest {
        id: 4,
        state,
        append: vec![12],
        max_new_tokens: 6,
        max_length: asked.max_length,
        sampling: Sampling {
            temperature: 0.5,
            top_p: 0.75,
            top_k: 8,
        },
        stop: Arc::from([1, 40]),
        key: key(),
    };
    generator.submit(request).unwrap();
    assert!(!generator.is_idle());
    let (generations, error) = match generator.step() {
        Ok(generations) => (generations, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    assert!(generator.is_idle());
    Outcome {
        generations,
        failures: generator.take_failures(),
        error,
        calls: calls.join().unwrap(),
        retries: client.retries(),
    }
}

/// An answer of either engine in full, as it gives it.
fn answer(dialect: Dialect, model: &str, ids: &[u32], log_probs: &[f64], finish: &str) -> Value {
    match dialect {
        Dialect::Vllm | Dialect::Seed => {
            let names: Vec<String> = ids.iter().map(|id| format!("t{id}")).collect();
            let offsets: Vec<usize> = (0..ids.len()).collect();
            let top: Vec<Value> = names
                .iter()
                .zip(log_probs)
                .map(|(name, value)| json!({ name: value }))
                .collect();
            let stop_reason = if finish == "stop" {
                json!(ids.last())
            } else {
                Value::Null
            };
            json!({
                "id": "cmpl-7c5b", "object": "text_completion", "created": 1_764_000_000, "model": model,
                "service_tier": null, "system_fingerprint": null, "kv_transfer_params": null,
                "choices": [{
                    "index": 0, "text": "again", "finish_reason": finish, "stop_reason": stop_reason,
                    "prompt_logprobs": null, "token_ids": ids, "prompt_token_ids": [5, 9, 12],
                    "logprobs": {
                        "text_offset": offsets, "token_logprobs": log_probs, "tokens": names, "top_logprobs": top,
                    },
                }],
                "usage": {
                    "prompt_tokens": 3, "completion_tokens": ids.len(), "total_tokens": 3 + ids.len(),
                    "prompt_tokens_details": null,
                },
            })
        }
        Dialect::Sglang => {
            let tokens: Vec<Value> = ids
                .iter()
                .zip(log_probs)
                .map(|(id, value)| json!([value, id, null]))
                .collect();
            let finish = if finish == "stop" {
                json!({"type": "stop", "matched": ids.last()})
            } else {
                json!({"type": finish, "length": ids.len()})
            };
            json!({
                "text": "again", "output_ids": ids,
                "meta_info": {
                    "id": "b0d8", "finish_reason": finish, "prompt_tokens": 3, "weight_version": "default",
                    "total_retractions": 0, "input_token_logprobs": [], "output_token_logprobs": tokens,
                    "completion_tokens": ids.len(), "cached_tokens": 0, "e2e_latency": 0.02,
                },
            })
        }
    }
}

fn usual(dialect: Dialect) -> Value {
    answer(dialect, "policy", &[20, 21, 40], &[-0.5, -1.25, -0.125], "stop")
}

fn with_adapter(name: &str) -> Asked {
    Asked {
        weights: PublishedWeights::Adapter {
            name: name.to_owned(),
        },
        ..Asked::default()
    }
}

const ADAPTER: &str = "seed-adapter-000002-00ff";

#[test]
fn vllm_is_asked_for_ids_and_log_probs() {
    for (asked, model) in [(Asked::default(), "policy"), (with_adapter(ADAPTER), ADAPTER)] {
        let mut reply = usual(Dialect::Vllm);
        reply["model"] = json!(model);
        let outcome = ask(Dialect::Vllm, &asked, vec![Answer::json(&reply)]);
        let body = json!({
            "model": model, "prompt": [5, 9, 12], "max_tokens": 6, "temperature": 0.5, "top_p": 0.75, "top_k": 8,
            "seed": key().to_u64() >> 1, "ignore_eos": true, "stop_token_ids": [1, 40], "logprobs": 0,
            "return_token_ids": true, "skip_special_tokens": false, "stream": false,
        });
        assert_eq!(outcome.calls, [("/v1/completions".to_owned(), body)]);
        assert_eq!(outcome.generations.len(), 1);
    }
}

#[test]
fn sglang_is_asked_for_ids_and_log_probs() {
    for (asked, adapter) in [(Asked::default(), None), (with_adapter(ADAPTER), Some(ADAPTER))] {
        let outcome = ask(
            Dialect::Sglang,
            &asked,
            vec![Answer::json(&usual(Dialect::Sglang))],
        );
        let mut body = json!({
            "input_ids": [5, 9, 12],
            "sampling_params": {
                "max_new_tokens": 6, "temperature": 0.5, "top_p": 0.75, "top_k": 8,
                "sampling_seed": key().to_u64() >> 1, "stop_token_ids": [1, 40], "skip_special_tokens": false,
            },
            "return_logprob": true, "stream": false,
        });
        if let Some(name) = adapter {
            body["lora_path"] = json!(name);
        }
        assert_eq!(outcome.calls, [("/generate".to_owned(), body)]);
        assert_eq!(outcome.generations.len(), 1);
    }
}

#[test]
fn what_was_sampled_is_what_is_recorded() {
    for dialect in BOTH {
        let outcome = ask(dialect, &Asked::default(), vec![Answer::json(&usual(dialect))]);
        let [generation] = &outcome.generations[..] else {
            panic!("{:?} {:?}", outcome.error, outcome.failures);
        };
        assert_eq!((generation.id, generation.finish), (4, FinishReason::Stop));
        assert_eq!(generation.token_ids, [20, 21, 40]);
        assert_eq!(generation.log_probs, [-0.5, -1.25, -0.125]);
        // The next turn continues these very ids.
        assert_eq!(generation.state.token_ids(), [5, 9, 12, 20, 21, 40]);
        assert!(outcome.failures.is_empty());
    }
}

#[test]
fn a_response_cut_by_length_says_by_which() {
    for dialect in BOTH {
        let finish = |asked: &Asked, ids: &[u32]| {
            let reply = answer(dialect, "policy", ids, &vec![-1.0; ids.len()], "length");
            let outcome = ask(dialect, asked, vec![Answer::json(&reply)]);
            let parameters = match dialect {
                Dialect::Sglang => outcome.calls[0].1["sampling_params"]["max_new_tokens"].clone(),
                _ => outcome.calls[0].1["max_tokens"].clone(),
            };
            (outcome.generations[0].finish, parameters)
        };
        assert_eq!(
            finish(&Asked::default(), &[20; 6]),
            (FinishReason::Length, json!(6))
        );
        // Of the sequence's five places, three are taken.
        let short = Asked {
            max_length: 5,
            ..Asked::default()
        };
        assert_eq!(finish(&short, &[20; 2]), (FinishReason::Context, json!(2)));
        // An end token in the last place is an end.
        assert_eq!(finish(&short, &[20, 40]), (FinishReason::Stop, json!(2)));
    }
}

/// Such answers are never trained on: the request fails, and with it its episode.
#[test]
fn malformed_answers_fail_their_request_alone() {
    let problem = |dialect, reply: Answer| {
        let outcome = ask(dialect, &Asked::default(), vec![reply]);
        assert!(outcome.generations.is_empty() && outcome.error.is_none());
        let [failed] = &outcome.failures[..] else {
            panic!("{:?}", outcome.failures);
        };
        assert_eq!(failed.id, 4);
        failed.problem.clone()
    };
    let vllm = |name: &str, value: Value| {
        let mut reply = usual(Dialect::Vllm);
        reply["choices"][0][name] = value;
        problem(Dialect::Vllm, Answer::json(&reply))
    };
    let sglang = |name: &str, value: Value| {
        let mut reply = usual(Dialect::Sglang);
        reply["meta_info"][name] = value;
        problem(Dialect::Sglang, Answer::json(&reply))
    };
    let tokens = "output_token_logprobs";
    for (found, expected) in [
        (vllm("logprobs", Value::Null), "the answer has no `logprobs`"),
        (vllm("token_ids", Value::Null), "the answer has no `token_ids`"),
        (
            vllm("token_ids", json!([21, 40])),
            "there are 2 ids and 3 log-probs",
        ),
        (
            vllm("finish_reason", json!("abort")),
            "the response ended by `abort`",
        ),
        (
            vllm("prompt_token_ids", json!([5, 9, 13])),
            "the engine read other ids than it was sent",
        ),
        (
            vllm("logprobs", json!({"token_logprobs": [-0.5, null, -0.125]})),
            "invalid type: null, expected f32",
        ),
        (
            sglang(tokens, Value::Null),
            "the answer has no `output_token_logprobs`",
        ),
        (
            sglang(tokens, json!([[-0.5, 20], [-0.125, 40]])),
            "invalid length 2",
        ),
        (
            sglang(tokens, json!([])),
            "there are 0 ids where 1 to 6 were asked for",
        ),
        (
            sglang(tokens, json!([[-0.5, 20, null], [null, 40, null]])),
            "invalid type: null, expected f32",
        ),
        (
            sglang("finish_reason", json!({"type": "abort"})),
            "the response ended by `abort`",
        ),
        (
            problem(Dialect::Vllm, Answer::Body(200, "<html>".to_owned())),
            "expected value at line 1",
        ),
        (
            problem(Dialect::Sglang, Answer::Body(200, String::new())),
            "EOF while parsing",
        ),
    ] {
        assert!(found.contains(expected), "{found} has no {expected}");
    }
}

#[test]
fn a_failing_engine_is_asked_again_and_then_given_up() {
    let busy = || Answer::Body(500, r#"{"error":"CUDA out of memory"}"#.to_owned());
    for dialect in BOTH {
        let patient = |allowed_failures| Asked {
            allowed_failures,
            attempts: 3,
            ..Asked::default()
        };
        // It recovers.
        let good = Answer::json(&usual(dialect));
        let outcome = ask(dialect, &patient(0), vec![busy(), Answer::Gone, good]);
        assert_eq!((outcome.generations.len(), outcome.retries), (1, 2));
        assert_eq!(
            outcome.calls[0], outcome.calls[2],
            "the same is asked again, with the same seed"
        );
        // It does not, and one request may fail.
        let outcome = ask(dialect, &patient(1), vec![busy(), busy(), busy()]);
        assert!(outcome.error.is_none());
        let [failed] = &outcome.failures[..] else {
            panic!("{:?}", outcome.failures);
        };
        let problem = &failed.problem;
        assert!(problem.contains("status 500 after 3 attempts"), "{problem}");
        assert!(problem.contains("CUDA out of memory"), "{problem}");
        // None may.
        let outcome = ask(dialect, &patient(0), vec![busy(), busy(), busy()]);
        let error = outcome.error.unwrap().to_string();
        assert!(
            error.starts_with("request `4`: the external engine failed: "),
            "{error}"
        );
        assert!(error.ends_with("(1 requests failed, 0 may)"), "{error}");
        assert!(outcome.failures.is_empty());
    }
}

#[test]
fn a_slow_engine_is_not_waited_for() {
    for dialect in BOTH {
        let patient = Asked {
            attempts: 2,
            ..Asked::default()
        };
        let good = Answer::json(&usual(dialect));
        let outcome = ask(dialect, &patient, vec![Answer::Silent, good]);
        assert_eq!((outcome.generations.len(), outcome.retries), (1, 1));
        let outcome = ask(dialect, &Asked::default(), vec![Answer::Silent]);
        let [failed] = &outcome.failures[..] else {
            panic!("{:?}", outcome.failures);
        };
        let problem = &failed.problem;
        assert!(
            problem.contains("cannot be reached after 1 attempts: timeout"),
            "{problem}"
        );
    }
}

/// Known elsewhere as ART#661. One answer of other weights says that all are: no number of failures is allowed.
#[test]
fn a_stale_engine_stops_at_its_first_answer() {
    let asked = Asked {
        weights: PublishedWeights::Model {
            version: "seed-model-000002-00ff".to_owned(),
        },
        allowed_failures: 100,
        ..Asked::default()
    };
    let mut reply = usual(Dialect::Sglang);
    reply["meta_info"]["weight_version"] = json!("seed-model-000001-00ff");
    let outcome = ask(Dialect::Sglang, &asked, vec![Answer::json(&reply)]);
    let error = outcome.error.unwrap().to_string();
    assert!(
        error.contains(
            "answers with weights `seed-model-000001-00ff` while `seed-model-000002-00ff` were published"
        ),
        "{error}"
    );
    reply["meta_info"]["weight_version"] = json!("seed-model-000002-00ff");
    let outcome = ask(Dialect::Sglang, &asked, vec![Answer::json(&reply)]);
    assert_eq!(outcome.generations.len(), 1);
}
