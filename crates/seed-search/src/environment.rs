//! An episode of question answering: searches until an answer is given or the turns are used up.
//!
//! Not for: prompts ([`crate::SearchDialogue`]), or reading an action out of a response
//! ([`crate::project_response`]).

use std::sync::Arc;

use seed_env::{Environment, EnvironmentError, Observation, TaskId, Transition};

use crate::block::{LetterCase, Tag, first_block};
use crate::projection::{Call, first_call};
use crate::python::strip;
use crate::question::Question;
use crate::results::{failure_block, information_block};
use crate::retriever::Retriever;
use crate::score::score_transcript;
use crate::{FailureHandling, SearchDialect, SearchOptions};

/// What a policy of the Search-R1 dialect reads after a response without a search or an answer. It continues the
/// policy's own text, so it speaks for the policy.
pub(crate) const INVALID_ACTION: &str = "That was neither a search nor an answer. A query has to stand between <search> \
and </search>, a final answer between <answer> and </answer>. I will try once more.";

/// Where an environment finds its tasks' questions.
pub(crate) trait QuestionSource: Send + Sync {
    fn question(&self, task: &TaskId) -> Result<Arc<Question>, EnvironmentError>;
}

/// One episode's environment. The first observation is the question itself; every other is what a search found.
///
/// The reward is 1 when the last answer in the episode's transcript (actions and result blocks in order) matches a
/// golden answer exactly, and comes with the step that ends the episode; every other step earns 0. The last turn
/// ends the episode whatever it is, and a search in it is not executed. An episode that ends without an answer is
/// cut ([`Transition::truncated`]) rather than terminated.
pub struct SearchEnvironment {
    questions: Arc<dyn QuestionSource>,
    retriever: Arc<dyn Retriever>,
    options: SearchOptions,
    episode: Option<Episode>,
}

struct Episode {
    task: TaskId,
    question: Arc<Question>,
    /// Actions and result blocks, as they are scored.
    transcript: String,
    turns: usize,
}

/// What an action does.
enum Effect<'a> {
    Search(&'a str),
    Answer,
    Nothing,
}

impl SearchEnvironment {
    pub(crate) fn new(
        questions: Arc<dyn QuestionSource>,
        retriever: Arc<dyn Retriever>,
        options: SearchOptions,
    ) -> Self {
        Self {
            questions,
            retriever,
            options,
            episode: None,
        }
    }

    fn effect<'a>(&self, action: &'a str) -> Effect<'a> {
        match self.options.dialect {
            SearchDialect::VerlAgent => {
                if action.contains(Tag::Answer.opening()) && action.contains(Tag::Answer.closing()) {
                    return Effect::Answer;
                }
                let query = first_block(action, Tag::Search, LetterCase::Exact, 0);
                match query.and_then(|inner| action.get(inner)) {
                    Some(query) => Effect::Search(strip(query)),
                    None => Effect::Nothing,
                }
            }
            SearchDialect::SearchR1 => match first_call(action) {
                Some(Call::Search(query)) => Effect::Search(query),
                Some(Call::Answer(_)) => Effect::Answer,
                None => Effect::Nothing,
            },
        }
    }

    /// The result block of a query.
    fn search(&self, query: &str, task: &TaskId, step: usize) -> Result<String, EnvironmentError> {
        let dialect = self.options.dialect;
        match self.retriever.retrieve(&[query], self.options.top_k) {
            Ok(found) => {
                let contents: Vec<&str> = found
                    .iter()
                    .flatten()
                    .map(|found| found.passage.contents.as_str())
                    .collect();
                Ok(information_block(&contents, dialect))
            }
            Err(error) => match self.options.failures {
                FailureHandling::Observation => Ok(failure_block(&error.message, dialect)),
                FailureHandling::EnvironmentError => Err(EnvironmentError::Step {
                    task: task.clone(),
                    step,
                    message: format!("the search failed: {error}"),
                }),
            },
        }
    }
}

impl Environment for SearchEnvironment {
    fn reset(&mut self, task: &TaskId, _seed: u64) -> Result<Observation, EnvironmentError> {
        self.episode = None;
        let question = self.questions.question(task)?;
        let observation = Observation::text(&question.text);
        self.episode = Some(Episode {
            task: task.clone(),
            question,
            transcript: String::new(),
            turns: 0,
        });
        Ok(observation)
    }

    fn step(&mut self, action: &str) -> Result<Transition, EnvironmentError> {
        let Some(mut episode) = self.episode.take() else {
            return Err(EnvironmentError::NotReset);
        };
        let step = episode.turns;
        episode.turns += 1;
        episode.transcript.push_str(action);
        let effect = self.effect(action);
        let answered = matches!(effect, Effect::Answer);
        let over = answered || episode.turns >= self.options.max_turns;
        let mut observation = String::new();
        let mut reward = 0.0;
        if over {
            reward = score_transcript(&episode.transcript, &episode.question.golden_answers);
        } else {
            match (effect, self.options.dialect) {
                (Effect::Search(query), _) => observation = self.search(query, &episode.task, step)?,
                (_, SearchDialect::SearchR1) => INVALID_ACTION.clone_into(&mut observation),
                (_, SearchDialect::VerlAgent) => {}
            }
            // White space around a block can reach the score only by what it separates.
            let (before, after) = match self.options.dialect {
                SearchDialect::VerlAgent => ("\n", "\n"),
                SearchDialect::SearchR1 => ("\n\n", "\n\n"),
            };
            if !observation.is_empty() {
                episode.transcript.push_str(before);
                episode.transcript.push_str(&observation);
                episode.transcript.push_str(after);
            }
        }
        self.episode = Some(episode);
        let won = reward >= 1.0;
        Ok(Transition {
            observation: Observation::text(observation),
            reward,
            terminated: over && (answered || won),
            truncated: over && !answered && !won,
            won,
        })
    }

    fn admissible_actions(&self) -> Vec<String> {
        Vec::new()
    }

    fn task_description(&self) -> String {
        self.episode
            .as_ref()
            .map_or_else(String::new, |episode| episode.question.text.clone())
    }
}
