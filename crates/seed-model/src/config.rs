//! What a decoder looks like: sizes, rotary positions and options, read from and written as a Hugging Face
//! `config.json`.
//!
//! The file is read in two stages: a raw record of everything these families may say, then the checked
//! [`DecoderConfig`]. Options that this program does not compute (sliding windows, other activations, quantised
//! weights, biases on the output projection) are refused by name instead of being ignored.
//!
//! Not for: weights ([`crate::parameters`]) or reading files ([`crate::directory`]).

mod hugging_face;
mod rotary;

use crate::error::ModelError;

pub(crate) use hugging_face::TokenIds;
pub use rotary::RopeScaling;

/// Upper bound of every single dimension: far above any model of these families, low enough that a product of two
/// of them cannot overflow.
const LARGEST_DIMENSION: usize = 1 << 24;

/// Upper bound of the number of layers.
const MOST_LAYERS: usize = 4096;

/// Upper bound of the whole parameter count (four terabytes in f32).
const MOST_PARAMETERS: u64 = 1 << 40;

/// Upper bound of the base of the rotary frequencies, far above any model's: frequencies stay finite in f32. At 1 all
/// frequencies are equal, and the logarithm that YaRN divides by is zero.
const LARGEST_ROPE_THETA: f64 = 1e30;

/// The decoder architectures this crate computes. They differ in a few switches of the same layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// `model_type` `llama`: no biases, no query and key norms. SmolLM2 and many others share it.
    Llama,
    /// `model_type` `qwen2` (also Qwen2.5): biases on the query, key and value projections.
    Qwen2,
    /// `model_type` `qwen3`, dense: an RMS norm on every query and key head, no biases.
    Qwen3,
}

impl Family {
    /// The families, in the order in which messages list them.
    pub const ALL: [Self; 3] = [Self::Llama, Self::Qwen2, Self::Qwen3];

    /// The value of `model_type` in `config.json`.
    pub fn model_type(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
        }
    }

    /// The family with this value of `model_type`.
    pub(crate) fn of_model_type(model_type: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|family| family.model_type() == model_type)
    }

    /// Every value of `model_type`, for messages.
    pub(crate) fn known() -> String {
        Self::ALL
            .map(|family| format!("`{}`", family.model_type()))
            .join(", ")
    }

    /// The class name in `architectures` of `config.json`.
    pub fn architecture(self) -> &'static str {
        match self {
            Self::Llama => "LlamaForCausalLM",
            Self::Qwen2 => "Qwen2ForCausalLM",
            Self::Qwen3 => "Qwen3ForCausalLM",
        }
    }

    /// Whether the query, key and value projections carry a bias.
    pub fn attention_bias(self) -> bool {
        self == Self::Qwen2
    }

    /// Whether every query and key head is RMS-normalised before the rotation.
    pub fn query_key_norm(self) -> bool {
        self == Self::Qwen3
    }
}

/// Everything that fixes the computation of a decoder and the names and shapes of its parameters.
///
/// Build one by hand and call [`DecoderConfig::validate`], or read one with [`DecoderConfig::from_json`].
#[derive(Clone, Debug, PartialEq)]
pub struct DecoderConfig {
    /// The architecture.
    pub family: Family,
    /// Rows of the embedding and of the head. May exceed the tokenizer's count: real models pad it.
    pub vocabulary_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width of the gated feed-forward layer.
    pub intermediate_size: usize,
    /// Number of decoder layers.
    pub layers: usize,
    /// Number of query heads.
    pub query_heads: usize,
    /// Number of key and value heads; divides `query_heads` (grouped-query attention).
    pub key_value_heads: usize,
    /// Width of one head; even. Need not be `hidden_size / query_heads`.
    pub head_dim: usize,
    /// Added to the mean square inside every RMS norm.
    pub rms_norm_epsilon: f32,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// How the rotary frequencies are stretched for long contexts.
    pub rope_scaling: RopeScaling,
    /// Longest sequence, in tokens, that the model was made for.
    pub max_positions: usize,
    /// Whether the head is the embedding matrix; then there is no `lm_head.weight`.
    pub tied_embeddings: bool,
    /// Whether the query, key and value projections carry a bias; fixed by the family.
    pub attention_bias: bool,
    /// Whether every query and key head is RMS-normalised; fixed by the family.
    pub query_key_norm: bool,
    /// Standard deviation of freshly initialised matrices.
    pub initializer_range: f32,
    /// Token that opens a text, where the model has one.
    pub begin_token: Option<u32>,
    /// Tokens that end a response according to `config.json`; a directory may name more
    /// ([`crate::directory::ModelDirectory::end_tokens`]).
    pub end_tokens: Vec<u32>,
}

impl DecoderConfig {
    /// Reads the text of a `config.json`, in the spelling of transformers 4 (`rope_theta`, `rope_scaling`) or 5
    /// (`rope_parameters`).
    ///
    /// # Errors
    /// [`ModelError::ConfigSyntax`] where the text is not such a JSON object, [`ModelError::ConfigValue`] where a
    /// value is missing, out of range, or asks for something these decoders do not compute.
    pub fn from_json(text: &str) -> Result<Self, ModelError> {
        hugging_face::read(text)
    }

    /// The text of a `config.json` that transformers 4 and 5 load as the same model.
    pub fn to_json(&self) -> String {
        hugging_face::write(self)
    }

    /// Checks ranges and the relations between fields.
    ///
    /// # Errors
    /// [`ModelError::ConfigValue`] names the first field, in the spelling of `config.json`, that is wrong.
    pub fn validate(&self) -> Result<(), ModelError> {
        let dimensions = [
            ("vocab_size", self.vocabulary_size),
            ("hidden_size", self.hidden_size),
            ("intermediate_size", self.intermediate_size),
            ("num_attention_heads", self.query_heads),
            ("num_key_value_heads", self.key_value_heads),
            ("head_dim", self.head_dim),
            ("max_position_embeddings", self.max_positions),
        ];
        for (key, value) in dimensions {
            if value == 0 || value > LARGEST_DIMENSION {
                return Err(wrong(
                    key,
                    format!("`{value}` is outside `1..={LARGEST_DIMENSION}`"),
                ));
            }
        }
        if self.layers == 0 || self.layers > MOST_LAYERS {
            return Err(wrong(
                "num_hidden_layers",
                format!("`{}` is outside `1..={MOST_LAYERS}`", self.layers),
            ));
        }
        if !self.query_heads.is_multiple_of(self.key_value_heads) {
            return Err(wrong(
                "num_key_value_heads",
                format!(
                    "`{}` does not divide num_attention_heads `{}`",
                    self.key_value_heads, self.query_heads
                ),
            ));
        }
        if !self.head_dim.is_multiple_of(2) {
            return Err(wrong(
                "head_dim",
                format!("`{}` is odd; rotary positions turn pairs", self.head_dim),
            ));
        }
        if self.query_width().max(self.key_value_width()) > LARGEST_DIMENSION {
            return Err(wrong(
                "head_dim",
                format!("heads x head_dim exceeds `{LARGEST_DIMENSION}`"),
            ));
        }
        if !(self.rms_norm_epsilon.is_finite() && self.rms_norm_epsilon > 0.0) {
            return Err(wrong(
                "rms_norm_eps",
                format!("`{}` is not a positive number", self.rms_norm_epsilon),
            ));
        }
        if !(self.initializer_range.is_finite() && self.initializer_range >= 0.0) {
            return Err(wrong(
                "initializer_range",
                format!("`{}` is negative or not finite", self.initializer_range),
            ));
        }
        if !(self.rope_theta > 1.0 && self.rope_theta <= LARGEST_ROPE_THETA) {
            return Err(wrong(
                "rope_theta",
                format!(
                    "`{}` is not above `1` and at most `{LARGEST_ROPE_THETA:e}`",
                    self.rope_theta
                ),
            ));
        }
        self.rope_scaling.validate()?;
        if self.attention_bias != self.family.attention_bias() {
            return Err(wrong(
                "attention_bias",
                format!(
                    "`{}` is not computed for model_type `{}`: biases on the query, key and value projections belong \
                     to `qwen2`",
                    self.attention_bias,
                    self.family.model_type()
                ),
            ));
        }
        if self.query_key_norm != self.family.query_key_norm() {
            return Err(wrong(
                "model_type",
                "query and key norms belong to `qwen3` and to it alone".to_owned(),
            ));
        }
        for &token in self.end_tokens.iter().chain(&self.begin_token) {
            if token as usize >= self.vocabulary_size {
                return Err(wrong(
                    if self.begin_token == Some(token) {
                        "bos_token_id"
                    } else {
                        "eos_token_id"
                    },
                    format!(
                        "`{token}` is outside the vocabulary of `{}`",
                        self.vocabulary_size
                    ),
                ));
            }
        }
        let total = self.parameter_count();
        if total > MOST_PARAMETERS {
            return Err(wrong(
                "hidden_size",
                format!("the model would have `{total}` parameters"),
            ));
        }
        Ok(())
    }

    /// Width of all query heads together: the output of `q_proj`, the input of `o_proj`.
    pub fn query_width(&self) -> usize {
        self.query_heads.saturating_mul(self.head_dim)
    }

    /// Width of all key heads (and of all value heads) together.
    pub fn key_value_width(&self) -> usize {
        self.key_value_heads.saturating_mul(self.head_dim)
    }

    /// Name and shape of every parameter in canonical order: embedding, layers from the first up, final norm, head
    /// (only if untied). Names are those of Hugging Face checkpoints; a matrix is `[outputs, inputs]`, row-major.
    pub fn parameter_shapes(&self) -> Vec<(String, Vec<usize>)> {
        let mut shapes = vec![(
            "model.embed_tokens.weight".to_owned(),
            vec![self.vocabulary_size, self.hidden_size],
        )];
        for layer in 0..self.layers {
            for (suffix, shape) in self.layer_shapes() {
                shapes.push((format!("model.layers.{layer}.{suffix}"), shape));
            }
        }
        shapes.push(("model.norm.weight".to_owned(), vec![self.hidden_size]));
        if !self.tied_embeddings {
            shapes.push((
                "lm_head.weight".to_owned(),
                vec![self.vocabulary_size, self.hidden_size],
            ));
        }
        shapes
    }

    fn layer_shapes(&self) -> Vec<(&'static str, Vec<usize>)> {
        let (hidden, inner) = (self.hidden_size, self.intermediate_size);
        let (query, key_value) = (self.query_width(), self.key_value_width());
        let mut shapes = vec![("input_layernorm.weight", vec![hidden])];
        shapes.push(("self_attn.q_proj.weight", vec![query, hidden]));
        shapes.push(("self_attn.k_proj.weight", vec![key_value, hidden]));
        shapes.push(("self_attn.v_proj.weight", vec![key_value, hidden]));
        if self.attention_bias {
            shapes.push(("self_attn.q_proj.bias", vec![query]));
            shapes.push(("self_attn.k_proj.bias", vec![key_value]));
            shapes.push(("self_attn.v_proj.bias", vec![key_value]));
        }
        if self.query_key_norm {
            shapes.push(("self_attn.q_norm.weight", vec![self.head_dim]));
            shapes.push(("self_attn.k_norm.weight", vec![self.head_dim]));
        }
        shapes.push(("self_attn.o_proj.weight", vec![hidden, query]));
        shapes.push(("post_attention_layernorm.weight", vec![hidden]));
        shapes.push(("mlp.gate_proj.weight", vec![inner, hidden]));
        shapes.push(("mlp.up_proj.weight", vec![inner, hidden]));
        shapes.push(("mlp.down_proj.weight", vec![hidden, inner]));
        shapes
    }

    /// Number of trained values, without building the list of shapes.
    pub fn parameter_count(&self) -> u64 {
        let elements = |shape: &[usize]| {
            shape
                .iter()
                .fold(1u64, |product, &size| product.saturating_mul(size as u64))
        };
        let layer = self
            .layer_shapes()
            .iter()
            .fold(0u64, |sum, (_, shape)| sum.saturating_add(elements(shape)));
        let matrices = if self.tied_embeddings { 1 } else { 2 };
        elements(&[self.vocabulary_size, self.hidden_size, matrices])
            .saturating_add(layer.saturating_mul(self.layers as u64))
            .saturating_add(self.hidden_size as u64)
    }

    /// The rotary frequency of each of the `head_dim / 2` pairs, in radians per position, and the factor by which
    /// both the cosines and the sines are multiplied (1 except under YaRN).
    ///
    /// Element `i` belongs to the pair of dimensions `(i, i + head_dim / 2)`. Follows the rounding steps of
    /// transformers' f32 tensors, with powers from a library that gives the same bits on every machine.
    pub fn inverse_frequencies(&self) -> (Vec<f32>, f32) {
        rotary::inverse_frequencies(self.rope_theta, self.head_dim, &self.rope_scaling)
    }
}

fn wrong(key: &str, message: String) -> ModelError {
    ModelError::ConfigValue {
        key: key.to_owned(),
        message,
    }
}

#[cfg(test)]
pub(crate) mod tests;
