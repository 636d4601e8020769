//! Putting a skill into a prompt of the trajectory it came from.
//!
//! The episode block goes after the line that states the task, else before the sentence that hands over the turn,
//! else at the end; the critical-step block goes before that sentence, else at the end. In
//! [`Whitespace::Exact`] mode the result is the prompt with one span inserted and not a byte changed elsewhere, so
//! that an empty skill is no change of context at all; [`Whitespace::StripCompat`] trims the way the released code
//! does. A conversation that grows (transcript context) takes the episode block once, in its opening message.
//!
//! Not for: limits in tokens; the caller tokenises and counts truncated contexts.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// What states the task, in order of preference.
const TASK_ANCHORS: [&str; 5] = [
    "Your task is to:",
    "Your current task is:",
    "Your task is:",
    "Your question:",
    "Your goal is",
];
/// What hands over the turn, in order of preference.
const TURN_ANCHORS: [&str; 2] = ["Now it's your turn to", "Now it's your turn"];

/// How a block is worded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SectionFormat {
    /// A title line, an instruction line, the skill in square brackets; blank lines around.
    Full,
    /// One line `Skill: […]`.
    Compact,
}

/// What happens to white space outside the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Whitespace {
    /// Nothing.
    Exact,
    /// The prompt is trimmed as a whole and on both sides of the block, even when there is no skill.
    StripCompat,
}

/// Options of [`augment_episode`] and [`augment_step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AugmentOptions {
    /// Wording of the block.
    pub format: SectionFormat,
    /// White space outside it.
    pub whitespace: Whitespace,
}

impl Default for AugmentOptions {
    fn default() -> Self {
        Self {
            format: SectionFormat::Full,
            whitespace: Whitespace::Exact,
        }
    }
}

/// Where a block was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockPlacement {
    /// After the line that states the task.
    AfterTaskLine,
    /// Before the sentence that hands over the turn.
    BeforeTurn,
    /// At the end.
    Appended,
    /// Nowhere: the skill is empty.
    Unchanged,
}

/// A prompt with a skill in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Augmented {
    /// The new prompt.
    pub text: String,
    /// Bytes of `text` that were inserted: the block with its line breaks. In [`Whitespace::Exact`] mode removing
    /// them gives back the prompt.
    pub span: Range<usize>,
    /// Where they were put.
    pub placement: BlockPlacement,
}

/// `prompt` with `skill` as its episode block.
pub fn augment_episode(prompt: &str, skill: &str, options: AugmentOptions) -> Augmented {
    let block = match options.format {
        SectionFormat::Full => {
            "**Episode-Level Skill**\nConsult this skill while you work on the current episode:\n"
        }
        SectionFormat::Compact => "Skill: ",
    };
    augment(prompt, block, skill, options, |text| {
        match after_task_line(text) {
            Some(at) => (at, BlockPlacement::AfterTaskLine),
            None => before_turn(text),
        }
    })
}

/// `prompt` with `skill` as its critical-step block.
pub fn augment_step(prompt: &str, skill: &str, options: AugmentOptions) -> Augmented {
    let block = match options.format {
        SectionFormat::Full => "**Critical-Step Skill**\nConsult this skill for the present decision only:\n",
        SectionFormat::Compact => "Step skill: ",
    };
    augment(prompt, block, skill, options, before_turn)
}

/// The byte after the first line that states the task, by anchor order first and position second.
fn after_task_line(prompt: &str) -> Option<usize> {
    TASK_ANCHORS.iter().find_map(|anchor| {
        let found = prompt.find(anchor)?;
        let end = prompt[found..]
            .find('\n')
            .map_or(prompt.len(), |offset| found + offset);
        // A carriage return belongs to the line break.
        Some(if prompt[..end].ends_with('\r') {
            end - 1
        } else {
            end
        })
    })
}

/// The byte before the turn sentence, else the end of the text proper.
fn before_turn(prompt: &str) -> (usize, BlockPlacement) {
    TURN_ANCHORS
        .iter()
        .find_map(|anchor| Some((prompt.find(anchor)?, BlockPlacement::BeforeTurn)))
        .unwrap_or((prompt.trim_end().len(), BlockPlacement::Appended))
}

fn augment(
    prompt: &str,
    introduction: &str,
    skill: &str,
    options: AugmentOptions,
    place: impl FnOnce(&str) -> (usize, BlockPlacement),
) -> Augmented {
    let compat = options.whitespace == Whitespace::StripCompat;
    let prompt = if compat { prompt.trim() } else { prompt };
    let skill = contained(skill, options.format);
    if skill.is_empty() {
        return Augmented {
            text: prompt.to_owned(),
            span: 0..0,
            placement: BlockPlacement::Unchanged,
        };
    }
    let (at, placement) = place(prompt);
    let (left, right) = prompt.split_at(at);
    let (left, right) = if compat {
        (left.trim_end(), right.trim_start())
    } else {
        (left, right)
    };
    // Full blocks stand between blank lines, compact ones on a line of their own.
    let wanted = match options.format {
        SectionFormat::Full => 2,
        SectionFormat::Compact => 1,
    };
    let breaks = |side: &str, present: usize| {
        if side.trim().is_empty() {
            String::new()
        } else {
            "\n".repeat(usize::saturating_sub(wanted, present))
        }
    };
    let before = breaks(left, line_breaks(left.chars().rev()));
    let after = breaks(right, line_breaks(right.chars()));
    let inserted = format!("{before}{introduction}[{skill}]{after}");
    let span = left.len()..left.len() + inserted.len();
    Augmented {
        text: format!("{left}{inserted}{right}"),
        span,
        placement,
    }
}

/// Line breaks among the white space that `characters` start with.
fn line_breaks(characters: impl Iterator<Item = char>) -> usize {
    characters
        .take_while(|found| found.is_whitespace())
        .filter(|&found| found == '\n')
        .count()
}

/// The skill as it may stand in a prompt: trimmed, without image placeholders, on one line in compact blocks.
fn contained(skill: &str, format: SectionFormat) -> String {
    let safe = skill.trim().replace("<image>", "[image]");
    match format {
        SectionFormat::Full => safe,
        SectionFormat::Compact => safe.split_whitespace().collect::<Vec<_>>().join(" "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FULL: AugmentOptions = AugmentOptions {
        format: SectionFormat::Full,
        whitespace: Whitespace::Exact,
    };
    const COMPACT: AugmentOptions = AugmentOptions {
        format: SectionFormat::Compact,
        whitespace: Whitespace::Exact,
    };
    const COMPAT: AugmentOptions = AugmentOptions {
        format: SectionFormat::Full,
        whitespace: Whitespace::StripCompat,
    };
    const BLOCK: &str =
        "**Episode-Level Skill**\nConsult this skill while you work on the current episode:\n[S]";
    const STEP: &str = "**Critical-Step Skill**\nConsult this skill for the present decision only:\n[S]";

    fn episode(prompt: &str) -> Augmented {
        augment_episode(prompt, "S", FULL)
    }

    #[test]
    fn after_the_task_line_with_a_blank_line_on_both_sides() {
        let found = episode("\nRole.\nYour task is to: put a mug.\nYou see a desk.\n");
        let expected = format!("\nRole.\nYour task is to: put a mug.\n\n{BLOCK}\n\nYou see a desk.\n");
        assert_eq!(found.text, expected);
        assert_eq!(found.placement, BlockPlacement::AfterTaskLine);
        assert_eq!(&found.text[found.span], format!("\n\n{BLOCK}\n"));
        // A blank line that is already there is used.
        let found = episode("Your task is to: put a mug.\n\nYou see a desk.");
        assert_eq!(
            found.text,
            format!("Your task is to: put a mug.\n\n{BLOCK}\n\nYou see a desk.")
        );
        // Nothing follows.
        let found = episode("Go.\nYour task is to: put a mug.\n");
        assert_eq!(
            found.text,
            format!("Go.\nYour task is to: put a mug.\n\n{BLOCK}\n")
        );
    }

    #[test]
    fn the_task_line_wins_for_episodes_and_the_turn_for_steps() {
        let prompt = "Your task is to: rest.\nA bed.\n\nNow it's your turn to act.";
        let found = episode(prompt);
        assert_eq!(
            found.text,
            format!("Your task is to: rest.\n\n{BLOCK}\n\nA bed.\n\nNow it's your turn to act.")
        );
        let found = augment_step(prompt, "S", FULL);
        assert_eq!(
            found.text,
            format!("Your task is to: rest.\nA bed.\n\n{STEP}\n\nNow it's your turn to act.")
        );
        assert_eq!(found.placement, BlockPlacement::BeforeTurn);
    }

    #[test]
    fn before_the_turn() {
        let found = episode("A bed.\nNow it's your turn to act.\n");
        assert_eq!(
            found.text,
            format!("A bed.\n\n{BLOCK}\n\nNow it's your turn to act.\n")
        );
        assert_eq!(found.placement, BlockPlacement::BeforeTurn);
        // The longer phrase wins over an earlier shorter one.
        let found = episode("Now it's your turn. Now it's your turn to act.");
        assert_eq!(
            found.text,
            format!("Now it's your turn. \n\n{BLOCK}\n\nNow it's your turn to act.")
        );
        assert_eq!(
            episode("Now it's your turn.").text,
            format!("{BLOCK}\n\nNow it's your turn.")
        );
    }

    #[test]
    fn appended_without_an_anchor() {
        let found = episode("A bed.\n");
        assert_eq!(found.text, format!("A bed.\n\n{BLOCK}\n"));
        assert_eq!(found.placement, BlockPlacement::Appended);
        assert_eq!(episode("").text, BLOCK);
        assert_eq!(
            augment_step("A bed.", "S", FULL).text,
            format!("A bed.\n\n{STEP}")
        );
    }

    #[test]
    fn an_empty_skill_changes_nothing() {
        let prompt = "\n Your task is to: rest.\n\n";
        for skill in ["", " \n\t"] {
            let found = augment_episode(prompt, skill, FULL);
            assert_eq!(
                (found.text.as_str(), found.placement),
                (prompt, BlockPlacement::Unchanged)
            );
            assert!(found.span.is_empty());
            assert_eq!(
                augment_episode(prompt, skill, COMPAT).text,
                "Your task is to: rest."
            );
        }
    }

    #[test]
    fn only_the_first_task_line_counts() {
        let found = episode("Your task is to: write \"Your task is to: rest\".\nYour task is to: rest.\nEnd");
        let line = "Your task is to: write \"Your task is to: rest\".";
        assert_eq!(
            found.text,
            format!("{line}\n\n{BLOCK}\n\nYour task is to: rest.\nEnd")
        );
    }

    #[test]
    fn anchor_order_beats_position() {
        let found = episode("Your question: why?\nYour task is to: rest.\nEnd");
        assert_eq!(
            found.text,
            format!("Your question: why?\nYour task is to: rest.\n\n{BLOCK}\n\nEnd")
        );
        let found = episode("You push. Your goal is to push.\r\nRules");
        assert_eq!(
            found.text,
            format!("You push. Your goal is to push.\n\n{BLOCK}\n\r\nRules")
        );
    }

    #[test]
    fn the_reference_s_trimming_on_request() {
        let found = augment_episode("\nYour task is to: rest.  \n\n\n\nEnd\n", "S", COMPAT);
        assert_eq!(found.text, format!("Your task is to: rest.\n\n{BLOCK}\n\nEnd"));
        assert_eq!(&found.text[found.span], format!("\n\n{BLOCK}\n\n"));
    }

    #[test]
    fn compact_blocks_are_one_line() {
        let found = augment_episode(
            "Task.\nYour task is to: rest.\nEnd\n",
            " go\nto  bed <image> ",
            COMPACT,
        );
        assert_eq!(
            found.text,
            "Task.\nYour task is to: rest.\nSkill: [go to bed [image]]\nEnd\n"
        );
        let found = augment_step("End\nNow it's your turn", "rest", COMPACT);
        assert_eq!(found.text, "End\nStep skill: [rest]\nNow it's your turn");
    }

    proptest! {
        /// Taking the span out gives back the prompt, byte for byte, and the skill is inside the span.
        #[test]
        fn only_the_inserted_span_differs(
            prompt in "(\\PC|\n|\r\n| |Your task is to:|Your question:|Now it's your turn( to)?){0,40}",
            skill in "[a-z .]{0,20}",
            compact in any::<bool>(),
            step in any::<bool>(),
        ) {
            let options = if compact { COMPACT } else { FULL };
            let found = if step {
                augment_step(&prompt, &skill, options)
            } else {
                augment_episode(&prompt, &skill, options)
            };
            let mut restored = found.text.clone();
            restored.replace_range(found.span.clone(), "");
            prop_assert_eq!(restored, prompt);
            let shown = contained(&skill, options.format);
            if shown.is_empty() {
                prop_assert!(found.span.is_empty());
            } else {
                let bracketed = format!("[{shown}]");
                prop_assert!(found.text[found.span].contains(&bracketed));
            }
        }
    }
}
