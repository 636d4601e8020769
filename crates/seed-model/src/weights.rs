//! Where each parameter of a decoder lies, and its matrices packed for multiplication.
//!
//! Not for: loading or naming parameters; the configuration gives their names and shapes.

use seed_kernels::matmul::PackedMatrix;
use std::collections::BTreeMap;

use crate::adapter::Target;
use crate::config::DecoderConfig;
use crate::error::ModelError;
use crate::parameters::Parameters;

/// A linear layer `y = x·Wᵀ + b` with `W` as `[outputs, inputs]`: indices into [`Parameters`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Linear {
    pub(crate) weight: usize,
    pub(crate) bias: Option<usize>,
    pub(crate) outputs: usize,
    pub(crate) inputs: usize,
}

/// Indices of one decoder layer's parameters.
#[derive(Clone, Debug)]
pub(crate) struct LayerLayout {
    pub(crate) input_norm: usize,
    pub(crate) query: Linear,
    pub(crate) key: Linear,
    pub(crate) value: Linear,
    pub(crate) output: Linear,
    /// Weights of the per-head norms of queries and keys (Qwen3).
    pub(crate) query_key_norm: Option<(usize, usize)>,
    pub(crate) middle_norm: usize,
    pub(crate) gate: Linear,
    pub(crate) up: Linear,
    pub(crate) down: Linear,
}

impl LayerLayout {
    pub(crate) fn linear(&self, target: Target) -> &Linear {
        match target {
            Target::Query => &self.query,
            Target::Key => &self.key,
            Target::Value => &self.value,
            Target::Output => &self.output,
            Target::Gate => &self.gate,
            Target::Up => &self.up,
            Target::Down => &self.down,
        }
    }
}

/// Indices of a decoder's parameters.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) embedding: usize,
    pub(crate) layers: Vec<LayerLayout>,
    pub(crate) final_norm: usize,
    /// The output matrix; the embedding itself where the two are tied.
    pub(crate) head: Linear,
}

impl Layout {
    /// Finds every parameter by its Hugging Face name.
    pub(crate) fn new(config: &DecoderConfig) -> Result<Self, ModelError> {
        let shapes = config.parameter_shapes();
        let index: BTreeMap<&str, usize> = shapes
            .iter()
            .enumerate()
            .map(|(position, (name, _))| (name.as_str(), position))
            .collect();
        let find = |name: &str| {
            index
                .get(name)
                .copied()
                .ok_or_else(|| ModelError::ParameterMissing {
                    name: name.to_owned(),
                })
        };
        let linear = |prefix: &str, outputs: usize, inputs: usize| -> Result<Linear, ModelError> {
            let name = format!("{prefix}.weight");
            let weight = find(&name)?;
            let expected = vec![outputs, inputs];
            if shapes[weight].1 != expected {
                let found = shapes[weight].1.clone();
                return Err(ModelError::ParameterShape {
                    name,
                    expected,
                    found,
                });
            }
            let bias = index.get(format!("{prefix}.bias").as_str()).copied();
            Ok(Linear {
                weight,
                bias,
                outputs,
                inputs,
            })
        };
        let hidden = config.hidden_size;
        let query_width = config.query_heads * config.head_dim;
        let key_width = config.key_value_heads * config.head_dim;
        let layers = (0..config.layers)
            .map(|layer| {
                let prefix = format!("model.layers.{layer}");
                let norm = |name: &str| find(&format!("{prefix}.{name}.weight"));
                let attention = format!("{prefix}.self_attn");
                let mlp = format!("{prefix}.mlp");
                Ok(LayerLayout {
                    input_norm: norm("input_layernorm")?,
                    query: linear(&format!("{attention}.q_proj"), query_width, hidden)?,
                    key: linear(&format!("{attention}.k_proj"), key_width, hidden)?,
                    value: linear(&format!("{attention}.v_proj"), key_width, hidden)?,
                    output: linear(&format!("{attention}.o_proj"), hidden, query_width)?,
                    query_key_norm: if config.query_key_norm {
                        Some((norm("self_attn.q_norm")?, norm("self_attn.k_norm")?))
                    } else {
                        None
                    },
                    middle_norm: norm("post_attention_layernorm")?,
                    gate: linear(&format!("{mlp}.gate_proj"), config.intermediate_size, hidden)?,
                    up: linear(&format!("{mlp}.up_proj"), config.intermediate_size, hidden)?,
                    down: linear(&format!("{mlp}.down_proj"), hidden, config.intermediate_size)?,
                })
            })
            .collect::<Result<_, ModelError>>()?;
        let head = if config.tied_embeddings {
            "model.embed_tokens"
        } else {
            "lm_head"
        };
        Ok(Self {
            embedding: find("model.embed_tokens.weight")?,
            layers,
            final_norm: find("model.norm.weight")?,
            head: linear(head, config.vocabulary_size, hidden)?,
        })
    }
}

/// Which product the packed matrices serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// `y = x·Wᵀ`.
    Forward,
    /// `dx = dy·W`.
    Backward,
}

impl Linear {
    /// Its matrix, packed for one direction.
    pub(crate) fn pack(&self, parameters: &Parameters, direction: Direction) -> PackedMatrix {
        let weight = parameters.get(self.weight);
        match direction {
            Direction::Forward => PackedMatrix::from_transposed(weight, self.outputs, self.inputs),
            Direction::Backward => PackedMatrix::from_plain(weight, self.outputs, self.inputs),
        }
    }

    /// Packs its changed matrix into the memory already there.
    pub(crate) fn repack(&self, matrix: &mut PackedMatrix, parameters: &Parameters, direction: Direction) {
        let weight = parameters.get(self.weight);
        match direction {
            Direction::Forward => matrix.repack_transposed(weight),
            Direction::Backward => matrix.repack_plain(weight),
        }
    }
}

/// One layer's matrices, packed.
#[derive(Clone)]
pub(crate) struct PackedLayer {
    pub(crate) query: PackedMatrix,
    pub(crate) key: PackedMatrix,
    pub(crate) value: PackedMatrix,
    pub(crate) output: PackedMatrix,
    pub(crate) gate: PackedMatrix,
    pub(crate) up: PackedMatrix,
    pub(crate) down: PackedMatrix,
}

impl PackedLayer {
    pub(crate) fn matrix(&self, target: Target) -> &PackedMatrix {
        match target {
            Target::Query => &self.query,
            Target::Key => &self.key,
            Target::Value => &self.value,
            Target::Output => &self.output,
            Target::Gate => &self.gate,
            Target::Up => &self.up,
            Target::Down => &self.down,
        }
    }

    /// Each matrix with where it comes from.
    fn matrices<'a>(&'a mut self, layout: &'a LayerLayout) -> [(&'a mut PackedMatrix, &'a Linear); 7] {
        [
            (&mut self.query, &layout.query),
            (&mut self.key, &layout.key),
            (&mut self.value, &layout.value),
            (&mut self.output, &layout.output),
            (&mut self.gate, &layout.gate),
            (&mut self.up, &layout.up),
            (&mut self.down, &layout.down),
        ]
    }
}

/// All matrices of a decoder, packed for one direction.
#[derive(Clone)]
pub(crate) struct PackedWeights {
    direction: Direction,
    pub(crate) layers: Vec<PackedLayer>,
    pub(crate) head: PackedMatrix,
}

impl PackedWeights {
    pub(crate) fn new(layout: &Layout, parameters: &Parameters, direction: Direction) -> Self {
        let pack = |linear: &Linear| linear.pack(parameters, direction);
        Self {
            direction,
            layers: layout
                .layers
                .iter()
                .map(|layer| PackedLayer {
                    query: pack(&layer.query),
                    key: pack(&layer.key),
                    value: pack(&layer.value),
                    output: pack(&layer.output),
                    gate: pack(&layer.gate),
                    up: pack(&layer.up),
                    down: pack(&layer.down),
                })
                .collect(),
            head: pack(&layout.head),
        }
    }

    /// Packs changed parameters into the memory already there.
    pub(crate) fn refresh(&mut self, layout: &Layout, parameters: &Parameters) {
        let direction = self.direction;
        for (packed, layer) in self.layers.iter_mut().zip(&layout.layers) {
            for (matrix, linear) in packed.matrices(layer) {
                linear.repack(matrix, parameters, direction);
            }
        }
        layout.head.repack(&mut self.head, parameters, direction);
    }
}
