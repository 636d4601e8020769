//! What answers hold: the engine's own tokens and log-probs, whatever else is going on.

use std::sync::Arc;

use proptest::prelude::*;
use seed_model::{
    Decoder, Engine, EngineOptions, GenerateRequest, Generation, Message, Sampling, SequenceState,
};
use seed_random::RandomKey;
use serde_json::{Value, json};

use crate::support::{CONTEXT, Running, model};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

/// What the engine generates for ids with nothing else to do.
fn expected(prompt: &[u32], seed: u64, choice: u64, sampling: Sampling, max_new_tokens: usize) -> Generation {
    let directory = model();
    let decoder = Decoder::new(directory.config, directory.parameters).unwrap();
    let mut engine = Engine::new(&decoder, EngineOptions::default());
    let request = GenerateRequest {
        id: 0,
        state: SequenceState::new(&decoder),
        append: prompt.to_vec(),
        max_new_tokens,
        max_length: CONTEXT,
        sampling,
        stop: Arc::from(directory.end_tokens),
        key: RandomKey::new(seed).with("choice", choice),
    };
    engine.run(vec![request]).unwrap().remove(0)
}

fn ids(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).unwrap()
}

fn bits(values: impl IntoIterator<Item = f32>) -> Vec<u32> {
    values.into_iter().map(f32::to_bits).collect()
}

/// The log-probs of a plain completion's choice.
fn log_probs(choice: &Value) -> Vec<f32> {
    serde_json::from_value(choice["logprobs"]["token_logprobs"].clone()).unwrap()
}

#[test]
fn a_chat_is_answered_with_what_the_engine_samples() {
    let directory = model();
    let messages = [
        Message::system("Be brief."),
        Message::user("<|im_end|> is text; open the drawer 12"),
    ];
    let chat = directory.chat.as_ref().unwrap();
    let prompt = chat.encode(&directory.tokenizer, &messages, true).unwrap();
    let sampling = Sampling {
        temperature: 0.9,
        top_p: 0.8,
        top_k: 50,
    };
    let server = Running::start(|_| {});
    let body = json!({
        "model": "tiny", "messages": messages, "seed": 5, "max_tokens": 30, "n": 2, "logprobs": true,
        "top_logprobs": 2, "temperature": 0.9, "top_p": 0.8, "top_k": 50, "return_token_ids": true,
    });
    let (status, answer) = server.post(CHAT, &body);
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["object"], "chat.completion");
    assert_eq!(answer["model"], "tiny");
    assert_eq!(ids(&answer["prompt_token_ids"]), prompt);
    let mut tokens = 0;
    for (index, choice) in answer["choices"].as_array().unwrap().iter().enumerate() {
        let expected = expected(&prompt, 5, index as u64, sampling, 30);
        tokens += expected.token_ids.len();
        assert_eq!(choice["index"], index);
        assert_eq!(ids(&choice["token_ids"]), expected.token_ids);
        let text = directory.tokenizer.decode(&expected.token_ids, true);
        assert_eq!(
            choice["message"],
            json!({"role": "assistant", "content": text, "refusal": null})
        );
        let content = choice["logprobs"]["content"].as_array().unwrap();
        let found = content
            .iter()
            .map(|token| token["logprob"].as_f64().unwrap() as f32);
        assert_eq!(bits(found), bits(expected.log_probs.iter().copied()));
        for (token, &id) in content.iter().zip(&expected.token_ids) {
            let bytes: Vec<u8> = serde_json::from_value(token["bytes"].clone()).unwrap();
            assert_eq!(bytes, directory.tokenizer.token_bytes(id));
            let listed = token["top_logprobs"].as_array().unwrap();
            assert_eq!(listed.len(), 2);
            assert!(listed[0]["logprob"].as_f64() >= listed[1]["logprob"].as_f64());
        }
    }
    assert_eq!(
        answer["usage"],
        json!({
            "prompt_tokens": prompt.len(), "completion_tokens": tokens, "total_tokens": prompt.len() + tokens,
        })
    );
}

#[test]
fn rows_have_the_same_bits_whatever_else_is_in_the_batch() {
    let prompts: Vec<Vec<u32>> = (0..12u32)
        .map(|row| {
            (0..3 + row * 5 % 17)
                .map(|at| (at * 37 + row * 11) % 310)
                .collect()
        })
        .collect();
    let request = |row: usize| {
        json!({
            "model": "tiny", "prompt": prompts[row], "seed": row, "max_tokens": 8 + row * 3, "logprobs": 0,
            "return_token_ids": true, "ignore_eos": row.is_multiple_of(2),
        })
    };
    let alone = Running::start(|options| options.engine.max_active = 1);
    let rows: Vec<Value> = (0..prompts.len())
        .map(|row| alone.choices(COMPLETIONS, &request(row)).remove(0))
        .collect();
    for (max_active, prefill_chunk) in [(3, 4), (64, 1024)] {
        let server = Running::start(|options| {
            options.engine = EngineOptions {
                max_active,
                prefill_chunk,
            };
        });
        let together: Vec<Value> = std::thread::scope(|scope| {
            let server = &server;
            let threads: Vec<_> = (0..prompts.len())
                .rev()
                .map(|row| {
                    let body = request(row);
                    scope.spawn(move || server.choices(COMPLETIONS, &body).remove(0))
                })
                .collect();
            threads
                .into_iter()
                .rev()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        assert_eq!(together, rows);
    }
    let third = expected(&prompts[3], 3, 0, Sampling::default(), 17);
    assert_eq!(ids(&rows[3]["token_ids"]), third.token_ids);
    assert_eq!(bits(log_probs(&rows[3])), bits(third.log_probs));
    // Several prompts of one request are as many requests.
    let body = json!({
        "model": "tiny", "prompt": prompts[..4], "n": 2, "seed": 3, "max_tokens": 17, "logprobs": 0,
        "return_token_ids": true,
    });
    let choices = alone.choices(COMPLETIONS, &body);
    assert_eq!(choices.len(), 8);
    for (index, choice) in choices.iter().enumerate() {
        let prompt = &prompts[index / 2];
        let expected = expected(prompt, 3, index as u64 % 2, Sampling::default(), 17);
        assert_eq!(&ids(&choice["prompt_token_ids"]), prompt);
        assert_eq!(ids(&choice["token_ids"]), expected.token_ids);
        assert_eq!(bits(log_probs(choice)), bits(expected.log_probs));
    }
}

#[test]
fn a_stream_is_the_whole_answer_in_pieces() {
    let server = Running::start(|_| {});
    let mut chat = json!({
        "model": "tiny", "messages": [{"role": "user", "content": "again"}], "seed": 7, "max_tokens": 60, "n": 3,
        "temperature": 1.3, "logprobs": true, "top_logprobs": 1, "return_token_ids": true, "stop": ["a", "it"],
    });
    let whole = server.post(CHAT, &chat).1;
    chat["stream"] = json!(true);
    chat["stream_options"] = json!({"include_usage": true});
    let pieces = server.stream(CHAT, &chat);
    let (usage, pieces) = pieces.split_last().unwrap();
    assert_eq!(usage["usage"], whole["usage"]);
    assert_eq!(usage["choices"], json!([]));
    for (index, choice) in whole["choices"].as_array().unwrap().iter().enumerate() {
        let own: Vec<&Value> = pieces
            .iter()
            .filter(|piece| piece["choices"][0]["index"] == index)
            .collect();
        assert_eq!(
            own[0]["choices"][0]["delta"],
            json!({"role": "assistant", "content": ""})
        );
        assert_eq!(own[0]["prompt_token_ids"], whole["prompt_token_ids"]);
        let own: Vec<&Value> = own.iter().map(|piece| &piece["choices"][0]).collect();
        let text: String = own
            .iter()
            .filter_map(|piece| piece["delta"]["content"].as_str())
            .collect();
        assert_eq!(choice["message"]["content"], text);
        let collect = |path: &str| -> Vec<Value> {
            own.iter()
                .filter_map(|piece| piece.pointer(path)?.as_array())
                .flatten()
                .cloned()
                .collect()
        };
        assert_eq!(choice["token_ids"], json!(collect("/token_ids")));
        assert_eq!(choice["logprobs"]["content"], json!(collect("/logprobs/content")));
        let last = own.last().unwrap();
        assert_eq!(last["finish_reason"], choice["finish_reason"]);
        assert_eq!(last["stop_reason"], choice["stop_reason"]);
        assert_eq!(last["delta"], json!({}));
        for piece in &own[..own.len() - 1] {
            assert_eq!(piece["finish_reason"], Value::Null);
        }
    }

    let mut plain = json!({"model": "tiny", "prompt": "go to", "seed": 1, "max_tokens": 20});
    let whole = server.choices(COMPLETIONS, &plain).remove(0);
    plain["stream"] = json!(true);
    let pieces = server.stream(COMPLETIONS, &plain);
    let text: String = pieces
        .iter()
        .filter_map(|piece| piece["choices"][0]["text"].as_str())
        .collect();
    assert_eq!(whole["text"], text);
    assert_eq!(
        whole["finish_reason"],
        pieces.last().unwrap()["choices"][0]["finish_reason"]
    );
}

#[test]
fn responses_end_for_the_reason_they_say() {
    let server = Running::start(|_| {});
    let body = |extra: Value| {
        let mut body = json!({
            "model": "tiny", "prompt": [5, 9, 33], "seed": 2, "max_tokens": 40, "ignore_eos": true,
            "return_token_ids": true,
        });
        body.as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        body
    };
    let free = server.choices(COMPLETIONS, &body(json!({}))).remove(0);
    let (free_ids, free_text) = (ids(&free["token_ids"]), free["text"].as_str().unwrap());
    assert_eq!((free_ids.len(), &free["finish_reason"]), (40, &json!("length")));

    // By a token, which is the last of the ids and no part of the text.
    let stop = free_ids[10];
    let first = free_ids.iter().position(|&id| id == stop).unwrap();
    let choice = server
        .choices(COMPLETIONS, &body(json!({"stop_token_ids": [stop]})))
        .remove(0);
    assert_eq!(ids(&choice["token_ids"]), free_ids[..=first]);
    assert_eq!(
        (&choice["finish_reason"], &choice["stop_reason"]),
        (&json!("stop"), &json!(stop))
    );
    assert_eq!(choice["text"], model().tokenizer.decode(&free_ids[..first], true));

    // By a text, within tokens.
    let characters: Vec<char> = free_text.chars().collect();
    let stop: String = characters[characters.len() / 2..][..3].iter().collect();
    let choice = server
        .choices(COMPLETIONS, &body(json!({"stop": stop})))
        .remove(0);
    let end = free_text.find(&stop).unwrap();
    assert_eq!(choice["text"], free_text[..end]);
    assert_eq!(
        (&choice["finish_reason"], &choice["stop_reason"]),
        (&json!("stop"), &json!(stop))
    );
    let found = ids(&choice["token_ids"]);
    assert_eq!(found, free_ids[..found.len()]);
    assert!(found.len() < free_ids.len());

    // By the context.
    let prompt: Vec<u32> = (0..CONTEXT as u32 - 3).map(|id| id % 300).collect();
    let choice = server
        .choices(COMPLETIONS, &body(json!({"prompt": prompt})))
        .remove(0);
    assert_eq!(ids(&choice["token_ids"]).len(), 3);
    assert_eq!(choice["finish_reason"], "length");

    // By the model's own end.
    let ends = (0..200).find_map(|seed| {
        let extra = json!({"ignore_eos": false, "seed": seed, "max_tokens": 200});
        let choice = server.choices(COMPLETIONS, &body(extra)).remove(0);
        (choice["finish_reason"] == "stop").then_some(choice)
    });
    let choice = ends.unwrap();
    assert_eq!(choice["stop_reason"], Value::Null);
    assert_eq!(ids(&choice["token_ids"]).last(), Some(&1));
}

#[test]
fn seeds_repeat_and_their_absence_does_not() {
    let server = Running::start(|_| {});
    let text = |server: &Running, seed: Value| {
        let body = json!({"model": "tiny", "prompt": "go", "seed": seed, "max_tokens": 30});
        server.choices(COMPLETIONS, &body).remove(0)["text"].clone()
    };
    assert_eq!(text(&server, json!(-3)), text(&server, json!(-3)));
    assert_ne!(text(&server, json!(-3)), text(&server, json!(3)));
    let unseeded = [text(&server, Value::Null), text(&server, Value::Null)];
    assert_ne!(unseeded[0], unseeded[1]);
    // The same requests to a server just started are answered the same.
    let other = Running::start(|_| {});
    for _ in 0..4 {
        text(&other, json!(1));
    }
    let again = [text(&other, Value::Null), text(&other, Value::Null)];
    assert_eq!(again[0], unseeded[0]);
    assert_eq!(again[1], unseeded[1]);
}

#[test]
fn a_key_draws_what_it_draws_without_a_server() {
    let server = Running::start(|_| {});
    let key = RandomKey::new(4).with("choice", 2);
    let body = json!({
        "model": "tiny", "prompt": [40, 41], "random_key": key.to_hex(), "seed": 9, "max_tokens": 20,
        "return_token_ids": true,
    });
    let choice = server.choices(COMPLETIONS, &body).remove(0);
    let expected = expected(&[40, 41], 4, 2, Sampling::default(), 20);
    assert_eq!(ids(&choice["token_ids"]), expected.token_ids);
}

#[test]
fn log_probs_of_completions_name_tokens_and_places() {
    let server = Running::start(|_| {});
    let body = json!({
        "model": "tiny", "prompt": "again", "seed": 4, "max_tokens": 40, "logprobs": 2, "temperature": 1.5,
        "return_token_ids": true,
    });
    let choice = server.choices(COMPLETIONS, &body).remove(0);
    let ids = ids(&choice["token_ids"]);
    let directory = model();
    let text: Vec<char> = choice["text"].as_str().unwrap().chars().collect();
    for (index, &id) in ids.iter().enumerate() {
        let name = choice["logprobs"]["tokens"][index].as_str().unwrap();
        let bytes = directory.tokenizer.token_bytes(id);
        let at = choice["logprobs"]["text_offset"][index].as_u64().unwrap() as usize;
        match String::from_utf8(bytes) {
            Ok(token) => {
                assert_eq!(name, token);
                let is_text = !directory.tokenizer.is_control(id);
                let found: String = text[at..].iter().take(token.chars().count()).collect();
                // After an unfinished character the place is that of the character.
                assert!(
                    !is_text || found == token || found.starts_with('\u{fffd}'),
                    "{found:?} {token:?}"
                );
            }
            Err(error) => assert!(name.starts_with(&format!("bytes:\\x{:02x}", error.as_bytes()[0]))),
        }
        let listed = choice["logprobs"]["top_logprobs"][index].as_object().unwrap();
        assert!((2..=3).contains(&listed.len()));
        assert_eq!(listed[name], choice["logprobs"]["token_logprobs"][index]);
    }
    let mut by_id = body;
    by_id["return_tokens_as_token_ids"] = json!(true);
    let choice = server.choices(COMPLETIONS, &by_id).remove(0);
    assert_eq!(choice["logprobs"]["tokens"][0], format!("token_id:{}", ids[0]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]
    #[test]
    fn texts_are_the_decoded_ids(seed in 0u64..1000, temperature in 0.0f32..2.0) {
        let server = Running::start(|_| {});
        let body = json!({
            "model": "tiny", "prompt": [9, 8, 7], "seed": seed, "max_tokens": 120, "temperature": temperature,
            "return_token_ids": true, "ignore_eos": true,
        });
        let choice = server.choices(COMPLETIONS, &body).remove(0);
        let text = model().tokenizer.decode(&ids(&choice["token_ids"]), true);
        prop_assert_eq!(choice["text"].as_str().unwrap(), text);
    }
}
