//! What was found, and what to do about it.

use serde::Serialize;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Fine,
    /// Works, but is worth knowing.
    Warning,
    /// Will not work, or not as meant.
    Wrong,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How much it matters.
    pub level: Level,
    /// What was examined: `machine`, `model`, `adapter`, `data`, `endpoint`.
    pub area: &'static str,
    /// What is the case.
    pub text: String,
    /// What to do about it; none where all is fine.
    pub remedy: Option<String>,
}

impl Finding {
    /// All is fine.
    pub fn fine(area: &'static str, text: impl Into<String>) -> Self {
        Self {
            level: Level::Fine,
            area,
            text: text.into(),
            remedy: None,
        }
    }

    /// Worth knowing.
    pub fn warning(area: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            level: Level::Warning,
            remedy: Some(remedy.into()),
            ..Self::fine(area, text)
        }
    }

    /// Will not work.
    pub fn wrong(area: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            level: Level::Wrong,
            ..Self::warning(area, text, remedy)
        }
    }
}
