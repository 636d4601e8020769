//! The programs: demonstrate, collect, annotate, sft, train, eval, compare, demo.
//!
//! Each program is a function from a configuration to a result that tells an [`events::Observer`] what it does. Nothing
//! here prints.

// The helpers that unit tests share with the tests in `tests/` call this crate by its name.
#[cfg(test)]
extern crate self as seed_train;

pub mod annotate;
pub mod chat;
pub mod collect;
pub mod compare;
pub mod config;
pub mod demo;
pub mod demonstrate;
pub mod embedded;
mod error;
pub mod evaluate;
pub mod evaluate_program;
pub mod events;
pub mod examples;
pub mod fine_tune;
pub mod hindsight;
pub mod import;
pub mod picture;
pub mod plan;
pub mod policy;
pub mod prompted;
mod resuming;
pub mod sft;
pub mod skills;
pub mod statistics;
pub mod train;
pub mod trainer;
pub mod world;

pub use error::TrainError;
