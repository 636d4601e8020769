//! Forward and backward over whole sequences: [`Decoder::accumulate_gradient`].
//!
//! Not for: what the loss is (the caller's function) or what is done with the gradients ([`crate::optimiser`]).

use std::ops::Range;

use seed_kernels::attention::KeyValueCache;
pub use seed_kernels::head::KEPT_LOGITS;
use seed_kernels::head::token_log_probs_backward;
use seed_kernels::norm::{rms_norm_backward, rms_norm_input_gradient};
use seed_kernels::parallel;
use seed_kernels::rotary::RotaryTable;

use crate::activations::{Kept, LayerActivations, Widths};
use crate::backward::{Trained, accumulate_parameters, backward};
use crate::buffers::{Lane, Part, TrainingBuffers, Workspace, ensure_caches, ensure_parts};
use crate::decoder::{Decoder, Slots, fill, gather_rows, packs};
use crate::error::ModelError;
use crate::gradients::Gradients;
use crate::layer::{copy_into, forward, sized};
use crate::pack::Pack;
use crate::sequence::{ScoreGradients, Scores, TokenSequence, sequence_name};

/// Fewest rows of a part of a pack, but for the last part.
const PART_ROWS: usize = 256;

/// The caller's loss: given a sequence's index and its scores, the derivatives with respect to each of them.
pub type Loss<'a> = dyn FnMut(usize, &Scores) -> ScoreGradients + 'a;

impl Decoder {
    /// Scores the sequences, asks `loss` for the derivatives, in the order of the list and once for each sequence,
    /// and adds the gradient of every trained value to `gradients`.
    ///
    /// The scores given to `loss` have the bits of [`Decoder::score`]. The bits of the gradients depend on the order
    /// of the sequences, not on how the list is split over calls. With `recompute`, a layer's activations are
    /// computed a second time in the backward pass instead of being kept: the same bits, about a third more time,
    /// and memory for one layer instead of all. Neighbours of which no derivative differs from 0 are not taken back
    /// through the layers: they would add 0 to every sum.
    ///
    /// On a device `loss` is asked in the order of the batches made there, and the bits depend on those.
    ///
    /// # Errors
    /// Where a sequence is not valid, a score or a derivative is not finite, `loss` returns the wrong number of
    /// derivatives, or `gradients` was not made for what this decoder trains. `gradients` may then hold the share of earlier sequences: clear them.
    pub fn accumulate_gradient(
        &self,
        sequences: &[TokenSequence<'_>],
        temperature: f32,
        gradients: &mut Gradients,
        loss: &mut Loss<'_>,
        recompute: bool,
    ) -> Result<(), ModelError> {
        self.validate(sequences, temperature)?;
        let (expected, found) = (self.trained().total(), gradients.total());
        if found != expected {
            return Err(ModelError::GradientCount { expected, found });
        }
        #[cfg(feature = "composed")]
        if let Some(device) = &self.device {
            self.count_rows(sequences.iter().map(TokenSequence::rows).sum());
            let sums = gradients.on_device(device)?;
            return device.accumulate(sequences, temperature, self.pack_tokens, sums, loss, recompute);
        }
        self.training_buffers.with(|buffers| {
            for range in packs(sequences, self.pack_tokens) {
                self.accumulate_pack(sequences, range, temperature, gradients, loss, recompute, buffers)?;
            }
            Ok(())
        })
    }

    /// Numbers per row and layer that a backward pass reads.
    fn kept_widths(&self) -> Widths {
        let config = self.config();
        let norm = self
            .layout
            .layers
            .first()
            .is_some_and(|layer| layer.query_key_norm.is_some());
        Widths::kept(&self.shape, config.hidden_size, config.intermediate_size, norm)
    }

    fn accumulate_pack(
        &self,
        sequences: &[TokenSequence<'_>],
        range: Range<usize>,
        temperature: f32,
        gradients: &mut Gradients,
        loss: &mut Loss<'_>,
        recompute: bool,
        buffers: &mut TrainingBuffers,
    ) -> Result<(), ModelError> {
        let TrainingBuffers {
            parts,
            activations,
            scored,
            head,
            d_scored,
            d_normed,
            inverses,
            d_log_probs,
            d_entropies,
        } = buffers;
        let frozen = self.adapter.is_some();
        let ranges = part_ranges(sequences, range.clone(), parallel::threads());
        let part_rows: Vec<usize> = ranges
            .iter()
            .map(|range| rows_of(&sequences[range.clone()]))
            .collect();
        ensure_parts(parts, &part_rows, self.pack_tokens);
        let kept = activations.divide(&self.kept_widths(), self.config().layers, &part_rows, recompute);
        let mut lanes: Vec<Lane<'_>> = parts
            .iter_mut()
            .zip(kept)
            .map(|(part, kept)| Lane { part, kept })
            .collect();
        scored.targets.clear();
        for (Lane { part, .. }, range) in lanes.iter_mut().zip(ranges) {
            fill(
                &mut part.pack,
                &mut part.rows,
                &mut scored.targets,
                &sequences[range],
            );
        }
        let rows: usize = part_rows.iter().sum();
        let _span = tracing::debug_span!("pack", rows, sequences = range.len()).entered();
        let positions = lanes.iter().map(|lane| lane.part.pack.positions_needed()).max();
        let pass = Pass {
            decoder: self,
            rotary: &self.rotary(positions.unwrap_or(0)),
            recompute,
        };
        parallel::for_each_mut(&mut lanes, |_, lane| pass.forward(lane));

        let width = self.config().hidden_size;
        scored.hidden.clear();
        for Lane { part, .. } in &lanes {
            gather_rows(&part.workspace.hidden, &part.rows, width, &mut scored.hidden);
        }
        let scores = self.score_rows(scored, sequences, range.clone(), temperature, Some(head))?;
        let phase = tracing::debug_span!("loss").entered();
        d_log_probs.clear();
        d_entropies.clear();
        for (index, scores) in range.zip(&scores) {
            let derivatives = loss(index, scores);
            check_derivatives(index, sequences[index].scored, &derivatives)?;
            d_log_probs.extend_from_slice(&derivatives.log_probs);
            d_entropies.extend_from_slice(&derivatives.entropies);
        }
        phase.exit();
        let count = scored.targets.len();
        let moved = moved_lanes(&lanes, d_log_probs, d_entropies);
        if !moved.contains(&true) {
            return Ok(());
        }

        let phase = tracing::debug_span!("head_backward", rows = count).entered();
        token_log_probs_backward(
            &scored.normed,
            count,
            &self.packed().head,
            &self.transposed().head,
            &scored.targets,
            temperature,
            d_log_probs,
            d_entropies,
            head,
            sized(d_normed, count * width),
            (!frozen).then(|| gradients.get_mut(self.layout.head.weight)),
        );
        let (weight, epsilon) = (self.final_norm(), self.config().rms_norm_epsilon);
        let d_hidden = sized(d_scored, count * width);
        if frozen {
            let inverses = sized(inverses, count);
            rms_norm_input_gradient(
                &scored.hidden,
                count,
                weight,
                epsilon,
                d_normed,
                d_hidden,
                inverses,
            );
        } else {
            let d_weight = gradients.get_mut(self.layout.final_norm);
            rms_norm_backward(
                &scored.hidden,
                count,
                weight,
                epsilon,
                d_normed,
                d_hidden,
                d_weight,
            );
        }
        phase.exit();
        let _phase = tracing::debug_span!("backward").entered();
        let mut rest = d_scored.as_slice();
        for Lane { part, .. } in &mut lanes {
            let (own, others) = rest.split_at(part.rows.len() * width);
            rest = others;
            let derivative = sized(&mut part.derivative, part.pack.rows() * width);
            derivative.fill(0.0);
            for (&row, values) in part.rows.iter().zip(own.chunks_exact(width)) {
                derivative[row * width..(row + 1) * width].copy_from_slice(values);
            }
        }
        // The episodes of a tied group end here unless something else moves them; in outcome RL that can be half of all.
        let mut lanes: Vec<Lane<'_>> = lanes
            .into_iter()
            .zip(moved)
            .filter_map(|(lane, moved)| moved.then_some(lane))
            .collect();
        for layer in (0..self.config().layers).rev() {
            parallel::for_each_mut(&mut lanes, |_, lane| pass.backward(layer, lane));
            let trained = match &self.adapter {
                Some(adapter) => Trained::Adapter(&adapter.layout[layer]),
                None => Trained::Layer(&self.layout.layers[layer]),
            };
            accumulate_parameters(&trained, layer, &lanes, gradients);
        }
        for Lane { part, .. } in lanes.iter().filter(|_| !frozen) {
            gradients.add_embedded(self.layout.embedding, &part.pack.tokens, &part.derivative);
        }
        Ok(())
    }
}

/// Which parts have a derivative that is not 0, given those of all parts' scored rows in order.
fn moved_lanes(lanes: &[Lane<'_>], d_log_probs: &[f32], d_entropies: &[f32]) -> Vec<bool> {
    let mut rest = d_log_probs.iter().zip(d_entropies);
    lanes
        .iter()
        .map(|Lane { part, .. }| {
            // Every value of the part is taken, also after the first that is not 0: the next part's follow.
            let own = rest.by_ref().take(part.rows.len());
            own.fold(false, |moved, (log_prob, entropy)| {
                moved || *log_prob != 0.0 || *entropy != 0.0
            })
        })
        .collect()
}

/// Rows that the sequences take in a pack.
fn rows_of(sequences: &[TokenSequence<'_>]) -> usize {
    sequences.iter().map(TokenSequence::rows).sum()
}

/// Cuts the sequences of a pack into parts for `threads` threads, in order.
///
/// A part of a few hundred rows goes through all layers on one thread, which saves the threads most of their meetings and
/// keeps the rows in that core's cache. Where the sequences do not make parts of about one size, there is one part, whose
/// operations are split over the threads instead. Results do not depend on it.
fn part_ranges(sequences: &[TokenSequence<'_>], range: Range<usize>, threads: usize) -> Vec<Range<usize>> {
    let rows = |range: &Range<usize>| rows_of(&sequences[range.clone()]);
    let mut parts: Vec<Range<usize>> = Vec::new();
    let mut start = range.start;
    for index in range.clone() {
        if rows(&(start..index + 1)) >= PART_ROWS {
            parts.push(start..index + 1);
            start = index + 1;
        }
    }
    if start < range.end {
        parts.push(start..range.end);
    }
    let largest = parts.iter().map(rows).max().unwrap_or(0);
    // A thread with more than its share keeps the others waiting.
    if largest * threads * 4 > rows(&range) * 5 {
        return vec![range];
    }
    parts
}

/// What the parts of a pack have in common.
struct Pass<'a> {
    decoder: &'a Decoder,
    rotary: &'a RotaryTable,
    recompute: bool,
}

impl Pass<'_> {
    fn slots(&self) -> Slots {
        if self.recompute {
            Slots::Shared
        } else {
            Slots::PerLayer
        }
    }

    /// Takes a part through all layers, keeping what its backward pass needs.
    fn forward(&self, lane: &mut Lane<'_>) {
        let Lane { part, kept } = lane;
        let Part {
            pack,
            workspace,
            caches,
            ..
        } = &mut **part;
        let _span = tracing::debug_span!("forward", rows = pack.rows()).entered();
        let count = self.decoder.config().layers;
        ensure_caches(caches, pack, &self.decoder.shape, self.slots(), count);
        self.decoder.embed(pack, &mut workspace.hidden);
        for (layer, kept) in kept.layers.iter_mut().enumerate() {
            let kept = if self.recompute {
                kept.input.copy_from_slice(&workspace.hidden);
                None
            } else {
                Some(kept)
            };
            self.forward_layer(layer, pack, caches, workspace, kept);
        }
    }

    /// Takes a part's derivative back through one layer, leaving in `part.backward` what its parameters' gradients are
    /// made of.
    fn backward(&self, layer: usize, lane: &mut Lane<'_>) {
        let Lane { part, kept } = lane;
        let Part {
            pack,
            workspace,
            caches,
            backward: scratch,
            derivative,
            ..
        } = &mut **part;
        let Kept { layers, again } = kept;
        if let Some(again) = again {
            let _span = tracing::debug_span!("recompute").entered();
            // There is one for each layer.
            copy_into(&mut workspace.hidden, layers[layer].input);
            self.forward_layer(layer, pack, caches, workspace, Some(again));
        }
        backward(
            &self.decoder.layer_context(layer, self.rotary, pack),
            &self.decoder.transposed().layers[layer],
            self.decoder
                .adapter
                .as_ref()
                .map(|weights| weights.backward(layer)),
            caches,
            self.slots().of(layer),
            kept.layer(layer),
            derivative,
            &mut workspace.scratch,
            scratch,
        );
    }

    /// Runs one layer on `workspace.hidden`; with `kept`, all that its backward pass needs is left there.
    fn forward_layer(
        &self,
        layer: usize,
        pack: &Pack,
        caches: &mut [Vec<KeyValueCache>],
        workspace: &mut Workspace,
        kept: Option<&mut LayerActivations<'_>>,
    ) {
        let keep = kept.is_some();
        let mut caches: Vec<&mut [KeyValueCache]> = caches.iter_mut().map(Vec::as_mut_slice).collect();
        let context = self.decoder.layer_context(layer, self.rotary, pack);
        let Workspace {
            hidden,
            activations,
            scratch,
        } = workspace;
        let mut run = |activations: &mut LayerActivations<'_>| {
            forward(
                &context,
                hidden,
                &mut caches,
                self.slots().of(layer),
                activations,
                scratch,
                keep,
            );
        };
        match kept {
            Some(kept) => run(kept),
            None => run(&mut LayerActivations::of(
                activations,
                &context.passing_widths(),
                pack.rows(),
            )),
        }
    }
}

/// The right number of derivatives, all finite.
pub(crate) fn check_derivatives(
    index: usize,
    scored: &[u32],
    derivatives: &ScoreGradients,
) -> Result<(), ModelError> {
    for (quantity, values) in [
        ("log_probs", &derivatives.log_probs),
        ("entropies", &derivatives.entropies),
    ] {
        if values.len() != scored.len() {
            return Err(ModelError::LossLength {
                owner: sequence_name(index),
                quantity,
                expected: scored.len(),
                found: values.len(),
            });
        }
        if let Some((&value, &position)) = values.iter().zip(scored).find(|(value, _)| !value.is_finite()) {
            return Err(ModelError::NonFinite {
                owner: sequence_name(index),
                quantity: "derivative of the loss",
                position: position as usize,
                value,
            });
        }
    }
    Ok(())
}
