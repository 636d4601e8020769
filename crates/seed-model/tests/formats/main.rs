//! Tests of model files, token ids and chat templates against transformers; one program, since every test program is
//! linked with all the crate's dependencies.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]
#![expect(clippy::print_stdout, reason = "a skipped test says so")]

mod adapter;
mod export;
mod faults;
mod golden;
mod real;
