//! What scoring and training refuse, and how they say so; and what asks for nothing.

use seed_model::config::Family;
use seed_model::parameters::Parameters;
use seed_model::{Decoder, Gradients, ModelError, ScoreGradients, Scores, TokenSequence};

use crate::support::{config, decoder, derivatives};

fn refused(tokens: &[u32], scored: &[u32], temperature: f32) -> String {
    let decoder = decoder(Family::Llama, true, 1);
    let good = TokenSequence {
        tokens: &[1, 2],
        scored: &[1],
    };
    let sequences = [good, TokenSequence { tokens, scored }];
    decoder.score(&sequences, temperature).unwrap_err().to_string()
}

#[test]
fn sequences_that_cannot_be_scored_are_named() {
    for (scored, position) in [(&[0][..], 0), (&[2, 2], 2), (&[2, 1], 1), (&[1, 3], 3)] {
        let message = refused(&[5, 6, 7], scored, 1.0);
        let expected =
            format!("sequence 1: scored position {position} is not valid in a sequence of 3 tokens");
        assert!(message.starts_with(&expected), "{message}");
    }
    let message = refused(&[5, 6, 61], &[1], 1.0);
    assert!(
        message.starts_with("sequence 1: token id `61` at position 2"),
        "{message}"
    );
    let message = refused(&[5; 129], &[1], 1.0);
    assert!(
        message.starts_with("sequence 1: 129 tokens exceed the model's context of 128"),
        "{message}"
    );
    for temperature in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        let message = refused(&[5, 6], &[1], temperature);
        assert!(message.starts_with("scoring: `temperature` is"), "{message}");
    }
}

#[test]
fn a_loss_that_answers_wrongly_is_refused() {
    let decoder = decoder(Family::Llama, true, 2);
    let sequence = TokenSequence {
        tokens: &[1, 2, 3],
        scored: &[1, 2],
    };
    let run = |answer: ScoreGradients| {
        let mut gradients = Gradients::zeros(decoder.config());
        let mut loss = |_: usize, _: &Scores| answer.clone();
        decoder
            .accumulate_gradient(&[sequence], 1.0, &mut gradients, &mut loss, false)
            .unwrap_err()
            .to_string()
    };
    let short = run(ScoreGradients {
        log_probs: vec![1.0, 2.0],
        entropies: vec![0.0],
    });
    assert_eq!(
        short,
        "sequence 0: the loss returned 1 derivatives of `entropies` for 2 scored tokens"
    );
    let infinite = run(ScoreGradients {
        log_probs: vec![1.0, f32::INFINITY],
        entropies: vec![0.0, 0.0],
    });
    assert!(
        infinite.starts_with("sequence 0: derivative of the loss is not finite (`inf`) at position 2"),
        "{infinite}"
    );
}

#[test]
fn parameters_of_another_shape_are_refused_by_name() {
    let wide = config(Family::Llama, false);
    let mut narrow = wide.clone();
    narrow.intermediate_size = 5;
    let error = Decoder::new(wide.clone(), Parameters::zeros(&narrow)).unwrap_err();
    assert!(
        matches!(&error, ModelError::ParameterShape { name, .. } if name == "model.layers.0.mlp.gate_proj.weight"),
        "{error}"
    );
    let error = Decoder::new(wide, Parameters::zeros(&config(Family::Llama, true))).unwrap_err();
    assert!(
        matches!(&error, ModelError::ParameterMissing { name } if name == "lm_head.weight"),
        "{error}"
    );
}

/// Sequences with nothing to score get empty scores, are seen by the loss, and leave no gradient.
#[test]
fn nothing_scored_is_no_gradient() {
    let decoder = decoder(Family::Qwen2, true, 3);
    let empty = TokenSequence {
        tokens: &[],
        scored: &[],
    };
    let context = TokenSequence {
        tokens: &[4, 5, 6],
        scored: &[],
    };
    assert_eq!(decoder.score(&[], 1.0).unwrap(), []);
    assert_eq!(
        decoder.score(&[empty, context], 1.0).unwrap(),
        [Scores::default(), Scores::default()]
    );
    let mut gradients = Gradients::zeros(decoder.config());
    let mut seen = Vec::new();
    decoder
        .accumulate_gradient(
            &[empty, context],
            1.0,
            &mut gradients,
            &mut |index, scores| {
                seen.push(index);
                derivatives(index, scores)
            },
            true,
        )
        .unwrap();
    assert_eq!(seen, [0, 1]);
    assert!(gradients.values().flat().iter().all(|value| value.to_bits() == 0));
    assert_eq!(gradients.global_norm(), 0.0);
}
