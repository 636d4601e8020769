//! The small policy inside the program, so that one binary is enough to try everything.

use std::path::Path;

use tempfile::TempDir;

use crate::TrainError;

/// How the embedded policy is named where a path is expected.
pub const HOUSEHOLD_TINY: &str = "embedded:household-tiny";

/// A model compiled into the program, file by file.
pub struct EmbeddedModel {
    files: &'static [(&'static str, &'static [u8])],
}

macro_rules! files {
    ($folder:literal: $($name:literal),+ $(,)?) => {
        &[$(($name, include_bytes!(concat!("../../../models/", $folder, "/", $name)))),+]
    };
}

static HOUSEHOLD_TINY_MODEL: EmbeddedModel = EmbeddedModel {
    files: files!(
        "household-tiny": "config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
        "tokenizer_config.json", "chat_template.jinja",
    ),
};

/// The embedded model a path names, if it names one.
pub fn find(path: &Path) -> Option<&'static EmbeddedModel> {
    (path == Path::new(HOUSEHOLD_TINY)).then_some(&HOUSEHOLD_TINY_MODEL)
}

impl EmbeddedModel {
    /// Writes the model to a temporary folder, which lives as long as the result.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn unpack(&self) -> Result<TempDir, TrainError> {
        let folder = tempfile::tempdir()?;
        for (name, bytes) in self.files {
            fs_err::write(folder.path().join(name), bytes)?;
        }
        Ok(folder)
    }
}
