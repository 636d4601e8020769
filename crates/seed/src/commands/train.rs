//! `seed train` and `seed sft`.

use seed_run::{ExitCode, StopFlag};
use seed_train::config::{SftConfig, TrainConfig};
use seed_train::plan::Speeds;
use seed_train::policy;
use seed_train::sft as fine_tuning;
use seed_train::train::{Start, train as run_training};
use seed_train::world::open_world;

use super::{command_line, load, set_threads};
use crate::arguments::{Output, Sft, Train};
use crate::display::{Display, output_line};
use crate::failure::{Failure, Outcome};

pub(crate) fn train(command: &Train, output: Output) -> Outcome {
    let mut display = Display::new(output);
    let config: TrainConfig = load(&command.config, &display)?;
    set_threads(config.run.threads)?;
    // A model that cannot be read is reported when it is loaded; here it only leaves out the memory estimate.
    let shape = policy::shape(&config.model.path).ok();
    let derived = config.derive(shape);
    display.line(&derived.table());
    if command.dry_run && !command.time_plan {
        return Ok(ExitCode::Success);
    }
    let stop = StopFlag::on_signals()?;
    let world = open_world(&config.world, &config.search)
        .map_err(Failure::from)?
        .world;
    if command.time_plan {
        let speeds = Speeds::measure(&config)?;
        display.line(&speeds.plan(&config, &derived, &*world).table(&speeds));
    }
    if command.dry_run {
        return Ok(ExitCode::Success);
    }
    let start = if command.resume { Start::Resume } else { Start::New };
    let summary = run_training(&config, world, start, command_line(), &stop, &mut display);
    display.clear();
    let summary = summary?;
    if output.json {
        output_line(&serde_json::json!({ "event": "finished", "summary": summary }).to_string());
    } else {
        display.line(&format!("finished: {}", config.run.directory.display()));
    }
    Ok(ExitCode::Success)
}

pub(crate) fn sft(command: &Sft, output: Output) -> Outcome {
    let mut display = Display::new(output);
    let config: SftConfig = load(&command.config, &display)?;
    set_threads(config.run.threads)?;
    let stop = StopFlag::on_signals()?;
    let start = if command.resume { Start::Resume } else { Start::New };
    let summary = fine_tuning::sft(&config, start, command_line(), &stop, &mut display);
    display.clear();
    let summary = summary?;
    if output.json {
        output_line(&serde_json::json!({ "event": "finished", "summary": summary }).to_string());
    } else {
        output_line(&format!(
            "{} updates on {} examples; validation loss {:.4} nats a token on {}; weights in {}",
            summary.updates,
            summary.training_examples,
            summary.validation_loss,
            summary.validation_examples,
            summary.model.display()
        ));
    }
    Ok(ExitCode::Success)
}
