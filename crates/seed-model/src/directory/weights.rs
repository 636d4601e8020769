//! Which tensor of a model comes from which weight file, and that each comes from exactly one.
//!
//! Not for: the bytes of a weight file ([`super::shards`]).

use std::collections::{BTreeMap, HashMap};
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;
use serde_json::Number;

use super::shards::{Entries, Shard};
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
pub(super) fn load(directory: &Path, config: &DecoderConfig) -> Result<Parameters, ModelError> {
    let single = directory.join(SINGLE);
    let (listing, shards) = if single.is_file() {
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
    let mut parameters = Parameters::zeros(config);
    // Which file has filled each parameter.
    let mut filled: Vec<Option<PathBuf>> = vec![None; parameters.len()];
    let mut spare_head = None;
    for mut shard in shards {
        for (name, info) in shard.tensors().to_vec() {
            let Some(index) = parameters.index_of(&name) else {
                if config.tied_embeddings && name == HEAD {
                    spare_head = Some((shard.path().to_owned(), read_head(&mut shard, config, &info)?));
                } else if !is_derived(&name) {
                    return Err(ModelError::TensorUnexpected {
                        path: shard.path().to_owned(),
                        name,
                    });
                }
                continue;
            };
            if let Some(first) = &filled[index] {
                return Err(ModelError::TensorDuplicate {
                    name,
                    first: first.clone(),
                    second: shard.path().to_owned(),
                });
            }
            if parameters.shape(index) != info.shape.as_slice() {
                return Err(ModelError::TensorShape {
                    path: shard.path().to_owned(),
                    name,
                    expected: parameters.shape(index).to_vec(),
                    found: info.shape,
                });
            }
            shard.read(&name, &info, parameters.get_mut(index))?;
            filled[index] = Some(shard.path().to_owned());
        }
    }
    let mut missing = (0..parameters.len()).filter(|&index| filled[index].is_none());
    if let Some(index) = missing.next() {
        return Err(ModelError::TensorMissing {
            path: listing,
            name: parameters.name(index).to_owned(),
            others: missing.count(),
        });
    }
    if let Some((path, head)) = spare_head
        && parameters
            .index_of(EMBEDDING)
            .is_none_or(|index| parameters.get(index) != head)
    {
        return Err(broken(
            &path,
            format!("config.json ties `{HEAD}` to `{EMBEDDING}`, but the two differ"),
        ));
    }
    Ok(parameters)
}

/// Tensors of old checkpoints that follow from the configuration.
fn is_derived(name: &str) -> bool {
    name.ends_with(".rotary_emb.inv_freq")
}

/// The redundant head of a tied model, to be compared with the embedding.
fn read_head(
    shard: &mut Shard,
    config: &DecoderConfig,
    info: &safetensors::tensor::TensorInfo,
) -> Result<Vec<f32>, ModelError> {
    let expected = vec![config.vocabulary_size, config.hidden_size];
    if info.shape != expected {
        return Err(ModelError::TensorShape {
            path: shard.path().to_owned(),
            name: HEAD.to_owned(),
            expected,
            found: info.shape.clone(),
        });
    }
    let mut head = vec![0.0; config.vocabulary_size * config.hidden_size];
    shard.read(HEAD, info, &mut head)?;
    Ok(head)
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
