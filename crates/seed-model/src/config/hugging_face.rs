//! The `config.json` spelling of a [`DecoderConfig`], both ways.
//!
//! Not for: deciding whether the values make sense, which is [`DecoderConfig::validate`].

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{DecoderConfig, Family, RopeScaling, wrong};
use crate::error::ModelError;

/// One token id, several, or none, as Hugging Face files write `eos_token_id`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(untagged)]
pub(crate) enum TokenIds {
    #[default]
    None,
    One(u32),
    Several(Vec<u32>),
}

impl From<TokenIds> for Vec<u32> {
    fn from(ids: TokenIds) -> Self {
        match ids {
            TokenIds::None => Self::new(),
            TokenIds::One(id) => vec![id],
            TokenIds::Several(ids) => ids,
        }
    }
}

/// The keys of `config.json` that bear on the computation; others (dtype, version, dropout, ...) are not read.
#[derive(Deserialize)]
struct RawConfig {
    model_type: Option<String>,
    vocab_size: Option<usize>,
    hidden_size: Option<usize>,
    intermediate_size: Option<usize>,
    num_hidden_layers: Option<usize>,
    num_attention_heads: Option<usize>,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    rms_norm_eps: Option<f64>,
    rope_theta: Option<f64>,
    rope_scaling: Option<RawRope>,
    rope_parameters: Option<RawRope>,
    max_position_embeddings: Option<usize>,
    tie_word_embeddings: Option<bool>,
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
    hidden_act: Option<String>,
    initializer_range: Option<f64>,
    bos_token_id: Option<u32>,
    #[serde(default)]
    eos_token_id: Option<TokenIds>,
    use_sliding_window: Option<bool>,
    layer_types: Option<Vec<String>>,
    quantization_config: Option<Value>,
}

/// `rope_scaling` of transformers 4 and `rope_parameters` of transformers 5.
#[derive(Default, Deserialize)]
struct RawRope {
    rope_type: Option<String>,
    /// The spelling of `rope_type` before transformers 4.45.
    #[serde(rename = "type")]
    legacy_type: Option<String>,
    rope_theta: Option<f64>,
    partial_rotary_factor: Option<f64>,
    factor: Option<f64>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    original_max_position_embeddings: Option<usize>,
    attention_factor: Option<f64>,
    beta_fast: Option<f64>,
    beta_slow: Option<f64>,
    mscale: Option<f64>,
    mscale_all_dim: Option<f64>,
    truncate: Option<bool>,
}

pub(super) fn read(text: &str) -> Result<DecoderConfig, ModelError> {
    let raw: RawConfig = serde_json::from_str(text).map_err(|source| ModelError::ConfigSyntax { source })?;
    let family = family(raw.model_type.as_deref())?;
    refuse_unsupported(&raw, family)?;
    let hidden_size = required("hidden_size", raw.hidden_size)?;
    let query_heads = required("num_attention_heads", raw.num_attention_heads)?;
    let max_positions = raw.max_position_embeddings.unwrap_or(match family {
        Family::Llama => 2048,
        Family::Qwen2 | Family::Qwen3 => 32_768,
    });
    // Transformers' own class defaults differ per family; only Llama's follows from the other sizes.
    let key_value_heads = match (raw.num_key_value_heads, family) {
        (Some(heads), _) => heads,
        (None, Family::Llama) => query_heads,
        (None, Family::Qwen2 | Family::Qwen3) => return Err(missing("num_key_value_heads")),
    };
    let head_dim = match (raw.head_dim, family) {
        (Some(head_dim), _) => head_dim,
        (None, Family::Qwen3) => return Err(missing("head_dim")),
        (None, Family::Llama | Family::Qwen2) => {
            if query_heads == 0 || !hidden_size.is_multiple_of(query_heads) {
                return Err(wrong(
                    "num_attention_heads",
                    format!(
                        "`{query_heads}` does not divide hidden_size `{hidden_size}` and there is no head_dim"
                    ),
                ));
            }
            hidden_size / query_heads
        }
    };
    let (rope_theta, rope_scaling) = rope(
        raw.rope_theta,
        &raw.rope_parameters.or(raw.rope_scaling).unwrap_or_default(),
        max_positions,
    )?;
    let config = DecoderConfig {
        family,
        vocabulary_size: required("vocab_size", raw.vocab_size)?,
        hidden_size,
        intermediate_size: required("intermediate_size", raw.intermediate_size)?,
        layers: required("num_hidden_layers", raw.num_hidden_layers)?,
        query_heads,
        key_value_heads,
        head_dim,
        rms_norm_epsilon: raw.rms_norm_eps.unwrap_or(1e-6) as f32,
        rope_theta,
        rope_scaling,
        max_positions,
        tied_embeddings: raw.tie_word_embeddings.unwrap_or(false),
        attention_bias: family.attention_bias(),
        query_key_norm: family.query_key_norm(),
        initializer_range: raw.initializer_range.unwrap_or(0.02) as f32,
        begin_token: raw.bos_token_id,
        end_tokens: raw.eos_token_id.unwrap_or_default().into(),
    };
    config.validate()?;
    Ok(config)
}

fn family(model_type: Option<&str>) -> Result<Family, ModelError> {
    let model_type = model_type.ok_or_else(|| missing("model_type"))?;
    Family::of_model_type(model_type).ok_or_else(|| {
        wrong(
            "model_type",
            format!("`{model_type}` is none of {}", Family::known()),
        )
    })
}

fn refuse_unsupported(raw: &RawConfig, family: Family) -> Result<(), ModelError> {
    if let Some(activation) = raw.hidden_act.as_deref()
        && !matches!(activation, "silu" | "swish")
    {
        return Err(wrong(
            "hidden_act",
            format!("`{activation}` is not computed here; only `silu` is"),
        ));
    }
    // Llama and Qwen3 mean by this key a bias on all four projections. Qwen2 has no such key.
    if raw.attention_bias == Some(true) && family != Family::Qwen2 {
        return Err(wrong(
            "attention_bias",
            format!(
                "`true` (a bias on all four projections) is not computed for `{}`",
                family.model_type()
            ),
        ));
    }
    if raw.mlp_bias == Some(true) {
        return Err(wrong("mlp_bias", "`true` is not computed here".to_owned()));
    }
    if raw.use_sliding_window == Some(true) {
        return Err(wrong(
            "use_sliding_window",
            "`true` is not computed here; attention is full".to_owned(),
        ));
    }
    if let Some(kind) = raw
        .layer_types
        .iter()
        .flatten()
        .find(|kind| *kind != "full_attention")
    {
        return Err(wrong(
            "layer_types",
            format!("`{kind}` is not computed here; attention is full"),
        ));
    }
    if raw
        .quantization_config
        .as_ref()
        .is_some_and(|value| !value.is_null())
    {
        return Err(wrong(
            "quantization_config",
            "quantised weights are not read; use a checkpoint in f32, bf16 or f16".to_owned(),
        ));
    }
    Ok(())
}

fn rope(theta: Option<f64>, raw: &RawRope, max_positions: usize) -> Result<(f64, RopeScaling), ModelError> {
    let theta = raw.rope_theta.or(theta).unwrap_or(10_000.0);
    if let Some(part) = raw.partial_rotary_factor
        && part != 1.0
    {
        return Err(wrong(
            "partial_rotary_factor",
            format!("`{part}` is not computed here; whole heads are rotated"),
        ));
    }
    let needed = |key: &str, value: Option<f64>| value.ok_or_else(|| missing(&format!("rope_scaling.{key}")));
    let original = || {
        raw.original_max_position_embeddings
            .ok_or_else(|| missing("rope_scaling.original_max_position_embeddings"))
    };
    let scaling = match raw.rope_type.as_deref().or(raw.legacy_type.as_deref()) {
        None | Some("default") => RopeScaling::None,
        Some("linear") => RopeScaling::Linear {
            factor: needed("factor", raw.factor)?,
        },
        Some("dynamic") => RopeScaling::Dynamic {
            factor: needed("factor", raw.factor)?,
        },
        Some("llama3") => RopeScaling::Llama3 {
            factor: needed("factor", raw.factor)?,
            low_frequency_factor: needed("low_freq_factor", raw.low_freq_factor)?,
            high_frequency_factor: needed("high_freq_factor", raw.high_freq_factor)?,
            original_max_positions: original()?,
        },
        Some("yarn") => RopeScaling::Yarn {
            factor: needed("factor", raw.factor)?,
            // Transformers takes the model's own length where the file does not name the original one.
            original_max_positions: raw.original_max_position_embeddings.unwrap_or(max_positions),
            attention_factor: raw.attention_factor,
            beta_fast: raw.beta_fast.unwrap_or(32.0),
            beta_slow: raw.beta_slow.unwrap_or(1.0),
            mscale: raw.mscale,
            mscale_all_dimensions: raw.mscale_all_dim,
            truncate: raw.truncate.unwrap_or(true),
        },
        Some(other) => {
            return Err(wrong(
                "rope_scaling.rope_type",
                format!("`{other}` is none of `default`, `linear`, `dynamic`, `llama3`, `yarn`"),
            ));
        }
    };
    Ok((theta, scaling))
}

pub(super) fn write(config: &DecoderConfig) -> String {
    let mut keys = Map::new();
    let mut put = |key: &str, value: Value| {
        keys.insert(key.to_owned(), value);
    };
    put("architectures", json!([config.family.architecture()]));
    put("model_type", json!(config.family.model_type()));
    put("vocab_size", json!(config.vocabulary_size));
    put("hidden_size", json!(config.hidden_size));
    put("intermediate_size", json!(config.intermediate_size));
    put("num_hidden_layers", json!(config.layers));
    put("num_attention_heads", json!(config.query_heads));
    put("num_key_value_heads", json!(config.key_value_heads));
    put("head_dim", json!(config.head_dim));
    put("hidden_act", json!("silu"));
    put("rms_norm_eps", short(config.rms_norm_epsilon));
    put("rope_theta", json!(config.rope_theta));
    put("rope_scaling", scaling_value(&config.rope_scaling));
    put("max_position_embeddings", json!(config.max_positions));
    put("tie_word_embeddings", json!(config.tied_embeddings));
    match config.family {
        Family::Llama => {
            put("attention_bias", json!(false));
            put("mlp_bias", json!(false));
        }
        Family::Qwen2 => put("use_sliding_window", json!(false)),
        Family::Qwen3 => {
            put("attention_bias", json!(false));
            put("use_sliding_window", json!(false));
        }
    }
    put("attention_dropout", json!(0.0));
    put("initializer_range", short(config.initializer_range));
    put("bos_token_id", json!(config.begin_token));
    put(
        "eos_token_id",
        match config.end_tokens.as_slice() {
            [] => Value::Null,
            [one] => json!(one),
            several => json!(several),
        },
    );
    // An alternate `Display` of a JSON value is its indented form and cannot fail.
    format!("{:#}\n", Value::Object(keys))
}

fn scaling_value(scaling: &RopeScaling) -> Value {
    match scaling {
        RopeScaling::None => Value::Null,
        RopeScaling::Linear { factor } => json!({"rope_type": "linear", "factor": factor}),
        RopeScaling::Dynamic { factor } => json!({"rope_type": "dynamic", "factor": factor}),
        RopeScaling::Llama3 {
            factor,
            low_frequency_factor,
            high_frequency_factor,
            original_max_positions,
        } => json!({
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": low_frequency_factor,
            "high_freq_factor": high_frequency_factor,
            "original_max_position_embeddings": original_max_positions,
        }),
        RopeScaling::Yarn {
            factor,
            original_max_positions,
            attention_factor,
            beta_fast,
            beta_slow,
            mscale,
            mscale_all_dimensions,
            truncate,
        } => {
            let mut value = json!({
                "rope_type": "yarn",
                "factor": factor,
                "original_max_position_embeddings": original_max_positions,
                "beta_fast": beta_fast,
                "beta_slow": beta_slow,
                "truncate": truncate,
            });
            for (key, optional) in [
                ("attention_factor", attention_factor),
                ("mscale", mscale),
                ("mscale_all_dim", mscale_all_dimensions),
            ] {
                if let Some(number) = optional {
                    value[key] = json!(number);
                }
            }
            value
        }
    }
}

/// An f32 by its shortest decimal form, so that `1e-6` is written as such and not as its f64 neighbour.
fn short(number: f32) -> Value {
    json!(number.to_string().parse::<f64>().unwrap_or(f64::from(number)))
}

fn required(key: &str, value: Option<usize>) -> Result<usize, ModelError> {
    value.ok_or_else(|| missing(key))
}

fn missing(key: &str) -> ModelError {
    wrong(key, "is missing".to_owned())
}
