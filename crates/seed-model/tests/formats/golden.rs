//! Rotary frequencies, token ids and chat templates against transformers' (`tests/golden/make_*_golden.py`).

use std::path::{Path, PathBuf};

use fs_err as fs;
use safetensors::SafeTensors;
use seed_model::{ChatTemplate, DecoderConfig, Message, Role, Tokenizer, load_weights};
use serde_json::Value;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name)
}

fn floats(bytes: &[u8], name: &str) -> Vec<f32> {
    let tensors = SafeTensors::deserialize(bytes).unwrap();
    let view = tensors.tensor(name).unwrap();
    view.data()
        .as_chunks()
        .0
        .iter()
        .map(|bytes| f32::from_le_bytes(*bytes))
        .collect()
}

#[test]
fn rotary_frequencies_are_transformers_own() {
    for kind in ["linear", "dynamic", "llama3", "yarn"] {
        let folder = golden(&format!("llama-{kind}"));
        let config =
            DecoderConfig::from_json(&fs::read_to_string(folder.join("config.json")).unwrap()).unwrap();
        let bytes = fs::read(folder.join("golden.safetensors")).unwrap();
        let (frequencies, scaling) = config.inverse_frequencies();
        let expected = floats(&bytes, "inverse_frequencies");
        assert_eq!(frequencies.len(), expected.len());
        for (&found, &expected) in frequencies.iter().zip(&expected) {
            // Two units in the last place: the powers come from another library.
            assert!(
                (found - expected).abs() <= expected * 2.4e-7,
                "{kind}: {found} {expected}"
            );
        }
        let expected = floats(&bytes, "attention_scaling")[0];
        assert!((scaling - expected).abs() <= 1e-7, "{kind}: {scaling} {expected}");
    }
}

#[test]
fn weights_of_shards_are_those_of_the_files() {
    let (_, parameters) = load_weights(golden("qwen3")).unwrap();
    let mut seen = 0;
    for shard in 1..=3 {
        let bytes = fs::read(golden(&format!("qwen3/model-0000{shard}-of-00003.safetensors"))).unwrap();
        for name in SafeTensors::deserialize(&bytes).unwrap().names() {
            let index = parameters.index_of(name).unwrap();
            assert_eq!(parameters.get(index), floats(&bytes, name), "{name}");
            seen += 1;
        }
    }
    assert_eq!(seen, parameters.len());
}

struct Cases {
    tokenizer: Tokenizer,
    file: Value,
}

fn cases() -> Cases {
    let read = |name: &str| fs::read_to_string(golden("chat").join(name)).unwrap();
    let options: Value = serde_json::from_str(&read("tokenizer_config.json")).unwrap();
    let options = options.as_object().unwrap().clone();
    Cases {
        tokenizer: Tokenizer::from_json_with_options(&read("tokenizer.json"), options).unwrap(),
        file: serde_json::from_str(&read("cases.json")).unwrap(),
    }
}

fn ids(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).unwrap()
}

#[test]
fn texts_have_the_ids_of_transformers() {
    let Cases { tokenizer, file } = cases();
    for case in file["texts"].as_array().unwrap() {
        let text = case["text"].as_str().unwrap();
        assert_eq!(tokenizer.encode_text(text), ids(&case["ids"]), "{text:?}");
    }
}

#[test]
fn conversations_have_the_ids_of_transformers() {
    let Cases { tokenizer, file } = cases();
    let conversations = file["conversations"].as_array().unwrap();
    assert_eq!(conversations.len(), 30);
    for case in conversations {
        let source = file["templates"][case["template"].as_str().unwrap()]
            .as_str()
            .unwrap();
        let template = ChatTemplate::new(source, &tokenizer)
            .unwrap()
            .with_thinking(case["enable_thinking"].as_bool().unwrap());
        let messages: Vec<Message> = case["messages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|message| Message {
                role: match message["role"].as_str().unwrap() {
                    "system" => Role::System,
                    "user" => Role::User,
                    "assistant" => Role::Assistant,
                    other => panic!("{other}"),
                },
                content: message["content"].as_str().unwrap().to_owned(),
            })
            .collect();
        for (prompt, key) in [(false, "ids"), (true, "ids_with_generation_prompt")] {
            let found = template.encode(&tokenizer, &messages, prompt).unwrap();
            let expected = ids(&case[key]);
            assert_eq!(
                found,
                expected,
                "{} {messages:?}\nfound    {:?}\nexpected {:?}",
                case["template"],
                tokenizer.decode(&found, false),
                tokenizer.decode(&expected, false)
            );
        }
    }
}
