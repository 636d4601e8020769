//! Many tiny updates in one process: does memory stay flat?
//!
//! Every update generates responses to forked prompts, scores them, accumulates a gradient and takes an optimiser step, as
//! an iteration of training does, with lengths that change from update to update. A line of JSON with the resident memory
//! is printed after every hundredth.
//!
//! `cargo run --release -p seed-train --example soak [UPDATES]`

#![expect(clippy::print_stdout, reason = "a program whose purpose is to print")]

use std::sync::Arc;

use seed_model::config::{DecoderConfig, Family, RopeScaling};
use seed_model::{
    AdamW, AdamWOptions, Decoder, Engine, EngineOptions, GenerateRequest, Generation, Gradients, ModelError,
    Parameters, Sampling, ScoreGradients, SequenceState, TokenSequence,
};
use seed_random::{Draw, RandomKey};
use seed_run::process_memory;

/// As in the program itself: what an allocator keeps is part of the answer.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Updates between two samples of the memory.
const EVERY: u64 = 100;

/// Responses per update.
const RESPONSES: u64 = 6;

const VOCABULARY: usize = 61;

fn config() -> DecoderConfig {
    DecoderConfig {
        family: Family::Qwen3,
        vocabulary_size: VOCABULARY,
        hidden_size: 16,
        intermediate_size: 32,
        layers: 2,
        query_heads: 4,
        key_value_heads: 2,
        head_dim: 8,
        rms_norm_epsilon: 1e-6,
        rope_theta: 10_000.0,
        rope_scaling: RopeScaling::None,
        max_positions: 128,
        tied_embeddings: true,
        attention_bias: false,
        query_key_norm: true,
        initializer_range: 0.1,
        begin_token: None,
        end_tokens: vec![2],
    }
}

/// Responses of different lengths to one prompt, whose state they fork.
fn respond(decoder: &Decoder, key: RandomKey) -> Result<Vec<Generation>, ModelError> {
    let mut generator = key.generator();
    let options = EngineOptions {
        max_active: 4,
        prefill_chunk: 32,
    };
    let mut engine = Engine::new(decoder, options);
    let length = 4 + generator.below(40);
    let prompt: Vec<u32> = (0..length).map(|_| generator.below(VOCABULARY) as u32).collect();
    let state = engine.prefill(SequenceState::new(decoder), &prompt)?;
    let requests = (0..RESPONSES)
        .map(|id| GenerateRequest {
            id,
            state: state.clone(),
            append: vec![generator.below(VOCABULARY) as u32],
            max_new_tokens: 4 + generator.below(20),
            max_length: 128,
            sampling: Sampling::default(),
            stop: Arc::from([2]),
            key: key.with("sample", id),
        })
        .collect();
    engine.run(requests)
}

/// One update: act, score, learn. Returns the tokens sampled.
fn update(
    decoder: &mut Decoder,
    optimiser: &mut AdamW,
    gradients: &mut Gradients,
    key: RandomKey,
) -> Result<usize, ModelError> {
    let generations = respond(decoder, key)?;
    let sequences: Vec<(Vec<u32>, Vec<u32>)> = generations
        .iter()
        .map(|generation| {
            let tokens = generation.state.token_ids();
            let start = (tokens.len() - generation.token_ids.len()) as u32;
            (tokens.to_vec(), (start..tokens.len() as u32).collect())
        })
        .collect();
    let views: Vec<TokenSequence<'_>> = sequences
        .iter()
        .map(|(tokens, scored)| TokenSequence { tokens, scored })
        .collect();
    let scores = decoder.score(&views, 1.0)?;
    let mean = scores.iter().flat_map(|scores| &scores.log_probs).sum::<f32>() / RESPONSES as f32;
    gradients.clear();
    decoder.accumulate_gradient(
        &views,
        1.0,
        gradients,
        &mut |_, scores| ScoreGradients {
            log_probs: scores
                .log_probs
                .iter()
                .map(|log_prob| 1e-3 * (log_prob - mean))
                .collect(),
            entropies: vec![0.0; scores.entropies.len()],
        },
        false,
    )?;
    decoder.update(|parameters| optimiser.step(parameters, gradients, 1e-4));
    Ok(generations
        .iter()
        .map(|generation| generation.token_ids.len())
        .sum())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let updates: u64 = std::env::args()
        .nth(1)
        .map_or(Ok(10_000), |count| count.parse())?;
    let key = RandomKey::new(1);
    let parameters = Parameters::initialise(&config(), key.with_text("purpose", "initial weights"));
    let mut decoder = Decoder::new(config(), parameters)?.with_pack_tokens(128);
    let mut optimiser = AdamW::new(AdamWOptions::default(), decoder.parameters());
    let mut gradients = Gradients::zeros(decoder.config());
    let mut tokens = 0;
    for number in 1..=updates {
        tokens += update(
            &mut decoder,
            &mut optimiser,
            &mut gradients,
            key.with("iteration", number),
        )?;
        if number % EVERY == 0 {
            let (resident, _) = process_memory().ok_or("this system does not tell a process's memory")?;
            println!(r#"{{"updates": {number}, "resident_bytes": {resident}, "sampled_tokens": {tokens}}}"#);
        }
    }
    Ok(())
}
