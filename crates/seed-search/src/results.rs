//! What the policy is shown of the passages that were found, character by character as the reference writes it.
//!
//! Not for: finding passages ([`seed_retrieval`]), or the HTTP format they travel in.

use std::fmt::Write as _;

use crate::SearchDialect;
use crate::python::{json_string, strip};

/// What stands in a result block when nothing was found.
const NOTHING_FOUND: &str = "No search results found.";

/// The result block of one query: passages in order of rank, best first, each as its `contents` (a quoted title, a line
/// break, the text).
///
/// * [`SearchDialect::VerlAgent`]: `<information>{"result": "Doc 1: …\nDoc 2: …\n"}</information>`, where the object is
///   what Python's `json.dumps` writes, so line breaks and quotes are escaped and nothing but ASCII is left.
/// * [`SearchDialect::SearchR1`]: `<information>Doc 1(Title: "T") text`, one passage a line, `</information>`.
pub fn information_block<S: AsRef<str>>(contents: &[S], dialect: SearchDialect) -> String {
    let mut text = String::new();
    for (index, contents) in contents.iter().enumerate() {
        let (number, contents) = (index + 1, contents.as_ref());
        // Writing to a string cannot fail.
        let _ = match dialect {
            SearchDialect::VerlAgent => writeln!(text, "Doc {number}: {}", strip(contents)),
            SearchDialect::SearchR1 => {
                let (title, body) = contents.split_once('\n').unwrap_or((contents, ""));
                writeln!(text, "Doc {number}(Title: {title}) {body}")
            }
        };
    }
    match dialect {
        SearchDialect::VerlAgent if contents.is_empty() => json_block(NOTHING_FOUND),
        SearchDialect::VerlAgent => json_block(&text),
        SearchDialect::SearchR1 => format!("<information>{}</information>", strip(&text)),
    }
}

/// The block that stands for a search that failed, for policies that are to see failures.
pub fn failure_block(message: &str, dialect: SearchDialect) -> String {
    let text = format!("Search error: {message}");
    match dialect {
        SearchDialect::VerlAgent => json_block(&text),
        SearchDialect::SearchR1 => format!("<information>{text}</information>"),
    }
}

fn json_block(result: &str) -> String {
    format!(
        "<information>{{\"result\": {}}}</information>",
        json_string(result)
    )
}
