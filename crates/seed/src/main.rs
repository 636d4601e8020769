//! `seed`: the command line. Thin: it reads arguments, calls a program of `seed-train`, and shows what happens.

mod arguments;
mod chart;
mod commands;
mod display;
mod failure;
mod profile;

use std::process::ExitCode;

use clap::Parser;
use seed_run::ProfileOptions;

use crate::arguments::{Arguments, Command};
use crate::display::error_line;
use crate::profile::profiled;

/// Training allocates and frees large buffers all the time; the system allocator returns them to the kernel each time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Clap prints its own message and exits with 2, the code of usage errors.
    let arguments = Arguments::parse();
    let output = arguments.output;
    let result = match &arguments.command {
        Command::Demo(command) => commands::demo::run(command, output),
        Command::Train(command) => {
            let (file, options) = (
                command.profiling.profile.as_deref(),
                command.profiling.options("iteration"),
            );
            profiled(file, options, output, || commands::train::train(command, output))
        }
        Command::Sft(command) => {
            let (file, options) = (
                command.profiling.profile.as_deref(),
                command.profiling.options("update"),
            );
            profiled(file, options, output, || commands::train::sft(command, output))
        }
        Command::Eval(command) => {
            let options = ProfileOptions::default();
            profiled(command.profile.as_deref(), options, output, || {
                commands::eval::run(command, output)
            })
        }
        Command::Collect(command) => {
            let options = ProfileOptions::default();
            profiled(command.profile.as_deref(), options, output, || {
                commands::data::collect(command, output)
            })
        }
        Command::Annotate(command) => commands::data::annotate(command, output),
        Command::Demonstrate(command) => commands::data::demonstrate(command, output),
        Command::Chat(command) => commands::chat::run(command, output),
        Command::Import(command) => commands::import::run(command, output),
        Command::Merge(command) => commands::merge::run(command, output),
        Command::Compare(command) => commands::compare::run(command, output),
        Command::Study(command) => commands::study::run(command, output),
        Command::Serve(command) => commands::serve::run(command, output),
        Command::Doctor(command) => commands::doctor::run(command, output),
        Command::Env(command) => commands::env::run(command, output),
        Command::Retrieve(command) => commands::retrieve::run(command, output),
        Command::Config(command) => commands::config::run(command, output),
    };
    match result {
        Ok(code) => code.into(),
        Err(failure) => {
            error_line(&failure.to_string());
            failure.exit_code().into()
        }
    }
}
