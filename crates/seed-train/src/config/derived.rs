//! The third stage: quantities that follow from a configuration and the model's shape, for people to check before a
//! run begins.
//!
//! Counts are upper bounds where episodes may end early. Memory is an estimate from the shapes, in bytes.

use seed_model::training::KEPT_LOGITS;

use super::adapter::{AdapterSection, AdapterTarget};
use super::choices::{Analyser, Context, Teacher};
use super::fine_tuning::SftConfig;
use super::sections::TrainConfig;

/// Bytes of one `f32`.
const F32: u64 = 4;

/// What the estimates need to know about a decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelShape {
    /// Numbers in all its tensors.
    pub parameters: u64,
    /// Decoder layers.
    pub layers: u64,
    /// Width of the residual stream.
    pub hidden_size: u64,
    /// Width of the feed-forward layer.
    pub intermediate_size: u64,
    /// Query heads times head width.
    pub query_width: u64,
    /// Key and value heads times head width.
    pub key_value_width: u64,
    /// Tokens in the vocabulary.
    pub vocabulary_size: u64,
    /// Whether queries and keys have a norm of their own.
    pub query_key_norm: bool,
}

impl ModelShape {
    /// Numbers per token and layer that a backward pass reads, besides keys and values: the residual stream before attention
    /// and before the feed-forward part; queries and what attention made of them; gate and up; queries and keys before
    /// their norms.
    fn kept_numbers(&self) -> u64 {
        let before_norms = if self.query_key_norm {
            self.query_width + self.key_value_width
        } else {
            0
        };
        2 * (self.hidden_size + self.query_width + self.intermediate_size) + before_norms
    }

    /// Numbers per token that do not outlive a layer of a forward pass.
    fn passing_numbers(&self) -> u64 {
        4 * self.hidden_size + 2 * self.key_value_width + self.intermediate_size
    }

    /// Numbers that scoring of so many tokens works on.
    fn scoring_numbers(&self, tokens: u64) -> u64 {
        let of_token = self.kept_numbers() + 2 * self.key_value_width + self.passing_numbers();
        product([tokens, of_token])
    }

    /// Numbers that training on so many tokens at once works on. With `recompute`, a layer's are computed again from its
    /// input.
    fn training_numbers(&self, tokens: u64, recompute: bool) -> u64 {
        let (kept, cached) = if recompute {
            (self.kept_numbers() + self.layers * self.hidden_size, 1)
        } else {
            (self.layers * self.kept_numbers(), self.layers)
        };
        let backward = 7 * self.hidden_size
            + 4 * self.query_width
            + 2 * self.key_value_width
            + 5 * self.intermediate_size;
        // What is held by parts of a pass is given back where it exceeds what two passes need.
        let of_parts = self.passing_numbers() + backward + cached * 2 * self.key_value_width;
        let logits = product([tokens, self.vocabulary_size]).min(KEPT_LOGITS as u64);
        product([tokens, kept + 2 * of_parts]).saturating_add(logits)
    }

    /// Bytes of all weights with the adapter, and of what is trained of them.
    fn weight_bytes(&self, section: &AdapterSection) -> (u64, u64) {
        let weights = self.parameters * F32;
        let adapter = self.adapter_parameters(section) * F32;
        (weights + adapter, if section.enabled { adapter } else { weights })
    }

    /// Numbers of an adapter beside a model of this shape; 0 where none is trained.
    fn adapter_parameters(&self, section: &AdapterSection) -> u64 {
        if !section.enabled {
            return 0;
        }
        let sizes = |target: AdapterTarget| match target {
            AdapterTarget::Query | AdapterTarget::Output => self.hidden_size + self.query_width,
            AdapterTarget::Key | AdapterTarget::Value => self.hidden_size + self.key_value_width,
            AdapterTarget::Gate | AdapterTarget::Up | AdapterTarget::Down => {
                self.hidden_size + self.intermediate_size
            }
        };
        let widths: u64 = section.targets.iter().map(|&target| sizes(target)).sum();
        product([self.layers, section.rank as u64, widths])
    }
}

/// Estimated memory by purpose, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryEstimate {
    /// The policy's weights and its adapter, as they are and packed for products in both directions.
    pub weights: u64,
    /// Frozen, moving-average and reference copies of what is trained, as they are and packed for the forward direction.
    pub copies: u64,
    /// The gradient of what is trained and AdamW's two moments.
    pub training_state: u64,
    /// What passes over a micro-batch work on: activations kept for the backward pass, and buffers of one layer. They stay
    /// between calls.
    pub activations: u64,
    /// Keys and values of the sequences decoded at once, at their longest.
    pub key_value_cache: u64,
}

impl MemoryEstimate {
    /// All of it: what update and scoring work on is kept while the next rollout decodes.
    pub fn peak(&self) -> u64 {
        self.weights + self.copies + self.training_state + self.activations + self.key_value_cache
    }
}

/// What follows from a training configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Derived {
    /// Tasks times samples.
    pub episodes_per_iteration: u64,
    /// Over all iterations.
    pub total_episodes: u64,
    /// Most rows of one iteration: one per step, or one per episode in transcript context.
    pub max_rows_per_iteration: u64,
    /// Most tokens the policy is trained on in one iteration, prompts included.
    pub max_tokens_per_iteration: u64,
    /// Most response tokens sampled in one iteration.
    pub max_sampled_tokens_per_iteration: u64,
    /// Most optimiser steps of one iteration.
    pub max_updates_per_iteration: u64,
    /// Over all iterations.
    pub max_updates: u64,
    /// Iterations of learning-rate warm-up.
    pub warmup_iterations: u64,
    /// Most analyses of one iteration.
    pub analyses_per_iteration: u64,
    /// Evaluations over the run, the one before training included.
    pub evaluations: u64,
    /// Checkpoints written over the run.
    pub checkpoints: u64,
    /// Memory, when the model's shape is known.
    pub memory: Option<MemoryEstimate>,
}

impl TrainConfig {
    /// Derives what follows from the configuration; memory only when the model's shape is given.
    pub fn derive(&self, shape: Option<ModelShape>) -> Derived {
        let rollout = &self.rollout;
        let iterations = self.algorithm.iterations as u64;
        let episodes = product([
            rollout.tasks_per_iteration as u64,
            rollout.samples_per_task as u64,
        ]);
        let steps = product([episodes, self.world.max_steps as u64]);
        let rows = match self.world.context {
            Context::Windowed => steps,
            Context::Transcript => episodes,
        };
        let row_tokens = (rollout.max_prompt_tokens + rollout.max_response_tokens) as u64;
        let updates = product([
            rows.div_ceil(self.algorithm.mini_batch_rows as u64),
            self.algorithm.epochs as u64,
        ]);
        let analyses = if self.algorithm.name.has_teacher() && !self.seed.analyser.is_of_task() {
            episodes
        } else {
            0
        };
        Derived {
            episodes_per_iteration: episodes,
            total_episodes: product([episodes, iterations]),
            max_rows_per_iteration: rows,
            max_tokens_per_iteration: product([rows, row_tokens]),
            max_sampled_tokens_per_iteration: product([steps, rollout.max_response_tokens as u64]),
            max_updates_per_iteration: updates,
            max_updates: product([updates, iterations]),
            warmup_iterations: (self.optimiser.warmup_ratio * iterations as f64).round() as u64,
            analyses_per_iteration: analyses,
            evaluations: if iterations == 0 {
                1
            } else {
                occasions(iterations, self.evaluation.every as u64)
                    + u64::from(self.evaluation.before_training)
            },
            checkpoints: if iterations == 0 {
                0
            } else {
                occasions(iterations, self.checkpoint.every as u64)
            },
            memory: shape.map(|shape| self.memory(shape)),
        }
    }

    fn memory(&self, shape: ModelShape) -> MemoryEstimate {
        let (weights, trained) = shape.weight_bytes(&self.adapter);
        let has_teacher = self.algorithm.name.has_teacher();
        let seed = &self.seed;
        let initial = seed.teacher == Teacher::Frozen || seed.analyser == Analyser::Frozen;
        let has_initial_copy = self.algorithm.kl_coefficient > 0.0 || (has_teacher && initial);
        let has_moving_copy = has_teacher && seed.teacher.moves();
        let copies = u64::from(has_initial_copy) + u64::from(has_moving_copy);
        // Beside an adapter, copies share the base, and those that do not move share the adapter too.
        let held_copies = if self.adapter.enabled {
            u64::from(has_moving_copy)
        } else {
            copies
        };
        let tokens = self.algorithm.micro_batch_tokens as u64;
        let act_length = (self.rollout.max_prompt_tokens + self.rollout.max_response_tokens) as u64;
        let own_analysis = has_teacher && seed.analyser.is_own_model();
        let analysis_length = if own_analysis {
            (self.seed.max_analysis_prompt_tokens + self.seed.max_analysis_tokens) as u64
        } else {
            0
        };
        let active = self.rollout.max_active_sequences as u64;
        MemoryEstimate {
            weights: 3 * weights,
            copies: 2 * held_copies * trained,
            training_state: 3 * trained,
            // Every set of weights has buffers of its own to score with.
            activations: product([
                shape
                    .training_numbers(tokens, self.model.recompute_activations)
                    .saturating_add(product([copies + 1, shape.scoring_numbers(tokens)])),
                F32,
            ]),
            key_value_cache: product([
                active,
                act_length.max(analysis_length),
                shape.layers,
                2 * shape.key_value_width,
                F32,
            ]),
        }
    }
}

impl SftConfig {
    /// Memory of a fine-tuning run of a model of this shape.
    pub fn memory(&self, shape: ModelShape) -> MemoryEstimate {
        let (weights, trained) = shape.weight_bytes(&self.adapter);
        let tokens = self.sft.micro_batch_tokens as u64;
        MemoryEstimate {
            weights: 3 * weights,
            copies: 0,
            training_state: 3 * trained,
            activations: product([
                shape
                    .training_numbers(tokens, self.model.recompute_activations)
                    .saturating_add(shape.scoring_numbers(tokens)),
                F32,
            ]),
            key_value_cache: 0,
        }
    }
}

/// A product that stays at the largest number when absurd settings multiply beyond it.
fn product<const N: usize>(factors: [u64; N]) -> u64 {
    factors.into_iter().fold(1, u64::saturating_mul)
}

/// How often something happens that is done every `every` iterations and after the last; `every` 0 means only then.
fn occasions(iterations: u64, every: u64) -> u64 {
    if every == 0 { 1 } else { iterations.div_ceil(every) }
}

impl Derived {
    /// Name and value of each quantity, for tables and JSON.
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        let count = |number: u64| grouped(number);
        let mut rows = vec![
            ("episodes per iteration", count(self.episodes_per_iteration)),
            ("episodes in all", count(self.total_episodes)),
            ("rows per iteration, at most", count(self.max_rows_per_iteration)),
            (
                "trained tokens per iteration, at most",
                count(self.max_tokens_per_iteration),
            ),
            (
                "sampled tokens per iteration, at most",
                count(self.max_sampled_tokens_per_iteration),
            ),
            (
                "updates per iteration, at most",
                count(self.max_updates_per_iteration),
            ),
            ("updates in all, at most", count(self.max_updates)),
            ("warm-up iterations", count(self.warmup_iterations)),
            (
                "analyses per iteration, at most",
                count(self.analyses_per_iteration),
            ),
            ("evaluations", count(self.evaluations)),
            ("checkpoints written", count(self.checkpoints)),
        ];
        if let Some(memory) = &self.memory {
            rows.extend([
                ("memory: weights and packed copies", bytes(memory.weights)),
                ("memory: other sets of weights", bytes(memory.copies)),
                ("memory: gradient and optimiser", bytes(memory.training_state)),
                ("memory: passes over a micro-batch", bytes(memory.activations)),
                ("memory: keys and values, at most", bytes(memory.key_value_cache)),
                ("memory: peak, estimated", bytes(memory.peak())),
            ]);
        }
        rows
    }

    /// The quantities as an aligned table.
    pub fn table(&self) -> String {
        aligned_table(&self.rows())
    }
}

/// Names and values in two columns, a line each.
pub(crate) fn aligned_table(rows: &[(&str, String)]) -> String {
    let width = rows.iter().map(|row| row.0.len()).max().unwrap_or(0);
    let value_width = rows.iter().map(|row| row.1.len()).max().unwrap_or(0);
    let lines: Vec<String> = rows
        .iter()
        .map(|(name, value)| format!("{name:<width$}  {value:>value_width$}\n"))
        .collect();
    lines.concat()
}

/// A whole number with commas between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A size in MiB or GiB with one decimal.
pub(crate) fn bytes(number: u64) -> String {
    const MIB: f64 = 1024.0 * 1024.0;
    let mib = number as f64 / MIB;
    if mib < 1024.0 {
        format!("{mib:.1} MiB")
    } else {
        format!("{:.1} GiB", mib / 1024.0)
    }
}
