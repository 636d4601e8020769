//! The second stage: raw entries become a typed, checked configuration that knows where each value came from.

use std::path::Path;

use toml::Value;

use super::error::{ConfigError, Shown};
use super::schema::{Document, Effect, FieldInfo, Origins};
use super::source::{RawEntry, parse_override, parse_text};

/// No configuration comes near this size; a larger file is something else.
const SIZE_LIMIT: u64 = 1 << 20;

/// A validated configuration with what is known about its making.
#[derive(Clone, Debug)]
pub struct Loaded<C> {
    /// The values.
    pub config: C,
    /// Where each set key came from; keys at their default are absent.
    pub origins: Origins,
    /// Settings that run but hardly mean what was written, as sentences.
    pub warnings: Vec<String>,
}

/// One key that differs between two configurations.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// `table.key`.
    pub key: String,
    /// Value in the first, as TOML.
    pub before: String,
    /// Value in the second, as TOML.
    pub after: String,
    /// What the difference does to a resumed run.
    pub effect: Effect,
}

impl<C: Document> Loaded<C> {
    /// Reads a file, applies `overrides` (`table.key=value`, later ones win) and validates.
    ///
    /// # Errors
    /// [`ConfigError::Read`] and [`ConfigError::TooLarge`] for the file, [`ConfigError::Invalid`] with everything that
    /// is wrong in it or in the overrides.
    pub fn from_file(path: &Path, overrides: &[String]) -> Result<Self, ConfigError> {
        Self::from_text(&path.display().to_string(), &Self::read(path)?, overrides)
    }

    /// The text of a file, unless it is larger than any configuration.
    ///
    /// # Errors
    /// [`ConfigError::Read`] and [`ConfigError::TooLarge`].
    pub fn read(path: &Path) -> Result<String, ConfigError> {
        let read = |source| ConfigError::Read {
            kind: C::KIND,
            source,
        };
        let bytes = fs_err::metadata(path).map_err(read)?.len();
        if bytes > SIZE_LIMIT {
            return Err(ConfigError::TooLarge {
                path: path.to_owned(),
                bytes,
                limit: SIZE_LIMIT,
            });
        }
        fs_err::read_to_string(path).map_err(read)
    }

    /// Like [`Loaded::from_file`] for text already at hand; `name` stands for the file in messages.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] with everything that is wrong.
    pub fn from_text(name: &str, text: &str, overrides: &[String]) -> Result<Self, ConfigError> {
        let (entries, problems) = override_entries(overrides);
        Self::build(name, text, entries, problems)
    }

    /// Like [`Loaded::from_text`] with entries that stand in other places, such as the arms of a study; later ones win.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] with everything that is wrong.
    pub fn from_layers(name: &str, text: &str, layers: Vec<RawEntry>) -> Result<Self, ConfigError> {
        Self::build(name, text, layers, Vec::new())
    }

    /// Parses `text`, puts `later` entries on top, and validates; `problems` are those found before.
    fn build(
        name: &str,
        text: &str,
        later: Vec<RawEntry>,
        mut problems: Vec<String>,
    ) -> Result<Self, ConfigError> {
        let invalid = |problems| ConfigError::Invalid {
            kind: C::KIND,
            source_name: name.to_owned(),
            problems,
        };
        let mut entries = parse_text(name, text).map_err(invalid)?;
        entries.extend(later);
        let fields = C::fields();
        let mut config = C::default();
        let mut origins = Origins::new();
        for entry in entries {
            match apply(&mut config, &fields, &entry) {
                Ok(Some(key)) => {
                    origins.insert(key, entry.origin);
                }
                Ok(None) => {}
                Err(problem) => problems.push(format!("{}: {problem}", entry.origin)),
            }
        }
        // Rules over several keys are checked only on values that are right by themselves.
        let mut warnings = Vec::new();
        if problems.is_empty() {
            let findings = config.check(&origins);
            problems = findings.errors;
            warnings = findings.warnings;
        }
        if problems.is_empty() {
            Ok(Self {
                config,
                origins,
                warnings,
            })
        } else {
            Err(invalid(problems))
        }
    }

    /// The defaults with `overrides` applied.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] as for [`Loaded::from_text`].
    pub fn from_defaults(overrides: &[String]) -> Result<Self, ConfigError> {
        Self::from_text("built-in defaults", "", overrides)
    }
}

/// The entries of `--set` arguments, and what is wrong with those that are none.
fn override_entries(overrides: &[String]) -> (Vec<RawEntry>, Vec<String>) {
    let mut entries = Vec::new();
    let mut problems = Vec::new();
    for argument in overrides {
        match parse_override(argument) {
            Ok(entry) => entries.push(entry),
            Err(problem) => problems.push(problem),
        }
    }
    (entries, problems)
}

/// Every key with its value as TOML, in file order: [`Loaded::from_text`] reads it back to an equal configuration.
/// Keys of secrets are names of environment variables, so nothing secret is in it.
pub fn to_toml<C: Document>(config: &C) -> String {
    let fields = C::fields();
    let tables: Vec<String> = C::sections()
        .iter()
        .map(|(section, _)| {
            let lines = fields
                .iter()
                .filter(|field| field.section == *section)
                .filter_map(|field| {
                    let value = config.get(field.section, field.name)?;
                    Some(format!("{} = {value}\n", field.name))
                });
            format!("[{section}]\n{}", lines.collect::<Vec<_>>().concat())
        })
        .collect();
    tables.join("\n")
}

/// The keys on which two configurations differ, in file order.
pub fn differences<C: Document>(before: &C, after: &C) -> Vec<Difference> {
    C::fields()
        .into_iter()
        .filter_map(|field| {
            let old = before.get(field.section, field.name)?;
            let new = after.get(field.section, field.name)?;
            (old != new).then(|| Difference {
                key: field.key(),
                before: old.to_string(),
                after: new.to_string(),
                effect: field.effect,
            })
        })
        .collect()
}

/// Sets one entry; gives the key that was set.
fn apply<C: Document>(
    config: &mut C,
    fields: &[FieldInfo],
    entry: &RawEntry,
) -> Result<Option<String>, String> {
    let (section, name) = match entry.path.as_slice() {
        [section, name] => (section, name),
        [section] if is_empty_table(&entry.value) && C::sections().iter().any(|known| known.0 == section) => {
            return Ok(None);
        }
        path => return Err(unknown_key::<C>(fields, &path.join("."))),
    };
    let key = format!("{section}.{name}");
    let Some(field) = fields
        .iter()
        .find(|field| field.section == section && field.name == name)
    else {
        return Err(unknown_key::<C>(fields, &key));
    };
    let mut value = entry.value.clone();
    let mut read = config.set(section, name, &value);
    if let (false, Some(plain)) = (read, &entry.plain) {
        // `--set run.name=7`: the text looks like a number but the key is text.
        let as_text = Value::String(plain.clone());
        read = config.set(section, name, &as_text);
        if read {
            value = as_text;
        }
    }
    if read && field.rule.accepts(&value) {
        return Ok(Some(key));
    }
    let shown = if field.rule.hides_value() {
        "the value (not shown, it may be secret)".to_owned()
    } else {
        format!("`{}`", Shown(&value))
    };
    let limit = match value.as_integer() {
        Some(number) if !read && number > i64::from(u32::MAX) => format!(" and at most {}", u32::MAX),
        _ => String::new(),
    };
    let near = misspelt_word(&value, field.words)
        .and_then(|word| nearest(word, field.words.iter().copied()))
        .map(|word| format!("; did you mean `{word}`?"))
        .unwrap_or_default();
    Err(format!(
        "`{key}` is {shown}, expected {}{limit}{near}",
        field.expectation()
    ))
}

/// The first word of a value, or of a list of values, that is none of the accepted ones.
fn misspelt_word<'a>(value: &'a Value, words: &[&str]) -> Option<&'a str> {
    match value {
        Value::String(word) => (!words.contains(&word.as_str())).then_some(word),
        Value::Array(items) => items.iter().find_map(|item| misspelt_word(item, words)),
        _ => None,
    }
}

fn is_empty_table(value: &Value) -> bool {
    value.as_table().is_some_and(toml::Table::is_empty)
}

/// The message for a key or table that does not exist.
fn unknown_key<C: Document>(fields: &[FieldInfo], key: &str) -> String {
    let sections = C::sections();
    let section = key.split('.').next().unwrap_or_default();
    if sections.iter().any(|known| known.0 == key) {
        let near = same_name(fields, key)
            .map(|near| format!(", or did you mean `{near}`?"))
            .unwrap_or_default();
        return format!("`{key}` is a table and has no value; its keys stand under `[{key}]`{near}");
    }
    if !sections.iter().any(|known| known.0 == section) {
        let what = if key.contains('.') { section } else { key };
        let near = nearest(what, sections.iter().map(|known| known.0))
            .map(|near| format!("`[{near}]`"))
            .or_else(|| same_name(fields, what).map(|near| format!("`{near}`")));
        return match near {
            Some(near) => format!("unknown table `{what}`; did you mean {near}?"),
            None => format!(
                "unknown table `{what}`; the tables of a {} are {}",
                C::KIND,
                sections
                    .iter()
                    .map(|known| format!("`{}`", known.0))
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
        };
    }
    match suggestion(fields, key) {
        Some(near) => format!("unknown key `{key}`; did you mean `{near}`?"),
        None => {
            format!("unknown key `{key}`; `seed config explain {section}` lists the keys of `[{section}]`")
        }
    }
}

/// The existing key nearest to a wrong one: first by its name in any table, then by likeness within the same table,
/// then by likeness anywhere.
pub(crate) fn suggestion(fields: &[FieldInfo], key: &str) -> Option<String> {
    let (section, name) = key.split_once('.').unwrap_or(("", key));
    if let Some(found) = same_name(fields, name) {
        return Some(found);
    }
    let own = fields.iter().filter(|field| field.section == section);
    if let Some(near) = nearest(name, own.map(|field| field.name)) {
        return Some(format!("{section}.{near}"));
    }
    let near = nearest(name, fields.iter().map(|field| field.name))?;
    same_name(fields, near)
}

fn same_name(fields: &[FieldInfo], name: &str) -> Option<String> {
    fields.iter().find(|field| field.name == name).map(FieldInfo::key)
}

/// The candidate most like `word`, when one is like it at all.
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    const LIKENESS: f64 = 0.85;
    candidates
        .map(|candidate| {
            // A name cut short (`ema` for `ema_decay`) is unlike by letters and still plain.
            let is_start = word.len() >= 3 && candidate.starts_with(word);
            let likeness = strsim::jaro_winkler(word, candidate);
            (
                if is_start {
                    likeness.max(LIKENESS)
                } else {
                    likeness
                },
                candidate,
            )
        })
        .filter(|scored| scored.0 >= LIKENESS)
        .max_by(|left, right| left.0.total_cmp(&right.0))
        .map(|scored| scored.1)
}
