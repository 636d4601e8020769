//! From recorded and fresh scores to gradients, one mini-batch at a time.
//!
//! [`UpdatePlan::new`] validates the batch of one iteration and lets the algorithm decide advantages and masks.
//! [`UpdatePlan::mini_batch`] fixes the denominators of one optimiser step. Then, in any order and any split,
//! [`MiniBatchObjective::evaluate`] turns a sequence's fresh log-probs and entropies into gradients, and
//! [`MiniBatchObjective::finish`] gives the step's metrics, reduced in mini-batch order.
//!
//! Minimised:
//!
//! ```text
//! L = c_pg·PG − c_H·entropy + c_kl·k3 + λ·auxiliary
//! ```
//!
//! Not for: forward passes, clipping gradients or stepping an optimiser.

use crate::aggregation::DenominatorScope;
use crate::algorithm::{Algorithm, Guidance, GuidanceReport, GuidedToken};
use crate::gap::GapRecord;
use crate::kl::k3;
use crate::metrics::UpdateMetrics;
use crate::policy_loss::{PolicyOptions, clipped_token};
use crate::seed::Normaliser;
use crate::{RlError, Sequence};

/// Gradients of the minimised loss by one sequence's fresh scores, one value per response token.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct SequenceGradients {
    /// `d L / d ℓ_θ`.
    pub log_probs: Vec<f32>,
    /// `d L / d entropy`.
    pub entropies: Vec<f32>,
}

/// The batch of one iteration with everything that is fixed before its first optimiser step.
#[derive(Debug)]
pub struct UpdatePlan<'a> {
    algorithm: &'a dyn Algorithm,
    policy: &'a PolicyOptions,
    sequences: &'a [Sequence<'a>],
    guidance: Guidance,
}

impl<'a> UpdatePlan<'a> {
    /// Validates `sequences` and lets `algorithm` guide them at `update` (from 1).
    ///
    /// # Errors
    /// [`RlError::LengthMismatch`] and [`RlError::NonFinite`] from [`Sequence::validate`],
    /// [`RlError::MissingScores`] when the divergence needs reference scores that are absent,
    /// [`RlError::InvalidOption`] from [`PolicyOptions::validate`], and whatever [`Algorithm::guide`] returns.
    pub fn new(
        algorithm: &'a dyn Algorithm,
        policy: &'a PolicyOptions,
        sequences: &'a [Sequence<'a>],
        update: u64,
    ) -> Result<Self, RlError> {
        policy.validate()?;
        for (index, sequence) in sequences.iter().enumerate() {
            sequence.validate(index)?;
            if policy.kl_coefficient != 0.0 && sequence.reference.is_none() {
                return Err(RlError::MissingScores {
                    sequence: index,
                    field: "reference",
                    option: "kl_coefficient",
                });
            }
        }
        let guidance = algorithm.guide(sequences, update)?;
        Ok(Self {
            algorithm,
            policy,
            sequences,
            guidance,
        })
    }

    /// Coverage, reasons for leaving sequences out, and the gap before any update.
    pub fn report(&self) -> &GuidanceReport {
        &self.guidance.report
    }

    /// The advantages that enter the policy loss of a sequence, after the algorithm; empty for an unknown index.
    pub fn advantages(&self, sequence: usize) -> &[f32] {
        let given = self
            .sequences
            .get(sequence)
            .map_or(&[][..], |found| found.advantages);
        self.guidance
            .sequences
            .get(sequence)
            .and_then(|found| found.advantages.as_deref())
            .unwrap_or(given)
    }

    /// Tokens of a sequence that the algorithm guides; empty = none.
    pub fn guided(&self, sequence: usize) -> &[bool] {
        self.guidance
            .sequences
            .get(sequence)
            .map_or(&[][..], |found| &found.mask)
    }

    /// The objective of one optimiser step over the sequences `indices` (of the batch; repeats count each time).
    ///
    /// # Errors
    /// [`RlError::UnknownSequence`] for an index outside the batch.
    pub fn mini_batch(&self, indices: &[usize]) -> Result<MiniBatchObjective<'_>, RlError> {
        if let Some(&sequence) = indices.iter().find(|&&index| index >= self.sequences.len()) {
            return Err(RlError::UnknownSequence {
                sequence,
                available: self.sequences.len(),
            });
        }
        let count = |mask: &[bool]| mask.iter().filter(|&&token| token).count();
        let response: Vec<usize> = indices
            .iter()
            .map(|&index| count(self.sequences[index].mask))
            .collect();
        let guided: Vec<usize> = indices.iter().map(|&index| count(self.guided(index))).collect();
        let aggregation = self.policy.aggregation;
        let scope = self.policy.denominator_scope;
        let auxiliary_weights = match self.algorithm.normaliser() {
            Normaliser::Mask => aggregation.sequence_weights(&guided, scope),
            Normaliser::Response => aggregation.sequence_weights(&response, scope),
            Normaliser::GlobalMini => aggregation.sequence_weights(&response, DenominatorScope::MiniBatch),
        };
        Ok(MiniBatchObjective {
            plan: self,
            policy_weights: aggregation.sequence_weights(&response, scope),
            auxiliary_weights,
            results: vec![None; indices.len()],
            indices: indices.to_vec(),
            stray: None,
        })
    }
}

/// The objective of one optimiser step.
#[derive(Debug)]
#[must_use = "`finish` reports what stopped the step"]
pub struct MiniBatchObjective<'p> {
    plan: &'p UpdatePlan<'p>,
    indices: Vec<usize>,
    /// Weight of every trained token of the sequence at each position.
    policy_weights: Vec<f64>,
    /// The same for guided tokens in the auxiliary loss.
    auxiliary_weights: Vec<f64>,
    results: Vec<Option<Result<UpdateMetrics, RlError>>>,
    /// A position that was evaluated but does not exist.
    stray: Option<usize>,
}

impl MiniBatchObjective<'_> {
    /// Batch indices of the sequences, by position.
    pub fn indices(&self) -> &[usize] {
        &self.indices
    }

    /// Whether any token trains. When none does the loss is 0: skip the forward pass and the optimiser step, and
    /// count it.
    pub fn trains(&self) -> bool {
        self.policy_weights.iter().any(|&weight| weight > 0.0)
    }

    /// Gradients of the sequence at `position` of the mini-batch, given its fresh scores (one per response token).
    ///
    /// Non-finite or misaligned scores, or an unknown position, give zero gradients here and an error from
    /// [`finish`](Self::finish); the optimiser step must then not be taken. Evaluating a position again replaces
    /// its result.
    pub fn evaluate(&mut self, position: usize, log_probs: &[f32], entropies: &[f32]) -> SequenceGradients {
        if position >= self.results.len() {
            self.stray.get_or_insert(position);
            return SequenceGradients::default();
        }
        let (gradients, result) = match self.gradients(position, log_probs, entropies) {
            Ok((gradients, metrics)) => (gradients, Ok(metrics)),
            Err(error) => {
                let zeros = vec![0.0; log_probs.len()];
                (
                    SequenceGradients {
                        entropies: zeros.clone(),
                        log_probs: zeros,
                    },
                    Err(error),
                )
            }
        };
        self.results[position] = Some(result);
        gradients
    }

    /// The metrics of the step.
    ///
    /// # Errors
    /// The error of the first position whose scores were bad, [`RlError::NotEvaluated`], or
    /// [`RlError::UnknownSequence`] for a position outside the mini-batch.
    pub fn finish(self) -> Result<UpdateMetrics, RlError> {
        if let Some(sequence) = self.stray {
            return Err(RlError::UnknownSequence {
                sequence,
                available: self.indices.len(),
            });
        }
        let mut total = UpdateMetrics {
            steps: 1,
            ..UpdateMetrics::default()
        };
        for (position, result) in self.results.into_iter().enumerate() {
            let metrics = result.ok_or(RlError::NotEvaluated { position })??;
            total.merge(metrics);
        }
        Ok(total)
    }

    /// One sequence's gradients and its share of the metrics.
    fn gradients(
        &self,
        position: usize,
        log_probs: &[f32],
        entropies: &[f32],
    ) -> Result<(SequenceGradients, UpdateMetrics), RlError> {
        let UpdatePlan {
            algorithm,
            policy,
            sequences,
            guidance,
        } = self.plan;
        // Positions index vectors of one length, and indices were checked against the batch.
        let index = self.indices[position];
        let (policy_weight, auxiliary_weight) =
            (self.policy_weights[position], self.auxiliary_weights[position]);
        let sequence = &sequences[index];
        sequence.check_scores(index, "log_probs", log_probs)?;
        sequence.check_scores(index, "entropies", entropies)?;
        let advantages = self.plan.advantages(index);
        let guided = self.plan.guided(index);

        let policy_coefficient = if algorithm.learns_from_outcome() {
            policy.policy_coefficient
        } else {
            0.0
        };
        let mut gradients = SequenceGradients {
            log_probs: vec![0.0; log_probs.len()],
            entropies: vec![0.0; entropies.len()],
        };
        let mut metrics = UpdateMetrics {
            sequences: 1,
            ..UpdateMetrics::default()
        };
        for token in (0..sequence.len()).filter(|&token| sequence.mask[token]) {
            let student = f64::from(log_probs[token]);
            let old = f64::from(sequence.old[token]);
            let clipped = clipped_token(student, old, f64::from(advantages[token]), policy);
            metrics.add_policy_token(&clipped, policy_weight);
            let mut gradient = policy_coefficient * policy_weight * clipped.term.gradient;

            metrics.entropy_sum += policy_weight * f64::from(entropies[token]);
            gradients.entropies[token] = (-policy.entropy_coefficient * policy_weight) as f32;

            if let Some(reference) = sequence.reference {
                let divergence = k3(student, f64::from(reference[token]));
                metrics.kl_sum += policy_weight * divergence.loss;
                gradient += policy.kl_coefficient * policy_weight * divergence.gradient;
            }

            if let (Some(true), Some(skill)) = (guided.get(token), sequence.skill) {
                let guided_token = GuidedToken {
                    student,
                    old,
                    skill: f64::from(skill[token]),
                    placebo: sequence.placebo.map(|placebo| f64::from(placebo[token])),
                    advantage: f64::from(sequence.advantages[token]),
                    tied: sequence.tied,
                };
                let gap = algorithm.gap(&guided_token);
                metrics.add_gate(algorithm.gate(gap), sequence.outcome);
                metrics.gaps.0.push(GapRecord {
                    gap: gap as f32,
                    outcome: sequence.outcome,
                    span: sequence.span(token),
                    step: sequence.steps.get(token).copied(),
                });
                if guidance.coefficient != 0.0 {
                    let term = algorithm.auxiliary(&guided_token);
                    metrics.auxiliary_sum += auxiliary_weight * term.loss;
                    gradient += guidance.coefficient * auxiliary_weight * term.gradient;
                }
            }
            gradients.log_probs[token] = gradient as f32;
        }
        metrics.empty_sequences = usize::from(metrics.tokens == 0);
        Ok((gradients, metrics))
    }
}
