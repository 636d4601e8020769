//! Forward and backward over whole sequences: [`Decoder::accumulate_gradient`].
//!
//! Not for: what the loss is (the caller's function) or what is done with the gradients ([`crate::optimiser`]).

use std::ops::Range;

use seed_kernels::attention::KeyValueCache;
use seed_kernels::head::token_log_probs_backward;
use seed_kernels::norm::rms_norm_backward;
use seed_kernels::rotary::RotaryTable;

use crate::backward::backward;
use crate::buffers::{Buffers, Workspace, ensure_caches};
use crate::decoder::{Decoder, Slots, fill, packs, sequence_name};
use crate::error::ModelError;
use crate::gradients::Gradients;
use crate::layer::{LayerActivations, copy_into, forward, sized};
use crate::pack::Pack;
use crate::sequence::{ScoreGradients, Scores, TokenSequence};

/// The caller's loss: given a sequence's index and its scores, the derivatives with respect to each of them.
pub type Loss<'a> = dyn FnMut(usize, &Scores) -> ScoreGradients + 'a;

impl Decoder {
    /// Scores the sequences, asks `loss` for the derivatives, in the order of the list and once for each sequence,
    /// and adds the gradient of every parameter to `gradients`.
    ///
    /// The scores given to `loss` have the bits of [`Decoder::score`]. The bits of the gradients depend on the order
    /// of the sequences, not on how the list is split over calls. With `recompute`, a layer's activations are
    /// computed a second time in the backward pass instead of being kept: the same bits, about a third more time,
    /// and memory for one layer instead of all.
    ///
    /// # Errors
    /// Where a sequence is not valid, a score or a derivative is not finite, or `loss` returns the wrong number of
    /// derivatives. `gradients` may then hold the share of earlier sequences: clear them.
    pub fn accumulate_gradient(
        &self,
        sequences: &[TokenSequence<'_>],
        temperature: f32,
        gradients: &mut Gradients,
        loss: &mut Loss<'_>,
        recompute: bool,
    ) -> Result<(), ModelError> {
        self.validate(sequences, temperature)?;
        self.buffers.with(|buffers| {
            buffers
                .layers
                .resize_with(self.config().layers, LayerActivations::default);
            for range in packs(sequences, self.pack_tokens) {
                self.accumulate_pack(sequences, range, temperature, gradients, loss, recompute, buffers)?;
            }
            Ok(())
        })
    }

    fn accumulate_pack(
        &self,
        sequences: &[TokenSequence<'_>],
        range: Range<usize>,
        temperature: f32,
        gradients: &mut Gradients,
        loss: &mut Loss<'_>,
        recompute: bool,
        buffers: &mut Buffers,
    ) -> Result<(), ModelError> {
        let Buffers {
            pack,
            workspace,
            scored,
            caches,
            layers,
            backward: scratch,
            derivative,
            d_scored,
            d_normed,
            d_log_probs,
            d_entropies,
        } = buffers;
        fill(pack, scored, &sequences[range.clone()]);
        let _span = tracing::debug_span!("pack", rows = pack.rows(), sequences = range.len()).entered();
        let phase = tracing::debug_span!("forward").entered();
        let rotary = self.rotary(pack.positions_needed());
        let slots = if recompute { Slots::Shared } else { Slots::PerLayer };
        ensure_caches(caches, pack, &self.shape, slots, self.config().layers);
        let mut caches: Vec<&mut [KeyValueCache]> = caches.iter_mut().map(Vec::as_mut_slice).collect();
        self.embed(pack, &mut workspace.hidden);
        for (layer, kept) in layers.iter_mut().enumerate() {
            let kept = if recompute {
                copy_into(&mut kept.input, &workspace.hidden);
                None
            } else {
                Some(kept)
            };
            self.forward_layer(layer, &rotary, pack, &mut caches, slots, workspace, kept);
        }
        phase.exit();

        let scores = self.score_rows(&workspace.hidden, scored, sequences, range.clone(), temperature)?;
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
        if scored.rows.is_empty() {
            return Ok(());
        }

        let width = self.config().hidden_size;
        let count = scored.rows.len();
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
            sized(d_normed, count * width),
            Some(gradients.get_mut(self.layout.head.weight)),
        );
        rms_norm_backward(
            &scored.hidden,
            count,
            self.final_norm(),
            self.config().rms_norm_epsilon,
            d_normed,
            sized(d_scored, count * width),
            gradients.get_mut(self.layout.final_norm),
        );
        phase.exit();
        let _phase = tracing::debug_span!("backward").entered();
        derivative.clear();
        derivative.resize(pack.rows() * width, 0.0);
        for (&row, values) in scored.rows.iter().zip(d_scored.chunks_exact(width)) {
            derivative[row * width..(row + 1) * width].copy_from_slice(values);
        }

        for (layer, kept) in layers.iter_mut().enumerate().rev() {
            if recompute {
                let _span = tracing::debug_span!("recompute").entered();
                copy_into(&mut workspace.hidden, &kept.input);
                let mut again = std::mem::take(&mut workspace.activations);
                self.forward_layer(
                    layer,
                    &rotary,
                    pack,
                    &mut caches,
                    slots,
                    workspace,
                    Some(&mut again),
                );
                workspace.activations = again;
            }
            let activations = if recompute { &workspace.activations } else { &*kept };
            backward(
                &self.layer_context(layer, &rotary, pack),
                &self.transposed().layers[layer],
                &caches,
                slots.of(layer),
                activations,
                derivative,
                &mut workspace.scratch,
                scratch,
                gradients,
            );
        }
        gradients.add_embedded(self.layout.embedding, &pack.tokens, derivative);
        Ok(())
    }

    /// Runs one layer on `workspace.hidden`; with `kept`, all that its backward pass needs is left there.
    fn forward_layer(
        &self,
        layer: usize,
        rotary: &RotaryTable,
        pack: &Pack,
        caches: &mut [&mut [KeyValueCache]],
        slots: Slots,
        workspace: &mut Workspace,
        kept: Option<&mut LayerActivations>,
    ) {
        let keep = kept.is_some();
        forward(
            &self.layer_context(layer, rotary, pack),
            &mut workspace.hidden,
            caches,
            slots.of(layer),
            kept.unwrap_or(&mut workspace.activations),
            &mut workspace.scratch,
            keep,
        );
    }
}

/// The right number of derivatives, all finite.
fn check_derivatives(index: usize, scored: &[u32], derivatives: &ScoreGradients) -> Result<(), ModelError> {
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
