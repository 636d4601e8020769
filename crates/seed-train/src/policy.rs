//! A policy: weights with everything needed to talk to them.

use std::path::Path;
use std::sync::Arc;

use seed_model::{
    CHATML_TEMPLATE, CHATML_TOKENS, ChatTemplate, Decoder, DecoderConfig, DirectoryContents, Family,
    ModelDirectory, ModelError, Parameters, RopeScaling, ShardOptions, Tokenizer, TurnFormat,
    gguf_configuration, load_directory, load_gguf, save_directory, train_byte_level_bpe,
};
use seed_random::RandomKey;
use seed_rollout::Conversation;

use crate::TrainError;
use crate::config::{self, InitialiseSection, ModelShape};
use crate::embedded;
use crate::examples::ExampleRecord;

/// Weights, tokenizer and chat format of one model.
pub struct Policy {
    /// The decoder.
    pub decoder: Decoder,
    /// The tokenizer.
    pub tokenizer: Tokenizer,
    /// The chat template.
    pub chat: ChatTemplate,
    /// Turns in the model's chat format.
    pub conversation: Conversation,
    /// Ids that end a response, increasing.
    pub end_tokens: Arc<[u32]>,
    end_of_turn: u32,
}

impl Policy {
    /// Reads a model as [`read_model`] does.
    ///
    /// # Errors
    /// As [`read_model`], and when the model has no usable chat template.
    pub fn load(path: &Path, thinking: bool) -> Result<Self, TrainError> {
        Self::from_directory(read_model(path)?, path, thinking)
    }

    fn from_directory(directory: ModelDirectory, path: &Path, thinking: bool) -> Result<Self, TrainError> {
        let chat = directory
            .chat
            .ok_or_else(|| TrainError::NoChatTemplate {
                path: path.to_owned(),
            })?
            .with_thinking(thinking);
        let format = TurnFormat::derive(&chat, &directory.tokenizer)?;
        let end_of_turn = format
            .end_of_turn()
            .or_else(|| directory.end_tokens.first().copied())
            .ok_or_else(|| TrainError::NoEndToken {
                path: path.to_owned(),
            })?;
        Ok(Self {
            decoder: Decoder::new(directory.config, directory.parameters)?,
            conversation: Conversation::new(directory.tokenizer.clone(), format),
            tokenizer: directory.tokenizer,
            chat,
            end_tokens: directory.end_tokens.into(),
            end_of_turn,
        })
    }

    /// A policy with random weights and a tokenizer made from the examples' texts.
    ///
    /// # Errors
    /// When the sizes do not fit together.
    pub fn initialise(
        section: &InitialiseSection,
        records: &[ExampleRecord],
        key: RandomKey,
    ) -> Result<Self, TrainError> {
        let texts = records
            .iter()
            .flat_map(|record| &record.messages)
            .map(|message| message.content.as_str());
        let tokenizer = train_byte_level_bpe(texts, section.vocabulary_size, &CHATML_TOKENS)?;
        let chat = ChatTemplate::new(CHATML_TEMPLATE, &tokenizer)?;
        let end = TurnFormat::derive(&chat, &tokenizer)?.end_of_turn();
        let config = DecoderConfig {
            family: match section.family {
                config::Family::Llama => Family::Llama,
                config::Family::Qwen2 => Family::Qwen2,
                config::Family::Qwen3 => Family::Qwen3,
            },
            vocabulary_size: tokenizer.vocabulary_size(),
            hidden_size: section.hidden_size,
            intermediate_size: section.intermediate_size,
            layers: section.layers,
            query_heads: section.query_heads,
            key_value_heads: section.key_value_heads,
            head_dim: section.head_dim,
            max_positions: section.max_positions,
            rope_theta: section.rope_theta,
            tied_embeddings: section.tied_embeddings,
            attention_bias: section.family == config::Family::Qwen2,
            query_key_norm: section.family == config::Family::Qwen3,
            initializer_range: section.initializer_range as f32,
            rms_norm_epsilon: 1e-6,
            rope_scaling: RopeScaling::None,
            begin_token: None,
            end_tokens: end.into_iter().collect(),
        };
        let parameters = Parameters::initialise(&config, key.with_text("purpose", "initial weights"));
        let directory = ModelDirectory::new(config, parameters, tokenizer, Some(chat))?;
        Self::from_directory(directory, Path::new("the initialised model"), false)
    }

    /// The id with which the model ends its turn.
    pub fn end_of_turn(&self) -> u32 {
        self.end_of_turn
    }

    /// Writes a Hugging Face directory, which must not exist.
    ///
    /// # Errors
    /// When the directory exists or cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), ModelError> {
        save_directory(
            path,
            DirectoryContents {
                config: self.decoder.config(),
                parameters: self.decoder.parameters(),
                tokenizer: &self.tokenizer,
                chat: Some(&self.chat),
                end_tokens: &self.end_tokens,
            },
            ShardOptions::default(),
        )
    }

    /// Writes a Hugging Face directory in place of an empty folder.
    ///
    /// # Errors
    /// When the folder is not empty or cannot be written.
    pub fn write_into(&self, folder: &Path) -> Result<(), TrainError> {
        fs_err::remove_dir(folder)?;
        Ok(self.save(folder)?)
    }
}

/// Reads a Hugging Face directory or a file whose name ends in `.gguf`; `embedded:household-tiny` is the small policy
/// inside the program.
///
/// # Errors
/// When a file is missing or broken; the error names it.
pub fn read_model(path: &Path) -> Result<ModelDirectory, TrainError> {
    Ok(match embedded::find(path) {
        Some(embedded) => load_directory(embedded.unpack()?.path())?,
        None if is_gguf(path) => load_gguf(path)?,
        None => load_directory(path)?,
    })
}

/// The sizes of a model that memory estimates need.
///
/// # Errors
/// When the model's configuration cannot be read.
pub fn shape(path: &Path) -> Result<ModelShape, TrainError> {
    let config = match embedded::find(path) {
        Some(embedded) => load_config(embedded.unpack()?.path())?,
        None => load_config(path)?,
    };
    let parameters: usize = config
        .parameter_shapes()
        .iter()
        .map(|(_, shape)| shape.iter().product::<usize>())
        .sum();
    Ok(ModelShape {
        parameters: parameters as u64,
        layers: config.layers as u64,
        hidden_size: config.hidden_size as u64,
        intermediate_size: config.intermediate_size as u64,
        query_width: (config.query_heads * config.head_dim) as u64,
        key_value_width: (config.key_value_heads * config.head_dim) as u64,
        vocabulary_size: config.vocabulary_size as u64,
    })
}

fn is_gguf(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "gguf")
}

fn load_config(path: &Path) -> Result<DecoderConfig, TrainError> {
    if is_gguf(path) {
        return Ok(gguf_configuration(path)?);
    }
    Ok(DecoderConfig::from_json(&fs_err::read_to_string(
        path.join("config.json"),
    )?)?)
}
