//! Fine-tuning examples: conversations whose assistant turns are trained.
//!
//! Two line formats are read: `{"messages": [{"role", "content"}, …]}`, and `{"prompt", "response"}` as hindsight-skill
//! records have it. Environment text is encoded as ordinary text; an assistant turn in the *given* part of a
//! conversation is context, not a target, unless the line says `"train": "all"`.

use std::path::{Path, PathBuf};

use seed_model::Tokenizer;
use seed_rollout::Conversation;
use seed_run::{RunError, read_json_lines};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// One message of an example.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExampleMessage {
    /// `user` or `assistant`.
    pub role: Role,
    /// The text.
    pub content: String,
}

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The environment or the person asking.
    User,
    /// The model.
    Assistant,
}

/// Which assistant turns are targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trained {
    /// The last one; earlier ones are context.
    #[default]
    Last,
    /// All of them.
    All,
}

/// One example as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExampleRecord {
    /// What the example teaches, for reporting: `act`, `act_with_skill`, `analyse`, …
    #[serde(default)]
    pub kind: String,
    /// Alternating messages, first `user`, last `assistant`.
    pub messages: Vec<ExampleMessage>,
    /// Which assistant turns are targets.
    #[serde(default)]
    pub train: Trained,
}

/// One example as ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    /// Index into the list of kinds.
    pub kind: usize,
    /// All ids.
    pub tokens: Vec<u32>,
    /// Positions of the target ids, increasing.
    pub scored: Vec<u32>,
}

/// Why examples could not be read.
#[derive(Debug, Error)]
pub enum ExampleError {
    /// The file could not be read, or a line is no example.
    #[error(transparent)]
    Read(#[from] RunError),
    /// An example is not a conversation.
    #[error("`{path}`: example {index} is not usable: {message}")]
    Record {
        /// The file.
        path: PathBuf,
        /// 0-based example.
        index: usize,
        /// What is wrong with it.
        message: String,
    },
    /// Nothing to train on.
    #[error("no examples in {paths:?}; make some with `seed demonstrate` or `seed annotate`")]
    Empty {
        /// The files read.
        paths: Vec<PathBuf>,
    },
    /// An example is too long and the configuration says to stop.
    #[error(
        "example {index} has {length} tokens, more than `sft.max_length` = {limit}; raise it or set `sft.truncation`"
    )]
    TooLong {
        /// 0-based example.
        index: usize,
        /// Its length in tokens.
        length: usize,
        /// The limit.
        limit: usize,
    },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Conversation(ExampleRecord),
    Pair {
        #[serde(default)]
        kind: Option<String>,
        prompt: String,
        response: String,
    },
}

/// Reads all examples of a JSONL file; a name ending in `.zst` is decompressed.
///
/// # Errors
/// [`ExampleError`] naming the file and the line or the example.
pub fn read_examples(path: &Path) -> Result<Vec<ExampleRecord>, ExampleError> {
    let mut records = Vec::new();
    for line in read_json_lines::<Line>(path)? {
        let record = match line? {
            Line::Conversation(record) => record,
            Line::Pair {
                kind,
                prompt,
                response,
            } => ExampleRecord {
                kind: kind.unwrap_or_else(|| "pair".to_owned()),
                messages: vec![
                    ExampleMessage {
                        role: Role::User,
                        content: prompt,
                    },
                    ExampleMessage {
                        role: Role::Assistant,
                        content: response,
                    },
                ],
                train: Trained::Last,
            },
        };
        record.check().map_err(|message| ExampleError::Record {
            path: path.to_owned(),
            index: records.len(),
            message,
        })?;
        records.push(record);
    }
    Ok(records)
}

impl ExampleRecord {
    /// Alternating roles, user first, assistant last.
    fn check(&self) -> Result<(), String> {
        if self.messages.is_empty() || !self.messages.len().is_multiple_of(2) {
            return Err(format!(
                "expected pairs of a `user` and an `assistant` message, found {} messages",
                self.messages.len()
            ));
        }
        for (index, message) in self.messages.iter().enumerate() {
            let expected = if index % 2 == 0 {
                Role::User
            } else {
                Role::Assistant
            };
            if message.role != expected {
                return Err(format!("message {index} should be from {expected:?}"));
            }
        }
        Ok(())
    }

    /// Encodes the example. Each assistant turn ends with `end_token`, which is a target too.
    pub fn encode(
        &self,
        conversation: &Conversation,
        tokenizer: &Tokenizer,
        end_token: u32,
        kind: usize,
    ) -> Example {
        let mut example = Example {
            kind,
            tokens: Vec::new(),
            scored: Vec::new(),
        };
        for pair in self.messages.chunks(2) {
            let [user, assistant] = pair else { continue };
            if example.tokens.is_empty() {
                example.tokens = conversation.opening(&user.content);
            } else {
                let last = example.tokens.last().copied();
                example.tokens.extend(conversation.next_turn(&user.content, last));
            }
            let start = example.tokens.len();
            example.tokens.extend(tokenizer.encode_text(&assistant.content));
            example.tokens.push(end_token);
            if self.train == Trained::Last {
                example.scored.clear();
            }
            example.scored.extend(start as u32..example.tokens.len() as u32);
        }
        example
    }
}

impl Example {
    /// Makes every id a target that has an id before it.
    pub fn score_all(&mut self) {
        self.scored = (1..self.tokens.len() as u32).collect();
    }

    /// Cuts the example to `limit` ids from the left. Targets keep their ids: those cut off, and the first id left
    /// (which has no context), are no longer targets.
    pub fn truncate_left(&mut self, limit: usize) {
        let Some(cut) = self.tokens.len().checked_sub(limit).filter(|&cut| cut > 0) else {
            return;
        };
        self.tokens.drain(..cut);
        self.scored.retain(|&position| position as usize > cut);
        for position in &mut self.scored {
            *position -= cut as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs_err::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn both_line_formats_are_read() {
        let file = write(concat!(
            "{\"prompt\":\"p\",\"response\":\"r\",\"skill_id\":\"1:2\"}\n\n",
            "{\"kind\":\"act\",\"train\":\"all\",\"messages\":[{\"role\":\"user\",\"content\":\"u\"},",
            "{\"role\":\"assistant\",\"content\":\"a\"}]}\n"
        ));
        let records = read_examples(file.path()).unwrap();
        assert_eq!(records.len(), 2);
        assert_eq!(
            (records[0].kind.as_str(), records[0].train),
            ("pair", Trained::Last)
        );
        assert_eq!(records[1].messages[1].content, "a");
    }

    #[test]
    fn a_bad_line_is_named() {
        let cases = [
            ("{\"prompt\":1}", "line 1"),
            ("{\"messages\":[]}", "found 0 messages"),
            (
                "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"u\"}]}",
                "message 0 should be from User",
            ),
        ];
        for (text, expected) in cases {
            let error = read_examples(write(text).path()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn all_ids_but_the_first_can_be_targets() {
        let mut example = Example {
            kind: 0,
            tokens: vec![7, 8, 9],
            scored: vec![2],
        };
        example.score_all();
        assert_eq!(example.scored, vec![1, 2]);
    }

    #[test]
    fn left_truncation_moves_targets_with_their_ids() {
        let mut example = Example {
            kind: 0,
            tokens: (10..20).collect(),
            scored: vec![3, 4, 8, 9],
        };
        example.truncate_left(6);
        assert_eq!(example.tokens, (14..20).collect::<Vec<_>>());
        // Position 4 became the first id and lost its context; 8 and 9 are now 4 and 5.
        assert_eq!(example.scored, vec![4, 5]);
        assert_eq!(example.tokens[example.scored[0] as usize], 18);
    }

    /// An assistant turn in the given part of a conversation is context.
    #[test]
    fn prompt_history_assistant_is_not_trained() {
        let policy = crate::policy::Policy::load(Path::new(crate::embedded::HOUSEHOLD_TINY), false).unwrap();
        let text = concat!(
            "{\"messages\":[{\"role\":\"user\",\"content\":\"look\"},",
            "{\"role\":\"assistant\",\"content\":\"go to desk 1\"},",
            "{\"role\":\"user\",\"content\":\"a pen\"},",
            "{\"role\":\"assistant\",\"content\":\"take pen 1\"}]}\n"
        );
        let mut record = read_examples(write(text).path()).unwrap().remove(0);
        let encode = |record: &ExampleRecord| {
            record.encode(&policy.conversation, &policy.tokenizer, policy.end_of_turn(), 0)
        };
        let targets = |example: &Example| {
            let ids: Vec<u32> = example
                .scored
                .iter()
                .map(|&at| example.tokens[at as usize])
                .collect();
            policy.tokenizer.decode(&ids, true)
        };
        assert_eq!(targets(&encode(&record)), "take pen 1");
        record.train = Trained::All;
        assert_eq!(targets(&encode(&record)), "go to desk 1take pen 1");
    }
}
