//! An adapter's folder: its configuration before a whole weight file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use seed_model::{DecoderConfig, base_of_adapter, load_adapter};

const BASE: &str = r#"{"model_type":"llama","vocab_size":2,"hidden_size":2,"intermediate_size":1,
"num_hidden_layers":1,"num_attention_heads":1,"tie_word_embeddings":true}"#;

fuzz_target!(|bytes: &[u8]| {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let end = bytes.iter().position(|&byte| byte == 0xff).unwrap_or(bytes.len());
    let weights = bytes.get(end + 1..).unwrap_or_default();
    std::fs::write(path.join("adapter_config.json"), &bytes[..end]).unwrap();
    // The length before the header is right where a line ends.
    let framed = match weights.iter().position(|&byte| byte == b'\n') {
        Some(end) => [&(end as u64).to_le_bytes(), &weights[..end], &weights[end + 1..]].concat(),
        None => weights.to_vec(),
    };
    std::fs::write(path.join("adapter_model.safetensors"), framed).unwrap();
    let base = DecoderConfig::from_json(BASE).unwrap();
    match load_adapter(path, &base) {
        Ok(read) => {
            assert!(read.adapter.options().scale() >= 0.0);
            assert!(read.adapter.parameters().flat().iter().all(|value| value.is_finite()));
            // No more than four bytes in memory for two in the file.
            assert!(read.adapter.parameters().total() <= weights.len());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    if let Err(error) = base_of_adapter(path) {
        assert!(!error.to_string().is_empty());
    }
});
