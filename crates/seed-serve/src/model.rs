//! The model that a server shows.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use seed_model::{ChatTemplate, Decoder, DecoderConfig, ModelDirectory, ModelError, Tokenizer, load_weights};

use crate::ServeError;

/// A model with the name under which clients ask for it.
pub struct ServedModel {
    pub(crate) decoder: Decoder,
    pub(crate) facts: Arc<Facts>,
}

/// What answering needs to know besides the weights.
pub(crate) struct Facts {
    pub(crate) name: String,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) chat: Option<ChatTemplate>,
    pub(crate) end_tokens: Vec<u32>,
    /// What the tokenizer puts before the text of a plain completion.
    pub(crate) opening_tokens: Vec<u32>,
    /// Tokens that prompt and response may have together.
    pub(crate) context: usize,
    pub(crate) vocabulary_size: usize,
    weights: RwLock<Arc<Weights>>,
}

/// Which weights the model has.
#[derive(Debug)]
pub(crate) struct Weights {
    /// Equal for equal weights, configuration and tokenizer.
    pub(crate) fingerprint: String,
    /// The name under which they were published, if they were since the start.
    pub(crate) version: Option<String>,
}

impl Facts {
    /// The weights at present.
    pub(crate) fn weights(&self) -> Arc<Weights> {
        Arc::clone(&self.weights.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Gives the decoder the weights of a folder, which must be of the same architecture, and returns their digest.
pub(crate) fn replace_weights(
    decoder: &mut Decoder,
    facts: &Facts,
    folder: &Path,
    version: Option<&str>,
) -> Result<String, String> {
    let text = |error: ModelError| error.to_string();
    let (config, parameters) = load_weights(folder).map_err(text)?;
    let of = |config: &DecoderConfig| config.parameter_shapes();
    if of(&config) != of(decoder.config()) {
        return Err(format!(
            "`{}` holds a model of other sizes than the one served",
            folder.display()
        ));
    }
    decoder.update(|current| *current = parameters);
    let digest = decoder.parameters().digest();
    let weights = Weights {
        fingerprint: fingerprint(decoder.config(), &digest, &facts.tokenizer).map_err(text)?,
        version: version.map(str::to_owned),
    };
    *facts.weights.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(weights);
    Ok(digest.to_hex().to_string())
}

impl ServedModel {
    /// The model of a directory under a name.
    ///
    /// # Errors
    /// [`ServeError::Option`] for an empty name, [`ServeError::Model`] where the parts do not fit together.
    pub fn new(name: impl Into<String>, directory: ModelDirectory) -> Result<Self, ServeError> {
        let name = name.into();
        if name.is_empty() {
            return Err(ServeError::Option {
                option: "name",
                value: name,
                rule: "the name under which clients ask for the model",
            });
        }
        let decoder = Decoder::new(directory.config, directory.parameters)?;
        let facts = Facts {
            weights: RwLock::new(Arc::new(Weights {
                fingerprint: fingerprint(
                    decoder.config(),
                    &decoder.parameters().digest(),
                    &directory.tokenizer,
                )?,
                version: None,
            })),
            opening_tokens: directory.tokenizer.opening_tokens(),
            context: decoder.config().max_positions,
            vocabulary_size: decoder.config().vocabulary_size,
            name,
            tokenizer: directory.tokenizer,
            chat: directory.chat,
            end_tokens: directory.end_tokens,
        };
        Ok(Self {
            decoder,
            facts: Arc::new(facts),
        })
    }

    /// The name under which clients ask for it.
    pub fn name(&self) -> &str {
        &self.facts.name
    }

    /// The architecture.
    pub fn config(&self) -> &DecoderConfig {
        self.decoder.config()
    }

    /// Whether it has a chat template, without which only plain completions are answered.
    pub fn has_chat(&self) -> bool {
        self.facts.chat.is_some()
    }

    /// Memory of the keys and values of one token in bytes.
    pub fn bytes_per_token(&self) -> usize {
        let config = self.decoder.config();
        2 * config.layers * config.key_value_width() * size_of::<f32>()
    }
}

fn fingerprint(
    config: &DecoderConfig,
    parameters: &blake3::Hash,
    tokenizer: &Tokenizer,
) -> Result<String, ModelError> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(config.to_json().as_bytes());
    hasher.update(tokenizer.to_json()?.as_bytes());
    hasher.update(parameters.as_bytes());
    Ok(format!("seed-{}", &hasher.finalize().to_hex()[..16]))
}
