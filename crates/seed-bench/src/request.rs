//! What the script asks for. The Python contenders answer the same requests.
//!
//! Not for: doing it; see `work`.

use std::path::PathBuf;

use serde::Deserialize;

/// A line of input.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Request {
    /// Read a model; all following work is on it, with this many threads.
    Load { directory: PathBuf, threads: usize },
    /// Measure the processor's multiply-adds.
    Peak { seconds: f64 },
    /// Log-probs of every token but the first of each sequence.
    Score { tokens: Vec<Vec<u32>>, repeats: usize },
    /// Read prompts and choose one token for each.
    Prefill { tokens: Vec<Vec<u32>>, repeats: usize },
    /// Read prompts, then generate so many tokens for each; temperature 0 is greedy.
    Decode {
        prompts: Vec<Vec<u32>>,
        new_tokens: usize,
        temperature: f32,
    },
    /// Optimiser steps on the mean cross-entropy of every token but the first of each sequence.
    Train { tokens: Vec<Vec<u32>>, repeats: usize },
}
