//! The safetensors format: reading the header of one weight file, and writing a model as one file or as shards.
//!
//! The format: a little-endian u64 with the length of the header, the header as a JSON object from tensor name to type,
//! shape and byte range, then the bytes of all tensors without gaps. Not for: which tensors a model needs
//! ([`super::weights`]).

use std::collections::BTreeMap;
use std::fmt;
use std::io::{Read, Seek, SeekFrom, Write};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use fs_err as fs;
use half::{bf16, f16};
use safetensors::tensor::{Metadata, TensorInfo};
use safetensors::{Dtype, SafeTensorError};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::{Value, json};

use super::{ShardOptions, broken, refuse_non_finite, write_file};
use crate::error::ModelError;
use crate::parameters::{Parameter, Parameters};

/// The format's own limit on the length of a header.
const LONGEST_HEADER: u64 = 100_000_000;

/// Bytes before the header.
const PREFIX: u64 = 8;

/// Values converted at a time.
const CHUNK: usize = 64 * 1024;

/// The element types that weights are read and written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementType {
    /// IEEE single precision.
    F32,
    /// The upper half of a single: same range, 8 bits of precision.
    Bf16,
    /// IEEE half precision: 11 bits, largest value 65,504.
    F16,
}

impl ElementType {
    fn of(dtype: Dtype) -> Option<Self> {
        match dtype {
            Dtype::F32 => Some(Self::F32),
            Dtype::BF16 => Some(Self::Bf16),
            Dtype::F16 => Some(Self::F16),
            _ => None,
        }
    }

    fn dtype(self) -> Dtype {
        match self {
            Self::F32 => Dtype::F32,
            Self::Bf16 => Dtype::BF16,
            Self::F16 => Dtype::F16,
        }
    }

    /// Bytes of one element.
    fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 2,
        }
    }

    /// The values of whole elements.
    pub(crate) fn decode(self, bytes: &[u8], values: &mut [f32]) {
        match self {
            Self::F32 => {
                for (value, bytes) in values.iter_mut().zip(bytes.as_chunks().0) {
                    *value = f32::from_le_bytes(*bytes);
                }
            }
            Self::Bf16 => {
                for (value, bytes) in values.iter_mut().zip(bytes.as_chunks().0) {
                    *value = bf16::from_le_bytes(*bytes).to_f32();
                }
            }
            Self::F16 => {
                for (value, bytes) in values.iter_mut().zip(bytes.as_chunks().0) {
                    *value = f16::from_le_bytes(*bytes).to_f32();
                }
            }
        }
    }

    fn encode(self, values: &[f32], bytes: &mut Vec<u8>) {
        bytes.clear();
        match self {
            Self::F32 => bytes.extend(values.iter().flat_map(|value| value.to_le_bytes())),
            Self::Bf16 => bytes.extend(
                values
                    .iter()
                    .flat_map(|&value| bf16::from_f32(value).to_le_bytes()),
            ),
            Self::F16 => bytes.extend(
                values
                    .iter()
                    .flat_map(|&value| f16::from_f32(value).to_le_bytes()),
            ),
        }
    }
}

/// An open weight file whose header holds.
pub(super) struct Shard {
    path: PathBuf,
    file: fs::File,
    /// Where the bytes of the tensors begin.
    data_start: u64,
    /// In the order of their bytes.
    tensors: Vec<(String, TensorInfo)>,
    /// Free-form texts.
    metadata: BTreeMap<String, String>,
}

impl Shard {
    /// Opens a weight file and checks its header against its length.
    pub(super) fn open(path: &Path) -> Result<Self, ModelError> {
        let mut file = fs::File::open(path)?;
        let size = file.metadata()?.len();
        let broken = |problem: String| broken(path, problem);
        if size < PREFIX {
            return Err(broken(format!(
                "it has `{size}` bytes, too few for a safetensors file"
            )));
        }
        let mut prefix = [0; PREFIX as usize];
        file.read_exact(&mut prefix)?;
        let length = u64::from_le_bytes(prefix);
        if length > LONGEST_HEADER {
            return Err(broken(format!(
                "its header length is `{length}`, above the format's limit of `{LONGEST_HEADER}`: it is no safetensors file"
            )));
        }
        if length > size - PREFIX {
            return Err(broken(format!(
                "its header has `{length}` bytes, but the file ends after `{}`: it is truncated",
                size - PREFIX
            )));
        }
        // Bounded by both checks above.
        let mut header = vec![0; length as usize];
        file.read_exact(&mut header)?;
        let Header(mut tensors, free_form) = serde_json::from_slice(&header)
            .map_err(|error| broken(format!("its header cannot be read ({error})")))?;
        tensors.sort_by_key(|(_, info)| info.data_offsets);
        let metadata = Metadata::new(None, tensors.clone())
            .map_err(|error| broken(format!("its header contradicts itself ({})", invariant(&error))))?;
        let (expected, found) = (metadata.data_len() as u64, size - PREFIX - length);
        if expected != found {
            return Err(broken(format!(
                "its header calls for `{expected}` bytes of tensors, it holds `{found}`{}",
                if found < expected { ": it is truncated" } else { "" }
            )));
        }
        Ok(Self {
            path: path.to_owned(),
            file,
            data_start: PREFIX + length,
            tensors,
            metadata: free_form,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn tensors(&self) -> &[(String, TensorInfo)] {
        &self.tensors
    }

    /// The free-form text under `key`.
    pub(super) fn metadata(&self, key: &str) -> Option<&str> {
        self.metadata.get(key).map(String::as_str)
    }

    /// How the values of a tensor of this file are written, where that is read.
    pub(super) fn element_type(&self, name: &str, info: &TensorInfo) -> Result<ElementType, ModelError> {
        ElementType::of(info.dtype).ok_or_else(|| ModelError::TensorType {
            path: self.path.clone(),
            name: name.to_owned(),
            found: format!("{:?}", info.dtype),
        })
    }

    /// Reads one tensor of this file as f32, in pieces, and refuses values that are not finite. `start` counts bytes
    /// from the first of all tensors.
    pub(super) fn read(
        &mut self,
        name: &str,
        element_type: ElementType,
        start: usize,
        values: &mut [f32],
    ) -> Result<(), ModelError> {
        self.file.seek(SeekFrom::Start(self.data_start + start as u64))?;
        let mut bytes = vec![0; element_type.size() * CHUNK.min(values.len())];
        for (number, chunk) in values.chunks_mut(CHUNK).enumerate() {
            let bytes = &mut bytes[..element_type.size() * chunk.len()];
            self.file.read_exact(bytes)?;
            element_type.decode(bytes, chunk);
            refuse_non_finite(&self.path, name, number * CHUNK, chunk)?;
        }
        Ok(())
    }
}

fn invariant(error: &SafeTensorError) -> String {
    match error {
        SafeTensorError::InvalidOffset(name) => {
            format!("tensor `{name}` does not begin where the one before it ends")
        }
        other => other.to_string(),
    }
}

/// A header: tensors, and free-form texts. Unlike a map type it refuses a name that occurs twice.
struct Header(Vec<(String, TensorInfo)>, BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Entries(entries) = Entries::<HeaderEntry>::deserialize(deserializer)?;
        let mut header = Self(Vec::new(), BTreeMap::new());
        for (name, entry) in entries {
            match entry {
                HeaderEntry::Tensor(info) => header.0.push((name, info)),
                HeaderEntry::Metadata(Value::Object(entries)) => header.1.extend(
                    entries
                        .into_iter()
                        .filter_map(|(key, value)| Some((key, value.as_str()?.to_owned()))),
                ),
                // Nothing in it decides whether the tensors can be read.
                HeaderEntry::Metadata(_) => {}
            }
        }
        Ok(header)
    }
}

enum HeaderEntry {
    Tensor(TensorInfo),
    Metadata(Value),
}

/// How a value is read depends on its key.
trait Entry<'de>: Sized {
    fn read<A: MapAccess<'de>>(key: &str, map: &mut A) -> Result<Self, A::Error>;
}

impl<'de> Entry<'de> for HeaderEntry {
    fn read<A: MapAccess<'de>>(key: &str, map: &mut A) -> Result<Self, A::Error> {
        if key == "__metadata__" {
            map.next_value().map(Self::Metadata)
        } else {
            map.next_value().map(Self::Tensor)
        }
    }
}

impl<'de> Entry<'de> for String {
    fn read<A: MapAccess<'de>>(_: &str, map: &mut A) -> Result<Self, A::Error> {
        map.next_value()
    }
}

/// The entries of a JSON object in the order of the text, every key at most once.
pub(super) struct Entries<V>(pub(super) Vec<(String, V)>);

impl<'de, V: Entry<'de>> Deserialize<'de> for Entries<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntriesVisitor<V>(PhantomData<V>);

        impl<'de, V: Entry<'de>> Visitor<'de> for EntriesVisitor<V> {
            type Value = Entries<V>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                let mut seen = std::collections::HashSet::new();
                while let Some(key) = map.next_key::<String>()? {
                    let value = V::read(&key, &mut map)?;
                    if !seen.insert(key.clone()) {
                        return Err(A::Error::custom(format_args!("`{key}` occurs twice")));
                    }
                    entries.push((key, value));
                }
                Ok(Entries(entries))
            }
        }

        deserializer.deserialize_map(EntriesVisitor(PhantomData))
    }
}

/// Writes the weights into `directory`: `model.safetensors`, or shards and their index where one file would be larger
/// than the options allow.
pub(super) fn write(
    directory: &Path,
    parameters: &Parameters,
    options: ShardOptions,
) -> Result<(), ModelError> {
    let bytes = |parameter: &Parameter<'_>| (parameter.values.len() * options.element_type.size()) as u64;
    let mut shards: Vec<Vec<Parameter<'_>>> = Vec::new();
    let mut filled = 0;
    for parameter in parameters.iter() {
        let size = bytes(&parameter);
        match shards.last_mut() {
            Some(shard) if filled + size <= options.max_shard_bytes => {
                shard.push(parameter);
                filled += size;
            }
            _ => {
                shards.push(vec![parameter]);
                filled = size;
            }
        }
    }
    if let [only] = shards.as_slice() {
        return write_shard(
            &directory.join("model.safetensors"),
            only,
            options.element_type,
            &[],
        );
    }
    let mut weight_map = BTreeMap::new();
    for (number, shard) in shards.iter().enumerate() {
        let name = format!("model-{:05}-of-{:05}.safetensors", number + 1, shards.len());
        write_shard(&directory.join(&name), shard, options.element_type, &[])?;
        weight_map.extend(shard.iter().map(|parameter| (parameter.name, name.clone())));
    }
    let total: u64 = parameters.iter().map(|parameter| bytes(&parameter)).sum();
    let index = json!({
        "metadata": {"total_parameters": parameters.total(), "total_size": total},
        "weight_map": weight_map,
    });
    write_file(&directory.join(super::weights::INDEX), |file| {
        writeln!(file, "{index:#}")
    })
}

/// Writes tensors as one file; `texts` go to its free-form metadata.
pub(super) fn write_shard(
    path: &Path,
    tensors: &[Parameter<'_>],
    element_type: ElementType,
    texts: &[(&str, &str)],
) -> Result<(), ModelError> {
    let mut end = 0;
    let infos = tensors
        .iter()
        .map(|tensor| {
            let start = end;
            end += tensor.values.len() * element_type.size();
            let info = TensorInfo {
                dtype: element_type.dtype(),
                shape: tensor.shape.to_vec(),
                data_offsets: (start, end),
            };
            (tensor.name.to_owned(), info)
        })
        .collect();
    let metadata = Metadata::new(None, infos).map_err(|error| {
        broken(
            path,
            format!("its header would contradict itself ({})", invariant(&error)),
        )
    })?;
    // Transformers refuses weights that do not name their framework. Sorted here: the library keeps free-form texts in a
    // hash map, whose order changes from one file to the next.
    let texts: BTreeMap<&str, &str> = [("format", "pt")].iter().chain(texts).copied().collect();
    let unwritable =
        |error: serde_json::Error| broken(path, format!("its header cannot be written ({error})"));
    let mut header = br#"{"__metadata__":"#.to_vec();
    serde_json::to_writer(&mut header, &texts).map_err(unwritable)?;
    let entries = serde_json::to_vec(&metadata).map_err(unwritable)?;
    // What follows the opening brace: the tensors, or the closing brace alone.
    if !tensors.is_empty() {
        header.push(b',');
    }
    header.extend(&entries[1..]);
    // Aligns the tensors to eight bytes, as the format asks.
    header.resize(header.len().next_multiple_of(8), b' ');
    write_file(path, |file| {
        file.write_all(&(header.len() as u64).to_le_bytes())?;
        file.write_all(&header)?;
        let mut bytes = Vec::new();
        for chunk in tensors.iter().flat_map(|tensor| tensor.values.chunks(CHUNK)) {
            element_type.encode(chunk, &mut bytes);
            file.write_all(&bytes)?;
        }
        Ok(())
    })
}
