use std::num::NonZeroUsize;
use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Tokenizer, train_byte_level_bpe, train_byte_level_bpe_with_numbers};
use crate::chat::CHATML_TOKENS;
use crate::error::ModelError;

const TEXTS: [&str; 4] = [
    "You open the drawer 1. The drawer 1 is open. In it, you see a keychain 2.",
    "You are in the middle of a room. Looking quickly around you, you see a drawer 2, a drawer 1.",
    "> take keychain 2 from drawer 1\nYou pick up the keychain 2 from the drawer 1.\n\n",
    "The im_start and the im_end of an end. <|not a token|>",
];

static HOUSEHOLD: LazyLock<Tokenizer> =
    LazyLock::new(|| train_byte_level_bpe(TEXTS.repeat(2), 330, &CHATML_TOKENS).unwrap());

fn household() -> Tokenizer {
    HOUSEHOLD.clone()
}

/// Pieces from which control tokens could be put together, and texts that merely look like them.
fn adversarial() -> impl Strategy<Value = String> {
    let fragment = prop_oneof![
        prop::sample::select(vec![
            "<|im_end|>",
            "<|im_start|>",
            "<|endoftext|>",
            "<|im_",
            "end|>",
            "<",
            "|",
            "im_end",
            "|>",
            "<|",
            "start",
            "\n",
            " ",
            "system",
            "<|im_end|",
            "im_start|>",
            "<<|im_end|>>",
        ])
        .prop_map(str::to_owned),
        ".{0,6}",
    ];
    prop::collection::vec(fragment, 0..12).prop_map(|fragments| fragments.concat())
}

proptest! {
    #[test]
    fn text_never_yields_a_control_token_and_decodes_to_itself(text in adversarial()) {
        let tokenizer = household();
        let ids = tokenizer.encode_text(&text);
        prop_assert!(ids.iter().all(|&id| !tokenizer.is_control(id)), "{ids:?}");
        prop_assert_eq!(tokenizer.decode(&ids, false), text.clone());
        prop_assert_eq!(tokenizer.decode(&ids, true), text);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in ".{0,100}", cut in 0usize..4000) {
        let _ = Tokenizer::from_json(&text);
        let whole = household().to_json().unwrap();
        if let Some(start) = whole.get(..cut) {
            prop_assert!(Tokenizer::from_json(start).is_err());
        }
    }
}

#[test]
fn templates_mean_the_tokens_they_spell() {
    let tokenizer = household();
    let [start, end, _] = CHATML_TOKENS.map(|token| tokenizer.token_id(token).unwrap());
    assert_eq!([start, end], [0, 1]);
    let ids = tokenizer.encode_template("<|im_start|>user\nopen<|im_end|>");
    assert_eq!((ids.first(), ids.last()), (Some(&start), Some(&end)));
    assert_eq!(ids[1..ids.len() - 1], tokenizer.encode_text("user\nopen"));
    assert_eq!(tokenizer.decode(&ids, false), "<|im_start|>user\nopen<|im_end|>");
    assert_eq!(tokenizer.decode(&ids, true), "user\nopen");
    // A padded vocabulary has ids that no token owns.
    let bang = tokenizer.token_id("!").unwrap();
    assert_eq!(tokenizer.decode(&[end, 4_000_000, bang], true), "!");
    assert_eq!(tokenizer.encode_template(""), Vec::<u32>::new());
    assert_eq!(tokenizer.encode_text(""), Vec::<u32>::new());
}

#[test]
fn writing_and_reading_changes_nothing() {
    let tokenizer = household();
    let json = tokenizer.to_json().unwrap();
    let again = Tokenizer::from_json(&json).unwrap();
    assert_eq!(again.to_json().unwrap(), json);
    assert_eq!(again.vocabulary_size(), 330);
    for text in TEXTS {
        assert_eq!(again.encode_text(text), tokenizer.encode_text(text));
        assert!(
            tokenizer.encode_text(text).len() < text.len() / 2,
            "merges are used"
        );
    }
}

/// A vocabulary that can spell `<s>` by merges and marks it as a control token, with options that must not act.
fn spelling() -> Value {
    json!({
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
        "padding": {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
            "pad_type_id": 0, "pad_token": "<"},
        "added_tokens": [
            {"id": 4, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": true, "normalized": false,
                "special": true},
            {"id": 7, "content": "</t>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
                "special": false},
        ],
        "normalizer": null, "pre_tokenizer": null, "post_processor": null,
        "decoder": {"type": "Fuse"},
        "model": {"type": "BPE", "dropout": 0.9, "unk_token": "?", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": {"<": 0, "s": 1, ">": 2, "<s": 3, "<s>": 4, "?": 5, " ": 6},
            "merges": [["<", "s"], ["<s", ">"]]},
    })
}

#[test]
fn merges_that_spell_a_control_token_are_cut() {
    let tokenizer = Tokenizer::from_json(&spelling().to_string()).unwrap();
    assert_eq!(tokenizer.encode_template("<s>s"), [4, 1]);
    assert_eq!(tokenizer.encode_text("<s>s"), [0, 1, 2, 1]);
    assert_eq!(tokenizer.encode_text("<<s><s>"), [0, 0, 1, 2, 0, 1, 2]);
    assert_eq!(
        tokenizer.encode_text("<s"),
        [3],
        "no truncation, padding or drop-out"
    );
    assert_eq!(
        tokenizer.encode_template("<s>  s"),
        [4, 1],
        "this token swallows white space after it"
    );
}

#[test]
fn end_tokens_can_be_made_control_tokens() {
    let tokenizer = Tokenizer::from_json(&spelling().to_string()).unwrap();
    assert_eq!(tokenizer.encode_text("s</t>"), [1, 7]);
    assert_eq!(tokenizer.decode(&[1, 7], true), "s</t>");
    let with_end = tokenizer.with_control_tokens(&[7, 99]);
    assert!(with_end.is_control(7) && !with_end.is_control(99));
    let ids = with_end.encode_text("s</t>");
    assert!(!ids.contains(&7), "{ids:?}");
    assert_eq!(with_end.encode_template("s</t>"), [1, 7]);
    assert_eq!(with_end.decode(&[1, 7], true), "s");
}

#[test]
fn unknown_text_is_no_control_token() {
    let mut file = spelling();
    file["added_tokens"][0] = json!({"id": 5, "content": "?", "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false, "special": true});
    let tokenizer = Tokenizer::from_json(&file.to_string()).unwrap();
    assert_eq!(tokenizer.encode_text("sxs"), [1, 5, 1]);
}

#[test]
fn unusable_files_are_refused() {
    for text in ["", "{}", "[]", "null", r#"{"version": "9.9"}"#] {
        assert!(
            matches!(Tokenizer::from_json(text), Err(ModelError::Tokenizer { .. })),
            "{text}"
        );
    }
    let mut file = spelling();
    file["model"]["unk_token"] = json!("absent");
    let error = Tokenizer::from_json(&file.to_string()).unwrap_err().to_string();
    assert!(error.contains("cannot encode every text"), "{error}");
}

#[test]
fn merges_are_the_most_frequent_pairs_ties_by_smaller_ids() {
    let tokenizer = train_byte_level_bpe(["aaabdaaabac", "aaabdaaabac"], 1000, &[]).unwrap();
    let file: Value = serde_json::from_str(&tokenizer.to_json().unwrap()).unwrap();
    // Eight of `a a`; then four each of `a b` and `aa a`; then four of `aa ab`; then two of everything that is left.
    let merges: Vec<(String, String)> = serde_json::from_value(file["model"]["merges"].clone()).unwrap();
    let merges: Vec<String> = merges
        .iter()
        .map(|(left, right)| format!("{left} {right}"))
        .collect();
    assert_eq!(
        merges,
        [
            "a a",
            "a b",
            "aa ab",
            "a c",
            "d aaab",
            "aaab daaab",
            "aaabdaaab ac"
        ]
    );
    assert_eq!(tokenizer.vocabulary_size(), 256 + 7);
    assert_eq!(tokenizer.encode_text("aaabdaaabac").len(), 1);
}

#[test]
fn numbers_are_single_digits_unless_longer_tokens_are_asked_for() {
    let texts = ["item 00192 and item 00195 for 12345678"; 3];
    let pieces = |number_digits| {
        let digits = NonZeroUsize::new(number_digits).unwrap();
        let tokenizer = train_byte_level_bpe_with_numbers(texts, 1000, &[], digits).unwrap();
        tokenizer
            .encode_text("00192 12345678")
            .into_iter()
            .map(|id| tokenizer.decode(&[id], false))
            .collect::<Vec<_>>()
    };
    assert_eq!(pieces(1).len(), 5 + 1 + 8);
    assert_eq!(pieces(3), ["001", "92", " ", "123", "456", "78"]);
    assert_eq!(pieces(5), ["00192", " ", "12345", "678"]);
    let qwen = train_byte_level_bpe(texts, 1000, &[]).unwrap().to_json().unwrap();
    assert!(qwen.contains(r"|\\p{N}|"), "{qwen}");
}

#[test]
fn training_gives_the_same_bytes_whatever_the_order_and_the_threads() {
    // Random words over three letters: full of ties and of merges that spell the same token in two ways.
    let mut state = 1u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let texts: Vec<String> = (0..400)
        .map(|_| {
            (0..3 + next() % 10)
                .map(|_| char::from(b'a' + (next() % 3) as u8))
                .collect()
        })
        .collect();
    let json = |texts: &[String]| {
        train_byte_level_bpe(texts, 600, &CHATML_TOKENS)
            .unwrap()
            .to_json()
            .unwrap()
    };
    let expected = json(&texts);
    let mut reversed = texts.clone();
    reversed.reverse();
    for _ in 0..5 {
        assert_eq!(json(&texts), expected);
        assert_eq!(json(&reversed), expected);
    }
    let other_thread = std::thread::spawn(move || json(&texts)).join().unwrap();
    assert_eq!(other_thread, expected);
}

#[test]
fn special_tokens_are_never_learned_from_text() {
    let tokenizer = train_byte_level_bpe(["hello hello hello hello"; 4], 300, &["hello", "hello"]).unwrap();
    assert_eq!(tokenizer.token_id("hello"), Some(0));
    let ids = tokenizer.encode_text("hello hello");
    assert!(!ids.contains(&0), "{ids:?}");
    assert_eq!(tokenizer.decode(&ids, false), "hello hello");
}

#[test]
fn impossible_trainings_are_refused() {
    let error = train_byte_level_bpe(TEXTS, 258, &CHATML_TOKENS).unwrap_err();
    assert!(matches!(
        error,
        ModelError::VocabularyTooSmall {
            asked: 258,
            special: 3,
            least: 259
        }
    ));
    assert!(train_byte_level_bpe(TEXTS, 259, &CHATML_TOKENS).is_ok());
    assert!(matches!(
        train_byte_level_bpe(TEXTS, 400, &["x"]),
        Err(ModelError::Tokenizer { .. })
    ));
}

#[test]
fn two_tokens_of_one_id_are_refused() {
    let file = |open: u32| {
        format!(
            r#"{{"version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": {{"type": "Whitespace"}},
            "post_processor": null, "decoder": null, "model": {{"type": "WordLevel", "unk_token": "[UNK]",
            "vocab": {{"[UNK]": 1, "open": {open}, "the": 0}}}}}}"#
        )
    };
    let tokenizer = Tokenizer::from_json(&file(2)).unwrap();
    assert_eq!(tokenizer.encode_text("open the door"), [2, 0, 1]);
    assert_eq!(
        Tokenizer::from_json(&file(1)).unwrap_err().to_string(),
        "the tokenizer cannot be used: its tokens `[UNK]` and `open` have the same id `1`"
    );
}
