//! Rotary frequencies and their scaling for long contexts.
//!
//! Formulas: rotary embeddings (arXiv 2104.09864), YaRN (arXiv 2309.00071), and the `llama3` and `linear` kinds as
//! transformers computes them. Not for: applying the rotation, which is a kernel.

use std::f64::consts::PI;

use super::wrong;
use crate::error::ModelError;

/// How rotary frequencies are stretched for contexts longer than the pre-training's.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// Plain frequencies.
    None,
    /// Every frequency divided by `factor`.
    Linear {
        /// Divisor of the frequencies, at least 1.
        factor: f64,
    },
    /// Llama 3.1: long wavelengths divided by `factor`, short ones kept, a linear blend in between.
    Llama3 {
        /// Divisor of the slow frequencies, at least 1.
        factor: f64,
        /// Wavelengths longer than `original_max_positions / low_frequency_factor` are divided in full.
        low_frequency_factor: f64,
        /// Wavelengths shorter than `original_max_positions / high_frequency_factor` are kept.
        high_frequency_factor: f64,
        /// Context length of the pre-training, in tokens.
        original_max_positions: usize,
    },
    /// Dynamic NTK: the base grows with the sequence once it is longer than the model's `max_positions`.
    ///
    /// Up to that length the frequencies are the plain ones. Beyond it every new token would move the frequencies
    /// of tokens already cached, so this crate keeps sequences within `max_positions`.
    Dynamic {
        /// Growth of the base past `max_positions`; kept for writing the file back.
        factor: f64,
    },
    /// YaRN: interpolates slow frequencies, keeps fast ones, and scales the attention.
    Yarn {
        /// Divisor of the slow frequencies, at least 1.
        factor: f64,
        /// Context length of the pre-training, in tokens.
        original_max_positions: usize,
        /// Multiplies cosines and sines; `None` derives it from `factor` and the two `mscale` values.
        attention_factor: Option<f64>,
        /// Rotations over the original context above which a frequency is kept.
        beta_fast: f64,
        /// Rotations over the original context below which a frequency is divided in full.
        beta_slow: f64,
        /// Weight of the attention factor's logarithm; used only together with `mscale_all_dimensions`.
        mscale: Option<f64>,
        /// Divides the attention factor; used only together with `mscale`.
        mscale_all_dimensions: Option<f64>,
        /// Whether the bounds of the blend are rounded to whole dimensions.
        truncate: bool,
    },
}

/// Upper bound of every number of a scaling, and with its inverse the lower bound of most: far beyond any model's, and
/// such that frequencies stay finite in f32.
const LARGEST_NUMBER: f64 = 1e9;

impl RopeScaling {
    pub(super) fn validate(&self) -> Result<(), ModelError> {
        let within = |key: &str, value: f64, least: f64| {
            if (least..=LARGEST_NUMBER).contains(&value) {
                Ok(())
            } else {
                Err(wrong(
                    &format!("rope_scaling.{key}"),
                    format!("`{value}` is outside `{least:e}..={LARGEST_NUMBER:e}`"),
                ))
            }
        };
        let at_least_one = |key: &str, value: f64| within(key, value, 1.0);
        let positive = |key: &str, value: f64| within(key, value, 1.0 / LARGEST_NUMBER);
        let above = |high_key: &str, high: f64, low_key: &str, low: f64| {
            if high > low {
                Ok(())
            } else {
                Err(wrong(
                    &format!("rope_scaling.{high_key}"),
                    format!("`{high}` must be greater than {low_key} `{low}`"),
                ))
            }
        };
        match *self {
            Self::None => Ok(()),
            Self::Linear { factor } | Self::Dynamic { factor } => at_least_one("factor", factor),
            Self::Llama3 {
                factor,
                low_frequency_factor,
                high_frequency_factor,
                original_max_positions,
            } => {
                at_least_one("factor", factor)?;
                positive("low_freq_factor", low_frequency_factor)?;
                positive("high_freq_factor", high_frequency_factor)?;
                above(
                    "high_freq_factor",
                    high_frequency_factor,
                    "low_freq_factor",
                    low_frequency_factor,
                )?;
                positive("original_max_position_embeddings", original_max_positions as f64)
            }
            Self::Yarn {
                factor,
                original_max_positions,
                attention_factor,
                beta_fast,
                beta_slow,
                mscale,
                mscale_all_dimensions,
                truncate: _,
            } => {
                at_least_one("factor", factor)?;
                positive("original_max_position_embeddings", original_max_positions as f64)?;
                positive("beta_fast", beta_fast)?;
                positive("beta_slow", beta_slow)?;
                above("beta_fast", beta_fast, "beta_slow", beta_slow)?;
                for (key, value) in [
                    ("attention_factor", attention_factor),
                    ("mscale", mscale),
                    ("mscale_all_dim", mscale_all_dimensions),
                ] {
                    if let Some(value) = value {
                        positive(key, value)?;
                    }
                }
                Ok(())
            }
        }
    }
}

/// See [`super::DecoderConfig::inverse_frequencies`].
pub(super) fn inverse_frequencies(theta: f64, head_dim: usize, scaling: &RopeScaling) -> (Vec<f32>, f32) {
    // The system's `pow` differs between C libraries in the last bit; libm's does not.
    let powers = || {
        (0..head_dim / 2).map(move |pair| {
            let exponent = (2 * pair) as f32 / head_dim as f32;
            libm::pow(theta, f64::from(exponent)) as f32
        })
    };
    let plain = || powers().map(|power| 1.0 / power);
    match *scaling {
        // Dynamic scaling starts past `max_positions`, where no sequence of this crate goes.
        RopeScaling::None | RopeScaling::Dynamic { .. } => (plain().collect(), 1.0),
        RopeScaling::Linear { factor } => (plain().map(|frequency| frequency / factor as f32).collect(), 1.0),
        RopeScaling::Llama3 {
            factor,
            low_frequency_factor,
            high_frequency_factor,
            original_max_positions,
        } => {
            let original = original_max_positions as f64;
            let (longest, shortest) = (original / low_frequency_factor, original / high_frequency_factor);
            let blend_width = (high_frequency_factor - low_frequency_factor) as f32;
            let scaled = plain().map(|frequency| {
                let wavelength = (2.0 * PI) as f32 / frequency;
                if wavelength > longest as f32 {
                    frequency / factor as f32
                } else if wavelength < shortest as f32 {
                    frequency
                } else {
                    let kept = (original as f32 / wavelength - low_frequency_factor as f32) / blend_width;
                    (1.0 - kept) * frequency / factor as f32 + kept * frequency
                }
            });
            (scaled.collect(), 1.0)
        }
        RopeScaling::Yarn {
            factor,
            original_max_positions,
            attention_factor,
            beta_fast,
            beta_slow,
            mscale,
            mscale_all_dimensions,
            truncate,
        } => {
            let attention = attention_factor.unwrap_or_else(|| match (mscale, mscale_all_dimensions) {
                (Some(scale), Some(all)) => yarn_attention(factor, scale) / yarn_attention(factor, all),
                _ => yarn_attention(factor, 1.0),
            });
            // The dimension whose wave makes `rotations` turns over the original context.
            let dimension = |rotations: f64| {
                let turns = original_max_positions as f64 / (rotations * 2.0 * PI);
                head_dim as f64 * libm::log(turns) / (2.0 * libm::log(theta))
            };
            let (mut low, mut high) = (dimension(beta_fast), dimension(beta_slow));
            if truncate {
                (low, high) = (low.floor(), high.ceil());
            }
            (low, high) = (low.max(0.0), high.min((head_dim - 1) as f64));
            if low == high {
                // Keeps the slope of the blend finite.
                high += 0.001;
            }
            let scaled = powers().enumerate().map(|(pair, power)| {
                let ramp = ((pair as f32 - low as f32) / (high - low) as f32).clamp(0.0, 1.0);
                let kept = 1.0 - ramp;
                (1.0 / (factor as f32 * power)) * (1.0 - kept) + (1.0 / power) * kept
            });
            (scaled.collect(), attention as f32)
        }
    }
}

fn yarn_attention(factor: f64, weight: f64) -> f64 {
    if factor <= 1.0 {
        1.0
    } else {
        0.1 * weight * libm::log(factor) + 1.0
    }
}
