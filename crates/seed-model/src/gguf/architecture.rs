//! What the keys of a GGUF file say about the decoder, and how its tensors are named there.
//!
//! Not for: the tokenizer ([`super::vocabulary`]).

use super::container::{Container, Tensor, missing, wrong};
use crate::config::{DecoderConfig, Family, RopeScaling};
use crate::error::ModelError;

const ARCHITECTURE: &str = "general.architecture";
const EMBEDDING: &str = "token_embd.weight";
const HEAD: &str = "output.weight";

/// Divides the rotary frequencies of a `llama` with the scaling `llama3`; follows from its configuration.
const ROPE_FACTORS: &str = "rope_freqs.weight";

/// Names of a layer's tensors without `.weight` and `.bias`: in Hugging Face form and in GGUF.
const LAYER_NAMES: [(&str, &str); 11] = [
    ("input_layernorm", "attn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("self_attn.o_proj", "attn_output"),
    ("post_attention_layernorm", "ffn_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

/// The name in GGUF of a parameter named in Hugging Face form.
pub(super) fn tensor_name(name: &str) -> String {
    match name {
        "model.embed_tokens.weight" => EMBEDDING.to_owned(),
        "model.norm.weight" => "output_norm.weight".to_owned(),
        "lm_head.weight" => HEAD.to_owned(),
        _ => {
            let layer = name
                .strip_prefix("model.layers.")
                .and_then(|rest| rest.split_once('.'));
            let parts = layer.and_then(|(layer, rest)| Some((layer, rest.rsplit_once('.')?)));
            let known = parts.and_then(|(layer, (module, kind))| {
                let (_, short) = LAYER_NAMES.iter().find(|(long, _)| *long == module)?;
                Some(format!("blk.{layer}.{short}.{kind}"))
            });
            // Every parameter of a decoder is in the table; another would be reported missing under its own name.
            known.unwrap_or_else(|| name.to_owned())
        }
    }
}

/// The tensor of rotary factors, if there is one.
pub(super) fn rope_factors(container: &Container) -> Option<&Tensor> {
    container.tensor(ROPE_FACTORS)
}

/// Whether a tensor only repeats what a configuration says.
pub(super) fn is_derived(name: &str) -> bool {
    name == ROPE_FACTORS
}

/// Reads the keys of one architecture.
struct Keys<'a> {
    container: &'a Container,
    architecture: &'a str,
}

impl Keys<'_> {
    fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    fn size(&self, key: &str) -> Result<Option<usize>, ModelError> {
        self.container.size(&self.name(key))
    }

    fn needed(&self, key: &str) -> Result<usize, ModelError> {
        self.size(key)?.ok_or_else(|| missing(&self.name(key)))
    }

    fn number(&self, key: &str) -> Result<Option<f64>, ModelError> {
        self.container.number(&self.name(key))
    }

    fn refused(&self, key: &str, problem: impl Into<String>) -> ModelError {
        wrong(&self.name(key), problem)
    }
}

/// The configuration that the keys and the shape of the embedding amount to.
///
/// `rope_factors` are the values of [`ROPE_FACTORS`], if there is such a tensor.
pub(super) fn configuration(
    container: &Container,
    rope_factors: Option<&[f32]>,
) -> Result<DecoderConfig, ModelError> {
    let architecture = container
        .text(ARCHITECTURE)?
        .ok_or_else(|| missing(ARCHITECTURE))?;
    let family = Family::of_model_type(architecture).ok_or_else(|| {
        wrong(
            ARCHITECTURE,
            format!("is `{architecture}`, none of {}", Family::known()),
        )
    })?;
    let keys = Keys {
        container,
        architecture,
    };
    if let Some(experts) = keys.size("expert_count")?.filter(|&experts| experts > 0) {
        return Err(keys.refused(
            "expert_count",
            format!("is `{experts}`: mixtures of experts are not computed here"),
        ));
    }
    let max_positions = keys.needed("context_length")?;
    if let Some(window) = keys.size("attention.sliding_window")?
        && window > 0
        && window < max_positions
    {
        return Err(keys.refused(
            "attention.sliding_window",
            format!("is `{window}`; attention is full here"),
        ));
    }
    let hidden_size = keys.needed("embedding_length")?;
    let query_heads = keys.needed("attention.head_count")?;
    let key_value_heads = keys.size("attention.head_count_kv")?.unwrap_or(query_heads);
    let head_dim = head_dim(&keys, hidden_size, query_heads)?;
    let rope_theta = keys.number("rope.freq_base")?.unwrap_or(10_000.0);
    let embedding = container.tensor(EMBEDDING).ok_or_else(|| {
        wrong(
            ARCHITECTURE,
            format!("needs tensor `{EMBEDDING}`, which the file lacks"),
        )
    })?;
    let mut config = DecoderConfig {
        family,
        vocabulary_size: embedding.shape[0],
        hidden_size,
        intermediate_size: keys.needed("feed_forward_length")?,
        layers: keys.needed("block_count")?,
        query_heads,
        key_value_heads,
        head_dim,
        rms_norm_epsilon: keys
            .number("attention.layer_norm_rms_epsilon")?
            .ok_or_else(|| missing(&keys.name("attention.layer_norm_rms_epsilon")))?
            as f32,
        rope_theta,
        rope_scaling: rope_scaling(&keys, max_positions)?,
        max_positions,
        tied_embeddings: container.tensor(HEAD).is_none(),
        attention_bias: family.attention_bias(),
        query_key_norm: family.query_key_norm(),
        initializer_range: 0.02,
        begin_token: container.token("tokenizer.ggml.bos_token_id")?,
        end_tokens: end_tokens(container)?,
    };
    if let Some(factors) = rope_factors {
        config.rope_scaling = llama3_scaling(&config, factors).ok_or_else(|| {
            keys.refused(
                "rope.scaling.type",
                format!(
                    "is given by tensor `{ROPE_FACTORS}`, whose factors are not those of Llama 3; use the model's Hugging \
                     Face directory"
                ),
            )
        })?;
    }
    // Its message would name a file that is not there.
    config.validate().map_err(|error| match error {
        ModelError::ConfigValue { key, message } => wrong(
            ARCHITECTURE,
            format!("is given sizes that are not computed here: as in a config.json, `{key}` {message}"),
        ),
        other => other,
    })?;
    Ok(config)
}

/// The width of a head; keys, values and rotation must all have it.
fn head_dim(keys: &Keys<'_>, hidden_size: usize, query_heads: usize) -> Result<usize, ModelError> {
    let head_dim = match keys.size("attention.key_length")? {
        Some(length) => length,
        None if query_heads > 0 && hidden_size.is_multiple_of(query_heads) => hidden_size / query_heads,
        None => {
            return Err(keys.refused(
                "attention.head_count",
                format!("is `{query_heads}`, which does not divide the width `{hidden_size}`"),
            ));
        }
    };
    for key in ["attention.value_length", "rope.dimension_count"] {
        if let Some(width) = keys.size(key)?
            && width != head_dim
        {
            return Err(keys.refused(
                key,
                format!("is `{width}`; only the width of a whole head, `{head_dim}`, is computed here"),
            ));
        }
    }
    Ok(head_dim)
}

fn rope_scaling(keys: &Keys<'_>, max_positions: usize) -> Result<RopeScaling, ModelError> {
    let key = "rope.scaling.type";
    let kind = keys.container.text(&keys.name(key))?;
    let factor = || {
        keys.number("rope.scaling.factor")?
            .ok_or_else(|| missing(&keys.name("rope.scaling.factor")))
    };
    match kind {
        None | Some("none") => Ok(RopeScaling::None),
        Some("linear") => Ok(RopeScaling::Linear { factor: factor()? }),
        Some("yarn") => Ok(RopeScaling::Yarn {
            factor: factor()?,
            original_max_positions: keys
                .size("rope.scaling.original_context_length")?
                .unwrap_or(max_positions),
            attention_factor: keys.number("rope.scaling.attn_factor")?,
            beta_fast: 32.0,
            beta_slow: 1.0,
            mscale: None,
            mscale_all_dimensions: None,
            truncate: true,
        }),
        Some(other) => Err(keys.refused(key, format!("is `{other}`, none of `none`, `linear`, `yarn`"))),
    }
}

/// The scaling `llama3` whose factors these are. Files do not name its parameters, which are the same for all of Llama 3
/// but for the largest factor; that one scales the lowest frequencies.
fn llama3_scaling(config: &DecoderConfig, factors: &[f32]) -> Option<RopeScaling> {
    let factor = factors.iter().copied().fold(1.0, f32::max);
    let scaling = RopeScaling::Llama3 {
        factor: f64::from(factor),
        low_frequency_factor: 1.0,
        high_frequency_factor: 4.0,
        original_max_positions: 8192,
    };
    if config.family != Family::Llama || factors.len() != config.head_dim / 2 {
        return None;
    }
    let scaled = DecoderConfig {
        rope_scaling: scaling.clone(),
        ..config.clone()
    };
    let (plain, scaled) = (config.inverse_frequencies().0, scaled.inverse_frequencies().0);
    let same = plain
        .iter()
        .zip(&scaled)
        .zip(factors)
        .all(|((plain, scaled), factor)| (plain / scaled - factor).abs() <= 1e-4 * factor);
    same.then_some(scaling)
}

/// End of sequence, end of turn, end of message.
fn end_tokens(container: &Container) -> Result<Vec<u32>, ModelError> {
    let mut tokens = Vec::new();
    for key in ["eos", "eot", "eom"] {
        if let Some(token) = container.token(&format!("tokenizer.ggml.{key}_token_id"))?
            && !tokens.contains(&token)
        {
            tokens.push(token);
        }
    }
    Ok(tokens)
}
