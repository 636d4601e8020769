//! `seed config`.

use seed_run::ExitCode;
use seed_train::config::{
    DemonstrateConfig, Document, Loaded, SftConfig, TrainConfig, explanation_text, reference_markdown,
};

use crate::arguments::{Config, ConfigReader, Output};
use crate::display::output_line;
use crate::failure::Outcome;

pub(crate) fn run(command: &Config, output: Output) -> Outcome {
    match command {
        Config::Explain {
            key,
            config,
            reader,
            set,
        } => {
            let explain = match reader {
                ConfigReader::Train => explain::<TrainConfig>,
                ConfigReader::Sft => explain::<SftConfig>,
                ConfigReader::Demonstrate => explain::<DemonstrateConfig>,
            };
            explain(key.as_deref(), config.as_deref(), set, output)
        }
        Config::Metrics => {
            output_line(seed_run::metrics::reference_markdown().trim_end());
            Ok(ExitCode::Success)
        }
        Config::Reference { reader } => {
            let text = match reader {
                ConfigReader::Train => reference_markdown::<TrainConfig>(),
                ConfigReader::Sft => reference_markdown::<SftConfig>(),
                ConfigReader::Demonstrate => reference_markdown::<DemonstrateConfig>(),
            };
            output_line(text.trim_end());
            Ok(ExitCode::Success)
        }
    }
}

fn explain<C: Document>(
    key: Option<&str>,
    config: Option<&std::path::Path>,
    set: &[String],
    output: Output,
) -> Outcome {
    let loaded = match config {
        Some(path) => Loaded::<C>::from_file(path, set)?,
        None => Loaded::<C>::from_defaults(set)?,
    };
    let explanations = loaded.explain(key)?;
    if output.json {
        let rows: Vec<serde_json::Value> = explanations
            .iter()
            .map(|explanation| {
                serde_json::json!({
                    "key": explanation.field.key(),
                    "type": explanation.field.expectation(),
                    "default": explanation.field.default.to_string(),
                    "value": explanation.value.to_string(),
                    "documentation": explanation.field.documentation,
                })
            })
            .collect();
        output_line(&serde_json::Value::from(rows).to_string());
    } else {
        output_line(explanation_text(&explanations).trim_end());
    }
    Ok(ExitCode::Success)
}
