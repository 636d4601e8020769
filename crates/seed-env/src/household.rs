//! Prompts for worlds that speak ALFWorld's language: rooms, receptacles, objects, one command a step.
//!
//! Two styles say the same in different lengths. [`HouseholdStyle::Full`] follows the layout of the reference's
//! ALFWorld templates (role, task, history, observation, admissible commands, closing instruction), in our words,
//! for pre-trained language models. [`HouseholdStyle::Compact`] spends as few tokens as it can, for a policy of a
//! few million parameters trained on this very phrasing.
//!
//! Not for: the rules of the household (a world's crate has them), or placing a skill in a prompt; a skill finds its
//! place by the line that holds [`TASK_ANCHOR`].

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::dialogue::{TASK_ANCHOR, task_line};
use crate::projection::project_tagged_action;
use crate::{Dialogue, Projection, PromptState};

/// How many characters of an untagged response become the action (the reference's ALFWorld wrapper).
const FALLBACK_CHARACTERS: usize = 30;

const ROLE: &str = "You act as an expert agent inside the embodied ALFRED household.";

const TRANSCRIPT_RULE: &str =
    "Every message shows what you observe; answer each one with exactly one command.";

const CLOSING: &str = "Now it's your turn to act. Work through the situation step by step first, between <think> and \
</think>. When the reasoning is done, pick one command that is possible now and write it between <action> and \
</action>.";

const COMMAND_FORMS: &str = "Commands have these forms: go to (receptacle), open (receptacle), close (receptacle), take \
(object) from (receptacle), move (object) to (receptacle), examine (something), use (object), heat (object) with \
(receptacle), clean (object) with (receptacle), cool (object) with (receptacle), slice (object) with (object), look, \
inventory.";

/// How much a household prompt says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HouseholdStyle {
    /// The reference's layout, for pre-trained language models.
    Full,
    /// The fewest tokens, for a small policy trained on this phrasing.
    Compact,
}

/// Prompts and projection of a household world.
#[derive(Clone, Debug)]
pub struct HouseholdDialogue {
    style: HouseholdStyle,
    commands_in_transcript: bool,
}

impl HouseholdDialogue {
    /// The dialogue of a style. A `transcript` episode lists the possible commands at every turn in the full style
    /// and never in the compact one; a `windowed` prompt always lists them, having no other memory of the room.
    pub fn new(style: HouseholdStyle) -> Self {
        Self {
            style,
            commands_in_transcript: style == HouseholdStyle::Full,
        }
    }

    /// Whether `transcript` messages list the commands possible now.
    pub fn with_commands_in_transcript(mut self, listed: bool) -> Self {
        self.commands_in_transcript = listed;
        self
    }

    /// The style in use.
    pub fn style(&self) -> HouseholdStyle {
        self.style
    }
}

impl Dialogue for HouseholdDialogue {
    fn windowed_prompt(&self, state: &PromptState<'_>) -> String {
        match self.style {
            HouseholdStyle::Full => full_windowed(state),
            HouseholdStyle::Compact => compact_windowed(state),
        }
    }

    fn transcript_opening(&self, state: &PromptState<'_>) -> String {
        let commands = self.commands_in_transcript;
        match self.style {
            HouseholdStyle::Full => full_opening(state, commands),
            HouseholdStyle::Compact => {
                let mut lines = vec![
                    compact_observation(state.observation).into_owned(),
                    task_line(state.task_description),
                ];
                lines.extend(commands.then(|| compact_commands(state.admissible_actions)));
                lines.join("\n")
            }
        }
    }

    fn transcript_turn(&self, state: &PromptState<'_>) -> String {
        let commands = self.commands_in_transcript;
        match self.style {
            HouseholdStyle::Full => {
                let mut text = format!("You observe: {}", state.observation.trim_end());
                if commands {
                    let _ = write!(text, "\n{}", full_commands(state.admissible_actions));
                }
                text
            }
            HouseholdStyle::Compact => {
                let mut text = compact_observation(state.observation).into_owned();
                if commands {
                    let _ = write!(text, "\n{}", compact_commands(state.admissible_actions));
                }
                text
            }
        }
    }

    fn condense<'a>(&self, observation: &'a str) -> Cow<'a, str> {
        match self.style {
            HouseholdStyle::Full => Cow::Borrowed(observation),
            HouseholdStyle::Compact => compact_observation(observation),
        }
    }

    fn project(&self, response: &str) -> Projection {
        project_tagged_action(response, FALLBACK_CHARACTERS)
    }
}

fn full_windowed(state: &PromptState<'_>) -> String {
    let commands = full_commands(state.admissible_actions);
    if state.history.is_empty() {
        let head = full_head(state);
        return format!(
            "\n{head}\nYou observe: {}\n{commands}\n\n{CLOSING}\n",
            state.observation.trim_end()
        );
    }
    let past = state.past_in_full();
    format!(
        "\n{ROLE} {}\n{past}\nThis is step {}, and you observe: {}\n{commands}\n\n{CLOSING}\n",
        task_line(state.task_description),
        state.history.len() + 1,
        state.observation.trim_end()
    )
}

/// The role, with the task beside it unless the observation states the task itself.
fn full_head(state: &PromptState<'_>) -> String {
    if state.observation.contains(TASK_ANCHOR) {
        ROLE.to_owned()
    } else {
        format!("{ROLE} {}", task_line(state.task_description))
    }
}

fn full_opening(state: &PromptState<'_>, commands: bool) -> String {
    let commands = if commands {
        full_commands(state.admissible_actions)
    } else {
        COMMAND_FORMS.to_owned()
    };
    // The rule stands in front of the role, so that the task still ends its line.
    format!(
        "{TRANSCRIPT_RULE}\n{}\nYou observe: {}\n{commands}\n\n{CLOSING}",
        full_head(state),
        state.observation.trim_end()
    )
}

/// The admissible commands without `help`, which teaches nothing and costs a step.
fn offered(commands: &[String]) -> impl Iterator<Item = &str> {
    commands
        .iter()
        .map(String::as_str)
        .filter(|&command| command != "help")
}

fn full_commands(commands: &[String]) -> String {
    let quoted: Vec<String> = offered(commands).map(|command| format!("'{command}'")).collect();
    format!("Commands you can give now: [{}].", quoted.join("\n "))
}

fn compact_commands(commands: &[String]) -> String {
    let offered: Vec<&str> = offered(commands).collect();
    format!("Commands: {}.", offered.join(", "))
}

fn compact_windowed(state: &PromptState<'_>) -> String {
    let observation = compact_observation(state.observation);
    let task = task_line(state.task_description);
    let commands = compact_commands(state.admissible_actions);
    if state.history.is_empty() {
        return format!("{observation}\n{task}\n{commands}");
    }
    let past = state.past_in_short(compact_observation);
    format!("{task}{past}\n{observation}\n{commands}")
}

/// Shortens an observation without losing anything that the action before it does not already tell.
///
/// The welcome line and the task line go (the prompt has the task), the fixed sentences become a name and a colon,
/// and lists lose their articles: `You arrive at desk 1. On the desk 1, you see a mug 2, and a pen 1.` becomes
/// `desk 1: mug 2, pen 1.` Text of any other form is kept as it is.
pub fn compact_observation(text: &str) -> Cow<'_, str> {
    let mut lines = text.lines().map(str::trim_end).filter(|line| {
        !line.is_empty() && !line.starts_with("-= Welcome to TextWorld") && !line.starts_with(TASK_ANCHOR)
    });
    let first = lines.next().unwrap_or_default();
    if lines.next().is_some() {
        // Several lines (the answer to `help`, a foreign world): only what surrounds them is dropped.
        return Cow::Owned(
            text.lines()
                .filter(|line| !line.starts_with("-= Welcome to TextWorld") && !line.starts_with(TASK_ANCHOR))
                .collect::<Vec<_>>()
                .join("\n")
                .trim()
                .to_owned(),
        );
    }
    compact_sentences(first).map_or(Cow::Borrowed(first), Cow::Owned)
}

/// The short form of a known sentence.
fn compact_sentences(line: &str) -> Option<String> {
    if let Some(list) =
        line.strip_prefix("You are in the middle of a room. Looking quickly around you, you see ")
    {
        return Some(format!("Room: {}", bare_list(list)));
    }
    if let Some(rest) = line.strip_prefix("You are facing the ") {
        let (here, list) = rest.split_once(". Next to it, you see ")?;
        return Some(format!(
            "Facing {}: {}",
            here.replace(", and ", ", "),
            bare_list(list)
        ));
    }
    if let Some(rest) = line.strip_prefix("You arrive at ") {
        return receptacle(rest.split_once(". ")?.1);
    }
    if let Some(rest) = line.strip_prefix("You open the ") {
        return receptacle(rest.split_once(". ")?.1);
    }
    if let Some(short) = receptacle(line) {
        return Some(short);
    }
    // Confirmations such as `You move the mug 1 to the desk 2.`
    (line.starts_with("You ") && line.contains(" the ") && !line.contains(". "))
        .then(|| line.replace(" the ", " "))
}

/// `The R is closed.`, `The R is open. In it, you see LIST.` and `On the R, you see LIST.`
fn receptacle(text: &str) -> Option<String> {
    if let Some(rest) = text.strip_prefix("On the ") {
        let (name, list) = rest.split_once(", you see ")?;
        return Some(format!("{name}: {}", bare_list(list)));
    }
    let rest = text.strip_prefix("The ")?;
    if let Some((name, list)) = rest.split_once(" is open. In it, you see ") {
        return Some(format!("{name} is open: {}", bare_list(list)));
    }
    rest.ends_with(" is closed.").then(|| rest.to_owned())
}

/// `a X, a Y, and a Z.` as `X, Y, Z.`
fn bare_list(list: &str) -> String {
    let names: Vec<&str> = list
        .split(", ")
        .map(|item| item.strip_prefix("and ").unwrap_or(item))
        .map(|item| item.strip_prefix("a ").unwrap_or(item))
        .collect();
    names.join(", ")
}
