//! An exported directory in the hands of transformers (`tests/golden/check_export.py`).
//!
//! Runs where the environment variable `SEED_PYTHON` names an interpreter that has torch and transformers.

use std::env;
use std::path::Path;
use std::process::Command;

use fs_err as fs;
use seed_model::{
    CHATML_TEMPLATE, CHATML_TOKENS, ChatTemplate, Decoder, DecoderConfig, Family, Message, ModelDirectory,
    Parameters, RopeScaling, ShardOptions, load_gguf, save_directory, train_byte_level_bpe,
};
use seed_random::{Draw, RandomKey};
use serde_json::json;

const TEXTS: [&str; 5] = [
    "You open the drawer 12. In it, you see a keychain 2.",
    "It's 中文, and 🙂 …\t\r\n  x",
    "<|im_end|>\n<|im_start|>system",
    "   ",
    "\n\n",
];

pub(crate) fn model(family: Family, rope_scaling: RopeScaling) -> ModelDirectory {
    let config = DecoderConfig {
        family,
        vocabulary_size: 300,
        hidden_size: 24,
        intermediate_size: 40,
        layers: 2,
        query_heads: 4,
        key_value_heads: 2,
        head_dim: 8,
        rms_norm_epsilon: 1e-5,
        rope_theta: 500.0,
        rope_scaling,
        max_positions: 64,
        tied_embeddings: family == Family::Qwen2,
        attention_bias: family.attention_bias(),
        query_key_norm: family.query_key_norm(),
        initializer_range: 0.3,
        begin_token: None,
        end_tokens: vec![2],
    };
    let mut parameters = Parameters::initialise(&config, RandomKey::new(1));
    let mut generator = RandomKey::new(2).generator();
    for index in 0..parameters.len() {
        if parameters.shape(index).len() == 1 {
            for value in parameters.get_mut(index) {
                *value += (0.4 * generator.unit() - 0.2) as f32;
            }
        }
    }
    let tokenizer = train_byte_level_bpe(TEXTS.repeat(2), 290, &CHATML_TOKENS).unwrap();
    let chat = ChatTemplate::new(CHATML_TEMPLATE, &tokenizer).unwrap();
    ModelDirectory::new(config, parameters, tokenizer, Some(chat)).unwrap()
}

/// Writes the model, and what it computes of `sequences` and other cases, to `place`.
fn export(
    model: &ModelDirectory,
    sequences: Vec<Vec<u32>>,
    tolerance: f64,
    max_shard_bytes: u64,
    place: &Path,
) {
    let options = ShardOptions {
        max_shard_bytes,
        ..ShardOptions::default()
    };
    save_directory(place.join("model"), model.contents(), options).unwrap();
    let decoder = Decoder::new(model.config.clone(), model.parameters.clone()).unwrap();
    let sequences: Vec<_> = sequences
        .into_iter()
        .map(|ids| json!({"logits": decoder.logits(&ids).unwrap(), "ids": ids}))
        .collect();
    let texts: Vec<_> = TEXTS
        .iter()
        .map(|text| json!({"text": text, "ids": model.tokenizer.encode_text(text)}))
        .collect();
    let chat = model.chat.as_ref().unwrap();
    let conversations: Vec<_> = [
        vec![Message::system(TEXTS[0]), Message::user(TEXTS[2])],
        vec![Message::user(TEXTS[1]), Message::assistant(TEXTS[0]), Message::user(TEXTS[4])],
    ]
    .into_iter()
    .map(|messages| json!({"ids": chat.encode(&model.tokenizer, &messages, true).unwrap(), "messages": messages}))
    .collect();
    let cases = json!({
        "sequences": sequences,
        "tolerance": tolerance,
        "texts": texts,
        "conversations": conversations,
        "end_tokens": model.end_tokens,
        "total_bytes": 4 * model.parameters.total(),
        "tied": model.config.tied_embeddings,
    });
    fs::write(place.join("cases.json"), cases.to_string()).unwrap();
}

/// Lets transformers load and compute what `export` has written to `place`.
fn check(python: &str, place: &Path) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/check_export.py");
    let output = Command::new(python)
        .arg(&script)
        .arg(place.join("model"))
        .arg(place.join("cases.json"))
        .output()
        .unwrap();
    let (out, error) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{out}{error}");
    println!("{out}");
}

#[test]
fn transformers_computes_the_same_from_smollm2_imported() {
    let Some(file) = super::real::smollm2() else {
        return;
    };
    let Ok(python) = env::var("SEED_PYTHON") else {
        println!("skipped: SEED_PYTHON names no interpreter with torch and transformers");
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let model = load_gguf(file).unwrap();
    let text = "The capital of France is Paris, which lies on the Seine.";
    // Ids without sense drive the residual stream highest. PyTorch's own f32 is up to 2e-4 from its f64 on such.
    let sequences = vec![
        model.tokenizer.encode_text(text),
        (0..48).map(|i| i * 7919 % 49_152).collect(),
        (0..48).map(|i| (i * i * 104_729 + 13) % 49_152).collect(),
    ];
    export(&model, sequences, 4e-4, u64::MAX, place.path());
    check(&python, place.path());
}

#[test]
fn transformers_computes_the_same_from_an_exported_directory() {
    let Ok(python) = env::var("SEED_PYTHON") else {
        println!("skipped: SEED_PYTHON names no interpreter with torch and transformers");
        return;
    };
    let llama3 = RopeScaling::Llama3 {
        factor: 8.0,
        low_frequency_factor: 1.0,
        high_frequency_factor: 4.0,
        original_max_positions: 32,
    };
    let yarn = RopeScaling::Yarn {
        factor: 4.0,
        original_max_positions: 16,
        attention_factor: None,
        beta_fast: 32.0,
        beta_slow: 1.0,
        mscale: None,
        mscale_all_dimensions: None,
        truncate: true,
    };
    for (family, scaling, max_shard_bytes) in [
        (Family::Llama, llama3, u64::MAX),
        (Family::Qwen2, RopeScaling::None, 20_000),
        (Family::Qwen3, yarn, 20_000),
    ] {
        let place = tempfile::tempdir().unwrap();
        let sequences = vec![
            vec![5, 17, 255, 3, 99, 280, 1, 42],
            (0..40).map(|i| i * 7 % 300).collect(),
        ];
        let model = model(family, scaling);
        export(&model, sequences, 1e-4, max_shard_bytes, place.path());
        check(&python, place.path());
    }
}
