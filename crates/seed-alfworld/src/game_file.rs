//! ALFWorld's game files: the JSON object of a `game.tw-pddl`.
//!
//! The engine's rules are fixed, so a file is accepted only when its domain and its grammar are, by hash, the ones
//! the rules were taken from. Not for: finding files (see [`Library`](crate::Library)).

use std::borrow::Cow;

use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::problem::Problem;
use crate::{Game, ProblemError};

/// Largest game file that is read. ALFWorld's have at most 140 kB.
pub const MAX_GAME_BYTES: u64 = 4 << 20;

/// SHA-256 of the `pddl_domain` shared by all of ALFWorld's games.
pub const DOMAIN_SHA256: &str = "0af55e7f92d12b09d28515aa730e4d03fddd17228ef1fd7b18a3ee8ba49b27b9";

/// SHA-256 of the `grammar` shared by all of ALFWorld's games, with the goal sentence replaced by `UNKNOWN GOAL.`
pub const GRAMMAR_SHA256: &str = "cce0702cd250cc6af6c3ea047a21f6c4c1c8d29a1739efefb5221ef4c3dcac57";

const GOAL_MARK: &str = "Your task is to: ";
const GOAL_PLACEHOLDER: &str = "UNKNOWN GOAL.";

#[derive(Deserialize)]
struct RawGame<'a> {
    #[serde(borrow)]
    pddl_domain: Cow<'a, str>,
    #[serde(borrow)]
    grammar: Cow<'a, str>,
    #[serde(borrow)]
    pddl_problem: Cow<'a, str>,
    solvable: bool,
    walkthrough: Vec<String>,
}

/// What the engine keeps of a game file.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, Deserialize)]
pub(crate) struct GameFile {
    pub(crate) problem: Problem,
    pub(crate) goal_sentence: String,
    pub(crate) walkthrough: Vec<String>,
}

impl GameFile {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, ProblemError> {
        check_size(bytes.len() as u64)?;
        let raw: RawGame<'_> = serde_json::from_slice(bytes).map_err(ProblemError::Json)?;
        let found = hex(&Sha256::digest(raw.pddl_domain.as_bytes()));
        if found != DOMAIN_SHA256 {
            return Err(ProblemError::Domain {
                found,
                expected: DOMAIN_SHA256,
            });
        }
        let (before, goal_sentence, after) = split_grammar(&raw.grammar)?;
        let found = hex(&Sha256::new()
            .chain_update(before)
            .chain_update(GOAL_PLACEHOLDER)
            .chain_update(after)
            .finalize());
        if found != GRAMMAR_SHA256 {
            return Err(ProblemError::Grammar {
                found,
                expected: GRAMMAR_SHA256,
            });
        }
        if !raw.solvable {
            return Err(ProblemError::Unsolvable);
        }
        Ok(Self {
            problem: Problem::parse(&raw.pddl_problem)?,
            goal_sentence: goal_sentence.to_owned(),
            walkthrough: raw.walkthrough,
        })
    }

    pub(crate) fn game(&self, id: &str) -> Result<Game, ProblemError> {
        Game::new(&self.problem, &self.goal_sentence, &self.walkthrough, id)
    }
}

/// Parses the bytes of a `game.tw-pddl`; `id` is free.
///
/// # Errors
/// [`ProblemError`] when the file is damaged, or made for other rules or texts than the engine's.
pub fn read_game_file(bytes: &[u8], id: &str) -> Result<Game, ProblemError> {
    GameFile::parse(bytes)?.game(id)
}

pub(crate) fn check_size(bytes: u64) -> Result<(), ProblemError> {
    if bytes > MAX_GAME_BYTES {
        return Err(ProblemError::FileTooLarge {
            found: bytes,
            limit: MAX_GAME_BYTES,
        });
    }
    Ok(())
}

/// Splits a grammar round its goal sentence, which runs from the first mark to the next double quote.
fn split_grammar(grammar: &str) -> Result<(&str, &str, &str), ProblemError> {
    let split = || {
        let start = grammar.find(GOAL_MARK)? + GOAL_MARK.len();
        let end = start + grammar[start..].find('"')?;
        Some((&grammar[..start], &grammar[start..end], &grammar[end..]))
    };
    split().ok_or(ProblemError::NoGoalSentence)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_other_domains_and_grammars() {
        let file = |domain: &str, grammar: &str| {
            serde_json::json!({
                "pddl_domain": domain, "grammar": grammar, "pddl_problem": "", "solvable": true, "walkthrough": []
            })
            .to_string()
        };
        let error = GameFile::parse(file("(define)", "").as_bytes()).unwrap_err();
        assert!(matches!(error, ProblemError::Domain { .. }), "{error}");
        assert!(error.to_string().contains("alfworld-download"), "{error}");
        let error = GameFile::parse(b"{\"pddl_domain\": \"").unwrap_err();
        assert!(matches!(error, ProblemError::Json(_)), "{error}");
        let error = GameFile::parse(&vec![b' '; MAX_GAME_BYTES as usize + 1]).unwrap_err();
        assert!(matches!(error, ProblemError::FileTooLarge { .. }), "{error}");
    }

    #[test]
    fn goal_sentence_is_cut_out() {
        let grammar = r#"{"rhs": "Your task is to: put a mug in desk."}"#;
        let (before, goal, after) = split_grammar(grammar).unwrap();
        assert_eq!(goal, "put a mug in desk.");
        assert_eq!(format!("{before}{goal}{after}"), grammar);
        assert!(matches!(
            split_grammar("no goal"),
            Err(ProblemError::NoGoalSentence)
        ));
    }

    #[test]
    fn hexadecimal() {
        assert_eq!(hex(&[0, 0x1f, 0xff]), "001fff");
    }
}
