//! The thread that generates: one engine, whose batch requests join and leave between two tokens.
//!
//! Not for: HTTP, or the form of answers.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use seed_model::sampler::Alternative;
use seed_model::{Decoder, Engine, FinishReason, GenerateRequest, Generation, ModelError, SequenceState};
use seed_random::RandomKey;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use crate::model::{Facts, Weights, replace_weights};
use crate::request::Asked;
use crate::text::{Piece, TextStream};
use crate::{ServeOptions, ServedModel};

/// A request on its way to the engine.
pub(crate) struct Job {
    pub(crate) asked: Arc<Asked>,
    /// Where its responses go. Once nobody listens, it is given up.
    pub(crate) events: UnboundedSender<Event>,
}

/// What the worker is told.
pub(crate) enum Command {
    /// To answer a request.
    Generate(Job),
    /// To go on with other weights, once the requests before have been answered.
    Replace(Replacement),
}

/// Other weights.
pub(crate) struct Replacement {
    pub(crate) folder: PathBuf,
    pub(crate) version: Option<String>,
    /// Told the digest of the new weights, or why they were not taken.
    pub(crate) done: oneshot::Sender<Result<String, String>>,
}

/// What happens to a response.
#[derive(Debug)]
pub(crate) enum Event {
    /// Its request was taken up, with these weights.
    Begun { weights: Arc<Weights> },
    /// It grew.
    Grown {
        /// Its number in the answer.
        choice: usize,
        /// Text that is certain by now; it may be behind the tokens.
        text: String,
        tokens: Vec<Token>,
    },
    /// It ended; nothing more comes.
    Ended { choice: usize, cause: EndCause },
    /// The request failed; nothing more comes.
    Failed { message: String },
}

/// A token of a response.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) id: u32,
    pub(crate) log_prob: f32,
    pub(crate) alternatives: Vec<Alternative>,
    /// Characters of the text before it.
    pub(crate) offset: usize,
}

/// Why a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndCause {
    /// It has as many tokens as it may have.
    Length,
    /// By this token.
    Token(u32),
    /// By the stop text at this place in the request's list.
    Text(usize),
}

/// A prompt whose responses are not all in the engine yet.
struct Waiting {
    asked: Arc<Asked>,
    events: UnboundedSender<Event>,
    /// Its place in the request.
    prompt: usize,
    /// Random numbers of the request.
    key: RandomKey,
    /// Responses in the engine or done.
    started: usize,
    /// What they have in common, from the first on.
    read: Option<SequenceState>,
}

/// A response in the engine.
struct Choice {
    asked: Arc<Asked>,
    events: UnboundedSender<Event>,
    number: usize,
    /// Tokens told so far.
    told: usize,
    text: TextStream,
}

impl Choice {
    /// Tells the tokens that are new; returns the stop text that ended it.
    fn grow(
        &mut self,
        facts: &Facts,
        ids: &[u32],
        log_probs: &[f32],
        alternatives: &[Vec<Alternative>],
    ) -> Option<usize> {
        let mut tokens = Vec::new();
        let mut whole = Piece::default();
        for (index, (&id, &log_prob)) in ids.iter().zip(log_probs).enumerate().skip(self.told) {
            tokens.push(Token {
                id,
                log_prob,
                alternatives: alternatives.get(index).cloned().unwrap_or_default(),
                offset: self.text.characters(),
            });
            // The token that ends a response is no part of its text.
            let hidden = self.asked.stop_tokens.contains(&id)
                || self.asked.skip_control && facts.tokenizer.is_control(id);
            if !hidden {
                let piece = self.text.push(&facts.tokenizer.token_bytes(id));
                whole.text.push_str(&piece.text);
                whole.stopped = piece.stopped;
            }
            if whole.stopped.is_some() {
                break;
            }
        }
        self.told += tokens.len();
        if !tokens.is_empty() {
            self.tell(whole.text, tokens);
        }
        whole.stopped
    }

    fn tell(&self, text: String, tokens: Vec<Token>) {
        self.send(Event::Grown {
            choice: self.number,
            text,
            tokens,
        });
    }

    fn end(&self, cause: EndCause) {
        self.send(Event::Ended {
            choice: self.number,
            cause,
        });
    }

    fn send(&self, event: Event) {
        // Where nobody listens any more, the next look at the choice gives it up.
        let _ = self.events.send(event);
    }
}

/// Works until nobody can send commands any more and all requests are answered.
pub(crate) fn work(model: ServedModel, options: &ServeOptions, commands: &Receiver<Command>) {
    let ServedModel { mut decoder, facts } = model;
    let mut requests = 0;
    loop {
        let mut worker = Worker::new(&decoder, &facts, options, requests);
        let replacement = worker.run(commands);
        requests = worker.requests;
        let Some(replacement) = replacement else {
            return;
        };
        let version = replacement.version.as_deref();
        let result = replace_weights(&mut decoder, &facts, &replacement.folder, version);
        // Whoever asked may be gone.
        let _ = replacement.done.send(result);
    }
}

/// The engine with the responses in it.
struct Worker<'a> {
    decoder: &'a Decoder,
    facts: &'a Facts,
    engine: Engine<'a>,
    /// Base of the random numbers of requests without a seed.
    key: RandomKey,
    /// Requests so far.
    requests: u64,
    /// In the order of their arrival. A prompt is read when its first response has a place in the engine, so that waiting
    /// takes neither time from those in progress nor memory.
    waiting: VecDeque<Waiting>,
    /// Responses in the engine at a time.
    max_active: usize,
    choices: BTreeMap<u64, Choice>,
    next_id: u64,
}

impl<'a> Worker<'a> {
    fn new(decoder: &'a Decoder, facts: &'a Facts, options: &ServeOptions, requests: u64) -> Self {
        Self {
            decoder,
            facts,
            engine: Engine::new(decoder, options.engine),
            key: RandomKey::new(options.seed),
            requests,
            waiting: VecDeque::new(),
            max_active: options.engine.max_active,
            choices: BTreeMap::new(),
            next_id: 0,
        }
    }

    /// Works until all is answered, and then either nobody can send commands any more or weights are to be replaced.
    fn run(&mut self, commands: &Receiver<Command>) -> Option<Replacement> {
        let mut replacement = None;
        loop {
            while replacement.is_none() {
                let command = if self.is_idle() {
                    commands.recv().ok()?
                } else {
                    match commands.try_recv() {
                        Ok(command) => command,
                        Err(_) => break,
                    }
                };
                match command {
                    Command::Generate(job) => self.enqueue(&job),
                    Command::Replace(asked) => replacement = Some(asked),
                }
            }
            if self.is_idle() {
                return replacement;
            }
            self.step();
        }
    }

    /// Whether all requests so far are answered.
    fn is_idle(&self) -> bool {
        self.choices.is_empty() && self.waiting.is_empty()
    }

    /// Lets the prompts of a request wait.
    fn enqueue(&mut self, job: &Job) {
        let number = self.requests;
        self.requests += 1;
        let weights = self.facts.weights();
        // Where nobody listens any more, the next look at the request gives it up.
        let _ = job.events.send(Event::Begun { weights });
        let key = match job.asked.seed {
            Some(seed) => RandomKey::new(seed),
            None => self.key.with("request", number),
        };
        for prompt in 0..job.asked.prompts.len() {
            self.waiting.push_back(Waiting {
                asked: Arc::clone(&job.asked),
                events: job.events.clone(),
                prompt,
                key,
                started: 0,
                read: None,
            });
        }
    }

    /// Hands responses to the engine while it has places for them.
    fn fill(&mut self) {
        while self.choices.len() < self.max_active {
            let Some(mut waiting) = self.waiting.pop_front() else {
                return;
            };
            match self.start(&mut waiting) {
                Ok(()) if waiting.started < waiting.asked.choices => self.waiting.push_front(waiting),
                Ok(()) => {}
                Err(error) => self.refuse(&waiting.events, &error.to_string()),
            }
        }
    }

    /// Hands the next response to a prompt to the engine.
    fn start(&mut self, waiting: &mut Waiting) -> Result<(), ModelError> {
        let (asked, choice) = (&waiting.asked, waiting.started);
        let prompt = asked.prompts.get(waiting.prompt).map_or(&[][..], Vec::as_slice);
        // What several responses have in common is read once.
        let shared = if asked.choices > 1 {
            prompt.len().saturating_sub(1)
        } else {
            0
        };
        let (read, append) = prompt.split_at(shared);
        let state = match waiting.read.take() {
            Some(state) => state,
            None => self.engine.prefill(SequenceState::new(self.decoder), read)?,
        };
        waiting.started += 1;
        if waiting.started < asked.choices {
            waiting.read = Some(state.clone());
        }
        let id = self.next_id;
        self.next_id += 1;
        let request = GenerateRequest {
            id,
            state,
            append: append.to_vec(),
            max_new_tokens: asked.max_new_tokens,
            max_length: self.facts.context,
            sampling: asked.sampling,
            stop: Arc::clone(&asked.stop_tokens),
            key: asked
                .random_key
                .unwrap_or_else(|| waiting.key.with("choice", choice as u64)),
        };
        self.engine
            .submit_listing(request, asked.log_probs.unwrap_or(0))?;
        self.choices.insert(
            id,
            Choice {
                asked: Arc::clone(asked),
                events: waiting.events.clone(),
                number: waiting.prompt * asked.choices + choice,
                told: 0,
                text: TextStream::new(Arc::clone(&asked.stop_texts)),
            },
        );
        Ok(())
    }

    /// Gives up a whole request.
    fn refuse(&mut self, events: &UnboundedSender<Event>, message: &str) {
        let message = message.to_owned();
        let _ = events.send(Event::Failed { message });
        self.give_up(|other| other.same_channel(events));
    }

    /// Drops what would be told there.
    fn give_up(&mut self, there: impl Fn(&UnboundedSender<Event>) -> bool) {
        self.waiting.retain(|waiting| !there(&waiting.events));
        let engine = &mut self.engine;
        self.choices.retain(|&id, choice| {
            let keep = !there(&choice.events);
            if !keep {
                engine.cancel(id);
            }
            keep
        });
    }

    /// One token for every response in progress.
    fn step(&mut self) {
        self.give_up(UnboundedSender::is_closed);
        self.fill();
        let (finished, failed) = self.engine.step_all();
        let mut stopped = Vec::new();
        for progress in self.engine.progress() {
            let Some(choice) = self.choices.get_mut(&progress.id) else {
                continue;
            };
            let ended = choice.grow(
                self.facts,
                progress.token_ids,
                progress.log_probs,
                progress.alternatives,
            );
            if let Some(text) = ended {
                choice.end(EndCause::Text(text));
                stopped.push(progress.id);
            }
        }
        for id in stopped {
            self.engine.cancel(id);
            self.choices.remove(&id);
        }
        for generation in finished {
            if let Some(choice) = self.choices.remove(&generation.id) {
                finish(choice, self.facts, &generation);
            }
        }
        for (id, error) in failed {
            if let Some(choice) = self.choices.remove(&id) {
                choice.send(Event::Failed {
                    message: error.to_string(),
                });
            }
        }
    }
}

/// Tells the rest of a response that the engine has finished.
fn finish(mut choice: Choice, facts: &Facts, generation: &Generation) {
    let mut stopped = choice.grow(
        facts,
        &generation.token_ids,
        &generation.log_probs,
        &generation.alternatives,
    );
    if stopped.is_none() {
        let rest = choice.text.finish();
        if !rest.text.is_empty() {
            choice.tell(rest.text, Vec::new());
        }
        stopped = rest.stopped;
    }
    choice.end(match (stopped, generation.finish, generation.token_ids.last()) {
        (Some(text), _, _) => EndCause::Text(text),
        (None, FinishReason::Stop, Some(&token)) => EndCause::Token(token),
        _ => EndCause::Length,
    });
}
