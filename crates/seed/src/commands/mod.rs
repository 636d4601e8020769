//! One function per command.

pub(crate) mod chat;
pub(crate) mod compare;
pub(crate) mod config;
pub(crate) mod data;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod env;
pub(crate) mod eval;
pub(crate) mod import;
pub(crate) mod merge;
pub(crate) mod retrieve;
pub(crate) mod serve;
pub(crate) mod study;
pub(crate) mod train;

use seed_env::Split;
use seed_run::ExitCode;
use seed_train::config::{Document, Loaded};

use crate::arguments::ConfigFile;
use crate::display::Display;
use crate::failure::Failure;

/// Reads a configuration and shows its warnings.
fn load<C: Document>(file: &ConfigFile, display: &Display) -> Result<C, Failure> {
    let loaded = Loaded::<C>::from_file(&file.config, &file.set)?;
    for warning in &loaded.warnings {
        display.line(&format!(
            "{} {warning}",
            console::style("warning:").for_stderr().yellow().bold()
        ));
    }
    Ok(loaded.config)
}

/// Uses `threads` worker threads everywhere, 0 for one per core, with names that a profile shows.
fn set_threads(threads: usize) -> Result<(), Failure> {
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(|index| format!("worker {index}"))
        .build_global()
        .map_err(|error| Failure::new(error, ExitCode::Resource))
}

/// A split by its name.
fn split(name: &str) -> Result<Split, Failure> {
    [Split::Train, Split::Development, Split::Seen, Split::Unseen]
        .into_iter()
        .find(|split| split.name() == name)
        .ok_or_else(|| {
            Failure::usage(format!(
                "`{name}` is no split; there are `train`, `development`, `seen` and `unseen`"
            ))
        })
}

/// The command line as it was typed, for the run's record.
fn command_line() -> Vec<String> {
    std::env::args().collect()
}
