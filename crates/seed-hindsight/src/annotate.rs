//! Prompt, answer, parse, and ask again where an answer could not be used.
//!
//! Not for: where jobs come from or where annotations go.

use thiserror::Error;

use crate::{
    Analyser, AnalyserError, Analysis, AnalysisOptions, AnalysisRequest, ParseError, ParseOptions,
    parse_analysis, repair_prompt,
};

/// One trajectory to annotate.
#[derive(Clone, Debug)]
pub struct AnalysisJob {
    /// The prompt and its id.
    pub request: AnalysisRequest,
    /// The options the prompt was made with; asking again shows their form.
    pub options: AnalysisOptions,
    /// How to read the answer.
    pub parse: ParseOptions,
}

/// The outcome of one job.
#[derive(Clone, Debug, PartialEq)]
pub struct Annotation {
    /// The last answer as it came; `None` when the last request had none.
    pub text: Option<String>,
    /// That answer was cut off by the completion limit.
    pub truncated: bool,
    /// Tokens of that answer, when the analyser counts them.
    pub completion_tokens: Option<u64>,
    /// The analysis, or why there is none.
    pub result: Result<Analysis, AnnotationError>,
    /// Answers read, from 0.
    pub parse_attempts: u32,
}

/// Why a trajectory has no analysis.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum AnnotationError {
    /// There was no answer.
    #[error(transparent)]
    Analyser(#[from] AnalyserError),
    /// There was, but it could not be used.
    #[error(transparent)]
    Parse(#[from] ParseError),
}

/// Annotates all jobs, in their order. Every job is asked once; those whose answer cannot be used are asked again,
/// all together, until `parse_attempts` answers were read. A request without an answer is not made again: retrying is
/// the analyser's business.
pub fn annotate(analyser: &mut dyn Analyser, jobs: &[AnalysisJob], parse_attempts: u32) -> Vec<Annotation> {
    let mut annotations: Vec<Option<Annotation>> = vec![None; jobs.len()];
    let mut open: Vec<(usize, AnalysisRequest)> = jobs
        .iter()
        .enumerate()
        .map(|(index, job)| (index, job.request.clone()))
        .collect();
    for attempt in 1..=parse_attempts.max(1) {
        let requests: Vec<AnalysisRequest> = open.iter().map(|(_, request)| request.clone()).collect();
        let replies = analyser.analyse(&requests);
        let mut again = Vec::new();
        for ((index, request), reply) in open.into_iter().zip(replies) {
            let job = &jobs[index];
            let annotation = match reply {
                Err(error) => Annotation {
                    text: None,
                    truncated: false,
                    completion_tokens: None,
                    result: Err(error.into()),
                    parse_attempts: attempt - 1,
                },
                Ok(reply) => {
                    let result = parse_analysis(&reply.text, &job.parse);
                    if let Err(error) = &result {
                        let prompt = repair_prompt(&job.request.prompt, error, &reply.text, &job.options);
                        again.push((
                            index,
                            AnalysisRequest {
                                id: request.id,
                                prompt,
                            },
                        ));
                    }
                    Annotation {
                        text: Some(reply.text),
                        truncated: reply.truncated,
                        completion_tokens: reply.completion_tokens,
                        result: result.map_err(Into::into),
                        parse_attempts: attempt,
                    }
                }
            };
            annotations[index] = Some(annotation);
        }
        open = again;
        if open.is_empty() {
            break;
        }
    }
    let missing = |index: usize| Annotation {
        text: None,
        truncated: false,
        completion_tokens: None,
        result: Err(AnalyserError::NoResult {
            id: jobs[index].request.id.clone(),
        }
        .into()),
        parse_attempts: 0,
    };
    annotations
        .into_iter()
        .enumerate()
        .map(|(index, annotation)| annotation.unwrap_or_else(|| missing(index)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AnalysisReply, SkillMode};

    /// Answers from a list per request id and remembers what it was asked.
    struct Scripted {
        answers: Vec<(&'static str, Vec<Result<&'static str, AnalyserError>>)>,
        asked: Vec<AnalysisRequest>,
    }

    impl Analyser for Scripted {
        fn analyse(&mut self, requests: &[AnalysisRequest]) -> Vec<Result<AnalysisReply, AnalyserError>> {
            self.asked.extend_from_slice(requests);
            requests
                .iter()
                .map(|request| {
                    let (_, answers) = self.answers.iter_mut().find(|(id, _)| *id == request.id).unwrap();
                    answers.remove(0).map(|text| AnalysisReply {
                        text: text.into(),
                        truncated: false,
                        completion_tokens: Some(text.len() as u64),
                    })
                })
                .collect()
        }
    }

    fn job(id: &str) -> AnalysisJob {
        AnalysisJob {
            request: AnalysisRequest {
                id: id.into(),
                prompt: format!("about {id}"),
            },
            options: AnalysisOptions::default(),
            parse: ParseOptions::external(SkillMode::EpisodeOnly),
        }
    }

    const GOOD: &str = r#"{"episode_skill": "look well before you go"}"#;

    #[test]
    fn unusable_answers_are_asked_again_and_failures_stay_apart() {
        let down = AnalyserError::MissingKey {
            variable: "KEY".into(),
        };
        let mut analyser = Scripted {
            answers: vec![
                ("a", vec![Ok(GOOD)]),
                ("b", vec![Ok("no idea"), Ok(GOOD)]),
                ("c", vec![Err(down.clone())]),
                ("d", vec![Ok(r#"{"episode_skill": "too short"}"#), Ok("{}")]),
            ],
            asked: Vec::new(),
        };
        let jobs = ["a", "b", "c", "d"].map(job);
        let found = annotate(&mut analyser, &jobs, 2);
        assert!(found[0].result.is_ok() && found[1].result.is_ok());
        assert_eq!(found[2].result, Err(down.into()));
        assert_eq!(
            found[3].result,
            Err(ParseError::MissingSkill { key: "episode_skill" }.into())
        );
        assert_eq!(found[3].completion_tokens, Some(2), "of the last answer");
        assert_eq!(
            found.iter().map(|one| one.parse_attempts).collect::<Vec<_>>(),
            [1, 2, 0, 2]
        );
        assert_eq!(found[3].text.as_deref(), Some("{}"));
        let again: Vec<_> = analyser.asked[4..]
            .iter()
            .map(|request| request.id.as_str())
            .collect();
        assert_eq!(again, ["b", "d"]);
        assert!(
            analyser.asked[4]
                .prompt
                .starts_with("about b\n\nYour previous answer could not be used")
        );
        assert!(
            analyser.asked[5]
                .prompt
                .contains("`episode_skill` has 2 words; at least 5 are needed")
        );
    }

    #[test]
    fn one_attempt_never_repairs() {
        let mut analyser = Scripted {
            answers: vec![("a", vec![Ok("no idea")])],
            asked: Vec::new(),
        };
        let found = annotate(&mut analyser, &[job("a")], 1);
        assert_eq!(found[0].result, Err(ParseError::NoObject.into()));
        assert_eq!(analyser.asked.len(), 1);
    }

    /// Answers the first request only.
    struct Lazy;

    impl Analyser for Lazy {
        fn analyse(&mut self, _: &[AnalysisRequest]) -> Vec<Result<AnalysisReply, AnalyserError>> {
            vec![Ok(AnalysisReply {
                text: GOOD.into(),
                truncated: true,
                completion_tokens: None,
            })]
        }
    }

    #[test]
    fn an_analyser_that_forgets_a_request_is_found_out() {
        let found = annotate(&mut Lazy, &["a", "b"].map(job), 2);
        assert!(found[0].result.is_ok() && found[0].truncated);
        let message = found[1].result.as_ref().unwrap_err().to_string();
        assert_eq!(message, "the analyser gave no result for request `b`");
    }
}
