//! Errors of this crate.
//!
//! Not for: deciding what to do about them.

use thiserror::Error;

/// Why a game's own contents were refused.
#[derive(Debug, Error)]
pub enum ProblemError {
    /// The file is larger than any game could be.
    #[error(
        "the game file has `{found}` bytes, more than the limit of `{limit}`; it is not a `game.tw-pddl`"
    )]
    FileTooLarge {
        /// Size of the file in bytes.
        found: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The file is not the JSON object expected.
    #[error(
        "the game file is not the JSON object of a `game.tw-pddl`; it may be cut short, download it again"
    )]
    Json(#[source] serde_json::Error),
    /// The PDDL domain is another one.
    #[error(
        "the game's `pddl_domain` has sha256 `{found}`, not `{expected}`; only the ALFRED domain of ALFWorld's games \
         with the commands `move` and `help` (2.1.2 and later) is supported, games of the 2.1.1 era (`put … in/on …`) \
         are not; fetch current games with `alfworld-download`"
    )]
    Domain {
        /// Hash of what the file holds.
        found: String,
        /// Hash of the supported domain.
        expected: &'static str,
    },
    /// The text grammar is another one.
    #[error(
        "the game's `grammar`, its goal sentence set aside, has sha256 `{found}`, not `{expected}`; only the grammar \
         of ALFWorld's games with the commands `move` and `help` (2.1.2 and later) is supported, games of the 2.1.1 \
         era (`put … in/on …`) are not; fetch current games with `alfworld-download`"
    )]
    Grammar {
        /// Hash of what the file holds.
        found: String,
        /// Hash of the supported grammar.
        expected: &'static str,
    },
    /// The grammar names no goal.
    #[error("the game's `grammar` holds no goal sentence (`Your task is to: …`)")]
    NoGoalSentence,
    /// The game is marked as not solvable.
    #[error("the game is marked as not solvable; ALFWorld leaves such games out")]
    Unsolvable,
    /// The problem's text is not what PDDL or ALFWorld allow.
    #[error("problem, line {line} (byte {offset}): {reason}")]
    Malformed {
        /// 1-based line of the problem's text.
        line: usize,
        /// 0-based byte of the problem's text.
        offset: usize,
        /// What is wrong.
        reason: String,
    },
    /// The goal is none of ALFWorld's six.
    #[error("the goal `{found}` is none of ALFWorld's six shapes")]
    UnsupportedGoal {
        /// Beginning of the goal's conditions.
        found: String,
    },
    /// The facts contradict each other or lack something.
    #[error("the problem's facts do not make a game: {reason}")]
    Inconsistent {
        /// What is wrong.
        reason: String,
    },
    /// The problem is too large for the engine's 16-bit ids.
    #[error("the problem has `{found}` {what}, more than the limit of `{limit}`")]
    TooMany {
        /// What there are too many of.
        what: &'static str,
        /// How many there are.
        found: usize,
        /// The limit.
        limit: usize,
    },
}
