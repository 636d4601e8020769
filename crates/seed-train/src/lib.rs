//! The programs: collect, annotate, sft, train, eval, compare.

pub mod config;
