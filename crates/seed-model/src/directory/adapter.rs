//! An adapter as a directory in PEFT's layout: `adapter_config.json` and `adapter_model.safetensors`.
//!
//! The digest of the base is written into the free-form metadata of the weight file, where other readers pass over it: an
//! adapter put on other weights than it was trained on, or on weights that it was merged into already, is refused.
//!
//! Not for: finding the base, or adapters of other kinds than plain LoRA beside the matrices of decoder layers.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::shards::{ElementType, Shard, write_shard};
use super::{SMALL_FILE, in_file, parse, publish, read_required, write_file};
use crate::adapter::{Adapter, AdapterOptions, Target};
use crate::config::DecoderConfig;
use crate::error::ModelError;
use crate::parameters::{Parameter, Parameters};

/// The file that makes a directory an adapter's.
const ADAPTER_CONFIG: &str = "adapter_config.json";
const ADAPTER_WEIGHTS: &str = "adapter_model.safetensors";

/// Under which the weight file names the base's digest.
const BASE_DIGEST: &str = "base_blake3";

/// An adapter read from a directory.
#[derive(Clone, Debug)]
pub struct AdapterDirectory {
    /// The adapter.
    pub adapter: Adapter,
    /// [`Parameters::digest`] of the base in hexadecimal, where the directory says it; other programs do not.
    pub base_digest: Option<String>,
}

impl AdapterDirectory {
    /// Refuses a base whose digest, in hexadecimal, is not the one that the adapter was saved with.
    ///
    /// # Errors
    /// [`ModelError::Adapter`] with both digests.
    pub fn check_base(&self, directory: &Path, found: &str) -> Result<(), ModelError> {
        match &self.base_digest {
            Some(expected) if expected != found => Err(refused(
                &directory.join(ADAPTER_WEIGHTS),
                format!(
                    "it was trained beside weights with the digest `{expected}`, these have `{found}`: give the base it \
                     was made for, not a fine-tuned one or one that it was merged into already"
                ),
            )),
            _ => Ok(()),
        }
    }
}

/// Whether a directory holds an adapter in PEFT's layout rather than a model.
pub fn is_adapter_directory(directory: &Path) -> bool {
    directory.join(ADAPTER_CONFIG).is_file()
}

/// Where an adapter's directory says that its base is: a directory, or a name that only its maker can resolve.
///
/// # Errors
/// Where `adapter_config.json` cannot be read or names no base.
pub fn base_of_adapter(directory: &Path) -> Result<String, ModelError> {
    let (path, text) = read_config(directory)?;
    let config: Map<String, Value> = parse(&path, &text)?;
    match config.get("base_model_name_or_path").and_then(Value::as_str) {
        Some(base) if !base.is_empty() => Ok(base.to_owned()),
        _ => Err(refused(
            &path,
            "it names no `base_model_name_or_path`: write the base's directory there".to_owned(),
        )),
    }
}

/// Reads an adapter for a base of this configuration, as PEFT writes it.
///
/// # Errors
/// [`ModelError::Adapter`] where it is of a kind that is not computed here, or its tensors do not fit the base; else any
/// [`ModelError`] of files and tensors.
pub fn load_adapter(
    directory: impl AsRef<Path>,
    config: &DecoderConfig,
) -> Result<AdapterDirectory, ModelError> {
    let directory = directory.as_ref();
    let (path, text) = read_config(directory)?;
    let settings: Map<String, Value> = parse(&path, &text)?;
    check_kind(&settings).map_err(|problem| refused(&path, problem))?;
    let weights = directory.join(ADAPTER_WEIGHTS);
    if !weights.is_file() {
        return Err(ModelError::FileMissing {
            path: weights,
            remedy: "save the adapter with PEFT's `save_pretrained`, which writes safetensors",
        });
    }
    let mut shard = Shard::open(&weights)?;
    let targets: Vec<Target> = Target::ALL
        .into_iter()
        .filter(|target| {
            let matrix = format!(".{}.lora_A.weight", target.name());
            shard.tensors().iter().any(|(name, _)| name.ends_with(&matrix))
        })
        .collect();
    let options = options(&settings, targets)
        .map_err(|problem| refused(&path, problem))?
        .validated()
        .map_err(|error| in_file(path.clone(), error))?;
    // Names and shapes first: nothing is allocated that the file does not hold.
    let expected = options.parameter_shapes(config);
    check_tensors(&shard, &expected).map_err(|problem| refused(&weights, problem))?;
    let mut parameters = Parameters::of_shapes(expected);
    for (name, info) in shard.tensors().to_vec() {
        let element_type = shard.element_type(&name, &info)?;
        if let Some(index) = parameters.index_of(&name) {
            shard.read(
                &name,
                element_type,
                info.data_offsets.0,
                parameters.get_mut(index),
            )?;
        }
    }
    Ok(AdapterDirectory {
        base_digest: shard.metadata(BASE_DIGEST).map(str::to_owned),
        adapter: Adapter::new(options, config, parameters)?,
    })
}

/// Writes an adapter that [`load_adapter`] and PEFT read back. The directory appears whole or not at all; it must not
/// exist yet. `base` is what others are told to look for, `base_digest` that of its parameters.
///
/// # Errors
/// [`ModelError::AlreadyExists`], or where writing fails.
pub fn save_adapter(
    directory: impl AsRef<Path>,
    adapter: &Adapter,
    base: &str,
    base_digest: &str,
) -> Result<(), ModelError> {
    publish(directory.as_ref(), |draft| {
        let config = adapter_config(adapter.options(), base);
        write_file(&draft.join(ADAPTER_CONFIG), |file| writeln!(file, "{config:#}"))?;
        let tensors: Vec<Parameter<'_>> = adapter.parameters().iter().collect();
        write_shard(
            &draft.join(ADAPTER_WEIGHTS),
            &tensors,
            ElementType::F32,
            &[(BASE_DIGEST, base_digest)],
        )
    })
}

fn read_config(directory: &Path) -> Result<(PathBuf, String), ModelError> {
    read_required(
        directory,
        ADAPTER_CONFIG,
        SMALL_FILE,
        "name the directory of an adapter in PEFT's layout",
    )
}

/// Whether the file holds exactly the expected tensors.
fn check_tensors(shard: &Shard, expected: &[(String, Vec<usize>)]) -> Result<(), String> {
    let shapes: HashMap<&str, &[usize]> = expected
        .iter()
        .map(|(name, shape)| (name.as_str(), shape.as_slice()))
        .collect();
    for (name, info) in shard.tensors() {
        match shapes.get(name.as_str()) {
            None => {
                return Err(format!(
                    "it holds tensor `{name}`, which is no low-rank matrix of a decoder layer of the base: only adapters \
                     of {} are read",
                    Target::ALL.map(Target::name).join(", ")
                ));
            }
            Some(shape) if *shape != info.shape.as_slice() => {
                return Err(format!(
                    "tensor `{name}` has shape {:?}, base and rank call for {shape:?}: they do not belong together",
                    info.shape
                ));
            }
            Some(_) => {}
        }
    }
    let held: HashSet<&str> = shard.tensors().iter().map(|(name, _)| name.as_str()).collect();
    match expected.iter().find(|(name, _)| !held.contains(name.as_str())) {
        Some((name, _)) => Err(format!(
            "it lacks tensor `{name}`: an adapter has to stand beside the same matrices in every layer"
        )),
        None => Ok(()),
    }
}

/// What PEFT's `LoraConfig` reads.
fn adapter_config(options: &AdapterOptions, base: &str) -> Value {
    let mut targets: Vec<&str> = options.targets.iter().map(|target| target.name()).collect();
    targets.sort_unstable();
    // Most programs expect a whole number.
    let alpha = if options.alpha.fract() == 0.0 && options.alpha < 1e15 {
        json!(options.alpha as u64)
    } else {
        json!(options.alpha)
    };
    json!({
        "alpha_pattern": {},
        "base_model_name_or_path": base,
        "bias": "none",
        "fan_in_fan_out": false,
        "inference_mode": true,
        "init_lora_weights": true,
        "layers_pattern": null,
        "layers_to_transform": null,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "modules_to_save": null,
        "peft_type": "LORA",
        "r": options.rank,
        "rank_pattern": {},
        "revision": null,
        "target_modules": targets,
        "task_type": "CAUSAL_LM",
        "use_dora": false,
        "use_rslora": options.rank_stabilised,
    })
}

/// Refuses every setting under which PEFT computes something else. Dropout concerns training there, and is not used here.
fn check_kind(settings: &Map<String, Value>) -> Result<(), String> {
    let kind = settings
        .get("peft_type")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if kind != "LORA" {
        return Err(format!("`peft_type` is `{kind}`, only `LORA` is computed here"));
    }
    for key in ["use_dora", "fan_in_fan_out", "lora_bias", "use_qalora"] {
        if settings.get(key).and_then(Value::as_bool) == Some(true) {
            return Err(format!("`{key}` is set, which is not computed here"));
        }
    }
    for key in [
        "modules_to_save",
        "rank_pattern",
        "alpha_pattern",
        "layers_to_transform",
        "layer_replication",
        "target_parameters",
        "trainable_token_indices",
        "alora_invocation_tokens",
        "corda_config",
        "loftq_config",
        "arrow_config",
        "kasa_config",
        "monteclora_config",
        "use_bdlora",
        "velora_config",
    ] {
        let is_empty = match settings.get(key) {
            None | Some(Value::Null) => true,
            Some(Value::Array(values)) => values.is_empty(),
            Some(Value::Object(values)) => values.is_empty(),
            Some(_) => false,
        };
        if !is_empty {
            return Err(format!("`{key}` is set, which is not computed here"));
        }
    }
    match settings.get("bias").and_then(Value::as_str) {
        None | Some("none") => {}
        Some(bias) => {
            return Err(format!(
                "`bias` is `{bias}`: trained biases are not read, train with `none`"
            ));
        }
    }
    match settings.get("init_lora_weights").and_then(Value::as_str) {
        None | Some("gaussian" | "eva" | "orthogonal") => Ok(()),
        Some(method) => Err(format!(
            "`init_lora_weights` is `{method}`, which changes the base too: convert the adapter to plain LoRA with PEFT"
        )),
    }
}

fn options(settings: &Map<String, Value>, targets: Vec<Target>) -> Result<AdapterOptions, String> {
    let number = |key: &str| {
        settings
            .get(key)
            .and_then(Value::as_f64)
            .ok_or_else(|| format!("`{key}` is missing or no number"))
    };
    let rank = settings
        .get("r")
        .and_then(Value::as_u64)
        .and_then(|rank| usize::try_from(rank).ok())
        .ok_or("`r` is missing or no whole number")?;
    // Bounds what is allocated for the tensors before their shapes are compared.
    if rank > LARGEST_RANK {
        return Err(format!(
            "`r` is {rank}, more than the {LARGEST_RANK} that are read"
        ));
    }
    Ok(AdapterOptions {
        targets,
        rank,
        alpha: number("lora_alpha")?,
        rank_stabilised: settings.get("use_rslora").and_then(Value::as_bool) == Some(true),
    })
}

/// Far above the width of any use of a low rank.
const LARGEST_RANK: usize = 65_536;

fn refused(path: &Path, problem: String) -> ModelError {
    ModelError::Adapter {
        path: path.to_owned(),
        problem,
    }
}

#[cfg(test)]
mod tests;
