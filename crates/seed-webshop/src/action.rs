//! The grammar of actions: `search[words]` and `click[text]`.
//!
//! Not for: whether the text can be clicked now, or finding an action in a model's response.

/// What an action asks for; the argument is lower-cased and not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Search(String),
    Click(String),
}

/// Reads an action as the original's pattern `(.+)\[(.+)\]` does from the start of the text: the name ends at the last
/// bracket that leaves an argument, the argument at the last closing bracket of the line. `None` for anything else.
pub(crate) fn parse(text: &str) -> Option<Action> {
    let line = text.split('\n').next()?;
    let close = line.rfind(']')?;
    let open = line
        .match_indices('[')
        .map(|(open, _)| open)
        .rfind(|&open| open > 0 && open + 1 < close)?;
    let argument = line.get(open + 1..close)?.to_lowercase();
    match line.get(..open)? {
        "search" => Some(Action::Search(argument)),
        "click" => Some(Action::Click(argument)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_last_brackets_count() {
        let search = |text: &str| Some(Action::Search(text.to_owned()));
        let click = |text: &str| Some(Action::Click(text.to_owned()));
        assert_eq!(parse("search[Red Shoes]"), search("red shoes"));
        assert_eq!(parse("click[< Prev] and then"), click("< prev"));
        assert_eq!(parse("click[a]b]"), click("a]b"));
        assert_eq!(parse("click[x] ["), click("x"));
        assert_eq!(parse("click[x][]"), click("x]["));
        for other in [
            "search[a[b]c]",
            "search[]",
            "[a]",
            "search [a]",
            " search[a]",
            "Search[a]",
            "search[a",
            "think[a]",
            "noop",
            "",
            "search[\na]",
            "\nsearch[a]",
        ] {
            assert_eq!(parse(other), None, "{other:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_without_brackets_is_an_argument(text in "[^\\[\\]\\n]{1,12}") {
            prop_assert_eq!(parse(&format!("search[{text}]")), Some(Action::Search(text.to_lowercase())));
        }
    }
}
