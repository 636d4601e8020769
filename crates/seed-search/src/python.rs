//! Python's rules for text, where they differ from Rust's.
//!
//! The protocol was first written in Python, and its texts and scores depend on what `str.strip`, `str.split` and
//! `json.dumps` do with unusual characters. Not for: anything that knows the protocol itself.

use std::fmt::Write as _;

/// What `str.isspace` is true for: Unicode's white space and the four ASCII separators.
pub(crate) fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
}

/// `str.strip`.
pub(crate) fn strip(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// The JSON string that `json.dumps` writes for `text`: quotes around it, every character outside printable ASCII as
/// `\uXXXX`, those beyond the basic plane as two surrogates.
pub(crate) fn json_string(text: &str) -> String {
    let mut json = String::with_capacity(text.len() + 2);
    json.push('"');
    for character in text.chars() {
        match character {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            '\u{8}' => json.push_str("\\b"),
            '\u{c}' => json.push_str("\\f"),
            ' '..='~' => json.push(character),
            other => {
                for unit in other.encode_utf16(&mut [0; 2]) {
                    // Writing to a string cannot fail.
                    let _ = write!(json, "\\u{unit:04x}");
                }
            }
        }
    }
    json.push('"');
    json
}
