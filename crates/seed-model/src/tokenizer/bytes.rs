//! The bytes that single tokens stand for, and the tokens that a tokenizer puts around a text.
//!
//! A character of several bytes can lie in several tokens, so a text that arrives token by token is put together from
//! bytes. Not for: whole sequences, which [`Tokenizer::decode`] turns into text.

use tokenizers::DecoderWrapper;

use super::Tokenizer;

/// How the names of tokens spell bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Spelling {
    /// Every character is the stand-in of a byte.
    byte_level: bool,
    /// `<0x0A>` is the byte 10.
    byte_fallback: bool,
    /// `▁` is a space.
    metaspace: bool,
}

impl Tokenizer {
    /// The bytes of a token's text: of a control token its spelling, of an unknown id none.
    ///
    /// For byte-level tokenizers the bytes of a sequence, read as UTF-8, are the text that [`Tokenizer::decode`] gives.
    /// Others take a space from the beginning of a text, which a token alone cannot know; it is kept here.
    pub fn token_bytes(&self, id: u32) -> Vec<u8> {
        let Some(name) = self.token_name(id) else {
            return Vec::new();
        };
        let added = self.shared.tokenizer.get_added_vocabulary();
        if added.is_special_token(&name) || self.is_control(id) {
            return name.into_bytes();
        }
        let spelling = self.spelling();
        if spelling.byte_level {
            let bytes: Option<Vec<u8>> = name.chars().map(byte_of_stand_in).collect();
            return bytes.unwrap_or_else(|| name.into_bytes());
        }
        if spelling.byte_fallback
            && let Some(byte) = fallback_byte(&name)
        {
            return vec![byte];
        }
        if spelling.metaspace {
            return name.replace('\u{2581}', " ").into_bytes();
        }
        self.decode(&[id], false).into_bytes()
    }

    /// The ids which the tokenizer's own post-processing puts before a text, such as a begin-of-text token; empty for
    /// most byte-level tokenizers.
    pub fn opening_tokens(&self) -> Vec<u32> {
        let ids = |special| {
            let encoding = self.shared.tokenizer.encode_fast("a", special);
            encoding.map_or_else(|_| Vec::new(), |encoding| encoding.get_ids().to_vec())
        };
        let (mut with, plain) = (ids(true), ids(false));
        let found = with.windows(plain.len().max(1)).position(|part| part == plain);
        with.truncate(found.unwrap_or(0));
        with
    }

    fn spelling(&self) -> Spelling {
        let mut spelling = Spelling::default();
        if let Some(decoder) = self.shared.tokenizer.get_decoder() {
            spelling.read(decoder);
        }
        spelling
    }
}

impl Spelling {
    fn read(&mut self, decoder: &DecoderWrapper) {
        match decoder {
            DecoderWrapper::ByteLevel(_) => self.byte_level = true,
            DecoderWrapper::ByteFallback(_) => self.byte_fallback = true,
            DecoderWrapper::Metaspace(_) | DecoderWrapper::Replace(_) => self.metaspace = true,
            DecoderWrapper::Sequence(sequence) => {
                for part in sequence.get_decoders() {
                    self.read(part);
                }
            }
            _ => {}
        }
    }
}

/// The byte that a character of a byte-level token's name stands for: printable characters of Latin-1 stand for
/// themselves, the other bytes follow from U+0100 on (GPT-2's table).
fn byte_of_stand_in(character: char) -> Option<u8> {
    let shown = |byte: u8| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let code = u32::from(character);
    match u8::try_from(code) {
        Ok(byte) => shown(byte).then_some(byte),
        Err(_) => (0..=255u8)
            .filter(|&byte| !shown(byte))
            .nth(code.checked_sub(256)? as usize),
    }
}

/// The byte in `<0x0A>`.
fn fallback_byte(name: &str) -> Option<u8> {
    let digits = name.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2)
        .then(|| u8::from_str_radix(digits, 16).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::tokenizer::train_byte_level_bpe;

    #[test]
    fn every_byte_has_one_stand_in() {
        let alphabet = tokenizers::pre_tokenizers::byte_level::ByteLevel::alphabet();
        let mut bytes: Vec<u8> = alphabet.into_iter().filter_map(byte_of_stand_in).collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
        assert_eq!(byte_of_stand_in('\u{120}'), Some(b' '));
        assert_eq!([' ', '\u{ad}', '\u{144}'].map(byte_of_stand_in), [None; 3]);
    }

    #[test]
    fn bytes_of_a_tokenizer_with_byte_fallback() {
        let json = json!({
            "version": "1.0",
            "added_tokens": [{"id": 0, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true}],
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}},
            },
            "decoder": {"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": "\u{2581}"}, "content": " "},
                {"type": "ByteFallback"}, {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ]},
            "model": {"type": "BPE", "unk_token": "<unk>", "byte_fallback": true, "merges": [],
                "vocab": {"<s>": 0, "<unk>": 1, "<0x0A>": 2, "\u{2581}a": 3, "a": 4, "<0x0>": 5}},
        });
        let tokenizer = Tokenizer::from_json(&json.to_string()).unwrap();
        let bytes: Vec<Vec<u8>> = [0, 2, 3, 4, 5, 99]
            .iter()
            .map(|&id| tokenizer.token_bytes(id))
            .collect();
        assert_eq!(bytes, [b"<s>".as_slice(), b"\n", b" a", b"a", b"<0x0>", b""]);
        assert_eq!(tokenizer.opening_tokens(), [0]);
    }

    proptest! {
        #[test]
        fn bytes_of_byte_level_tokens_make_the_decoded_text(ids in prop::collection::vec(0u32..310, 0..40)) {
            let texts = ["It's \u{4e2d}\u{6587}, and \u{1f642} again and again \u{4e2d}\u{6587}"; 3];
            let tokenizer = train_byte_level_bpe(texts, 300, &["<|im_end|>"]).unwrap();
            let bytes: Vec<u8> = ids
                .iter()
                .filter(|&&id| !tokenizer.is_control(id))
                .flat_map(|&id| tokenizer.token_bytes(id))
                .collect();
            prop_assert_eq!(String::from_utf8_lossy(&bytes).into_owned(), tokenizer.decode(&ids, true));
            prop_assert!(tokenizer.opening_tokens().is_empty());
        }
    }
}
