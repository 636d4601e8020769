//! Queueing, finishing and failing of generation.

use std::sync::Arc;

use seed_model::config::Family;
use seed_model::engine::{Engine, FinishReason, GenerateRequest};
use seed_model::error::ModelError;
use seed_model::sampler::Sampling;
use seed_model::sequence_state::SequenceState;
use seed_model::{Decoder, TokenSequence};
use seed_random::RandomKey;

use crate::support::{bits, config, decoder, options, request, tokens};

fn plain(decoder: &Decoder, id: u64, append: Vec<u32>) -> GenerateRequest {
    let key = RandomKey::new(3).with("sample", id);
    request(id, SequenceState::new(decoder), append, Sampling::default(), key)
}

/// Greedy continuation computed from the logits of the whole sequence each time.
fn greedy_by_rescoring(decoder: &Decoder, mut tokens: Vec<u32>, count: usize) -> Vec<u32> {
    let start = tokens.len();
    for _ in 0..count {
        let logits = decoder.logits(&tokens).unwrap();
        let last = &logits[logits.len() - crate::support::VOCABULARY..];
        let largest = last.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        tokens.push(last.iter().position(|&logit| logit == largest).unwrap() as u32);
    }
    tokens.split_off(start)
}

#[test]
fn greedy_decoding_follows_the_largest_logit() {
    let decoder = decoder(Family::Qwen3, false, 4);
    let prompt = vec![5, 9, 33, 8];
    let mut engine = Engine::new(&decoder, options(4, 3));
    let mut request = plain(&decoder, 0, prompt.clone());
    request.sampling = Sampling::GREEDY;
    request.stop = Arc::from([]);
    request.max_new_tokens = 20;
    let generations = engine.run(vec![request]).unwrap();
    assert_eq!(
        generations[0].token_ids,
        greedy_by_rescoring(&decoder, prompt, 20)
    );
    assert_eq!(generations[0].finish, FinishReason::Length);
}

#[test]
fn reasons_to_finish() {
    let decoder = decoder(Family::Llama, true, 1);
    let mut engine = Engine::new(&decoder, options(8, 64));
    let free = |id, max_new_tokens, max_length| GenerateRequest {
        max_new_tokens,
        max_length,
        stop: Arc::from([]),
        ..plain(&decoder, id, vec![7, 8, 9])
    };
    let unbounded = engine.run(vec![free(0, 10, 1000)]).unwrap().remove(0);
    assert_eq!(
        (unbounded.token_ids.len(), unbounded.finish),
        (10, FinishReason::Length)
    );

    // The same draws, ended by the token that is known to come fifth (or the first of its kind).
    let stop = unbounded.token_ids[4];
    let mut stopping = free(0, 10, 1000);
    stopping.stop = Arc::from([stop]);
    let stopped = engine.run(vec![stopping]).unwrap().remove(0);
    let length = 1 + unbounded
        .token_ids
        .iter()
        .position(|&token| token == stop)
        .unwrap();
    assert_eq!(stopped.token_ids, unbounded.token_ids[..length]);
    assert_eq!(bits(&stopped.log_probs), bits(&unbounded.log_probs[..length]));
    assert_eq!(stopped.finish, FinishReason::Stop);

    let short = engine.run(vec![free(0, 10, 7)]).unwrap().remove(0);
    assert_eq!((short.token_ids.len(), short.finish), (4, FinishReason::Context));
    assert_eq!(short.state.len(), 7);

    // The model's own context ends it too, whatever the request allows.
    let model = engine.run(vec![free(0, 1000, 1000)]).unwrap().remove(0);
    assert_eq!((model.state.len(), model.finish), (128, FinishReason::Context));

    let nothing = engine.run(vec![free(0, 0, 1000), free(1, 5, 3)]).unwrap();
    assert_eq!(
        (nothing[0].token_ids.len(), nothing[0].finish),
        (0, FinishReason::Length)
    );
    assert_eq!(
        (nothing[1].token_ids.len(), nothing[1].finish),
        (0, FinishReason::Context)
    );
    assert_eq!(
        nothing[1].state.token_ids(),
        [7, 8, 9],
        "the prompt is kept for a later turn"
    );
    assert!(engine.is_idle());
}

#[test]
fn a_stop_token_is_part_of_the_state_whether_or_not_it_was_cached() {
    let decoder = decoder(Family::Qwen2, true, 2);
    let mut engine = Engine::new(&decoder, options(8, 64));
    let first = engine
        .run(vec![plain(&decoder, 0, vec![10, 11])])
        .unwrap()
        .remove(0);
    let mut expected = vec![10, 11];
    expected.extend(&first.token_ids);
    assert_eq!(first.state.token_ids(), expected);
    assert_eq!(
        first.state.cached(),
        expected.len() - 1,
        "the last token was never read"
    );
    let key = RandomKey::new(5);
    let next = engine
        .run(vec![request(1, first.state, vec![20], Sampling::default(), key)])
        .unwrap()
        .remove(0);
    expected.push(20);
    let scored: Vec<u32> = (expected.len() as u32..next.state.len() as u32).collect();
    expected.extend(&next.token_ids);
    assert_eq!(next.state.token_ids(), expected);
    let sequence = TokenSequence {
        tokens: &expected,
        scored: &scored,
    };
    let scores = decoder.score(&[sequence], 1.0).unwrap();
    assert_eq!(bits(&scores[0].log_probs), bits(&next.log_probs));
}

#[test]
fn steps_hand_out_each_generation_once_and_runs_their_own() {
    let decoder = decoder(Family::Llama, false, 3);
    let mut engine = Engine::new(&decoder, options(2, 4));
    let requests: Vec<_> = (0..5)
        .map(|id| plain(&decoder, id, tokens(&mut RandomKey::new(id).generator(), 6)))
        .collect();
    let expected = Engine::new(&decoder, options(5, 100))
        .run(requests.clone())
        .unwrap();
    assert_eq!(
        expected
            .iter()
            .map(|generation| generation.id)
            .collect::<Vec<_>>(),
        [0, 1, 2, 3, 4]
    );
    for request in &requests[..4] {
        engine.submit(request.clone()).unwrap();
    }
    assert!(!engine.is_idle());
    let run = engine.run(vec![requests[4].clone()]).unwrap();
    assert_eq!((run.len(), run[0].id), (1, 4));
    assert_eq!(run[0].token_ids, expected[4].token_ids);
    let mut rest = Vec::new();
    while !engine.is_idle() {
        rest.extend(engine.step().unwrap());
    }
    rest.sort_by_key(|generation| generation.id);
    assert_eq!(rest.len(), 4);
    for (generation, expected) in rest.iter().zip(&expected) {
        assert_eq!(generation.token_ids, expected.token_ids);
        assert_eq!(bits(&generation.log_probs), bits(&expected.log_probs));
    }
}

#[test]
fn a_truncated_state_generates_as_if_the_rest_had_never_been() {
    let decoder = decoder(Family::Llama, false, 6);
    let mut engine = Engine::new(&decoder, options(2, 100));
    let prompt = tokens(&mut RandomKey::new(1).generator(), 21);
    let mut state = engine.prefill(SequenceState::new(&decoder), &prompt).unwrap();
    assert_eq!((state.len(), state.cached()), (21, 21));
    assert!(state.bytes() > 0);
    state.truncate(13);
    let key = RandomKey::new(2);
    let again = engine
        .run(vec![request(0, state, vec![4], Sampling::default(), key)])
        .unwrap();
    let mut short = prompt[..13].to_vec();
    short.push(4);
    let fresh = request(0, SequenceState::new(&decoder), short, Sampling::default(), key);
    let fresh = engine.run(vec![fresh]).unwrap();
    assert_eq!(again[0].token_ids, fresh[0].token_ids);
    assert_eq!(bits(&again[0].log_probs), bits(&fresh[0].log_probs));
}

#[test]
fn filtered_sampling_tells_the_mass_it_kept() {
    let decoder = decoder(Family::Llama, false, 7);
    let mut engine = Engine::new(&decoder, options(4, 100));
    let sampling = Sampling {
        temperature: 0.7,
        top_p: 0.5,
        top_k: 0,
    };
    let mut request = plain(&decoder, 0, vec![3, 4, 5]);
    request.sampling = sampling;
    let generation = engine.run(vec![request]).unwrap().remove(0);
    for (log_prob, kept) in generation.log_probs.iter().zip(&generation.kept_log_masses) {
        assert!(kept.exp() >= 0.5 && *kept <= 0.0, "{kept}");
        assert!(
            log_prob - kept <= 1e-6,
            "a probability within the kept set is at most 1"
        );
    }
}

#[test]
fn a_request_that_cannot_be_served_is_refused_by_name() {
    let decoder = decoder(Family::Llama, true, 8);
    let mut engine = Engine::new(&decoder, options(2, 100));
    let outside = engine
        .submit(plain(&decoder, 41, vec![1, 61]))
        .unwrap_err()
        .to_string();
    assert!(
        outside.starts_with("request `41`: token id `61` at position 1"),
        "{outside}"
    );
    let empty = engine
        .submit(plain(&decoder, 42, vec![]))
        .unwrap_err()
        .to_string();
    assert!(empty.starts_with("request `42`: no tokens"), "{empty}");
    let mut hot = plain(&decoder, 43, vec![1]);
    hot.sampling.temperature = -1.0;
    assert!(
        engine
            .submit(hot)
            .unwrap_err()
            .to_string()
            .starts_with("request `43`: `temperature`")
    );
    let long = engine
        .prefill(SequenceState::new(&decoder), &[1; 129])
        .unwrap_err();
    assert!(matches!(
        long,
        ModelError::TooLong {
            length: 129,
            maximum: 128,
            ..
        }
    ));
    assert!(engine.is_idle());
}

#[test]
fn a_state_made_before_an_update_is_refused() {
    let mut decoder = decoder(Family::Llama, true, 9);
    let copy = decoder.clone();
    let state = Engine::new(&copy, options(1, 9))
        .prefill(SequenceState::new(&decoder), &[1, 2, 3])
        .unwrap();
    let key = RandomKey::new(1);
    let stale = |decoder: &Decoder| {
        Engine::new(decoder, options(1, 9)).submit(request(0, state.clone(), vec![4], Sampling::GREEDY, key))
    };
    assert!(stale(&decoder).is_ok(), "a clone shares the weights");
    decoder.update(|parameters| parameters.get_mut(0)[0] += 1.0);
    assert!(matches!(stale(&decoder), Err(ModelError::StaleState { .. })));
    assert!(stale(&copy).is_ok(), "the clone was not updated");
}

#[test]
fn logits_that_are_not_finite_end_their_request_alone() {
    // Token 60's embedding is not a number, so a prompt with it cannot be continued; the head is another matrix.
    let mut decoder = decoder(Family::Llama, false, 10);
    let width = config(Family::Llama, false).hidden_size;
    decoder.update(|parameters| parameters.get_mut(0)[60 * width] = f32::NAN);
    let mut engine = Engine::new(&decoder, options(8, 100));
    let forbid = |mut request: GenerateRequest| {
        request.max_new_tokens = 1;
        request
    };
    for (id, prompt) in [vec![1, 2], vec![1, 60], vec![3, 60], vec![4, 5]]
        .into_iter()
        .enumerate()
    {
        engine.submit(forbid(plain(&decoder, id as u64, prompt))).unwrap();
    }
    let first = engine.step().unwrap_err().to_string();
    assert!(
        first.starts_with("request `1`: a logit is not finite (`NaN`) at position 2"),
        "{first}"
    );
    let second = engine.step().unwrap_err().to_string();
    assert!(second.starts_with("request `2`: "), "{second}");
    let rest = engine.step().unwrap();
    assert_eq!(
        rest.iter().map(|generation| generation.id).collect::<Vec<_>>(),
        [0, 3]
    );
    assert!(engine.is_idle());

    let failed = engine.run(vec![plain(&decoder, 7, vec![60]), plain(&decoder, 8, vec![1])]);
    assert!(failed.is_err());
    assert!(engine.is_idle(), "the rest of a failed run is dropped");
    let sequence = TokenSequence {
        tokens: &[1, 60, 2],
        scored: &[1, 2],
    };
    let score = decoder.score(&[sequence], 1.0).unwrap_err().to_string();
    assert!(
        score.starts_with("sequence 0: log-prob is not finite (`NaN`) at position 2"),
        "{score}"
    );
}

#[test]
fn progress_lists_what_was_chosen_and_a_cancelled_request_leaves_no_trace() {
    let decoder = decoder(Family::Qwen3, true, 6);
    let alone = |id| {
        let mut engine = Engine::new(&decoder, options(1, 64));
        engine
            .run(vec![plain(&decoder, id, vec![9, 4, id as u32 + 5])])
            .unwrap()
            .remove(0)
    };
    let mut engine = Engine::new(&decoder, options(2, 2));
    for id in 0..4 {
        engine
            .submit_listing(plain(&decoder, id, vec![9, 4, id as u32 + 5]), 3)
            .unwrap();
    }
    let mut finished = Vec::new();
    let mut cancelled = false;
    while !engine.is_idle() {
        let (ended, failed) = engine.step_all();
        assert!(failed.is_empty());
        finished.extend(ended);
        let seen: Vec<(u64, usize)> = engine
            .progress()
            .map(|progress| {
                let expected = alone(progress.id);
                let length = progress.token_ids.len();
                assert_eq!(progress.token_ids, &expected.token_ids[..length]);
                assert_eq!(bits(progress.log_probs), bits(&expected.log_probs[..length]));
                assert_eq!(progress.alternatives.len(), length);
                (progress.id, length)
            })
            .collect();
        // The first in progress, and the last, which still waits.
        if !cancelled && seen.iter().any(|&(id, length)| id == 0 && length == 2) {
            assert!(engine.cancel(0) && engine.cancel(3));
            assert!(!engine.cancel(0));
            cancelled = true;
        }
    }
    assert!(cancelled);
    finished.sort_by_key(|generation| generation.id);
    let ids: Vec<u64> = finished.iter().map(|generation| generation.id).collect();
    assert_eq!(ids, [1, 2]);
    for generation in &finished {
        let expected = alone(generation.id);
        assert_eq!(generation.token_ids, expected.token_ids);
        assert_eq!(bits(&generation.log_probs), bits(&expected.log_probs));
        assert!(expected.alternatives.is_empty());
        for ((listed, token), log_prob) in generation
            .alternatives
            .iter()
            .zip(&generation.token_ids)
            .zip(&generation.log_probs)
        {
            assert_eq!(listed.len(), 3);
            assert!(listed.is_sorted_by(|left, right| left.log_prob >= right.log_prob));
            if let Some(same) = listed.iter().find(|alternative| alternative.token == *token) {
                assert_eq!(same.log_prob.to_bits(), log_prob.to_bits());
            }
        }
    }
}
