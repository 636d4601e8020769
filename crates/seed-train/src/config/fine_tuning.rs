//! Every key of a supervised fine-tuning configuration, also from a random initialisation.
//!
//! The defaults of `[sft]` are the paper's (arXiv 2607.14777) for skills from ALFWorld episodes.

use std::path::PathBuf;

use super::adapter::AdapterSection;
use super::choices::{ExampleTruncation, Family, LearningRateSchedule, Selection};
use super::rule::Rule::{Above, Any, AtLeast, Between, FromBelow, NotEmpty};
use super::schema::{document, section};
use super::sections::{CheckpointSection, LoggingSection, ModelSection, RunSection};
use super::validate;

section! {
    /// Supervised fine-tuning on prompt and response pairs.
    SftSection = "sft" {
        /// JSONL files of examples, read in this order; a name ending in .zst is decompressed.
        data: Vec<PathBuf> = Vec::new(), NotEmpty;
        /// JSONL files to validate on; unset holds out `validation_fraction` of the data.
        validation_data: Option<Vec<PathBuf>> = None, NotEmpty;
        /// Share of the examples held out for validation.
        validation_fraction: f64 = 0.1, FromBelow(0.0, 1.0);
        /// Passes over the examples.
        epochs: usize = 3, AtLeast(1.0);
        /// Stop after so many optimiser steps; unset runs all epochs.
        max_updates: Option<usize> = None, AtLeast(1.0);
        /// Most examples per optimiser step.
        batch_rows: usize = 8, AtLeast(1.0);
        /// Most tokens per optimiser step; unset bounds the examples only.
        batch_tokens: Option<usize> = None, AtLeast(1.0);
        /// Tokens per forward and backward pass; results do not depend on it.
        micro_batch_tokens: usize = 8192, AtLeast(1.0), Runtime;
        /// Train the tokens of prompts too, as pre-training does; validation stays on responses.
        train_prompts: bool = false, Any;
        /// Longest example in tokens.
        max_length: usize = 8192, AtLeast(2.0);
        /// What happens to a longer example.
        truncation: ExampleTruncation = ExampleTruncation::Left, Any;
        /// Learning rate after warm-up.
        learning_rate: f64 = 5e-6, Above(0.0);
        /// How the learning rate moves after warm-up.
        schedule: LearningRateSchedule = LearningRateSchedule::Cosine, Any;
        /// Share of the updates over which the learning rate rises from zero.
        warmup_ratio: f64 = 0.1, Between(0.0, 1.0);
        /// Share of the learning rate left at the end of a falling schedule.
        final_ratio: f64 = 0.0, Between(0.0, 1.0);
        /// Decay of the first moment.
        beta1: f64 = 0.9, FromBelow(0.0, 1.0);
        /// Decay of the second moment.
        beta2: f64 = 0.95, FromBelow(0.0, 1.0);
        /// Added to the root of the second moment.
        epsilon: f64 = 1e-8, Above(0.0);
        /// Decoupled weight decay of the matrices.
        weight_decay: f64 = 0.01, AtLeast(0.0);
        /// The gradient is scaled down to this global norm; unset never scales.
        gradient_clip: Option<f64> = Some(1.0), Above(0.0);
        /// Validate every so many updates, and at the end of each epoch; 0 only at the end of each epoch.
        validate_every: usize = 0, Any, Runtime;
        /// Which weights are the result.
        selection: Selection = Selection::Last, Any;
    }
}

section! {
    /// Begin from random weights and a tokenizer made from the examples, instead of from `model.path`.
    InitialiseSection = "initialise" {
        /// Begin from random weights; otherwise this table is not read.
        enabled: bool = false, Any;
        /// Architecture.
        family: Family = Family::Llama, Any;
        /// Tokens of the byte-level BPE vocabulary, control tokens included.
        vocabulary_size: usize = 2048, Between(260.0, 1_000_000.0);
        /// Most digits of a number in one token: 1 as in the Qwen models, 3 as in Llama 3.
        number_digits: usize = 1, Between(1.0, 16.0);
        /// Width of the residual stream.
        hidden_size: usize = 128, AtLeast(1.0);
        /// Width of the feed-forward layer.
        intermediate_size: usize = 384, AtLeast(1.0);
        /// Decoder layers.
        layers: usize = 4, AtLeast(1.0);
        /// Query heads.
        query_heads: usize = 4, AtLeast(1.0);
        /// Key and value heads; divides the query heads.
        key_value_heads: usize = 2, AtLeast(1.0);
        /// Width of one head; even.
        head_dim: usize = 32, AtLeast(2.0);
        /// Longest sequence the model's own configuration claims.
        max_positions: usize = 4096, AtLeast(16.0);
        /// Base of the rotary position frequencies.
        rope_theta: f64 = 10_000.0, Above(1.0);
        /// Share the embedding with the output head.
        tied_embeddings: bool = true, Any;
        /// Standard deviation of the initial weights.
        initializer_range: f64 = 0.02, Above(0.0);
    }
}

document! {
    /// A validated fine-tuning configuration.
    SftConfig = "fine-tuning configuration", check: validate::check_fine_tuning, {
        run: RunSection,
        model: ModelSection,
        adapter: AdapterSection,
        sft: SftSection,
        initialise: InitialiseSection,
        checkpoint: CheckpointSection,
        logging: LoggingSection,
    }
}
