//! A model file of another format as a Hugging Face directory.
//!
//! Not for: computing with it ([`crate::policy`] reads directories and GGUF files alike).

use std::path::{Path, PathBuf};

use fs_err as fs;
use seed_model::{
    ElementType, ModelDirectory, ShardOptions, is_adapter_directory, load_gguf, replace_directory,
    save_directory,
};
use serde::Serialize;

use crate::TrainError;

/// How a directory is written.
#[derive(Clone, Copy, Debug)]
pub struct ImportOptions {
    /// The element type of the weights on disk.
    pub element_type: ElementType,
    /// Whether a model directory that is already there is replaced.
    pub replace: bool,
}

/// What was written.
#[derive(Clone, Debug, Serialize)]
pub struct Imported {
    /// The directory.
    pub out: PathBuf,
    /// `model_type` of its `config.json`.
    pub model_type: &'static str,
    /// Number of weights.
    pub parameters: u64,
    /// Number of decoder layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Rows of the embedding.
    pub vocabulary_size: usize,
    /// Longest sequence in tokens.
    pub max_positions: usize,
    /// Whether the head is the embedding.
    pub tied_embeddings: bool,
    /// Whether there is a chat template.
    pub chat_template: bool,
    /// Names of the tokens that end a response.
    pub end_tokens: Vec<String>,
    /// Names and sizes in bytes of the files, by name.
    pub files: Vec<(String, u64)>,
}

/// Reads a GGUF file and writes the model as a Hugging Face directory, which appears whole or not at all.
///
/// A directory that is replaced is moved aside only when the new one is complete.
///
/// # Errors
/// [`TrainError::Occupied`] where `out` exists and is not to be replaced, [`TrainError::NotAModel`] where it is to be
/// replaced but is no model; [`TrainError::Adapter`] where `file` is an adapter's folder; [`TrainError::Model`] of the
/// file, and of writing.
pub fn import(file: &Path, out: &Path, options: ImportOptions) -> Result<Imported, TrainError> {
    if is_adapter_directory(file) {
        return Err(TrainError::Adapter {
            path: file.to_owned(),
            problem: "it is an adapter's folder, and model files are imported: write its base with the adapter in it as a \
                      model with `seed merge`"
                .to_owned(),
        });
    }
    // Before gigabytes have been read.
    let occupied = fs::symlink_metadata(out).is_ok();
    if occupied && !options.replace {
        return Err(TrainError::Occupied { path: out.to_owned() });
    }
    if occupied && !out.join("config.json").is_file() {
        return Err(TrainError::NotAModel { path: out.to_owned() });
    }
    let model = load_gguf(file)?;
    let shards = ShardOptions {
        element_type: options.element_type,
        ..ShardOptions::default()
    };
    if occupied {
        replace_directory(out, model.contents(), shards)?;
    } else {
        save_directory(out, model.contents(), shards)?;
    }
    describe(&model, out)
}

fn describe(model: &ModelDirectory, out: &Path) -> Result<Imported, TrainError> {
    let mut files = Vec::new();
    for entry in fs::read_dir(out)? {
        let entry = entry?;
        files.push((
            entry.file_name().to_string_lossy().into_owned(),
            entry.metadata()?.len(),
        ));
    }
    files.sort();
    let config = &model.config;
    Ok(Imported {
        out: out.to_owned(),
        model_type: config.family.model_type(),
        parameters: config.parameter_count(),
        layers: config.layers,
        hidden_size: config.hidden_size,
        vocabulary_size: config.vocabulary_size,
        max_positions: config.max_positions,
        tied_embeddings: config.tied_embeddings,
        chat_template: model.chat.is_some(),
        end_tokens: model
            .end_tokens
            .iter()
            .map(|&token| {
                model
                    .tokenizer
                    .token_name(token)
                    .unwrap_or_else(|| token.to_string())
            })
            .collect(),
        files,
    })
}
