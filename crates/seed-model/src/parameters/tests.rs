use seed_random::RandomKey;

use super::Parameters;
use crate::config::tests::small;
use crate::config::{DecoderConfig, Family};
use crate::error::ModelError;

fn initialised(family: Family) -> (DecoderConfig, Parameters) {
    let config = small(family);
    let parameters = Parameters::initialise(&config, RandomKey::new(3));
    (config, parameters)
}

#[test]
fn layout_is_the_canonical_order_without_gaps() {
    for family in Family::ALL {
        let (config, parameters) = initialised(family);
        let shapes = config.parameter_shapes();
        assert_eq!(parameters.len(), shapes.len());
        let mut end = 0;
        for (index, (name, shape)) in shapes.iter().enumerate() {
            assert_eq!(parameters.name(index), name);
            assert_eq!(parameters.shape(index), shape.as_slice());
            assert_eq!(parameters.index_of(name), Some(index));
            assert_eq!(
                parameters.range(index),
                end..end + shape.iter().product::<usize>()
            );
            assert_eq!(parameters.get(index), &parameters.flat()[parameters.range(index)]);
            end = parameters.range(index).end;
        }
        assert_eq!(parameters.total(), end);
        assert_eq!(config.parameter_count(), end as u64);
        assert_eq!(parameters.index_of("lm_head.bias"), None);
    }
}

/// Beyond what any machine can address, so no allocator grants it.
#[test]
fn weights_without_memory_are_an_error() {
    let config = DecoderConfig {
        vocabulary_size: 1 << 24,
        hidden_size: 1 << 32,
        layers: 1,
        ..small(Family::Llama)
    };
    match Parameters::try_zeros(&config).unwrap_err() {
        ModelError::OutOfMemory { parameters, bytes } => {
            assert_eq!(parameters as u64, config.parameter_count());
            assert_eq!(bytes, 4 * config.parameter_count());
        }
        other => panic!("{other}"),
    }
    assert_eq!(
        Parameters::try_zeros(&small(Family::Llama)).unwrap().digest(),
        Parameters::zeros(&small(Family::Llama)).digest()
    );
}

#[test]
fn initialisation_has_the_asked_for_spread() {
    let mut config = small(Family::Qwen2);
    config.hidden_size = 128;
    config.intermediate_size = 256;
    config.layers = 8;
    let parameters = Parameters::initialise(&config, RandomKey::new(11));
    for parameter in parameters.iter() {
        if parameter.name.ends_with("norm.weight") {
            assert!(
                parameter.values.iter().all(|&value| value == 1.0),
                "{}",
                parameter.name
            );
            continue;
        }
        if parameter.name.ends_with("bias") {
            assert!(
                parameter.values.iter().all(|&value| value == 0.0),
                "{}",
                parameter.name
            );
            continue;
        }
        let residual =
            parameter.name.ends_with("o_proj.weight") || parameter.name.ends_with("down_proj.weight");
        let expected = if residual { 0.02 / 4.0 } else { 0.02 };
        let count = parameter.values.len() as f64;
        let mean = parameter
            .values
            .iter()
            .map(|&value| f64::from(value))
            .sum::<f64>()
            / count;
        let variance = parameter
            .values
            .iter()
            .map(|&value| (f64::from(value) - mean).powi(2))
            .sum::<f64>()
            / count;
        // Five standard errors of each estimate.
        assert!(
            mean.abs() < 5.0 * expected / count.sqrt(),
            "{}: mean {mean}",
            parameter.name
        );
        let ratio = variance.sqrt() / expected;
        assert!(
            (ratio - 1.0).abs() < 5.0 / (2.0 * count).sqrt(),
            "{}: {ratio}",
            parameter.name
        );
    }
}

#[test]
fn a_tensor_does_not_depend_on_the_others() {
    let (mut config, parameters) = initialised(Family::Llama);
    config.tied_embeddings = !config.tied_embeddings;
    config.vocabulary_size += 1;
    let other = Parameters::initialise(&config, RandomKey::new(3));
    let name = "model.layers.1.mlp.up_proj.weight";
    let (left, right) = (parameters.index_of(name).unwrap(), other.index_of(name).unwrap());
    assert_eq!(parameters.get(left), other.get(right));
    assert_ne!(parameters.digest(), other.digest());
}

/// Pinned on purpose: if it moves, a model trained from scratch cannot be rebuilt to the same bytes.
#[test]
fn initial_values_are_pinned() {
    let (_, parameters) = initialised(Family::Llama);
    assert_eq!(parameters.digest(), initialised(Family::Llama).1.digest());
    assert_eq!(
        parameters.digest().to_hex().as_str(),
        "bcbf0d800c7f3f5ac999ba70a9973a90d51c47a0bf0f3a3b65dec7ce65ca5b92"
    );
}

#[test]
fn digest_sees_every_value_and_the_sign_of_zero() {
    let (config, mut parameters) = initialised(Family::Qwen3);
    let before = parameters.digest();
    let last = parameters.total() - 1;
    let kept = parameters.flat()[last];
    parameters.flat_mut()[last] = f32::from_bits(kept.to_bits() ^ 1);
    assert_ne!(parameters.digest(), before);
    parameters.flat_mut()[last] = kept;
    assert_eq!(parameters.digest(), before);
    let mut zeros = Parameters::zeros(&config);
    let plus = zeros.digest();
    zeros.get_mut(0)[0] = -0.0;
    assert_ne!(zeros.digest(), plus);
}
