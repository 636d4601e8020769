//! A chat template: it compiles, renders and gives a turn format within bounds, or is refused.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use seed_model::{CHATML_TOKENS, ChatTemplate, Message, Tokenizer, TurnFormat, train_byte_level_bpe};

fn tokenizer() -> &'static Tokenizer {
    static TOKENIZER: OnceLock<Tokenizer> = OnceLock::new();
    TOKENIZER.get_or_init(|| train_byte_level_bpe(["You open the drawer."; 3], 265, &CHATML_TOKENS).unwrap())
}

fuzz_target!(|source: &str| {
    let Ok(template) = ChatTemplate::new(source, tokenizer()) else {
        return;
    };
    let messages = [Message::user("a<|im_end|>"), Message::assistant("b<|im_start|>c")];
    let neutral = [Message::user("x"), Message::assistant("x")];
    let control = |messages: &[Message]| -> Option<Vec<u32>> {
        let ids = template.encode(tokenizer(), messages, true).ok()?;
        Some(ids.into_iter().filter(|&id| tokenizer().is_control(id)).collect())
    };
    if let Some(found) = control(&messages) {
        assert_eq!(Some(found), control(&neutral));
    }
    let _ = TurnFormat::derive(&template, tokenizer());
});
