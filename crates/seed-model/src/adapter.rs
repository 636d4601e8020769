//! Low-rank adapters (LoRA, arXiv 2106.09685): small matrices beside frozen ones, which are trained in their place.
//!
//! A linear layer `y = x·Wᵀ + b` with an adapter computes `y = x·Wᵀ + b + s·(x·Aᵀ)·Bᵀ`, where `A` is `[rank, inputs]`,
//! `B` is `[outputs, rank]` and `s` is the [`AdapterOptions::scale`]. A decoder with an adapter trains the adapter alone.
//!
//! Not for: the products themselves (`layer`, `backward`), files ([`crate::directory`]), or dropout, which adapters do not have here: what was sampled
//! is what is trained.

mod packed;

use std::sync::Arc;

use seed_random::{Draw, RandomKey};

pub(crate) use packed::{AdapterWeights, LayerAdapter, LayerPairs};

use crate::config::DecoderConfig;
use crate::error::ModelError;
use crate::parameters::Parameters;

/// What PEFT puts before the names of the base's modules.
const PREFIX: &str = "base_model.model.";

/// A matrix of every decoder layer that an adapter can stand beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// The query projection, `q_proj`.
    Query,
    /// The key projection, `k_proj`.
    Key,
    /// The value projection, `v_proj`.
    Value,
    /// The output projection of attention, `o_proj`.
    Output,
    /// The gate of the feed-forward part, `gate_proj`.
    Gate,
    /// Its input projection, `up_proj`.
    Up,
    /// Its output projection, `down_proj`.
    Down,
}

impl Target {
    /// All of them, in the order of a layer's computation.
    pub const ALL: [Self; 7] = [
        Self::Query,
        Self::Key,
        Self::Value,
        Self::Output,
        Self::Gate,
        Self::Up,
        Self::Down,
    ];

    /// The name which Hugging Face and PEFT know it by.
    pub fn name(self) -> &'static str {
        match self {
            Self::Query => "q_proj",
            Self::Key => "k_proj",
            Self::Value => "v_proj",
            Self::Output => "o_proj",
            Self::Gate => "gate_proj",
            Self::Up => "up_proj",
            Self::Down => "down_proj",
        }
    }

    /// The target of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|target| target.name() == name)
    }

    /// Its place in [`Target::ALL`].
    pub(crate) fn index(self) -> usize {
        self as usize
    }

    /// The module's path in one layer of the base.
    fn module(self, layer: usize) -> String {
        let part = match self {
            Self::Query | Self::Key | Self::Value | Self::Output => "self_attn",
            Self::Gate | Self::Up | Self::Down => "mlp",
        };
        format!("model.layers.{layer}.{part}.{}", self.name())
    }

    /// Outputs and inputs of the matrix.
    fn sizes(self, config: &DecoderConfig) -> (usize, usize) {
        let query_width = config.query_heads * config.head_dim;
        let key_width = config.key_value_heads * config.head_dim;
        match self {
            Self::Query => (query_width, config.hidden_size),
            Self::Key | Self::Value => (key_width, config.hidden_size),
            Self::Output => (config.hidden_size, query_width),
            Self::Gate | Self::Up => (config.intermediate_size, config.hidden_size),
            Self::Down => (config.hidden_size, config.intermediate_size),
        }
    }
}

/// The shape of an adapter.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterOptions {
    /// Which matrices of every layer it stands beside.
    pub targets: Vec<Target>,
    /// Width between its two matrices.
    pub rank: usize,
    /// Numerator of the scale.
    pub alpha: f64,
    /// Whether the root of the rank divides alpha, as in rsLoRA (arXiv 2312.03732), and not the rank itself.
    pub rank_stabilised: bool,
}

impl AdapterOptions {
    /// The factor of what the adapter adds: alpha over the rank or over its root, rounded once to f32.
    pub fn scale(&self) -> f32 {
        let rank = self.rank as f64;
        let divisor = if self.rank_stabilised { rank.sqrt() } else { rank };
        (self.alpha / divisor) as f32
    }

    /// Checks the ranges, and brings the targets into the order of [`Target::ALL`], each once.
    ///
    /// # Errors
    /// [`ModelError::Setting`] for no target, a rank of zero, or an alpha that is not a positive number.
    pub fn validated(mut self) -> Result<Self, ModelError> {
        let setting = |setting, value: String, allowed| {
            Err(ModelError::Setting {
                owner: "adapter".to_owned(),
                setting,
                value,
                allowed,
            })
        };
        if self.targets.is_empty() {
            return setting("targets", "empty".to_owned(), "at least one matrix");
        }
        if self.rank == 0 {
            return setting("rank", "0".to_owned(), "at least 1");
        }
        if !(self.alpha.is_finite() && self.alpha > 0.0) {
            return setting("alpha", self.alpha.to_string(), "a positive number");
        }
        self.targets.sort_unstable();
        self.targets.dedup();
        Ok(self)
    }

    /// Names, in PEFT's form, and shapes of the adapter's tensors for a base: layer by layer, `A` before `B`.
    pub fn parameter_shapes(&self, config: &DecoderConfig) -> Vec<(String, Vec<usize>)> {
        (0..config.layers)
            .flat_map(|layer| self.targets.iter().map(move |&target| (layer, target)))
            .flat_map(|(layer, target)| {
                let (outputs, inputs) = target.sizes(config);
                let module = target.module(layer);
                [
                    (format!("{PREFIX}{module}.lora_A.weight"), vec![self.rank, inputs]),
                    (
                        format!("{PREFIX}{module}.lora_B.weight"),
                        vec![outputs, self.rank],
                    ),
                ]
            })
            .collect()
    }
}

/// An adapter: its shape and its trained values. A clone shares the values.
#[derive(Clone, Debug)]
pub struct Adapter {
    options: AdapterOptions,
    parameters: Arc<Parameters>,
}

impl Adapter {
    /// A fresh adapter, which changes nothing yet: every `A` uniform within `1 / sqrt(inputs)` of zero, as PEFT draws it
    /// (Kaiming's rule with slope √5), every `B` zero. Each tensor draws from a stream of its own.
    ///
    /// # Errors
    /// As [`AdapterOptions::validated`].
    pub fn initialise(
        options: AdapterOptions,
        config: &DecoderConfig,
        key: RandomKey,
    ) -> Result<Self, ModelError> {
        let options = options.validated()?;
        let mut parameters = Parameters::of_shapes(options.parameter_shapes(config));
        for index in 0..parameters.len() {
            let name = parameters.name(index).to_owned();
            if !name.ends_with("lora_A.weight") {
                continue;
            }
            let bound = 1.0 / (parameters.shape(index)[1] as f64).sqrt();
            let mut generator = key.with_text("parameter", &name).generator();
            for value in parameters.get_mut(index) {
                *value = (bound * (2.0 * generator.unit() - 1.0)) as f32;
            }
        }
        Ok(Self {
            options,
            parameters: Arc::new(parameters),
        })
    }

    /// An adapter with these values, `[rank, inputs]` and `[outputs, rank]` in turn.
    ///
    /// # Errors
    /// As [`AdapterOptions::validated`]; [`ModelError::ParameterMissing`] or [`ModelError::ParameterShape`] where the
    /// tensors are not those of [`AdapterOptions::parameter_shapes`].
    pub fn new(
        options: AdapterOptions,
        config: &DecoderConfig,
        parameters: Parameters,
    ) -> Result<Self, ModelError> {
        let adapter = Self {
            options: options.validated()?,
            parameters: Arc::new(parameters),
        };
        adapter.check(config)?;
        Ok(adapter)
    }

    /// Its shape.
    pub fn options(&self) -> &AdapterOptions {
        &self.options
    }

    /// Its values, under PEFT's names.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Whether every `B` is zero, so that the adapter adds nothing.
    pub fn is_neutral(&self) -> bool {
        self.parameters
            .iter()
            .filter(|tensor| tensor.name.ends_with("lora_B.weight"))
            .all(|tensor| tensor.values.iter().all(|value| *value == 0.0))
    }

    /// Whether it fits a base of this configuration.
    fn check(&self, config: &DecoderConfig) -> Result<(), ModelError> {
        let shapes = self.options.parameter_shapes(config);
        for (index, (name, expected)) in shapes.iter().enumerate() {
            let found = self
                .parameters
                .index_of(name)
                .ok_or_else(|| ModelError::ParameterMissing { name: name.clone() })?;
            if found != index || self.parameters.shape(found) != expected.as_slice() {
                return Err(ModelError::ParameterShape {
                    name: name.clone(),
                    expected: expected.clone(),
                    found: self.parameters.shape(found).to_vec(),
                });
            }
        }
        match self.parameters.iter().nth(shapes.len()) {
            Some(extra) => Err(ModelError::ParameterShape {
                name: extra.name.to_owned(),
                expected: Vec::new(),
                found: extra.shape.to_vec(),
            }),
            None => Ok(()),
        }
    }

    /// The base's parameters with the adapter added to its matrices, `W + s·B·A`: each sum in f64, rounded once.
    ///
    /// # Errors
    /// Where the adapter does not fit the base.
    pub fn merged(&self, config: &DecoderConfig, base: &Parameters) -> Result<Parameters, ModelError> {
        self.check(config)?;
        let mut merged = base.clone();
        let scale = f64::from(self.options.scale());
        let modules = (0..config.layers)
            .flat_map(|layer| self.options.targets.iter().map(move |&target| (layer, target)));
        for (pair, (layer, target)) in modules.enumerate() {
            let name = format!("{}.weight", target.module(layer));
            let index = merged
                .index_of(&name)
                .ok_or(ModelError::ParameterMissing { name })?;
            let (_, inputs) = target.sizes(config);
            // `A` and `B` of each module in turn, as `check` has found them.
            let (down, up) = (self.parameters.get(2 * pair), self.parameters.get(2 * pair + 1));
            let rows = merged.get_mut(index).chunks_exact_mut(inputs);
            let mut sums = vec![0.0_f64; inputs];
            for (row, weights) in rows.zip(up.chunks_exact(self.options.rank)) {
                sums.fill(0.0);
                for (&weight, down) in weights.iter().zip(down.chunks_exact(inputs)) {
                    for (sum, &value) in sums.iter_mut().zip(down) {
                        *sum += f64::from(weight) * f64::from(value);
                    }
                }
                for (value, sum) in row.iter_mut().zip(&sums) {
                    *value = (f64::from(*value) + scale * sum) as f32;
                }
            }
        }
        Ok(merged)
    }
}

#[cfg(test)]
mod tests;
