//! `seed eval`.

use seed_run::{ExitCode, write_atomic};
use seed_train::config::{EvaluationPrompt, TrainConfig};
use seed_train::evaluate_program::evaluate_panels;
use seed_train::prompted::PanelResult;
use seed_train::world::open_world;

use super::{load, set_threads};
use crate::arguments::{Eval, Output};
use crate::display::{Display, describe, output_line};
use crate::failure::{Failure, Outcome};

pub(crate) fn run(command: &Eval, output: Output) -> Outcome {
    let mut display = Display::new(output);
    let mut config: TrainConfig = load(&command.config, &display)?;
    if let Some(model) = &command.model {
        config.model.path.clone_from(model);
    }
    set_threads(config.run.threads)?;
    let open = open_world(&config.world, &config.search)?;
    if command.with_skills {
        config.evaluation.prompts = EvaluationPrompt::CHOICES.iter().map(|choice| choice.0).collect();
    }
    let results = evaluate_panels(&config, &open, command.trajectories.as_deref(), &mut display);
    display.clear();
    let results = results?;
    let json = serde_json::to_string_pretty(&results).map_err(std::io::Error::from)?;
    if let Some(out) = &command.out {
        write_atomic(out, format!("{json}\n").as_bytes())?;
    }
    if output.json {
        output_line(&json);
    } else {
        for result in &results {
            show(result);
        }
    }
    let lowest = results
        .iter()
        .filter(|result| result.prompt.is_plain())
        .map(|result| result.evaluation.success.value)
        .fold(f64::INFINITY, f64::min);
    match command.min {
        Some(minimum) if lowest < minimum => Err(Failure::new(
            format!(
                "success {:.1} % is below the minimum of {:.1} %",
                lowest * 100.0,
                minimum * 100.0
            ),
            ExitCode::CheckFailed,
        )),
        _ => Ok(ExitCode::Success),
    }
}

fn show(result: &PanelResult) {
    output_line(&format!(
        "{} panel, {} prompt: {}",
        result.split.name(),
        result.prompt,
        describe(&result.evaluation)
    ));
    for (family, family_result) in &result.evaluation.families {
        output_line(&format!(
            "  {family:32} {:5.1} % [{:.1}, {:.1}]  {}/{}",
            family_result.success.value * 100.0,
            family_result.success.low * 100.0,
            family_result.success.high * 100.0,
            family_result.successes,
            family_result.episodes
        ));
    }
}
