//! `seed compare`.

use seed_env::Split;
use seed_run::ExitCode;
use seed_train::compare::{RunResult, compare, draw};

use crate::arguments::{Compare, Output};
use crate::display::output_line;
use crate::failure::Outcome;

pub(crate) fn run(command: &Compare, output: Output) -> Outcome {
    let runs = command
        .runs
        .iter()
        .map(|path| RunResult::read(path))
        .collect::<Result<Vec<_>, _>>()?;
    let comparison = compare(&runs);
    // The first panel that any run was evaluated on, in the order people care about.
    let split = [Split::Seen, Split::Unseen, Split::Development, Split::Train]
        .into_iter()
        .find(|split| {
            runs.iter()
                .any(|run| run.evaluations.iter().any(|record| record.split == *split))
        });
    if let Some(split) = split {
        draw(&runs, split, &command.picture)?;
    }
    if output.json {
        output_line(&serde_json::to_string(&comparison).unwrap_or_default());
    } else {
        output_line(comparison.table().trim_end());
        if split.is_some() {
            output_line(&format!("\npicture: {}", command.picture.display()));
        }
    }
    Ok(ExitCode::Success)
}
