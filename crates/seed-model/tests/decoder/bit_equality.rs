//! The law of one forward: a token's log-prob has the same bits however it was computed.

use proptest::prelude::*;
use seed_model::config::Family;
use seed_model::decoder::Decoder;
use seed_model::engine::{Engine, EngineOptions};
use seed_model::gradients::Gradients;
use seed_model::sampler::Sampling;
use seed_model::sequence::{Scores, TokenSequence};
use seed_model::sequence_state::SequenceState;
use seed_random::{Draw, RandomKey};

use crate::support::{
    adapted, bits, decoder, derivatives, options, positions, request, tokens, with_threads,
};

/// A conversation's ids, the positions it generated, and their log-probs as they were recorded.
#[derive(Debug, PartialEq)]
struct Conversation {
    tokens: Vec<u32>,
    scored: Vec<u32>,
    log_probs: Vec<u32>,
}

/// Three turns in each of several conversations, all forked from one prefix.
fn converse(
    decoder: &Decoder,
    engine: EngineOptions,
    count: usize,
    sampling: Sampling,
    key: RandomKey,
) -> Vec<Conversation> {
    let mut engine = Engine::new(decoder, engine);
    let mut generator = key.with("purpose", 2).generator();
    let prefix = tokens(&mut generator, 7);
    let prefix = engine.prefill(SequenceState::new(decoder), &prefix).unwrap();
    let mut conversations: Vec<Conversation> = (0..count)
        .map(|_| Conversation {
            tokens: Vec::new(),
            scored: Vec::new(),
            log_probs: Vec::new(),
        })
        .collect();
    let mut states = vec![prefix; count];
    for turn in 0..3 {
        let requests = states
            .into_iter()
            .enumerate()
            .map(|(id, state)| {
                // The second turn of some conversations appends nothing.
                let length = if turn == 1 && id % 3 == 0 {
                    0
                } else {
                    1 + generator.below(12)
                };
                let key = key.with("turn", turn).with("sample", id as u64);
                request(id as u64, state, tokens(&mut generator, length), sampling, key)
            })
            .collect();
        states = engine
            .run(requests)
            .unwrap()
            .into_iter()
            .zip(&mut conversations)
            .map(|(generation, conversation)| {
                let start = generation.state.len() - generation.token_ids.len();
                assert_eq!(generation.state.token_ids()[start..], generation.token_ids);
                conversation
                    .scored
                    .extend(start as u32..generation.state.len() as u32);
                conversation.log_probs.extend(bits(&generation.log_probs));
                conversation.tokens = generation.state.token_ids().to_vec();
                generation.state
            })
            .collect();
    }
    assert!(engine.is_idle());
    conversations
}

fn sequences(conversations: &[Conversation]) -> Vec<TokenSequence<'_>> {
    conversations
        .iter()
        .map(|conversation| TokenSequence {
            tokens: &conversation.tokens,
            scored: &conversation.scored,
        })
        .collect()
}

fn log_prob_bits(scores: &[Scores]) -> Vec<Vec<u32>> {
    scores.iter().map(|scores| bits(&scores.log_probs)).collect()
}

fn families() -> impl Strategy<Value = Family> {
    prop::sample::select(Family::ALL.to_vec())
}

fn any_decoder(family: Family, tied: bool, seed: u64, with_adapter: bool) -> Decoder {
    let decoder = decoder(family, tied, seed);
    if with_adapter {
        adapted(decoder, seed)
    } else {
        decoder
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn generation_scoring_and_training_agree(
        family in families(),
        tied: bool,
        seed: u64,
        count in 1usize..7,
        max_active in 1usize..8,
        prefill_chunk in 1usize..40,
        pack_tokens in 1usize..100,
        greedy: bool,
        filtered: bool,
        with_adapter: bool,
    ) {
        let decoder = any_decoder(family, tied, seed, with_adapter);
        let key = RandomKey::new(seed).with("purpose", 9);
        let sampling = Sampling {
            temperature: if greedy { 0.0 } else { 0.8 },
            top_p: if filtered { 0.9 } else { 1.0 },
            top_k: if filtered { 20 } else { 0 },
        };
        let temperature = sampling.scoring_temperature();
        let expected = with_threads(1, || converse(&decoder, options(1, 1), count, sampling, key));
        let recorded: Vec<Vec<u32>> = expected.iter().map(|conversation| conversation.log_probs.clone()).collect();
        let sequences = sequences(&expected);
        for threads in [1, 2, 4] {
            let batched = with_threads(threads, || {
                converse(&decoder, options(max_active, prefill_chunk), count, sampling, key)
            });
            prop_assert_eq!(&batched, &expected, "batched generation on {} threads", threads);

            let packed = decoder.clone().with_pack_tokens(pack_tokens);
            let scores = with_threads(threads, || packed.score(&sequences, temperature)).unwrap();
            prop_assert_eq!(log_prob_bits(&scores), recorded.clone(), "scores on {} threads", threads);

            let mut seen = Vec::new();
            with_threads(threads, || {
                let mut gradients = Gradients::of(&packed);
                packed.accumulate_gradient(&sequences, temperature, &mut gradients, &mut |index, scores| {
                    seen.push(scores.clone());
                    derivatives(index, scores)
                }, seed % 2 == 0)
            }).unwrap();
            prop_assert_eq!(&seen, &scores, "forward of the training pass on {} threads", threads);
        }
        for (sequence, recorded) in sequences.iter().zip(&recorded) {
            let alone = decoder.score(&[*sequence], temperature).unwrap();
            prop_assert_eq!(&bits(&alone[0].log_probs), recorded, "a sequence scored alone");
        }
    }

    #[test]
    fn gradients_do_not_depend_on_splits_threads_or_recomputation(
        family in families(),
        tied: bool,
        seed: u64,
        count in 1usize..8,
        pack_tokens in 1usize..120,
        with_adapter: bool,
    ) {
        let decoder = any_decoder(family, tied, seed, with_adapter);
        let mut generator = RandomKey::new(seed).with("purpose", 3).generator();
        let lists: Vec<(Vec<u32>, Vec<u32>)> = (0..count)
            .map(|_| {
                let length = 1 + generator.below(40);
                let share = if generator.below(4) == 0 { 0.0 } else { 0.6 };
                (tokens(&mut generator, length), positions(&mut generator, length, share))
            })
            .collect();
        let sequences: Vec<TokenSequence<'_>> =
            lists.iter().map(|(tokens, scored)| TokenSequence { tokens, scored }).collect();
        let whole = gradient(&decoder, &sequences, &[count], false);
        for threads in [1, 2, 4] {
            let packed = decoder.clone().with_pack_tokens(pack_tokens);
            let cuts: Vec<usize> = (0..count).filter(|_| generator.below(2) == 0).chain([count]).collect();
            for recompute in [false, true] {
                let split = with_threads(threads, || gradient(&packed, &sequences, &cuts, recompute));
                prop_assert_eq!(&split, &whole, "threads {}, cuts {:?}, recompute {}", threads, &cuts, recompute);
            }
        }
    }
}

/// A sequence that nothing moves leaves no bit behind, whether its part is taken back through the layers or left out.
#[test]
fn sequences_without_a_derivative_add_nothing() {
    // Parts have at least 256 rows: some are all silent, some in part.
    let silent: Vec<bool> = (0..24).map(|index| index / 8 != 1 || index % 5 == 0).collect();
    for (seed, with_adapter) in [(1, false), (2, true)] {
        let decoder = any_decoder(Family::Qwen3, true, seed, with_adapter);
        let mut generator = RandomKey::new(seed).with("purpose", 4).generator();
        let lists: Vec<(Vec<u32>, Vec<u32>)> = silent
            .iter()
            .map(|_| {
                let length = 60 + generator.below(68);
                (
                    tokens(&mut generator, length),
                    positions(&mut generator, length, 0.6),
                )
            })
            .collect();
        let of = |indices: &[usize], recompute: bool, decoder: &Decoder| {
            let sequences: Vec<TokenSequence<'_>> = indices
                .iter()
                .map(|index| TokenSequence {
                    tokens: &lists[*index].0,
                    scored: &lists[*index].1,
                })
                .collect();
            let mut gradients = Gradients::of(decoder);
            let mut loss = |at: usize, scores: &Scores| {
                let mut derivatives = derivatives(indices[at], scores);
                if silent[indices[at]] {
                    derivatives.log_probs.fill(0.0);
                    derivatives.entropies.fill(-0.0);
                }
                derivatives
            };
            decoder
                .accumulate_gradient(&sequences, 0.7, &mut gradients, &mut loss, recompute)
                .unwrap();
            bits(gradients.values().flat())
        };
        let all: Vec<usize> = (0..silent.len()).collect();
        let loud: Vec<usize> = all.iter().copied().filter(|index| !silent[*index]).collect();
        let expected = of(&loud, false, &decoder);
        assert!(expected.iter().any(|bits| *bits != 0));
        for (threads, pack_tokens, recompute) in [
            (1, 4096, false),
            (1, 600, true),
            (2, 4096, true),
            (4, 900, false),
            (2, 1, false),
        ] {
            let packed = decoder.clone().with_pack_tokens(pack_tokens);
            let found = with_threads(threads, || of(&all, recompute, &packed));
            assert_eq!(
                found, expected,
                "threads {threads}, packs of {pack_tokens}, recompute {recompute}"
            );
        }
        let nothing = of(&[0, 1, 2], false, &decoder);
        assert!(nothing.iter().all(|bits| *bits == 0), "no derivative at all");
    }
}

/// Bits of the gradients accumulated over calls which end at `cuts`.
fn gradient(decoder: &Decoder, sequences: &[TokenSequence<'_>], cuts: &[usize], recompute: bool) -> Vec<u32> {
    let mut gradients = Gradients::of(decoder);
    let mut start = 0;
    for &end in cuts {
        decoder
            .accumulate_gradient(
                &sequences[start..end],
                0.7,
                &mut gradients,
                &mut |index, scores| derivatives(start + index, scores),
                recompute,
            )
            .unwrap();
        start = end;
    }
    bits(gradients.values().flat())
}

/// Every row of the logits belongs to its prefix alone.
#[test]
fn logits_do_not_depend_on_what_follows() {
    for family in Family::ALL {
        let decoder = decoder(family, false, 5);
        let tokens = tokens(&mut RandomKey::new(8).generator(), 50);
        let all = decoder.logits(&tokens).unwrap();
        for length in [1, 2, 15, 16, 17, 33] {
            let prefix = decoder.logits(&tokens[..length]).unwrap();
            assert_eq!(bits(&prefix), bits(&all[..prefix.len()]), "{family:?} {length}");
        }
    }
}
