//! Supervised fine-tuning on prompt and response pairs, also from a random initialisation.
//!
//! The loss is the mean negative log-prob over the response tokens of an optimiser step's examples (arXiv 2607.14777,
//! stage 1). Which examples an update sees is a function of the seed and the update alone, so a resumed run continues
//! as if it had never stopped.

use std::collections::BTreeMap;

use seed_model::{
    AdamW, AdamWOptions, Decoder, Gradients, Schedule, ScoreGradients, StepOutcome, TokenSequence,
};
use seed_random::{Draw, RandomKey};

use crate::TrainError;
use crate::config::{ExampleTruncation, SftSection};
use crate::examples::{Example, ExampleError, ExampleRecord};
use crate::policy::Policy;
use crate::trainer::options::learning_rate;

/// Mean negative log-prob per token, overall and by kind of example.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loss {
    /// Over all target tokens.
    pub mean: f64,
    /// Target tokens.
    pub tokens: usize,
    /// By kind: sum of negative log-probs and number of tokens.
    pub kinds: BTreeMap<String, (f64, usize)>,
}

impl Loss {
    fn add(&mut self, kind: &str, log_probs: &[f32]) {
        let sum: f64 = log_probs.iter().map(|&value| -f64::from(value)).sum();
        let entry = self.kinds.entry(kind.to_owned()).or_default();
        entry.0 += sum;
        entry.1 += log_probs.len();
        self.tokens += log_probs.len();
    }

    fn finish(mut self) -> Self {
        let sum: f64 = self.kinds.values().map(|(sum, _)| sum).sum();
        self.mean = sum / self.tokens.max(1) as f64;
        self
    }
}

/// Encoded examples, split for training and validation.
pub struct ExampleSet {
    /// Names of the kinds, in order of first appearance.
    pub kinds: Vec<String>,
    /// Examples to train on.
    pub training: Vec<Example>,
    /// Examples to validate on.
    pub validation: Vec<Example>,
    /// Examples left out for their length.
    pub dropped: usize,
}

/// Which of `count` examples are held out for validation: a random share of them, at least one and never all, as the
/// paper's pipeline splits. A single example is trained on; without a share nothing is held out.
fn held_out(count: usize, share: f64, key: RandomKey) -> Vec<bool> {
    let mut held_out = vec![false; count];
    if share > 0.0 && count > 1 {
        let mut order: Vec<usize> = (0..count).collect();
        key.with_text("purpose", "validation split")
            .generator()
            .shuffle(&mut order);
        let held = ((count as f64 * share).round() as usize).clamp(1, count - 1);
        for index in order.into_iter().take(held) {
            if let Some(flag) = held_out.get_mut(index) {
                *flag = true;
            }
        }
    }
    held_out
}

impl ExampleSet {
    /// Encodes `records`; without records of their own, holds out a share of the training records for validation.
    ///
    /// # Errors
    /// [`ExampleError::Empty`], or [`ExampleError::TooLong`] where the section says to stop.
    pub fn new(
        records: &[ExampleRecord],
        validation: Option<&[ExampleRecord]>,
        policy: &Policy,
        section: &SftSection,
        key: RandomKey,
    ) -> Result<Self, TrainError> {
        let mut set = Self {
            kinds: Vec::new(),
            training: Vec::new(),
            validation: Vec::new(),
            dropped: 0,
        };
        let training = set.encode(records, policy, section)?;
        set.training = training;
        if let Some(records) = validation {
            set.validation = set.encode(records, policy, section)?;
        } else {
            let mut flags = held_out(set.training.len(), section.validation_fraction, key).into_iter();
            let (validation, training) = std::mem::take(&mut set.training)
                .into_iter()
                .partition(|_| flags.next().unwrap_or(false));
            set.training = training;
            set.validation = validation;
        }
        if section.train_prompts {
            set.training.iter_mut().for_each(Example::score_all);
        }
        if set.training.is_empty() {
            return Err(ExampleError::Empty {
                paths: section.data.clone(),
            }
            .into());
        }
        Ok(set)
    }

    fn encode(
        &mut self,
        records: &[ExampleRecord],
        policy: &Policy,
        section: &SftSection,
    ) -> Result<Vec<Example>, TrainError> {
        let mut examples = Vec::with_capacity(records.len());
        for (index, record) in records.iter().enumerate() {
            let kind = self
                .kinds
                .iter()
                .position(|kind| *kind == record.kind)
                .unwrap_or_else(|| {
                    self.kinds.push(record.kind.clone());
                    self.kinds.len() - 1
                });
            let mut example = record.encode(
                &policy.conversation,
                &policy.tokenizer,
                policy.end_of_turn(),
                kind,
            );
            let length = example.tokens.len();
            if length > section.max_length {
                match section.truncation {
                    ExampleTruncation::Left => example.truncate_left(section.max_length),
                    ExampleTruncation::Drop => {
                        self.dropped += 1;
                        continue;
                    }
                    ExampleTruncation::Error => {
                        return Err(ExampleError::TooLong {
                            index,
                            length,
                            limit: section.max_length,
                        }
                        .into());
                    }
                }
            }
            if !example.scored.is_empty() {
                examples.push(example);
            }
        }
        Ok(examples)
    }

    fn kind(&self, example: &Example) -> &str {
        self.kinds.get(example.kind).map_or("", String::as_str)
    }
}

/// Which examples each update of an epoch sees.
fn batches(examples: &[Example], section: &SftSection, key: RandomKey, epoch: u64) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..examples.len()).collect();
    key.with_text("purpose", "example order")
        .with("epoch", epoch)
        .generator()
        .shuffle(&mut order);
    let mut batches = Vec::new();
    let mut batch: Vec<usize> = Vec::new();
    let mut tokens = 0;
    for index in order {
        let length = examples.get(index).map_or(0, |example| example.tokens.len());
        let full = batch.len() >= section.batch_rows
            || section
                .batch_tokens
                .is_some_and(|limit| !batch.is_empty() && tokens + length > limit);
        if full {
            batches.push(std::mem::take(&mut batch));
            tokens = 0;
        }
        batch.push(index);
        tokens += length;
    }
    if !batch.is_empty() {
        batches.push(batch);
    }
    batches
}

/// A fine-tuning run in memory.
pub struct FineTuner {
    /// The policy being tuned.
    pub policy: Policy,
    /// The optimiser with its state.
    pub optimiser: AdamW,
    gradients: Gradients,
    schedule: Schedule,
    section: SftSection,
    set: ExampleSet,
    key: RandomKey,
    /// Updates done.
    pub update: u64,
    /// Updates of the whole run.
    pub total: u64,
    epoch: u64,
    batches: Vec<Vec<usize>>,
    /// Updates before the current epoch.
    before: u64,
    recompute: bool,
}

/// What an update did.
pub struct UpdateOutput {
    /// Training loss of its examples, before the update.
    pub loss: Loss,
    /// Global gradient norm before clipping.
    pub gradient_norm: f64,
    /// Learning rate.
    pub learning_rate: f64,
    /// 0-based epoch.
    pub epoch: u64,
    /// Whether it was the last of its epoch.
    pub ends_epoch: bool,
    /// Whether a non-finite gradient kept the weights as they were.
    pub skipped: bool,
    /// Tokens in the sequences.
    pub tokens: usize,
}

impl FineTuner {
    /// Prepares a run from its beginning.
    pub fn new(
        mut policy: Policy,
        set: ExampleSet,
        section: &SftSection,
        seed: u64,
        recompute: bool,
        micro_batch_tokens: usize,
    ) -> Self {
        policy.decoder = policy.decoder.with_pack_tokens(micro_batch_tokens);
        let key = RandomKey::new(seed);
        let updates: usize = (0..section.epochs as u64)
            .map(|epoch| batches(&set.training, section, key, epoch).len())
            .sum();
        let total = section.max_updates.map_or(updates, |limit| limit.min(updates)) as u64;
        let options = AdamWOptions {
            beta1: section.beta1 as f32,
            beta2: section.beta2 as f32,
            epsilon: section.epsilon as f32,
            weight_decay: section.weight_decay as f32,
            decay_vectors: false,
            max_norm: section.gradient_clip,
        };
        Self {
            optimiser: AdamW::new(options, policy.decoder.trained()),
            gradients: Gradients::of(&policy.decoder),
            schedule: learning_rate(
                section.learning_rate,
                section.schedule,
                section.warmup_ratio,
                section.final_ratio,
                total,
            ),
            batches: batches(&set.training, section, key, 0),
            section: section.clone(),
            policy,
            set,
            key,
            update: 0,
            total,
            epoch: 0,
            before: 0,
            recompute,
        }
    }

    /// Continues after `update` updates, with weights and optimiser state already restored.
    pub fn seek(&mut self, update: u64) {
        self.update = update;
        self.epoch = 0;
        self.before = 0;
        self.batches = batches(&self.set.training, &self.section, self.key, 0);
        while update - self.before >= self.batches.len() as u64 && self.epoch + 1 < self.section.epochs as u64
        {
            self.before += self.batches.len() as u64;
            self.epoch += 1;
            self.batches = batches(&self.set.training, &self.section, self.key, self.epoch);
        }
    }

    /// Examples held out for validation.
    pub fn validation_examples(&self) -> usize {
        self.set.validation.len()
    }

    /// Examples trained on.
    pub fn training_examples(&self) -> usize {
        self.set.training.len()
    }

    /// Runs the next update; `None` when all are done.
    ///
    /// # Errors
    /// When an example does not fit the model or a score is not finite.
    pub fn step(&mut self) -> Result<Option<UpdateOutput>, TrainError> {
        if self.update >= self.total {
            return Ok(None);
        }
        let position = (self.update - self.before) as usize;
        let Some(batch) = self.batches.get(position) else {
            return Ok(None);
        };
        let examples: Vec<&Example> = batch
            .iter()
            .filter_map(|&index| self.set.training.get(index))
            .collect();
        let sequences: Vec<TokenSequence<'_>> = examples
            .iter()
            .map(|example| TokenSequence {
                tokens: &example.tokens,
                scored: &example.scored,
            })
            .collect();
        let targets: usize = examples.iter().map(|example| example.scored.len()).sum();
        let tokens = examples.iter().map(|example| example.tokens.len()).sum();
        let weight = -1.0 / targets.max(1) as f32;
        let mut loss = Loss::default();
        self.gradients.clear();
        let set = &self.set;
        self.policy.decoder.accumulate_gradient(
            &sequences,
            1.0,
            &mut self.gradients,
            &mut |index, scores| {
                if let Some(example) = examples.get(index) {
                    loss.add(set.kind(example), &scores.log_probs);
                }
                ScoreGradients {
                    log_probs: vec![weight; scores.log_probs.len()],
                    entropies: vec![0.0; scores.entropies.len()],
                }
            },
            self.recompute,
        )?;
        let rate = self.schedule.rate(self.update);
        let outcome = self
            .policy
            .decoder
            .optimise(&mut self.optimiser, &mut self.gradients, rate)?;
        let (gradient_norm, skipped) = match outcome {
            StepOutcome::Applied { gradient_norm } => (gradient_norm, false),
            StepOutcome::SkippedNonFinite { gradient_norm, .. } => (gradient_norm, true),
        };
        let ends_epoch = position + 1 == self.batches.len();
        let epoch = self.epoch;
        self.update += 1;
        if ends_epoch && self.epoch + 1 < self.section.epochs as u64 {
            self.before += self.batches.len() as u64;
            self.epoch += 1;
            self.batches = batches(&self.set.training, &self.section, self.key, self.epoch);
        }
        Ok(Some(UpdateOutput {
            loss: loss.finish(),
            gradient_norm,
            learning_rate: rate,
            epoch,
            ends_epoch,
            skipped,
            tokens,
        }))
    }

    /// Loss on the validation examples.
    ///
    /// # Errors
    /// When an example does not fit the model.
    pub fn validate(&self) -> Result<Loss, TrainError> {
        validation_loss(&self.policy.decoder, &self.set)
    }
}

fn validation_loss(decoder: &Decoder, set: &ExampleSet) -> Result<Loss, TrainError> {
    let sequences: Vec<TokenSequence<'_>> = set
        .validation
        .iter()
        .map(|example| TokenSequence {
            tokens: &example.tokens,
            scored: &example.scored,
        })
        .collect();
    let mut loss = Loss::default();
    for (example, scores) in set.validation.iter().zip(decoder.score(&sequences, 1.0)?) {
        loss.add(set.kind(example), &scores.log_probs);
    }
    Ok(loss.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn something_is_held_out_and_never_everything() {
        let held = |count, share| {
            held_out(count, share, RandomKey::new(3))
                .iter()
                .filter(|held| **held)
                .count()
        };
        assert_eq!(held(0, 0.1), 0);
        assert_eq!(held(1, 0.1), 0, "a single example is trained on");
        assert_eq!(held(2, 0.01), 1);
        assert_eq!(held(2, 1.0), 1);
        assert_eq!(held(1000, 0.1), 100);
        assert_eq!(held(1000, 0.0), 0);
        assert_ne!(
            held_out(1000, 0.1, RandomKey::new(3)),
            held_out(1000, 0.1, RandomKey::new(4))
        );
    }
}
