//! An engine in the place of the one in this process.
//!
//! Requests go out side by side on a bounded number of threads. The state of a sequence holds its ids only: the engine
//! keeps keys and values itself, if it does.
//!
//! Not for: measuring how its log-probs differ.

use std::sync::Arc;
use std::thread;

use crossbeam_channel::{Receiver, Sender, unbounded};
use seed_model::{Decoder, FinishReason, GenerateRequest, Generation, ModelError, SequenceState};
use seed_rollout::Generator;

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
}

impl RemoteGenerator {
    /// A generator for the engine behind `client`, which has `weights`. `decoder` has the same ones; it says how long
    /// sequences may be and whose states these are.
    pub fn new(client: &Arc<Client>, decoder: &Decoder, weights: PublishedWeights) -> Self {
        let (requests, taken) = unbounded::<Sent>();
        let (told, answers) = unbounded();
        let weights = Arc::new(weights);
        for _ in 0..client.options.concurrency {
            let (client, weights) = (Arc::clone(client), Arc::clone(&weights));
            let (taken, told) = (taken.clone(), told.clone());
            // Ends when the generator is dropped and its last request is answered.
            thread::spawn(move || {
                for sent in taken {
                    if told.send(generate(&client, &weights, sent)).is_err() {
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
        }
    }
}

fn generate(client: &Client, weights: &PublishedWeights, sent: Sent) -> Received {
    let Sent { mut request, limit } = sent;
    let model = match weights {
        PublishedWeights::Adapter { name } => name,
        PublishedWeights::Initial | PublishedWeights::Model { .. } => &client.options.model,
    };
    let ask = Ask {
        ids: request.state.token_ids().to_vec(),
        max_new_tokens: limit,
        sampling: request.sampling,
        stop: request.stop.to_vec(),
        seed: request.key.to_u64() >> 1,
        model: model.clone(),
    };
    let answer = answer(client, weights, &ask).map_err(|error| (request.id, error))?;
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

fn answer(client: &Client, weights: &PublishedWeights, ask: &Ask) -> Result<Answer, BackendError> {
    let dialect = client.options.dialect;
    let adapter = matches!(weights, PublishedWeights::Adapter { .. });
    let bytes = client.post(dialect.path(), &dialect.body(ask, adapter))?;
    let answer = dialect
        .read(ask, &bytes)
        .map_err(|problem| BackendError::Answer {
            url: client.url(dialect.path()),
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

    /// Waits for the next response; others that are there already come with it.
    fn step(&mut self) -> Result<Vec<Generation>, ModelError> {
        let mut generations = Vec::new();
        while self.under_way > 0 {
            let received = if generations.is_empty() {
                self.answers.recv().ok()
            } else {
                self.answers.try_recv().ok()
            };
            let Some(received) = received else {
                break;
            };
            self.under_way -= 1;
            generations.push(received.map_err(|(id, error)| failed(id, &error))?);
        }
        Ok(generations)
    }

    fn is_idle(&self) -> bool {
        self.under_way == 0
    }
}
