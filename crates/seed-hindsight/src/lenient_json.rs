//! A tolerant reader of JSON-like objects inside arbitrary text.
//!
//! Accepts what language models write instead of JSON: objects amid prose, trailing commas, raw control characters
//! inside strings, and (in the literal dialect) Python dictionaries. It keeps strings and objects, which is all an
//! analysis needs, and skips over other values. It never panics, nests to a fixed depth, and its work is bounded by
//! a multiple of the input length.
//!
//! Not for: general JSON; where a document is strict, `serde_json` reads it.

/// Objects and arrays nest at most this deep.
const MAX_DEPTH: usize = 32;
/// Characters read in all attempts together, as a multiple of the text's length.
const WORK_FACTOR: usize = 16;

/// What counts as an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Double-quoted strings; trailing commas and control characters allowed.
    Json,
    /// Also single-quoted strings and `True`, `False`, `None`.
    Literal,
}

/// A value; only what an analysis needs is kept.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Lenient {
    Text(String),
    Object(Vec<(String, Self)>),
    List(Vec<Self>),
    Other,
}

impl Lenient {
    /// The last value under `key`, as repeated keys behave in JSON readers.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Object(entries) => entries
                .iter()
                .rev()
                .find(|(name, _)| name == key)
                .map(|(_, value)| value),
            Self::Text(_) | Self::List(_) | Self::Other => None,
        }
    }
}

/// Every object that can be read at a `{` of `text`, by position; nested ones follow the object that holds them.
pub(crate) fn objects(text: &str, dialect: Dialect) -> Vec<Lenient> {
    let mut reader = Reader {
        text,
        position: 0,
        depth: 0,
        dialect,
        work: text.len().saturating_mul(WORK_FACTOR).saturating_add(1024),
    };
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(offset) = text.get(from..).and_then(|rest| rest.find('{')) {
        let start = from + offset;
        reader.position = start;
        reader.depth = 0;
        match reader.value() {
            Some(object) => {
                flatten(object, &mut found);
                from = reader.position.max(start + 1);
            }
            None if reader.work == 0 => break,
            None => from = start + 1,
        }
    }
    found
}

/// Lists an object and then the objects inside it.
fn flatten(value: Lenient, found: &mut Vec<Lenient>) {
    let inner: Vec<Lenient> = match &value {
        Lenient::Text(_) | Lenient::Other => return,
        Lenient::List(items) => items.clone(),
        Lenient::Object(entries) => entries.iter().map(|(_, value)| value.clone()).collect(),
    };
    if matches!(value, Lenient::Object(_)) {
        found.push(value);
    }
    for value in inner {
        flatten(value, found);
    }
}

struct Reader<'a> {
    text: &'a str,
    position: usize,
    depth: usize,
    dialect: Dialect,
    /// Characters that may still be read.
    work: usize,
}

/// Every method returns `None` when the text is not of the dialect.
impl Reader<'_> {
    fn peek(&self) -> Option<char> {
        self.text.get(self.position..)?.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        self.work = self.work.checked_sub(1)?;
        let found = self.peek()?;
        self.position += found.len_utf8();
        Some(found)
    }

    fn skip_space(&mut self) -> Option<()> {
        while self.peek().is_some_and(char::is_whitespace) {
            self.next()?;
        }
        Some(())
    }

    fn take(&mut self, expected: char) -> Option<()> {
        (self.next()? == expected).then_some(())
    }

    fn value(&mut self) -> Option<Lenient> {
        self.skip_space()?;
        match self.peek()? {
            '{' => self.nested(Self::object),
            '[' => self.nested(Self::array),
            quote if self.is_quote(quote) => self.string().map(Lenient::Text),
            _ => self.bare_word(),
        }
    }

    fn nested(&mut self, read: impl FnOnce(&mut Self) -> Option<Lenient>) -> Option<Lenient> {
        if self.depth == MAX_DEPTH {
            return None;
        }
        self.depth += 1;
        let value = read(self);
        self.depth -= 1;
        value
    }

    fn object(&mut self) -> Option<Lenient> {
        self.take('{')?;
        let mut entries = Vec::new();
        loop {
            self.skip_space()?;
            if self.peek()? == '}' {
                self.next()?;
                return Some(Lenient::Object(entries));
            }
            let key = self.key()?;
            self.skip_space()?;
            self.take(':')?;
            entries.push((key, self.value()?));
            self.skip_space()?;
            match self.next()? {
                ',' => {}
                '}' => return Some(Lenient::Object(entries)),
                _ => return None,
            }
        }
    }

    fn array(&mut self) -> Option<Lenient> {
        self.take('[')?;
        let mut items = Vec::new();
        loop {
            self.skip_space()?;
            if self.peek()? == ']' {
                self.next()?;
                return Some(Lenient::List(items));
            }
            items.push(self.value()?);
            self.skip_space()?;
            match self.next()? {
                ',' => {}
                ']' => return Some(Lenient::List(items)),
                _ => return None,
            }
        }
    }

    fn key(&mut self) -> Option<String> {
        match self.peek()? {
            quote if self.is_quote(quote) => self.string(),
            // A Python dictionary may have integer keys: `{2: 'look'}`.
            '0'..='9' if self.dialect == Dialect::Literal => {
                let start = self.position;
                while self.peek()?.is_ascii_digit() {
                    self.next()?;
                }
                self.text.get(start..self.position).map(str::to_owned)
            }
            _ => None,
        }
    }

    fn is_quote(&self, found: char) -> bool {
        found == '"' || (found == '\'' && self.dialect == Dialect::Literal)
    }

    fn string(&mut self) -> Option<String> {
        let quote = self.next()?;
        let mut text = String::new();
        loop {
            match self.next()? {
                found if found == quote => return Some(text),
                '\\' => self.escape(&mut text)?,
                found => text.push(found),
            }
        }
    }

    fn escape(&mut self, text: &mut String) -> Option<()> {
        match self.next()? {
            'n' => text.push('\n'),
            't' => text.push('\t'),
            'r' => text.push('\r'),
            'b' => text.push('\u{8}'),
            'f' => text.push('\u{c}'),
            found @ ('"' | '\'' | '\\' | '/') => text.push(found),
            'x' if self.dialect == Dialect::Literal => {
                let code = self.hexadecimal(2)?;
                text.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            'u' => self.unicode_escape(text)?,
            // Not an escape; a model wrote a bare backslash.
            other => text.extend(['\\', other]),
        }
        Some(())
    }

    /// After `\u`: a code unit, or a surrogate pair when a second one follows.
    fn unicode_escape(&mut self, text: &mut String) -> Option<()> {
        let first = self.hexadecimal(4)?;
        if (0xD800..0xDC00).contains(&first) && self.text.get(self.position..)?.starts_with("\\u") {
            let resume = self.position;
            self.take('\\')?;
            self.take('u')?;
            let second = self.hexadecimal(4)?;
            if (0xDC00..0xE000).contains(&second) {
                let code = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
                text.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                return Some(());
            }
            self.position = resume;
        }
        text.push(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
        Some(())
    }

    fn hexadecimal(&mut self, digits: u32) -> Option<u32> {
        (0..digits).try_fold(0, |code, _| Some(code * 16 + self.next()?.to_digit(16)?))
    }

    /// Numbers and named constants; their value is not needed.
    fn bare_word(&mut self) -> Option<Lenient> {
        let start = self.position;
        while self
            .peek()
            .is_some_and(|found| found.is_ascii_alphanumeric() || "+-._".contains(found))
        {
            self.next()?;
        }
        let word = self.text.get(start..self.position)?;
        let is_constant = match self.dialect {
            Dialect::Json => ["true", "false", "null", "NaN", "Infinity", "-Infinity"].contains(&word),
            Dialect::Literal => ["True", "False", "None", "true", "false", "null"].contains(&word),
        };
        (is_constant || word.parse::<f64>().is_ok_and(f64::is_finite)).then_some(Lenient::Other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(object: &Lenient, key: &str) -> String {
        match object.get(key) {
            Some(Lenient::Text(text)) => text.clone(),
            other => panic!("`{key}` is {other:?}"),
        }
    }

    #[test]
    fn strings_with_escapes() {
        let source = r#"{"a": "tab\tquote\" slash\/ \u00e9 \ud83d\ude00 \ud83d alone \q"}"#;
        let found = objects(source, Dialect::Json);
        assert_eq!(
            text(&found[0], "a"),
            "tab\tquote\" slash/ é 😀 \u{fffd} alone \\q"
        );
        let found = objects(
            "{'a': 'it\\'s \\x41', \"b\": \"it's\", 2: None, 'c': [1, 'x',],}",
            Dialect::Literal,
        );
        assert_eq!(text(&found[0], "a"), "it's A");
        assert_eq!(text(&found[0], "b"), "it's");
        assert_eq!(found[0].get("2"), Some(&Lenient::Other));
    }

    #[test]
    fn dialects_are_apart() {
        assert!(objects("{'a': 'b'}", Dialect::Json).is_empty());
        assert!(objects(r#"{"a": True}"#, Dialect::Json).is_empty());
        assert_eq!(objects(r#"{"a": True, "b": -1.5e3}"#, Dialect::Literal).len(), 1);
        assert!(objects(r#"{"a": wrong}"#, Dialect::Literal).is_empty());
    }

    #[test]
    fn several_and_nested_objects_keep_their_order() {
        let found = objects(
            r#"x { not } {"a": {"b": "1"}, "c": "2",} y {"d": "3"}"#,
            Dialect::Json,
        );
        assert_eq!(found.len(), 3);
        assert_eq!(text(&found[0], "c"), "2");
        assert_eq!(text(&found[1], "b"), "1");
        assert_eq!(text(&found[2], "d"), "3");
    }

    #[test]
    fn an_object_inside_an_unfinished_one_is_found() {
        let found = objects(r#"{"outer": {"a": "1"}, "cut": "off"#, Dialect::Json);
        assert_eq!(found.len(), 1);
        assert_eq!(text(&found[0], "a"), "1");
    }

    #[test]
    fn depth_and_work_are_bounded() {
        let deep = r#"{"a":"#.repeat(100_000);
        assert!(objects(&deep, Dialect::Json).is_empty());
        let braces = "{".repeat(200_000);
        assert!(objects(&braces, Dialect::Literal).is_empty());
        let open = format!("{{\"a\": \"{}", "{'b': ".repeat(50_000));
        assert!(objects(&open, Dialect::Literal).len() < 2);
        // At the limit itself, and one past it.
        let nest = |depth: usize| format!("{}\"x\"{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
        assert_eq!(objects(&nest(MAX_DEPTH), Dialect::Json).len(), MAX_DEPTH);
        assert_eq!(objects(&nest(MAX_DEPTH + 1), Dialect::Json).len(), MAX_DEPTH);
    }

    proptest! {
        #[test]
        fn any_text_is_survived(source in "\\PC{0,200}") {
            objects(&source, Dialect::Json);
            objects(&source, Dialect::Literal);
        }

        #[test]
        fn json_like_noise_is_survived(source in r#"[{}\[\]"',:\\ua0-9x \n]{0,300}"#) {
            objects(&source, Dialect::Json);
            objects(&source, Dialect::Literal);
        }

        /// What serde writes, both dialects read back.
        #[test]
        fn strict_json_is_read_exactly(key in "\\PC{0,20}", value in any::<String>()) {
            let source = serde_json::json!({ key.clone(): value.clone() }).to_string();
            for dialect in [Dialect::Json, Dialect::Literal] {
                let found = objects(&source, dialect);
                prop_assert_eq!(&found[0], &Lenient::Object(vec![(key.clone(), Lenient::Text(value.clone()))]));
            }
        }
    }
}
