//! Conversations as token ids: a model's own chat template, and the turn format read off it.
//!
//! [`ChatTemplate`] renders whole conversations as transformers does. [`TurnFormat`] is what an append-only
//! conversation needs: the ids that open it and the ids that go between two responses, so that nothing already in the
//! context is ever encoded again.
//!
//! Not for: deciding what the messages say.

mod environment;
mod turns;

use std::collections::BTreeMap;
use std::sync::Arc;

use minijinja::Environment;
use serde::Serialize;

pub use turns::{HistoryChange, TurnFormat};

use crate::error::ModelError;
use crate::tokenizer::{Piece, Tokenizer};

/// The chat template of models initialised here: every message between `<|im_start|>` and `<|im_end|>`, the role on
/// the first line, no default system message.
pub const CHATML_TEMPLATE: &str = include_str!("chat/chatml.jinja");

/// The control tokens of [`CHATML_TEMPLATE`], then the one that pre-training puts between documents.
pub const CHATML_TOKENS: [&str; 3] = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"];

/// Who wrote a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions that hold for the whole conversation.
    System,
    /// The environment, or a person.
    User,
    /// The model.
    Assistant,
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    /// Who wrote it.
    pub role: Role,
    /// Its text; never read as control tokens.
    pub content: String,
}

impl Message {
    /// A system message.
    pub fn system(content: impl Into<String>) -> Self {
        Self::new(Role::System, content)
    }

    /// A user message.
    pub fn user(content: impl Into<String>) -> Self {
        Self::new(Role::User, content)
    }

    /// A message of the model.
    pub fn assistant(content: impl Into<String>) -> Self {
        Self::new(Role::Assistant, content)
    }

    fn new(role: Role, content: impl Into<String>) -> Self {
        Self {
            role,
            content: content.into(),
        }
    }
}

/// A compiled chat template. A clone shares the compiled form.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    source: Arc<str>,
    environment: Arc<Environment<'static>>,
    /// `bos_token`, `eos_token`, ... as the template sees them.
    named_tokens: BTreeMap<String, String>,
    thinking: bool,
}

/// What a template sees, named as in transformers.
#[derive(Serialize)]
struct Context<'a> {
    messages: &'a [Message],
    add_generation_prompt: bool,
    enable_thinking: bool,
    tools: Option<()>,
    documents: Option<()>,
    #[serde(flatten)]
    named_tokens: &'a BTreeMap<String, String>,
}

impl ChatTemplate {
    /// Compiles a Jinja template as found in `chat_template.jinja` or `tokenizer_config.json`. `tokenizer` gives the
    /// spellings of `bos_token`, `eos_token`, `pad_token` and `unk_token`.
    ///
    /// Thinking is off, as in the reference implementation of SEED; see [`ChatTemplate::with_thinking`].
    ///
    /// # Errors
    /// [`ModelError::ChatTemplate`] where the text is no such template.
    pub fn new(source: &str, tokenizer: &Tokenizer) -> Result<Self, ModelError> {
        let named_tokens = ["bos_token", "eos_token", "pad_token", "unk_token"]
            .into_iter()
            .filter_map(|name| Some((name.to_owned(), tokenizer.named_token(name)?.to_owned())))
            .collect();
        Ok(Self {
            source: source.into(),
            environment: Arc::new(environment::compile(source)?),
            named_tokens,
            thinking: false,
        })
    }

    /// The same template with the variable `enable_thinking` set, which Qwen3's template looks at.
    #[must_use]
    pub fn with_thinking(mut self, thinking: bool) -> Self {
        self.thinking = thinking;
        self
    }

    /// The Jinja text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The text of a conversation; with `add_generation_prompt` it ends where the model's turn begins.
    ///
    /// For showing. To get ids use [`ChatTemplate::encode`]: in this text a control token that a message merely spells
    /// looks like a real one.
    ///
    /// # Errors
    /// [`ModelError::ChatTemplate`] where the template fails or raises, for instance over the order of roles.
    pub fn render(&self, messages: &[Message], add_generation_prompt: bool) -> Result<String, ModelError> {
        environment::render(
            &self.environment,
            &Context {
                messages,
                add_generation_prompt,
                enable_thinking: self.thinking,
                tools: None,
                documents: None,
                named_tokens: &self.named_tokens,
            },
        )
    }

    /// The ids of a conversation: those of transformers' `apply_chat_template`, except that the contents of messages
    /// never yield a control token, whatever they spell.
    ///
    /// # Errors
    /// As [`ChatTemplate::render`]; [`ModelError::ControlTokensFromText`] where contents change which control tokens
    /// the template writes.
    pub fn encode(
        &self,
        tokenizer: &Tokenizer,
        messages: &[Message],
        add_generation_prompt: bool,
    ) -> Result<Vec<u32>, ModelError> {
        // A mark inside every spelling of a control token keeps it from being one, while the template still sees the
        // text as it is (it may trim it, or look for `</think>` in it).
        let mark = unused_mark(messages)?;
        let rewritten = |change: &dyn Fn(&str) -> String| -> Vec<Message> {
            let rewrite = |message: &Message| Message {
                role: message.role,
                content: change(&message.content),
            };
            messages.iter().map(rewrite).collect()
        };
        let marked = rewritten(&|content| mark_control(tokenizer, content, mark));
        let text = self.render(&marked, add_generation_prompt)?;
        let pieces = tokenizer.pieces(&text);
        // A template that cuts pieces out of a message can still join the halves of a control token. Then it writes
        // other control tokens than around harmless contents.
        let neutral = self.render(&rewritten(&|_| "x".to_owned()), add_generation_prompt)?;
        if !control_ids(&pieces).eq(control_ids(&tokenizer.pieces(&neutral))) {
            return Err(ModelError::ControlTokensFromText);
        }
        let mut ids = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Control(id) => ids.push(id),
                Piece::Text(text) => ids.extend(tokenizer.encode_text(&text.replace(mark, ""))),
            }
        }
        Ok(ids)
    }
}

fn control_ids<'a>(pieces: &'a [Piece<'_>]) -> impl Iterator<Item = u32> + 'a {
    pieces.iter().filter_map(|piece| match piece {
        Piece::Control(id) => Some(*id),
        Piece::Text(_) => None,
    })
}

/// A Unicode noncharacter that is in none of the messages.
fn unused_mark(messages: &[Message]) -> Result<char, ModelError> {
    ('\u{fdd0}'..='\u{fdef}')
        .find(|&mark| !messages.iter().any(|message| message.content.contains(mark)))
        .ok_or_else(|| ModelError::ChatTemplate {
            problem: "the messages hold every Unicode noncharacter from U+FDD0 to U+FDEF".to_owned(),
        })
}

/// `text` with `mark` after the first character of every spelling of a control token, overlapping ones included.
fn mark_control(tokenizer: &Tokenizer, text: &str, mark: char) -> String {
    let mut marked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        marked.push(first);
        if tokenizer.begins_with_control(rest) {
            marked.push(mark);
        }
        rest = &rest[first.len_utf8()..];
    }
    marked
}

#[cfg(test)]
mod tests;
