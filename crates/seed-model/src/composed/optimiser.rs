//! The AdamW step on the device.
//!
//! Not for: the options and the saved state, which are [`crate::AdamW`]'s.

use std::sync::Arc;

use candle_core::{Result, Tensor};

use super::training::DeviceGradients;
use super::{ComposedDecoder, Weight, failure, host};
use crate::error::ModelError;
use crate::optimiser::AdamWOptions;
use crate::parameters::Parameters;
use crate::placement::Place;

/// The two moments of every trained tensor, in f32.
#[derive(Clone, Debug)]
pub(crate) struct DeviceMoments {
    place: Place,
    first: Vec<Tensor>,
    second: Vec<Tensor>,
}

/// The numbers of one step, as PyTorch computes them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepFactors {
    first_weight: f64,
    second_decay: f64,
    /// Root of the second moment's correction.
    correction: f64,
    epsilon: f64,
    step_size: f64,
    /// What is left of a weight that decays.
    decay: f64,
    decay_vectors: bool,
}

impl StepFactors {
    /// For the step of this number, from 1.
    pub(crate) fn new(options: &AdamWOptions, step: u64, learning_rate: f64) -> Self {
        // A decay rate means the decimal that it was written as: 0.999 and not the nearest f32.
        let widen = |value: f32| value.to_string().parse().unwrap_or(f64::from(value));
        let (beta1, beta2): (f64, f64) = (widen(options.beta1), widen(options.beta2));
        let step = i32::try_from(step).unwrap_or(i32::MAX);
        Self {
            first_weight: 1.0 - beta1,
            second_decay: beta2,
            correction: (1.0 - beta2.powi(step)).sqrt(),
            epsilon: f64::from(options.epsilon),
            step_size: learning_rate / (1.0 - beta1.powi(step)),
            decay: 1.0 - learning_rate * widen(options.weight_decay),
            decay_vectors: options.decay_vectors,
        }
    }
}

impl DeviceMoments {
    /// Copies both moments to the host.
    pub(crate) fn read(
        &self,
        first: &mut Parameters,
        second: &mut Parameters,
    ) -> std::result::Result<(), ModelError> {
        for (tensors, parameters) in [(&self.first, first), (&self.second, second)] {
            for (index, tensor) in tensors.iter().enumerate() {
                let values = host(tensor).map_err(|error| failure(self.place, &error))?;
                parameters.get_mut(index).copy_from_slice(&values);
            }
        }
        Ok(())
    }
}

impl ComposedDecoder {
    /// Copies moments to the device.
    pub(crate) fn moments(
        &self,
        first: &Parameters,
        second: &Parameters,
    ) -> std::result::Result<DeviceMoments, ModelError> {
        let upload = |parameters: &Parameters| -> Result<Vec<Tensor>> {
            parameters
                .iter()
                .map(|tensor| Tensor::from_slice(tensor.values, tensor.shape, &self.device))
                .collect()
        };
        let moments = || -> Result<DeviceMoments> {
            Ok(DeviceMoments {
                place: self.place,
                first: upload(first)?,
                second: upload(second)?,
            })
        };
        moments().map_err(|error| self.failed(&error))
    }

    /// Copies gradients to the device.
    pub(crate) fn gradients(&self, values: &Parameters) -> std::result::Result<DeviceGradients, ModelError> {
        let sums = values
            .iter()
            .map(|tensor| Tensor::from_slice(tensor.values, tensor.shape, &self.device).map(Some))
            .collect::<Result<_>>();
        Ok(DeviceGradients {
            sums: sums.map_err(|error| self.failed(&error))?,
        })
    }

    /// Euclidean norm of all gradients, and the first tensor whose own is not finite.
    pub(crate) fn gradient_norm(
        &self,
        gradients: &DeviceGradients,
    ) -> std::result::Result<(f64, Option<usize>), ModelError> {
        let squares = || -> Result<Vec<(usize, f32)>> {
            let (mut indices, mut sums) = (Vec::new(), Vec::new());
            for (index, sum) in gradients.sums.iter().enumerate() {
                if let Some(sum) = sum {
                    indices.push(index);
                    // Row by row first: one chain of additions over all values would round too much away.
                    let last = sum.rank() - 1;
                    sums.push(sum.sqr()?.sum(last)?.flatten_all()?.sum_all()?);
                }
            }
            if sums.is_empty() {
                return Ok(Vec::new());
            }
            // One copy to the host for all of them.
            Ok(indices
                .into_iter()
                .zip(host(&Tensor::stack(&sums, 0)?)?)
                .collect())
        };
        let squares = squares().map_err(|error| self.failed(&error))?;
        let norm = squares
            .iter()
            .map(|&(_, square)| f64::from(square))
            .sum::<f64>()
            .sqrt();
        let first = squares.iter().find(|(_, square)| !square.is_finite());
        Ok((norm, first.map(|&(index, _)| index)))
    }

    /// Changes what is trained by one step, with the gradients multiplied by `scale`, and leaves the gradients zero. Tensor by
    /// tensor, so that little is held twice; where it fails half-way, the decoder cannot be used any more.
    pub(crate) fn step(
        &mut self,
        moments: &mut DeviceMoments,
        gradients: &mut DeviceGradients,
        scale: f64,
        factors: &StepFactors,
    ) -> std::result::Result<(), ModelError> {
        self.usable()?;
        let format = self.format;
        let weights = Arc::make_mut(match &mut self.adapter {
            Some(adapter) => &mut adapter.weights,
            None => &mut self.base,
        });
        let mut stepped = || -> Result<()> {
            for (index, weight) in weights.iter_mut().enumerate() {
                let (value, first, second) = step(
                    &weight.master().detach(),
                    &moments.first[index],
                    &moments.second[index],
                    gradients.sums[index].take().as_ref(),
                    scale,
                    factors,
                )?;
                *weight = Weight::new(value, format, true)?;
                moments.first[index] = first;
                moments.second[index] = second;
            }
            Ok(())
        };
        let result = stepped();
        self.is_ahead = true;
        result.map_err(|error| {
            self.poison(format!("a step of the optimiser ended half-way: {error}"));
            self.failed(&error)
        })
    }
}

/// New value, first and second moment of one tensor.
fn step(
    value: &Tensor,
    first: &Tensor,
    second: &Tensor,
    gradient: Option<&Tensor>,
    scale: f64,
    factors: &StepFactors,
) -> Result<(Tensor, Tensor, Tensor)> {
    let gradient = match gradient {
        Some(gradient) if scale == 1.0 => gradient.clone(),
        Some(gradient) => (gradient * scale)?,
        None => value.zeros_like()?,
    };
    let first = (first + ((&gradient - first)? * factors.first_weight)?)?;
    let second = ((second * factors.second_decay)? + (gradient.sqr()? * (1.0 - factors.second_decay))?)?;
    let denominator = ((second.sqrt()? / factors.correction)? + factors.epsilon)?;
    let decays = factors.decay_vectors || value.rank() > 1;
    let value = if decays {
        (value * factors.decay)?
    } else {
        value.clone()
    };
    let value = (value - ((&first / denominator)? * factors.step_size)?)?;
    Ok((value, first, second))
}
