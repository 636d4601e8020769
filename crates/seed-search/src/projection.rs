//! From a model's response to an action, in both dialects of the protocol.
//!
//! Not for: what an action does ([`crate::SearchEnvironment`]).

use seed_env::Projection;

use crate::SearchDialect;
use crate::block::{LetterCase, Tag, cut_after_first_block, find_tag, first_block};
use crate::python::{is_space, strip};

/// What an action of the Search-R1 dialect, or a projected one of the other, asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call<'a> {
    Search(&'a str),
    Answer(&'a str),
}

/// Projects a response to an action by the rules of `dialect`.
///
/// In both, what follows the first `</search>` (without one, the first `</answer>`) is dropped first.
///
/// * [`SearchDialect::VerlAgent`]: the first search block, else the first answer block, tags in any case, becomes
///   `<search>query</search>` or `<answer>text</answer>` with the inner text trimmed; else the action is empty. The
///   response is valid when there was a block and the *whole* response opens exactly one. An invalid response is still
///   executed.
/// * [`SearchDialect::SearchR1`]: the action is all that is left of the response; it is valid when it holds a block of
///   either kind, tags in lower case.
pub fn project_response(response: &str, dialect: SearchDialect) -> Projection {
    match dialect {
        SearchDialect::VerlAgent => project_block(response),
        SearchDialect::SearchR1 => {
            let cut = cut_after_first_block(response);
            let inner = call_range(cut).map(|(_, inner)| inner);
            Projection {
                action: cut.to_owned(),
                valid: inner.is_some(),
                action_span: inner.map(|inner| trimmed(cut, inner)),
            }
        }
    }
}

fn project_block(response: &str) -> Projection {
    let cut = cut_after_first_block(response);
    let found = [Tag::Search, Tag::Answer]
        .into_iter()
        .find_map(|tag| Some((tag, first_block(cut, tag, LetterCase::Ignored, 0)?)));
    let [searches, answers] = [Tag::Search, Tag::Answer].map(|tag| openings(response, tag));
    match found {
        Some((tag, inner)) => {
            let span = trimmed(cut, inner);
            let text = cut.get(span.clone()).unwrap_or_default();
            Projection {
                action: format!("{}{text}{}", tag.opening(), tag.closing()),
                valid: searches + answers == 1,
                action_span: Some(span),
            }
        }
        None => Projection {
            action: String::new(),
            valid: false,
            action_span: None,
        },
    }
}

/// How many opening tags of a kind the text has, in any case.
fn openings(text: &str, tag: Tag) -> usize {
    let mut count = 0;
    let mut from = 0;
    while let Some(found) = find_tag(text, tag.opening(), LetterCase::Ignored, from) {
        count += 1;
        from = found.end;
    }
    count
}

/// The range without white space at its ends.
fn trimmed(text: &str, range: std::ops::Range<usize>) -> std::ops::Range<usize> {
    let inner = text.get(range.clone()).unwrap_or_default();
    let left = inner.trim_start_matches(is_space);
    let start = range.end - left.len();
    start..start + left.trim_end_matches(is_space).len()
}

/// The block that opens first, of those that are closed.
fn call_range(text: &str) -> Option<(Tag, std::ops::Range<usize>)> {
    [Tag::Search, Tag::Answer]
        .into_iter()
        .filter_map(|tag| Some((tag, first_block(text, tag, LetterCase::Exact, 0)?)))
        .min_by_key(|(_, inner)| inner.start)
}

/// What the first closed block of an action asks for.
pub(crate) fn first_call(action: &str) -> Option<Call<'_>> {
    let (tag, inner) = call_range(action)?;
    let text = strip(action.get(inner)?);
    Some(match tag {
        Tag::Search => Call::Search(text),
        Tag::Answer => Call::Answer(text),
    })
}
