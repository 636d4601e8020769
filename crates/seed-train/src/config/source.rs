//! The first stage: text and `--set` overrides become a list of raw entries, each knowing where it came from.
//!
//! Not for: knowing which keys exist (that is the second stage, [`super::loaded`]).

use std::fmt;
use std::ops::Range;

use toml::Value;
use toml::de::{DeTable, DeValue};

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A line of a file (1-based).
    File {
        /// The file's name as given.
        name: String,
        /// The line, from 1.
        line: usize,
    },
    /// A `--set` on the command line.
    Override {
        /// The argument as given.
        argument: String,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { name, line } => write!(formatter, "{name}:{line}"),
            // The argument's value is left out: it may be something that must not be shown.
            Self::Override { argument } => {
                write!(
                    formatter,
                    "--set {}",
                    argument.split('=').next().unwrap_or_default()
                )
            }
        }
    }
}

/// One `table.key = value` before anything is known about it.
#[derive(Clone, Debug)]
pub struct RawEntry {
    /// The path to the key; `["run", "seed"]` for `run.seed`.
    pub path: Vec<String>,
    /// Its value.
    pub value: Value,
    /// For an override: the value read as plain text, used where TOML syntax gives the wrong type.
    pub plain: Option<String>,
    /// Where it stands.
    pub origin: Origin,
}

/// Entries of a TOML text in file order, or the problems that keep it from being read.
pub(crate) fn parse_text(name: &str, text: &str) -> Result<Vec<RawEntry>, Vec<String>> {
    let table = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_of(text, &span));
        vec![format!("{name}:{line}: {}", error.message().trim_end())]
    })?;
    let mut entries = Vec::new();
    let mut problems = Vec::new();
    for (section, body) in table.get_ref() {
        let origin = |span: Range<usize>| Origin::File {
            name: name.to_owned(),
            line: line_of(text, &span),
        };
        let section_name = section.get_ref().to_string();
        match body.get_ref() {
            DeValue::Table(keys) => {
                if keys.is_empty() {
                    // An empty table sets nothing, but its name must still be right.
                    entries.push(RawEntry {
                        path: vec![section_name],
                        value: Value::Table(toml::Table::new()),
                        plain: None,
                        origin: origin(section.span()),
                    });
                    continue;
                }
                for (key, value) in keys {
                    match to_value(value.get_ref()) {
                        Ok(value) => entries.push(RawEntry {
                            path: vec![section_name.clone(), key.get_ref().to_string()],
                            value,
                            plain: None,
                            origin: origin(key.span()),
                        }),
                        Err(message) => problems.push(format!("{}: {message}", origin(key.span()))),
                    }
                }
            }
            value => match to_value(value) {
                Ok(value) => entries.push(RawEntry {
                    path: vec![section_name],
                    value,
                    plain: None,
                    origin: origin(section.span()),
                }),
                Err(message) => problems.push(format!("{}: {message}", origin(section.span()))),
            },
        }
    }
    if problems.is_empty() {
        // The parser keeps keys in alphabetical order; people read a file from its top.
        entries.sort_by_key(|entry| match &entry.origin {
            Origin::File { line, .. } => *line,
            Origin::Override { .. } => usize::MAX,
        });
        Ok(entries)
    } else {
        Err(problems)
    }
}

/// The entry of one `table.key=value` argument. The value is TOML; what is no TOML is plain text, and a bracketed
/// list may hold bare words.
pub(crate) fn parse_override(argument: &str) -> Result<RawEntry, String> {
    let (key, text) = argument
        .split_once('=')
        .ok_or_else(|| "--set needs the form `table.key=value`; one argument has no `=`".to_owned())?;
    let path: Vec<String> = key.trim().split('.').map(|part| part.trim().to_owned()).collect();
    if path.len() != 2 || path.iter().any(String::is_empty) {
        return Err(format!(
            "--set needs a key of the form `table.key`, not `{}`",
            key.trim()
        ));
    }
    let text = text.trim();
    Ok(RawEntry {
        path,
        value: parse_bare(text),
        plain: Some(text.to_owned()),
        origin: Origin::Override {
            argument: argument.to_owned(),
        },
    })
}

fn parse_bare(text: &str) -> Value {
    let parsed = DeValue::parse(text)
        .ok()
        .and_then(|value| to_value(value.get_ref()).ok());
    if let Some(value) = parsed {
        return value;
    }
    let list = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    match list {
        Some(items) => Value::Array(
            items
                .split(',')
                .map(str::trim)
                .filter(|item| !item.is_empty())
                .map(parse_bare)
                .collect(),
        ),
        None => Value::String(text.to_owned()),
    }
}

/// Turns a parsed value into a plain one.
///
/// # Errors
/// A sentence about a number that does not fit.
pub fn to_value(value: &DeValue<'_>) -> Result<Value, String> {
    Ok(match value {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Integer(number) => Value::Integer(
            i64::from_str_radix(number.as_str(), number.radix())
                .map_err(|_| format!("`{number}` does not fit a 64-bit integer"))?,
        ),
        DeValue::Float(number) => Value::Float(
            number
                .as_str()
                .parse()
                .map_err(|_| format!("`{number}` is no number"))?,
        ),
        DeValue::Boolean(truth) => Value::Boolean(*truth),
        DeValue::Datetime(time) => Value::Datetime(*time),
        DeValue::Array(items) => Value::Array(
            items
                .iter()
                .map(|item| to_value(item.get_ref()))
                .collect::<Result<_, _>>()?,
        ),
        DeValue::Table(table) => Value::Table(
            table
                .iter()
                .map(|(key, value)| Ok((key.get_ref().to_string(), to_value(value.get_ref())?)))
                .collect::<Result<_, String>>()?,
        ),
    })
}

/// 1-based line at which a byte range of `text` begins.
pub fn line_of(text: &str, span: &Range<usize>) -> usize {
    let end = span.start.min(text.len());
    1 + text
        .as_bytes()
        .iter()
        .take(end)
        .filter(|&&byte| byte == b'\n')
        .count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn entries_keep_file_order_and_lines() {
        let entries = parse_text(
            "a.toml",
            "[run]\nseed = 3\nname = \"x\"\n\n[model]\npath = \"p\"\n",
        )
        .unwrap();
        let seen: Vec<_> = entries
            .iter()
            .map(|entry| (entry.path.join("."), entry.origin.to_string()))
            .collect();
        assert_eq!(
            seen,
            [
                ("run.seed".to_owned(), "a.toml:2".to_owned()),
                ("run.name".to_owned(), "a.toml:3".to_owned()),
                ("model.path".to_owned(), "a.toml:6".to_owned()),
            ]
        );
    }

    #[test]
    fn overrides_take_toml_or_bare_words() {
        let value = |argument| parse_override(argument).unwrap().value;
        assert_eq!(value("run.seed=7"), Value::Integer(7));
        assert_eq!(value("optimiser.learning_rate = 5e-4"), Value::Float(5e-4));
        assert_eq!(value("run.name=two words"), Value::String("two words".to_owned()));
        assert_eq!(value("run.name=\"7\""), Value::String("7".to_owned()));
        assert_eq!(value("a.b=x=y"), Value::String("x=y".to_owned()));
        assert_eq!(
            value("evaluation.splits=[seen, unseen]"),
            Value::Array(vec![
                Value::String("seen".to_owned()),
                Value::String("unseen".to_owned())
            ])
        );
        for wrong in ["seed", "seed=1", "run.=1", "a.b.c=1", "=1"] {
            assert!(parse_override(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC*|[\\[\\]a-z.=\"' \n0-9_-]{0,60}") {
            let _ = parse_text("x", &text);
            let _ = parse_override(&text);
        }
    }
}
