//! Reading an analysis out of whatever the analyser answered.
//!
//! Strict JSON first; then objects within prose, with trailing commas or raw control characters; then Python-style
//! literals. Among the objects found the first with the required key wins. The same text always reads the same way.
//!
//! Not for: judging a skill's content ([`crate::check_skill`], [`crate::ground_skill`]).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use crate::lenient_json::{Dialect, Lenient, objects};
use crate::{Analysis, Leniency, SkillMode};

/// What a skill has to be, beyond present and not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Acceptance {
    /// Nothing more: the path of the policy that analyses itself.
    OnPolicy,
    /// Not only punctuation, and at least [`ParseOptions::min_words`] words: the path of an external analyser.
    External,
}

/// Options of [`parse_analysis`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParseOptions {
    /// Which skills were asked for.
    pub mode: SkillMode,
    /// 0-based steps that may hold a step skill; `None` = all.
    pub candidate_steps: Option<Vec<usize>>,
    /// Step skills kept, in the order they were written.
    pub max_step_skills: usize,
    /// What a skill has to be.
    pub acceptance: Acceptance,
    /// Fewest words of an external skill.
    pub min_words: usize,
    /// Longer answers are refused unread, in bytes.
    pub max_bytes: usize,
}

impl ParseOptions {
    /// Options for the policy's own answers.
    pub fn on_policy(mode: SkillMode) -> Self {
        Self {
            mode,
            candidate_steps: None,
            max_step_skills: 1,
            acceptance: Acceptance::OnPolicy,
            min_words: 5,
            max_bytes: 256 * 1024,
        }
    }

    /// Options for an external analyser's answers.
    pub fn external(mode: SkillMode) -> Self {
        Self {
            acceptance: Acceptance::External,
            ..Self::on_policy(mode)
        }
    }

    /// The key without which an answer is worthless.
    fn required_key(&self) -> &'static str {
        if self.mode.has_episode_skill() {
            "episode_skill"
        } else {
            "step_skills"
        }
    }
}

/// How reading an answer ended; the key of parse-rate metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParseStatus {
    /// An analysis was read.
    Parsed,
    /// The answer is too long to read.
    Oversized,
    /// There is no brace in the answer.
    NoObject,
    /// There are braces, but no object could be read.
    Undecodable,
    /// Objects, but none with the required skill.
    MissingSkill,
    /// The skill is blank, or only punctuation.
    EmptySkill,
    /// The skill has too few words.
    FewWords,
}

impl ParseStatus {
    /// The status's word in records and metric names.
    pub fn name(self) -> &'static str {
        match self {
            Self::Parsed => "parsed",
            Self::Oversized => "oversized",
            Self::NoObject => "no_object",
            Self::Undecodable => "undecodable",
            Self::MissingSkill => "missing_skill",
            Self::EmptySkill => "empty_skill",
            Self::FewWords => "few_words",
        }
    }
}

/// Why an answer holds no usable analysis. The messages are also shown to the analyser when it is asked again.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParseError {
    /// See [`ParseStatus::Oversized`].
    #[error("the answer has {bytes} bytes, more than the {limit} that are read; lower the completion limit")]
    Oversized {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// See [`ParseStatus::NoObject`].
    #[error("the answer holds no JSON object")]
    NoObject,
    /// See [`ParseStatus::Undecodable`].
    #[error("the answer holds braces but no readable JSON object")]
    Undecodable,
    /// See [`ParseStatus::MissingSkill`].
    #[error("the JSON object has no text under `{key}`")]
    MissingSkill {
        /// The required key.
        key: &'static str,
    },
    /// See [`ParseStatus::EmptySkill`].
    #[error("`{key}` is empty")]
    EmptySkill {
        /// The required key.
        key: &'static str,
    },
    /// See [`ParseStatus::FewWords`].
    #[error("`episode_skill` has {words} words; at least {least} are needed")]
    FewWords {
        /// Words found.
        words: usize,
        /// Words needed.
        least: usize,
    },
}

impl ParseError {
    /// The error's kind.
    pub fn status(&self) -> ParseStatus {
        match self {
            Self::Oversized { .. } => ParseStatus::Oversized,
            Self::NoObject => ParseStatus::NoObject,
            Self::Undecodable => ParseStatus::Undecodable,
            Self::MissingSkill { .. } => ParseStatus::MissingSkill,
            Self::EmptySkill { .. } => ParseStatus::EmptySkill,
            Self::FewWords { .. } => ParseStatus::FewWords,
        }
    }
}

/// Reads an analysis out of `answer`.
///
/// # Errors
/// [`ParseError`] naming what is wrong with the answer.
pub fn parse_analysis(answer: &str, options: &ParseOptions) -> Result<Analysis, ParseError> {
    if answer.len() > options.max_bytes {
        return Err(ParseError::Oversized {
            bytes: answer.len(),
            limit: options.max_bytes,
        });
    }
    if !answer.contains('{') {
        return Err(ParseError::NoObject);
    }
    let (object, leniency) = find_object(answer, options.required_key()).ok_or(ParseError::Undecodable)?;
    read_object(&object, leniency, options)
}

/// The first readable object with `key`, else the first readable object.
fn find_object(answer: &str, key: &str) -> Option<(Lenient, Leniency)> {
    let mut candidates = fenced_blocks(answer);
    candidates.push(answer);
    for candidate in &candidates {
        if let Ok(Value::Object(strict)) = serde_json::from_str::<Value>(candidate.trim())
            && strict.contains_key(key)
        {
            return Some((from_strict(Value::Object(strict)), Leniency::Strict));
        }
    }
    let mut first = None;
    for (dialect, leniency) in [
        (Dialect::Json, Leniency::Repaired),
        (Dialect::Literal, Leniency::Literal),
    ] {
        for object in candidates
            .iter()
            .flat_map(|candidate| objects(candidate, dialect))
        {
            if object.get(key).is_some() {
                return Some((object, leniency));
            }
            first.get_or_insert((object, leniency));
        }
    }
    first
}

/// Contents of closed code fences that are marked `json` or not marked.
fn fenced_blocks(answer: &str) -> Vec<&str> {
    let mut pieces = answer.split("```").skip(1);
    let mut blocks = Vec::new();
    // Pieces alternate between inside and outside; the last piece is never closed.
    while let (Some(inside), Some(_outside)) = (pieces.next(), pieces.next()) {
        let content = inside.trim_start();
        let word_end = content
            .find(|found: char| !found.is_ascii_alphanumeric())
            .unwrap_or(content.len());
        let (word, rest) = content.split_at(word_end);
        if word.is_empty() || word.eq_ignore_ascii_case("json") {
            blocks.push(rest);
        }
    }
    blocks
}

fn from_strict(value: Value) -> Lenient {
    match value {
        Value::String(text) => Lenient::Text(text),
        Value::Object(entries) => Lenient::Object(
            entries
                .into_iter()
                .map(|(key, value)| (key, from_strict(value)))
                .collect(),
        ),
        Value::Array(items) => Lenient::List(items.into_iter().map(from_strict).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) => Lenient::Other,
    }
}

fn read_object(object: &Lenient, leniency: Leniency, options: &ParseOptions) -> Result<Analysis, ParseError> {
    let text = |key: &str| match object.get(key) {
        Some(Lenient::Text(text)) => Some(text.trim()),
        _ => None,
    };
    let episode_skill = if options.mode.has_episode_skill() {
        let key = "episode_skill";
        let skill = text(key).ok_or(ParseError::MissingSkill { key })?;
        check_episode_skill(skill, options)?;
        Some(skill.to_owned())
    } else {
        None
    };
    let step_skills = if options.mode.has_step_skills() {
        let key = "step_skills";
        let skills = object.get(key).map(|found| read_step_skills(found, options));
        if options.mode == SkillMode::StepOnly {
            match &skills {
                None => return Err(ParseError::MissingSkill { key }),
                Some(skills) if skills.is_empty() => return Err(ParseError::EmptySkill { key }),
                Some(_) => {}
            }
        }
        skills.unwrap_or_default()
    } else {
        BTreeMap::new()
    };
    let episode_summary = text("episode_summary")
        .filter(|summary| !summary.is_empty())
        .map(str::to_owned);
    Ok(Analysis {
        episode_summary,
        episode_skill,
        step_skills,
        leniency,
    })
}

fn check_episode_skill(skill: &str, options: &ParseOptions) -> Result<(), ParseError> {
    let empty = match options.acceptance {
        Acceptance::OnPolicy => skill.is_empty(),
        Acceptance::External => !skill.chars().any(char::is_alphanumeric),
    };
    if empty {
        return Err(ParseError::EmptySkill { key: "episode_skill" });
    }
    let words = skill.split_whitespace().count();
    if options.acceptance == Acceptance::External && words < options.min_words {
        return Err(ParseError::FewWords {
            words,
            least: options.min_words,
        });
    }
    Ok(())
}

fn read_step_skills(found: &Lenient, options: &ParseOptions) -> BTreeMap<usize, String> {
    let Lenient::Object(entries) = found else {
        return BTreeMap::new();
    };
    let mut skills = BTreeMap::new();
    for (key, value) in entries {
        let (Ok(step), Lenient::Text(skill)) = (key.trim().parse::<usize>(), value) else {
            continue;
        };
        let is_candidate = options
            .candidate_steps
            .as_ref()
            .is_none_or(|candidates| candidates.contains(&step));
        let skill = skill.trim();
        let has_room = skills.len() < options.max_step_skills || skills.contains_key(&step);
        if is_candidate && has_room && !skill.is_empty() {
            skills.insert(step, skill.to_owned());
        }
    }
    skills
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ON_POLICY: fn() -> ParseOptions = || ParseOptions::on_policy(SkillMode::EpisodeOnly);

    fn skill(answer: &str) -> String {
        parse_analysis(answer, &ON_POLICY())
            .unwrap()
            .episode_skill
            .unwrap()
    }

    fn status(answer: &str) -> ParseStatus {
        parse_analysis(answer, &ON_POLICY()).unwrap_err().status()
    }

    #[test]
    fn a_strict_object() {
        let answer = r#" {"episode_summary": " went well ", "episode_skill": " Check the desk first. "} "#;
        let found = parse_analysis(answer, &ON_POLICY()).unwrap();
        assert_eq!(found.episode_summary.as_deref(), Some("went well"));
        assert_eq!(found.episode_skill.as_deref(), Some("Check the desk first."));
        assert_eq!(found.leniency, Leniency::Strict);
    }

    #[test]
    fn a_fenced_block() {
        let answer =
            "Here it is:\n```json\n{\"episode_summary\": \"s\", \"episode_skill\": \"k\"}\n```\nDone.";
        let found = parse_analysis(answer, &ON_POLICY()).unwrap();
        assert_eq!(
            (found.episode_skill.as_deref(), found.leniency),
            (Some("k"), Leniency::Strict)
        );
        assert_eq!(skill("```\n{\"episode_skill\": \"k\"}\n```"), "k");
        assert_eq!(skill("```JSON {\"episode_skill\": \"k\",}```"), "k");
        // Fenced beats earlier text outside, another language's fence does not count as fenced.
        let answer = "{\"episode_skill\": \"out\"} ```json\n{\"episode_skill\": \"in\"}\n```";
        assert_eq!(skill(answer), "in");
        let answer = "{\"episode_skill\": \"out\"} ```python\n{\"episode_skill\": \"in\"}\n```";
        assert_eq!(skill(answer), "out");
    }

    #[test]
    fn prose_and_a_trailing_comma() {
        let answer = "Sure! The episode shows: {\"episode_skill\": \"Look, then go.\",\n} Hope it helps.";
        let found = parse_analysis(answer, &ON_POLICY()).unwrap();
        assert_eq!(
            (found.episode_skill.as_deref(), found.leniency),
            (Some("Look, then go."), Leniency::Repaired)
        );
    }

    #[test]
    fn the_first_object_with_the_key_wins() {
        assert_eq!(
            skill(r#"{"note": 1} {"episode_skill": "second"} {"episode_skill": "third"}"#),
            "second"
        );
        assert_eq!(skill(r#"{"result": {"episode_skill": "inner"}}"#), "inner");
        assert_eq!(skill(r#"{"results": [{"episode_skill": "listed"}]}"#), "listed");
        assert_eq!(skill("{} {'episode_skill': 'literal'}"), "literal");
        assert_eq!(skill(r#"{"episode_skill": "a", "episode_skill": "b"}"#), "b");
    }

    #[test]
    fn a_single_quoted_dictionary() {
        let found = parse_analysis(
            "{'episode_summary': None, 'episode_skill': 'don\\'t rush'}",
            &ON_POLICY(),
        );
        let found = found.unwrap();
        assert_eq!(
            (found.episode_skill.as_deref(), found.leniency),
            (Some("don't rush"), Leniency::Literal)
        );
        assert_eq!(found.episode_summary, None);
    }

    #[test]
    fn a_raw_newline_inside_a_string() {
        assert_eq!(skill("{\"episode_skill\": \"first\nthen\"}"), "first\nthen");
    }

    #[test]
    fn failures_are_told_apart() {
        assert_eq!(status(r#"{"episode_summary": "x"}"#), ParseStatus::MissingSkill);
        assert_eq!(status(r#"{"episode_skill": 7}"#), ParseStatus::MissingSkill);
        assert_eq!(status(r#"{"episode_skill": null}"#), ParseStatus::MissingSkill);
        assert_eq!(status(r#"{"episode_skill": "   "}"#), ParseStatus::EmptySkill);
        assert_eq!(status("<think>nothing</think>"), ParseStatus::NoObject);
        assert_eq!(status(""), ParseStatus::NoObject);
        assert_eq!(status(r#"{"episode_skill": "cut off"#), ParseStatus::Undecodable);
        let long = format!("{{\"episode_skill\": \"{}\"}}", "x".repeat(300_000));
        assert_eq!(status(&long), ParseStatus::Oversized);
    }

    #[test]
    fn external_answers_need_content() {
        let external = |answer: &str| parse_analysis(answer, &ParseOptions::external(SkillMode::EpisodeOnly));
        let dots = r#"{"episode_skill": "..."}"#;
        assert_eq!(external(dots).unwrap_err().status(), ParseStatus::EmptySkill);
        assert_eq!(skill(dots), "...");
        let short = external(r#"{"episode_skill": "look before you go"}"#).unwrap_err();
        assert_eq!(
            short.to_string(),
            "`episode_skill` has 4 words; at least 5 are needed"
        );
        assert!(external(r#"{"episode_skill": "look well before you go"}"#).is_ok());
    }

    #[test]
    fn step_skills_keep_candidates_and_the_first_few() {
        let options = ParseOptions {
            candidate_steps: Some((0..5).collect()),
            ..ParseOptions::on_policy(SkillMode::StepOnly)
        };
        let answer = r#"{"step_skills": {"2": "a", "x": "b", "7": "c"}}"#;
        let found = parse_analysis(answer, &options).unwrap();
        assert_eq!(found.step_skills, BTreeMap::from([(2, "a".to_owned())]));
        assert_eq!(found.episode_skill, None);
        let answer = r#"{"step_skills": {"4": " ", "3": "first", "1": "second"}}"#;
        assert_eq!(
            parse_analysis(answer, &options).unwrap().step_skills,
            BTreeMap::from([(3, "first".into())])
        );
        let status = |answer: &str| parse_analysis(answer, &options).unwrap_err().status();
        assert_eq!(status(r#"{"step_skills": {}}"#), ParseStatus::EmptySkill);
        assert_eq!(status(r#"{"episode_skill": "a"}"#), ParseStatus::MissingSkill);
        assert_eq!(status(r#"{"step_skills": ["a"]}"#), ParseStatus::EmptySkill);

        // With both kinds asked for, step skills are optional.
        let both = ParseOptions::on_policy(SkillMode::EpisodeStep);
        assert!(
            parse_analysis(r#"{"episode_skill": "a"}"#, &both)
                .unwrap()
                .step_skills
                .is_empty()
        );
    }

    #[test]
    fn written_analyses_are_read_back() {
        let analysis = Analysis {
            episode_summary: Some("s".into()),
            episode_skill: Some("line\n\"two\"".into()),
            step_skills: BTreeMap::from([(3, "c".to_owned())]),
            leniency: Leniency::Strict,
        };
        let options = ParseOptions::on_policy(SkillMode::EpisodeStep);
        assert_eq!(parse_analysis(&analysis.to_json(), &options).unwrap(), analysis);
    }

    proptest! {
        #[test]
        fn any_answer_gives_the_same_result_twice(answer in "\\PC{0,200}|[{}\\[\\]\"'`,:a-z_0-9 \\n\\\\]{0,300}") {
            for mode in [SkillMode::EpisodeOnly, SkillMode::StepOnly, SkillMode::EpisodeStep] {
                let options = ParseOptions::on_policy(mode);
                prop_assert_eq!(parse_analysis(&answer, &options), parse_analysis(&answer, &options));
            }
        }

        /// A skill survives prose around it, a fence, and a trailing comma.
        #[test]
        fn decorated_answers_are_read(text in "[a-zA-Z0-9,.!?'\"\\\\\n -]{1,80}", decoration in 0..4) {
            prop_assume!(!text.trim().is_empty());
            let object = crate::response_json(Some("s"), &text);
            let answer = match decoration {
                0 => object,
                1 => format!("```json\n{object}\n```"),
                2 => format!("I think: {object} is it"),
                _ => format!("{},}}", object.trim_end_matches('}')),
            };
            prop_assert_eq!(skill(&answer), text.trim());
        }
    }
}
