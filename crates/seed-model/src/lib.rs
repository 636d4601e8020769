//! Decoder models: configuration, weights, tokenizer, chat template, generation, scoring and optimiser.
//!
//! One forward pass serves generation, scoring and training, so a token's log-prob has the same bits wherever it is
//! computed. Not for: losses, advantages or anything that knows of tasks; those are other crates'.

mod activations;
pub mod adapter;
mod backward;
mod buffers;
pub mod chat;
#[cfg(feature = "composed")]
mod composed;
pub mod config;
pub mod decoder;
pub mod directory;
pub mod engine;
pub mod error;
pub mod gguf;
pub mod gradients;
mod layer;
pub mod optimiser;
mod pack;
pub mod parameters;
pub mod placement;
pub mod sampler;
pub mod schedule;
pub mod sequence;
pub mod sequence_state;
pub mod tokenizer;
pub mod training;
mod weights;

pub use adapter::{Adapter, AdapterOptions, Target};
pub use chat::{CHATML_TEMPLATE, CHATML_TOKENS, ChatTemplate, HistoryChange, Message, Role, TurnFormat};
pub use config::{DecoderConfig, Family, RopeScaling};
pub use decoder::Decoder;
pub use directory::{
    AdapterDirectory, DirectoryContents, ElementType, ModelDirectory, ShardOptions, base_of_adapter,
    is_adapter_directory, load_adapter, load_directory, load_weights, replace_directory, save_adapter,
    save_directory,
};
pub use engine::{Engine, EngineOptions, EngineTimes, FinishReason, GenerateRequest, Generation, Progress};
pub use error::ModelError;
pub use gguf::{gguf_configuration, load_gguf};
pub use gradients::Gradients;
pub use optimiser::{AdamW, AdamWOptions, StepOutcome};
pub use parameters::Parameters;
pub use placement::{Device, Place, Precision};
pub use sampler::{Alternative, Sampling};
pub use schedule::{Decay, Schedule};
pub use sequence::{ScoreGradients, Scores, TokenSequence};
pub use sequence_state::SequenceState;
pub use tokenizer::{Tokenizer, train_byte_level_bpe, train_byte_level_bpe_with_numbers};
