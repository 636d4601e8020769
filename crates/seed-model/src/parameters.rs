//! The values of a decoder or of an adapter: named tensors in one flat buffer.
//!
//! One buffer in canonical order lets an optimiser, a norm or a digest walk everything in a fixed order without
//! knowing of layers. Not for: packed or transposed copies, which belong to the decoder that multiplies with them.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use seed_random::{Draw, RandomKey};

use crate::config::DecoderConfig;
use crate::error::ModelError;

/// Names, shapes and places, shared by all copies (weights, gradients, optimiser state).
#[derive(Debug)]
struct Layout {
    tensors: Vec<Tensor>,
    /// Only ever looked up, never iterated.
    by_name: HashMap<String, usize>,
}

#[derive(Debug)]
struct Tensor {
    name: String,
    shape: Vec<usize>,
    range: Range<usize>,
}

impl Layout {
    fn new(shapes: Vec<(String, Vec<usize>)>) -> Self {
        let mut end = 0;
        let mut by_name = HashMap::new();
        let mut tensors = Vec::new();
        for (index, (name, shape)) in shapes.into_iter().enumerate() {
            let start = end;
            end += shape.iter().product::<usize>();
            by_name.insert(name.clone(), index);
            tensors.push(Tensor {
                name,
                shape,
                range: start..end,
            });
        }
        Self { tensors, by_name }
    }

    /// Number of values in all tensors together.
    fn total(&self) -> usize {
        self.tensors.last().map_or(0, |tensor| tensor.range.end)
    }
}

/// All parameters of a decoder in f32, in the order of [`DecoderConfig::parameter_shapes`], or those of an adapter.
///
/// A clone shares the names and copies the values.
#[derive(Clone, Debug)]
pub struct Parameters {
    layout: Arc<Layout>,
    values: Vec<f32>,
}

/// One tensor of [`Parameters`], borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Parameter<'a> {
    /// Name in Hugging Face form.
    pub name: &'a str,
    /// Sizes; a matrix is `[outputs, inputs]`.
    pub shape: &'a [usize],
    /// Values, row-major.
    pub values: &'a [f32],
}

impl Parameters {
    /// All values zero.
    ///
    /// Aborts the program, as every allocation does, where there is no memory for them.
    pub fn zeros(config: &DecoderConfig) -> Self {
        Self::of_shapes(config.parameter_shapes())
    }

    /// Tensors of these names and shapes, all values zero.
    pub(crate) fn of_shapes(shapes: Vec<(String, Vec<usize>)>) -> Self {
        let layout = Layout::new(shapes);
        Self {
            values: vec![0.0; layout.total()],
            layout: Arc::new(layout),
        }
    }

    /// The same tensors with all values zero.
    pub(crate) fn zeroed(&self) -> Self {
        Self {
            layout: Arc::clone(&self.layout),
            values: vec![0.0; self.values.len()],
        }
    }

    /// All values zero, or [`ModelError::OutOfMemory`].
    pub(crate) fn try_zeros(config: &DecoderConfig) -> Result<Self, ModelError> {
        let layout = Layout::new(config.parameter_shapes());
        let total = layout.total();
        let mut values = Vec::new();
        values
            .try_reserve_exact(total)
            .map_err(|_| ModelError::OutOfMemory {
                parameters: total,
                bytes: config.parameter_count().saturating_mul(size_of::<f32>() as u64),
            })?;
        values.resize(total, 0.0);
        Ok(Self {
            layout: Arc::new(layout),
            values,
        })
    }

    /// Fresh values: matrices normal with standard deviation `initializer_range`, divided by `sqrt(2 * layers)` for
    /// the two projections that write to the residual stream (so that its variance does not grow with depth),
    /// norm weights 1, biases 0.
    ///
    /// Every tensor draws from its own stream, so the values of one do not depend on the presence of another.
    pub fn initialise(config: &DecoderConfig, key: RandomKey) -> Self {
        let mut parameters = Self::zeros(config);
        let residual_scale = 1.0 / (2.0 * config.layers as f64).sqrt();
        for index in 0..parameters.len() {
            let name = parameters.name(index).to_owned();
            let values = parameters.get_mut(index);
            if name.ends_with("norm.weight") {
                values.fill(1.0);
            } else if !name.ends_with("proj.bias") {
                let writes_residual = name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight");
                let scale = if writes_residual { residual_scale } else { 1.0 };
                let deviation = f64::from(config.initializer_range) * scale;
                let mut generator = key.with_text("parameter", &name).generator();
                fill_normal(values, deviation, &mut generator);
            }
        }
        parameters
    }

    /// Number of tensors.
    pub fn len(&self) -> usize {
        self.layout.tensors.len()
    }

    /// Whether there is no tensor at all; false for every valid configuration.
    pub fn is_empty(&self) -> bool {
        self.layout.tensors.is_empty()
    }

    /// Number of values in all tensors together.
    pub fn total(&self) -> usize {
        self.values.len()
    }

    /// Position of the tensor called `name`.
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.layout.by_name.get(name).copied()
    }

    /// Name of tensor `index` in Hugging Face form.
    ///
    /// # Panics
    /// Where `index` is not below [`Parameters::len`]; so do the other accessors by index.
    pub fn name(&self, index: usize) -> &str {
        &self.layout.tensors[index].name
    }

    /// Shape of tensor `index`.
    pub fn shape(&self, index: usize) -> &[usize] {
        &self.layout.tensors[index].shape
    }

    /// Where the values of tensor `index` lie in [`Parameters::flat`].
    pub fn range(&self, index: usize) -> Range<usize> {
        self.layout.tensors[index].range.clone()
    }

    /// Values of tensor `index`, row-major.
    pub fn get(&self, index: usize) -> &[f32] {
        &self.values[self.range(index)]
    }

    /// Values of tensor `index`, row-major, to be changed.
    pub fn get_mut(&mut self, index: usize) -> &mut [f32] {
        let range = self.range(index);
        &mut self.values[range]
    }

    /// The values of every tensor in canonical order, to be changed side by side.
    pub(crate) fn split_mut(&mut self) -> Vec<&mut [f32]> {
        let mut rest = self.values.as_mut_slice();
        self.layout
            .tensors
            .iter()
            .map(|tensor| {
                // Tensors lie end to end, in this order.
                let (values, tail) = std::mem::take(&mut rest).split_at_mut(tensor.range.len());
                rest = tail;
                values
            })
            .collect()
    }

    /// All tensors in canonical order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Parameter<'_>> {
        self.layout.tensors.iter().map(|tensor| Parameter {
            name: &tensor.name,
            shape: &tensor.shape,
            values: &self.values[tensor.range.clone()],
        })
    }

    /// All values in canonical order.
    pub fn flat(&self) -> &[f32] {
        &self.values
    }

    /// All values in canonical order, to be changed.
    pub fn flat_mut(&mut self) -> &mut [f32] {
        &mut self.values
    }

    /// Hash of names, shapes and the exact bits of all values: equal digests mean the same model.
    pub fn digest(&self) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new();
        let mut bytes = Vec::with_capacity(4 * DIGEST_CHUNK);
        for parameter in self.iter() {
            // Length prefixes keep different lists of names and shapes apart.
            hasher.update(&(parameter.name.len() as u64).to_le_bytes());
            hasher.update(parameter.name.as_bytes());
            hasher.update(&(parameter.shape.len() as u64).to_le_bytes());
            for &size in parameter.shape {
                hasher.update(&(size as u64).to_le_bytes());
            }
            for chunk in parameter.values.chunks(DIGEST_CHUNK) {
                bytes.clear();
                bytes.extend(chunk.iter().flat_map(|value| value.to_le_bytes()));
                hasher.update(&bytes);
            }
        }
        hasher.finalize()
    }
}

/// Values converted to bytes at a time.
const DIGEST_CHUNK: usize = 16 * 1024;

/// Marsaglia's polar method. Its only inexact step is a logarithm, taken from a library that gives the same bits on
/// every machine.
fn fill_normal(values: &mut [f32], deviation: f64, generator: &mut impl Draw) {
    for pair in values.chunks_mut(2) {
        let (x, y, square) = loop {
            let (x, y) = (2.0 * generator.unit() - 1.0, 2.0 * generator.unit() - 1.0);
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                break (x, y, square);
            }
        };
        let radius = deviation * (-2.0 * libm::log(square) / square).sqrt();
        for (value, coordinate) in pair.iter_mut().zip([x, y]) {
            *value = (coordinate * radius) as f32;
        }
    }
}

#[cfg(test)]
mod tests;
