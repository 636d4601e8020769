//! Result blocks in few words, for small policies.
//!
//! Not for: the blocks themselves, which the environment writes ([`crate::information_block`]) and scores.

use std::borrow::Cow;

use serde_json::Value;

use crate::python::strip;

/// A result block's passages, one a line, without tags, numbers and quotes. A title is left out where the passage says it
/// itself. Text that is no result block is kept as it is.
pub(crate) fn compact_block(block: &str) -> Cow<'_, str> {
    let inner = block
        .strip_prefix("<information>")
        .and_then(|rest| rest.strip_suffix("</information>"));
    let Some(inner) = inner else {
        return Cow::Borrowed(block);
    };
    let result = match serde_json::from_str::<Value>(inner) {
        Ok(Value::Object(mut object)) => match object.remove("result") {
            Some(Value::String(text)) => text,
            _ => return Cow::Borrowed(block),
        },
        _ => inner.to_owned(),
    };
    // The first line of a passage opens with its number; what precedes the first one is a message.
    let mut passages: Vec<(usize, String)> = Vec::new();
    for line in strip(&result).lines() {
        let next = passages.last().map_or(1, |(number, _)| number + 1);
        match (opening(line, next), passages.last_mut()) {
            (Some(rest), _) => passages.push((next, rest)),
            (None, Some((_, text))) => {
                text.push(' ');
                text.push_str(strip(line));
            }
            (None, None) => passages.push((0, strip(line).to_owned())),
        }
    }
    let lines: Vec<String> = passages
        .into_iter()
        .map(|(_, text)| without_known_title(&text))
        .collect();
    Cow::Owned(lines.join("\n"))
}

/// The rest of a line that opens passage `number`, in either dialect: a quoted title, perhaps followed by the text.
fn opening(line: &str, number: usize) -> Option<String> {
    let rest = line.strip_prefix("Doc ")?.strip_prefix(&number.to_string())?;
    if let Some(rest) = rest.strip_prefix(": ") {
        return Some(rest.to_owned());
    }
    let (title, text) = rest.strip_prefix("(Title: ")?.split_once(") ")?;
    Some(format!("{title} {text}"))
}

/// `"T" text` without its title when the text has it, else `T: text`.
fn without_known_title(passage: &str) -> String {
    let titled = passage
        .strip_prefix('"')
        .and_then(|rest| rest.split_once("\" "))
        .filter(|(title, _)| !title.is_empty());
    match titled {
        Some((title, text)) if text.contains(title) => text.to_owned(),
        Some((title, text)) => format!("{title}: {text}"),
        None => passage.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{SearchDialect, information_block};

    const ROME: &str = "\"Rome\"\nRome is the capital of Italy.";
    const RIVER: &str = "\"Tiber \"Tevere\"\"\nA river.\nIt floods.";

    #[test]
    fn both_dialects_read_alike() {
        for dialect in [SearchDialect::VerlAgent, SearchDialect::SearchR1] {
            assert_eq!(
                compact_block(&information_block(&[ROME, RIVER], dialect)),
                "Rome is the capital of Italy.\nTiber \"Tevere\": A river. It floods.",
                "{dialect:?}"
            );
        }
    }

    #[test]
    fn messages_keep_their_words() {
        for (block, text) in [
            (
                information_block::<&str>(&[], SearchDialect::VerlAgent),
                "No search results found.",
            ),
            (information_block::<&str>(&[], SearchDialect::SearchR1), ""),
            (
                crate::failure_block("timed out", SearchDialect::VerlAgent),
                "Search error: timed out",
            ),
            ("What is the capital?".to_owned(), "What is the capital?"),
            (
                "<information>{\"other\": 1}</information>".to_owned(),
                "<information>{\"other\": 1}</information>",
            ),
        ] {
            assert_eq!(compact_block(&block), text);
        }
    }

    proptest! {
        #[test]
        fn no_word_of_a_passage_is_lost(texts in prop::collection::vec("[a-z]{1,6}( [a-z0-9\":]{1,6}){0,4}", 1..4)) {
            let contents: Vec<String> = texts.iter().map(|text| format!("\"T\"\n{text}")).collect();
            for dialect in [SearchDialect::VerlAgent, SearchDialect::SearchR1] {
                let shown = compact_block(&information_block(&contents, dialect)).into_owned();
                let lines: Vec<String> = texts.iter().map(|text| format!("T: {text}")).collect();
                prop_assert_eq!(&shown, &lines.join("\n"));
            }
        }
    }
}
