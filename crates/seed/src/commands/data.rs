//! `seed demonstrate`, `seed collect` and `seed annotate`.

use seed_run::ExitCode;
use seed_train::annotate::{self, Annotator};
use seed_train::collect;
use seed_train::config::{DemonstrateConfig, TrainConfig};
use seed_train::demonstrate;
use seed_train::hindsight::Hindsight;
use seed_train::world::open_world;
use serde_json::json;

use super::{load, set_threads, split};
use crate::arguments::{self, Output};
use crate::display::{Display, output_line};
use crate::failure::Outcome;

pub(crate) fn demonstrate(command: &arguments::Demonstrate, output: Output) -> Outcome {
    let mut display = Display::new(output);
    let config: DemonstrateConfig = load(&command.config, &display)?;
    set_threads(config.run.threads)?;
    let open = open_world(&config.world, &config.search)?;
    let hindsight = Hindsight::new(&config.seed);
    let written = demonstrate::demonstrate(&config, &open, &hindsight, &mut display);
    display.clear();
    let (written, out) = (written?, &config.demonstrations.out);
    result(
        output,
        &json!({ "examples": written, "out": out }),
        &format!("{written} examples in {}", out.display()),
    );
    Ok(ExitCode::Success)
}

pub(crate) fn collect(command: &arguments::Collect, output: Output) -> Outcome {
    let mut display = Display::new(output);
    let config: TrainConfig = load(&command.config, &display)?;
    set_threads(config.run.threads)?;
    let world = open_world(&config.world, &config.search)?.world;
    let collected = collect::collect(
        &config,
        &world,
        split(&command.split)?,
        command.tasks,
        &command.out,
        &mut display,
    );
    display.clear();
    let evaluation = collected?;
    result(
        output,
        &json!({ "trajectories": evaluation.episodes, "evaluation": evaluation, "out": command.out }),
        &format!(
            "{} trajectories ({:.1} % successful) in {}",
            evaluation.episodes,
            evaluation.success.value * 100.0,
            command.out.display()
        ),
    );
    Ok(ExitCode::Success)
}

pub(crate) fn annotate(command: &arguments::Annotate, output: Output) -> Outcome {
    let mut display = Display::new(output);
    let config: TrainConfig = load(&command.config, &display)?;
    set_threads(config.run.threads)?;
    let world = open_world(&config.world, &config.search)?.world;
    let annotator = match command.annotator {
        arguments::Annotator::Endpoint => Annotator::Endpoint,
        arguments::Annotator::Policy => Annotator::Policy,
        arguments::Annotator::Rules => Annotator::Rules,
    };
    let annotated = annotate::annotate(
        &config,
        &*world,
        &command.trajectories,
        &command.out,
        annotator,
        &mut display,
    );
    display.clear();
    let report = annotated?;
    result(
        output,
        &json!({
            "records": report.records,
            "trajectories": report.trajectories,
            "left_out": report.left_out,
            "out": command.out,
        }),
        &format!(
            "{} records from {} trajectories in {}",
            report.records,
            report.trajectories,
            command.out.display()
        ),
    );
    Ok(ExitCode::Success)
}

/// Prints a result for machines or for people.
fn result(output: Output, json: &serde_json::Value, text: &str) {
    if output.json {
        output_line(&json.to_string());
    } else {
        output_line(text);
    }
}
