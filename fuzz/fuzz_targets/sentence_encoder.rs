//! A sentence encoder's folder: its configuration, its tokenizer, or its weights, beside a whole other two.
#![no_main]

use std::sync::Once;

use libfuzzer_sys::fuzz_target;
use seed_retrieval::{EncoderOptions, SentenceEncoder};

const CONFIG: &str = r#"{"model_type":"bert","vocab_size":4,"hidden_size":2,"num_hidden_layers":1,"num_attention_heads":1,
"intermediate_size":1,"max_position_embeddings":4,"type_vocab_size":1,"layer_norm_eps":1e-12,"hidden_act":"gelu"}"#;
const TOKENIZER: &str = r#"{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,
"pre_tokenizer":{"type":"BertPreTokenizer"},"post_processor":null,"decoder":null,"model":{"type":"WordPiece",
"unk_token":"a","continuing_subword_prefix":"##","max_input_chars_per_word":9,"vocab":{"a":0,"b":1,"c":2,"##c":3}}}"#;

/// The library behind the tokenizer panics on some files, which the reader catches. The fuzzer's own hook would end the
/// process at the panic itself; without it, only panics that reach the fuzzer count.
fn let_caught_panics_pass() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| std::panic::set_hook(Box::new(|_| {})));
}

/// Weights of [`CONFIG`]: 65 numbers.
fn weights() -> Vec<u8> {
    let part = |name: &str, shape: &str| (name.to_owned(), shape.to_owned());
    let mut tensors = vec![
        part("embeddings.word_embeddings.weight", "4,2"),
        part("embeddings.position_embeddings.weight", "4,2"),
        part("embeddings.token_type_embeddings.weight", "1,2"),
        part("embeddings.LayerNorm.weight", "2"),
        part("embeddings.LayerNorm.bias", "2"),
    ];
    for (name, shape, outputs) in [
        ("attention.self.query", "2,2", "2"),
        ("attention.self.key", "2,2", "2"),
        ("attention.self.value", "2,2", "2"),
        ("attention.output.dense", "2,2", "2"),
        ("attention.output.LayerNorm", "2", "2"),
        ("intermediate.dense", "1,2", "1"),
        ("output.dense", "2,1", "2"),
        ("output.LayerNorm", "2", "2"),
    ] {
        tensors.push(part(&format!("encoder.layer.0.{name}.weight"), shape));
        tensors.push(part(&format!("encoder.layer.0.{name}.bias"), outputs));
    }
    let mut offset = 0;
    let entries: Vec<String> = tensors
        .iter()
        .map(|(name, shape)| {
            let numbers: usize = shape.split(',').map(|size| size.parse::<usize>().unwrap()).product();
            let start = offset;
            offset += 4 * numbers;
            format!(r#""{name}":{{"dtype":"F32","shape":[{shape}],"data_offsets":[{start},{offset}]}}"#)
        })
        .collect();
    let header = format!("{{{}}}", entries.join(","));
    let numbers = (0..offset / 4).flat_map(|index| (index as f32 * 0.1).sin().to_le_bytes());
    [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat().into_iter().chain(numbers).collect()
}

fuzz_target!(|input: (u8, &[u8])| {
    let_caught_panics_pass();
    let (choice, bytes) = input;
    let folder = tempfile::tempdir().unwrap();
    let parts = [
        ("config.json", CONFIG.as_bytes().to_vec()),
        ("tokenizer.json", TOKENIZER.as_bytes().to_vec()),
        ("model.safetensors", weights()),
    ];
    for (index, (name, whole)) in parts.iter().enumerate() {
        let replaced = usize::from(choice % 4) == index;
        std::fs::write(folder.path().join(name), if replaced { bytes } else { whole }).unwrap();
    }
    // The fourth choice: whole files, and the input as text.
    let encoder = SentenceEncoder::open(folder.path(), EncoderOptions::default());
    if choice % 4 == 3 {
        assert!(encoder.is_ok(), "the whole folder is read");
    }
    match encoder {
        Ok(encoder) => {
            let text = String::from_utf8_lossy(bytes);
            if let Ok(vector) = encoder.encode_queries(&[&text]) {
                assert_eq!(vector.len(), encoder.dimension());
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
