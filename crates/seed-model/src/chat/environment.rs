//! The Jinja environment in which chat templates run: what transformers offers them, bounded and without a clock.
//!
//! Not for: tokens.

use std::io;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde, Value};
use minijinja::{AutoEscape, Environment, Error, ErrorKind};
use minijinja_contrib::pycompat::unknown_method_callback;
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

use crate::error::ModelError;

/// Instructions and 64-byte blocks of text that one rendering may use. A conversation of a hundred turns needs some
/// thousands; a template comes from a model file and must not be able to run for ever.
const FUEL: u64 = 5_000_000;

const NAME: &str = "chat";

/// Compiles a template.
pub(super) fn compile(source: &str) -> Result<Environment<'static>, ModelError> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build();
    environment.set_syntax(syntax.map_err(|error| refused(&error))?);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_unknown_method_callback(unknown_method_callback);
    environment.set_fuel(Some(FUEL));
    environment.add_filter("tojson", to_json);
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_function("strftime_now", |format: &str| date(format));
    environment
        .add_template_owned(NAME, without_generation_blocks(source))
        .map_err(|error| refused(&error))?;
    Ok(environment)
}

/// Renders the compiled template.
pub(super) fn render(environment: &Environment<'_>, context: &impl Serialize) -> Result<String, ModelError> {
    let template = environment.get_template(NAME).map_err(|error| refused(&error))?;
    template.render(Serde(context)).map_err(|error| refused(&error))
}

fn refused(error: &Error) -> ModelError {
    ModelError::ChatTemplate {
        problem: error.to_string(),
    }
}

/// Turns the tag pair `generation`, an extension of transformers that only marks where the assistant speaks, into a
/// condition that always holds: white space control keeps its effect.
fn without_generation_blocks(source: &str) -> String {
    let mut result = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start);
        result.push_str(before);
        let end = tag.find("%}").map_or(tag.len(), |end| end + 2);
        let (tag, after) = tag.split_at(end);
        let name = tag.trim_matches(|c: char| "{%}-+".contains(c) || c.is_whitespace());
        match name {
            "generation" => result.push_str(&tag.replacen(name, "if true", 1)),
            "endgeneration" => result.push_str(&tag.replacen(name, "endif", 1)),
            _ => result.push_str(tag),
        }
        rest = after;
    }
    result.push_str(rest);
    result
}

/// The date that templates are told is today: 26 July 2024, the fall-back date of Llama 3's own template.
///
/// A real clock would change the prompt, and with it every result of a run, from one day to the next.
fn date(format: &str) -> Result<String, Error> {
    let mut text = String::new();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            text.push(character);
            continue;
        }
        text.push_str(match characters.next() {
            Some('d') => "26",
            Some('m') => "07",
            Some('Y') => "2024",
            Some('y') => "24",
            Some('b') => "Jul",
            Some('B') => "July",
            Some('a') => "Fri",
            Some('A') => "Friday",
            Some('j') => "208",
            Some('H' | 'M' | 'S') => "00",
            Some('%') => "%",
            other => {
                let directive = other.map(String::from).unwrap_or_default();
                return Err(Error::new(
                    ErrorKind::InvalidOperation,
                    format!("strftime_now does not know the directive `%{directive}`"),
                ));
            }
        });
    }
    Ok(text)
}

/// Python's `json.dumps(value, ensure_ascii=False, indent=indent)`. The engine's own filter escapes for HTML.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the engine hands filters their arguments by value"
)]
fn to_json(value: &Value, options: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = options.get("indent")?;
    // These two change nothing here: the separators below are Python's, and characters are never escaped.
    options.get::<Option<bool>>("ensure_ascii")?;
    options.assert_all_used()?;
    let mut bytes = Vec::new();
    let written = match indent {
        Some(width) => {
            let spaces = " ".repeat(width.min(16));
            let formatter = PrettyFormatter::with_indent(spaces.as_bytes());
            value.serialize(&mut Serializer::with_formatter(&mut bytes, formatter))
        }
        None => value.serialize(&mut Serializer::with_formatter(&mut bytes, Spaced)),
    };
    written.map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))?;
    String::from_utf8(bytes).map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))
}

/// One line, with a space after each comma and colon.
struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        separate(writer, first)
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        separate(writer, first)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}

fn separate<W: ?Sized + io::Write>(writer: &mut W, first: bool) -> io::Result<()> {
    if first { Ok(()) } else { writer.write_all(b", ") }
}
