//! Bodies and answers in the forms of both engines.

use super::*;

fn ask() -> Ask {
    Ask {
        ids: vec![5, 9],
        max_new_tokens: 3,
        sampling: Sampling {
            temperature: 0.5,
            top_p: 0.9,
            top_k: 0,
        },
        stop: vec![1, 2],
        key: RandomKey::new(7),
        model: "policy".into(),
        vocabulary_size: 50,
    }
}

#[test]
fn a_completion_with_ids_is_asked_of_vllm() {
    assert_eq!(
        Dialect::Vllm.body(&ask(), false),
        json!({
            "model": "policy", "prompt": [5, 9], "max_tokens": 3, "temperature": 0.5, "top_p": 0.9f32, "top_k": -1,
            "seed": RandomKey::new(7).to_u64() >> 1, "ignore_eos": true, "stop_token_ids": [1, 2], "logprobs": 0, "return_token_ids": true,
            "skip_special_tokens": false, "stream": false,
        })
    );
}

#[test]
fn ids_are_generated_by_sglang() {
    let body = Dialect::Sglang.body(&ask(), true);
    assert_eq!(body["input_ids"], json!([5, 9]));
    assert_eq!(body["sampling_params"]["stop_token_ids"], json!([1, 2]));
    assert_eq!(
        (&body["return_logprob"], &body["lora_path"]),
        (&json!(true), &json!("policy"))
    );
    assert!(Dialect::Sglang.body(&ask(), false).get("lora_path").is_none());
}

fn vllm(change: impl Fn(&mut Value)) -> Result<Answer, String> {
    let mut answer = json!({
        "id": "cmpl-1", "object": "text_completion", "created": 1, "model": "policy",
        "choices": [{
            "index": 0, "text": "ab", "finish_reason": "stop", "stop_reason": null, "prompt_logprobs": null,
            "logprobs": {
                "text_offset": [0, 1], "token_logprobs": [-0.25, -1.5], "tokens": ["a", "b"],
                "top_logprobs": [{"a": -0.25}, {"b": -1.5}],
            },
            "token_ids": [40, 2], "prompt_token_ids": [5, 9],
        }],
        "usage": {"prompt_tokens": 2, "total_tokens": 4, "completion_tokens": 2},
    });
    change(&mut answer);
    Dialect::Vllm.read(&ask(), answer.to_string().as_bytes())
}

fn sglang(change: impl Fn(&mut Value)) -> Result<Answer, String> {
    let mut answer = json!({
        "text": "ab", "output_ids": [40, 2],
        "meta_info": {
            "id": "x", "finish_reason": {"type": "length", "length": 3}, "prompt_tokens": 2, "weight_version": "v3",
            "completion_tokens": 2, "cached_tokens": 0,
            "output_token_logprobs": [[-0.25, 40, null], [-1.5, 41, "b"], [-0.5, 42, null]],
        },
    });
    change(&mut answer);
    Dialect::Sglang.read(&ask(), answer.to_string().as_bytes())
}

#[test]
fn answers_are_read() {
    let answer = Answer {
        token_ids: vec![40, 2],
        log_probs: vec![-0.25, -1.5],
        stopped: true,
        version: None,
    };
    assert_eq!(vllm(|_| {}).unwrap(), answer);
    let answer = Answer {
        token_ids: vec![40, 41, 42],
        log_probs: vec![-0.25, -1.5, -0.5],
        stopped: false,
        version: Some("v3".into()),
    };
    assert_eq!(sglang(|_| {}).unwrap(), answer);
}

/// Ids are what was sampled and read, one log-prob each: anything else is not to be trained on.
#[test]
fn answers_that_do_not_hold_together_are_refused() {
    let problem = |change: &dyn Fn(&mut Value)| vllm(change).unwrap_err();
    let choice = |name: &'static str, value: Value| {
        problem(&|answer: &mut Value| answer["choices"][0][name] = value.clone())
    };
    assert_eq!(choice("token_ids", Value::Null), "the answer has no `token_ids`");
    assert_eq!(choice("logprobs", Value::Null), "the answer has no `logprobs`");
    assert_eq!(choice("token_ids", json!([2])), "there are 1 ids and 2 log-probs");
    assert_eq!(
        choice("token_ids", json!([50, 2])),
        "id 50 is not in the policy's vocabulary"
    );
    assert_eq!(
        choice("token_ids", json!([2, 40])),
        "the response goes on after the end token at 0"
    );
    assert_eq!(
        choice("token_ids", json!([40, 41])),
        "the response ended by `stop` and has no end token at its end"
    );
    assert_eq!(
        choice("prompt_token_ids", json!([5, 8])),
        "the engine read other ids than it was sent"
    );
    assert_eq!(
        choice("finish_reason", json!("abort")),
        "the response ended by `abort`"
    );
    assert_eq!(
        choice("logprobs", json!({"token_logprobs": [0.5, -1.0]})),
        "a log-prob is 0.5"
    );
    assert_eq!(
        problem(&|answer| answer["model"] = json!("base")),
        "the answer is not of model `policy`"
    );
    assert_eq!(
        problem(&|answer| answer["choices"] = json!([])),
        "there are 0 choices and not one"
    );
    let long = json!([
        [-1.0, 40, null],
        [-1.0, 40, null],
        [-1.0, 40, null],
        [-1.0, 40, null]
    ]);
    assert_eq!(
        sglang(|answer| answer["meta_info"]["output_token_logprobs"] = long.clone()).unwrap_err(),
        "there are 4 ids where 1 to 3 were asked for"
    );
}
