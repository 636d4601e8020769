use std::path::{Path, PathBuf};

use fs_err as fs;
use proptest::prelude::*;
use seed_random::{Draw, RandomKey};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{ElementType, ModelDirectory, ShardOptions, load_directory, load_weights, save_directory};
use crate::chat::{CHATML_TEMPLATE, CHATML_TOKENS, ChatTemplate};
use crate::config::{DecoderConfig, Family};
use crate::error::ModelError;
use crate::parameters::Parameters;
use crate::tokenizer::train_byte_level_bpe;

const INDEX: &str = "model.safetensors.index.json";

fn model(family: Family) -> ModelDirectory {
    let config = DecoderConfig {
        vocabulary_size: 270,
        end_tokens: vec![2],
        ..crate::config::tests::small(family)
    };
    let parameters = Parameters::initialise(&config, RandomKey::new(5));
    let tokenizer = train_byte_level_bpe(["You open the drawer."; 3], 265, &CHATML_TOKENS).unwrap();
    let chat = ChatTemplate::new(CHATML_TEMPLATE, &tokenizer).unwrap();
    ModelDirectory::new(config, parameters, tokenizer, Some(chat)).unwrap()
}

fn shards_of(max_shard_bytes: u64) -> ShardOptions {
    ShardOptions {
        max_shard_bytes,
        ..ShardOptions::default()
    }
}

/// A saved model in a directory of its own.
fn saved(family: Family, max_shard_bytes: u64) -> (TempDir, PathBuf) {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("model");
    save_directory(&path, model(family).contents(), shards_of(max_shard_bytes)).unwrap();
    (parent, path)
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name)
}

fn edit_json(path: &Path, edit: impl FnOnce(&mut Value)) {
    let mut value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    edit(&mut value);
    fs::write(path, value.to_string()).unwrap();
}

/// A weight file with this header in front of `bytes` zero bytes.
fn weight_file(header: &str, bytes: usize) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.resize(file.len() + bytes, 0);
    file
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn models_written_by_transformers_are_read() {
    let (config, sharded) = load_weights(golden("qwen3")).unwrap();
    assert_eq!(
        (config.family, config.head_dim, config.tied_embeddings),
        (Family::Qwen3, 12, false)
    );
    assert_eq!(sharded.total(), 23_312, "total_parameters of the index");
    let (config, tied) = load_weights(golden("qwen2")).unwrap();
    assert!(config.tied_embeddings && tied.index_of("lm_head.weight").is_none());
    assert_eq!(tied.flat().iter().filter(|&&value| value == 0.0).count(), 0);
    let (config, _) = load_weights(golden("llama")).unwrap();
    assert_eq!((config.rms_norm_epsilon, config.rope_theta), (1e-5, 10_000.0));
}

#[test]
fn what_is_saved_is_what_is_loaded() {
    for family in Family::ALL {
        // One file, a few shards, one shard per tensor.
        for limit in [u64::MAX, 40_000, 1] {
            let (_parent, path) = saved(family, limit);
            let (before, after) = (model(family), load_directory(&path).unwrap());
            assert_eq!(after.config, before.config);
            assert_eq!(after.parameters.digest(), before.parameters.digest());
            assert_eq!(after.end_tokens, before.end_tokens);
            assert_eq!(after.chat.unwrap().source(), CHATML_TEMPLATE);
            let text = "<|im_end|> open the drawer";
            assert_eq!(
                after.tokenizer.encode_text(text),
                before.tokenizer.encode_text(text)
            );
        }
    }
}

#[test]
fn saving_twice_gives_the_same_bytes_and_leaves_nothing_else() {
    let (first_parent, first) = saved(Family::Qwen2, 20_000);
    let (_second_parent, second) = saved(Family::Qwen2, 20_000);
    assert_eq!(names(first_parent.path()), ["model"]);
    assert_eq!(names(&first), names(&second));
    assert!(names(&first).len() > 7, "{:?}", names(&first));
    for name in names(&first) {
        assert!(
            fs::read(first.join(&name)).unwrap() == fs::read(second.join(&name)).unwrap(),
            "{name}"
        );
    }
}

#[test]
fn an_index_lists_every_tensor_once_and_the_true_size() {
    let (_parent, path) = saved(Family::Qwen2, 20_000);
    let index: Value = serde_json::from_str(&fs::read_to_string(path.join(INDEX)).unwrap()).unwrap();
    let model = model(Family::Qwen2);
    assert_eq!(
        index["metadata"]["total_size"],
        json!(4 * model.parameters.total())
    );
    let mut listed: Vec<&String> = index["weight_map"].as_object().unwrap().keys().collect();
    let mut expected: Vec<String> = model
        .config
        .parameter_shapes()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    listed.sort();
    expected.sort();
    assert_eq!(listed.into_iter().cloned().collect::<Vec<_>>(), expected);
    assert!(!expected.contains(&"lm_head.weight".to_owned()), "tied");
    let files: std::collections::BTreeSet<&str> = index["weight_map"]
        .as_object()
        .unwrap()
        .values()
        .map(|file| file.as_str().unwrap())
        .collect();
    assert!(files.len() >= 3);
    for file in files {
        let bytes = fs::metadata(path.join(file)).unwrap().len();
        let embedding = 4 * 270 * 32;
        assert!(
            bytes < 20_000 + 3_000 || bytes < embedding + 3_000,
            "{file}: {bytes}"
        );
    }
}

#[test]
fn half_precision_is_rounded_once() {
    let parent = tempfile::tempdir().unwrap();
    for (element_type, digits) in [(ElementType::Bf16, 8), (ElementType::F16, 11)] {
        let save = |model: &ModelDirectory, name: &str| {
            let path = parent.path().join(format!("{element_type:?}-{name}"));
            let options = ShardOptions {
                element_type,
                ..ShardOptions::default()
            };
            save_directory(&path, model.contents(), options).unwrap();
            load_directory(&path).unwrap()
        };
        let original = model(Family::Llama);
        let once = save(&original, "once");
        let relative = |left: &f32, right: &f32| (left - right).abs() / left.abs().max(1e-3);
        let pairs = original.parameters.flat().iter().zip(once.parameters.flat());
        let worst = pairs
            .map(|(left, right)| relative(left, right))
            .fold(0.0, f32::max);
        assert!(
            worst > 0.0 && worst <= (-digits as f32).exp2(),
            "{element_type:?}: {worst}"
        );
        assert_eq!(save(&once, "twice").parameters.digest(), once.parameters.digest());
    }
}

#[test]
fn an_existing_target_is_left_alone() {
    let (parent, path) = saved(Family::Llama, u64::MAX);
    let before = names(&path);
    let error = save_directory(&path, model(Family::Qwen2).contents(), ShardOptions::default()).unwrap_err();
    assert!(matches!(error, ModelError::AlreadyExists { .. }));
    assert_eq!(
        (names(parent.path()), names(&path)),
        (vec!["model".to_owned()], before)
    );
    assert_eq!(load_directory(&path).unwrap().config.family, Family::Llama);
}

#[test]
fn parameters_of_another_configuration_are_not_saved() {
    let parent = tempfile::tempdir().unwrap();
    let (llama, qwen) = (model(Family::Llama), model(Family::Qwen2));
    for (config, parameters) in [
        (&llama.config, &qwen.parameters),
        (&qwen.config, &llama.parameters),
    ] {
        let mut contents = llama.contents();
        (contents.config, contents.parameters) = (config, parameters);
        let error = save_directory(parent.path().join("m"), contents, ShardOptions::default()).unwrap_err();
        assert!(matches!(
            error,
            ModelError::ParameterMissing { .. } | ModelError::ParameterShape { .. }
        ));
    }
    assert_eq!(names(parent.path()), Vec::<String>::new());
}

/// The message of the error that loading gives after `damage` to a saved model.
fn refusal(max_shard_bytes: u64, damage: impl FnOnce(&Path)) -> String {
    let (_parent, path) = saved(Family::Qwen2, max_shard_bytes);
    damage(&path);
    let message = load_directory(&path).unwrap_err().to_string();
    assert!(!message.contains('\n'), "{message}");
    let place = path.display().to_string();
    message.replace(&place, "MODEL")
}

#[test]
fn a_tokenizer_larger_than_the_vocabulary_is_refused() {
    let ModelDirectory {
        mut config,
        tokenizer,
        chat,
        ..
    } = model(Family::Llama);
    config.vocabulary_size = tokenizer.vocabulary_size() - 1;
    let parameters = Parameters::zeros(&config);
    let last = tokenizer.vocabulary_size() - 1;
    let error = ModelDirectory::new(config, parameters, tokenizer, chat)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains(&format!("ids up to `{last}`, the model's vocab_size is `{last}`")),
        "{error}"
    );
}

#[test]
fn missing_files_are_named() {
    let without = |name: &'static str| refusal(20_000, |path| fs::remove_file(path.join(name)).unwrap());
    assert!(without("config.json").starts_with("`MODEL/config.json` is missing"));
    assert!(without("tokenizer.json").starts_with("`MODEL/tokenizer.json` is missing"));
    assert!(without(INDEX).starts_with("`MODEL/model.safetensors` is missing"));
    let shard = refusal(20_000, |path| {
        let shard = names(path)
            .into_iter()
            .find(|name| name.starts_with("model-00002"))
            .unwrap();
        fs::remove_file(path.join(shard)).unwrap();
    });
    assert!(shard.starts_with("`MODEL/model-00002-of-"), "{shard}");
    assert!(
        load_directory("no/such/place")
            .unwrap_err()
            .to_string()
            .contains("no/such/place/config.json")
    );
}

#[test]
fn wrong_tensors_are_named_with_both_shapes() {
    let config =
        |edit: fn(&mut Value)| refusal(u64::MAX, move |path| edit_json(&path.join("config.json"), edit));
    assert_eq!(
        config(|config| config["intermediate_size"] = json!(49)),
        "`MODEL/model.safetensors`: tensor `model.layers.0.mlp.gate_proj.weight` has shape [48, 32], the \
         configuration calls for [49, 32]: the files do not belong together"
    );
    assert_eq!(
        config(|config| config["num_hidden_layers"] = json!(3)),
        "`MODEL/model.safetensors` lacks tensor `model.layers.2.input_layernorm.weight` (and 11 more) which the \
         configuration calls for: the files do not belong together"
    );
    assert_eq!(
        config(|config| config["num_hidden_layers"] = json!(1)),
        "`MODEL/model.safetensors` holds tensor `model.layers.1.input_layernorm.weight` which the configuration \
         does not call for: the files do not belong together"
    );
    assert!(
        config(|config| config["tie_word_embeddings"] = json!(false))
            .contains("lacks tensor `lm_head.weight`")
    );
    assert!(
        config(|config| config["vocab_size"] = json!(200))
            .contains("has shape [270, 32], the configuration calls for")
    );
    assert!(config(|config| config["hidden_act"] = json!("relu")).starts_with("`MODEL/config.json`: "));
}

/// A configuration that calls for terabytes is compared with the headers before anything is allocated for it.
#[test]
fn a_lying_configuration_is_refused_from_the_headers() {
    let lie = |max_shard_bytes: u64, edit: fn(&mut Value)| {
        refusal(max_shard_bytes, move |path| {
            edit_json(&path.join("config.json"), edit);
        })
    };
    // 2^39 parameters: two terabytes.
    let wide = |config: &mut Value| {
        config["vocab_size"] = json!(1 << 24);
        config["hidden_size"] = json!(1 << 15);
    };
    assert_eq!(
        lie(u64::MAX, wide),
        "`MODEL/model.safetensors`: tensor `model.embed_tokens.weight` has shape [270, 32], the configuration \
         calls for [16777216, 32768]: the files do not belong together"
    );
    let sharded = lie(20_000, wide);
    assert!(
        sharded.starts_with("`MODEL/model-00001-of-") && sharded.contains("[16777216, 32768]"),
        "{sharded}"
    );
    assert_eq!(
        lie(u64::MAX, |config| config["intermediate_size"] = json!(1 << 24)),
        "`MODEL/model.safetensors`: tensor `model.layers.0.mlp.gate_proj.weight` has shape [48, 32], the \
         configuration calls for [16777216, 32]: the files do not belong together"
    );
    // 12 tensors in each of 4,094 layers that are not there.
    assert_eq!(
        lie(20_000, |config| config["num_hidden_layers"] = json!(4096)),
        "`MODEL/model.safetensors.index.json` lacks tensor `model.layers.2.input_layernorm.weight` (and 49127 more) \
         which the configuration calls for: the files do not belong together"
    );
    for (key, value, said) in [
        ("hidden_size", json!(1_000_000_000), "is outside `1..=16777216`"),
        ("num_hidden_layers", json!(1_000_000), "is outside `1..=4096`"),
        ("vocab_size", json!(u64::MAX), "is outside `1..=16777216`"),
        ("head_dim", json!(1 << 24), "heads x head_dim exceeds `16777216`"),
    ] {
        let message = refusal(u64::MAX, |path| {
            edit_json(&path.join("config.json"), |config| config[key] = value.clone());
        });
        assert!(
            message.starts_with(&format!("`MODEL/config.json`: config.json: `{key}` "))
                && message.contains(said),
            "{message}"
        );
    }
}

#[test]
fn broken_weight_files_are_told_apart() {
    let replaced = |bytes: Vec<u8>| {
        refusal(u64::MAX, move |path| {
            fs::write(path.join("model.safetensors"), bytes).unwrap();
        })
    };
    let truncated = |keep: fn(u64) -> u64| {
        refusal(u64::MAX, move |path| {
            let file = fs::OpenOptions::new()
                .write(true)
                .open(path.join("model.safetensors"))
                .unwrap();
            file.set_len(keep(file.metadata().unwrap().len())).unwrap();
        })
    };
    assert!(truncated(|length| length - 1).contains("it is truncated"));
    assert!(truncated(|length| length + 1).contains("calls for"));
    assert!(truncated(|_| 100).contains("the file ends after `92`: it is truncated"));
    assert!(truncated(|_| 7).contains("`7` bytes, too few"));
    assert!(truncated(|_| 0).contains("`0` bytes, too few"));
    assert!(replaced(u64::MAX.to_le_bytes().to_vec()).contains("limit of `100000000`"));
    assert!(replaced(weight_file("{", 0)).contains("header cannot be read"));
    assert!(
        replaced(weight_file("{}", 0)).contains("lacks tensor `model.embed_tokens.weight` (and 25 more)")
    );
    let tensor = |dtype: &str, shape: &str, offsets: &str| {
        format!(r#""model.norm.weight":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}"#)
    };
    let one = tensor("F32", "[32]", "[0,128]");
    assert!(
        replaced(weight_file(&format!("{{{one},{one}}}"), 128)).contains("`model.norm.weight` occurs twice")
    );
    let gap = tensor("F32", "[32]", "[4,132]");
    assert!(replaced(weight_file(&format!("{{{gap}}}"), 132)).contains("does not begin where"));
    let short = tensor("F32", "[32]", "[0,124]");
    assert!(replaced(weight_file(&format!("{{{short}}}"), 124)).contains("contradicts itself"));
    let huge = tensor("F32", "[18446744073709551615,2]", "[0,128]");
    assert!(replaced(weight_file(&format!("{{{huge}}}"), 128)).contains("contradicts itself"));
    let integer = tensor("I32", "[32]", "[0,128]");
    assert!(replaced(weight_file(&format!("{{{integer}}}"), 128)).contains("elements of type `I32`"));
    let unknown = tensor("Q3", "[32]", "[0,128]");
    assert!(replaced(weight_file(&format!("{{{unknown}}}"), 128)).contains("header cannot be read"));
    // The norm is the last tensor.
    let nan = refusal(u64::MAX, |path| {
        let path = path.join("model.safetensors");
        let mut bytes = fs::read(&path).unwrap();
        let place = bytes.len() - 4;
        bytes[place..].copy_from_slice(&f32::NAN.to_le_bytes());
        fs::write(&path, bytes).unwrap();
    });
    assert!(
        nan.contains("tensor `model.norm.weight` holds `NaN` at element 31"),
        "{nan}"
    );
}

#[test]
fn broken_indexes_are_told_apart() {
    let index = |edit: fn(&mut Value)| refusal(20_000, move |path| edit_json(&path.join(INDEX), edit));
    for name in [
        "../model.safetensors",
        "/etc/x.safetensors",
        "a/b.safetensors",
        "c:x.safetensors",
        "..",
        "",
        "x.bin",
    ] {
        let message = refusal(20_000, |path| {
            edit_json(&path.join(INDEX), |index| {
                index["weight_map"]["model.norm.weight"] = json!(name);
            });
        });
        assert!(
            message.contains("no plain name of a safetensors file"),
            "{name}: {message}"
        );
    }
    assert!(index(|index| index["metadata"]["total_size"] = json!(7)).contains("its total_size is `7`"));
    let moved = index(|index| {
        let other = index["weight_map"]["model.embed_tokens.weight"].clone();
        index["weight_map"]["model.norm.weight"] = other;
    });
    assert!(moved.contains("which does not hold it"), "{moved}");
    let dropped = index(|index| {
        index["weight_map"]
            .as_object_mut()
            .unwrap()
            .remove("model.norm.weight");
    });
    assert!(
        dropped.contains("does not list tensor `model.norm.weight`"),
        "{dropped}"
    );
    let twice = refusal(20_000, |path| {
        let text = fs::read_to_string(path.join(INDEX)).unwrap();
        fs::write(
            path.join(INDEX),
            text.replace("model.norm.weight", "model.embed_tokens.weight"),
        )
        .unwrap();
    });
    assert!(
        twice.contains("`model.embed_tokens.weight` occurs twice"),
        "{twice}"
    );
    let garbage = refusal(20_000, |path| fs::write(path.join(INDEX), "[]").unwrap());
    assert!(garbage.contains("cannot be read as JSON"), "{garbage}");
    // A float, as some writers have it, is fine.
    let (_parent, path) = saved(Family::Qwen2, 20_000);
    edit_json(&path.join(INDEX), |index| {
        index["metadata"]["total_size"] = json!(index["metadata"]["total_size"].as_f64().unwrap());
    });
    assert!(load_directory(&path).is_ok());
}

#[test]
fn a_tensor_in_two_shards_is_refused() {
    let message = refusal(20_000, |path| {
        let shards: Vec<String> = names(path)
            .into_iter()
            .filter(|name| name.starts_with("model-"))
            .collect();
        // The last shard again under the name of the first: all its tensors are then in two files.
        fs::copy(path.join(shards.last().unwrap()), path.join(&shards[0])).unwrap();
    });
    assert!(
        message.contains("is in both") && message.contains("`MODEL/model-00001-of-"),
        "{message}"
    );
}

#[test]
fn a_redundant_head_must_equal_the_embedding() {
    let with_head = |change: f32| {
        let (_parent, path) = saved(Family::Qwen2, u64::MAX);
        let untied = DecoderConfig {
            tied_embeddings: false,
            ..model(Family::Qwen2).config
        };
        let mut parameters = Parameters::zeros(&untied);
        for parameter in model(Family::Qwen2).parameters.iter() {
            let index = parameters.index_of(parameter.name).unwrap();
            parameters.get_mut(index).copy_from_slice(parameter.values);
        }
        let head = parameters.index_of("lm_head.weight").unwrap();
        let embedding = parameters.get(0).to_vec();
        parameters.get_mut(head).copy_from_slice(&embedding);
        parameters.get_mut(head)[5] += change;
        fs::remove_file(path.join("model.safetensors")).unwrap();
        super::shards::write(&path, &parameters, ShardOptions::default()).unwrap();
        load_directory(&path).map(|model| model.parameters.digest())
    };
    assert_eq!(with_head(0.0).unwrap(), model(Family::Qwen2).parameters.digest());
    assert!(
        with_head(1.0)
            .unwrap_err()
            .to_string()
            .contains("but the two differ")
    );
}

#[test]
fn stop_tokens_are_the_union_of_all_files() {
    let (_parent, path) = saved(Family::Llama, u64::MAX);
    // `<|im_end|>` (1) comes from the template, 2 from config.json.
    assert_eq!(load_directory(&path).unwrap().end_tokens, [1, 2]);
    edit_json(&path.join("generation_config.json"), |config| {
        config["eos_token_id"] = json!([7, 2]);
    });
    edit_json(&path.join("tokenizer_config.json"), |config| {
        config["eos_token"] = json!({"content": "<|im_start|>"});
    });
    let model = load_directory(&path).unwrap();
    assert_eq!(model.end_tokens, [0, 1, 2, 7]);
    // Token 7 is an ordinary byte, which text must still be able to hold.
    assert!(!model.tokenizer.is_control(7));
    edit_json(&path.join("generation_config.json"), |config| {
        config["eos_token_id"] = json!(400);
    });
    assert!(
        load_directory(&path)
            .unwrap_err()
            .to_string()
            .contains("token id `400`")
    );
}

#[test]
fn the_template_file_comes_before_the_entry_in_the_options() {
    let (_parent, path) = saved(Family::Llama, u64::MAX);
    let options = path.join("tokenizer_config.json");
    edit_json(&options, |config| {
        config["chat_template"] = json!("{{ messages[0].content }}");
    });
    assert_eq!(
        load_directory(&path).unwrap().chat.unwrap().source(),
        CHATML_TEMPLATE
    );
    fs::remove_file(path.join("chat_template.jinja")).unwrap();
    assert_eq!(
        load_directory(&path).unwrap().chat.unwrap().source(),
        "{{ messages[0].content }}"
    );
    edit_json(&options, |config| {
        config["chat_template"] =
            json!([{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]);
    });
    assert_eq!(load_directory(&path).unwrap().chat.unwrap().source(), "d");
    edit_json(&options, |config| config["chat_template"] = json!("{% broken"));
    let error = load_directory(&path).unwrap_err().to_string();
    assert!(
        error.contains("tokenizer_config.json`: chat template: "),
        "{error}"
    );
    edit_json(&options, |config| config["chat_template"] = Value::Null);
    assert!(load_directory(&path).unwrap().chat.is_none());
}

#[test]
fn oversized_and_foreign_text_files_are_refused() {
    let oversized = refusal(u64::MAX, |path| {
        let file = fs::OpenOptions::new()
            .write(true)
            .open(path.join("config.json"))
            .unwrap();
        file.set_len(super::SMALL_FILE + 1).unwrap();
    });
    assert!(
        oversized.contains("has 4194305 bytes, more than the 4194304"),
        "{oversized}"
    );
    let binary = refusal(u64::MAX, |path| {
        fs::write(path.join("generation_config.json"), [0xff, 0xfe]).unwrap();
    });
    assert!(binary.contains("it is not UTF-8"), "{binary}");
    let list = refusal(u64::MAX, |path| {
        fs::write(path.join("tokenizer_config.json"), "[]").unwrap();
    });
    assert!(
        list.starts_with("`MODEL/tokenizer_config.json` is broken"),
        "{list}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn no_bytes_make_the_readers_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        text in "[\\[\\]{}:,\"a-z0-9._/-]{0,80}",
        length in 0u64..300,
    ) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let config = crate::config::tests::small(Family::Llama);
        fs::write(path.join("config.json"), config.to_json()).unwrap();
        let framed = [length.to_le_bytes().as_slice(), text.as_bytes(), &bytes].concat();
        for content in [bytes.as_slice(), text.as_bytes(), &framed] {
            fs::write(path.join("model.safetensors"), content).unwrap();
            prop_assert!(load_weights(path).is_err());
            fs::remove_file(path.join("model.safetensors")).unwrap();
            fs::write(path.join(INDEX), content).unwrap();
            prop_assert!(load_weights(path).is_err());
            fs::write(path.join("tokenizer_config.json"), content).unwrap();
            fs::write(path.join("generation_config.json"), content).unwrap();
            prop_assert!(load_directory(path).is_err());
        }
    }

}

/// Damaged files give an error or a model, never a panic.
#[test]
fn one_changed_byte_never_panics() {
    let (_parent, path) = saved(Family::Llama, 20_000);
    let mut generator = RandomKey::new(9).generator();
    for name in names(&path) {
        let good = fs::read(path.join(&name)).unwrap();
        for _ in 0..20 {
            let mut changed = good.clone();
            // Mostly in the part that has structure.
            let position = generator.below(changed.len().min(3_000));
            changed[position] = generator.below(256) as u8;
            fs::write(path.join(&name), &changed).unwrap();
            let _ = load_directory(&path);
        }
        fs::write(path.join(&name), &good).unwrap();
    }
    assert!(load_directory(&path).is_ok());
}
