//! Telling an engine to take new weights from a disk that it sees too.
//!
//! Not for: writing the folders, or engines that have other requests in progress.

use std::path::Path;

use serde::Deserialize;
use serde_json::json;

use crate::{BackendError, Client, Dialect};

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
    /// know). Answers must name `version` from then on.
    ///
    /// # Errors
    /// [`BackendError::Unsupported`] for vLLM; otherwise as any call, or [`BackendError::Answer`] where the engine says
    /// that it did not take them.
    pub fn publish_model(&self, folder: &Path, version: &str) -> Result<PublishedWeights, BackendError> {
        #[derive(Deserialize)]
        struct Taken {
            success: bool,
            #[serde(default)]
            message: String,
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
        Ok(PublishedWeights::Model {
            version: version.to_owned(),
        })
    }

    /// Makes the engine load an adapter in PEFT's format under a new name and forget the one before. A name is never used
    /// twice, so an answer under the new name cannot come from old weights or from a cache of theirs.
    ///
    /// # Errors
    /// [`BackendError::Unsupported`] for `seed serve`; otherwise as any call. Where the old one cannot be unloaded, the new one stays loaded.
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
        self.post(load, &json!({"lora_name": name, "lora_path": folder}))?;
        if let PublishedWeights::Adapter { name: old } = before
            && old != name
        {
            self.post(unload, &json!({"lora_name": old}))?;
        }
        Ok(PublishedWeights::Adapter {
            name: name.to_owned(),
        })
    }
}
