//! `seed serve`.

use std::time::Duration;

use seed_model::EngineOptions;
use seed_run::{ExitCode, StopFlag};
use seed_serve::{ServeOptions, ServedModel, Server};
use seed_train::policy::read_model;
use serde_json::json;

use super::set_threads;
use crate::arguments::{Output, Serve};
use crate::display::{Display, output_line};
use crate::failure::{Failure, Outcome};

pub(crate) fn run(command: &Serve, output: Output) -> Outcome {
    let display = Display::new(output);
    set_threads(command.threads)?;
    // Merged, an adapter costs nothing at each token.
    let directory = read_model(&command.model)?.merged()?;
    let model = ServedModel::new(name(command)?, directory)?;
    let options = ServeOptions {
        token_variable: command.token_env.clone(),
        engine: EngineOptions {
            max_active: command.sequences,
            prefill_chunk: command.prefill_chunk,
        },
        waiting: command.waiting,
        max_body_bytes: command.max_body,
        drain_timeout: Duration::from_secs(command.drain),
        seed: command.seed,
        weights_folder: command.weights_from.clone(),
        ..ServeOptions::new(command.address)
    };
    let context = model.config().max_positions;
    let (kind, name) = (model.config().family.model_type(), model.name().to_owned());
    // As floating-point numbers: nothing bounds what is asked for.
    let cache = model.bytes_per_token() as f64 * context as f64 * command.sequences as f64;
    if !model.has_chat() {
        display.line("the model has no chat template: only /v1/completions is answered");
    }
    let server = Server::bind(model, options)?;
    let url = format!("http://{}/v1", server.address());
    display.line(&format!(
        "{name} ({kind}), context {context} tokens; {} sequences at a time hold {:.1} MiB of keys and values at most",
        command.sequences,
        cache / f64::from(1 << 20),
    ));
    let stop = StopFlag::on_signals()?;
    if output.json {
        output_line(&json!({"event": "listening", "url": url, "model": name}).to_string());
    } else {
        output_line(&url);
    }
    let drained = server.run(move || stop.is_set())?;
    match drained.abandoned {
        0 => Ok(ExitCode::Success),
        abandoned => Err(Failure::new(
            format!(
                "{abandoned} sequences were not finished {} s after the signal to stop; --drain allows more",
                command.drain
            ),
            ExitCode::Stopped,
        )),
    }
}

/// The name asked for, else what follows the last slash of the path or the colon of an embedded model.
fn name(command: &Serve) -> Result<String, Failure> {
    if let Some(name) = &command.name {
        return Ok(name.clone());
    }
    let path = match fs_err::canonicalize(&command.model) {
        Ok(path) => path,
        Err(_) => command.model.clone(),
    };
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.map(|name| name.rsplit(':').next().unwrap_or(name));
    name.map(str::to_owned)
        .ok_or_else(|| Failure::usage("the folder's name is no name for a model; give one with --name"))
}
