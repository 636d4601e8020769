//! One contender of `bench/decoder`: reads a request per line on standard input, answers with a line of JSON.
//!
//! It times the library as the programs use it. Not for: choosing what is measured, which the script does, or for
//! people to run by hand.

mod request;
mod work;

use std::io::{BufRead, Write};
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::request::Request;
use crate::work::{Work, WorkError};

/// As in the program `seed`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        // The script closed the pipe or sent what it should not: there is nobody left to tell.
        Err(_) => ExitCode::FAILURE,
    }
}

/// Answers requests until the input ends. What goes wrong with one is its answer.
fn serve() -> std::io::Result<()> {
    let mut work = Work::default();
    let mut output = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let answer = answer(&mut work, &line?).unwrap_or_else(|error| json!({ "error": error.to_string() }));
        writeln!(output, "{answer}")?;
        output.flush()?;
    }
    Ok(())
}

fn answer(work: &mut Work, line: &str) -> Result<Value, WorkError> {
    match serde_json::from_str(line)? {
        Request::Load { directory, threads } => work.load(&directory, threads),
        Request::Peak { seconds } => work.peak(seconds),
        Request::Score { tokens, repeats } => work.score(&tokens, repeats),
        Request::Prefill { tokens, repeats } => work.prefill(&tokens, repeats),
        Request::Decode {
            prompts,
            new_tokens,
            temperature,
        } => work.decode(&prompts, new_tokens, temperature),
        Request::Train { tokens, repeats } => work.train(&tokens, repeats),
    }
}
