//! Scores and gradients of many sequences, in padded batches of about one length.
//!
//! The backward pass goes layer by layer: each layer is a small graph of its own, whose input's derivative begins the
//! next. So a layer can be computed again instead of being kept, and what the embedding and the choice of the scored rows
//! add is added in f32.

use candle_core::{DType, Result, Tensor, Var};

use super::forward::{Block, own_rows};
use super::{ComposedDecoder, Weight, host};
use crate::error::ModelError;
use crate::sequence::{ScoreGradients, Scores, TokenSequence};
use crate::training::{Loss, check_derivatives};

/// Logits held at a time.
const HEAD_VALUES: usize = 1 << 26;

/// Sums of gradients in f32 on the device, by trained tensor; `None` is zero.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeviceGradients {
    pub(super) sums: Vec<Option<Tensor>>,
}

impl DeviceGradients {
    /// Zero for `tensors` tensors.
    pub(crate) fn zeros(tensors: usize) -> Self {
        Self {
            sums: vec![None; tensors],
        }
    }

    pub(crate) fn clear(&mut self) {
        self.sums.fill(None);
    }

    /// Values of one tensor, where there are any.
    pub(crate) fn values(&self, index: usize) -> std::result::Result<Option<Vec<f32>>, String> {
        let sum = self.sums.get(index).and_then(Option::as_ref);
        sum.map(|sum| host(sum).map_err(|error| error.to_string()))
            .transpose()
    }

    fn add(&mut self, index: usize, gradient: &Tensor) -> Result<()> {
        // Detached: a gradient remembers the graph that it was computed by.
        let gradient = gradient.detach().to_dtype(DType::F32)?;
        let sum = &mut self.sums[index];
        *sum = Some(match sum {
            Some(sum) => (&*sum + gradient)?.detach(),
            None => gradient,
        });
        Ok(())
    }
}

/// Sequences that go through the layers together.
struct Batch {
    /// Places in the call's list.
    members: Vec<usize>,
    /// Rows of each, padding included.
    rows: usize,
    ids: Vec<u32>,
    /// Rows that predict scored tokens, member by member, and those tokens.
    scored: Vec<u32>,
    targets: Vec<u32>,
}

/// Batches of at most `limit` rows with their padding, a longer sequence alone; longest first, so that padding is little.
fn batches(sequences: &[TokenSequence<'_>], limit: usize) -> Vec<Batch> {
    let mut order: Vec<usize> = (0..sequences.len())
        .filter(|&index| sequences[index].rows() > 0)
        .collect();
    order.sort_by_key(|&index| std::cmp::Reverse(sequences[index].rows()));
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for index in order {
        match groups.last_mut() {
            // Sorted, so the first of a group is its longest.
            Some(group) if sequences[group[0]].rows() * (group.len() + 1) <= limit => group.push(index),
            _ => groups.push(vec![index]),
        }
    }
    groups
        .into_iter()
        .map(|members| {
            let rows = sequences[members[0]].rows();
            let (mut ids, mut scored, mut targets) = (Vec::new(), Vec::new(), Vec::new());
            for (place, &member) in members.iter().enumerate() {
                let sequence = &sequences[member];
                ids.extend_from_slice(&sequence.tokens[..sequence.rows()]);
                ids.resize((place + 1) * rows, 0);
                for &position in sequence.scored {
                    scored.push((place * rows) as u32 + position - 1);
                    targets.push(sequence.tokens[position as usize]);
                }
            }
            Batch {
                members,
                rows,
                ids,
                scored,
                targets,
            }
        })
        .collect()
}

impl ComposedDecoder {
    /// Logits after every token, `[tokens.len(), vocabulary_size]`.
    pub(crate) fn logits(&self, tokens: &[u32]) -> std::result::Result<Vec<f32>, ModelError> {
        self.usable()?;
        let compute = || -> Result<Vec<f32>> {
            let block = self.block(1, tokens.len())?;
            host(&self.head(&self.hidden(tokens, &block)?)?)
        };
        compute().map_err(|error| self.failed(&error))
    }

    /// As [`crate::Decoder::score`], for sequences that were validated.
    pub(crate) fn score(
        &self,
        sequences: &[TokenSequence<'_>],
        temperature: f32,
        limit: usize,
    ) -> std::result::Result<Vec<Scores>, ModelError> {
        self.usable()?;
        let mut scores = vec![Scores::default(); sequences.len()];
        for batch in batches(sequences, limit) {
            let compute = || -> Result<Scores> {
                let block = self.block(batch.members.len(), batch.rows)?;
                let hidden = self.hidden(&batch.ids, &block)?;
                self.scores_of(&self.pick(&hidden, &batch.scored)?, &batch.targets, temperature)
            };
            let all = compute().map_err(|error| self.failed(&error))?;
            deal(all, &batch.members, sequences, &mut scores)?;
        }
        Ok(scores)
    }

    /// As [`crate::Decoder::accumulate_gradient`], for sequences that were validated; `loss` is asked batch by batch.
    pub(crate) fn accumulate(
        &self,
        sequences: &[TokenSequence<'_>],
        temperature: f32,
        limit: usize,
        gradients: &mut DeviceGradients,
        loss: &mut Loss<'_>,
        recompute: bool,
    ) -> std::result::Result<(), ModelError> {
        self.usable()?;
        if self.adapter.is_none() && !self.base_is_trained {
            return Err(ModelError::DeviceFrozen);
        }
        let mut scores = vec![Scores::default(); sequences.len()];
        for (index, sequence) in sequences.iter().enumerate() {
            if sequence.scored.is_empty() {
                check_derivatives(index, sequence.scored, &loss(index, &scores[index]))?;
            }
        }
        for batch in batches(sequences, limit) {
            let failed = |error| self.failed(&error);
            let block = self.block(batch.members.len(), batch.rows).map_err(failed)?;
            let pass = self.forward(&batch.ids, &block, recompute).map_err(failed)?;
            let scored = self.pick(&pass.hidden, &batch.scored).map_err(failed)?;
            let all = self
                .scores_of(&scored, &batch.targets, temperature)
                .map_err(failed)?;
            deal(all, &batch.members, sequences, &mut scores)?;
            let mut wanted = ScoreGradients::default();
            for &member in &batch.members {
                let derivatives = loss(member, &scores[member]);
                check_derivatives(member, sequences[member].scored, &derivatives)?;
                wanted.log_probs.extend(derivatives.log_probs);
                wanted.entropies.extend(derivatives.entropies);
            }
            self.backward(&batch, &block, pass, &scored, &wanted, temperature, gradients)
                .map_err(failed)?;
        }
        Ok(())
    }

    /// What all layers need to know about a padded batch.
    fn block(&self, sequences: usize, rows: usize) -> Result<Block<'static>> {
        let positions: Vec<u32> = (0..rows as u32).collect();
        let (cosines, sines) = self.rotary(&positions, 1)?;
        Ok(Block {
            sequences,
            rows,
            cosines,
            sines,
            // Padding stands behind a sequence, where none of its rows looks.
            mask: self.mask(&positions, 1, rows)?,
            attended: &own_rows,
        })
    }

    /// The residual stream after all layers, keeping nothing for a gradient.
    fn hidden(&self, ids: &[u32], block: &Block<'_>) -> Result<Tensor> {
        let mut hidden = self.embed(ids)?;
        for layer in 0..self.config.layers {
            hidden = self.layer(layer, &hidden, block)?.detach();
        }
        Ok(hidden)
    }

    fn pick(&self, hidden: &Tensor, rows: &[u32]) -> Result<Tensor> {
        hidden.index_select(&Tensor::from_slice(rows, rows.len(), &self.device)?, 0)
    }

    /// Rows of the residual stream that go through the head together.
    fn head_rows(&self) -> usize {
        (HEAD_VALUES / self.config.vocabulary_size).max(1)
    }

    /// Scores of `targets` after these rows of the residual stream.
    fn scores_of(&self, hidden: &Tensor, targets: &[u32], temperature: f32) -> Result<Scores> {
        let mut scores = Scores::default();
        for (chunk, targets) in targets.chunks(self.head_rows()).enumerate() {
            let rows = hidden.narrow(0, chunk * self.head_rows(), targets.len())?;
            let (log_probs, entropies) = self.head_scores(&rows, targets, temperature)?;
            scores.log_probs.extend(host(&log_probs)?);
            scores.entropies.extend(host(&entropies)?);
        }
        Ok(scores)
    }

    /// Runs all layers, keeping what the backward pass needs.
    fn forward(&self, ids: &[u32], block: &Block<'_>, recompute: bool) -> Result<Pass> {
        let mut hidden = self.embed(ids)?;
        let mut layers = Vec::with_capacity(self.config.layers);
        for layer in 0..self.config.layers {
            if recompute {
                let output = self.layer(layer, &hidden, block)?.detach();
                layers.push((std::mem::replace(&mut hidden, output), None));
            } else {
                let input = Var::from_tensor(&hidden)?.into_inner();
                let output = self.layer(layer, &input, block)?;
                hidden = output.detach();
                layers.push((input, Some(output)));
            }
        }
        Ok(Pass { layers, hidden })
    }

    fn backward(
        &self,
        batch: &Batch,
        block: &Block<'_>,
        pass: Pass,
        scored: &Tensor,
        wanted: &ScoreGradients,
        temperature: f32,
        gradients: &mut DeviceGradients,
    ) -> Result<()> {
        let mut rows = Vec::new();
        for (chunk, targets) in batch.targets.chunks(self.head_rows()).enumerate() {
            let start = chunk * self.head_rows();
            let input =
                Var::from_tensor(&scored.narrow(0, start, targets.len())?.contiguous()?)?.into_inner();
            let (log_probs, entropies) = self.head_scores(&input, targets, temperature)?;
            let weigh = |scores: &Tensor, derivatives: &[f32]| {
                let derivatives = &derivatives[start..start + targets.len()];
                (scores * Tensor::from_slice(derivatives, targets.len(), &self.device)?)?.sum_all()
            };
            let mut value = weigh(&log_probs, &wanted.log_probs)?;
            if wanted.entropies.iter().any(|&derivative| derivative != 0.0) {
                value = (value + weigh(&entropies, &wanted.entropies)?)?;
            }
            rows.push(self.take_gradients(&value, &input, gradients)?);
        }
        let scored_rows = Tensor::from_slice(&batch.scored, batch.scored.len(), &self.device)?;
        let mut derivative = pass
            .hidden
            .zeros_like()?
            .index_add(&scored_rows, &Tensor::cat(&rows, 0)?, 0)?;
        for (layer, (input, output)) in pass.layers.into_iter().enumerate().rev() {
            let (input, output) = if let Some(output) = output {
                (input, output)
            } else {
                let input = Var::from_tensor(&input)?.into_inner();
                let output = self.layer(layer, &input, block)?;
                (input, output)
            };
            let value = (output * &derivative)?.sum_all()?;
            derivative = self.take_gradients(&value, &input, gradients)?;
        }
        if self.adapter.is_none() {
            let embedding = self.layout.embedding;
            let ids = Tensor::from_slice(&batch.ids, batch.ids.len(), &self.device)?;
            let shape = self.base[embedding].used.shape();
            let sums = Tensor::zeros(shape, DType::F32, &self.device)?.index_add(&ids, &derivative, 0)?;
            gradients.add(embedding, &sums)?;
        }
        Ok(())
    }

    /// Adds the gradients of `value` to the sums and returns its derivative by `input`.
    fn take_gradients(
        &self,
        value: &Tensor,
        input: &Tensor,
        gradients: &mut DeviceGradients,
    ) -> Result<Tensor> {
        let mut store = value.backward()?;
        for (index, Weight { used, .. }) in self.weights().iter().enumerate() {
            if let Some(gradient) = store.remove(used) {
                gradients.add(index, &gradient)?;
            }
        }
        match store.remove(input) {
            Some(derivative) => Ok(derivative.detach()),
            None => input.zeros_like(),
        }
    }
}

/// A forward pass with what the backward pass needs.
struct Pass {
    /// Input of each layer, and its output with the graph between them where it was kept.
    layers: Vec<(Tensor, Option<Tensor>)>,
    hidden: Tensor,
}

/// Gives each member its share of a batch's scores.
fn deal(
    all: Scores,
    members: &[usize],
    sequences: &[TokenSequence<'_>],
    scores: &mut [Scores],
) -> std::result::Result<(), ModelError> {
    let (mut log_probs, mut entropies) = (all.log_probs.into_iter(), all.entropies.into_iter());
    for &member in members {
        let scored = sequences[member].scored;
        let own = Scores {
            log_probs: log_probs.by_ref().take(scored.len()).collect(),
            entropies: entropies.by_ref().take(scored.len()).collect(),
        };
        own.check_finite(member, scored)?;
        scores[member] = own;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_hold_every_sequence_once_within_the_limit_and_point_at_its_own_rows() {
        let lists: Vec<(Vec<u32>, Vec<u32>)> = [5, 9, 1, 30, 6, 2, 9]
            .into_iter()
            .enumerate()
            .map(|(index, length)| {
                let tokens = (0..length).map(|offset| (10 * index) as u32 + offset).collect();
                (tokens, (1..length).step_by(2).collect())
            })
            .collect();
        let sequences: Vec<TokenSequence<'_>> = lists
            .iter()
            .map(|(tokens, scored)| TokenSequence { tokens, scored })
            .collect();
        let batches = batches(&sequences, 20);
        let mut seen: Vec<usize> = batches.iter().flat_map(|batch| batch.members.clone()).collect();
        seen.sort_unstable();
        assert_eq!(
            seen,
            [0, 1, 3, 4, 5, 6],
            "the one with nothing to score is left out"
        );
        for batch in batches {
            assert!(batch.members.len() == 1 || batch.ids.len() <= 20);
            assert_eq!(batch.ids.len(), batch.members.len() * batch.rows);
            for (&row, &target) in batch.scored.iter().zip(&batch.targets) {
                assert_eq!(
                    batch.ids[row as usize] + 1,
                    target,
                    "the row before the scored token"
                );
            }
        }
    }
}
