//! Decoder models: configuration, weights, tokenizer, chat template, generation, scoring and optimiser.
//!
//! One forward pass serves generation, scoring and training, so a token's log-prob has the same bits wherever it is
//! computed. Not for: losses, advantages or anything that knows of tasks; those are other crates'.

pub mod config;
pub mod error;
pub mod parameters;

pub use error::ModelError;
