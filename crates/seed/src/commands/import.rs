//! `seed import`.

use seed_model::ElementType;
use seed_run::ExitCode;
use seed_train::import::{ImportOptions, Imported, import};

use crate::arguments::{self, Output, WeightType};
use crate::display::output_line;
use crate::failure::Outcome;

pub(crate) fn run(command: &arguments::Import, output: Output) -> Outcome {
    let options = ImportOptions {
        element_type: match command.weights {
            WeightType::F32 => ElementType::F32,
            WeightType::Bf16 => ElementType::Bf16,
            WeightType::F16 => ElementType::F16,
        },
        replace: command.force,
    };
    let imported = import(&command.file, &command.out, options)?;
    if output.json {
        output_line(&serde_json::to_string(&imported).map_err(std::io::Error::from)?);
    } else {
        show(&imported);
    }
    Ok(ExitCode::Success)
}

fn show(imported: &Imported) {
    output_line(&format!(
        "{}: {}, {} parameters in {} layers of width {}, {} tokens, context {}{}",
        imported.out.display(),
        imported.model_type,
        imported.parameters,
        imported.layers,
        imported.hidden_size,
        imported.vocabulary_size,
        imported.max_positions,
        if imported.tied_embeddings {
            ", head tied to the embedding"
        } else {
            ""
        }
    ));
    output_line(&format!(
        "answers end with {}; {}",
        imported.end_tokens.join(", "),
        if imported.chat_template {
            "with a chat template"
        } else {
            "without a chat template"
        }
    ));
    for (name, bytes) in &imported.files {
        output_line(&format!("{bytes:>12}  {name}"));
    }
}
