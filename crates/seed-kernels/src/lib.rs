//! Batch-invariant CPU operations of a decoder, each with its hand-written backward pass.
//!
//! Everything here is a pure function over row-major `f32` slices. Two laws hold for every function:
//!
//! * **One chain per element.** Every element of a matrix product is a single chain of fused multiply-adds in
//!   increasing order of the summed index, starting from the accumulator's current value. Sums over a row (norms,
//!   soft-max) use 16 partial sums keyed by index modulo 16 and one fixed tree.
//! * **Bits do not depend on circumstances.** Batch size, position in the batch, blocking, number of threads,
//!   instruction set (AVX-512, AVX2 with FMA, portable) and the split of a gradient accumulation never change a
//!   result, because none of them changes those chains.
//!
//! Work is spread over threads (see [`parallel`]), over independent outputs only. Length mismatches are programming errors
//! and panic; values are never checked. Every operation is a `tracing` span of the lowest level with its sizes, which
//! costs one comparison while nobody listens; `help` is another thread's share of an operation.
//!
//! Not for: model structure, weights or autograd (see `seed-model`), GPUs, or reduced precision.

pub mod attention;
pub mod embedding;
pub mod head;
pub mod instruction_set;
mod lanes;
pub mod math;
pub mod matmul;
pub mod norm;
pub mod optimiser;
pub mod parallel;
pub mod peak;
pub mod rotary;
mod scratch;
pub mod swiglu;

pub use instruction_set::InstructionSet;
