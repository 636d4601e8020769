//! The same decoder composed of `candle-core` operations, with gradients by its automatic differentiation.
//!
//! A second, independent writing of the architecture for any device candle knows: the reference of the tests and the
//! way to a GPU. It agrees with [`crate::Decoder`] within rounding, not bit for bit. Not for: the CPU's hot path.

use candle_core::{D, Device, Result, Tensor, Var};

use crate::config::DecoderConfig;
use crate::error::ModelError;
use crate::gradients::Gradients;
use crate::parameters::Parameters;
use crate::sequence::{Scores, TokenSequence};
use crate::training::Loss;
use crate::weights::{LayerLayout, Layout, Linear};

/// A decoder whose parameters are candle variables on one device.
#[derive(Debug)]
pub struct ComposedDecoder {
    config: DecoderConfig,
    layout: Layout,
    device: Device,
    /// In the canonical order of the parameters.
    variables: Vec<Var>,
}

/// Log-probs and entropies of one sequence's scored tokens, `[scored]` each, still differentiable.
struct SequenceScores {
    log_probs: Tensor,
    entropies: Tensor,
}

impl ComposedDecoder {
    /// Copies the parameters to `device`.
    ///
    /// # Errors
    /// Where the configuration is not valid or candle fails.
    pub fn new(
        config: &DecoderConfig,
        parameters: &Parameters,
        device: &Device,
    ) -> std::result::Result<Self, ModelError> {
        config.validate()?;
        let variables = parameters
            .iter()
            .map(|tensor| Var::from_slice(tensor.values, tensor.shape, device))
            .collect::<Result<_>>()?;
        Ok(Self {
            layout: Layout::new(config)?,
            config: config.clone(),
            device: device.clone(),
            variables,
        })
    }

    /// Logits after every token, `[tokens.len(), vocabulary_size]`.
    ///
    /// # Errors
    /// Where candle fails, for instance at an id outside the vocabulary.
    pub fn logits(&self, tokens: &[u32]) -> std::result::Result<Vec<f32>, ModelError> {
        let hidden = self.hidden(tokens)?;
        let logits = self.linear(&hidden, &self.layout.head)?;
        Ok(logits.flatten_all()?.to_vec1()?)
    }

    /// As [`crate::Decoder::score`].
    ///
    /// # Errors
    /// Where candle fails.
    pub fn score(
        &self,
        sequences: &[TokenSequence<'_>],
        temperature: f32,
    ) -> std::result::Result<Vec<Scores>, ModelError> {
        sequences
            .iter()
            .map(|sequence| Ok(values(self.score_sequence(sequence, temperature)?.as_ref())?))
            .collect()
    }

    /// As [`crate::Decoder::accumulate_gradient`], one sequence at a time.
    ///
    /// # Errors
    /// Where candle fails.
    pub fn accumulate_gradient(
        &self,
        sequences: &[TokenSequence<'_>],
        temperature: f32,
        gradients: &mut Gradients,
        loss: &mut Loss<'_>,
    ) -> std::result::Result<(), ModelError> {
        for (index, sequence) in sequences.iter().enumerate() {
            let scores = self.score_sequence(sequence, temperature)?;
            let derivatives = loss(index, &values(scores.as_ref())?);
            let Some(scores) = scores else {
                continue;
            };
            let count = sequence.scored.len();
            let weigh = |scores: &Tensor, derivatives: &[f32]| {
                let derivatives = Tensor::from_slice(derivatives, count, &self.device)?;
                (scores * derivatives)?.sum_all()
            };
            let value = (weigh(&scores.log_probs, &derivatives.log_probs)?
                + weigh(&scores.entropies, &derivatives.entropies)?)?;
            let store = value.backward()?;
            for (index, variable) in self.variables.iter().enumerate() {
                let Some(gradient) = store.get(variable) else {
                    continue;
                };
                let gradient: Vec<f32> = gradient.flatten_all()?.to_vec1()?;
                for (sum, value) in gradients.get_mut(index).iter_mut().zip(gradient) {
                    *sum += value;
                }
            }
        }
        Ok(())
    }

    /// `None` where nothing is scored.
    fn score_sequence(
        &self,
        sequence: &TokenSequence<'_>,
        temperature: f32,
    ) -> Result<Option<SequenceScores>> {
        if sequence.scored.is_empty() {
            return Ok(None);
        }
        let hidden = self.hidden(&sequence.tokens[..sequence.rows()])?;
        let rows: Vec<u32> = sequence.scored.iter().map(|position| position - 1).collect();
        let targets: Vec<u32> = sequence
            .scored
            .iter()
            .map(|&position| sequence.tokens[position as usize])
            .collect();
        let count = rows.len();
        let hidden = hidden.index_select(&Tensor::from_vec(rows, count, &self.device)?, 0)?;
        let scaled = (self.linear(&hidden, &self.layout.head)? / f64::from(temperature))?;
        let shifted = scaled.broadcast_sub(&scaled.max_keepdim(D::Minus1)?.detach())?;
        let normaliser = shifted.exp()?.sum_keepdim(D::Minus1)?.log()?;
        let log_softmax = shifted.broadcast_sub(&normaliser)?;
        let targets = Tensor::from_vec(targets, (count, 1), &self.device)?;
        Ok(Some(SequenceScores {
            log_probs: log_softmax.gather(&targets, 1)?.squeeze(1)?,
            entropies: (log_softmax.exp()? * &log_softmax)?.sum(D::Minus1)?.neg()?,
        }))
    }

    /// Output of the final norm, `[tokens.len(), hidden_size]`.
    fn hidden(&self, tokens: &[u32]) -> Result<Tensor> {
        let count = tokens.len();
        let ids = Tensor::from_slice(tokens, count, &self.device)?;
        let mut hidden = self.variables[self.layout.embedding].index_select(&ids, 0)?;
        let (cosines, sines) = self.rotary(count)?;
        let mask: Vec<f32> = (0..count * count)
            .map(|index| {
                if index % count > index / count {
                    f32::NEG_INFINITY
                } else {
                    0.0
                }
            })
            .collect();
        let mask = Tensor::from_vec(mask, (count, count), &self.device)?;
        for layer in &self.layout.layers {
            hidden = self.layer(layer, &hidden, &cosines, &sines, &mask)?;
        }
        self.norm(&hidden, self.layout.final_norm)
    }

    fn layer(
        &self,
        layer: &LayerLayout,
        hidden: &Tensor,
        cosines: &Tensor,
        sines: &Tensor,
        mask: &Tensor,
    ) -> Result<Tensor> {
        let rows = hidden.dim(0)?;
        let (heads, key_heads) = (self.config.query_heads, self.config.key_value_heads);
        let head_dim = self.config.head_dim;
        let normed = self.norm(hidden, layer.input_norm)?;
        let project =
            |linear: &Linear, heads: usize| self.linear(&normed, linear)?.reshape((rows, heads, head_dim));
        let mut query = project(&layer.query, heads)?;
        let mut key = project(&layer.key, key_heads)?;
        let value = project(&layer.value, key_heads)?;
        if let Some((query_norm, key_norm)) = layer.query_key_norm {
            query = self.norm(&query, query_norm)?;
            key = self.norm(&key, key_norm)?;
        }
        let query = rotate(&query, cosines, sines)?.transpose(0, 1)?.contiguous()?;
        let key = rotate(&key, cosines, sines)?;
        let repeat = |tensor: &Tensor| {
            let group = heads / key_heads;
            tensor
                .transpose(0, 1)?
                .unsqueeze(1)?
                .broadcast_as((key_heads, group, rows, head_dim))?
                .contiguous()?
                .reshape((heads, rows, head_dim))
        };
        let (key, value) = (repeat(&key)?, repeat(&value)?);
        let scale = 1.0 / (head_dim as f64).sqrt();
        let scores = (query.matmul(&key.transpose(1, 2)?.contiguous()?)? * scale)?.broadcast_add(mask)?;
        let shifted = scores.broadcast_sub(&scores.max_keepdim(D::Minus1)?.detach())?;
        let exponentials = shifted.exp()?;
        let weights = exponentials.broadcast_div(&exponentials.sum_keepdim(D::Minus1)?)?;
        let attended = weights
            .matmul(&value)?
            .transpose(0, 1)?
            .contiguous()?
            .reshape((rows, heads * head_dim))?;
        let middle = (hidden + self.linear(&attended, &layer.output)?)?;

        let normed = self.norm(&middle, layer.middle_norm)?;
        let gate = self.linear(&normed, &layer.gate)?.silu()?;
        let activated = (gate * self.linear(&normed, &layer.up)?)?;
        middle + self.linear(&activated, &layer.down)?
    }

    fn linear(&self, x: &Tensor, linear: &Linear) -> Result<Tensor> {
        let y = x.matmul(&self.variables[linear.weight].t()?)?;
        match linear.bias {
            Some(bias) => y.broadcast_add(&self.variables[bias]),
            None => Ok(y),
        }
    }

    /// RMS norm over the last dimension.
    fn norm(&self, x: &Tensor, weight: usize) -> Result<Tensor> {
        let mean_square = x.sqr()?.mean_keepdim(D::Minus1)?;
        let root = (mean_square + f64::from(self.config.rms_norm_epsilon))?.sqrt()?;
        x.broadcast_div(&root)?.broadcast_mul(&self.variables[weight])
    }

    /// Cosines and sines, `[positions, 1, head_dim / 2]`.
    fn rotary(&self, positions: usize) -> Result<(Tensor, Tensor)> {
        let (frequencies, scaling) = self.config.inverse_frequencies();
        let angles = |function: fn(f64) -> f64| {
            let values: Vec<f32> = (0..positions)
                .flat_map(|position| {
                    frequencies
                        .iter()
                        .map(move |&frequency| position as f32 * frequency)
                })
                .map(|angle| (function(f64::from(angle)) * f64::from(scaling)) as f32)
                .collect();
            Tensor::from_vec(values, (positions, 1, frequencies.len()), &self.device)
        };
        Ok((angles(f64::cos)?, angles(f64::sin)?))
    }
}

/// Turns the pairs `(i, i + head_dim / 2)` of `[rows, heads, head_dim]`.
fn rotate(x: &Tensor, cosines: &Tensor, sines: &Tensor) -> Result<Tensor> {
    let half = x.dim(D::Minus1)? / 2;
    let (first, second) = (x.narrow(2, 0, half)?, x.narrow(2, half, half)?);
    let turned_first = (first.broadcast_mul(cosines)? - second.broadcast_mul(sines)?)?;
    let turned_second = (second.broadcast_mul(cosines)? + first.broadcast_mul(sines)?)?;
    Tensor::cat(&[turned_first, turned_second], 2)
}

fn values(scores: Option<&SequenceScores>) -> Result<Scores> {
    match scores {
        None => Ok(Scores::default()),
        Some(scores) => Ok(Scores {
            log_probs: scores.log_probs.to_vec1()?,
            entropies: scores.entropies.to_vec1()?,
        }),
    }
}
