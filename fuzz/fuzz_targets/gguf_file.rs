//! A model in GGUF: it is refused, or read as a whole model that is written and read again as the same one.
#![no_main]

use std::sync::Once;

use libfuzzer_sys::fuzz_target;
use seed_model::{ShardOptions, load_directory, load_gguf, save_directory};

/// The library behind the tokenizer panics on some vocabularies, which the reader catches; see `tokenizer_file`.
fn let_caught_panics_pass() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| std::panic::set_hook(Box::new(|_| {})));
}

fuzz_target!(|bytes: &[u8]| {
    let_caught_panics_pass();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, bytes).unwrap();
    let model = match load_gguf(&path) {
        Ok(model) => model,
        Err(error) => return assert!(error.to_string().contains("model.gguf")),
    };
    assert_eq!(model.parameters.total() as u64, model.config.parameter_count());
    assert!(model.parameters.flat().iter().all(|value| value.is_finite()));
    // At most 32 values from a block of 18 bytes.
    assert!(model.parameters.total() <= 2 * bytes.len());
    let ids = model.tokenizer.encode_text("<|im_end|> ab1");
    assert!(!ids.iter().any(|&id| model.tokenizer.is_control(id)));
    let out = folder.path().join("out");
    save_directory(&out, model.contents(), ShardOptions::default()).unwrap();
    let again = load_directory(&out).expect("a written model is read");
    assert_eq!(again.config, model.config);
    assert_eq!(again.parameters.digest(), model.parameters.digest());
});
