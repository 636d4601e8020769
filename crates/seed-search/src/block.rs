//! Finding `<search>…</search>`, `<answer>…</answer>` and their like in text.
//!
//! A block is an opening tag and the first closing tag after it, whatever lies between, as the regular expression
//! `<tag>(.*?)</tag>` with dots that match line breaks finds it. Not for: deciding what a block means.

use std::ops::Range;

/// A kind of block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tag {
    Search,
    Answer,
}

impl Tag {
    pub(crate) const fn opening(self) -> &'static str {
        match self {
            Self::Search => "<search>",
            Self::Answer => "<answer>",
        }
    }

    pub(crate) const fn closing(self) -> &'static str {
        match self {
            Self::Search => "</search>",
            Self::Answer => "</answer>",
        }
    }
}

/// How letters of a tag are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LetterCase {
    /// The letters themselves.
    Exact,
    /// As `re.IGNORECASE` does, which folds the long s (U+017F) into s.
    Ignored,
}

/// Byte range of the first `tag` at or after byte `from`, which must be a character boundary.
pub(crate) fn find_tag(text: &str, tag: &str, case: LetterCase, from: usize) -> Option<Range<usize>> {
    let rest = text.get(from..)?;
    match case {
        LetterCase::Exact => rest.find(tag).map(|at| from + at..from + at + tag.len()),
        LetterCase::Ignored => rest
            .match_indices('<')
            .find_map(|(at, _)| Some(from + at..from + at + folded_prefix(rest.get(at..)?, tag)?)),
    }
}

/// Bytes of `text` that spell `tag` in any case; `None` when it begins otherwise.
fn folded_prefix(text: &str, tag: &str) -> Option<usize> {
    let mut characters = text.char_indices();
    for expected in tag.chars() {
        let (_, character) = characters.next()?;
        let same = character.eq_ignore_ascii_case(&expected) || (character == 'ſ' && expected == 's');
        if !same {
            return None;
        }
    }
    Some(characters.next().map_or(text.len(), |(at, _)| at))
}

/// Byte range of what the first block of `tag` at or after byte `from` encloses.
pub(crate) fn first_block(text: &str, tag: Tag, case: LetterCase, from: usize) -> Option<Range<usize>> {
    let opening = find_tag(text, tag.opening(), case, from)?;
    let closing = find_tag(text, tag.closing(), case, opening.end)?;
    Some(opening.end..closing.start)
}

/// Byte range of what the last block of `tag` encloses, where blocks are taken from the left and do not overlap.
pub(crate) fn last_block(text: &str, tag: Tag) -> Option<Range<usize>> {
    let mut last = None;
    let mut from = 0;
    while let Some(inner) = first_block(text, tag, LetterCase::Exact, from) {
        from = inner.end + tag.closing().len();
        last = Some(inner);
    }
    last
}

/// The text up to and with its first `</search>`, else its first `</answer>`, else all of it.
pub(crate) fn cut_after_first_block(text: &str) -> &str {
    [Tag::Search, Tag::Answer]
        .into_iter()
        .find_map(|tag| text.get(..find_tag(text, tag.closing(), LetterCase::Exact, 0)?.end))
        .unwrap_or(text)
}
