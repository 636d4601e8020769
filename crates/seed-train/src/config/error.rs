//! What can be wrong with a configuration.

use std::fmt;
use std::path::PathBuf;

use thiserror::Error;

/// A configuration that cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("the {kind} could not be read; check the path, or leave it out to use the defaults")]
    Read {
        /// What kind of configuration it was to be.
        kind: &'static str,
        /// The failure, which names the path.
        #[source]
        source: std::io::Error,
    },
    /// The file is far larger than any configuration.
    #[error("`{}` has {bytes} bytes; a configuration has at most {limit}", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// Keys, values or their combination are wrong; all that was found is listed.
    #[error("{}", list(kind, source_name, problems))]
    Invalid {
        /// What kind of configuration it is.
        kind: &'static str,
        /// Name of the file or text.
        source_name: String,
        /// Everything found, in order.
        problems: Vec<String>,
    },
    /// A key was asked about that does not exist.
    #[error("no key or table `{key}` in a {kind}{}", suggestion.as_ref().map(|near| format!("; did you mean `{near}`?")).unwrap_or_default())]
    UnknownKey {
        /// What was asked for.
        key: String,
        /// What kind of configuration it is.
        kind: &'static str,
        /// The nearest key.
        suggestion: Option<String>,
    },
}

/// The heading and one indented line per problem.
fn list(kind: &str, source_name: &str, problems: &[String]) -> String {
    let count = problems.len();
    let noun = if count == 1 { "problem" } else { "problems" };
    let mut text = format!("the {kind} `{source_name}` has {count} {noun}:");
    for problem in problems {
        text.push_str("\n  ");
        text.push_str(problem);
    }
    text
}

/// A value as shown in a message: TOML form, cut when long.
pub(crate) struct Shown<'a>(pub(crate) &'a toml::Value);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LIMIT: usize = 60;
        let text = match self.0 {
            toml::Value::Table(_) => "a table".to_owned(),
            value => value.to_string(),
        };
        if text.chars().count() > LIMIT {
            let start: String = text.chars().take(LIMIT).collect();
            write!(formatter, "{start}…")
        } else {
            formatter.write_str(&text)
        }
    }
}
