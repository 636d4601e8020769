//! The AdamW step, gradient norms and scaling over flat slices.
//!
//! Not for: parameter groups, schedules or clipping policy.

use crate::instruction_set::{InstructionSet, dispatched};
use crate::lanes::{LANES, Lanes};
use crate::parallel::{self, SharedOutput};

/// Values that one task takes. Part of the numeric law of [`squared_norm`]: sums are made block by block.
const BLOCK: usize = 1 << 14;

/// Hyper-parameters of AdamW (arXiv 1711.05101).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// Step size of this step.
    pub learning_rate: f32,
    /// Decay of the first moment.
    pub beta1: f32,
    /// Decay of the second moment.
    pub beta2: f32,
    /// Added to the root of the second moment.
    pub epsilon: f32,
    /// Decoupled weight decay.
    pub weight_decay: f32,
}

/// Factors of one step, rounded once from double precision.
#[derive(Clone, Copy)]
struct Factors {
    decay: f32,
    first_weight: f32,
    second_decay: f32,
    second_weight: f32,
    second_correction: f32,
    epsilon: f32,
    step_size: f32,
}

impl Factors {
    fn new(settings: &AdamW, step: u64) -> Self {
        let beta1 = widen(settings.beta1);
        let beta2 = widen(settings.beta2);
        let learning_rate = widen(settings.learning_rate);
        Self {
            decay: (1.0 - learning_rate * widen(settings.weight_decay)) as f32,
            first_weight: (1.0 - beta1) as f32,
            second_decay: beta2 as f32,
            second_weight: (1.0 - beta2) as f32,
            second_correction: (1.0 - power(beta2, step)).sqrt() as f32,
            epsilon: settings.epsilon,
            step_size: (learning_rate / (1.0 - power(beta1, step))) as f32,
        }
    }
}

/// The double whose shortest decimal form is `value`'s: 0.999 rather than 0.99900001, so that `1 - beta` is what a
/// configuration's decimal means.
fn widen(value: f32) -> f64 {
    value.to_string().parse().unwrap_or(f64::from(value))
}

/// `base^exponent` by repeated squaring, the same on every platform.
fn power(base: f64, mut exponent: u64) -> f64 {
    let (mut square, mut result) = (base, 1.0);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= square;
        }
        square *= square;
        exponent >>= 1;
    }
    result
}

/// One AdamW step with PyTorch's operations in its order (`torch.optim.AdamW`, equal bit for bit on a CPU): decay,
/// moments, update.
/// `step` counts from 1; moments start at zero.
///
/// # Panics
///
/// Panics when the slices differ in length or `step` is 0.
pub fn adamw_step(
    settings: &AdamW,
    step: u64,
    parameters: &mut [f32],
    gradients: &[f32],
    first_moment: &mut [f32],
    second_moment: &mut [f32],
) {
    let count = parameters.len();
    let _span = tracing::trace_span!("adamw_step", values = count).entered();
    assert!(step > 0, "`step` counts from 1");
    assert_eq!(
        gradients.len(),
        count,
        "`gradients` must be as long as `parameters`"
    );
    assert_eq!(
        first_moment.len(),
        count,
        "`first_moment` must be as long as `parameters`"
    );
    assert_eq!(
        second_moment.len(),
        count,
        "`second_moment` must be as long as `parameters`"
    );
    let set = InstructionSet::current();
    let factors = Factors::new(settings, step);
    let shared = [parameters, first_moment, second_moment].map(SharedOutput::new);
    parallel::for_each(
        parallel::threads_for_elements(count),
        count.div_ceil(BLOCK),
        |task| {
            let range = task * BLOCK..count.min((task + 1) * BLOCK);
            // SAFETY: tasks own disjoint blocks of each slice.
            let [parameters, first, second] =
                shared.map(|out| unsafe { out.slice(range.start, range.len()) });
            update(set, factors, parameters, &gradients[range], first, second);
        },
    );
}

#[inline(always)]
fn update_body<V: Lanes>(
    factors: Factors,
    parameters: &mut [f32],
    gradients: &[f32],
    first_moment: &mut [f32],
    second_moment: &mut [f32],
) {
    let decay = V::splat(factors.decay);
    let first_weight = V::splat(factors.first_weight);
    let second_decay = V::splat(factors.second_decay);
    let second_weight = V::splat(factors.second_weight);
    let correction = V::splat(factors.second_correction);
    let epsilon = V::splat(factors.epsilon);
    let step_size = V::splat(-factors.step_size);
    for start in (0..parameters.len()).step_by(LANES) {
        let gradient = V::read(gradients, start, 0.0);
        let first = V::read(first_moment, start, 0.0);
        let first = gradient.sub(first).mul_add(first_weight, first);
        first.write(first_moment, start);
        let second = V::read(second_moment, start, 0.0).mul(second_decay);
        let second = second_weight.mul(gradient).mul_add(gradient, second);
        second.write(second_moment, start);
        let denominator = second.sqrt().div(correction).add(epsilon);
        let parameter = V::read(parameters, start, 0.0).mul(decay);
        first
            .div(denominator)
            .mul_add(step_size, parameter)
            .write(parameters, start);
    }
}

dispatched! {
    fn update(
        factors: Factors,
        parameters: &mut [f32],
        gradients: &[f32],
        first_moment: &mut [f32],
        second_moment: &mut [f32],
    ) = update_body;
}

/// The sum of squares in double precision: blocks of 16,384 values in order, each by sixteen partial sums.
pub fn squared_norm(values: &[f32]) -> f64 {
    let _span = tracing::trace_span!("squared_norm", values = values.len()).entered();
    let mut sums = vec![0.0; values.len().div_ceil(BLOCK)];
    parallel::for_each_mut(&mut sums, |index, sum| {
        let block = &values[index * BLOCK..values.len().min((index + 1) * BLOCK)];
        let mut partial = [0.0_f64; LANES];
        for chunk in block.chunks(LANES) {
            for (sum, value) in partial.iter_mut().zip(chunk) {
                *sum += f64::from(*value) * f64::from(*value);
            }
        }
        *sum = partial.iter().sum::<f64>();
    });
    sums.iter().sum()
}

/// Multiplies every value by `factor`.
pub fn scale(values: &mut [f32], factor: f32) {
    let count = values.len();
    let _span = tracing::trace_span!("scale", values = count).entered();
    let output = SharedOutput::new(values);
    parallel::for_each(
        parallel::threads_for_elements(count),
        count.div_ceil(BLOCK),
        |task| {
            let range = task * BLOCK..count.min((task + 1) * BLOCK);
            // SAFETY: tasks own disjoint blocks.
            let values = unsafe { output.slice(range.start, range.len()) };
            for value in values {
                *value *= factor;
            }
        },
    );
}
