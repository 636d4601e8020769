//! The grounding filter: sentences of a skill that name things the trajectory does not show are cut out.
//!
//! A small policy that analyses itself invents objects. In worlds whose things are called by class and number, such
//! as `mug 1`, an invented one is found by looking: if the trajectory shows no such name, the sentence goes.
//!
//! Not for: judging advice that names nothing.

use std::collections::BTreeSet;

/// Words that stand before a number without naming a thing.
const COUNTING_WORDS: [&str; 43] = [
    "about", "after", "all", "and", "another", "are", "at", "before", "by", "collect", "every", "exactly",
    "find", "first", "for", "get", "in", "is", "last", "least", "most", "move", "need", "next", "number",
    "of", "only", "or", "pick", "place", "put", "step", "steps", "take", "than", "the", "to", "top", "turn",
    "up", "visit", "with", "within",
];

/// A skill after grounding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grounded {
    /// The sentences that stay, trimmed; empty when none does.
    pub text: String,
    /// How many stay.
    pub kept_sentences: usize,
    /// How many were cut out.
    pub dropped_sentences: usize,
}

/// Cuts sentences out of `skill` that hold a name missing from `shown`, the trajectory's observations and actions.
///
/// A name is a class and a number (`mug 1`), compared without case. Every word can be a class but those used for
/// counting.
pub fn ground_skill(skill: &str, shown: &str) -> Grounded {
    let shown = object_names(shown);
    let mut grounded = Grounded {
        text: String::new(),
        kept_sentences: 0,
        dropped_sentences: 0,
    };
    for sentence in sentences(skill) {
        if sentence.trim().is_empty() {
            grounded.text.push_str(sentence);
        } else if object_names(sentence).is_subset(&shown) {
            grounded.text.push_str(sentence);
            grounded.kept_sentences += 1;
        } else {
            grounded.dropped_sentences += 1;
        }
    }
    grounded.text = grounded.text.trim().to_owned();
    grounded
}

/// All names in `text` of the form class and number, in lower case.
pub(crate) fn object_names(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut class: Option<String> = None;
    // Words with the white space between them: a name's two words have nothing but white space between.
    for piece in pieces(text) {
        let is_number = piece.bytes().all(|byte| byte.is_ascii_digit());
        if is_number && let Some(class) = &class {
            names.insert(format!("{class} {piece}"));
        }
        if piece.chars().all(char::is_whitespace) {
            continue;
        }
        let word = piece.to_lowercase();
        let can_be_class = piece.chars().all(char::is_alphabetic) && !COUNTING_WORDS.contains(&word.as_str());
        class = can_be_class.then_some(word);
    }
    names
}

/// Cuts text into runs of letters and digits, runs of white space, and single other characters.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    #[derive(PartialEq)]
    enum Kind {
        Word,
        Space,
        Other,
    }
    let kind = |found: char| {
        if found.is_alphanumeric() {
            Kind::Word
        } else if found.is_whitespace() {
            Kind::Space
        } else {
            Kind::Other
        }
    };
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let end = match kind(first) {
            Kind::Other => first.len_utf8(),
            run => rest.find(|found| kind(found) != run).unwrap_or(rest.len()),
        };
        let (piece, following) = rest.split_at(end);
        rest = following;
        Some(piece)
    })
}

/// Cuts text after sentence marks that are followed by white space or the end, and after line breaks. Joined
/// again, the pieces are the text.
fn sentences(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut start = 0;
    let mut characters = text.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        let ends = match character {
            '\n' => true,
            '.' | '!' | '?' | ';' => characters.peek().is_none_or(|(_, next)| next.is_whitespace()),
            _ => false,
        };
        if ends {
            let end = at + character.len_utf8();
            found.push(&text[start..end]);
            start = end;
        }
    }
    if start < text.len() {
        found.push(&text[start..]);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SHOWN: &str =
        "You see a mug 1, and a desk 10. On the shelf 2, you see nothing.\ntake mug 1 from desk 10\n";

    #[test]
    fn names_are_class_and_number() {
        let names = object_names(SHOWN);
        assert_eq!(
            names.into_iter().collect::<Vec<_>>(),
            ["desk 10", "mug 1", "shelf 2"]
        );
        let none = object_names("in 2 steps, step 3, at least 4, mug, 5, mug1 and x2 7, version 1.5");
        assert_eq!(none.into_iter().collect::<Vec<_>>(), ["version 1"]);
    }

    #[test]
    fn unsupported_sentences_go() {
        let skill = "Find the mug 1 first. Then open safe 3! Put it on Desk 10; rest.";
        let found = ground_skill(skill, SHOWN);
        assert_eq!(found.text, "Find the mug 1 first. Put it on Desk 10; rest.");
        assert_eq!((found.kept_sentences, found.dropped_sentences), (3, 1));
    }

    #[test]
    fn desk_1_is_not_desk_10() {
        let found = ground_skill("Go to desk 1.", SHOWN);
        assert_eq!(
            (found.text.as_str(), found.kept_sentences, found.dropped_sentences),
            ("", 0, 1)
        );
    }

    #[test]
    fn advice_without_names_stays() {
        let skill = "Search open places within 5 steps.\nThen closed ones.";
        assert_eq!(ground_skill(skill, "").text, skill);
        assert_eq!(ground_skill("", SHOWN).kept_sentences, 0);
    }

    proptest! {
        #[test]
        fn sentences_join_to_the_text(text in "([a-z0-9 .;!?\n]|\\PC){0,80}") {
            prop_assert_eq!(sentences(&text).concat(), text);
        }

        #[test]
        fn what_is_kept_is_shown(skill in "((mug|desk|go) [0-9]|[a-z .\n]){0,30}", shown in "((mug|desk) [0-9] ){0,5}") {
            let found = ground_skill(&skill, &shown);
            prop_assert!(object_names(&found.text).is_subset(&object_names(&shown)));
        }
    }
}
