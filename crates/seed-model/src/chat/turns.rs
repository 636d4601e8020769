//! The turn format of a chat template: what stands before, between and after the texts of a conversation.
//!
//! It is found by rendering short conversations of known words and looking at what is around them, so it needs no
//! knowledge of any particular template.
//!
//! Not for: conversations with a system message of one's own; the template's default one is kept.

use std::fmt;

use super::{ChatTemplate, Message};
use crate::error::ModelError;
use crate::tokenizer::{Piece, Tokenizer};

/// Words that no template contains; only letters, so that no template changes them.
const USERS: [&str; 3] = ["QUserOneQ", "QUserTwoQ", "QUserThreeQ"];
const ASSISTANTS: [&str; 2] = ["QAssistantOneQ", "QAssistantTwoQ"];
const THOUGHT: &str = "QThoughtQ";

/// White space that no template puts beside a message itself.
const PADDING: &str = "\t \t";

/// What a template does to turns that are no longer the last: a reason why its later prompts do not begin with its
/// earlier ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HistoryChange {
    /// Text that the generation prompt put before a response is not there any more in the history.
    GenerationPromptChanged {
        /// What stood before the response when it was generated.
        generated_after: String,
        /// What stands before it in the history.
        history: String,
    },
    /// The `<think>` block of a response is taken out.
    ThinkingRemoved,
    /// White space at the beginning or end of a response is taken out.
    WhiteSpaceTrimmed,
    /// Something is put between a response and the token that ends it.
    TextBeforeEnd {
        /// The text.
        text: String,
    },
    /// An earlier turn changes in another way once further turns follow.
    EarlierTurnsChanged,
}

impl fmt::Display for HistoryChange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GenerationPromptChanged {
                generated_after,
                history,
            } => write!(
                formatter,
                "a response is generated after {generated_after:?} but stands after {history:?} in the history"
            ),
            Self::ThinkingRemoved => formatter.write_str("`<think>` blocks are removed from the history"),
            Self::WhiteSpaceTrimmed => {
                formatter.write_str("white space around responses is removed from the history")
            }
            Self::TextBeforeEnd { text } => {
                write!(
                    formatter,
                    "{text:?} is put between a response and its end token in the history"
                )
            }
            Self::EarlierTurnsChanged => formatter.write_str("earlier turns change when later ones follow"),
        }
    }
}

/// The ids around the texts of an append-only conversation.
///
/// Ids once returned are only ever appended to. A template may render the same conversation differently once it has
/// gone on ([`TurnFormat::history_changes`]); the append-only form is well defined even then, but differs from what
/// the template would give.
#[derive(Clone, Debug)]
pub struct TurnFormat {
    tokenizer: Tokenizer,
    opening: UserTurn,
    /// After a response that did not end with the end-of-turn token.
    next_after_text: UserTurn,
    /// After a response that did.
    next_after_end: UserTurn,
    end_of_turn: Option<u32>,
    trims_left: bool,
    trims_right: bool,
    history_changes: Vec<HistoryChange>,
}

/// What stands around a user's text, through the generation prompt.
#[derive(Clone, Debug)]
struct UserTurn {
    before: Vec<u32>,
    /// Ordinary text between the last control token before the user's text and that text: encoded together with it,
    /// as a tokenizer that sees the whole conversation would.
    lead: String,
    /// Ordinary text between the user's text and the first control token after it.
    trail: String,
    after: Vec<u32>,
}

impl TurnFormat {
    /// Reads the turn format off a template.
    ///
    /// # Errors
    /// [`ModelError::TurnFormat`] where the template does not show every message once and in order;
    /// [`ModelError::ChatTemplate`] where it fails.
    pub fn derive(template: &ChatTemplate, tokenizer: &Tokenizer) -> Result<Self, ModelError> {
        let first = template.render(&[Message::user(USERS[0])], true)?;
        let (before, generation_prompt) = around(&first, USERS[0])?;
        let dialogue = |answer: &str| {
            template.render(
                &[
                    Message::user(USERS[0]),
                    Message::assistant(answer),
                    Message::user(USERS[1]),
                ],
                true,
            )
        };
        let second = dialogue(ASSISTANTS[0])?;
        let (_, rest) = around(&second, USERS[0])?;
        let (history, rest) = around(rest, ASSISTANTS[0])?;
        let (between, after) = around(rest, USERS[1])?;
        if after != generation_prompt {
            return Err(ModelError::TurnFormat {
                problem: format!(
                    "the generation prompt is {generation_prompt:?} at first and {after:?} later"
                ),
            });
        }

        let mut history_changes = Vec::new();
        if history != generation_prompt {
            history_changes.push(HistoryChange::GenerationPromptChanged {
                generated_after: generation_prompt.to_owned(),
                history: history.to_owned(),
            });
        }
        let thinking = format!("<think>\n{THOUGHT}\n</think>\n\n{}", ASSISTANTS[0]);
        if !dialogue(&thinking)?.contains(&thinking) {
            history_changes.push(HistoryChange::ThinkingRemoved);
        }
        let spaced = format!("{PADDING}{}{PADDING}", ASSISTANTS[0]);
        if !dialogue(&spaced)?.contains(&spaced) {
            history_changes.push(HistoryChange::WhiteSpaceTrimmed);
        }
        let (end_of_turn, text_before_end, after_end) = end_of_turn(tokenizer, between);
        if !text_before_end.is_empty() {
            history_changes.push(HistoryChange::TextBeforeEnd {
                text: text_before_end.to_owned(),
            });
        }
        let third = template.render(
            &[
                Message::user(USERS[0]),
                Message::assistant(ASSISTANTS[0]),
                Message::user(USERS[1]),
                Message::assistant(ASSISTANTS[1]),
                Message::user(USERS[2]),
            ],
            true,
        )?;
        // What the second prompt's last generation prompt has become is judged above.
        let kept = &second[..second.len() - generation_prompt.len()];
        if !third.starts_with(&format!("{kept}{history}{}{between}", ASSISTANTS[1])) {
            history_changes.push(HistoryChange::EarlierTurnsChanged);
        }

        let padded = format!("{PADDING}{}{PADDING}", USERS[0]);
        let padded = template.render(&[Message::user(padded)], true)?;
        Ok(Self {
            opening: UserTurn::new(tokenizer, before, generation_prompt),
            next_after_text: UserTurn::new(tokenizer, between, generation_prompt),
            next_after_end: UserTurn::new(tokenizer, after_end, generation_prompt),
            end_of_turn,
            trims_left: !padded.contains(&format!("{PADDING}{}", USERS[0])),
            trims_right: !padded.contains(&format!("{}{PADDING}", USERS[0])),
            history_changes,
            tokenizer: tokenizer.clone(),
        })
    }

    /// Ids of a conversation that begins with one user message, through the generation prompt.
    pub fn opening(&self, user: &str) -> Vec<u32> {
        self.opening.encode(&self.tokenizer, self.trimmed(user))
    }

    /// Ids that follow a response whose last id is `last_token`: the end of the assistant's turn unless it was
    /// sampled, then the user's message through the generation prompt.
    ///
    /// Another stop token at the end of a response stays there and the turn is ended after it.
    pub fn next_turn(&self, user: &str, last_token: Option<u32>) -> Vec<u32> {
        let ended = last_token.is_some() && last_token == self.end_of_turn;
        let turn = if ended {
            &self.next_after_end
        } else {
            &self.next_after_text
        };
        turn.encode(&self.tokenizer, self.trimmed(user))
    }

    /// The token with which the template ends the assistant's turn, where it is a single control token.
    ///
    /// In formats without a token of its own for that, it is the one that begins the next turn.
    pub fn end_of_turn(&self) -> Option<u32> {
        self.end_of_turn
    }

    /// Whether every prompt that the template renders begins with the previous prompt and the response to it, so
    /// that the append-only form is the template's own.
    pub fn is_prefix_preserving(&self) -> bool {
        self.history_changes.is_empty()
    }

    /// Why it is not prefix-preserving, in the order in which the changes were looked for; empty where it is.
    pub fn history_changes(&self) -> &[HistoryChange] {
        &self.history_changes
    }

    fn trimmed<'a>(&self, user: &'a str) -> &'a str {
        let user = if self.trims_left { user.trim_start() } else { user };
        if self.trims_right { user.trim_end() } else { user }
    }
}

impl UserTurn {
    fn new(tokenizer: &Tokenizer, before: &str, after: &str) -> Self {
        let mut head = tokenizer.pieces(before);
        let lead = match head.last() {
            Some(&Piece::Text(text)) => {
                head.pop();
                text
            }
            _ => "",
        };
        let tail = tokenizer.pieces(after);
        let (trail, tail) = match tail.split_first() {
            Some((&Piece::Text(text), tail)) => (text, tail),
            _ => ("", tail.as_slice()),
        };
        Self {
            before: encode(tokenizer, &head),
            lead: lead.to_owned(),
            trail: trail.to_owned(),
            after: encode(tokenizer, tail),
        }
    }

    fn encode(&self, tokenizer: &Tokenizer, user: &str) -> Vec<u32> {
        let mut ids = self.before.clone();
        ids.extend(tokenizer.encode_text(&format!("{}{user}{}", self.lead, self.trail)));
        ids.extend_from_slice(&self.after);
        ids
    }
}

fn encode(tokenizer: &Tokenizer, pieces: &[Piece<'_>]) -> Vec<u32> {
    let mut ids = Vec::new();
    for piece in pieces {
        match *piece {
            Piece::Control(id) => ids.push(id),
            Piece::Text(text) => ids.extend(tokenizer.encode_text(text)),
        }
    }
    ids
}

/// The text before and after the only occurrence of `word`.
fn around<'a>(text: &'a str, word: &str) -> Result<(&'a str, &'a str), ModelError> {
    match text.split_once(word) {
        Some((before, after)) if !after.contains(word) => Ok((before, after)),
        Some(_) => Err(ModelError::TurnFormat {
            problem: "it shows a message more than once".to_owned(),
        }),
        None => Err(ModelError::TurnFormat {
            problem: "it leaves out a message or changes the order".to_owned(),
        }),
    }
}

/// The end-of-turn token in the text between a response and the next user message, the text before it, and the text
/// after it. None where something other than white space comes first: that is no end of a turn.
fn end_of_turn<'a>(tokenizer: &Tokenizer, between: &'a str) -> (Option<u32>, &'a str, &'a str) {
    let none = (None, "", between);
    let pieces = tokenizer.pieces(between);
    let Some(end) = pieces.iter().find_map(|piece| match piece {
        Piece::Control(id) => Some(*id),
        Piece::Text(_) => None,
    }) else {
        return none;
    };
    let spelling = tokenizer.token_name(end).unwrap_or_default();
    match between.split_once(&spelling) {
        Some((before, after)) if before.trim().is_empty() => (Some(end), before, after),
        _ => none,
    }
}
