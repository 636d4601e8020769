//! Python's ways with text: white space, numbers, `repr`, JSON.
//!
//! Not for: lower and upper case, where Rust's functions follow the same Unicode rules.

use std::fmt::Write as _;

/// Characters that `str.strip` takes away: Unicode's white space and the four ASCII separators.
fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
}

/// `text.strip()`.
pub(crate) fn strip(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// `str(number)` of a float: the shortest digits that give the number back, with a decimal point.
pub(crate) fn float_text(number: f64) -> String {
    let size = number.abs();
    if number.is_finite() && size != 0.0 && !(1e-4..1e16).contains(&size) {
        // Python writes at least two digits of the exponent, and its sign.
        let text = format!("{number:e}");
        if let Some((digits, exponent)) = text.split_once('e') {
            let (sign, exponent) = exponent
                .strip_prefix('-')
                .map_or(('+', exponent), |rest| ('-', rest));
            return format!("{digits}e{sign}{exponent:0>2}");
        }
    }
    format!("{number:?}")
}

/// `repr(text)`.
pub(crate) fn repr(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    let mut out = String::with_capacity(text.len() + 2);
    out.push(quote);
    for character in text.chars() {
        let code = u32::from(character);
        // Writing to a string cannot fail.
        let _ = match character {
            '\\' => write!(out, "\\\\"),
            '\n' => write!(out, "\\n"),
            '\r' => write!(out, "\\r"),
            '\t' => write!(out, "\\t"),
            _ if character == quote => write!(out, "\\{character}"),
            _ if is_printable(character) => write!(out, "{character}"),
            _ if code < 0x100 => write!(out, "\\x{code:02x}"),
            _ if code < 0x1_0000 => write!(out, "\\u{code:04x}"),
            _ => write!(out, "\\U{code:08x}"),
        };
    }
    out.push(quote);
    out
}

/// `str.isprintable` of one character: no control, format, private-use or separator character but the space.
/// Characters that no Unicode version has assigned count as printable here.
fn is_printable(character: char) -> bool {
    if character == ' ' {
        return true;
    }
    let format_or_private = matches!(u32::from(character),
        0xad | 0x600..=0x605 | 0x61c | 0x6dd | 0x70f | 0x890..=0x891 | 0x8e2 | 0x180e | 0x200b..=0x200f
        | 0x202a..=0x202e | 0x2060..=0x206f | 0xe000..=0xf8ff | 0xfeff | 0xfff9..=0xfffb | 0x1_10bd | 0x1_10cd
        | 0x1_3430..=0x1_343f | 0x1_bca0..=0x1_bca3 | 0x1_d173..=0x1_d17a | 0xe_0001..=0xe_007f | 0xf_0000..);
    !(character.is_control() || is_space(character) || format_or_private)
}

/// A JSON object as Flask's `tojson` filter writes it: keys sorted, ASCII only, `<`, `>`, `&` and `'` escaped too.
pub(crate) fn json_text<'a>(entries: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut entries: Vec<(&str, &str)> = entries.into_iter().collect();
    entries.sort_unstable();
    let mut out = String::from("{");
    for (index, (key, value)) in entries.into_iter().enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        json_string(&mut out, key);
        out.push_str(": ");
        json_string(&mut out, value);
    }
    out.push('}');
    out
}

fn json_string(out: &mut String, text: &str) {
    out.push('"');
    let mut units = [0; 2];
    for character in text.chars() {
        let _ = match character {
            '"' => write!(out, "\\\""),
            '\\' => write!(out, "\\\\"),
            '\n' => write!(out, "\\n"),
            '\r' => write!(out, "\\r"),
            '\t' => write!(out, "\\t"),
            '\u{8}' => write!(out, "\\b"),
            '\u{c}' => write!(out, "\\f"),
            ' '..='~' if !matches!(character, '<' | '>' | '&' | '\'') => write!(out, "{character}"),
            _ => {
                for unit in character.encode_utf16(&mut units) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
                Ok(())
            }
        };
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From CPython 3.11.
    #[test]
    fn numbers_are_written_as_python_writes_them() {
        let written: Vec<String> = [59.5, 100.0, 0.0, 1e-4, 1.5e-5, 1e15, 1e16, 2.5e22, 1.0 / 3.0]
            .into_iter()
            .map(float_text)
            .collect();
        assert_eq!(
            written,
            [
                "59.5",
                "100.0",
                "0.0",
                "0.0001",
                "1.5e-05",
                "1000000000000000.0",
                "1e+16",
                "2.5e+22",
                "0.3333333333333333"
            ]
        );
    }

    /// From CPython 3.11.
    #[test]
    fn representations_are_pythons() {
        for (text, expected) in [
            ("coal grey", "'coal grey'"),
            ("20''x20''", "\"20''x20''\""),
            ("5' 3\"", "'5\\' 3\"'"),
            ("wine\u{a0}red", "'wine\\xa0red'"),
            ("\u{200e}large", "'\\u200elarge'"),
            ("a\\b\n", "'a\\\\b\\n'"),
            ("café 💡", "'café 💡'"),
            ("\u{e0041}", "'\\U000e0041'"),
        ] {
            assert_eq!(repr(text), expected);
        }
    }

    /// From Flask 2.1.
    #[test]
    fn json_is_flasks() {
        assert_eq!(
            json_text([("size", "5\" <b>"), ("color", "black&grey's 💡é")]),
            r#"{"color": "black\u0026grey\u0027s \ud83d\udca1\u00e9", "size": "5\" \u003cb\u003e"}"#
        );
    }
}
