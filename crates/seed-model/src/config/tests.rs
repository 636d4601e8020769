use proptest::prelude::*;

use super::{DecoderConfig, Family, RopeScaling};
use crate::error::ModelError;

/// A valid configuration small enough for any test; Qwen2 is the tied one.
pub(crate) fn small(family: Family) -> DecoderConfig {
    DecoderConfig {
        family,
        vocabulary_size: 97,
        hidden_size: 32,
        intermediate_size: 48,
        layers: 2,
        query_heads: 4,
        key_value_heads: 2,
        head_dim: if family == Family::Qwen3 { 12 } else { 8 },
        rms_norm_epsilon: 1e-6,
        rope_theta: 10_000.0,
        rope_scaling: RopeScaling::None,
        max_positions: 256,
        tied_embeddings: family == Family::Qwen2,
        attention_bias: family.attention_bias(),
        query_key_norm: family.query_key_norm(),
        initializer_range: 0.02,
        begin_token: None,
        end_tokens: vec![2],
    }
}

fn scalings() -> Vec<RopeScaling> {
    vec![
        RopeScaling::None,
        RopeScaling::Linear { factor: 2.5 },
        RopeScaling::Dynamic { factor: 4.0 },
        RopeScaling::Llama3 {
            factor: 8.0,
            low_frequency_factor: 1.0,
            high_frequency_factor: 4.0,
            original_max_positions: 64,
        },
        RopeScaling::Yarn {
            factor: 4.0,
            original_max_positions: 64,
            attention_factor: Some(1.25),
            beta_fast: 32.0,
            beta_slow: 1.0,
            mscale: None,
            mscale_all_dimensions: Some(0.5),
            truncate: false,
        },
    ]
}

#[test]
fn every_field_survives_writing_and_reading() {
    for family in Family::ALL {
        for scaling in scalings() {
            for (begin, end) in [(None, vec![]), (Some(1), vec![2]), (Some(0), vec![2, 96])] {
                let config = DecoderConfig {
                    rope_scaling: scaling.clone(),
                    rms_norm_epsilon: 1e-5,
                    rope_theta: 5e5,
                    begin_token: begin,
                    end_tokens: end,
                    ..small(family)
                };
                assert_eq!(DecoderConfig::from_json(&config.to_json()).unwrap(), config);
            }
        }
    }
}

#[test]
fn both_spellings_of_rotary_options_are_read() {
    let sizes = r#""model_type": "llama", "vocab_size": 10, "hidden_size": 8, "intermediate_size": 8,
        "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 128"#;
    let read = |rest: &str| DecoderConfig::from_json(&format!("{{{sizes}, {rest}}}")).unwrap();
    let old = read(r#""rope_theta": 500000, "rope_scaling": {"type": "linear", "factor": 2}"#);
    let new = read(r#""rope_parameters": {"rope_theta": 500000.0, "rope_type": "linear", "factor": 2.0}"#);
    assert_eq!(old, new);
    assert_eq!(
        (old.rope_theta, &old.rope_scaling),
        (500_000.0, &RopeScaling::Linear { factor: 2.0 })
    );
    assert_eq!(old.key_value_heads, 2, "defaults to the query heads");
    assert_eq!(old.head_dim, 4, "defaults to hidden_size / num_attention_heads");
    assert_eq!(read(r#""rope_scaling": null"#).rope_theta, 10_000.0);
    assert_eq!(read(r#""eos_token_id": [1, 3]"#).end_tokens, [1, 3]);
    assert_eq!(read(r#""eos_token_id": 3"#).end_tokens, [3]);
    assert_eq!(read(r#""eos_token_id": null"#).end_tokens, Vec::<u32>::new());
}

#[test]
fn names_and_shapes_follow_the_family() {
    let names = |family| -> Vec<String> {
        let shapes = small(family).parameter_shapes();
        shapes
            .into_iter()
            .map(|(name, shape)| format!("{name} {shape:?}"))
            .collect()
    };
    let qwen2 = names(Family::Qwen2);
    assert_eq!(qwen2.first().unwrap(), "model.embed_tokens.weight [97, 32]");
    assert!(qwen2.contains(&"model.layers.1.self_attn.k_proj.bias [16]".to_owned()));
    assert_eq!(
        qwen2.last().unwrap(),
        "model.norm.weight [32]",
        "tied: no lm_head"
    );
    let qwen3 = names(Family::Qwen3);
    assert!(qwen3.contains(&"model.layers.0.self_attn.q_norm.weight [12]".to_owned()));
    assert!(qwen3.contains(&"model.layers.0.self_attn.o_proj.weight [32, 48]".to_owned()));
    assert_eq!(qwen3.last().unwrap(), "lm_head.weight [97, 32]");
    assert_eq!(names(Family::Llama).len(), 1 + 2 * 9 + 2);
}

/// The key named by the refusal of `small(family)`'s file after `change` to one of its keys.
fn refusal(family: Family, key: &str, value: serde_json::Value) -> String {
    let mut file: serde_json::Value = serde_json::from_str(&small(family).to_json()).unwrap();
    file[key] = value;
    match DecoderConfig::from_json(&file.to_string()).unwrap_err() {
        ModelError::ConfigValue { key, .. } => key,
        other => panic!("{other}"),
    }
}

#[test]
fn what_is_not_computed_is_refused_by_name() {
    use serde_json::json;
    assert_eq!(refusal(Family::Llama, "model_type", json!("mamba")), "model_type");
    assert_eq!(refusal(Family::Llama, "model_type", json!(null)), "model_type");
    assert_eq!(refusal(Family::Llama, "hidden_act", json!("gelu")), "hidden_act");
    assert_eq!(
        refusal(Family::Llama, "attention_bias", json!(true)),
        "attention_bias"
    );
    assert_eq!(
        refusal(Family::Qwen3, "attention_bias", json!(true)),
        "attention_bias"
    );
    assert_eq!(refusal(Family::Llama, "mlp_bias", json!(true)), "mlp_bias");
    assert_eq!(
        refusal(Family::Qwen2, "use_sliding_window", json!(true)),
        "use_sliding_window"
    );
    assert_eq!(
        refusal(Family::Qwen2, "layer_types", json!(["sliding_attention"])),
        "layer_types"
    );
    assert_eq!(
        refusal(Family::Qwen2, "quantization_config", json!({"bits": 4})),
        "quantization_config"
    );
    assert_eq!(
        refusal(Family::Qwen2, "num_attention_heads", json!(5)),
        "num_key_value_heads"
    );
    assert_eq!(refusal(Family::Qwen2, "head_dim", json!(7)), "head_dim");
    assert_eq!(refusal(Family::Qwen3, "head_dim", json!(null)), "head_dim");
    assert_eq!(
        refusal(Family::Qwen2, "num_key_value_heads", json!(0)),
        "num_key_value_heads"
    );
    assert_eq!(
        refusal(Family::Qwen2, "num_key_value_heads", json!(null)),
        "num_key_value_heads"
    );
    assert_eq!(
        refusal(Family::Llama, "vocab_size", json!(1_u64 << 40)),
        "vocab_size"
    );
    assert_eq!(
        refusal(Family::Llama, "num_hidden_layers", json!(1_u64 << 40)),
        "num_hidden_layers"
    );
    assert_eq!(refusal(Family::Llama, "eos_token_id", json!(97)), "eos_token_id");
    assert_eq!(refusal(Family::Llama, "bos_token_id", json!(97)), "bos_token_id");
    assert_eq!(refusal(Family::Llama, "rms_norm_eps", json!(0.0)), "rms_norm_eps");
    for theta in [-1.0, 1e-300, 1.0, 1e300] {
        assert_eq!(refusal(Family::Llama, "rope_theta", json!(theta)), "rope_theta");
    }
    let scaling = |value| refusal(Family::Llama, "rope_scaling", value);
    assert_eq!(
        scaling(json!({"rope_type": "longrope"})),
        "rope_scaling.rope_type"
    );
    assert_eq!(scaling(json!({"rope_type": "linear"})), "rope_scaling.factor");
    assert_eq!(
        scaling(json!({"rope_type": "linear", "factor": 0.5})),
        "rope_scaling.factor"
    );
    assert_eq!(
        scaling(json!({"rope_type": "yarn", "factor": 2.0, "attention_factor": 1e300})),
        "rope_scaling.attention_factor"
    );
    assert_eq!(
        scaling(json!({"rope_type": "yarn", "factor": 2.0, "mscale": 1.0, "mscale_all_dim": 1e-300})),
        "rope_scaling.mscale_all_dim"
    );
    assert_eq!(
        scaling(
            json!({"rope_type": "llama3", "factor": 2.0, "low_freq_factor": 4.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8})
        ),
        "rope_scaling.high_freq_factor"
    );
    assert_eq!(
        scaling(json!({"rope_type": "default", "partial_rotary_factor": 0.5})),
        "partial_rotary_factor"
    );
}

#[test]
fn sizes_that_multiply_beyond_reason_are_refused() {
    let mut config = small(Family::Llama);
    config.vocabulary_size = 1 << 24;
    config.hidden_size = 1 << 24;
    assert!(matches!(config.validate(), Err(ModelError::ConfigValue { key, .. }) if key == "hidden_size"));
    assert_eq!(config.validate().unwrap_err().to_string().lines().count(), 1);
}

#[test]
fn plain_and_linear_frequencies_are_the_textbook_ones() {
    let (plain, scale) = small(Family::Llama).inverse_frequencies();
    assert_eq!(scale, 1.0);
    // 10000^(-2i/8)
    for (frequency, expected) in plain.iter().zip([1.0f32, 0.1, 0.01, 0.001]) {
        assert!(
            (frequency - expected).abs() <= expected * 1e-6,
            "{frequency} {expected}"
        );
    }
    let mut config = small(Family::Llama);
    config.rope_scaling = RopeScaling::Linear { factor: 4.0 };
    let (linear, _) = config.inverse_frequencies();
    assert!(
        linear
            .iter()
            .zip(&plain)
            .all(|(&left, &right)| left == right / 4.0)
    );
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in ".{0,200}") {
        let _ = DecoderConfig::from_json(&text);
    }

    /// Mutilates a good file: a random value under a random known key, and a cut.
    #[test]
    fn no_value_makes_the_reader_panic(
        key in prop::sample::select(vec![
            "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
            "num_key_value_heads", "head_dim", "rms_norm_eps", "rope_theta", "rope_scaling", "rope_parameters",
            "max_position_embeddings", "tie_word_embeddings", "eos_token_id", "bos_token_id", "initializer_range",
        ]),
        value in prop_oneof![
            any::<u64>().prop_map(serde_json::Value::from),
            any::<i64>().prop_map(serde_json::Value::from),
            any::<f64>().prop_map(serde_json::Value::from),
            any::<bool>().prop_map(serde_json::Value::from),
            ".{0,8}".prop_map(serde_json::Value::from),
            (any::<f64>(), any::<u32>()).prop_map(|(factor, original)| serde_json::json!({
                "rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original,
            })),
        ],
        family in prop::sample::select(Family::ALL.to_vec()),
        cut in 0usize..2000,
    ) {
        let mut file: serde_json::Value = serde_json::from_str(&small(family).to_json()).unwrap();
        file[key] = value;
        if let Ok(config) = DecoderConfig::from_json(&file.to_string()) {
            prop_assert!(config.validate().is_ok());
            if config.head_dim < 4096 {
                let (frequencies, scale) = config.inverse_frequencies();
                prop_assert_eq!(frequencies.len(), config.head_dim / 2);
                prop_assert!(frequencies.iter().all(|frequency| frequency.is_finite()));
                prop_assert!(scale > 0.0 && scale.is_finite());
            }
        }
        let text = file.to_string();
        if let Some(start) = text.get(..cut.min(text.len() - 1)) {
            prop_assert!(DecoderConfig::from_json(start).is_err());
        }
    }
}
