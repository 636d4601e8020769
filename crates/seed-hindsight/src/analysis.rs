//! What an analysis yields, and the text a policy learns to write.
//!
//! Not for: reading answers ([`crate::parse_analysis`]).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Which skills are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkillMode {
    /// One skill for the whole episode (the paper).
    #[default]
    EpisodeOnly,
    /// Skills for single steps.
    StepOnly,
    /// Both.
    EpisodeStep,
}

impl SkillMode {
    /// Whether an episode skill is asked for.
    pub fn has_episode_skill(self) -> bool {
        self != Self::StepOnly
    }

    /// Whether step skills are asked for.
    pub fn has_step_skills(self) -> bool {
        self != Self::EpisodeOnly
    }
}

/// How tolerant the parser had to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Leniency {
    /// The answer, or a fenced block of it, is exactly one JSON object.
    Strict,
    /// An object was found within other text, or had trailing commas or raw control characters.
    Repaired,
    /// The answer was a Python-style literal.
    Literal,
}

/// A parsed analysis. Texts are trimmed and not empty.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Analysis {
    /// What happened, when given.
    pub episode_summary: Option<String>,
    /// The skill for the whole episode; present unless the mode is [`SkillMode::StepOnly`].
    pub episode_skill: Option<String>,
    /// Skills by 0-based step.
    pub step_skills: BTreeMap<usize, String>,
    /// How the answer was read.
    pub leniency: Leniency,
}

impl Analysis {
    /// The analysis as the compact JSON object that a policy is trained to write.
    pub fn to_json(&self) -> String {
        let mut object = Map::new();
        let texts = [
            ("episode_summary", &self.episode_summary),
            ("episode_skill", &self.episode_skill),
        ];
        for (key, text) in texts {
            if let Some(text) = text {
                object.insert(key.into(), Value::from(text.as_str()));
            }
        }
        if !self.step_skills.is_empty() {
            let steps = self
                .step_skills
                .iter()
                .map(|(step, skill)| (step.to_string(), Value::from(skill.as_str())));
            object.insert("step_skills".into(), Value::Object(steps.collect()));
        }
        Value::Object(object).to_string()
    }
}

/// The compact JSON answer of an episode-only analysis: `{"episode_summary":"…","episode_skill":"…"}`.
pub fn response_json(episode_summary: Option<&str>, episode_skill: &str) -> String {
    let mut object = Map::new();
    if let Some(summary) = episode_summary {
        object.insert("episode_summary".into(), Value::from(summary));
    }
    object.insert("episode_skill".into(), Value::from(episode_skill));
    Value::Object(object).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_compact_and_ordered() {
        let text = response_json(Some("Put it \"there\"."), "Look\nfirst.");
        assert_eq!(
            text,
            r#"{"episode_summary":"Put it \"there\".","episode_skill":"Look\nfirst."}"#
        );
        assert_eq!(response_json(None, "Look."), r#"{"episode_skill":"Look."}"#);
    }

    #[test]
    fn step_skills_follow() {
        let analysis = Analysis {
            episode_summary: None,
            episode_skill: Some("a".into()),
            step_skills: [(10, "c".into()), (2, "b".into())].into(),
            leniency: Leniency::Strict,
        };
        assert_eq!(
            analysis.to_json(),
            r#"{"episode_skill":"a","step_skills":{"2":"b","10":"c"}}"#
        );
    }
}
