//! Words of a text as Lucene's `StandardTokenizer` finds them.
//!
//! The boundaries are those of UAX #29; a piece between two of them is a token when it holds a letter, a digit, an
//! ideograph or a pictograph. Not for: lower case, stop words or stems, which come after.

use unicode_segmentation::UnicodeSegmentation;

use super::pictographs::is_pictograph;

/// Longest token in UTF-16 units (Lucene's `DEFAULT_MAX_TOKEN_LENGTH`); a longer one is cut into several.
const LONGEST_TOKEN: usize = 255;

/// The mark that makes a digit, `#` or `*` into a keycap.
const KEYCAP: char = '\u{20e3}';

/// Calls `visit` with each token in order.
pub(super) fn for_each_token(text: &str, mut visit: impl FnMut(&str)) {
    // Scripts without spaces between words (Thai, Khmer, …) come character by character from UAX #29; Lucene keeps a
    // run of them together.
    let mut run: Option<(usize, usize)> = None;
    for (start, piece) in text.split_word_bound_indices() {
        let end = start + piece.len();
        if piece.starts_with(is_written_without_spaces) {
            match &mut run {
                Some((_, run_end)) if *run_end == start => *run_end = end,
                _ => {
                    flush(text, run.replace((start, end)), &mut visit);
                }
            }
        } else {
            flush(text, run.take(), &mut visit);
            if is_token(piece) {
                visit_in_parts(piece, &mut visit);
            }
        }
    }
    flush(text, run, &mut visit);
}

fn flush(text: &str, run: Option<(usize, usize)>, visit: &mut impl FnMut(&str)) {
    if let Some(token) = run.and_then(|(start, end)| text.get(start..end)) {
        visit_in_parts(token, visit);
    }
}

/// Visits a token, cut where it is too long.
fn visit_in_parts(token: &str, visit: &mut impl FnMut(&str)) {
    if token.len() <= LONGEST_TOKEN {
        return visit(token);
    }
    let mut start = 0;
    let mut units = 0;
    for (index, character) in token.char_indices() {
        if units + character.len_utf16() > LONGEST_TOKEN {
            visit(token.get(start..index).unwrap_or_default());
            start = index;
            units = 0;
        }
        units += character.len_utf16();
    }
    visit(token.get(start..).unwrap_or_default());
}

/// Whether a piece between two word boundaries is a token: its first character decides, connectors (`_`) aside, since
/// what follows a character of another kind in one piece are its marks.
fn is_token(piece: &str) -> bool {
    let mut characters = piece.chars();
    match characters.find(|&character| !is_connector(character)) {
        None => false,
        Some(first) if first.is_ascii_alphanumeric() => true,
        Some(first) if !first.is_ascii() && (is_letter_or_digit(first) || is_pictograph(first)) => true,
        // A keycap such as `#` in a box, a flag.
        Some(first) => {
            let last = characters.next_back();
            last == Some(KEYCAP) || (is_regional_indicator(first) && last.is_some_and(is_regional_indicator))
        }
    }
}

fn is_connector(character: char) -> bool {
    matches!(
        character,
        '_' | '\u{203f}' | '\u{2040}' | '\u{2054}' | '\u{fe33}' | '\u{fe34}' | '\u{fe4d}'
            ..='\u{fe4f}' | '\u{ff3f}'
    )
}

fn is_regional_indicator(character: char) -> bool {
    ('\u{1f1e6}'..='\u{1f1ff}').contains(&character)
}

/// Letters, ideographs and decimal digits, but no other numbers (`²`, `½`, `①`), nor the voice marks of half-width
/// Katakana, which Unicode calls letters and UAX #29 marks.
fn is_letter_or_digit(character: char) -> bool {
    // Decimal digits are the numbers that UAX #29 keeps together with other digits.
    (character.is_alphabetic() && !('\u{ff9e}'..='\u{ff9f}').contains(&character))
        || (character.is_numeric() && joins_digits(character))
}

fn joins_digits(character: char) -> bool {
    let mut pair = String::from('0');
    pair.push(character);
    pair.split_word_bounds().count() == 1
}

/// The blocks of Southeast Asian scripts written without spaces (`Line_Break=Complex_Context`).
fn is_written_without_spaces(character: char) -> bool {
    matches!(u32::from(character),
        0x0e01..=0x0e3a | 0x0e40..=0x0e4e | 0x0e81..=0x0ebd | 0x0ec0..=0x0ecd | 0x0edc..=0x0edf
        | 0x1000..=0x103f | 0x1050..=0x108f | 0x109a..=0x109f | 0x1780..=0x17d3 | 0x17d7 | 0x17dc..=0x17dd
        | 0x1950..=0x1974 | 0x1980..=0x19ab | 0x19b0..=0x19c9 | 0x1a20..=0x1a5e | 0x1aa0..=0x1aad
        | 0xa9e0..=0xa9ef | 0xa9fa..=0xa9fe | 0xaa60..=0xaac2 | 0xaadb..=0xaadf)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tokens(text: &str) -> Vec<String> {
        let mut tokens = Vec::new();
        for_each_token(text, |token| tokens.push(token.to_owned()));
        tokens
    }

    #[test]
    fn words_numbers_and_pictures_are_tokens_and_punctuation_is_not() {
        assert_eq!(
            tokens("x-shaped 35.5\" can't, a_b __ 3:4 paddescription:if | ™ ★★ -"),
            [
                "x",
                "shaped",
                "35.5",
                "can't",
                "a_b",
                "3",
                "4",
                "paddescription:if",
                "™",
                "★",
                "★"
            ]
        );
    }

    #[test]
    fn numbers_that_are_no_digits_are_not_tokens() {
        assert_eq!(tokens("m² ½ ① ٣"), ["m", "٣"]);
    }

    #[test]
    fn marks_on_punctuation_do_not_make_it_a_token() {
        assert_eq!(tokens("ヽ(ﾟ∀ﾟ)ﾒ __ _a ._."), ["ヽ", "ﾒ", "_a"]);
    }

    #[test]
    fn scripts_are_cut_as_they_are_written() {
        assert_eq!(
            tokens("中文 ひら カタカナ 한국어"),
            ["中", "文", "ひ", "ら", "カタカナ", "한국어"]
        );
        assert_eq!(tokens("ภาษาไทย, ไทย"), ["ภาษาไทย", "ไทย"]);
    }

    #[test]
    fn emoji_sequences_stay_together() {
        assert_eq!(
            tokens("1\u{fe0f}\u{20e3} 🇩🇪 👩‍🔬!"),
            ["1\u{fe0f}\u{20e3}", "🇩🇪", "👩‍🔬"]
        );
    }

    #[test]
    fn a_long_token_is_cut_at_255_units() {
        let lengths = |text: &str| -> Vec<usize> {
            tokens(text)
                .iter()
                .map(|token| token.encode_utf16().count())
                .collect()
        };
        assert_eq!(lengths(&"x".repeat(600)), [255, 255, 90]);
        assert_eq!(lengths(&"é".repeat(255)), [255]);
        assert_eq!(lengths(&"𝐀".repeat(128)), [254, 2]);
    }

    proptest! {
        #[test]
        fn tokens_lie_in_the_text_in_order(text in "\\PC{0,40}") {
            let mut from = 0;
            for token in tokens(&text) {
                let place = text[from..].find(&token);
                prop_assert!(place.is_some());
                from += place.unwrap() + token.len();
            }
        }
    }
}
