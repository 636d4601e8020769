//! Generation with continuous batching.
//!
//! Requests wait in a queue; every step admits as many as there is room for, reads a bounded number of prompt tokens,
//! decodes one token for each sequence that has been read, and lets the finished go at once. What a request
//! receives does not depend on what else is in the batch, on [`EngineOptions`] or on threads.
//!
//! Not for: turns, chat formats or environments; a request is token ids in, token ids out.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use seed_kernels::attention::KeyValueCache;
use seed_kernels::parallel;
use seed_random::RandomKey;
use serde::Serialize;

use crate::buffers::Workspace;
#[cfg(feature = "composed")]
use crate::composed::{ComposedDecoder, DeviceShare};
use crate::decoder::{Decoder, Slots};
use crate::error::ModelError;
use crate::pack::Pack;
use crate::sampler::{Alternative, Sampling, alternatives, sample};
use crate::sequence_state::SequenceState;

/// Parameters up to which a model's weights stay in a processor's caches.
const LARGEST_GROUPED: usize = 1 << 24;

/// Fewest rows worth a group of their own.
const GROUP_ROWS: usize = 4;

/// The same where all weights come from memory for every group.
const GROUP_ROWS_OF_LARGE: usize = 256;

/// Fewest ids of a common beginning worth a pass of their own.
const LEAST_SHARED: usize = 16;

/// Bounds of the work done at a time. Results do not depend on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Most sequences in progress at once; each holds a cache.
    pub max_active: usize,
    /// Most prompt tokens read in one step, over all sequences.
    pub prefill_chunk: usize,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            max_active: 64,
            prefill_chunk: 1024,
        }
    }
}

/// One response to be generated.
#[derive(Clone, Debug)]
pub struct GenerateRequest {
    /// The caller's name for it, repeated in the result and in messages.
    pub id: u64,
    /// The sequence so far.
    pub state: SequenceState,
    /// Tokens to read before generating.
    pub append: Vec<u32>,
    /// Most tokens to generate.
    pub max_new_tokens: usize,
    /// Most tokens of the whole sequence; the model's context bounds it too.
    pub max_length: usize,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Tokens which end the response.
    pub stop: Arc<[u32]>,
    /// Token `i` of the response is drawn with `key.uniform(i)`.
    pub key: RandomKey,
}

/// Why a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// A stop token was sampled; it is the last of the response.
    Stop,
    /// [`GenerateRequest::max_new_tokens`] were generated.
    Length,
    /// The sequence has [`GenerateRequest::max_length`] tokens or fills the model's context.
    Context,
}

/// A finished response.
#[derive(Clone, Debug)]
pub struct Generation {
    /// The request's.
    pub id: u64,
    /// The sequence with the response at its end, ready for the next turn.
    pub state: SequenceState,
    /// The response, the stop token included if one was sampled.
    pub token_ids: Vec<u32>,
    /// Log-prob of each under the full distribution at [`Sampling::scoring_temperature`], with the bits which
    /// [`Decoder::score`] gives at that temperature.
    pub log_probs: Vec<f32>,
    /// Log of the probability mass which top-k and top-p kept at each token, 0 without them: the log-prob under the
    /// distribution drawn from is `log_probs[i] - kept_log_masses[i]`.
    pub kept_log_masses: Vec<f32>,
    /// The most probable tokens at each position, where they were asked for; else empty.
    pub alternatives: Vec<Vec<Alternative>>,
    /// Why it ended.
    pub finish: FinishReason,
}

/// What a request in progress has received so far.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The request's.
    pub id: u64,
    /// As [`Generation::token_ids`].
    pub token_ids: &'a [u32],
    /// As [`Generation::log_probs`].
    pub log_probs: &'a [f32],
    /// As [`Generation::alternatives`].
    pub alternatives: &'a [Vec<Alternative>],
}

/// A request in progress.
struct Active {
    ticket: u64,
    request: GenerateRequest,
    /// How many of the most probable tokens are listed at each position.
    listed: usize,
    token_ids: Vec<u32>,
    log_probs: Vec<f32>,
    kept_log_masses: Vec<f32>,
    alternatives: Vec<Vec<Alternative>>,
    failure: Option<ModelError>,
}

impl Active {
    /// Tokens that have not been read.
    fn unread(&self) -> usize {
        self.request.state.len() - self.request.state.cached()
    }

    /// Why nothing more is to be generated, if so.
    fn finish(&self, max_positions: usize) -> Option<FinishReason> {
        let request = &self.request;
        if self
            .token_ids
            .last()
            .is_some_and(|token| request.stop.contains(token))
        {
            Some(FinishReason::Stop)
        } else if self.token_ids.len() >= request.max_new_tokens {
            Some(FinishReason::Length)
        } else if request.state.len() >= request.max_length.min(max_positions) {
            Some(FinishReason::Context)
        } else {
            None
        }
    }

    /// Appends a token chosen from `logits`, or fails where those are not finite.
    fn choose(&mut self, logits: &[f32]) {
        let request = &mut self.request;
        if let Some(&value) = logits.iter().find(|logit| !logit.is_finite()) {
            self.failure = Some(ModelError::NonFinite {
                owner: request_name(request.id),
                quantity: "a logit",
                position: request.state.len(),
                value,
            });
            return;
        }
        let uniform = request.key.uniform(self.token_ids.len() as u64);
        let sampled = sample(logits, &request.sampling, uniform);
        self.token_ids.push(sampled.token);
        self.log_probs.push(sampled.log_prob);
        self.kept_log_masses.push(sampled.kept_log_mass);
        if self.listed > 0 {
            let temperature = request.sampling.scoring_temperature();
            self.alternatives
                .push(alternatives(logits, self.listed, temperature));
        }
        request.state.tokens.push(sampled.token);
    }

    fn into_generation(self, finish: FinishReason) -> Generation {
        Generation {
            id: self.request.id,
            state: self.request.state,
            token_ids: self.token_ids,
            log_probs: self.log_probs,
            kept_log_masses: self.kept_log_masses,
            alternatives: self.alternatives,
            finish,
        }
    }
}

/// Unread tokens of one sequence that a step reads.
struct Share<'s> {
    active: &'s mut Active,
    count: usize,
    /// Whether these are all that is unread, so that the next token can be chosen.
    reaches_end: bool,
}

/// Sequences which one task takes through a step, with the task's buffers.
#[derive(Default)]
struct Group {
    pack: Pack,
    /// Rows of the pack after which a token is chosen.
    wanted: Vec<usize>,
    workspace: Workspace,
    normed: Vec<f32>,
    logits: Vec<f32>,
}

impl Group {
    /// Reads every share and chooses the next token of those read to their end.
    fn advance(&mut self, decoder: &Decoder, shares: &mut [Share<'_>]) {
        let config = decoder.config();
        let rows: usize = shares.iter().map(|share| share.count).sum();
        let _span = tracing::debug_span!("step_group", rows, sequences = shares.len()).entered();
        #[cfg(feature = "composed")]
        if let Some(device) = &decoder.device {
            decoder.count_rows(rows);
            advance_on(device, shares);
            return;
        }
        self.pack.clear();
        self.wanted.clear();
        for share in &*shares {
            let state = &share.active.request.state;
            let start = state.cached();
            self.pack.push(&state.tokens[start..start + share.count], start);
            if share.reaches_end {
                self.wanted.push(self.pack.rows() - 1);
            }
        }
        let mut caches: Vec<&mut [KeyValueCache]> = shares
            .iter_mut()
            .map(|share| share.active.request.state.caches.as_mut_slice())
            .collect();
        decoder.run_layers(
            &self.pack,
            &self.wanted,
            &mut caches,
            Slots::PerLayer,
            &mut self.workspace,
        );
        let mut reached: Vec<&mut Share<'_>> = shares.iter_mut().filter(|share| share.reaches_end).collect();
        decoder.head_logits(
            &self.workspace.hidden,
            reached.len(),
            &mut self.normed,
            &mut self.logits,
        );
        let _span = tracing::trace_span!("sample", rows = reached.len()).entered();
        let vocabulary_size = config.vocabulary_size;
        parallel::for_each_mut(&mut reached, |row, share| {
            // One row of logits was made for each.
            let logits = &self.logits[row * vocabulary_size..(row + 1) * vocabulary_size];
            share.active.choose(logits);
        });
    }
}

/// As [`Group::advance`], on a device: it computes, the host chooses.
#[cfg(feature = "composed")]
fn advance_on(device: &ComposedDecoder, shares: &mut [Share<'_>]) {
    let mut device_shares: Vec<DeviceShare<'_>> = shares
        .iter_mut()
        .filter_map(|share| {
            let (state, count, wanted) = (&mut share.active.request.state, share.count, share.reaches_end);
            let start = state.cached();
            Some(DeviceShare {
                tokens: &state.tokens[start..start + count],
                // States of another decoder were refused with their version.
                cache: state.device.as_mut()?,
                wanted,
            })
        })
        .collect();
    let logits = match device.advance(&mut device_shares) {
        Ok(logits) => logits,
        Err(error) => {
            let problem = error.to_string();
            for share in shares {
                share.active.failure = Some(ModelError::Device {
                    device: device.place().device.to_string(),
                    problem: problem.clone(),
                });
            }
            return;
        }
    };
    let _span = tracing::trace_span!("sample", rows = logits.len()).entered();
    let mut pairs: Vec<_> = shares
        .iter_mut()
        .zip(logits)
        .filter(|(share, _)| share.reaches_end)
        .collect();
    parallel::for_each_mut(&mut pairs, |_, (share, logits)| share.active.choose(logits));
}

/// Wall-clock time an engine has worked. A step that reads prompts and goes on with responses counts to both, by their
/// rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineTimes {
    /// Reading prompts.
    pub prefill: Duration,
    /// Reading the tokens just sampled.
    pub decode: Duration,
}

/// Generates responses with one decoder.
pub struct Engine<'a> {
    decoder: &'a Decoder,
    options: EngineOptions,
    queue: VecDeque<Active>,
    active: Vec<Active>,
    /// Finished or failed, with their tickets, but not yet handed out.
    finished: Vec<(u64, Generation)>,
    failed: VecDeque<Failed>,
    next_ticket: u64,
    groups: Vec<Group>,
    times: EngineTimes,
}

/// A request that was dropped.
struct Failed {
    ticket: u64,
    id: u64,
    error: ModelError,
}

fn request_name(id: u64) -> String {
    format!("request `{id}`")
}

impl<'a> Engine<'a> {
    /// An idle engine.
    pub fn new(decoder: &'a Decoder, options: EngineOptions) -> Self {
        Self {
            decoder,
            options: EngineOptions {
                max_active: options.max_active.max(1),
                prefill_chunk: options.prefill_chunk.max(1),
            },
            queue: VecDeque::new(),
            active: Vec::new(),
            finished: Vec::new(),
            failed: VecDeque::new(),
            next_ticket: 0,
            groups: Vec::new(),
            times: EngineTimes::default(),
        }
    }

    /// The decoder.
    pub fn decoder(&self) -> &'a Decoder {
        self.decoder
    }

    /// How long it has worked so far.
    pub fn times(&self) -> EngineTimes {
        self.times
    }

    /// Whether no request waits, is in progress, or has ended without having been handed out.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.active.is_empty() && self.finished.is_empty() && self.failed.is_empty()
    }

    /// Puts a request into the queue.
    ///
    /// # Errors
    /// Where it has no token to condition on, an id outside the vocabulary or a setting out of range, or where its
    /// state was made with other weights.
    pub fn submit(&mut self, request: GenerateRequest) -> Result<(), ModelError> {
        self.submit_listing(request, 0)
    }

    /// As [`Engine::submit`], and at each position of the response the `count` most probable tokens are listed.
    ///
    /// # Errors
    /// As [`Engine::submit`].
    pub fn submit_listing(&mut self, request: GenerateRequest, count: usize) -> Result<(), ModelError> {
        let active = Active {
            listed: count,
            ..self.accept(request)?
        };
        self.queue.push_back(active);
        Ok(())
    }

    /// What every request in progress has received so far, in the order of their admission.
    pub fn progress(&self) -> impl Iterator<Item = Progress<'_>> {
        self.active.iter().map(|active| Progress {
            id: active.request.id,
            token_ids: &active.token_ids,
            log_probs: &active.log_probs,
            alternatives: &active.alternatives,
        })
    }

    /// Drops all requests of this id, wherever they are, and returns whether there was one. The others go on as if it
    /// had never been.
    pub fn cancel(&mut self, id: u64) -> bool {
        let count = |engine: &Self| {
            engine.queue.len() + engine.active.len() + engine.finished.len() + engine.failed.len()
        };
        let before = count(self);
        self.queue.retain(|active| active.request.id != id);
        self.active.retain(|active| active.request.id != id);
        self.finished.retain(|(_, generation)| generation.id != id);
        self.failed.retain(|failed| failed.id != id);
        count(self) < before
    }

    /// Admits, reads, and decodes one token for every sequence that has been read; returns the finished, in the order
    /// of their admission.
    ///
    /// # Errors
    /// [`ModelError::NonFinite`] where a request's logits are not finite. That request is dropped, all others stay
    /// and can go on.
    pub fn step(&mut self) -> Result<Vec<Generation>, ModelError> {
        self.advance()?;
        Ok(self
            .finished
            .drain(..)
            .map(|(_, generation)| generation)
            .collect())
    }

    /// As [`Engine::step`] for requests of many owners: the finished, and the ids of all requests that were dropped,
    /// each with the reason.
    pub fn step_all(&mut self) -> (Vec<Generation>, Vec<(u64, ModelError)>) {
        self.work();
        let failed = self.failed.drain(..).map(|failed| (failed.id, failed.error));
        let failed = failed.collect();
        let finished = self.finished.drain(..).map(|(_, generation)| generation);
        (finished.collect(), failed)
    }

    /// Generates all responses and returns them in the order of the requests. Requests submitted earlier go on
    /// meanwhile and are handed out by the next [`Engine::step`].
    ///
    /// # Errors
    /// As [`Engine::submit`] and [`Engine::step`]; the rest of these requests are then dropped.
    pub fn run(&mut self, requests: Vec<GenerateRequest>) -> Result<Vec<Generation>, ModelError> {
        let first = self.next_ticket;
        let result = self.run_from(first, requests);
        if result.is_err() {
            self.queue.retain(|active| active.ticket < first);
            self.active.retain(|active| active.ticket < first);
            self.finished.retain(|(ticket, _)| *ticket < first);
            self.failed.retain(|failed| failed.ticket < first);
        }
        result
    }

    fn run_from(
        &mut self,
        first: u64,
        requests: Vec<GenerateRequest>,
    ) -> Result<Vec<Generation>, ModelError> {
        let mut generations: Vec<(u64, Generation)> = Vec::with_capacity(requests.len());
        let expected = requests.len();
        for request in requests {
            self.submit(request)?;
        }
        while generations.len() < expected {
            self.advance()?;
            let (ours, others) = std::mem::take(&mut self.finished)
                .into_iter()
                .partition(|(ticket, _)| *ticket >= first);
            generations.extend::<Vec<_>>(ours);
            self.finished = others;
        }
        generations.sort_by_key(|(ticket, _)| *ticket);
        Ok(generations
            .into_iter()
            .map(|(_, generation)| generation)
            .collect())
    }

    /// Appends tokens to a state and reads them now, for instance a prefix which many requests then fork.
    ///
    /// # Errors
    /// Where an id is outside the vocabulary, the sequence exceeds the model's context, or the state was made with
    /// other weights.
    pub fn prefill(&mut self, mut state: SequenceState, tokens: &[u32]) -> Result<SequenceState, ModelError> {
        let owner = || "prefill".to_owned();
        let (decoder, chunk) = (self.decoder, self.options.prefill_chunk);
        self.check_state(&state, &owner)?;
        self.decoder.validate_tokens(tokens, state.len(), &owner)?;
        let (length, maximum) = (state.len() + tokens.len(), self.decoder.config().max_positions);
        if length > maximum {
            return Err(ModelError::TooLong {
                owner: owner(),
                length,
                maximum,
            });
        }
        state.tokens.extend_from_slice(tokens);
        let started = Instant::now();
        let _span = tracing::debug_span!("prefill", rows = state.len() - state.cached()).entered();
        #[cfg(feature = "composed")]
        if let (Some(device), Some(_)) = (&decoder.device, &state.device) {
            while state.cached() < state.len() {
                let start = state.cached();
                let end = state.len().min(start + chunk);
                decoder.count_rows(end - start);
                if let Some(cache) = &mut state.device {
                    let tokens = &state.tokens[start..end];
                    let wanted = false;
                    device.advance(&mut [DeviceShare {
                        tokens,
                        cache,
                        wanted,
                    }])?;
                }
            }
            self.times.prefill += started.elapsed();
            return Ok(state);
        }
        let Group { pack, workspace, .. } = self.group();
        while state.cached() < state.len() {
            let start = state.cached();
            let end = state.len().min(start + chunk);
            pack.clear();
            pack.push(&state.tokens[start..end], start);
            decoder.run_layers(
                pack,
                &[],
                &mut [state.caches.as_mut_slice()],
                Slots::PerLayer,
                workspace,
            );
        }
        self.times.prefill += started.elapsed();
        Ok(state)
    }

    /// For each of `prompts`, a state that has read a beginning which it shares with others, and the ids left to read,
    /// at least one: every beginning of some length is read once and forked. States and results are those of reading
    /// each prompt alone.
    ///
    /// # Errors
    /// As [`Engine::prefill`].
    pub fn prefill_shared(
        &mut self,
        prompts: &[Vec<u32>],
    ) -> Result<Vec<(SequenceState, Vec<u32>)>, ModelError> {
        // In the order of their ids, prompts with a common beginning stand together.
        let mut order: Vec<usize> = (0..prompts.len()).collect();
        order.sort_by(|&left, &right| prompts[left].cmp(&prompts[right]));
        let mut states = vec![SequenceState::new(self.decoder); prompts.len()];
        let root = SequenceState::new(self.decoder);
        self.fork_shared(prompts, &order, &root, &mut states)?;
        Ok(states
            .into_iter()
            .zip(prompts)
            .map(|(state, prompt)| {
                let rest = prompt[state.len()..].to_vec();
                (state, rest)
            })
            .collect())
    }

    /// Gives every prompt of `members`, which stand in the order of their ids and begin with what `state` has read, the
    /// longest state worth sharing.
    fn fork_shared(
        &mut self,
        prompts: &[Vec<u32>],
        members: &[usize],
        state: &SequenceState,
        states: &mut [SequenceState],
    ) -> Result<(), ModelError> {
        let [first, .., last] = members else {
            for &member in members {
                states[member] = state.clone();
            }
            return Ok(());
        };
        let (first, last) = (&prompts[*first], &prompts[*last]);
        let common = first
            .iter()
            .zip(last)
            .take_while(|(left, right)| left == right)
            .count();
        // A prompt keeps its last id: the logits after it are yet to be made.
        let shortest = members
            .iter()
            .map(|&member| prompts[member].len())
            .min()
            .unwrap_or(0);
        let read = common.min(shortest.saturating_sub(1));
        let longer;
        let state = if read >= state.len() + LEAST_SHARED {
            longer = self.prefill(state.clone(), &first[state.len()..read])?;
            &longer
        } else {
            state
        };
        for branch in
            members.chunk_by(|&left, &right| prompts[left].get(common) == prompts[right].get(common))
        {
            if branch.len() == members.len() {
                // All are equal: there is nothing more to tell them apart.
                for &member in branch {
                    states[member] = state.clone();
                }
            } else {
                self.fork_shared(prompts, branch, state, states)?;
            }
        }
        Ok(())
    }

    /// Checks a request and gives it a ticket.
    fn accept(&mut self, mut request: GenerateRequest) -> Result<Active, ModelError> {
        let id = request.id;
        let owner = || request_name(id);
        self.check_state(&request.state, &owner)?;
        request.sampling.validate(&owner)?;
        self.decoder
            .validate_tokens(&request.append, request.state.len(), &owner)?;
        let append = std::mem::take(&mut request.append);
        request.state.tokens.extend_from_slice(&append);
        if request.state.is_empty() {
            return Err(ModelError::Empty { owner: owner() });
        }
        // The logits after the last token are needed, so that one has to be read here even if it was before.
        request.state.truncate_cache(request.state.len() - 1);
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        Ok(Active {
            ticket,
            token_ids: Vec::new(),
            log_probs: Vec::new(),
            kept_log_masses: Vec::new(),
            alternatives: Vec::new(),
            listed: 0,
            failure: None,
            request,
        })
    }

    fn check_state(&self, state: &SequenceState, owner: &dyn Fn() -> String) -> Result<(), ModelError> {
        if state.version == self.decoder.version() {
            Ok(())
        } else {
            Err(ModelError::StaleState { owner: owner() })
        }
    }

    /// One step, unless an earlier one still has failures to tell. A failure is the whole of what a step has to tell, so when
    /// several fail in one step, the following steps tell the others.
    fn advance(&mut self) -> Result<(), ModelError> {
        if self.failed.is_empty() {
            self.work();
        }
        match self.failed.pop_front() {
            Some(failed) => Err(failed.error),
            None => Ok(()),
        }
    }

    /// One step; what finishes goes to `self.finished`, what fails to `self.failed`.
    fn work(&mut self) {
        self.admit();
        self.read();
        for mut active in std::mem::take(&mut self.active) {
            match active.failure.take() {
                Some(error) => self.failed.push_back(Failed {
                    ticket: active.ticket,
                    id: active.request.id,
                    error,
                }),
                None => self.keep(active),
            }
        }
    }

    /// Moves requests from the queue to the active while there is room.
    fn admit(&mut self) {
        while self.active.len() < self.options.max_active {
            let Some(active) = self.queue.pop_front() else {
                return;
            };
            self.keep(active);
        }
    }

    /// Puts a request to the finished if nothing more is to be generated, else to the active.
    fn keep(&mut self, active: Active) {
        match active.finish(self.decoder.config().max_positions) {
            Some(finish) => self
                .finished
                .push((active.ticket, active.into_generation(finish))),
            None => self.active.push(active),
        }
    }

    /// Reads one token of each sequence in decoding and up to `prefill_chunk` prompt tokens, and chooses the next
    /// token of those read to their end.
    fn read(&mut self) {
        let started = Instant::now();
        let decoder = self.decoder;
        let mut budget = self.options.prefill_chunk;
        let mut prefill_rows = 0;
        let mut shares: Vec<Share<'_>> = Vec::with_capacity(self.active.len());
        for active in &mut self.active {
            let unread = active.unread();
            let count = if active.token_ids.is_empty() {
                let count = unread.min(budget);
                budget -= count;
                prefill_rows += count;
                count
            } else {
                unread
            };
            if count > 0 {
                shares.push(Share {
                    active,
                    count,
                    reaches_end: count == unread,
                });
            }
        }
        if shares.is_empty() {
            return;
        }
        let rows: usize = shares.iter().map(|share| share.count).sum();
        let _span = tracing::debug_span!(
            "engine_step",
            sequences = shares.len(),
            rows,
            prefill = prefill_rows,
            decode = rows - prefill_rows
        )
        .entered();
        let mut parts = divide(&mut shares, group_count(decoder, rows));
        while self.groups.len() < parts.len() {
            self.groups.push(Group::default());
        }
        let mut pairs: Vec<_> = self.groups.iter_mut().zip(&mut parts).collect();
        parallel::for_each_mut(&mut pairs, |_, (group, shares)| group.advance(decoder, shares));
        let time = started.elapsed();
        let prefill = time.mul_f64(prefill_rows as f64 / rows as f64);
        self.times.prefill += prefill;
        self.times.decode += time.saturating_sub(prefill);
    }

    /// Buffers for work outside of a step.
    fn group(&mut self) -> &mut Group {
        if self.groups.is_empty() {
            self.groups.push(Group::default());
        }
        &mut self.groups[0]
    }
}

/// Number of groups for a step over `rows` rows.
///
/// Groups run side by side and need not wait for each other at every operation, which costs small models a good part
/// of a step. A group reads all weights, though, so large models with few rows, bound by memory, are better off with one
/// group whose operations are split over the threads.
///
/// A device takes all of a step at once.
fn group_count(decoder: &Decoder, rows: usize) -> usize {
    if !decoder.place().is_native() {
        return 1;
    }
    let fewest = if decoder.parameters().total() > LARGEST_GROUPED {
        GROUP_ROWS_OF_LARGE
    } else {
        GROUP_ROWS
    };
    parallel::threads().min(rows / fewest).max(1)
}

/// Cuts `shares` into at most `count` consecutive parts of about the same number of rows.
fn divide<'a, 's>(mut shares: &'a mut [Share<'s>], count: usize) -> Vec<&'a mut [Share<'s>]> {
    let mut rows: usize = shares.iter().map(|share| share.count).sum();
    let mut parts = Vec::with_capacity(count);
    for remaining in (1..=count).rev() {
        let target = rows.div_ceil(remaining);
        let mut taken = 0;
        let length = shares
            .iter()
            .take_while(|share| {
                let takes = taken < target;
                taken += if takes { share.count } else { 0 };
                takes
            })
            .count();
        let (part, rest) = std::mem::take(&mut shares).split_at_mut(length);
        shares = rest;
        rows -= taken;
        if !part.is_empty() {
            parts.push(part);
        }
    }
    parts
}
