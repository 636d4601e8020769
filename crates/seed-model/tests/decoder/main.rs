//! Tests of the decoder, its gradients, the generation engine and the optimiser; one program, since every test
//! program is linked with all the crate's dependencies.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking, its helpers too"
)]

mod adapter;
mod bit_equality;
mod cache_reuse;
mod device;
mod engine;
mod golden;
mod optimiser;
mod refusals;
mod shapes;
mod support;
