//! The law of one forward over models of any shape: what a sequence gets depends neither on its company nor on the
//! order, the packs, the threads or the instructions that it is computed with.
//!
//! Not for: conversations over several turns (`bit_equality`) or what is done to cached states (`cache_reuse`).

use std::sync::Arc;

use proptest::prelude::*;
use seed_kernels::instruction_set::InstructionSet;
use seed_model::config::{DecoderConfig, Family, RopeScaling};
use seed_model::decoder::Decoder;
use seed_model::engine::{Engine, EngineOptions, GenerateRequest, Generation};
use seed_model::gradients::Gradients;
use seed_model::sampler::Sampling;
use seed_model::sequence::{ScoreGradients, TokenSequence};
use seed_model::sequence_state::SequenceState;
use seed_random::{Draw, RandomKey};

use crate::support::{bits, decoder_of, derivatives, options, positions, with_threads};

const THREADS: [usize; 4] = [1, 2, 3, 5];

/// Every switch of the layer, and sizes around and between multiples of the vector widths.
fn shapes() -> impl Strategy<Value = DecoderConfig> {
    let switches = (
        prop::sample::select(Family::ALL.to_vec()),
        any::<bool>(),
        scalings(),
    );
    let heads = (1usize..4, 1usize..5, 1usize..18);
    let sizes = (1usize..4, 1usize..60, 1usize..80, 5usize..140);
    (switches, heads, sizes).prop_map(
        |((family, tied_embeddings, rope_scaling), (key_value_heads, group, half_head), sizes)| {
            let (layers, hidden_size, intermediate_size, vocabulary_size) = sizes;
            DecoderConfig {
                family,
                vocabulary_size,
                hidden_size,
                intermediate_size,
                layers,
                query_heads: key_value_heads * group,
                key_value_heads,
                head_dim: 2 * half_head,
                rms_norm_epsilon: 1e-5,
                rope_theta: 10_000.0,
                rope_scaling,
                max_positions: 128,
                tied_embeddings,
                attention_bias: family.attention_bias(),
                query_key_norm: family.query_key_norm(),
                initializer_range: 0.3,
                begin_token: None,
                end_tokens: vec![2],
            }
        },
    )
}

fn scalings() -> impl Strategy<Value = RopeScaling> {
    prop::sample::select(vec![
        RopeScaling::None,
        RopeScaling::Linear { factor: 2.5 },
        RopeScaling::Dynamic { factor: 4.0 },
        RopeScaling::Llama3 {
            factor: 8.0,
            low_frequency_factor: 1.0,
            high_frequency_factor: 4.0,
            original_max_positions: 32,
        },
    ])
}

fn tokens(generator: &mut impl Draw, vocabulary: usize, length: usize) -> Vec<u32> {
    (0..length).map(|_| generator.below(vocabulary) as u32).collect()
}

/// Requests for responses to prompts of their own; the key of each is its own too.
fn requests(decoder: &Decoder, count: usize, sampling: Sampling, key: RandomKey) -> Vec<GenerateRequest> {
    let mut generator = key.with("purpose", 1).generator();
    (0..count as u64)
        .map(|id| {
            let length = 1 + generator.below(20);
            GenerateRequest {
                id,
                state: SequenceState::new(decoder),
                append: tokens(&mut generator, decoder.config().vocabulary_size, length),
                max_new_tokens: 1 + generator.below(9),
                max_length: 128,
                sampling,
                stop: Arc::from([2]),
                key: key.with("sample", id),
            }
        })
        .collect()
}

/// What a request received.
#[derive(Debug, PartialEq)]
struct Record {
    id: u64,
    tokens: Vec<u32>,
    log_probs: Vec<u32>,
    kept_log_masses: Vec<u32>,
}

/// What was received, by request.
fn records(mut generations: Vec<Generation>) -> Vec<Record> {
    generations.sort_by_key(|generation| generation.id);
    generations
        .into_iter()
        .map(|generation| Record {
            id: generation.id,
            log_probs: bits(&generation.log_probs),
            kept_log_masses: bits(&generation.kept_log_masses),
            tokens: generation.token_ids,
        })
        .collect()
}

/// Generates with requests that come in any order and at any time.
fn trickle(
    decoder: &Decoder,
    engine: EngineOptions,
    mut requests: Vec<GenerateRequest>,
    generator: &mut impl Draw,
) -> Vec<Generation> {
    generator.shuffle(&mut requests);
    let mut engine = Engine::new(decoder, engine);
    let mut generations = Vec::new();
    while !requests.is_empty() || !engine.is_idle() {
        for _ in 0..generator.below(3) {
            if let Some(request) = requests.pop() {
                engine.submit(request).unwrap();
            }
        }
        generations.extend(engine.step().unwrap());
    }
    generations
}

/// Sequences with the positions to score; some have none.
fn lists(generator: &mut impl Draw, vocabulary: usize, count: usize) -> Vec<(Vec<u32>, Vec<u32>)> {
    (0..count)
        .map(|_| {
            let length = 1 + generator.below(40);
            let share = if generator.below(5) == 0 { 0.0 } else { 0.6 };
            (
                tokens(generator, vocabulary, length),
                positions(generator, length, share),
            )
        })
        .collect()
}

fn views(lists: &[(Vec<u32>, Vec<u32>)]) -> Vec<TokenSequence<'_>> {
    lists
        .iter()
        .map(|(tokens, scored)| TokenSequence { tokens, scored })
        .collect()
}

/// Log-probs and entropies of sequences, one after the other.
fn score_bits(decoder: &Decoder, sequences: &[TokenSequence<'_>]) -> Vec<[Vec<u32>; 2]> {
    let scores = decoder.score(sequences, 0.8).unwrap();
    scores
        .iter()
        .map(|scores| [bits(&scores.log_probs), bits(&scores.entropies)])
        .collect()
}

/// The gradient of a loss over `sequences`, to which each contributes as `index` says and those without one nothing.
fn gradient(
    decoder: &Decoder,
    sequences: &[TokenSequence<'_>],
    index: &[Option<usize>],
    recompute: bool,
) -> Vec<u32> {
    let mut gradients = Gradients::zeros(decoder.config());
    decoder
        .accumulate_gradient(
            sequences,
            0.8,
            &mut gradients,
            &mut |position, scores| match index[position] {
                Some(index) => derivatives(index, scores),
                None => ScoreGradients {
                    log_probs: vec![0.0; scores.log_probs.len()],
                    entropies: vec![0.0; scores.entropies.len()],
                },
            },
            recompute,
        )
        .unwrap();
    bits(gradients.values().flat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_response_does_not_depend_on_its_company_or_when_it_was_asked_for(
        config in shapes(),
        seed: u64,
        count in 1usize..9,
        max_active in 1usize..8,
        prefill_chunk in 1usize..50,
        top_k in prop::sample::select(vec![0, 3]),
        top_p in prop::sample::select(vec![1.0, 0.7]),
    ) {
        let decoder = decoder_of(config, seed);
        let key = RandomKey::new(seed);
        let sampling = Sampling { temperature: 0.8, top_p, top_k };
        let alone = |request: GenerateRequest| Engine::new(&decoder, options(1, 1)).run(vec![request]).unwrap();
        let requests = requests(&decoder, count, sampling, key);
        let expected: Vec<Generation> = requests.iter().cloned().flat_map(alone).collect();
        let sequences: Vec<(Vec<u32>, Vec<u32>)> = expected
            .iter()
            .map(|generation| {
                let end = generation.state.len() as u32;
                let start = end - generation.token_ids.len() as u32;
                (generation.state.token_ids().to_vec(), (start..end).collect())
            })
            .collect();
        let expected = records(expected);
        let scores = score_bits(&decoder, &views(&sequences));
        for (record, [log_probs, _]) in expected.iter().zip(&scores) {
            prop_assert_eq!(&record.log_probs, log_probs, "generated and scored");
        }
        for threads in THREADS {
            let mut generator = key.with("threads", threads as u64).generator();
            let found = with_threads(threads, || {
                trickle(&decoder, options(max_active, prefill_chunk), requests.clone(), &mut generator)
            });
            prop_assert_eq!(&records(found), &expected, "{} threads", threads);
        }
    }

    #[test]
    fn scores_do_not_depend_on_order_repetition_packs_or_threads(
        config in shapes(),
        seed: u64,
        count in 1usize..9,
        pack_tokens in 1usize..200,
    ) {
        let vocabulary = config.vocabulary_size;
        let decoder = decoder_of(config, seed);
        let mut generator = RandomKey::new(seed).generator();
        let lists = lists(&mut generator, vocabulary, count);
        let expected: Vec<[Vec<u32>; 2]> =
            views(&lists).into_iter().flat_map(|sequence| score_bits(&decoder, &[sequence])).collect();
        let packed = decoder.with_pack_tokens(pack_tokens);
        for threads in THREADS {
            // Any order, and some of them twice.
            let mut order: Vec<usize> = (0..count).chain((0..count).filter(|_| generator.below(3) == 0)).collect();
            generator.shuffle(&mut order);
            let chosen: Vec<(Vec<u32>, Vec<u32>)> = order.iter().map(|&index| lists[index].clone()).collect();
            let found = with_threads(threads, || score_bits(&packed, &views(&chosen)));
            let expected: Vec<[Vec<u32>; 2]> = order.iter().map(|&index| expected[index].clone()).collect();
            prop_assert_eq!(found, expected, "order {:?} on {} threads", order, threads);
        }
    }

    /// The order of the sequences is part of a gradient, since it is a sum; who stands between them without a part in the
    /// loss is not.
    #[test]
    fn a_gradient_depends_neither_on_packs_threads_and_recomputation_nor_on_rows_that_do_not_train(
        config in shapes(),
        seed: u64,
        count in 1usize..7,
        pack_tokens in 1usize..200,
    ) {
        let vocabulary = config.vocabulary_size;
        let decoder = decoder_of(config, seed);
        let mut generator = RandomKey::new(seed).generator();
        let trained = lists(&mut generator, vocabulary, count);
        let all: Vec<Option<usize>> = (0..count).map(Some).collect();
        let expected = gradient(&decoder, &views(&trained), &all, false);
        let packed = decoder.with_pack_tokens(pack_tokens);
        for threads in THREADS {
            let idle = generator.below(4);
            let mut sequences = lists(&mut generator, vocabulary, idle);
            let mut index = vec![None; idle];
            for (number, list) in trained.iter().enumerate() {
                // Behind the previous trained sequence, anywhere among those that do not train.
                let first = index.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
                let place = first + generator.below(sequences.len() + 1 - first);
                sequences.insert(place, list.clone());
                index.insert(place, Some(number));
            }
            for recompute in [false, true] {
                let found = with_threads(threads, || gradient(&packed, &views(&sequences), &index, recompute));
                prop_assert_eq!(&found, &expected, "{:?} on {} threads, recompute {}", &index, threads, recompute);
            }
        }
    }

    #[test]
    fn every_instruction_set_gives_the_same_bits(config in shapes(), seed: u64, count in 1usize..6) {
        let vocabulary = config.vocabulary_size;
        let decoder = decoder_of(config, seed);
        let key = RandomKey::new(seed);
        let lists = lists(&mut key.generator(), vocabulary, count);
        let all: Vec<Option<usize>> = (0..count).map(Some).collect();
        let run = || {
            let requests = requests(&decoder, count, Sampling::default(), key);
            (
                records(Engine::new(&decoder, options(4, 7)).run(requests).unwrap()),
                score_bits(&decoder, &views(&lists)),
                gradient(&decoder, &views(&lists), &all, false),
            )
        };
        let expected = run();
        for set in InstructionSet::available() {
            // The set holds for the thread that chose it: on a pool of one that is every task's.
            let found = with_threads(1, || set.scope(run));
            prop_assert_eq!(&found, &expected, "{:?}", set);
        }
    }
}

/// A model too large for the engine to split a step into groups, and sequences past the first rotary table.
#[test]
fn large_models_and_long_sequences_keep_the_law() {
    let large = DecoderConfig {
        vocabulary_size: 70_001,
        hidden_size: 241,
        ..crate::support::config(Family::Qwen3, true)
    };
    let long = DecoderConfig {
        max_positions: 4096,
        ..crate::support::config(Family::Qwen2, false)
    };
    for (config, prompt) in [(large, 5), (long, 1020)] {
        let vocabulary = config.vocabulary_size;
        let decoder = decoder_of(config, 3);
        let key = RandomKey::new(4);
        let mut generator = key.generator();
        let requests: Vec<GenerateRequest> = (0..5)
            .map(|id| GenerateRequest {
                id,
                state: SequenceState::new(&decoder),
                append: tokens(&mut generator, vocabulary, prompt + id as usize),
                max_new_tokens: 8,
                max_length: 4096,
                sampling: Sampling::default(),
                stop: Arc::from([]),
                key: key.with("sample", id),
            })
            .collect();
        for (threads, engine) in [(1, options(1, 300)), (2, options(5, 64)), (3, options(3, 2000))] {
            let (generations, scores) = with_threads(threads, || {
                let generations = Engine::new(&decoder, engine).run(requests.clone()).unwrap();
                let lists: Vec<(Vec<u32>, Vec<u32>)> = generations
                    .iter()
                    .map(|generation| {
                        let end = generation.state.len() as u32;
                        (generation.state.token_ids().to_vec(), (end - 8..end).collect())
                    })
                    .collect();
                let scores = decoder.score(&views(&lists), 1.0).unwrap();
                (generations, scores)
            });
            for (generation, scores) in generations.iter().zip(&scores) {
                assert_eq!(bits(&generation.log_probs), bits(&scores.log_probs), "{threads}");
            }
        }
    }
}
