//! Which tensor of a model comes from which weight file, and that each comes from exactly one.
//!
//! Not for: the bytes of a weight file ([`super::shards`]).

use std::collections::{BTreeMap, HashMap};
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;
use serde_json::Number;

use super::shards::{ElementType, Entries, Shard};
use super::{broken, read_optional};
use crate::config::DecoderConfig;
use crate::error::ModelError;
use crate::parameters::Parameters;

const SINGLE: &str = "model.safetensors";
pub(super) const INDEX: &str = "model.safetensors.index.json";

/// Largest index that is read, in bytes: a hundred per tensor for a million tensors.
const INDEX_FILE: u64 = 100 << 20;

const EMBEDDING: &str = "model.embed_tokens.weight";
const HEAD: &str = "lm_head.weight";

/// `model.safetensors.index.json`.
#[derive(Deserialize)]
struct RawIndex {
    metadata: Option<RawMetadata>,
    weight_map: Entries<String>,
}

#[derive(Deserialize)]
struct RawMetadata {
    total_size: Option<Number>,
}

/// Reads all parameters of `config` from the weight files of a directory.
///
/// The headers come first: nothing is allocated for a model whose tensors are not all in the files, in the shapes that
/// the configuration calls for.
pub(super) fn load(directory: &Path, config: &DecoderConfig) -> Result<Parameters, ModelError> {
    let single = directory.join(SINGLE);
    let (listing, mut shards) = if single.is_file() {
        (single.clone(), vec![Shard::open(&single)?])
    } else if let Some((path, text)) = read_optional(directory, INDEX, INDEX_FILE)? {
        let shards = open_indexed(directory, &path, &text)?;
        (path, shards)
    } else {
        return Err(ModelError::FileMissing {
            path: single,
            remedy: "weights are read from safetensors files; convert other formats with transformers first",
        });
    };
    let places = Places::find(&shards, config, listing)?;
    let mut parameters = Parameters::try_zeros(config)?;
    for (index, place) in &places.parameters {
        place.read(&mut shards, parameters.get_mut(*index))?;
    }
    if let Some(place) = &places.spare_head {
        let mut head = vec![0.0; config.vocabulary_size * config.hidden_size];
        place.read(&mut shards, &mut head)?;
        if parameters
            .index_of(EMBEDDING)
            .is_none_or(|index| parameters.get(index) != head)
        {
            return Err(broken(
                shards[place.shard].path(),
                format!("config.json ties `{HEAD}` to `{EMBEDDING}`, but the two differ"),
            ));
        }
    }
    Ok(parameters)
}

/// One tensor of a known shape and element type in the weight files.
struct Place {
    shard: usize,
    name: String,
    element_type: ElementType,
    /// Where its bytes begin, counted from the first byte of the shard's tensors.
    start: usize,
}

impl Place {
    fn read(&self, shards: &mut [Shard], values: &mut [f32]) -> Result<(), ModelError> {
        shards[self.shard].read(&self.name, self.element_type, self.start, values)
    }
}

/// Where everything lies that a model needs, according to the headers alone.
struct Places {
    /// With positions in canonical order, each once, in the order of the bytes.
    parameters: Vec<(usize, Place)>,
    /// A tied model's redundant head, to be compared with the embedding.
    spare_head: Option<Place>,
}

impl Places {
    fn find(shards: &[Shard], config: &DecoderConfig, listing: PathBuf) -> Result<Self, ModelError> {
        let expected = config.parameter_shapes();
        let index_of: HashMap<&str, usize> = expected
            .iter()
            .enumerate()
            .map(|(index, (name, _))| (name.as_str(), index))
            .collect();
        let head = [config.vocabulary_size, config.hidden_size];
        // Which shard holds each parameter.
        let mut found: Vec<Option<usize>> = vec![None; expected.len()];
        let mut places = Self {
            parameters: Vec::with_capacity(expected.len()),
            spare_head: None,
        };
        for (number, shard) in shards.iter().enumerate() {
            for (name, info) in shard.tensors() {
                let index = index_of.get(name.as_str()).copied();
                let shape = match index {
                    Some(index) => expected[index].1.as_slice(),
                    None if config.tied_embeddings && name == HEAD => &head,
                    None if is_derived(name) => continue,
                    None => {
                        return Err(ModelError::TensorUnexpected {
                            path: shard.path().to_owned(),
                            name: name.clone(),
                        });
                    }
                };
                if let Some(first) = index.and_then(|index| found[index]) {
                    return Err(ModelError::TensorDuplicate {
                        name: name.clone(),
                        first: shards[first].path().to_owned(),
                        second: shard.path().to_owned(),
                    });
                }
                if shape != info.shape.as_slice() {
                    return Err(ModelError::TensorShape {
                        path: shard.path().to_owned(),
                        name: name.clone(),
                        expected: shape.to_vec(),
                        found: info.shape.clone(),
                    });
                }
                let place = Place {
                    shard: number,
                    name: name.clone(),
                    element_type: shard.element_type(name, info)?,
                    start: info.data_offsets.0,
                };
                match index {
                    Some(index) => {
                        found[index] = Some(number);
                        places.parameters.push((index, place));
                    }
                    None => places.spare_head = Some(place),
                }
            }
        }
        let mut missing = (0..expected.len()).filter(|&index| found[index].is_none());
        if let Some(index) = missing.next() {
            return Err(ModelError::TensorMissing {
                path: listing,
                name: expected[index].0.clone(),
                others: missing.count(),
            });
        }
        Ok(places)
    }
}

/// Tensors of old checkpoints that follow from the configuration.
fn is_derived(name: &str) -> bool {
    name.ends_with(".rotary_emb.inv_freq")
}

/// Opens the files that an index names and checks that each tensor is where the index says, and only there.
fn open_indexed(directory: &Path, path: &Path, text: &str) -> Result<Vec<Shard>, ModelError> {
    let index: RawIndex = super::parse(path, text)?;
    let Entries(weight_map) = index.weight_map;
    let mut names_of: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let mut file_of: HashMap<&str, &str> = HashMap::new();
    for (tensor, file) in &weight_map {
        if !is_plain(file) {
            return Err(broken(
                path,
                format!(
                    "it places tensor `{tensor}` in `{file}`, which is no plain name of a safetensors file"
                ),
            ));
        }
        names_of.entry(file.clone()).or_default().push(tensor);
        file_of.insert(tensor, file);
    }
    let mut shards = Vec::new();
    let mut total = 0u64;
    for (file, names) in names_of {
        let shard_path = directory.join(&file);
        if !shard_path.is_file() {
            return Err(ModelError::FileMissing {
                path: shard_path,
                remedy: "the index names it; fetch or export the model again",
            });
        }
        let shard = Shard::open(&shard_path)?;
        for (tensor, info) in shard.tensors() {
            total = total.saturating_add((info.data_offsets.1 - info.data_offsets.0) as u64);
            match file_of.get(tensor.as_str()) {
                Some(&indexed) if indexed == file => {}
                Some(&indexed) => {
                    return Err(ModelError::TensorDuplicate {
                        name: tensor.clone(),
                        first: directory.join(indexed),
                        second: shard_path,
                    });
                }
                None => {
                    return Err(broken(
                        path,
                        format!("it does not list tensor `{tensor}`, which is in `{file}`"),
                    ));
                }
            }
        }
        let held: std::collections::HashSet<&str> =
            shard.tensors().iter().map(|(name, _)| name.as_str()).collect();
        if let Some(absent) = names.iter().find(|name| !held.contains(*name)) {
            return Err(broken(
                path,
                format!("it places tensor `{absent}` in `{file}`, which does not hold it"),
            ));
        }
        shards.push(shard);
    }
    // Some writers give the size as a float.
    let stated = index
        .metadata
        .and_then(|metadata| metadata.total_size)
        .and_then(|size| size.as_f64());
    if let Some(stated) = stated
        && stated != total as f64
    {
        return Err(broken(
            path,
            format!("its total_size is `{stated}`, the tensors have `{total}` bytes"),
        ));
    }
    Ok(shards)
}

/// Whether a name from an index can only mean a file in the directory itself.
fn is_plain(name: &str) -> bool {
    let mut components = Path::new(name).components();
    let single = matches!(components.next(), Some(Component::Normal(_))) && components.next().is_none();
    // The characters that separate paths, drives or streams on any platform.
    single && name.ends_with(".safetensors") && !name.contains(['/', '\\', ':', '\0'])
}
