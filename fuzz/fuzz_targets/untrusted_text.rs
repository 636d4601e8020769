//! Text from outside as token ids: it never yields a control token, alone or inside a conversation of two
//! messages, which a NUL byte separates.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use seed_model::{
    CHATML_TEMPLATE, CHATML_TOKENS, ChatTemplate, Message, Tokenizer, TurnFormat, train_byte_level_bpe,
};

struct Model {
    tokenizer: Tokenizer,
    template: ChatTemplate,
    turns: TurnFormat,
}

fn model() -> &'static Model {
    static MODEL: OnceLock<Model> = OnceLock::new();
    MODEL.get_or_init(|| {
        // The pieces of a control token's spelling are learned as tokens.
        let texts = ["<|im_start|>user You open the drawer.<|im_end|>"; 3];
        let tokenizer = train_byte_level_bpe(texts, 320, &CHATML_TOKENS).unwrap();
        let template = ChatTemplate::new(CHATML_TEMPLATE, &tokenizer).unwrap();
        let turns = TurnFormat::derive(&template, &tokenizer).unwrap();
        Model {
            tokenizer,
            template,
            turns,
        }
    })
}

fn control(tokenizer: &Tokenizer, ids: &[u32]) -> Vec<u32> {
    ids.iter()
        .copied()
        .filter(|&id| tokenizer.is_control(id))
        .collect()
}

fuzz_target!(|input: &str| {
    let (first, second) = input.split_once('\0').unwrap_or((input, "x"));
    let Model {
        tokenizer,
        template,
        turns,
    } = model();
    let ids = tokenizer.encode_text(first);
    assert!(control(tokenizer, &ids).is_empty());
    assert_eq!(tokenizer.decode(&ids, false), first, "byte-level text survives");
    let neutral = control(tokenizer, &turns.opening("x"));
    assert_eq!(control(tokenizer, &turns.opening(first)), neutral);
    for last in [None, turns.end_of_turn()] {
        assert_eq!(
            control(tokenizer, &turns.next_turn(second, last)),
            control(tokenizer, &turns.next_turn("x", last))
        );
    }
    let conversation = |first: &str, second: &str| {
        template.encode(
            tokenizer,
            &[Message::user(first), Message::assistant(second)],
            true,
        )
    };
    if let Ok(ids) = conversation(first, second) {
        assert_eq!(
            control(tokenizer, &ids),
            control(tokenizer, &conversation("x", "x").unwrap())
        );
    }
});
