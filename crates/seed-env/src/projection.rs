//! From a model's response to an action, for worlds whose answers carry `<think>` and `<action>` tags.
//!
//! The rules are those of the reference's ALFWorld and WebShop wrappers, kept exactly, including what they do with
//! odd input: an unreadable response is still executed, and an action outside the admissible list is *valid* (the
//! environment answers it). Not for: worlds with other tags (search, JSON answers), or checking admissibility.

use std::ops::Range;

use crate::Projection;

const ACTION_OPEN: &str = "<action>";
const ACTION_CLOSE: &str = "</action>";
const THINK_OPEN: &str = "<think>";
const THINK_CLOSE: &str = "</think>";

/// Projects a tagged response to an action.
///
/// The action is the lower-cased, trimmed text between the first `<action>` and the first `</action>`, whatever
/// their case. Without one of the tags it is the last `fallback_characters` characters of the lower-cased response
/// and the response is invalid. A response is also invalid when `<think>` or `</think>` is missing (these two are
/// case-sensitive) or when it holds a CJK ideograph (U+4E00 to U+9FFF). When the closing tag comes before the
/// opening one the action is empty, which is valid, as in the reference.
///
/// The span is a byte range of `response` itself, not of its lower-cased copy, whose bytes can be longer or shorter.
pub fn project_tagged_action(response: &str, fallback_characters: usize) -> Projection {
    let obeys = response.contains(THINK_OPEN)
        && response.contains(THINK_CLOSE)
        && !response
            .chars()
            .any(|character| ('\u{4e00}'..='\u{9fff}').contains(&character));
    // No character outside ASCII lower-cases to a letter of these tags, so searching the original without regard
    // to ASCII case finds what searching a lower-cased copy would.
    match (
        find_ignoring_case(response, ACTION_OPEN),
        find_ignoring_case(response, ACTION_CLOSE),
    ) {
        (Some(open), Some(close)) => {
            let span = trimmed(response, open + ACTION_OPEN.len(), close);
            Projection {
                action: span
                    .clone()
                    .and_then(|span| response.get(span))
                    .unwrap_or_default()
                    .to_lowercase(),
                valid: obeys,
                action_span: span,
            }
        }
        _ => Projection {
            action: last_characters(&response.to_lowercase(), fallback_characters),
            valid: false,
            action_span: None,
        },
    }
}

/// Byte position of the first occurrence of the ASCII `tag`, in any case.
fn find_ignoring_case(text: &str, tag: &str) -> Option<usize> {
    text.as_bytes()
        .windows(tag.len())
        .position(|window| window.eq_ignore_ascii_case(tag.as_bytes()))
}

/// `start..end` without outer white space; `None` when the range is reversed.
fn trimmed(text: &str, start: usize, end: usize) -> Option<Range<usize>> {
    let inner = text.get(start..end)?;
    let left = inner.trim_start_matches(is_space);
    let start = end - left.len();
    Some(start..start + left.trim_end_matches(is_space).len())
}

/// Python's idea of white space: Unicode's, and the four ASCII separators.
fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
}

fn last_characters(text: &str, count: usize) -> String {
    let start = count
        .checked_sub(1)
        .and_then(|skipped| text.char_indices().rev().nth(skipped))
        .map_or(if count == 0 { text.len() } else { 0 }, |(index, _)| index);
    text.get(start..).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn project(response: &str) -> (String, bool, Option<&str>) {
        let projection = project_tagged_action(response, 30);
        (
            projection.action,
            projection.valid,
            projection.action_span.map(|span| &response[span]),
        )
    }

    #[test]
    fn a_well_formed_response_gives_its_trimmed_lower_cased_action() {
        assert_eq!(
            project("<think>find it</think><action>\n Go to Bed 1 </action>"),
            ("go to bed 1".into(), true, Some("Go to Bed 1"))
        );
    }

    #[test]
    fn the_first_opening_and_the_first_closing_tag_count() {
        assert_eq!(
            project("<think></think><action>look</action> or <action>inventory</action>"),
            ("look".into(), true, Some("look"))
        );
        assert_eq!(
            project("<think></think><action>a<action>b</action>"),
            ("a<action>b".into(), true, Some("a<action>b"))
        );
        assert_eq!(
            project("<think></think></action><action>look</action>"),
            (String::new(), true, None),
            "a closing tag in front leaves nothing between the tags"
        );
    }

    #[test]
    fn action_tags_are_found_in_any_case_but_think_tags_are_not() {
        assert_eq!(
            project("<think>x</think><ACTION>LOOK</Action>"),
            ("look".into(), true, Some("LOOK"))
        );
        assert_eq!(
            project("<Think>x</think><action>look</action>"),
            ("look".into(), false, Some("look"))
        );
        assert_eq!(
            project("<think>x<action>look</action>"),
            ("look".into(), false, Some("look"))
        );
        // Any order and place will do.
        assert!(project("<action>look</action></think><think>").1);
    }

    #[test]
    fn without_tags_the_last_thirty_characters_are_the_action() {
        let response = "<think>I should look around</think> GO TO the Große Küche 1 now";
        let (action, valid, span) = project(response);
        assert_eq!(action, "k> go to the große küche 1 now");
        assert!(!valid);
        assert_eq!(span, None);
        assert_eq!(project("<action>look").0, "<action>look");
        assert_eq!(project("").0, "");
        // The tail keeps its white space.
        assert_eq!(project("look  ").0, "look  ");
        assert_eq!(project_tagged_action("look", 0).action, "");
        assert_eq!(project_tagged_action("look", 2).action, "ok");
    }

    #[test]
    fn a_cjk_ideograph_anywhere_makes_the_response_invalid() {
        assert_eq!(
            project("<think>看</think><action>look</action>"),
            ("look".into(), false, Some("look"))
        );
        // Kana and full-width letters are outside the block.
        assert!(project("<think>カＡ</think><action>look</action>").1);
        assert!(!project("<think>\u{4e00}</think><action>a</action>").1);
        assert!(!project("<think>\u{9fff}</think><action>a</action>").1);
        assert!(project("<think>\u{a000}</think><action>a</action>").1);
    }

    #[test]
    fn spans_are_of_the_original_even_when_lower_casing_changes_the_length() {
        // U+0130 grows from two bytes to three, the Kelvin sign shrinks from three to one.
        let response = "<think>İİİ \u{212a}</think><action>İ\u{212a}</action>";
        let (action, valid, span) = project(response);
        assert_eq!(action, "i\u{307}k");
        assert!(valid);
        assert_eq!(span, Some("İ\u{212a}"));
    }

    /// The rule as the reference states it, on a lower-cased copy and by characters.
    fn by_the_book(response: &str, fallback: usize) -> (String, bool) {
        let lower = response.to_lowercase();
        let mut valid = false;
        let action = if let (Some(open), Some(close)) = (lower.find("<action>"), lower.find("</action>")) {
            valid = true;
            let inner = lower.get(open + 8..close).unwrap_or("");
            inner.trim_matches(is_space).to_owned()
        } else {
            let characters: Vec<char> = lower.chars().collect();
            characters[characters.len().saturating_sub(fallback)..]
                .iter()
                .collect()
        };
        valid &= response.contains("<think>") && response.contains("</think>");
        valid &= !response.chars().any(|c| ('\u{4e00}'..='\u{9fff}').contains(&c));
        (action, valid)
    }

    fn pieces() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            Just("<action>".to_owned()),
            Just("</action>".to_owned()),
            Just("<ACTION>".to_owned()),
            Just("<think>".to_owned()),
            Just("</think>".to_owned()),
            Just("Σ".to_owned()),
            Just("ΑΣ ".to_owned()),
            Just("<act".to_owned()),
            Just("İ\u{212a}".to_owned()),
            Just("看".to_owned()),
            "\\PC{0,6}",
            "[ \t\n\u{1f}\u{a0}]{0,3}",
        ];
        proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn projection_equals_the_reference_rule_and_spans_hold_the_action(response in pieces(), fallback in 0usize..40) {
            let projection = project_tagged_action(&response, fallback);
            prop_assert_eq!(
                (projection.action.clone(), projection.valid),
                by_the_book(&response, fallback)
            );
            if let Some(span) = projection.action_span {
                let text = response.get(span);
                prop_assert!(text.is_some(), "the span lies on character boundaries");
                prop_assert_eq!(text.unwrap_or_default().to_lowercase(), projection.action);
            }
        }
    }
}
