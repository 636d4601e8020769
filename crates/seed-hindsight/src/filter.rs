//! What makes a parsed skill unusable: too short or long, copied from the transcript, naming particular objects, or
//! repeated.
//!
//! All checks are off unless asked for; the paper filters nothing on the policy's own path.
//!
//! Not for: cutting unsupported sentences out of a skill ([`crate::ground_skill`]).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::grounding::object_names;

/// Options of [`check_skill`]; the defaults refuse nothing.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SkillFilterOptions {
    /// Fewest words.
    pub min_words: usize,
    /// Longest run of words that may also occur in the transcript; `None` = any.
    pub max_copied_run: Option<usize>,
    /// Refuse names such as `mug 1` that occur in the transcript.
    pub refuse_object_names: bool,
}

/// Why a skill is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkillDefect {
    /// Fewer words than asked for.
    TooShort {
        /// Words it has.
        words: usize,
    },
    /// A longer run of words is copied from the transcript than allowed.
    Copied {
        /// Length of that run.
        words: usize,
    },
    /// It names an object of this episode.
    ObjectName {
        /// The name.
        name: String,
    },
}

/// All defects of `skill`, in the order of [`SkillDefect`]; empty = usable.
pub fn check_skill(skill: &str, transcript: &str, options: &SkillFilterOptions) -> Vec<SkillDefect> {
    let mut defects = Vec::new();
    let words = skill.split_whitespace().count();
    if words < options.min_words {
        defects.push(SkillDefect::TooShort { words });
    }
    if let Some(allowed) = options.max_copied_run {
        let copied = longest_copied_run(skill, transcript);
        if copied > allowed {
            defects.push(SkillDefect::Copied { words: copied });
        }
    }
    if options.refuse_object_names {
        let shown = object_names(transcript);
        let named = object_names(skill);
        defects.extend(
            named
                .intersection(&shown)
                .map(|name| SkillDefect::ObjectName { name: name.clone() }),
        );
    }
    defects
}

/// Lower-case words without punctuation: the unit of copying.
fn terms(text: &str) -> Vec<String> {
    text.split(|found: char| !found.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect()
}

/// Share of the skill's `n`-word runs that occur in the transcript; 0 when it has none. Words are compared without
/// case and punctuation.
pub fn copied_ngram_rate(skill: &str, transcript: &str, n: usize) -> f64 {
    let (skill, transcript) = (terms(skill), terms(transcript));
    if n == 0 || skill.len() < n {
        return 0.0;
    }
    let shown: BTreeSet<&[String]> = transcript.windows(n).collect();
    let copied = skill.windows(n).filter(|run| shown.contains(run)).count();
    copied as f64 / (skill.len() - n + 1) as f64
}

/// Length in words of the longest run that skill and transcript share.
fn longest_copied_run(skill: &str, transcript: &str) -> usize {
    let (skill, transcript) = (terms(skill), terms(transcript));
    // Longest common substring over words, one row at a time.
    let mut longest = 0;
    let mut previous = vec![0usize; transcript.len() + 1];
    for word in &skill {
        let mut current = vec![0usize; transcript.len() + 1];
        for (column, shown) in transcript.iter().enumerate() {
            if word == shown {
                current[column + 1] = previous[column] + 1;
                longest = longest.max(current[column + 1]);
            }
        }
        previous = current;
    }
    longest
}

/// Share of skills that equal an earlier one without case, punctuation and white space; 0 for none.
pub fn duplicate_rate(skills: &[&str]) -> f64 {
    if skills.is_empty() {
        return 0.0;
    }
    let distinct: BTreeSet<Vec<String>> = skills.iter().map(|skill| terms(skill)).collect();
    (skills.len() - distinct.len()) as f64 / skills.len() as f64
}

/// The first `max_words` words of a skill, and how many were cut off. White space within is kept.
pub fn limit_words(skill: &str, max_words: usize) -> (&str, usize) {
    let skill = skill.trim();
    let mut end = 0;
    let mut words = 0;
    for word in skill.split_whitespace() {
        words += 1;
        if words <= max_words {
            // Only white space lies between the last word and this one.
            end += skill[end..].find(word).unwrap_or(0) + word.len();
        }
    }
    (&skill[..end], words.saturating_sub(max_words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TRANSCRIPT: &str = "You see a mug 1 on the desk 2. You go to the shelf 1 and put the mug 1 down.";

    #[test]
    fn nothing_is_checked_unless_asked_for() {
        assert!(check_skill("mug 1", TRANSCRIPT, &SkillFilterOptions::default()).is_empty());
    }

    #[test]
    fn each_defect_is_named() {
        let options = SkillFilterOptions {
            min_words: 5,
            max_copied_run: Some(3),
            refuse_object_names: true,
        };
        let check = |skill: &str| check_skill(skill, TRANSCRIPT, &options);
        assert_eq!(check("Look around"), [SkillDefect::TooShort { words: 2 }]);
        assert_eq!(
            check("First: go to the SHELF, then search."),
            [SkillDefect::Copied { words: 4 }]
        );
        let named = SkillDefect::ObjectName { name: "mug 1".into() };
        assert_eq!(
            check("Always take Mug 1 or plate 7 first."),
            std::slice::from_ref(&named),
            "plate 7 is not of this episode"
        );
        assert_eq!(
            check("see a mug 1"),
            [
                SkillDefect::TooShort { words: 4 },
                SkillDefect::Copied { words: 4 },
                named
            ]
        );
        assert!(check("Search open surfaces before closed containers.").is_empty());
    }

    #[test]
    fn copying_is_measured_in_words() {
        assert_eq!(copied_ngram_rate("see a mug today", TRANSCRIPT, 2), 2.0 / 3.0);
        assert_eq!(copied_ngram_rate("a mug", TRANSCRIPT, 3), 0.0);
        assert_eq!(longest_copied_run("Put the mug 1 down!", TRANSCRIPT), 5);
        assert_eq!(longest_copied_run("", TRANSCRIPT), 0);
    }

    #[test]
    fn duplicates_and_limits() {
        assert_eq!(
            duplicate_rate(&["Look first.", "look  first", "Go.", "look, first!"]),
            0.5
        );
        assert_eq!(duplicate_rate(&[]), 0.0);
        assert_eq!(limit_words(" one  two\nthree four ", 3), ("one  two\nthree", 1));
        assert_eq!(limit_words("one", 3), ("one", 0));
        assert_eq!(limit_words("one two", 0), ("", 2));
    }

    proptest! {
        #[test]
        fn limited_skills_have_at_most_the_limit(skill in "\\PC{0,60}", limit in 0usize..8) {
            let (kept, dropped) = limit_words(&skill, limit);
            let words = skill.split_whitespace().count();
            prop_assert_eq!(kept.split_whitespace().count(), words.min(limit));
            prop_assert_eq!(dropped, words.saturating_sub(limit));
        }
    }
}
