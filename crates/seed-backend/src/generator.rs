//! An engine in the place of the one in this process.
//!
//! Requests go out side by side on a bounded number of threads. The state of a sequence holds its ids only: the engine
//! keeps keys and values itself, if it does. A request that fails after all its attempts fails alone, as long as no more do
//! than are allowed.
//!
//! Not for: measuring how its log-probs differ.

use std::sync::Arc;
use std::thread;

use crossbeam_channel::{Receiver, Sender, unbounded};
use seed_model::{Decoder, FinishReason, GenerateRequest, Generation, ModelError, Sampling, SequenceState};
use seed_random::RandomKey;
use seed_rollout::{FailedRequest, Generator};

use crate::dialect::{Answer, Ask};
use crate::{BackendError, Client, PublishedWeights};

/// A request with the ids that it continues.
struct Sent {
    request: GenerateRequest,
    limit: usize,
}

type Received = Result<Generation, (u64, BackendError)>;

/// Generates on an external engine.
pub struct RemoteGenerator {
    empty: SequenceState,
    context: usize,
    requests: Sender<Sent>,
    answers: Receiver<Received>,
    under_way: usize,
    /// Requests that may fail before all is given up.
    allowed: usize,
    failures: usize,
    untold: Vec<FailedRequest>,
}

impl RemoteGenerator {
    /// A generator for the engine behind `client`, which has `weights`. `decoder` has the same ones; it says how long
    /// sequences may be, which ids there are, and whose states these are. With more than `allowed_failures` failed requests
    /// it fails as a whole.
    pub fn new(
        client: &Arc<Client>,
        decoder: &Decoder,
        weights: &PublishedWeights,
        allowed_failures: usize,
    ) -> Self {
        let (requests, taken) = unbounded::<Sent>();
        let (told, answers) = unbounded();
        let vocabulary_size = decoder.config().vocabulary_size;
        for _ in 0..client.options.concurrency {
            let (client, weights) = (Arc::clone(client), weights.clone());
            let (taken, told) = (taken.clone(), told.clone());
            // Ends when the generator is dropped and its last request is answered.
            thread::spawn(move || {
                for sent in taken {
                    if told
                        .send(generate(&client, &weights, sent, vocabulary_size))
                        .is_err()
                    {
                        return;
                    }
                }
            });
        }
        Self {
            empty: SequenceState::new(decoder),
            context: decoder.config().max_positions,
            requests,
            answers,
            under_way: 0,
            allowed: allowed_failures,
            failures: 0,
            untold: Vec::new(),
        }
    }

    /// Takes in a failure; an error where there are too many of them or one makes all others worthless.
    fn fail(&mut self, id: u64, error: &BackendError) -> Result<(), ModelError> {
        self.failures += 1;
        if error.is_of_all_requests() {
            return Err(failed(id, error));
        }
        if self.failures > self.allowed {
            let problem = format!(
                "{error} ({} requests failed, {} may)",
                self.failures, self.allowed
            );
            return Err(failed(id, &problem));
        }
        self.untold.push(FailedRequest {
            id,
            problem: error.to_string(),
        });
        Ok(())
    }
}

/// What [`Client::sample`] is asked for.
#[derive(Clone, Debug)]
pub struct Sample<'a> {
    /// Ids to continue.
    pub ids: &'a [u32],
    /// Most ids to sample.
    pub max_new_tokens: usize,
    /// How to draw.
    pub sampling: Sampling,
    /// Ids that end the response.
    pub stop: &'a [u32],
    /// The stream to draw from.
    pub key: RandomKey,
    /// Ids are below this.
    pub vocabulary_size: usize,
}

impl Client {
    /// Samples one response with `weights`.
    ///
    /// # Errors
    /// As any call; [`BackendError::Answer`] where the answer cannot be used, [`BackendError::Version`] where it is of other
    /// weights.
    pub fn sample(&self, weights: &PublishedWeights, sample: &Sample<'_>) -> Result<Answer, BackendError> {
        let model = match weights {
            PublishedWeights::Adapter { name } => name,
            PublishedWeights::Initial | PublishedWeights::Model { .. } => &self.options.model,
        };
        let ask = Ask {
            ids: sample.ids.to_vec(),
            max_new_tokens: sample.max_new_tokens,
            sampling: sample.sampling,
            stop: sample.stop.to_vec(),
            key: sample.key,
            model: model.clone(),
            vocabulary_size: sample.vocabulary_size,
        };
        let dialect = self.options.dialect;
        let adapter = matches!(weights, PublishedWeights::Adapter { .. });
        let bytes = self.post(dialect.path(), &dialect.body(&ask, adapter))?;
        let answer = dialect
            .read(&ask, &bytes)
            .map_err(|problem| BackendError::Answer {
                url: self.url(dialect.path()),
                problem,
            })?;
        if let PublishedWeights::Model { version } = weights {
            let found = answer.version.clone().unwrap_or_else(|| "unnamed".to_owned());
            if found != *version {
                return Err(BackendError::Version {
                    expected: version.clone(),
                    found,
                });
            }
        }
        Ok(answer)
    }
}

fn generate(client: &Client, weights: &PublishedWeights, sent: Sent, vocabulary_size: usize) -> Received {
    let Sent { mut request, limit } = sent;
    let sample = Sample {
        ids: request.state.token_ids(),
        max_new_tokens: limit,
        sampling: request.sampling,
        stop: &request.stop,
        key: request.key,
        vocabulary_size,
    };
    let answer = client
        .sample(weights, &sample)
        .map_err(|error| (request.id, error))?;
    request.state.extend(&answer.token_ids);
    let finish = if answer.stopped {
        FinishReason::Stop
    } else if answer.token_ids.len() >= request.max_new_tokens {
        FinishReason::Length
    } else {
        FinishReason::Context
    };
    Ok(Generation {
        id: request.id,
        state: request.state,
        kept_log_masses: vec![0.0; answer.token_ids.len()],
        token_ids: answer.token_ids,
        log_probs: answer.log_probs,
        alternatives: Vec::new(),
        finish,
    })
}

fn failed(id: u64, error: &impl ToString) -> ModelError {
    ModelError::Engine {
        owner: format!("request `{id}`"),
        problem: error.to_string(),
    }
}

impl Generator for RemoteGenerator {
    fn empty_state(&self) -> SequenceState {
        self.empty.clone()
    }

    fn prefill(&mut self, mut state: SequenceState, tokens: &[u32]) -> Result<SequenceState, ModelError> {
        state.extend(tokens);
        Ok(state)
    }

    fn submit(&mut self, mut request: GenerateRequest) -> Result<(), ModelError> {
        let append = std::mem::take(&mut request.append);
        request.state.extend(&append);
        let (id, length) = (request.id, request.state.len());
        if length == 0 {
            return Err(ModelError::Empty {
                owner: format!("request `{id}`"),
            });
        }
        let room = request.max_length.min(self.context).saturating_sub(length);
        let limit = request.max_new_tokens.min(room);
        if limit == 0 {
            return Err(failed(id, &"there is no room for a response"));
        }
        self.requests
            .send(Sent { request, limit })
            .map_err(|_| failed(id, &"the threads that ask the engine have ended"))?;
        self.under_way += 1;
        Ok(())
    }

    /// Waits for the next response or failure; others that are there already come with it.
    fn step(&mut self) -> Result<Vec<Generation>, ModelError> {
        let mut generations = Vec::new();
        while self.under_way > 0 {
            let received = if generations.is_empty() && self.untold.is_empty() {
                self.answers.recv().ok()
            } else {
                self.answers.try_recv().ok()
            };
            let Some(received) = received else {
                break;
            };
            self.under_way -= 1;
            match received {
                Ok(generation) => generations.push(generation),
                Err((id, error)) => self.fail(id, &error)?,
            }
        }
        Ok(generations)
    }

    fn take_failures(&mut self) -> Vec<FailedRequest> {
        std::mem::take(&mut self.untold)
    }

    fn is_idle(&self) -> bool {
        self.under_way == 0
    }
}
