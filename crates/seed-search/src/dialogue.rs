//! Prompts of question answering by search, in our own words and the reference's layout.
//!
//! Not for: the words of result blocks ([`crate::information_block`]); they are the environment's.

use std::borrow::Cow;
use std::fmt::Write as _;

use seed_env::{Dialogue, Exchange, Projection, PromptState};

use crate::compact::compact_block;
use crate::environment::INVALID_ACTION;
use crate::projection::project_response;
use crate::{SearchDialect, SearchStyle};

/// What the line with the question begins with; a skill finds its place by it.
pub const QUESTION_ANCHOR: &str = "Your question: ";

const ROLE: &str =
    "You are a researcher with a search engine. Find the answer to the question, one step at a time.";

const TRANSCRIPT_RULE: &str = "Every message after this one shows what your last search found; answer each one with exactly one action.";

const CLOSING: &str = "Now it's your turn to act. Think the step through between <think> and </think>, then end it in \
one of two ways, never both:\n(1) Something is still unknown: write a query for the search engine as <search> the query \
</search>.\n(2) You are sure: write the bare answer between <answer> and </answer>, such as <answer>Beijing</answer>.";

const SEARCH_R1_RULES: &str = "Below is a question to answer. At the start and after everything new that you read, \
think between <think> and </think>. Whenever a fact is missing, write <search> the query </search>; what a search engine \
finds for it then appears between <information> and </information>. There may be several searches. Once nothing is \
missing, finish with the bare answer, such as <answer> Beijing </answer>.";

/// Prompts and projection of a search world.
///
/// A `windowed` prompt has no other observation than the history: the last `history_length` steps, each with the action
/// and the result block it led to. With a history length of 0 every prompt is the first one.
#[derive(Clone, Copy, Debug)]
pub struct SearchDialogue {
    dialect: SearchDialect,
    style: SearchStyle,
}

impl SearchDialogue {
    /// The dialogue of a dialect in a style.
    pub fn new(dialect: SearchDialect, style: SearchStyle) -> Self {
        Self { dialect, style }
    }
}

impl Dialogue for SearchDialogue {
    fn windowed_prompt(&self, state: &PromptState<'_>) -> String {
        let question = question_line(state);
        if self.style == SearchStyle::Compact {
            return format!("{question}{}", recent_steps_in_short(state));
        }
        let past = recent_steps(state);
        if past.is_empty() {
            return format!("\n{ROLE}\n{question}\n\n{CLOSING}\n");
        }
        let steps = state.history.len();
        format!(
            "\n{ROLE}\n{question}\n\nSteps taken so far: {steps}. The latest of them, each query in <search> tags \
             with what the search engine found for it in <information> tags:\n{past}\n\n{CLOSING}\n"
        )
    }

    fn transcript_opening(&self, state: &PromptState<'_>) -> String {
        let question = question_line(state);
        match (self.style, self.dialect) {
            (SearchStyle::Compact, _) => question,
            (SearchStyle::Full, SearchDialect::SearchR1) => format!("{SEARCH_R1_RULES}\n{question}"),
            (SearchStyle::Full, SearchDialect::VerlAgent) => {
                format!("{TRANSCRIPT_RULE}\n{ROLE}\n{question}\n\n{CLOSING}")
            }
        }
    }

    fn transcript_turn(&self, state: &PromptState<'_>) -> String {
        if state.observation.is_empty() {
            // A message has to say something; the windowed prompt of this dialect shows an empty result.
            INVALID_ACTION.to_owned()
        } else {
            self.condense(state.observation).into_owned()
        }
    }

    fn condense<'a>(&self, observation: &'a str) -> Cow<'a, str> {
        match self.style {
            SearchStyle::Full => Cow::Borrowed(observation),
            SearchStyle::Compact => compact_block(observation),
        }
    }

    fn project(&self, response: &str) -> Projection {
        project_response(response, self.dialect)
    }
}

fn question_line(state: &PromptState<'_>) -> String {
    format!("{QUESTION_ANCHOR}{}", state.task_description.trim())
}

/// The window's steps with what each found, which is the observation before the next one.
fn steps_with_results<'a>(state: &PromptState<'a>) -> impl Iterator<Item = (&'a Exchange, &'a str)> {
    let (_, shown) = state.window();
    let last = state.observation;
    shown.iter().enumerate().map(move |(index, exchange)| {
        let found = shown
            .get(index + 1)
            .map_or(last, |next| next.observation.as_str());
        (exchange, found)
    })
}

/// The window: `Step N:ACTION RESULT` and a line break each, joined by line breaks.
fn recent_steps(state: &PromptState<'_>) -> String {
    let (first, _) = state.window();
    let mut text = String::new();
    for (index, (exchange, found)) in steps_with_results(state).enumerate() {
        if index > 0 {
            text.push('\n');
        }
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(text, "Step {}:{} {found}", first + index, exchange.action);
    }
    text
}

/// The window in few words: a line for the action, and the passages it found, each with a line break before it.
fn recent_steps_in_short(state: &PromptState<'_>) -> String {
    let mut text = String::new();
    for (exchange, found) in steps_with_results(state) {
        let _ = write!(text, "\n> {}\n{}", exchange.action_line(), compact_block(found));
    }
    text
}
