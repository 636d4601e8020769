//! What is done to a cached state leaves no trace: however it was forked, cut, continued and read, a response has the
//! log-probs that scoring its tokens from the beginning gives.
//!
//! Not for: batches and threads on their own (`shapes`).

use proptest::prelude::*;
use seed_model::config::Family;
use seed_model::decoder::Decoder;
use seed_model::engine::Engine;
use seed_model::sampler::Sampling;
use seed_model::sequence::TokenSequence;
use seed_model::sequence_state::SequenceState;
use seed_random::RandomKey;

use crate::support::{adapted, bits, decoder, options, request, tokens, with_threads};

/// Room left in a model of 128 positions for what a response may add.
const LONGEST: usize = 90;

/// One thing done to one of the states; `state` and `length` are taken modulo what there is.
#[derive(Clone, Debug)]
enum Operation {
    Fork {
        state: usize,
    },
    Forget {
        state: usize,
    },
    Cut {
        state: usize,
        length: usize,
    },
    Read {
        state: usize,
        count: usize,
    },
    /// Responses in one batch to every `stride`-th state, of which some append nothing.
    Respond {
        stride: usize,
        append: usize,
    },
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let operation = prop_oneof![
        any::<usize>().prop_map(|state| Operation::Fork { state }),
        any::<usize>().prop_map(|state| Operation::Forget { state }),
        any::<(usize, usize)>().prop_map(|(state, length)| Operation::Cut { state, length }),
        (any::<usize>(), 0usize..20).prop_map(|(state, count)| Operation::Read { state, count }),
        (1usize..4, 0usize..12).prop_map(|(stride, append)| Operation::Respond { stride, append }),
        (1usize..3, 0usize..5).prop_map(|(stride, append)| Operation::Respond { stride, append }),
    ];
    prop::collection::vec(operation, 3..14)
}

/// The bits of scoring `count` tokens at the end of `sequence` from its beginning.
fn scored(decoder: &Decoder, sequence: &[u32], count: usize) -> Vec<u32> {
    let positions: Vec<u32> = ((sequence.len() - count) as u32..sequence.len() as u32).collect();
    let sequence = TokenSequence {
        tokens: sequence,
        scored: &positions,
    };
    bits(&decoder.score(&[sequence], 0.9).unwrap()[0].log_probs)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_state_remembers_its_tokens_and_nothing_else(
        family in prop::sample::select(Family::ALL.to_vec()),
        tied: bool,
        seed: u64,
        operations in operations(),
        max_active in 1usize..5,
        prefill_chunk in 1usize..30,
        threads in prop::sample::select(vec![1usize, 2, 3, 5]),
        with_adapter: bool,
    ) {
        let mut decoder = decoder(family, tied, seed);
        if with_adapter {
            decoder = adapted(decoder, seed);
        }
        let key = RandomKey::new(seed);
        let mut generator = key.generator();
        with_threads(threads, || -> Result<(), TestCaseError> {
            let mut engine = Engine::new(&decoder, options(max_active, prefill_chunk));
            let first = tokens(&mut generator, 9);
            let mut states = vec![engine.prefill(SequenceState::new(&decoder), &first).unwrap()];
            for (number, operation) in operations.iter().enumerate() {
                match *operation {
                    Operation::Fork { state } => {
                        let fork = states[state % states.len()].clone();
                        states.push(fork);
                    }
                    Operation::Forget { state } => {
                        let index = state % states.len();
                        states[index] = SequenceState::new(&decoder);
                    }
                    Operation::Cut { state, length } => {
                        let index = state % states.len();
                        let length = length % (states[index].len() + 1);
                        states[index].truncate(length);
                    }
                    Operation::Read { state, count } => {
                        let index = state % states.len();
                        let taken = std::mem::replace(&mut states[index], SequenceState::new(&decoder));
                        let count = count.min(LONGEST.saturating_sub(taken.len()));
                        states[index] = engine.prefill(taken, &tokens(&mut generator, count)).unwrap();
                    }
                    Operation::Respond { stride, append } => {
                        let mut asked = Vec::new();
                        for (index, state) in states.iter_mut().enumerate().step_by(stride) {
                            // The engine refuses a request with nothing to read.
                            let count = if state.is_empty() { append + 1 } else { append * (index % 2) };
                            if state.len() + count > LONGEST {
                                continue;
                            }
                            let taken = std::mem::replace(state, SequenceState::new(&decoder));
                            let key = key.with("step", number as u64).with("sample", index as u64);
                            let sampling = Sampling::at_temperature(0.9);
                            asked.push(request(index as u64, taken, tokens(&mut generator, count), sampling, key));
                        }
                        for generation in engine.run(asked).unwrap() {
                            let all = generation.state.token_ids();
                            prop_assert_eq!(
                                bits(&generation.log_probs),
                                scored(&decoder, all, generation.token_ids.len()),
                                "state {} after operation {} of {:?}",
                                generation.id,
                                number,
                                &operations
                            );
                            states[generation.id as usize] = generation.state;
                        }
                    }
                }
            }
            Ok(())
        })?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn prompts_that_share_beginnings_are_answered_as_if_alone(
        seed: u64,
        stems in prop::collection::vec((0usize..40, 0usize..3), 1..4),
        members in prop::collection::vec((0usize..4, 0usize..30, 0usize..30), 1..9),
        threads in prop::sample::select(vec![1usize, 2, 3]),
    ) {
        let decoder = decoder(Family::Qwen3, true, seed);
        let key = RandomKey::new(seed);
        // Every stem begins like another one, and every prompt like a stem, cut somewhere; some are equal.
        let mut beginnings: Vec<Vec<u32>> = vec![Vec::new()];
        for (index, (length, parent)) in stems.into_iter().enumerate() {
            let mut stem = beginnings[parent % beginnings.len()].clone();
            stem.extend(tokens(&mut key.with("stem", index as u64).generator(), length));
            stem.truncate(50);
            beginnings.push(stem);
        }
        let prompts: Vec<Vec<u32>> = members
            .into_iter()
            .map(|(stem, length, end)| {
                let mut prompt = beginnings[stem % beginnings.len()].clone();
                prompt.extend(tokens(&mut key.with_text("rest", "").generator(), length));
                prompt.truncate(prompt.len() - end.min(prompt.len()) / 2);
                if prompt.is_empty() {
                    prompt.push(1);
                }
                prompt
            })
            .collect();
        let answers = |shared: bool| {
            let mut engine = Engine::new(&decoder, options(3, 16));
            let parts = if shared {
                engine.prefill_shared(&prompts).unwrap()
            } else {
                prompts.iter().map(|prompt| (SequenceState::new(&decoder), prompt.clone())).collect()
            };
            let requests = parts
                .into_iter()
                .enumerate()
                .map(|(id, (state, append))| request(id as u64, state, append, Sampling::default(), key))
                .collect();
            engine.run(requests).unwrap()
        };
        let alone = with_threads(1, || answers(false));
        let shared = with_threads(threads, || answers(true));
        for (alone, shared) in alone.iter().zip(&shared) {
            prop_assert_eq!(&alone.token_ids, &shared.token_ids);
            prop_assert_eq!(bits(&alone.log_probs), bits(&shared.log_probs));
        }
        let mut engine = Engine::new(&decoder, options(3, 16));
        let before = decoder.rows_computed();
        let parts = engine.prefill_shared(&prompts).unwrap();
        let read = (decoder.rows_computed() - before) as usize;
        let covered: usize = parts.iter().map(|(state, _)| state.len()).sum();
        prop_assert!(read <= covered, "{read} rows to cover {covered}");
        for ((state, rest), prompt) in parts.iter().zip(&prompts) {
            prop_assert!(!rest.is_empty());
            prop_assert_eq!(&[state.token_ids(), rest.as_slice()].concat(), prompt);
        }
    }
}
