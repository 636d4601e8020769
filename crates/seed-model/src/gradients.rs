//! Gradients of all parameters, and their clipping by global norm.
//!
//! Not for: computing them; see [`crate::Decoder::accumulate_gradient`].

use std::collections::BTreeMap;

use seed_kernels::embedding::scatter_add;
use seed_kernels::optimiser::{scale, squared_norm};

#[cfg(feature = "composed")]
use crate::composed::{ComposedDecoder, DeviceGradients};
use crate::config::DecoderConfig;
use crate::decoder::Decoder;
#[cfg(feature = "composed")]
use crate::error::ModelError;
use crate::parameters::Parameters;

/// Derivatives of a loss with respect to every trained value.
///
/// Where the output matrix is the embedding itself, the share which comes in through the embedded tokens is kept
/// apart by token and added on the first reading, so that the order of additions does not depend on how the
/// sequences were split over calls. That is why readers take `&mut self`: read once all is accumulated.
#[derive(Clone, Debug)]
pub struct Gradients {
    values: Parameters,
    /// Derivatives with respect to embedded tokens, by token; only where output matrix and embedding are tied.
    embedded: Option<BTreeMap<u32, Vec<f32>>>,
    hidden_size: usize,
    /// Where a device has them. The values here are then zero.
    #[cfg(feature = "composed")]
    device: Option<DeviceGradients>,
}

/// What gradients of this norm are multiplied by, so that it is at most `maximum`; 1 where it is.
pub(crate) fn clip_factor(norm: f64, maximum: f64) -> f64 {
    (maximum / (norm + 1e-6)).min(1.0)
}

impl Gradients {
    /// All zero, for every parameter of a decoder.
    pub fn zeros(config: &DecoderConfig) -> Self {
        Self {
            values: Parameters::zeros(config),
            embedded: config.tied_embeddings.then(BTreeMap::new),
            hidden_size: config.hidden_size,
            #[cfg(feature = "composed")]
            device: None,
        }
    }

    /// All zero, for what this decoder trains: its adapter where it has one, else all its parameters.
    pub fn of(decoder: &Decoder) -> Self {
        match decoder.adapter() {
            None => Self::zeros(decoder.config()),
            Some(adapter) => Self {
                values: adapter.parameters().zeroed(),
                embedded: None,
                hidden_size: decoder.config().hidden_size,
                #[cfg(feature = "composed")]
                device: None,
            },
        }
    }

    /// Back to zero, keeping the memory.
    pub fn clear(&mut self) {
        let _span = tracing::trace_span!("clear_gradients").entered();
        #[cfg(feature = "composed")]
        if let Some(device) = &mut self.device {
            device.clear();
            return;
        }
        self.values.flat_mut().fill(0.0);
        if let Some(embedded) = &mut self.embedded {
            embedded.clear();
        }
    }

    /// The derivatives, each under the name and in the place of its parameter.
    pub fn values(&mut self) -> &Parameters {
        self.finish();
        &self.values
    }

    /// Whether every derivative is a finite number.
    pub fn is_finite(&mut self) -> bool {
        self.first_non_finite().is_none()
    }

    /// Name of the first tensor with a derivative that is not a finite number.
    pub fn first_non_finite(&mut self) -> Option<&str> {
        self.values()
            .iter()
            .find(|tensor| !tensor.values.iter().all(|value| value.is_finite()))
            .map(|tensor| tensor.name)
    }

    /// Euclidean norm over all parameters, summed in `f64` in a fixed order; not finite if any derivative is not.
    pub fn global_norm(&mut self) -> f64 {
        squared_norm(self.values().flat()).sqrt()
    }

    /// Multiplies every derivative by `factor`.
    pub fn scale(&mut self, factor: f32) {
        self.finish();
        scale(self.values.flat_mut(), factor);
    }

    /// Scales the gradients down to a global norm of `maximum` where it is larger, as PyTorch's `clip_grad_norm_`
    /// does (factor `maximum / (norm + 1e-6)`, at most 1), and returns the norm before. Gradients with a norm that is
    /// not finite are left as they are.
    pub fn clip(&mut self, maximum: f64) -> f64 {
        let norm = self.global_norm();
        let factor = clip_factor(norm, maximum);
        if norm.is_finite() && factor < 1.0 {
            self.scale(factor as f32);
        }
        norm
    }

    /// Number of derivatives.
    pub(crate) fn total(&self) -> usize {
        self.values.total()
    }

    /// The tensor at `index`, without the share kept apart.
    pub(crate) fn get_mut(&mut self, index: usize) -> &mut [f32] {
        self.values.get_mut(index)
    }

    /// Every tensor, without the share kept apart.
    pub(crate) fn split_mut(&mut self) -> Vec<&mut [f32]> {
        self.values.split_mut()
    }

    /// Adds `derivative`, `[tokens, hidden_size]`, to the rows of `tokens` of the embedding, which is tensor `index`.
    pub(crate) fn add_embedded(&mut self, index: usize, tokens: &[u32], derivative: &[f32]) {
        let _span = tracing::trace_span!("add_embedded", rows = tokens.len()).entered();
        let Some(embedded) = &mut self.embedded else {
            scatter_add(derivative, self.hidden_size, tokens, self.values.get_mut(index));
            return;
        };
        for (&token, row) in tokens.iter().zip(derivative.chunks_exact(self.hidden_size)) {
            let sum = embedded
                .entry(token)
                .or_insert_with(|| vec![0.0; self.hidden_size]);
            for (sum, value) in sum.iter_mut().zip(row) {
                *sum += value;
            }
        }
    }

    /// The sums on the device, which have the values from now on until they are read.
    #[cfg(feature = "composed")]
    pub(crate) fn on_device(&mut self, device: &ComposedDecoder) -> Result<&mut DeviceGradients, ModelError> {
        if self.device.is_none() {
            let is_zero = self.values().flat().iter().all(|value| *value == 0.0);
            let sums = if is_zero {
                DeviceGradients::zeros(self.values.len())
            } else {
                device.gradients(&self.values)?
            };
            self.values.flat_mut().fill(0.0);
            self.device = Some(sums);
        }
        Ok(self.device.get_or_insert_default())
    }

    /// Moves the sums of a device here. What cannot be copied is not a number, so that nobody takes it for a gradient.
    #[cfg(feature = "composed")]
    fn bring_home(&mut self) {
        let Some(device) = self.device.take() else {
            return;
        };
        for index in 0..self.values.len() {
            match device.values(index) {
                Ok(Some(values)) => self.values.get_mut(index).copy_from_slice(&values),
                Ok(None) => self.values.get_mut(index).fill(0.0),
                Err(_) => self.values.get_mut(index).fill(f32::NAN),
            }
        }
    }

    /// Adds the share kept apart to its tensor, which is the first in canonical order.
    fn finish(&mut self) {
        #[cfg(feature = "composed")]
        self.bring_home();
        let Some(embedded) = &mut self.embedded else {
            return;
        };
        let table = self.values.get_mut(0);
        for (token, row) in std::mem::take(embedded) {
            let start = token as usize * self.hidden_size;
            for (sum, value) in table[start..start + self.hidden_size].iter_mut().zip(&row) {
                *sum += value;
            }
        }
    }
}
