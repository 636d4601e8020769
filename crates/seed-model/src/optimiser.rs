//! The AdamW optimiser over all parameters, with clipping by global norm and state that can be saved.
//!
//! Not for: when to step or at which rate; see [`crate::schedule`].

use seed_kernels::optimiser::{self, adamw_step};

#[cfg(feature = "composed")]
use crate::composed::{ComposedDecoder, DeviceMoments, StepFactors};
use crate::error::ModelError;
use crate::gradients::Gradients;
#[cfg(feature = "composed")]
use crate::gradients::clip_factor;
use crate::parameters::Parameters;

/// Settings of AdamW; the defaults are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWOptions {
    /// Decay rate of the first moment.
    pub beta1: f32,
    /// Decay rate of the second moment.
    pub beta2: f32,
    /// Added to the root of the second moment.
    pub epsilon: f32,
    /// Decoupled weight decay.
    pub weight_decay: f32,
    /// Whether norm weights and biases decay too, not only matrices.
    pub decay_vectors: bool,
    /// Gradients are scaled down to this global norm; `None` for no clipping.
    pub max_norm: Option<f64>,
}

impl Default for AdamWOptions {
    fn default() -> Self {
        Self {
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.01,
            decay_vectors: false,
            max_norm: Some(1.0),
        }
    }
}

/// What became of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum StepOutcome {
    /// The parameters were changed.
    Applied {
        /// Global norm of the gradients before clipping.
        gradient_norm: f64,
    },
    /// The global norm was not finite: neither parameters nor state were changed.
    SkippedNonFinite {
        /// The norm, infinite or not a number.
        gradient_norm: f64,
        /// First tensor whose gradient is not finite; `None` where each is and only the norm overflows.
        tensor: Option<String>,
    },
}

/// State of AdamW (Loshchilov and Hutter, arXiv 1711.05101) as PyTorch computes it, in `f32`.
#[derive(Clone, Debug)]
pub struct AdamW {
    options: AdamWOptions,
    step: u64,
    first_moment: Parameters,
    second_moment: Parameters,
    /// Where a device steps; the moments here are then as of the last [`AdamW::fetch`].
    #[cfg(feature = "composed")]
    device: Option<DeviceMoments>,
}

/// A tensor of saved state.
#[derive(Clone, Debug, PartialEq)]
pub struct StateTensor {
    /// `first_moment.` or `second_moment.` and the parameter's name.
    pub name: String,
    /// The parameter's shape.
    pub shape: Vec<usize>,
    /// Values, row-major.
    pub values: Vec<f32>,
}

const FIRST_MOMENT: &str = "first_moment.";
const SECOND_MOMENT: &str = "second_moment.";

impl AdamW {
    /// Fresh state for parameters of this layout.
    pub fn new(options: AdamWOptions, parameters: &Parameters) -> Self {
        Self {
            options,
            step: 0,
            first_moment: parameters.zeroed(),
            second_moment: parameters.zeroed(),
            #[cfg(feature = "composed")]
            device: None,
        }
    }

    /// The settings.
    pub fn options(&self) -> &AdamWOptions {
        &self.options
    }

    /// Number of steps applied.
    pub fn steps(&self) -> u64 {
        self.step
    }

    /// Copies the moments from a device, where one has them, for [`AdamW::state`].
    ///
    /// # Errors
    /// Where the device fails.
    pub fn fetch(&mut self) -> Result<(), ModelError> {
        #[cfg(feature = "composed")]
        if let Some(device) = &self.device {
            device.read(&mut self.first_moment, &mut self.second_moment)?;
        }
        Ok(())
    }

    /// As [`AdamW::step`], on the device of the decoder.
    #[cfg(feature = "composed")]
    pub(crate) fn step_on(
        &mut self,
        decoder: &mut ComposedDecoder,
        gradients: &mut Gradients,
        learning_rate: f64,
    ) -> Result<StepOutcome, ModelError> {
        let _span = tracing::debug_span!("optimiser_step").entered();
        let sums = gradients.on_device(decoder)?;
        let (gradient_norm, not_finite) = decoder.gradient_norm(sums)?;
        if !gradient_norm.is_finite() {
            return Ok(StepOutcome::SkippedNonFinite {
                gradient_norm,
                tensor: not_finite.map(|index| self.first_moment.name(index).to_owned()),
            });
        }
        let scale = self
            .options
            .max_norm
            .map_or(1.0, |maximum| clip_factor(gradient_norm, maximum));
        let mut moments = match self.device.take() {
            Some(moments) => moments,
            None => decoder.moments(&self.first_moment, &self.second_moment)?,
        };
        let factors = StepFactors::new(&self.options, self.step + 1, learning_rate);
        let result = decoder.step(&mut moments, sums, scale, &factors);
        self.device = Some(moments);
        result?;
        self.step += 1;
        Ok(StepOutcome::Applied { gradient_norm })
    }

    /// Clips the gradients in place and changes the parameters at this rate, or does nothing where the norm of the
    /// gradients is not finite.
    ///
    /// For a decoder on a device there is [`crate::Decoder::optimise`].
    pub fn step(
        &mut self,
        parameters: &mut Parameters,
        gradients: &mut Gradients,
        learning_rate: f64,
    ) -> StepOutcome {
        let _span = tracing::debug_span!("optimiser_step").entered();
        if self.bring_home().is_err() {
            // Without its moments a step would be another one; nothing is changed, and the caller counts it.
            return StepOutcome::SkippedNonFinite {
                gradient_norm: f64::NAN,
                tensor: None,
            };
        }
        let gradient_norm = match self.options.max_norm {
            Some(maximum) => gradients.clip(maximum),
            None => gradients.global_norm(),
        };
        if !gradient_norm.is_finite() {
            return StepOutcome::SkippedNonFinite {
                gradient_norm,
                tensor: gradients.first_non_finite().map(str::to_owned),
            };
        }
        self.step += 1;
        let gradients = gradients.values();
        for index in 0..parameters.len() {
            let decays = self.options.decay_vectors || parameters.shape(index).len() > 1;
            let settings = optimiser::AdamW {
                learning_rate: learning_rate as f32,
                beta1: self.options.beta1,
                beta2: self.options.beta2,
                epsilon: self.options.epsilon,
                weight_decay: if decays { self.options.weight_decay } else { 0.0 },
            };
            adamw_step(
                &settings,
                self.step,
                parameters.get_mut(index),
                gradients.get(index),
                self.first_moment.get_mut(index),
                self.second_moment.get_mut(index),
            );
        }
        StepOutcome::Applied { gradient_norm }
    }

    /// Moves the moments of a device here, where one has them.
    fn bring_home(&mut self) -> Result<(), ModelError> {
        self.fetch()?;
        #[cfg(feature = "composed")]
        {
            self.device = None;
        }
        Ok(())
    }

    /// The moments by name, to be saved together with [`AdamW::steps`].
    pub fn state(&self) -> Vec<StateTensor> {
        [
            (FIRST_MOMENT, &self.first_moment),
            (SECOND_MOMENT, &self.second_moment),
        ]
        .into_iter()
        .flat_map(|(prefix, moment)| {
            moment.iter().map(move |tensor| StateTensor {
                name: format!("{prefix}{}", tensor.name),
                shape: tensor.shape.to_vec(),
                values: tensor.values.to_vec(),
            })
        })
        .collect()
    }

    /// Continues from saved state: `steps` and the tensors of [`AdamW::state`], in any order.
    ///
    /// # Errors
    /// [`ModelError::OptimiserState`] where a tensor is missing, unknown, given twice or of another shape. The state
    /// is then not changed.
    pub fn restore(&mut self, steps: u64, state: &[StateTensor]) -> Result<(), ModelError> {
        let problem = |problem: String| Err(ModelError::OptimiserState { problem });
        let mut moments = [self.first_moment.clone(), self.second_moment.clone()];
        let mut seen = vec![[false; 2]; self.first_moment.len()];
        for tensor in state {
            let (which, name) = if let Some(name) = tensor.name.strip_prefix(FIRST_MOMENT) {
                (0, name)
            } else if let Some(name) = tensor.name.strip_prefix(SECOND_MOMENT) {
                (1, name)
            } else {
                return problem(format!(
                    "tensor `{}` is neither a first nor a second moment",
                    tensor.name
                ));
            };
            let Some(index) = moments[which].index_of(name) else {
                return problem(format!("tensor `{}` has no parameter", tensor.name));
            };
            if std::mem::replace(&mut seen[index][which], true) {
                return problem(format!("tensor `{}` is given twice", tensor.name));
            }
            let expected = moments[which].shape(index);
            if expected != tensor.shape || moments[which].get(index).len() != tensor.values.len() {
                return problem(format!(
                    "tensor `{}` has shape {:?} and {} values, its parameter has shape {expected:?}",
                    tensor.name,
                    tensor.shape,
                    tensor.values.len()
                ));
            }
            moments[which].get_mut(index).copy_from_slice(&tensor.values);
        }
        if let Some(index) = seen.iter().position(|seen| *seen != [true; 2]) {
            return problem(format!(
                "a moment of `{}` is missing",
                self.first_moment.name(index)
            ));
        }
        let [first_moment, second_moment] = moments;
        self.first_moment = first_moment;
        self.second_moment = second_moment;
        self.step = steps;
        #[cfg(feature = "composed")]
        {
            self.device = None;
        }
        Ok(())
    }
}
