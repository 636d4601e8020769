//! Small random decoders and sequences for the tests of this crate.

use std::sync::Arc;

use seed_model::adapter::{Adapter, AdapterOptions, Target};
use seed_model::config::{DecoderConfig, Family, RopeScaling};
use seed_model::decoder::Decoder;
use seed_model::engine::{EngineOptions, GenerateRequest};
use seed_model::parameters::Parameters;
use seed_model::sampler::Sampling;
use seed_model::sequence::{ScoreGradients, Scores};
use seed_model::sequence_state::SequenceState;
use seed_random::{Draw, RandomKey, Rng};

pub(crate) const VOCABULARY: usize = 61;

/// Sizes that are multiples of no vector width, and more query than key heads.
pub(crate) fn config(family: Family, tied: bool) -> DecoderConfig {
    DecoderConfig {
        family,
        vocabulary_size: VOCABULARY,
        hidden_size: 28,
        intermediate_size: 37,
        layers: 2,
        query_heads: 4,
        key_value_heads: 2,
        head_dim: 6,
        rms_norm_epsilon: 1e-5,
        rope_theta: 10_000.0,
        rope_scaling: RopeScaling::None,
        max_positions: 128,
        tied_embeddings: tied,
        attention_bias: family.attention_bias(),
        query_key_norm: family.query_key_norm(),
        initializer_range: 0.3,
        begin_token: None,
        end_tokens: vec![2],
    }
}

/// A decoder of these sizes whose norms and biases are random too.
pub(crate) fn decoder(family: Family, tied: bool, seed: u64) -> Decoder {
    decoder_of(config(family, tied), seed)
}

/// The same for any configuration.
pub(crate) fn decoder_of(config: DecoderConfig, seed: u64) -> Decoder {
    let key = RandomKey::new(seed);
    let mut parameters = Parameters::initialise(&config, key.with("purpose", 0));
    let mut generator = key.with("purpose", 1).generator();
    for index in 0..parameters.len() {
        if parameters.shape(index).len() == 1 {
            for value in parameters.get_mut(index) {
                *value += 0.4 * (generator.unit() as f32 - 0.5);
            }
        }
    }
    Decoder::new(config, parameters).unwrap()
}

/// An adapter of random values beside a random choice of the decoder's matrices.
pub(crate) fn adapted(decoder: Decoder, seed: u64) -> Decoder {
    let key = RandomKey::new(seed).with_text("purpose", "adapter");
    let mut generator = key.generator();
    let mut targets: Vec<Target> = Target::ALL
        .into_iter()
        .filter(|_| generator.below(3) > 0)
        .collect();
    if targets.is_empty() {
        targets.push(Target::ALL[generator.below(7)]);
    }
    let options = AdapterOptions {
        targets,
        rank: 1 + generator.below(20),
        alpha: 0.5 + 3.0 * generator.unit(),
        rank_stabilised: generator.below(2) == 0,
    };
    let adapter = Adapter::initialise(options, decoder.config(), key).unwrap();
    let mut decoder = decoder.with_adapter(adapter).unwrap();
    decoder.update(|parameters| {
        for value in parameters.flat_mut() {
            *value += 0.6 * (generator.unit() as f32 - 0.5);
        }
    });
    decoder
}

pub(crate) fn tokens(generator: &mut impl Rng, length: usize) -> Vec<u32> {
    (0..length).map(|_| generator.below(VOCABULARY) as u32).collect()
}

/// Each position from 1 on with probability `share`.
pub(crate) fn positions(generator: &mut impl Rng, length: usize, share: f64) -> Vec<u32> {
    (1..length as u32).filter(|_| generator.unit() < share).collect()
}

pub(crate) fn request(
    id: u64,
    state: SequenceState,
    append: Vec<u32>,
    sampling: Sampling,
    key: RandomKey,
) -> GenerateRequest {
    GenerateRequest {
        id,
        state,
        append,
        max_new_tokens: 9,
        max_length: 128,
        sampling,
        stop: Arc::from([2, 3]),
        key,
    }
}

pub(crate) fn options(max_active: usize, prefill_chunk: usize) -> EngineOptions {
    EngineOptions {
        max_active,
        prefill_chunk,
    }
}

/// A loss with uneven derivatives of both signs that depend on the sequence, the token and its score.
pub(crate) fn derivatives(index: usize, scores: &Scores) -> ScoreGradients {
    let weight = |offset: usize| ((index * 7 + offset * 3) % 11) as f32 / 11.0 - 0.4;
    ScoreGradients {
        log_probs: scores
            .log_probs
            .iter()
            .enumerate()
            .map(|(offset, log_prob)| weight(offset) * (1.0 + 0.1 * log_prob))
            .collect(),
        entropies: (0..scores.entropies.len())
            .map(|offset| 0.3 * weight(offset + 5))
            .collect(),
    }
}

pub(crate) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Runs on a pool of its own with this many threads.
pub(crate) fn with_threads<R: Send>(threads: usize, work: impl FnOnce() -> R + Send) -> R {
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .unwrap()
        .install(work)
}

/// Largest absolute difference of two lists of one length.
pub(crate) fn largest_difference(left: &[f32], right: &[f32]) -> f32 {
    assert_eq!(left.len(), right.len());
    left.iter()
        .zip(right)
        .map(|(left, right)| (left - right).abs())
        .fold(0.0, f32::max)
}

/// Euclidean norm.
pub(crate) fn norm(values: impl Iterator<Item = f32>) -> f64 {
    values.map(|value| f64::from(value).powi(2)).sum::<f64>().sqrt()
}
