//! The layers, written with candle's operations.

use candle_core::{D, DType, Result, Tensor};

use super::ComposedDecoder;
use crate::adapter::Target;
use crate::weights::Linear;

/// Gives a layer the keys and values its queries see, `[sequences, key_value_heads, positions, head_dim]`, for those of
/// the block's own rows, `[sequences, rows, key_value_heads, head_dim]`.
pub(super) type Attended<'a> = dyn Fn(usize, &Tensor, &Tensor) -> Result<(Tensor, Tensor)> + 'a;

/// Rows of several sequences, padded to one number of rows.
pub(super) struct Block<'a> {
    pub(super) sequences: usize,
    /// Of each sequence.
    pub(super) rows: usize,
    /// `[1 or sequences, rows, 1, head_dim / 2]`.
    pub(super) cosines: Tensor,
    pub(super) sines: Tensor,
    /// Zero where a row sees a position, minus infinity elsewhere; `[1 or sequences, 1, rows, positions]`.
    pub(super) mask: Tensor,
    pub(super) attended: &'a Attended<'a>,
}

/// Keys and values of the block's own rows.
pub(super) fn own_rows(_layer: usize, key: &Tensor, value: &Tensor) -> Result<(Tensor, Tensor)> {
    Ok((
        key.transpose(1, 2)?.contiguous()?,
        value.transpose(1, 2)?.contiguous()?,
    ))
}

impl ComposedDecoder {
    /// Embeddings in f32, `[ids.len(), hidden_size]`.
    pub(super) fn embed(&self, ids: &[u32]) -> Result<Tensor> {
        let ids = Tensor::from_slice(ids, ids.len(), &self.device)?;
        let rows = self.base[self.layout.embedding]
            .used
            .detach()
            .index_select(&ids, 0)?;
        rows.to_dtype(DType::F32)
    }

    /// One layer on the residual stream, `[sequences * rows, hidden_size]` in f32.
    pub(super) fn layer(&self, index: usize, hidden: &Tensor, block: &Block<'_>) -> Result<Tensor> {
        let layer = &self.layout.layers[index];
        let (heads, key_heads) = (self.config.query_heads, self.config.key_value_heads);
        let head_dim = self.config.head_dim;
        let (sequences, rows) = (block.sequences, block.rows);
        let normed = self.norm(hidden, layer.input_norm)?;
        let project = |target: Target, heads: usize| {
            self.target(&normed, index, target)?
                .reshape((sequences, rows, heads, head_dim))
        };
        let mut query = project(Target::Query, heads)?;
        let mut key = project(Target::Key, key_heads)?;
        let value = project(Target::Value, key_heads)?;
        if let Some((query_norm, key_norm)) = layer.query_key_norm {
            query = self.norm(&query, query_norm)?;
            key = self.norm(&key, key_norm)?;
        }
        let query = rotate(&query, &block.cosines, &block.sines)?;
        let key = rotate(&key, &block.cosines, &block.sines)?;
        let (keys, values) =
            (block.attended)(index, &key.to_dtype(self.format)?, &value.to_dtype(self.format)?)?;
        let positions = keys.dim(2)?;
        // The queries of a group of heads stand below each other, so that keys and values need not be repeated.
        let query = query
            .to_dtype(self.format)?
            .transpose(1, 2)?
            .contiguous()?
            .reshape((sequences, key_heads, heads / key_heads * rows, head_dim))?;
        let scale = 1.0 / (head_dim as f64).sqrt();
        let scores = query
            .matmul(&keys.transpose(2, 3)?.contiguous()?)?
            .to_dtype(DType::F32)?
            .reshape((sequences, heads, rows, positions))?;
        let scores = (scores * scale)?.broadcast_add(&block.mask)?;
        let shifted = scores.broadcast_sub(&scores.max_keepdim(D::Minus1)?.detach())?;
        let exponentials = shifted.exp()?;
        let weights = exponentials.broadcast_div(&exponentials.sum_keepdim(D::Minus1)?)?;
        let attended = weights
            .to_dtype(self.format)?
            .reshape((sequences, key_heads, heads / key_heads * rows, positions))?
            .matmul(&values)?
            .reshape((sequences, heads, rows, head_dim))?
            .transpose(1, 2)?
            .contiguous()?
            .reshape((sequences * rows, heads * head_dim))?;
        let middle = (hidden + self.target(&attended, index, Target::Output)?)?;

        let normed = self.norm(&middle, layer.middle_norm)?;
        let gate = self.target(&normed, index, Target::Gate)?.silu()?;
        let activated = (gate * self.target(&normed, index, Target::Up)?)?;
        middle + self.target(&activated, index, Target::Down)?
    }

    /// Final norm and output matrix: logits in f32 for rows of the residual stream.
    pub(super) fn head(&self, hidden: &Tensor) -> Result<Tensor> {
        let normed = self.norm(hidden, self.layout.final_norm)?;
        self.linear(&normed.to_dtype(self.format)?, &self.layout.head)
    }

    /// Log-probs and entropies of `targets` after rows of the residual stream, under `softmax(logits / temperature)`.
    pub(super) fn head_scores(
        &self,
        hidden: &Tensor,
        targets: &[u32],
        temperature: f32,
    ) -> Result<(Tensor, Tensor)> {
        let scaled = (self.head(hidden)? / f64::from(temperature))?;
        let shifted = scaled.broadcast_sub(&scaled.max_keepdim(D::Minus1)?.detach())?;
        let normaliser = shifted.exp()?.sum_keepdim(D::Minus1)?.log()?;
        let log_softmax = shifted.broadcast_sub(&normaliser)?;
        let targets = Tensor::from_slice(targets, (targets.len(), 1), &self.device)?;
        Ok((
            log_softmax.gather(&targets, 1)?.squeeze(1)?,
            (log_softmax.exp()? * &log_softmax)?.sum(D::Minus1)?.neg()?,
        ))
    }

    /// A matrix of a layer with what its adapter adds, in f32.
    fn target(&self, x: &Tensor, layer: usize, target: Target) -> Result<Tensor> {
        let x = x.to_dtype(self.format)?;
        let y = self.linear(&x, self.layout.layers[layer].linear(target))?;
        let Some((adapter, (down, up))) = self.pair(layer, target) else {
            return Ok(y);
        };
        let added = x
            .matmul(&adapter.weights[down].used.t()?)?
            .matmul(&adapter.weights[up].used.t()?)?
            .to_dtype(DType::F32)?;
        y + (added * adapter.scale)?
    }

    fn linear(&self, x: &Tensor, linear: &Linear) -> Result<Tensor> {
        let y = x
            .matmul(&self.base[linear.weight].used.t()?)?
            .to_dtype(DType::F32)?;
        match linear.bias {
            Some(bias) => y.broadcast_add(&self.base[bias].used),
            None => Ok(y),
        }
    }

    /// RMS norm over the last dimension, in f32.
    fn norm(&self, x: &Tensor, weight: usize) -> Result<Tensor> {
        let mean_square = x.sqr()?.mean_keepdim(D::Minus1)?;
        let root = (mean_square + f64::from(self.config.rms_norm_epsilon))?.sqrt()?;
        x.broadcast_div(&root)?.broadcast_mul(&self.base[weight].used)
    }

    /// Cosines and sines of the positions, `[sequences, rows, 1, head_dim / 2]`.
    pub(super) fn rotary(&self, positions: &[u32], sequences: usize) -> Result<(Tensor, Tensor)> {
        let (frequencies, scaling) = self.config.inverse_frequencies();
        let shape = (sequences, positions.len() / sequences, 1, frequencies.len());
        let angles = |function: fn(f64) -> f64| {
            let values: Vec<f32> = positions
                .iter()
                .flat_map(|&position| {
                    frequencies
                        .iter()
                        .map(move |&frequency| position as f32 * frequency)
                })
                .map(|angle| (function(f64::from(angle)) * f64::from(scaling)) as f32)
                .collect();
            Tensor::from_vec(values, shape, &self.device)
        };
        Ok((angles(f64::cos)?, angles(f64::sin)?))
    }

    /// The mask for rows at these positions, `rows` to a sequence, over `visible` positions: `[sequences, 1, rows, visible]`.
    pub(super) fn mask(&self, positions: &[u32], sequences: usize, visible: usize) -> Result<Tensor> {
        let values: Vec<f32> = positions
            .iter()
            .flat_map(|&position| {
                (0..visible as u32).map(move |seen| if seen > position { f32::NEG_INFINITY } else { 0.0 })
            })
            .collect();
        let shape = (sequences, 1, positions.len() / sequences, visible);
        Tensor::from_vec(values, shape, &self.device)
    }
}

/// Turns the pairs `(i, i + head_dim / 2)` of the last dimension.
fn rotate(x: &Tensor, cosines: &Tensor, sines: &Tensor) -> Result<Tensor> {
    let half = x.dim(D::Minus1)? / 2;
    let (first, second) = (x.narrow(D::Minus1, 0, half)?, x.narrow(D::Minus1, half, half)?);
    let turned_first = (first.broadcast_mul(cosines)? - second.broadcast_mul(sines)?)?;
    let turned_second = (second.broadcast_mul(cosines)? + first.broadcast_mul(sines)?)?;
    Tensor::cat(&[turned_first, turned_second], D::Minus1)
}
