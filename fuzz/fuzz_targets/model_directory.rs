//! A model folder's weights: a safetensors file, or an index before a whole one, under a small configuration or the
//! input's own.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use seed_model::load_weights;

const CONFIG: &str = r#"{"model_type":"llama","vocab_size":2,"hidden_size":2,"intermediate_size":1,
"num_hidden_layers":1,"num_attention_heads":1,"tie_word_embeddings":true}"#;

fn write(folder: &Path, name: &str, bytes: &[u8]) {
    std::fs::write(folder.join(name), bytes).unwrap();
}

fuzz_target!(|input: (u8, &[u8])| {
    let (choice, bytes) = input;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let (config, bytes) = match bytes.iter().position(|&byte| byte == 0xff) {
        Some(end) if choice & 1 == 1 => (&bytes[..end], &bytes[end + 1..]),
        _ => (CONFIG.as_bytes(), bytes),
    };
    write(path, "config.json", config);
    // The length before the header is the input's, or right.
    let framed = |bytes: &[u8]| match bytes.iter().position(|&byte| byte == b'\n') {
        Some(end) => [&(end as u64).to_le_bytes(), &bytes[..end], &bytes[end + 1..]].concat(),
        None => bytes.to_vec(),
    };
    match choice >> 1 & 3 {
        0 => write(path, "model.safetensors", bytes),
        1 => write(path, "model.safetensors", &framed(bytes)),
        2 => write(path, "model.safetensors.index.json", bytes),
        _ => {
            let end = bytes.iter().position(|&byte| byte == 0xfe).unwrap_or(bytes.len());
            write(path, "model.safetensors.index.json", &bytes[..end]);
            write(
                path,
                "a.safetensors",
                &framed(bytes.get(end + 1..).unwrap_or_default()),
            );
        }
    }
    match load_weights(path) {
        Ok((config, parameters)) => {
            assert_eq!(parameters.total() as u64, config.parameter_count());
            assert!(parameters.flat().iter().all(|value| value.is_finite()));
            // No more than four bytes in memory for two in the file.
            assert!(parameters.total() <= bytes.len());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
