//! `--profile`: a trace of what a command does, around whatever command it is.
//!
//! Not for: what is recorded; that is [`seed_run::Profile`]'s.

use std::path::Path;

use seed_run::{Profile, ProfileOptions};

use crate::arguments::Output;
use crate::display::Display;
use crate::failure::Outcome;

/// Runs `command` and records it in `file`, if one was asked for. The file is completed however the command ends.
pub(crate) fn profiled(
    file: Option<&Path>,
    options: ProfileOptions,
    output: Output,
    command: impl FnOnce() -> Outcome,
) -> Outcome {
    let Some(file) = file else {
        return command();
    };
    let profile = Profile::start(file, options)?;
    let outcome = command();
    let finished = profile.finish();
    // A command's own failure is the one to tell; the exit code is its.
    let outcome = outcome?;
    let report = finished?;
    let limit = if report.limited {
        ", from its limit on with phases only"
    } else {
        ""
    };
    Display::new(output).line(&format!(
        "profile: {} ({} spans, {:.1} MB{limit}); open it in https://ui.perfetto.dev",
        report.path.display(),
        report.spans,
        report.bytes as f64 / 1e6
    ));
    Ok(outcome)
}
