//! A policy: weights with everything needed to talk to them, and what of them is trained.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use seed_model::{
    Adapter, AdapterOptions, CHATML_TEMPLATE, CHATML_TOKENS, ChatTemplate, Decoder, DecoderConfig,
    DirectoryContents, Family, ModelDirectory, ModelError, Parameters, RopeScaling, ShardOptions, Target,
    Tokenizer, TurnFormat, base_of_adapter, gguf_configuration, is_adapter_directory, load_adapter,
    load_directory, load_gguf, save_adapter, save_directory, train_byte_level_bpe_with_numbers,
};
use seed_random::RandomKey;
use seed_rollout::Conversation;

use crate::TrainError;
use crate::config::{self, AdapterSection, InitialiseSection, ModelSection, ModelShape, TrainConfig};
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
    /// Where the weights were read from; those of the base, where there is an adapter.
    source: PathBuf,
    /// Digest of the decoder's own parameters, once an adapter needed it: they are frozen from then on.
    base_digest: OnceLock<blake3::Hash>,
}

impl Policy {
    /// Reads a Hugging Face directory, a file whose name ends in `.gguf`, or an adapter's directory in PEFT's layout together
    /// with the base that it names; `embedded:household-tiny` is the small policy inside the program.
    ///
    /// # Errors
    /// When a file is missing or broken (the error names it), the model has no usable chat template, or the base is not the
    /// adapter's.
    pub fn load(path: &Path, thinking: bool) -> Result<Self, TrainError> {
        if !is_adapter_directory(path) {
            return Self::load_base(path, thinking);
        }
        Self::load_beside(path, &find_base(path)?, thinking)
    }

    /// Reads an adapter's directory and the base to put it beside, wherever that is.
    ///
    /// # Errors
    /// As [`Policy::load`].
    pub fn load_beside(adapter: &Path, base: &Path, thinking: bool) -> Result<Self, TrainError> {
        let mut policy = Self::load_base(base, thinking)?;
        policy.load_adapter(adapter)?;
        Ok(policy)
    }

    /// The policy that a configuration trains, where it is computed: its model, with the adapter where one is trained.
    ///
    /// # Errors
    /// As [`Policy::load`], [`Policy::prepare`] and [`Policy::place`].
    pub fn configured(config: &TrainConfig) -> Result<Self, TrainError> {
        let mut policy = Self::load(&config.model.path, config.model.thinking)?;
        let key = RandomKey::new(config.run.seed);
        policy.prepare(&config.adapter, key, &config.model.path)?;
        policy.place(&config.model)?;
        Ok(policy)
    }

    /// The policy that a section names, as it is and where it is computed.
    ///
    /// # Errors
    /// As [`Policy::load`] and [`Policy::place`].
    pub fn placed(section: &ModelSection) -> Result<Self, TrainError> {
        let mut policy = Self::load(&section.path, section.thinking)?;
        policy.place(section)?;
        Ok(policy)
    }

    fn load_base(path: &Path, thinking: bool) -> Result<Self, TrainError> {
        Self::from_directory(read_base(path)?, path, thinking)
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
            source: path.to_owned(),
            base_digest: OnceLock::new(),
        })
    }

    /// Puts the adapter of a folder beside the weights, in place of any other.
    fn load_adapter(&mut self, folder: &Path) -> Result<(), TrainError> {
        let read = load_adapter(folder, self.decoder.config())?;
        read.check_base(folder, &self.base_digest().to_hex())?;
        self.decoder = self.decoder.clone().with_adapter(read.adapter)?;
        Ok(())
    }

    fn base_digest(&self) -> blake3::Hash {
        *self
            .base_digest
            .get_or_init(|| self.decoder.parameters().digest())
    }

    /// As [`Decoder::digest`]; beside an adapter the base's share is computed once.
    pub fn digest(&self) -> blake3::Hash {
        if self.decoder.adapter().is_some() {
            self.decoder.digest_over(self.base_digest())
        } else {
            self.decoder.digest()
        }
    }

    /// Makes the policy one that trains what `section` says: an adapter, fresh from `key` unless the policy was loaded with
    /// one, or all its weights.
    ///
    /// # Errors
    /// [`TrainError::Adapter`] where the policy was loaded with an adapter that is not the section's.
    pub fn prepare(
        &mut self,
        section: &AdapterSection,
        key: RandomKey,
        path: &Path,
    ) -> Result<(), TrainError> {
        let refused = |problem: String| {
            Err(TrainError::Adapter {
                path: path.to_owned(),
                problem,
            })
        };
        let wanted = adapter_options(section).validated()?;
        match (section.enabled, self.decoder.adapter()) {
            (false, Some(_)) => refused(
                "it holds an adapter: train it further with `adapter.enabled = true`, or merge it with `seed merge` first"
                    .to_owned(),
            ),
            (true, Some(adapter)) if *adapter.options() != wanted => refused(format!(
                "it has {}, `[adapter]` asks for {}",
                describe(adapter.options()),
                describe(&wanted)
            )),
            (false, None) | (true, Some(_)) => Ok(()),
            (true, None) => {
                let key = key.with_text("purpose", "adapter");
                let adapter = Adapter::initialise(wanted, self.decoder.config(), key)?;
                self.decoder = self.decoder.clone().with_adapter(adapter)?;
                Ok(())
            }
        }
    }

    /// Has the decoder compute where `section` says.
    ///
    /// # Errors
    /// Where the program was not built for the device, there is none, or its memory does not hold the weights.
    pub fn place(&mut self, section: &ModelSection) -> Result<(), TrainError> {
        self.decoder = self.decoder.clone().placed(section.place()?)?;
        Ok(())
    }

    /// Puts back what [`Policy::save`] wrote: the adapter where the policy has one, else all weights.
    ///
    /// # Errors
    /// When the folder cannot be read, or holds an adapter of another base.
    pub fn restore(&mut self, folder: &Path, pack_tokens: usize) -> Result<(), TrainError> {
        let place = self.decoder.place();
        if self.decoder.adapter().is_some() {
            self.load_adapter(folder)?;
        } else {
            self.decoder = Self::load_base(folder, false)?.decoder;
        }
        self.decoder = self.decoder.clone().with_pack_tokens(pack_tokens).placed(place)?;
        Ok(())
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
        // Checked with the configuration: at least one.
        let number_digits = NonZeroUsize::new(section.number_digits).unwrap_or(NonZeroUsize::MIN);
        let tokenizer =
            train_byte_level_bpe_with_numbers(texts, section.vocabulary_size, &CHATML_TOKENS, number_digits)?;
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

    /// The sizes that memory estimates need; without the adapter.
    pub fn shape(&self) -> ModelShape {
        shape_of(self.decoder.config())
    }

    /// The id with which the model ends its turn.
    pub fn end_of_turn(&self) -> u32 {
        self.end_of_turn
    }

    /// Writes a directory, which must not exist: in PEFT's layout where the policy has an adapter, else a Hugging Face
    /// directory. What a device has trained has to be [fetched](Decoder::fetch) before.
    ///
    /// # Errors
    /// When the directory exists or cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), ModelError> {
        if let Some(adapter) = self.decoder.adapter() {
            // Readers elsewhere look for the base from where they stand.
            let base = if embedded::find(&self.source).is_some() {
                self.source.clone()
            } else {
                std::path::absolute(&self.source)?
            };
            return save_adapter(
                path,
                adapter,
                &base.to_string_lossy(),
                &self.base_digest().to_hex(),
            );
        }
        self.save_weights(path, self.decoder.parameters())
    }

    /// Writes the base with the adapter merged into its matrices as a Hugging Face directory, which must not exist.
    ///
    /// # Errors
    /// [`TrainError::Adapter`] where the policy has no adapter; or the directory exists or cannot be written.
    pub fn save_merged(&self, path: &Path) -> Result<(), TrainError> {
        let Some(adapter) = self.decoder.adapter() else {
            return Err(TrainError::Adapter {
                path: self.source.clone(),
                problem: "it is a model without an adapter: there is nothing to merge".to_owned(),
            });
        };
        let merged = adapter.merged(self.decoder.config(), self.decoder.parameters())?;
        Ok(self.save_weights(path, &merged)?)
    }

    /// Writes a Hugging Face directory, which must not exist, with these parameters in place of the policy's own.
    pub(crate) fn save_weights(&self, path: &Path, parameters: &Parameters) -> Result<(), ModelError> {
        save_directory(
            path,
            DirectoryContents {
                config: self.decoder.config(),
                parameters,
                tokenizer: &self.tokenizer,
                chat: Some(&self.chat),
                end_tokens: &self.end_tokens,
            },
            ShardOptions::default(),
        )
    }

    /// As [`Policy::save`], in place of an empty folder.
    ///
    /// # Errors
    /// When the folder is not empty or cannot be written.
    pub fn write_into(&self, folder: &Path) -> Result<(), TrainError> {
        fs_err::remove_dir(folder)?;
        Ok(self.save(folder)?)
    }
}

/// A model as it was read, for those who need no chat format.
pub struct ReadModel {
    /// The weights and what belongs to them; those of the base, where there is an adapter.
    pub directory: ModelDirectory,
    /// What the path named, if that was an adapter's folder.
    pub adapter: Option<ReadAdapter>,
}

/// An adapter as it was read, beside the base it belongs to.
pub struct ReadAdapter {
    /// The adapter.
    pub adapter: Adapter,
    /// Where its base was found.
    pub base: PathBuf,
    /// Whether the adapter says which weights it was trained beside. If it does, they are the base's.
    pub names_base: bool,
}

impl ReadModel {
    /// One model: where there is an adapter, its base with the adapter merged into the matrices.
    ///
    /// # Errors
    /// [`TrainError::Model`] where the adapter does not fit the base, which reading has ruled out.
    pub fn merged(self) -> Result<ModelDirectory, TrainError> {
        let mut directory = self.directory;
        if let Some(read) = self.adapter {
            directory.parameters = read.adapter.merged(&directory.config, &directory.parameters)?;
        }
        Ok(directory)
    }
}

/// Reads a Hugging Face directory, a file whose name ends in `.gguf`, or an adapter's directory in PEFT's layout together
/// with the base that it names; `embedded:household-tiny` is the small policy inside the program.
///
/// # Errors
/// When a file is missing or broken (the error names it), or the base is not the adapter's.
pub fn read_model(path: &Path) -> Result<ReadModel, TrainError> {
    if !is_adapter_directory(path) {
        return Ok(ReadModel {
            directory: read_base(path)?,
            adapter: None,
        });
    }
    let base = find_base(path)?;
    let directory = read_base(&base)?;
    let read = load_adapter(path, &directory.config)?;
    read.check_base(path, &directory.parameters.digest().to_hex())?;
    Ok(ReadModel {
        directory,
        adapter: Some(ReadAdapter {
            adapter: read.adapter,
            base,
            names_base: read.base_digest.is_some(),
        }),
    })
}

/// Reads a model's own weights.
fn read_base(path: &Path) -> Result<ModelDirectory, TrainError> {
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
    let base;
    let path = if is_adapter_directory(path) {
        base = find_base(path)?;
        base.as_path()
    } else {
        path
    };
    let config = match embedded::find(path) {
        Some(embedded) => load_config(embedded.unpack()?.path())?,
        None => load_config(path)?,
    };
    Ok(shape_of(&config))
}

fn shape_of(config: &DecoderConfig) -> ModelShape {
    let parameters: usize = config
        .parameter_shapes()
        .iter()
        .map(|(_, shape)| shape.iter().product::<usize>())
        .sum();
    ModelShape {
        parameters: parameters as u64,
        layers: config.layers as u64,
        hidden_size: config.hidden_size as u64,
        intermediate_size: config.intermediate_size as u64,
        query_width: (config.query_heads * config.head_dim) as u64,
        key_value_width: (config.key_value_heads * config.head_dim) as u64,
        vocabulary_size: config.vocabulary_size as u64,
        query_key_norm: config.query_key_norm,
    }
}

/// Where the base of the adapter in `folder` is: as named, or beside the folder.
fn find_base(folder: &Path) -> Result<PathBuf, TrainError> {
    let named = PathBuf::from(base_of_adapter(folder)?);
    if embedded::find(&named).is_some() || named.exists() {
        return Ok(named);
    }
    let beside = folder.parent().map(|parent| parent.join(&named));
    match beside.filter(|beside| beside.exists()) {
        Some(beside) => Ok(beside),
        None => Err(TrainError::Adapter {
            path: folder.to_owned(),
            problem: format!(
                "its base `{}` is not here: fetch it and write its place as `base_model_name_or_path` into \
                 adapter_config.json",
                named.display()
            ),
        }),
    }
}

fn adapter_options(section: &AdapterSection) -> AdapterOptions {
    AdapterOptions {
        targets: section.targets.iter().map(|&target| target.into()).collect(),
        rank: section.rank,
        alpha: section.alpha,
        rank_stabilised: section.rank_stabilised,
    }
}

impl From<config::AdapterTarget> for Target {
    fn from(target: config::AdapterTarget) -> Self {
        use config::AdapterTarget;
        match target {
            AdapterTarget::Query => Self::Query,
            AdapterTarget::Key => Self::Key,
            AdapterTarget::Value => Self::Value,
            AdapterTarget::Output => Self::Output,
            AdapterTarget::Gate => Self::Gate,
            AdapterTarget::Up => Self::Up,
            AdapterTarget::Down => Self::Down,
        }
    }
}

fn describe(options: &AdapterOptions) -> String {
    let targets: Vec<&str> = options.targets.iter().map(|target| target.name()).collect();
    format!(
        "rank {}, alpha {}, rank_stabilised {}, targets {}",
        options.rank,
        options.alpha,
        options.rank_stabilised,
        targets.join(" ")
    )
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
