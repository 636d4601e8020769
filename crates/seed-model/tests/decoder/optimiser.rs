//! Steps, clipping, and saved state of the optimiser.

use seed_model::config::Family;
use seed_model::{AdamW, AdamWOptions, Decoder, Gradients, ModelError, StepOutcome, TokenSequence};

use crate::support::{bits, decoder, derivatives};

fn gradients(decoder: &Decoder) -> Gradients {
    let mut gradients = Gradients::zeros(decoder.config());
    let sequence = TokenSequence {
        tokens: &[1, 5, 9, 30, 22, 8],
        scored: &[2, 3, 5],
    };
    decoder
        .accumulate_gradient(&[sequence], 1.0, &mut gradients, &mut derivatives, false)
        .unwrap();
    gradients
}

/// PyTorch's update rule written out in `f64` for one step from fresh state.
fn first_step(parameter: f32, gradient: f32, rate: f64, decay: f64) -> f64 {
    let gradient = f64::from(gradient);
    f64::from(parameter) * (1.0 - rate * decay) - rate * gradient / (gradient.abs() + 1e-8)
}

#[test]
fn the_first_step_decays_matrices_alone_and_moves_against_the_gradient() {
    for decay_vectors in [false, true] {
        let mut decoder = decoder(Family::Qwen2, true, 1);
        let before = decoder.parameters().clone();
        let mut gradients = gradients(&decoder);
        let options = AdamWOptions {
            weight_decay: 0.1,
            max_norm: None,
            decay_vectors,
            ..AdamWOptions::default()
        };
        let mut optimiser = AdamW::new(options, &before);
        let outcome = decoder.update(|parameters| optimiser.step(parameters, &mut gradients, 0.01));
        assert!(matches!(outcome, StepOutcome::Applied { gradient_norm } if gradient_norm > 0.0));
        assert_eq!(optimiser.steps(), 1);
        let after = decoder.parameters();
        for index in 0..before.len() {
            let decay = if decay_vectors || before.shape(index).len() == 2 {
                0.1
            } else {
                0.0
            };
            let values = before
                .get(index)
                .iter()
                .zip(after.get(index))
                .zip(gradients.values().get(index).to_vec());
            for ((&before, &after), gradient) in values {
                let expected = first_step(before, gradient, 0.01, decay);
                assert!(
                    (f64::from(after) - expected).abs() < 2e-6,
                    "{before} {after} {expected} {gradient}"
                );
            }
        }
    }
}

#[test]
fn clipping_scales_to_the_largest_norm_allowed_and_leaves_smaller_ones() {
    let decoder = decoder(Family::Llama, false, 2);
    let mut gradients = gradients(&decoder);
    let norm = gradients.global_norm();
    let direct = gradients
        .values()
        .flat()
        .iter()
        .map(|&g| f64::from(g).powi(2))
        .sum::<f64>()
        .sqrt();
    assert!((norm - direct).abs() < 1e-9 * norm);
    let untouched = bits(gradients.values().flat());
    assert_eq!(gradients.clip(norm * 2.0).to_bits(), norm.to_bits());
    assert_eq!(bits(gradients.values().flat()), untouched);
    assert_eq!(
        gradients.clip(norm / 4.0).to_bits(),
        norm.to_bits(),
        "the norm before clipping"
    );
    assert!((gradients.global_norm() / (norm / 4.0) - 1.0).abs() < 1e-4);
}

#[test]
fn gradients_that_are_not_finite_change_nothing_and_are_named() {
    let mut decoder = decoder(Family::Llama, false, 3);
    let mut optimiser = AdamW::new(AdamWOptions::default(), decoder.parameters());
    let mut gradients = gradients(&decoder);
    assert!(gradients.is_finite());
    gradients.scale(f32::INFINITY);
    assert!(!gradients.is_finite());
    let before = bits(decoder.parameters().flat());
    let state = optimiser.state();
    let outcome = decoder.update(|parameters| optimiser.step(parameters, &mut gradients, 0.01));
    let StepOutcome::SkippedNonFinite {
        gradient_norm,
        tensor,
    } = outcome
    else {
        panic!("{outcome:?}");
    };
    assert!(!gradient_norm.is_finite());
    assert_eq!(tensor.as_deref(), Some("model.embed_tokens.weight"));
    assert_eq!(bits(decoder.parameters().flat()), before);
    assert_eq!((optimiser.steps(), optimiser.state()), (0, state));
}

#[test]
fn a_step_after_restoring_has_the_same_bits_as_without_a_break() {
    let mut straight = decoder(Family::Qwen3, true, 4);
    let mut optimiser = AdamW::new(AdamWOptions::default(), straight.parameters());
    let step = |decoder: &mut Decoder, optimiser: &mut AdamW| {
        let mut gradients = gradients(decoder);
        decoder.update(|parameters| optimiser.step(parameters, &mut gradients, 0.01));
    };
    for _ in 0..3 {
        step(&mut straight, &mut optimiser);
    }
    let mut resumed = Decoder::new(straight.config().clone(), straight.parameters().clone()).unwrap();
    let mut restored = AdamW::new(AdamWOptions::default(), resumed.parameters());
    let mut state = optimiser.state();
    state.reverse();
    restored.restore(optimiser.steps(), &state).unwrap();
    for _ in 0..2 {
        step(&mut straight, &mut optimiser);
        step(&mut resumed, &mut restored);
    }
    assert_eq!(
        bits(straight.parameters().flat()),
        bits(resumed.parameters().flat())
    );
    assert_eq!(optimiser.steps(), 5);
    assert_eq!(optimiser.state(), restored.state());
}

#[test]
fn state_of_another_model_is_refused_with_names() {
    let decoder = decoder(Family::Llama, true, 5);
    let mut optimiser = AdamW::new(AdamWOptions::default(), decoder.parameters());
    let state = optimiser.state();
    let mut refused = |state: Vec<seed_model::optimiser::StateTensor>| {
        let error = optimiser.restore(1, &state).unwrap_err();
        assert!(matches!(error, ModelError::OptimiserState { .. }));
        error.to_string()
    };
    let mut missing = state.clone();
    missing.pop();
    assert!(refused(missing).contains("a moment of `model.norm.weight` is missing"));
    let mut twice = state.clone();
    twice.push(state[0].clone());
    assert!(refused(twice).contains("`first_moment.model.embed_tokens.weight` is given twice"));
    let mut renamed = state.clone();
    renamed[0].name = "first_moment.lm_head.weight".to_owned();
    assert!(refused(renamed).contains("`first_moment.lm_head.weight` has no parameter"));
    let mut reshaped = state;
    reshaped[0].shape.reverse();
    assert!(refused(reshaped).contains("has shape [28, 61]"));
}

/// An update with nothing in it: the parameters stay and scores keep their bits; a real one shows in the scores.
#[test]
fn scores_follow_an_update() {
    let mut decoder = decoder(Family::Llama, false, 6);
    let sequence = TokenSequence {
        tokens: &[4, 5, 6, 7],
        scored: &[1, 2, 3],
    };
    let before = decoder.score(&[sequence], 1.0).unwrap();
    let first = bits(gradients(&decoder).values().flat());
    let reference = decoder.clone();
    decoder.update(|parameters| parameters.flat_mut().iter_mut().for_each(|value| *value *= 1.1));
    assert_ne!(decoder.score(&[sequence], 1.0).unwrap(), before);
    assert_ne!(
        bits(gradients(&decoder).values().flat()),
        first,
        "the backward direction is packed again too"
    );
    assert_eq!(reference.score(&[sequence], 1.0).unwrap(), before);
    let fresh = Decoder::new(decoder.config().clone(), decoder.parameters().clone()).unwrap();
    assert_eq!(
        fresh.score(&[sequence], 1.0).unwrap(),
        decoder.score(&[sequence], 1.0).unwrap()
    );
    assert_eq!(
        bits(gradients(&fresh).values().flat()),
        bits(gradients(&decoder).values().flat())
    );
}
