//! A model in one GGUF file, the format of llama.cpp: sizes, weights, tokenizer, chat template and end tokens.
//!
//! The weights become f32, also where the file holds them quantised, and everything takes the form of a Hugging Face
//! directory, so that a model from a GGUF file is like any other and [`crate::save_directory`] converts it.
//!
//! Files come from strangers: the header is checked against the length of the file, and all tensors against the sizes that
//! the header states, before anything is allocated. Not for: writing GGUF, or computing with quantised weights.

mod architecture;
mod blocks;
mod container;
mod vocabulary;

use std::collections::HashMap;
use std::io::{BufReader, Read, Seek};
use std::path::Path;

use fs_err as fs;

use self::blocks::TensorType;
use self::container::{Container, Problem, Tensor, wrong};
use crate::chat::ChatTemplate;
use crate::config::{DecoderConfig, Family};
use crate::directory::{ModelDirectory, broken, in_file, refuse_non_finite};
use crate::error::ModelError;
use crate::parameters::Parameters;

const TEMPLATE: &str = "tokenizer.chat_template";

/// Longest chat template that is read, in bytes.
const LONGEST_TEMPLATE: usize = 4 << 20;

/// Widest head whose rotary factors are read.
const LARGEST_HEAD: usize = 1 << 16;

/// Blocks computed at a time.
const CHUNK: usize = 2048;

/// Reads a whole model from a GGUF file of version 2 or 3.
///
/// Architectures `llama`, `qwen2` and `qwen3`; element types `F32`, `F16`, `BF16`, `Q4_0`, `Q4_1`, `Q5_0`, `Q5_1`,
/// `Q8_0`, `Q4_K`, `Q5_K` and `Q6_K`; byte-level tokenizers. The end tokens are the file's end of sequence, end of turn and
/// end of message, and the token with which the chat template ends the assistant's turn.
///
/// # Errors
/// Any [`ModelError`] of the file, its keys and tensors, tokenizer or template; each names the file.
pub fn load_gguf(path: impl AsRef<Path>) -> Result<ModelDirectory, ModelError> {
    let path = path.as_ref();
    let (container, mut reader) = open(path)?;
    let named = |error| in_file(path.to_owned(), error);
    let config = configuration(&container, &mut reader, path)?;
    // The parts that are quick to read first: their faults show before the weights have been read.
    let tokenizer = vocabulary::tokenizer(&container, config.vocabulary_size).map_err(named)?;
    let chat = match container.text(TEMPLATE).map_err(named)? {
        Some(source) if source.len() > LONGEST_TEMPLATE => {
            return Err(named(wrong(
                TEMPLATE,
                format!(
                    "has `{}` bytes, more than the `{LONGEST_TEMPLATE}` that are read",
                    source.len()
                ),
            )));
        }
        Some(source) => Some(ChatTemplate::new(source, &tokenizer).map_err(named)?),
        None => None,
    };
    let parameters = read_parameters(&container, &config, &mut reader, path)?;
    ModelDirectory::new(config, parameters, tokenizer, chat).map_err(named)
}

/// Reads the sizes of a model from the header of a GGUF file.
///
/// # Errors
/// As [`load_gguf`], of the header.
pub fn gguf_configuration(path: impl AsRef<Path>) -> Result<DecoderConfig, ModelError> {
    let path = path.as_ref();
    let (container, mut reader) = open(path)?;
    configuration(&container, &mut reader, path)
}

fn configuration(
    container: &Container,
    reader: &mut (impl Read + Seek),
    path: &Path,
) -> Result<DecoderConfig, ModelError> {
    let factors = match architecture::rope_factors(container) {
        // No head is wider than a configuration allows; a larger tensor is refused by its length.
        Some(tensor) if tensor.elements() <= LARGEST_HEAD => {
            let mut factors = vec![0.0; tensor.elements()];
            read_values(reader, tensor, &mut factors, path)?;
            Some(factors)
        }
        Some(_) => Some(Vec::new()),
        None => None,
    };
    architecture::configuration(container, factors.as_deref())
        .map_err(|error| in_file(path.to_owned(), error))
}

/// Opens a file and reads its header.
fn open(path: &Path) -> Result<(Container, BufReader<fs::File>), ModelError> {
    let file = fs::File::open(path)?;
    let size = file.metadata()?.len();
    let mut reader = BufReader::with_capacity(1 << 20, file);
    match Container::read(&mut reader, size) {
        Ok(container) => Ok((container, reader)),
        Err(Problem::Broken(problem)) => Err(broken(path, problem)),
        Err(Problem::ElementType { name, found }) => Err(ModelError::TensorQuantisation {
            path: path.to_owned(),
            name,
            found,
            read: TensorType::names(),
        }),
    }
}

/// Reads the values of every parameter after all names and shapes have been compared.
fn read_parameters(
    container: &Container,
    config: &DecoderConfig,
    reader: &mut (impl Read + Seek),
    path: &Path,
) -> Result<Parameters, ModelError> {
    let places = places(container, config, path)?;
    let mut parameters = Parameters::try_zeros(config)?;
    for (tensor, index) in places {
        let values = parameters.get_mut(index);
        read_values(reader, tensor, values, path)?;
        if let Some(heads) = interleaved_heads(config, &tensor.name) {
            let rows = tensor.shape[0];
            separate_halves(values, rows, heads);
        }
    }
    Ok(parameters)
}

/// Every parameter's tensor, in the order of the file.
fn places<'a>(
    container: &'a Container,
    config: &DecoderConfig,
    path: &Path,
) -> Result<Vec<(&'a Tensor, usize)>, ModelError> {
    let expected = config.parameter_shapes();
    let index_of: HashMap<String, usize> = expected
        .iter()
        .enumerate()
        .map(|(index, (name, _))| (architecture::tensor_name(name), index))
        .collect();
    let mut found = vec![false; expected.len()];
    let mut places = Vec::with_capacity(expected.len());
    for tensor in &container.tensors {
        if architecture::is_derived(&tensor.name) {
            continue;
        }
        let Some(&index) = index_of.get(&tensor.name) else {
            return Err(ModelError::TensorUnexpected {
                path: path.to_owned(),
                name: tensor.name.clone(),
            });
        };
        let shape = &expected[index].1;
        if *shape != tensor.shape {
            return Err(ModelError::TensorShape {
                path: path.to_owned(),
                name: tensor.name.clone(),
                expected: shape.clone(),
                found: tensor.shape.clone(),
            });
        }
        found[index] = true;
        places.push((tensor, index));
    }
    let mut missing = (0..expected.len()).filter(|&index| !found[index]);
    match missing.next() {
        Some(index) => Err(ModelError::TensorMissing {
            path: path.to_owned(),
            name: architecture::tensor_name(&expected[index].0),
            others: missing.count(),
        }),
        None => Ok(places),
    }
}

/// Reads one tensor in pieces and refuses values that are not finite.
fn read_values(
    reader: &mut (impl Read + Seek),
    tensor: &Tensor,
    values: &mut [f32],
    path: &Path,
) -> Result<(), ModelError> {
    // Relative to where the reader is, since tensors mostly follow each other: what it has read ahead is kept.
    let here = reader.stream_position()?;
    reader.seek_relative(tensor.start.wrapping_sub(here).cast_signed())?;
    let element_type = tensor.element_type;
    let piece = CHUNK * element_type.block_values();
    let mut bytes = Vec::new();
    for (number, values) in values.chunks_mut(piece).enumerate() {
        bytes.resize(element_type.bytes_of(values.len()) as usize, 0);
        reader.read_exact(&mut bytes)?;
        element_type.decode(&bytes, values);
        refuse_non_finite(path, &tensor.name, number * piece, values)?;
    }
    Ok(())
}

/// The number of heads of a tensor whose rows the converter of this family has interleaved: llama.cpp rotates
/// neighbouring rows of a `llama` head, where Hugging Face rotates rows half a head apart.
fn interleaved_heads(config: &DecoderConfig, name: &str) -> Option<usize> {
    if config.family != Family::Llama {
        return None;
    }
    if name.ends_with(".attn_q.weight") {
        Some(config.query_heads)
    } else if name.ends_with(".attn_k.weight") {
        Some(config.key_value_heads)
    } else {
        None
    }
}

/// Moves the even rows of every head before its odd ones.
fn separate_halves(values: &mut [f32], rows: usize, heads: usize) {
    let width = values.len() / rows;
    let head = rows / heads;
    let mut separated = vec![0.0; head * width];
    for values in values.chunks_exact_mut(head * width) {
        for (row, target) in separated.chunks_exact_mut(width).enumerate() {
            let source = if row < head / 2 {
                2 * row
            } else {
                2 * (row - head / 2) + 1
            };
            target.copy_from_slice(&values[source * width..][..width]);
        }
        values.copy_from_slice(&separated);
    }
}

#[cfg(test)]
mod tests;
