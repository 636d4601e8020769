//! The errors of this crate: every one names its operands and what to do about it.

use std::path::PathBuf;

use thiserror::Error;

/// What can go wrong between a model directory and a log-probability.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A `config.json` is not a JSON object with values of the right types.
    #[error("config.json cannot be read: {source}")]
    ConfigSyntax {
        /// What the JSON reader says, with line and column.
        source: serde_json::Error,
    },
    /// A value of a `config.json` is missing, out of range, or asks for something that is not computed here.
    #[error("config.json: `{key}` {message}")]
    ConfigValue {
        /// The key as spelled in the file.
        key: String,
        /// What is wrong with it.
        message: String,
    },
    /// A file or directory could not be opened, read or written; the message of the source names it.
    #[error(transparent)]
    File(#[from] std::io::Error),
    /// What is wrong with one file of a model directory.
    #[error("`{path}`: {source}")]
    InFile {
        /// The file.
        path: PathBuf,
        /// The problem.
        source: Box<ModelError>,
    },
    /// A file that every model directory needs is not there.
    #[error("`{path}` is missing: {remedy}")]
    FileMissing {
        /// The file.
        path: PathBuf,
        /// Where it comes from or what else would do.
        remedy: &'static str,
    },
    /// A file is larger than anything its format needs.
    #[error("`{path}` has {size} bytes, more than the {limit} that are read of such a file")]
    FileTooLarge {
        /// The file.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
        /// The largest size that is read.
        limit: u64,
    },
    /// A file is truncated or not of its format.
    #[error("`{path}` is broken: {problem}; fetch or export the model again")]
    FileBroken {
        /// The file.
        path: PathBuf,
        /// What does not hold.
        problem: String,
    },
    /// A tensor that the configuration calls for is in no weight file.
    #[error(
        "`{path}` lacks tensor `{name}` (and {others} more) which the configuration calls for: the files do not belong together"
    )]
    TensorMissing {
        /// The weight file or the index.
        path: PathBuf,
        /// The first missing tensor in canonical order.
        name: String,
        /// How many further tensors are missing.
        others: usize,
    },
    /// A weight file holds a tensor that the configuration does not know.
    #[error(
        "`{path}` holds tensor `{name}` which the configuration does not call for: the files do not belong together"
    )]
    TensorUnexpected {
        /// The weight file.
        path: PathBuf,
        /// The tensor.
        name: String,
    },
    /// A tensor in a weight file has another shape than the configuration calls for.
    #[error(
        "`{path}`: tensor `{name}` has shape {found:?}, the configuration calls for {expected:?}: the files do not belong together"
    )]
    TensorShape {
        /// The weight file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// Shape asked for by the configuration.
        expected: Vec<usize>,
        /// Shape found.
        found: Vec<usize>,
    },
    /// A tensor has an element type that is not read.
    #[error(
        "`{path}`: tensor `{name}` has elements of type `{found}`; convert the checkpoint to `F32`, `BF16` or `F16`"
    )]
    TensorType {
        /// The weight file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// The element type in the spelling of the file.
        found: String,
    },
    /// A tensor of a GGUF file is quantised in a way that is not read.
    #[error("`{path}`: tensor `{name}` has elements of type `{found}`; use a file with {read}")]
    TensorQuantisation {
        /// The GGUF file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// The element type by its name in the format, or its number where it has none.
        found: String,
        /// The element types that are read.
        read: String,
    },
    /// A key of a GGUF file is missing, has a value of another type, or asks for something that is not computed here.
    #[error("key `{key}` {problem}")]
    GgufKey {
        /// The key.
        key: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A tensor is in two weight files.
    #[error("tensor `{name}` is in both `{first}` and `{second}`: keep it in the file that the index names")]
    TensorDuplicate {
        /// The tensor.
        name: String,
        /// One file.
        first: PathBuf,
        /// The other file.
        second: PathBuf,
    },
    /// A weight is NaN or infinite.
    #[error(
        "`{path}`: tensor `{name}` holds `{value}` at element {element}: the model is damaged or has diverged"
    )]
    TensorNonFinite {
        /// The weight file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// Position in row-major order.
        element: usize,
        /// The value.
        value: f32,
    },
    /// Something is already where a model directory was to be written.
    #[error("`{path}` already exists: remove it or choose another name")]
    AlreadyExists {
        /// The directory.
        path: PathBuf,
    },
    /// A weight is beyond the range of half precision.
    #[error(
        "tensor `{name}` holds `{value}`, which half precision cannot hold; write the weights as f32 or bf16"
    )]
    Unrepresentable {
        /// The tensor.
        name: String,
        /// The value.
        value: f32,
    },
    /// A `tokenizer.json` cannot be used.
    #[error("the tokenizer cannot be used: {problem}")]
    Tokenizer {
        /// What is wrong.
        problem: String,
    },
    /// A tokenizer cannot be trained as asked.
    #[error(
        "a byte-level vocabulary of `{asked}` is too small: 256 bytes and {special} special tokens need at least `{least}`"
    )]
    VocabularyTooSmall {
        /// Size asked for.
        asked: usize,
        /// Number of special tokens.
        special: usize,
        /// Smallest size that works.
        least: usize,
    },
    /// A chat template cannot be compiled, fails, or refuses the conversation.
    #[error("chat template: {problem}")]
    ChatTemplate {
        /// What the template engine, or the template itself, says.
        problem: String,
    },
    /// The texts of a conversation changed which control tokens the chat template writes.
    #[error(
        "chat template: the texts of the messages change the control tokens around them, so the roles cannot be told apart safely"
    )]
    ControlTokensFromText,
    /// No turn format can be read off a chat template.
    #[error("chat template: {problem}; conversations of this model cannot be built turn by turn")]
    TurnFormat {
        /// What is in the way.
        problem: String,
    },
    /// Parameters do not have the names or shapes which the configuration calls for.
    #[error(
        "parameter `{name}` has shape {found:?}, the configuration calls for {expected:?}: load weights of this architecture or correct the configuration"
    )]
    ParameterShape {
        /// Name in Hugging Face form.
        name: String,
        /// Shape asked for by the configuration.
        expected: Vec<usize>,
        /// Shape found.
        found: Vec<usize>,
    },
    /// The configuration's list of parameters lacks one which the decoder needs.
    #[error(
        "parameter `{name}` is missing: the configuration does not list it, so this decoder cannot be built"
    )]
    ParameterMissing {
        /// Name in Hugging Face form.
        name: String,
    },
    /// There is no memory for the weights.
    #[error(
        "the model's {parameters} parameters take {bytes} bytes in f32, which this machine does not give: use a smaller model or a machine with more memory"
    )]
    OutOfMemory {
        /// Number of values.
        parameters: usize,
        /// Bytes of all values.
        bytes: u64,
    },
    /// A token id is not below the vocabulary size.
    #[error(
        "{owner}: token id `{token}` at position {position} is outside the vocabulary of {vocabulary_size}: the tokenizer and the model do not belong together"
    )]
    TokenOutsideVocabulary {
        /// Which sequence or request.
        owner: String,
        /// The id.
        token: u32,
        /// Its position in the sequence.
        position: usize,
        /// Number of ids the model knows.
        vocabulary_size: usize,
    },
    /// A sequence is longer than the model's context.
    #[error(
        "{owner}: {length} tokens exceed the model's context of {maximum}: shorten the prompt or history, or use a model with a longer context"
    )]
    TooLong {
        /// Which sequence or request.
        owner: String,
        /// Its length in tokens.
        length: usize,
        /// The largest length allowed.
        maximum: usize,
    },
    /// Nothing to continue from: a generation needs at least one token of context.
    #[error("{owner}: no tokens: give at least one token to condition on")]
    Empty {
        /// Which sequence or request.
        owner: String,
    },
    /// Scored positions are not increasing, start at zero or lie past the end.
    #[error(
        "{owner}: scored position {position} is not valid in a sequence of {length} tokens: positions must increase, be at least 1 and below the length"
    )]
    ScoredPosition {
        /// Which sequence.
        owner: String,
        /// The first offending position.
        position: usize,
        /// The sequence's length in tokens.
        length: usize,
    },
    /// The loss returned a different number of derivatives than there were scores.
    #[error("{owner}: the loss returned {found} derivatives of `{quantity}` for {expected} scored tokens")]
    LossLength {
        /// Which sequence.
        owner: String,
        /// `log_probs` or `entropies`.
        quantity: &'static str,
        /// Number of scored tokens.
        expected: usize,
        /// Number returned.
        found: usize,
    },
    /// A number which must be finite is not.
    #[error(
        "{owner}: {quantity} is not finite (`{value}`) at position {position}: the parameters have probably diverged; lower the learning rate or go back to an earlier checkpoint"
    )]
    NonFinite {
        /// Which sequence or request.
        owner: String,
        /// Which quantity, for instance `log-prob`.
        quantity: &'static str,
        /// Position in the sequence.
        position: usize,
        /// The offending value.
        value: f32,
    },
    /// A setting is out of its range.
    #[error("{owner}: `{setting}` is {value}, it must be {allowed}")]
    Setting {
        /// Which request or component.
        owner: String,
        /// Name of the setting.
        setting: &'static str,
        /// The value given.
        value: String,
        /// What would be accepted.
        allowed: &'static str,
    },
    /// A sequence state's cache was made with other weights than the decoder has now.
    #[error(
        "{owner}: the sequence state was made with other weights: after an update start again from `SequenceState::new` and read the tokens anew"
    )]
    StaleState {
        /// Which request.
        owner: String,
    },
    /// Saved optimiser state does not fit the parameters.
    #[error("optimiser state: {problem}: the checkpoint belongs to another model")]
    OptimiserState {
        /// What differs, with names.
        problem: String,
    },
    /// An adapter asks for something that is not computed here, or does not belong to its base.
    #[error("`{path}`: {problem}")]
    Adapter {
        /// The adapter's file.
        path: PathBuf,
        /// What is in the way, and what to do.
        problem: String,
    },
    /// Gradients made for another decoder, or for one before it was given its adapter.
    #[error(
        "the gradients hold {found} derivatives, the decoder trains {expected} values: make them with `Gradients::of`"
    )]
    GradientCount {
        /// Values that the decoder trains.
        expected: usize,
        /// Derivatives given.
        found: usize,
    },
    /// A device that this build of the program cannot compute on.
    #[error(
        "this program was built without `{device}`: build it with `cargo build --release --features {feature}` \
         (docs/models.md says what that needs), or set `model.device = \"cpu\"`"
    )]
    DeviceNotBuilt {
        /// The device asked for.
        device: String,
        /// The feature that brings it.
        feature: &'static str,
    },
    /// An operation on a device failed.
    #[error(
        "the device `{device}` failed: {problem}; where that is for lack of memory, lower the tokens of a micro-batch or the \
         sequences generated at once, or set `model.recompute_activations = true`"
    )]
    Device {
        /// The device.
        device: String,
        /// What it or its library says.
        problem: String,
    },
    /// The parameters beside a frozen adapter were to be trained on a device that holds them frozen.
    #[error(
        "on a device, the base of an adapter is frozen: place a decoder without adapter there to train its parameters"
    )]
    DeviceFrozen,
    /// An inference engine outside of this process failed.
    #[error("{owner}: the external engine failed: {problem}")]
    Engine {
        /// Which request.
        owner: String,
        /// What happened.
        problem: String,
    },
}
