//! Finding the task in a prompt when the environment did not state it separately.
//!
//! Not for: placing skills, which looks for whole lines ([`crate::augment_episode`]).

use std::sync::LazyLock;

use regex::Regex;

/// What introduces a task, in order of preference; the task is what follows.
const INTRODUCTIONS: [&str; 6] = [
    r"Your task is to:",
    r"Your task is:",
    r"Your current task is:",
    r"Your question:",
    r"Your goal is to\b",
    r"You are\b[^\n]*?\bhelping to\b",
];

static PATTERNS: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    // The task is the rest of the line, or the next line with text when nothing follows on the same one.
    INTRODUCTIONS
        .iter()
        .filter_map(|text| Regex::new(&format!(r"{text}\s*([^\n]+)")).ok())
        .collect()
});

/// The task described in `prompt`, else in `observation`; white space collapsed. The first introduction in the
/// listed order wins, wherever it stands in the text.
pub fn infer_task_description(prompt: &str, observation: &str) -> Option<String> {
    [prompt, observation].into_iter().find_map(|text| {
        PATTERNS.iter().find_map(|pattern| {
            let found = pattern.captures(text)?.get(1)?.as_str();
            let collapsed = found.split_whitespace().collect::<Vec<_>>().join(" ");
            (!collapsed.is_empty()).then_some(collapsed)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn infer(prompt: &str) -> Option<String> {
        infer_task_description(prompt, "")
    }

    #[test]
    fn all_patterns_compile() {
        assert_eq!(PATTERNS.len(), INTRODUCTIONS.len());
    }

    #[test]
    fn the_rest_of_the_line_is_the_task() {
        assert_eq!(
            infer("Room.\n\nYour task is to: put a  mug\tin desk. \nGo.").unwrap(),
            "put a mug in desk."
        );
        assert_eq!(
            infer("You play. Your goal is to push every box.\nRules").unwrap(),
            "push every box."
        );
        assert_eq!(
            infer("Your question:\n\n who wrote it?\n").unwrap(),
            "who wrote it?"
        );
        let role = "You are a careful web agent helping to buy shoes.\nYour answer:";
        assert_eq!(infer(role).unwrap(), "buy shoes.");
    }

    #[test]
    fn pattern_order_beats_position_and_prompt_beats_observation() {
        assert_eq!(infer("Your question: a?\nYour task is to: b.").unwrap(), "b.");
        let found = infer_task_description("Your goal is to rest.", "Your task is to: work.");
        assert_eq!(found.unwrap(), "rest.");
        assert_eq!(
            infer_task_description("Hello.", "Your task is to: work.").unwrap(),
            "work."
        );
    }

    #[test]
    fn nothing_to_find() {
        assert_eq!(infer("Just look around."), None);
        assert_eq!(infer("Your task is to:   \n\n"), None);
        assert_eq!(infer(""), None);
    }
}
