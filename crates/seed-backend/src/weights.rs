//! Telling an engine to take new weights from a disk that it sees too.
//!
//! Not for: writing the folders, or engines that have other requests in progress.

use std::path::Path;

use serde::Deserialize;
use serde_json::json;

use crate::{BackendError, Client, Dialect};

/// Versions of whole models begin with this, so that an engine that holds one is known.
pub const VERSION_PREFIX: &str = "seed-model-";

/// The weights an engine was last given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublishedWeights {
    /// Those that it was started with.
    Initial,
    /// A whole model, under this version.
    Model {
        /// What answers must name.
        version: String,
    },
    /// An adapter over the model it was started with, under this name.
    Adapter {
        /// The adapter's name.
        name: String,
    },
}

impl Client {
    /// Makes the engine read a whole model from a folder (`POST /update_weights_from_disk`, which SGLang and `seed serve`
    /// know). Answers must name `version` from then on. `digest` is that of the parameters written there
    /// (`seed_model::Parameters::digest`); `seed serve` says which it read.
    ///
    /// # Errors
    /// [`BackendError::Unsupported`] for vLLM; otherwise as any call, [`BackendError::Answer`] where the engine says that it
    /// did not take them, or [`BackendError::Digest`] where it took others.
    pub fn publish_model(
        &self,
        folder: &Path,
        version: &str,
        digest: &str,
    ) -> Result<PublishedWeights, BackendError> {
        #[derive(Deserialize)]
        struct Taken {
            success: bool,
            #[serde(default)]
            message: String,
            weights_digest: Option<String>,
        }
        const PATH: &str = "/update_weights_from_disk";
        if self.options.dialect == Dialect::Vllm {
            return Err(BackendError::Unsupported {
                dialect: self.options.dialect.name(),
                what: "read a whole model from disk on request",
                instead: "publish an adapter",
            });
        }
        let body = json!({
            "model_path": folder,
            "weight_version": version,
            "flush_cache": true,
            "abort_all_requests": false,
        });
        let bytes = self.post(PATH, &body)?;
        let answer = |problem| BackendError::Answer {
            url: self.url(PATH),
            problem,
        };
        let taken: Taken = serde_json::from_slice(&bytes).map_err(|error| answer(error.to_string()))?;
        if !taken.success {
            return Err(answer(format!("the weights were not taken: {}", taken.message)));
        }
        let read = match (taken.weights_digest, self.options.dialect) {
            (Some(read), _) => read,
            (None, Dialect::Seed) => return Err(answer("it does not say which weights it read".to_owned())),
            (None, _) => digest.to_owned(),
        };
        if read != digest {
            return Err(BackendError::Digest {
                folder: folder.display().to_string(),
                expected: digest.to_owned(),
                found: read,
            });
        }
        Ok(PublishedWeights::Model {
            version: version.to_owned(),
        })
    }

    /// Makes the engine load an adapter in PEFT's format under a new name and forget the one before. A name stands for these
    /// very weights, so an answer under it cannot come from older ones or from a cache of theirs; an engine that has it
    /// loaded already, from an attempt whose answer was lost, is content.
    ///
    /// # Errors
    /// [`BackendError::Unsupported`] for `seed serve`; [`BackendError::AppliedTwice`] where the engine was given a whole
    /// model before; otherwise as any call. Where the old one cannot be unloaded, the new one stays loaded.
    pub fn publish_adapter(
        &self,
        folder: &Path,
        name: &str,
        before: &PublishedWeights,
    ) -> Result<PublishedWeights, BackendError> {
        let (load, unload) = match self.options.dialect {
            Dialect::Seed => {
                return Err(BackendError::Unsupported {
                    dialect: self.options.dialect.name(),
                    what: "load adapters",
                    instead: "publish the merged model",
                });
            }
            Dialect::Vllm => ("/v1/load_lora_adapter", "/v1/unload_lora_adapter"),
            Dialect::Sglang => ("/load_lora_adapter", "/unload_lora_adapter"),
        };
        if let PublishedWeights::Model { version } = before {
            return Err(BackendError::AppliedTwice {
                weights: version.clone(),
            });
        }
        match self.post(load, &json!({"lora_name": name, "lora_path": folder})) {
            Err(BackendError::Status {
                status: 400, excerpt, ..
            }) if excerpt.contains("already") && excerpt.contains(name) => {}
            result => {
                result?;
            }
        }
        if let PublishedWeights::Adapter { name: old } = before
            && old != name
        {
            match self.post(unload, &json!({"lora_name": old})) {
                // An engine that was started anew does not know it.
                Err(BackendError::Status {
                    status: 400 | 404, ..
                }) => {}
                result => {
                    result?;
                }
            }
        }
        Ok(PublishedWeights::Adapter {
            name: name.to_owned(),
        })
    }
}
