//! Time of a training step and of decoding, for two small decoders with random weights.
//!
//! `cargo run --release -p seed-model --example decoder_throughput [rounds]`

#![expect(clippy::print_stdout, reason = "a program whose purpose is to print")]

use std::sync::Arc;
use std::time::Instant;

use seed_model::config::{DecoderConfig, Family, RopeScaling};
use seed_model::parameters::Parameters;
use seed_model::{
    AdamW, AdamWOptions, Decoder, Engine, EngineOptions, GenerateRequest, Gradients, ModelError, Sampling,
    ScoreGradients, SequenceState, TokenSequence,
};
use seed_random::{Draw, RandomKey};

struct Workload {
    name: &'static str,
    config: DecoderConfig,
    train_sequences: usize,
    train_length: usize,
    decode_sequences: usize,
    prompt_length: usize,
    decode_length: usize,
}

fn config(
    hidden_size: usize,
    layers: usize,
    heads: (usize, usize),
    intermediate_size: usize,
    vocabulary_size: usize,
) -> DecoderConfig {
    DecoderConfig {
        family: Family::Llama,
        vocabulary_size,
        hidden_size,
        intermediate_size,
        layers,
        query_heads: heads.0,
        key_value_heads: heads.1,
        head_dim: 32,
        rms_norm_epsilon: 1e-5,
        rope_theta: 10_000.0,
        rope_scaling: RopeScaling::None,
        max_positions: 1024,
        tied_embeddings: true,
        attention_bias: false,
        query_key_norm: false,
        initializer_range: 0.02,
        begin_token: None,
        end_tokens: Vec::new(),
    }
}

fn workloads() -> [Workload; 2] {
    [
        Workload {
            name: "S",
            config: config(256, 6, (8, 4), 768, 4096),
            train_sequences: 16,
            train_length: 256,
            decode_sequences: 64,
            prompt_length: 16,
            decode_length: 64,
        },
        Workload {
            name: "household-tiny",
            config: config(160, 4, (5, 5), 448, 1536),
            train_sequences: 32,
            train_length: 400,
            decode_sequences: 32,
            prompt_length: 300,
            decode_length: 32,
        },
    ]
}

fn random_tokens(config: &DecoderConfig, count: usize, length: usize) -> Vec<Vec<u32>> {
    let mut generator = RandomKey::new(1).generator();
    (0..count)
        .map(|_| {
            (0..length)
                .map(|_| generator.below(config.vocabulary_size) as u32)
                .collect()
        })
        .collect()
}

fn measure(workload: &Workload, rounds: usize) -> Result<(), ModelError> {
    let config = &workload.config;
    let parameters = Parameters::initialise(config, RandomKey::new(0));
    println!("{}: {} parameters", workload.name, parameters.total());
    let mut decoder = Decoder::new(config.clone(), parameters)?;
    let mut optimiser = AdamW::new(AdamWOptions::default(), decoder.parameters());
    let mut gradients = Gradients::zeros(config);
    let lists = random_tokens(config, workload.train_sequences, workload.train_length);
    let scored: Vec<u32> = (1..workload.train_length as u32).collect();
    let sequences: Vec<TokenSequence<'_>> = lists
        .iter()
        .map(|tokens| TokenSequence {
            tokens,
            scored: &scored,
        })
        .collect();
    let tokens = (workload.train_sequences * workload.train_length) as f64;
    let share = -1.0 / (scored.len() * sequences.len()) as f32;
    for _ in 0..rounds {
        let start = Instant::now();
        decoder.score(&sequences, 1.0)?;
        let score = start.elapsed().as_secs_f64();
        let start = Instant::now();
        gradients.clear();
        decoder.accumulate_gradient(
            &sequences,
            1.0,
            &mut gradients,
            &mut |_, scores| ScoreGradients {
                log_probs: vec![share; scores.log_probs.len()],
                entropies: vec![0.0; scores.entropies.len()],
            },
            false,
        )?;
        let accumulate = start.elapsed().as_secs_f64();
        decoder.update(|parameters| optimiser.step(parameters, &mut gradients, 1e-3));
        let train = start.elapsed().as_secs_f64();
        println!(
            "  score {score:.3} s ({:.0} tokens/s), train step {train:.3} s ({:.0} tokens/s), of it optimiser and packing {:.3} s",
            tokens / score,
            tokens / train,
            train - accumulate
        );
    }
    for _ in 0..rounds {
        decode(&decoder, workload)?;
    }
    Ok(())
}

fn decode(decoder: &Decoder, workload: &Workload) -> Result<(), ModelError> {
    let mut engine = Engine::new(
        decoder,
        EngineOptions {
            max_active: workload.decode_sequences,
            ..EngineOptions::default()
        },
    );
    let prompts = random_tokens(
        decoder.config(),
        workload.decode_sequences,
        workload.prompt_length,
    );
    let start = Instant::now();
    let states = prompts
        .iter()
        .map(|prompt| engine.prefill(SequenceState::new(decoder), &prompt[1..]))
        .collect::<Result<Vec<_>, _>>()?;
    let prefill = start.elapsed().as_secs_f64();
    let requests = states
        .into_iter()
        .zip(&prompts)
        .enumerate()
        .map(|(id, (state, prompt))| GenerateRequest {
            id: id as u64,
            state,
            append: vec![prompt[0]],
            max_new_tokens: workload.decode_length,
            max_length: usize::MAX,
            sampling: Sampling::default(),
            stop: Arc::from([]),
            key: RandomKey::new(2).with("sample", id as u64),
        })
        .collect();
    let start = Instant::now();
    let generations = engine.run(requests)?;
    let seconds = start.elapsed().as_secs_f64();
    let tokens: usize = generations
        .iter()
        .map(|generation| generation.token_ids.len())
        .sum();
    println!(
        "  decode {} x {}: {seconds:.3} s ({:.0} tokens/s) after prefill of {} x {} in {prefill:.3} s",
        workload.decode_sequences,
        workload.decode_length,
        tokens as f64 / seconds,
        workload.decode_sequences,
        workload.prompt_length
    );
    Ok(())
}

fn main() -> Result<(), ModelError> {
    let rounds = std::env::args()
        .nth(1)
        .and_then(|rounds| rounds.parse().ok())
        .unwrap_or(3);
    for workload in workloads() {
        measure(&workload, rounds)?;
    }
    Ok(())
}
