//! A model as a directory of files in the Hugging Face layout: `config.json`, safetensors weights (one file or shards
//! with an index), `tokenizer.json`, and optionally `generation_config.json`, `tokenizer_config.json` and
//! `chat_template.jinja`.
//!
//! Model files come from strangers: every read is bounded, every mismatch is an error that names the file and the
//! tensor. Writing goes to a temporary directory beside the target, is synced, and becomes visible by one rename.
//!
//! Not for: training checkpoints with optimiser state, or fetching models.

mod adapter;
mod shards;
mod weights;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use fs_err as fs;
use serde::Deserialize;
use serde_json::{Map, Value, json};

pub use adapter::{AdapterDirectory, base_of_adapter, is_adapter_directory, load_adapter, save_adapter};
pub use shards::ElementType;

use crate::chat::{ChatTemplate, TurnFormat};
use crate::config::{DecoderConfig, TokenIds};
use crate::error::ModelError;
use crate::parameters::Parameters;
use crate::tokenizer::Tokenizer;

const CONFIG: &str = "config.json";
const GENERATION_CONFIG: &str = "generation_config.json";
const TOKENIZER: &str = "tokenizer.json";
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
const CHAT_TEMPLATE: &str = "chat_template.jinja";

/// Largest `config.json`, `generation_config.json` and template that are read, in bytes.
const SMALL_FILE: u64 = 4 << 20;

/// Largest `tokenizer.json` and `tokenizer_config.json`: those of vocabularies of 250,000 tokens have about 35 MB.
const TOKENIZER_FILE: u64 = 256 << 20;

/// A model read from a directory or a GGUF file.
#[derive(Clone, Debug)]
pub struct ModelDirectory {
    /// The architecture.
    pub config: DecoderConfig,
    /// The weights.
    pub parameters: Parameters,
    /// The tokenizer; the end tokens are control tokens of it.
    pub tokenizer: Tokenizer,
    /// The chat template, where the directory has one.
    pub chat: Option<ChatTemplate>,
    /// The stop set, increasing: the end tokens of `config.json`, `generation_config.json` and `tokenizer_config.json`,
    /// and the token with which the chat template ends the assistant's turn.
    pub end_tokens: Vec<u32>,
}

/// What [`save_directory`] writes.
#[derive(Clone, Copy, Debug)]
pub struct DirectoryContents<'a> {
    /// The architecture.
    pub config: &'a DecoderConfig,
    /// The weights.
    pub parameters: &'a Parameters,
    /// The tokenizer.
    pub tokenizer: &'a Tokenizer,
    /// The chat template, if any.
    pub chat: Option<&'a ChatTemplate>,
    /// The stop set, for `generation_config.json`.
    pub end_tokens: &'a [u32],
}

/// How weights are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardOptions {
    /// Largest size of one weight file in bytes of tensors; a single larger tensor gets a file of its own.
    pub max_shard_bytes: u64,
    /// The element type on disk. Anything but [`ElementType::F32`] rounds.
    pub element_type: ElementType,
}

impl Default for ShardOptions {
    /// Full precision in files of 5 GB, the size that hubs and libraries expect.
    fn default() -> Self {
        Self {
            max_shard_bytes: 5_000_000_000,
            element_type: ElementType::F32,
        }
    }
}

impl ModelDirectory {
    /// Puts together a model made here, with the stop set that a directory of it would have.
    ///
    /// # Errors
    /// [`ModelError::Tokenizer`] where the tokenizer has ids outside the configuration's vocabulary;
    /// [`ModelError::TokenOutsideVocabulary`] where an end token is.
    pub fn new(
        config: DecoderConfig,
        parameters: Parameters,
        tokenizer: Tokenizer,
        chat: Option<ChatTemplate>,
    ) -> Result<Self, ModelError> {
        let named = config.end_tokens.clone();
        Self::assemble(config, parameters, tokenizer, chat, named)
    }

    fn assemble(
        config: DecoderConfig,
        parameters: Parameters,
        tokenizer: Tokenizer,
        chat: Option<ChatTemplate>,
        end_tokens: Vec<u32>,
    ) -> Result<Self, ModelError> {
        if tokenizer.vocabulary_size() > config.vocabulary_size {
            return Err(ModelError::Tokenizer {
                problem: format!(
                    "it has ids up to `{}`, the model's vocab_size is `{}`",
                    tokenizer.vocabulary_size() - 1,
                    config.vocabulary_size
                ),
            });
        }
        let mut end_tokens: BTreeSet<u32> = end_tokens.into_iter().collect();
        end_tokens.extend(
            tokenizer
                .named_token("eos_token")
                .and_then(|token| tokenizer.token_id(token)),
        );
        let tokenizer = tokenizer.with_control_tokens(&end_tokens.iter().copied().collect::<Vec<_>>());
        if let Some(template) = &chat
            && let Ok(turns) = TurnFormat::derive(template, &tokenizer)
        {
            end_tokens.extend(turns.end_of_turn());
        }
        if let Some(&outside) = end_tokens
            .iter()
            .find(|&&token| token as usize >= config.vocabulary_size)
        {
            return Err(ModelError::TokenOutsideVocabulary {
                owner: "end tokens".to_owned(),
                token: outside,
                position: 0,
                vocabulary_size: config.vocabulary_size,
            });
        }
        Ok(Self {
            config,
            parameters,
            tokenizer,
            chat,
            end_tokens: end_tokens.into_iter().collect(),
        })
    }

    /// The model as [`save_directory`] takes it.
    pub fn contents(&self) -> DirectoryContents<'_> {
        DirectoryContents {
            config: &self.config,
            parameters: &self.parameters,
            tokenizer: &self.tokenizer,
            chat: self.chat.as_ref(),
            end_tokens: &self.end_tokens,
        }
    }
}

/// Reads a whole model.
///
/// # Errors
/// Any [`ModelError`] of files, tensors, configuration, tokenizer or template; each names the file.
pub fn load_directory(directory: impl AsRef<Path>) -> Result<ModelDirectory, ModelError> {
    let directory = directory.as_ref();
    // Small files first, so that their faults show before gigabytes have been read.
    let config = load_config(directory)?;
    let tokenizer = load_tokenizer(directory)?;
    let chat = load_chat_template(directory, &tokenizer)?;
    let mut end_tokens = config.end_tokens.clone();
    if let Some((path, text)) = read_optional(directory, GENERATION_CONFIG, SMALL_FILE)? {
        let generation: GenerationConfig = parse(&path, &text)?;
        end_tokens.extend(Vec::from(generation.eos_token_id.unwrap_or_default()));
    }
    let parameters = weights::load(directory, &config)?;
    let path = directory.join(TOKENIZER);
    ModelDirectory::assemble(config, parameters, tokenizer, chat, end_tokens)
        .map_err(|error| in_file(path, error))
}

/// Reads the configuration and the weights alone.
///
/// # Errors
/// As [`load_directory`], of those files.
pub fn load_weights(directory: impl AsRef<Path>) -> Result<(DecoderConfig, Parameters), ModelError> {
    let directory = directory.as_ref();
    let config = load_config(directory)?;
    let parameters = weights::load(directory, &config)?;
    Ok((config, parameters))
}

fn load_config(directory: &Path) -> Result<DecoderConfig, ModelError> {
    let (path, text) = read_required(
        directory,
        CONFIG,
        SMALL_FILE,
        "name the directory of a model in the Hugging Face layout",
    )?;
    DecoderConfig::from_json(&text).map_err(|error| in_file(path, error))
}

fn load_tokenizer(directory: &Path) -> Result<Tokenizer, ModelError> {
    let options = match read_optional(directory, TOKENIZER_CONFIG, TOKENIZER_FILE)? {
        Some((path, text)) => parse(&path, &text)?,
        None => Map::new(),
    };
    let (path, text) = read_required(
        directory,
        TOKENIZER,
        TOKENIZER_FILE,
        "load and save the model's tokenizer once with transformers, which writes it",
    )?;
    Tokenizer::from_json_with_options(&text, options).map_err(|error| in_file(path, error))
}

/// The file of its own comes before the entry in `tokenizer_config.json`, as in transformers.
fn load_chat_template(directory: &Path, tokenizer: &Tokenizer) -> Result<Option<ChatTemplate>, ModelError> {
    let (path, source) = match read_optional(directory, CHAT_TEMPLATE, SMALL_FILE)? {
        Some(found) => found,
        None => match chat_template_option(tokenizer.options()) {
            Some(source) => (directory.join(TOKENIZER_CONFIG), source.to_owned()),
            None => return Ok(None),
        },
    };
    ChatTemplate::new(&source, tokenizer)
        .map(Some)
        .map_err(|error| in_file(path, error))
}

/// `chat_template`: a text, or a list of named texts of which `default` counts.
fn chat_template_option(options: &Map<String, Value>) -> Option<&str> {
    match options.get("chat_template")? {
        Value::String(source) => Some(source),
        Value::Array(named) => named
            .iter()
            .find(|entry| entry.get("name").and_then(Value::as_str) == Some("default"))?
            .get("template")?
            .as_str(),
        _ => None,
    }
}

/// Writes a model that [`load_directory`] and transformers read back as the same one.
///
/// The directory appears whole or not at all. It must not exist yet.
///
/// # Errors
/// [`ModelError::AlreadyExists`]; [`ModelError::ParameterShape`] or [`ModelError::ParameterMissing`] where the
/// parameters are not those of the configuration; [`ModelError::Unrepresentable`] where a weight is out of the range of
/// the element type; [`ModelError::File`] where writing fails.
pub fn save_directory(
    directory: impl AsRef<Path>,
    contents: DirectoryContents<'_>,
    options: ShardOptions,
) -> Result<(), ModelError> {
    check_contents(&contents, options)?;
    publish(directory.as_ref(), |draft| write_model(draft, &contents, options))
}

/// Lets `write` fill a new directory, which then appears whole as `directory`, or not at all.
fn publish(directory: &Path, write: impl FnOnce(&Path) -> Result<(), ModelError>) -> Result<(), ModelError> {
    if fs::symlink_metadata(directory).is_ok() {
        return Err(ModelError::AlreadyExists {
            path: directory.to_owned(),
        });
    }
    let draft = write_draft(directory, write)?;
    if let Err(error) = fs::rename(&draft, directory) {
        // The first error is the one to tell; what cannot be removed is a hidden directory with a telling name.
        let _ = fs::remove_dir_all(&draft);
        return Err(error.into());
    }
    sync_directory(parent_of(directory))?;
    Ok(())
}

/// As [`save_directory`] in place of a directory that is there, which is moved aside only when the new one is complete,
/// and removed at the end.
///
/// # Errors
/// As [`save_directory`]. The old directory is then where it was, or, where it could not be put back, beside it.
pub fn replace_directory(
    directory: impl AsRef<Path>,
    contents: DirectoryContents<'_>,
    options: ShardOptions,
) -> Result<(), ModelError> {
    let directory = directory.as_ref();
    check_contents(&contents, options)?;
    let draft = write_draft(directory, |draft| write_model(draft, &contents, options))?;
    let aside = draft.with_extension("old");
    let renamed = fs::rename(directory, &aside).and_then(|()| {
        fs::rename(&draft, directory).inspect_err(|_| {
            let _ = fs::rename(&aside, directory);
        })
    });
    if let Err(error) = renamed {
        let _ = fs::remove_dir_all(&draft);
        return Err(error.into());
    }
    sync_directory(parent_of(directory))?;
    fs::remove_dir_all(&aside)?;
    Ok(())
}

fn check_contents(contents: &DirectoryContents<'_>, options: ShardOptions) -> Result<(), ModelError> {
    check_layout(contents.config, contents.parameters)?;
    check_range(contents.parameters, options.element_type)
}

fn parent_of(directory: &Path) -> &Path {
    match directory.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// The files of a model.
fn write_model(
    draft: &Path,
    contents: &DirectoryContents<'_>,
    options: ShardOptions,
) -> Result<(), ModelError> {
    let write =
        |name: &str, text: &str| write_file(&draft.join(name), |file| file.write_all(text.as_bytes()));
    write(CONFIG, &contents.config.to_json())?;
    write(GENERATION_CONFIG, &generation_config(contents))?;
    write(TOKENIZER, &contents.tokenizer.to_json()?)?;
    write(TOKENIZER_CONFIG, &tokenizer_config(contents))?;
    if let Some(template) = contents.chat {
        write(CHAT_TEMPLATE, template.source())?;
    }
    shards::write(draft, contents.parameters, options)
}

/// Lets `write` fill a directory beside `directory`, so that a rename stays within one file system, and syncs it. Nothing
/// is left of it on an error.
fn write_draft(
    directory: &Path,
    write: impl FnOnce(&Path) -> Result<(), ModelError>,
) -> Result<PathBuf, ModelError> {
    let parent = parent_of(directory);
    fs::create_dir_all(parent)?;
    // Dropped (and removed) on every error.
    let draft = tempfile::Builder::new()
        .prefix(".model-")
        .suffix(".partial")
        .tempdir_in(parent)?;
    write(draft.path())?;
    sync_directory(draft.path())?;
    let draft = draft.keep();
    make_readable(&draft)?;
    Ok(draft)
}

/// The largest number of half precision.
const LARGEST_HALF: f32 = 65_504.0;

/// Refuses weights that would become infinite. The types other than half precision have the range of f32.
fn check_range(parameters: &Parameters, element_type: ElementType) -> Result<(), ModelError> {
    if element_type != ElementType::F16 {
        return Ok(());
    }
    let large = parameters.iter().find_map(|parameter| {
        let value = parameter.values.iter().find(|value| value.abs() > LARGEST_HALF)?;
        Some((parameter.name.to_owned(), *value))
    });
    match large {
        Some((name, value)) => Err(ModelError::Unrepresentable { name, value }),
        None => Ok(()),
    }
}

/// Refuses parameters of another configuration: the directory could not be read back.
fn check_layout(config: &DecoderConfig, parameters: &Parameters) -> Result<(), ModelError> {
    let expected = config.parameter_shapes();
    for (name, shape) in &expected {
        let index = parameters
            .index_of(name)
            .ok_or_else(|| ModelError::ParameterMissing { name: name.clone() })?;
        if parameters.shape(index) != shape.as_slice() {
            return Err(ModelError::ParameterShape {
                name: name.clone(),
                expected: shape.clone(),
                found: parameters.shape(index).to_vec(),
            });
        }
    }
    match parameters
        .iter()
        .find(|parameter| !expected.iter().any(|(name, _)| name == parameter.name))
    {
        Some(extra) => Err(ModelError::ParameterShape {
            name: extra.name.to_owned(),
            expected: Vec::new(),
            found: extra.shape.to_vec(),
        }),
        None => Ok(()),
    }
}

#[derive(Deserialize)]
struct GenerationConfig {
    #[serde(default)]
    eos_token_id: Option<TokenIds>,
}

fn generation_config(contents: &DirectoryContents<'_>) -> String {
    let mut keys = Map::new();
    if let Some(begin) = contents.config.begin_token {
        keys.insert("bos_token_id".to_owned(), json!(begin));
    }
    keys.insert("eos_token_id".to_owned(), json!(contents.end_tokens));
    indented(keys)
}

/// What the model came with, and what transformers needs to load a tokenizer made here.
fn tokenizer_config(contents: &DirectoryContents<'_>) -> String {
    let mut keys = contents.tokenizer.options().clone();
    // The template has a file of its own; two copies could come to differ.
    keys.remove("chat_template");
    if !keys.contains_key("tokenizer_class") {
        keys.insert("tokenizer_class".to_owned(), json!("PreTrainedTokenizerFast"));
    }
    if !keys.contains_key("eos_token")
        && let Some(token) = contents.config.end_tokens.first().or(contents.end_tokens.first())
        && let Some(name) = contents.tokenizer.token_name(*token)
    {
        keys.insert("eos_token".to_owned(), json!(name));
    }
    if !keys.contains_key("model_max_length") {
        keys.insert(
            "model_max_length".to_owned(),
            json!(contents.config.max_positions),
        );
    }
    if !keys.contains_key("clean_up_tokenization_spaces") {
        keys.insert("clean_up_tokenization_spaces".to_owned(), json!(false));
    }
    indented(keys)
}

fn indented(keys: Map<String, Value>) -> String {
    // An alternate `Display` of a JSON value is its indented form and cannot fail.
    format!("{:#}\n", Value::Object(keys))
}

fn parse<T: serde::de::DeserializeOwned>(path: &Path, text: &str) -> Result<T, ModelError> {
    serde_json::from_str(text).map_err(|error| broken(path, format!("it cannot be read as JSON ({error})")))
}

fn read_required(
    directory: &Path,
    name: &str,
    limit: u64,
    remedy: &'static str,
) -> Result<(PathBuf, String), ModelError> {
    read_optional(directory, name, limit)?.ok_or_else(|| ModelError::FileMissing {
        path: directory.join(name),
        remedy,
    })
}

/// The text of a file, or none where there is no such file.
fn read_optional(directory: &Path, name: &str, limit: u64) -> Result<Option<(PathBuf, String)>, ModelError> {
    let path = directory.join(name);
    let file = match fs::File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let size = file.metadata()?.len();
    if size > limit {
        return Err(ModelError::FileTooLarge { path, size, limit });
    }
    let mut bytes = Vec::new();
    // The limit again: the size of a pipe or of a file that grows says nothing.
    file.take(limit).read_to_end(&mut bytes)?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some((path, text))),
        Err(error) => Err(broken(&path, format!("it is not UTF-8 ({error})"))),
    }
}

/// Writes and syncs a new file.
fn write_file(
    path: &Path,
    write: impl FnOnce(&mut std::io::BufWriter<fs::File>) -> std::io::Result<()>,
) -> Result<(), ModelError> {
    let mut writer = std::io::BufWriter::with_capacity(1 << 20, fs::File::create(path)?);
    write(&mut writer)?;
    let file = writer.into_inner().map_err(std::io::IntoInnerError::into_error)?;
    file.sync_all()?;
    Ok(())
}

/// Makes the entries of a directory durable. Only Unix can and needs to.
fn sync_directory(directory: &Path) -> Result<(), ModelError> {
    if cfg!(unix) {
        fs::File::open(directory)?.sync_all()?;
    }
    Ok(())
}

/// Temporary directories are private to their user; a model is as readable as any other file.
#[cfg(unix)]
fn make_readable(directory: &Path) -> Result<(), ModelError> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755))?;
    Ok(())
}

#[cfg(not(unix))]
#[expect(clippy::unnecessary_wraps, reason = "it has a Unix twin that can fail")]
fn make_readable(_: &Path) -> Result<(), ModelError> {
    Ok(())
}

pub(crate) fn in_file(path: PathBuf, error: ModelError) -> ModelError {
    ModelError::InFile {
        path,
        source: Box::new(error),
    }
}

/// Refuses values of a tensor, the first of which is its element `first`, that are not finite.
pub(crate) fn refuse_non_finite(
    path: &Path,
    name: &str,
    first: usize,
    values: &[f32],
) -> Result<(), ModelError> {
    match values.iter().position(|value| !value.is_finite()) {
        Some(position) => Err(ModelError::TensorNonFinite {
            path: path.to_owned(),
            name: name.to_owned(),
            element: first + position,
            value: values[position],
        }),
        None => Ok(()),
    }
}

pub(crate) fn broken(path: &Path, problem: String) -> ModelError {
    ModelError::FileBroken {
        path: path.to_owned(),
        problem,
    }
}

#[cfg(test)]
mod tests;
