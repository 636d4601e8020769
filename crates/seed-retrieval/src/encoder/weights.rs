//! The encoder's parameters, laid out for its products.
//!
//! Not for: what is computed with them ([`super::forward`]).

use std::path::Path;

use half::{bf16, f16};
use safetensors::{Dtype, SafeTensors};
use seed_kernels::matmul::PackedMatrix;

use super::config::BertConfig;
use crate::RetrievalError;

/// Largest weight file, in bytes: three times the largest BERT.
const WEIGHTS_LIMIT: u64 = 4 << 30;

/// Scale and shift of a layer normalisation, `[hidden]` each.
#[derive(Debug)]
pub(super) struct Norm {
    pub(super) scale: Vec<f32>,
    pub(super) shift: Vec<f32>,
}

/// `x · matrix + bias`.
#[derive(Debug)]
pub(super) struct Linear {
    pub(super) matrix: PackedMatrix,
    pub(super) bias: Vec<f32>,
}

/// One encoder layer.
#[derive(Debug)]
pub(super) struct Layer {
    pub(super) query: Linear,
    pub(super) key: Linear,
    pub(super) value: Linear,
    pub(super) attention_output: Linear,
    pub(super) attention_norm: Norm,
    pub(super) intermediate: Linear,
    pub(super) output: Linear,
    pub(super) output_norm: Norm,
}

/// All parameters.
#[derive(Debug)]
pub(super) struct BertWeights {
    /// `[vocabulary, hidden]`.
    pub(super) words: Vec<f32>,
    /// `[positions, hidden]`.
    pub(super) positions: Vec<f32>,
    /// `[hidden]`: the row of the first segment, the only one used.
    pub(super) segment: Vec<f32>,
    pub(super) embedding_norm: Norm,
    pub(super) layers: Vec<Layer>,
}

impl BertWeights {
    /// Reads `model.safetensors`. Names may begin with `bert.`, as they do where the encoder is a part of a larger
    /// model.
    pub(super) fn read(
        folder: &Path,
        config: &BertConfig,
        hasher: &mut blake3::Hasher,
    ) -> Result<Self, RetrievalError> {
        let path = folder.join("model.safetensors");
        let unusable = |message: String| RetrievalError::Encoder {
            path: path.clone(),
            message,
        };
        let missing =
            |error: std::io::Error| unusable(format!("{error}; weights are read from one safetensors file"));
        let length = fs_err::metadata(&path).map_err(missing)?.len();
        if length > WEIGHTS_LIMIT {
            return Err(unusable(format!(
                "it has {length} bytes, more than {WEIGHTS_LIMIT}"
            )));
        }
        let bytes = fs_err::read(&path).map_err(missing)?;
        hasher.update(&bytes);
        Self::from_bytes(&bytes, config).map_err(unusable)
    }

    fn from_bytes(bytes: &[u8], config: &BertConfig) -> Result<Self, String> {
        let file = SafeTensors::deserialize(bytes).map_err(|error| error.to_string())?;
        let prefix = if file.tensor("bert.embeddings.word_embeddings.weight").is_ok() {
            "bert."
        } else {
            ""
        };
        let tensors = Tensors { file, prefix };
        let hidden = config.hidden_size;
        let mut segments = tensors.read(
            "embeddings.token_type_embeddings.weight",
            &[config.type_vocab_size, hidden],
        )?;
        segments.truncate(hidden);
        Ok(Self {
            words: tensors.read("embeddings.word_embeddings.weight", &[config.vocab_size, hidden])?,
            positions: tensors.read(
                "embeddings.position_embeddings.weight",
                &[config.max_position_embeddings, hidden],
            )?,
            segment: segments,
            embedding_norm: tensors.norm("embeddings.LayerNorm", hidden)?,
            layers: (0..config.num_hidden_layers)
                .map(|index| tensors.layer(index, config))
                .collect::<Result<_, _>>()?,
        })
    }
}

struct Tensors<'a> {
    file: SafeTensors<'a>,
    prefix: &'static str,
}

impl Tensors<'_> {
    fn read(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, String> {
        let name = format!("{}{name}", self.prefix);
        let view = self
            .file
            .tensor(&name)
            .map_err(|_| format!("it has no tensor `{name}`"))?;
        if view.shape() != shape {
            return Err(format!(
                "tensor `{name}` has the shape {:?}, config.json calls for {shape:?}",
                view.shape()
            ));
        }
        let data = view.data();
        let values: Vec<f32> = match view.dtype() {
            Dtype::F32 => data
                .as_chunks::<4>()
                .0
                .iter()
                .map(|&bytes| f32::from_le_bytes(bytes))
                .collect(),
            Dtype::F16 => {
                let halves = data.as_chunks::<2>().0.iter();
                halves.map(|&bytes| f16::from_le_bytes(bytes).to_f32()).collect()
            }
            Dtype::BF16 => {
                let halves = data.as_chunks::<2>().0.iter();
                halves.map(|&bytes| bf16::from_le_bytes(bytes).to_f32()).collect()
            }
            other => {
                return Err(format!(
                    "tensor `{name}` is {other:?}; F32, F16 and BF16 are read"
                ));
            }
        };
        if values.iter().any(|value| !value.is_finite()) {
            return Err(format!("tensor `{name}` holds a number that is not finite"));
        }
        Ok(values)
    }

    fn norm(&self, name: &str, hidden: usize) -> Result<Norm, String> {
        Ok(Norm {
            scale: self.read(&format!("{name}.weight"), &[hidden])?,
            shift: self.read(&format!("{name}.bias"), &[hidden])?,
        })
    }

    fn linear(&self, name: &str, inputs: usize, outputs: usize) -> Result<Linear, String> {
        let weight = self.read(&format!("{name}.weight"), &[outputs, inputs])?;
        Ok(Linear {
            matrix: PackedMatrix::from_transposed(&weight, outputs, inputs),
            bias: self.read(&format!("{name}.bias"), &[outputs])?,
        })
    }

    fn layer(&self, index: usize, config: &BertConfig) -> Result<Layer, String> {
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        let of = |part: &str| format!("encoder.layer.{index}.{part}");
        Ok(Layer {
            query: self.linear(&of("attention.self.query"), hidden, hidden)?,
            key: self.linear(&of("attention.self.key"), hidden, hidden)?,
            value: self.linear(&of("attention.self.value"), hidden, hidden)?,
            attention_output: self.linear(&of("attention.output.dense"), hidden, hidden)?,
            attention_norm: self.norm(&of("attention.output.LayerNorm"), hidden)?,
            intermediate: self.linear(&of("intermediate.dense"), hidden, inner)?,
            output: self.linear(&of("output.dense"), inner, hidden)?,
            output_norm: self.norm(&of("output.LayerNorm"), hidden)?,
        })
    }
}
