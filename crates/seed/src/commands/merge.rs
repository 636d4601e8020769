//! `seed merge`.

use seed_run::ExitCode;
use seed_train::policy::Policy;

use crate::arguments::{Merge, Output};
use crate::display::output_line;
use crate::failure::{Failure, Outcome};

pub(crate) fn run(command: &Merge, output: Output) -> Outcome {
    let policy = match &command.base {
        Some(base) => Policy::load_beside(&command.adapter, base, false),
        None => Policy::load(&command.adapter, false),
    }
    .map_err(Failure::from)?;
    policy.save_merged(&command.out)?;
    if output.json {
        output_line(&serde_json::json!({ "event": "merged", "model": command.out }).to_string());
    } else {
        output_line(&format!("merged: {}", command.out.display()));
    }
    Ok(ExitCode::Success)
}
