//! The work itself, timed.
//!
//! Not for: reading requests or comparing with anything.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rayon::{ThreadPool, ThreadPoolBuilder};
use seed_kernels::InstructionSet;
use seed_kernels::peak::multiply_add_peak;
use seed_model::{
    AdamW, AdamWOptions, Decoder, Engine, EngineOptions, GenerateRequest, Generation, Gradients, ModelError,
    Sampling, ScoreGradients, SequenceState, TokenSequence, load_weights,
};
use seed_random::RandomKey;
use serde_json::{Value, json};
use thiserror::Error;

/// Learning rate of the measured steps: small, so that two contenders stay comparable over many.
const LEARNING_RATE: f64 = 1e-5;

/// Why a request was not answered.
#[derive(Debug, Error)]
pub(crate) enum WorkError {
    #[error("nothing is loaded: send `load` first")]
    NothingLoaded,
    #[error("the request is not understood: {0}")]
    Request(#[from] serde_json::Error),
    #[error("threads: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
    #[error(transparent)]
    Model(#[from] ModelError),
}

/// The state between requests.
#[derive(Default)]
pub(crate) struct Work {
    loaded: Option<Loaded>,
}

struct Loaded {
    pool: ThreadPool,
    decoder: Decoder,
    /// Made by the first training step, since other work must not pay for its memory.
    training: Option<Training>,
}

struct Training {
    optimiser: AdamW,
    gradients: Gradients,
}

impl Work {
    /// Reads a model in the Hugging Face layout.
    pub(crate) fn load(&mut self, directory: &Path, threads: usize) -> Result<Value, WorkError> {
        let (config, parameters) = load_weights(directory)?;
        let pool = ThreadPoolBuilder::new().num_threads(threads).build()?;
        let decoder = pool.install(|| Decoder::new(config, parameters))?;
        self.loaded = Some(Loaded {
            pool,
            decoder,
            training: None,
        });
        let instruction_set = format!("{:?}", InstructionSet::current()).to_lowercase();
        Ok(json!({ "instruction_set": instruction_set }))
    }

    fn loaded(&mut self) -> Result<&mut Loaded, WorkError> {
        self.loaded.as_mut().ok_or(WorkError::NothingLoaded)
    }

    /// Multiply-adds per second in registers on all threads, times two.
    pub(crate) fn peak(&mut self, seconds: f64) -> Result<Value, WorkError> {
        let pool = &self.loaded()?.pool;
        let peak = pool.install(|| multiply_add_peak(Duration::from_secs_f64(seconds)));
        Ok(json!({ "flops_per_second": peak }))
    }

    /// Time of scoring, and the log-probs of the first sequence.
    pub(crate) fn score(&mut self, tokens: &[Vec<u32>], repeats: usize) -> Result<Value, WorkError> {
        let loaded = self.loaded()?;
        let scored = scored_positions(tokens);
        let sequences = sequences(tokens, &scored);
        let (seconds, scores) = timed(repeats, || {
            loaded.pool.install(|| loaded.decoder.score(&sequences, 1.0))
        })?;
        Ok(json!({ "seconds": seconds, "log_probs": scores.first().map(|scores| &scores.log_probs) }))
    }

    /// Time of reading prompts, the choice of one token included.
    pub(crate) fn prefill(&mut self, tokens: &[Vec<u32>], repeats: usize) -> Result<Value, WorkError> {
        let loaded = self.loaded()?;
        let (seconds, _) = timed(repeats, || {
            loaded.pool.install(|| {
                let mut engine = engine(&loaded.decoder, tokens.len());
                engine.run(requests(&loaded.decoder, tokens, Sampling::GREEDY))
            })
        })?;
        Ok(json!({ "seconds": seconds }))
    }

    /// Times of reading the prompts with the choice of the first token, and of generating the others.
    pub(crate) fn decode(
        &mut self,
        prompts: &[Vec<u32>],
        new_tokens: usize,
        temperature: f32,
    ) -> Result<Value, WorkError> {
        let Loaded { pool, decoder, .. } = self.loaded()?;
        pool.install(|| {
            let mut engine = engine(decoder, prompts.len());
            let start = Instant::now();
            let first = engine.run(requests(decoder, prompts, Sampling::at_temperature(temperature)))?;
            let prefill_seconds = start.elapsed().as_secs_f64();
            let mut token_ids: Vec<Vec<u32>> = first
                .iter()
                .map(|generation| generation.token_ids.clone())
                .collect();
            let rest = first
                .into_iter()
                .map(|generation| continued(generation, new_tokens - 1, temperature))
                .collect();
            let start = Instant::now();
            let rest = engine.run(rest)?;
            let decode_seconds = start.elapsed().as_secs_f64();
            for (all, generation) in token_ids.iter_mut().zip(rest) {
                all.extend(generation.token_ids);
            }
            Ok(json!({
                "prefill_seconds": prefill_seconds,
                "decode_seconds": decode_seconds,
                "token_ids": token_ids,
            }))
        })
    }

    /// Time of one step: forward, backward, AdamW; and the loss before the last.
    pub(crate) fn train(&mut self, tokens: &[Vec<u32>], repeats: usize) -> Result<Value, WorkError> {
        let Loaded {
            pool,
            decoder,
            training,
        } = self.loaded()?;
        let training = training.get_or_insert_with(|| Training {
            optimiser: AdamW::new(
                AdamWOptions {
                    decay_vectors: true,
                    max_norm: None,
                    ..AdamWOptions::default()
                },
                decoder.parameters(),
            ),
            gradients: Gradients::zeros(decoder.config()),
        });
        let scored = scored_positions(tokens);
        let sequences = sequences(tokens, &scored);
        let share = 1.0 / scored.iter().map(Vec::len).sum::<usize>() as f64;
        let (seconds, parts) = timed(repeats, || {
            pool.install(|| step(decoder, training, &sequences, share))
        })?;
        Ok(json!({ "seconds": seconds, "loss": parts.loss, "optimiser_seconds": parts.optimiser_seconds }))
    }
}

struct Step {
    loss: f64,
    optimiser_seconds: f64,
}

/// One optimiser step on the mean cross-entropy; `share` is one over the number of scored tokens.
fn step(
    decoder: &mut Decoder,
    training: &mut Training,
    sequences: &[TokenSequence<'_>],
    share: f64,
) -> Result<Step, ModelError> {
    let Training { optimiser, gradients } = training;
    let mut loss = 0.0;
    gradients.clear();
    decoder.accumulate_gradient(
        sequences,
        1.0,
        gradients,
        &mut |_, scores| {
            let log_probs: f64 = scores.log_probs.iter().copied().map(f64::from).sum();
            loss -= share * log_probs;
            ScoreGradients {
                log_probs: vec![-share as f32; scores.log_probs.len()],
                entropies: vec![0.0; scores.entropies.len()],
            }
        },
        false,
    )?;
    let start = Instant::now();
    decoder.update(|parameters| optimiser.step(parameters, gradients, LEARNING_RATE));
    Ok(Step {
        loss,
        optimiser_seconds: start.elapsed().as_secs_f64(),
    })
}

/// Runs `body` so many times; its mean time in seconds and its last result.
fn timed<T>(repeats: usize, mut body: impl FnMut() -> Result<T, ModelError>) -> Result<(f64, T), ModelError> {
    let start = Instant::now();
    for _ in 1..repeats {
        body()?;
    }
    let result = body()?;
    Ok((start.elapsed().as_secs_f64() / repeats.max(1) as f64, result))
}

/// All positions but the first of each sequence.
fn scored_positions(tokens: &[Vec<u32>]) -> Vec<Vec<u32>> {
    tokens
        .iter()
        .map(|tokens| (1..tokens.len() as u32).collect())
        .collect()
}

fn sequences<'a>(tokens: &'a [Vec<u32>], scored: &'a [Vec<u32>]) -> Vec<TokenSequence<'a>> {
    tokens
        .iter()
        .zip(scored)
        .map(|(tokens, scored)| TokenSequence { tokens, scored })
        .collect()
}

/// An engine that takes all sequences at once.
fn engine(decoder: &Decoder, sequences: usize) -> Engine<'_> {
    Engine::new(
        decoder,
        EngineOptions {
            max_active: sequences,
            ..EngineOptions::default()
        },
    )
}

/// A request per prompt for one token.
fn requests(decoder: &Decoder, prompts: &[Vec<u32>], sampling: Sampling) -> Vec<GenerateRequest> {
    prompts
        .iter()
        .enumerate()
        .map(|(index, prompt)| GenerateRequest {
            id: index as u64,
            state: SequenceState::new(decoder),
            append: prompt.clone(),
            max_new_tokens: 1,
            max_length: usize::MAX,
            sampling,
            stop: Arc::from([]),
            key: key(index as u64, "first"),
        })
        .collect()
}

/// Goes on with what one token has been generated for.
fn continued(generation: Generation, max_new_tokens: usize, temperature: f32) -> GenerateRequest {
    GenerateRequest {
        id: generation.id,
        state: generation.state,
        append: Vec::new(),
        max_new_tokens,
        max_length: usize::MAX,
        sampling: Sampling::at_temperature(temperature),
        stop: Arc::from([]),
        key: key(generation.id, "rest"),
    }
}

fn key(id: u64, part: &str) -> RandomKey {
    RandomKey::new(1).with(part, id)
}
