//! `seed doctor`.

use std::path::Path;
use std::time::Duration;

use console::style;
use seed_doctor::{
    Endpoint, Finding, Level, Machine, examine_adapter, examine_endpoint, examine_machine, examine_memory,
    examine_model, unreadable_model,
};
use seed_env::Split;
use seed_run::ExitCode;
use seed_train::config::TrainConfig;
use seed_train::policy::{self, ReadModel};
use seed_train::world::open_world;
use serde_json::json;

use super::load;
use crate::arguments::{ConfigFile, Doctor, Output};
use crate::display::{Display, output_line};
use crate::failure::{Outcome, chain};

/// How long an endpoint may take to list its models.
const PATIENCE: Duration = Duration::from_secs(15);

pub(crate) fn run(command: &Doctor, output: Output) -> Outcome {
    let config = match &command.config {
        Some(path) => {
            let file = ConfigFile {
                config: path.clone(),
                set: command.set.clone(),
            };
            let mut config: TrainConfig = load(&file, &Display::new(output))?;
            if let Some(model) = &command.model {
                config.model.path.clone_from(model);
            }
            Some(config)
        }
        None => None,
    };
    let machine = Machine::this();
    let mut findings = examine_machine(&machine);
    if let Some(config) = &config {
        if let Ok(shape) = policy::shape(&config.model.path)
            && let Some(memory) = config.derive(Some(shape)).memory
        {
            let remedy = "use a smaller model, shorter prompts and responses, or fewer rows at a time (`seed train CONFIG --dry-run` shows what needs how much)";
            findings.push(examine_memory(&machine, "training", memory.peak(), remedy));
        }
        findings.extend(world(config));
    }
    let model = command.model.as_deref();
    if let Some(path) = model.or(config.as_ref().map(|config| config.model.path.as_path())) {
        findings.extend(examine(path));
    }
    if let Some(endpoint) = endpoint(command, config.as_ref()) {
        findings.extend(examine_endpoint(&endpoint));
    }
    let wrong = findings
        .iter()
        .filter(|finding| finding.level == Level::Wrong)
        .count();
    if output.json {
        output_line(&json!({"wrong": wrong, "findings": findings}).to_string());
    } else {
        for finding in &findings {
            if !(output.quiet && finding.level == Level::Fine) {
                show(finding);
            }
        }
    }
    Ok(if wrong > 0 {
        ExitCode::CheckFailed
    } else {
        ExitCode::Success
    })
}

fn examine(path: &Path) -> Vec<Finding> {
    match policy::read_model(path) {
        Ok(ReadModel { directory, adapter }) => {
            let mut findings = Vec::new();
            if let Some(read) = &adapter {
                findings.extend(examine_adapter(&read.adapter, &read.base, read.names_base));
            }
            findings.extend(examine_model(directory, adapter.map(|read| read.adapter)));
            findings
        }
        Err(error) => vec![unreadable_model(&chain(&error))],
    }
}

/// Opens the world and resets its first task.
fn world(config: &TrainConfig) -> Vec<Finding> {
    const AREA: &str = "data";
    let wrong = |text: String| {
        let remedy = "docs/environments.md says which files a world needs and how they are named";
        vec![Finding::wrong(AREA, text, remedy)]
    };
    let world = match open_world(&config.world, &config.search) {
        Ok(open) => open.world,
        Err(error) => return wrong(chain(&error)),
    };
    let tasks: Vec<_> = Split::ALL
        .into_iter()
        .map(|split| (split, world.tasks(split)))
        .collect();
    let counts: Vec<String> = tasks
        .iter()
        .filter(|(_, tasks)| !tasks.is_empty())
        .map(|(split, tasks)| format!("{} {}", tasks.len(), split.name()))
        .collect();
    let Some(first) = tasks.iter().find_map(|(_, tasks)| tasks.first()) else {
        return wrong(format!("the world `{}` has no tasks", world.name()));
    };
    match world.environment().reset(&first.id, 0) {
        Ok(_) => vec![Finding::fine(
            AREA,
            format!("the world `{}` opens; tasks: {}", world.name(), counts.join(", ")),
        )],
        Err(error) => wrong(format!("task `{}` cannot be played: {error}", first.id)),
    }
}

/// The endpoint named on the command line, else that of a configuration that asks it.
fn endpoint(command: &Doctor, config: Option<&TrainConfig>) -> Option<Endpoint> {
    if let Some(base_url) = &command.endpoint {
        return Some(Endpoint {
            base_url: base_url.clone(),
            model: command.endpoint_model.clone().unwrap_or_default(),
            key_variable: command.key_env.clone(),
            timeout: PATIENCE,
        });
    }
    let section = &config.filter(|config| config.asks_endpoint())?.endpoint;
    Some(Endpoint {
        base_url: section.base_url.clone(),
        model: section.model.clone(),
        key_variable: section.key_variable(),
        timeout: PATIENCE,
    })
}

fn show(finding: &Finding) {
    let mark = match finding.level {
        Level::Fine => style("ok     ").green(),
        Level::Warning => style("warning").yellow(),
        Level::Wrong => style("wrong  ").red().bold(),
    };
    output_line(&format!("{mark} {:9} {}", finding.area, finding.text));
    if let Some(remedy) = &finding.remedy {
        output_line(&format!("{:18}{} {remedy}", "", style("to do:").bold()));
    }
}
