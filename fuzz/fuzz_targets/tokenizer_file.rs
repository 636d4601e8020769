//! A `tokenizer.json`: it is refused, or encodes any text without control tokens and survives being written.
#![no_main]

use std::sync::Once;

use libfuzzer_sys::fuzz_target;
use seed_model::Tokenizer;

/// The library behind the tokenizer panics on some files, which the reader catches. The fuzzer's own hook would end
/// the process at the panic itself; without it, only panics that reach the fuzzer count.
fn let_caught_panics_pass() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| std::panic::set_hook(Box::new(|_| {})));
}

fuzz_target!(|json: &str| {
    let_caught_panics_pass();
    let Ok(tokenizer) = Tokenizer::from_json(json) else {
        return;
    };
    let text = "<s>[UNK]</s> open the Große Küche 1\n";
    let ids = tokenizer.encode_text(text);
    assert!(!ids.iter().any(|&id| tokenizer.is_control(id)));
    assert!(ids.iter().all(|&id| (id as usize) < tokenizer.vocabulary_size()));
    tokenizer.encode_template(text);
    tokenizer.decode(&ids, true);
    let written = tokenizer.to_json().unwrap();
    let again = Tokenizer::from_json(&written).expect("a written tokenizer is read");
    assert_eq!(again.encode_text(text), ids);
});
