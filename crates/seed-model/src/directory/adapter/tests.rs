use fs_err as fs;
use seed_random::RandomKey;

use super::*;
use crate::config::Family;
use crate::directory::load_weights;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name)
}

fn json_of(path: &Path) -> Map<String, Value> {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// What PEFT wrote is read, and what is written of it has the same tensors and says the same where both speak.
#[test]
fn directories_of_peft_survive_the_way_through() {
    for (name, base) in [
        ("adapter-llama", "llama"),
        ("adapter-qwen2", "qwen2"),
        ("adapter-qwen3", "qwen3"),
    ] {
        let (config, _) = load_weights(golden(base)).unwrap();
        let read = load_adapter(golden(name), &config).unwrap();
        assert_eq!(base_of_adapter(&golden(name)).unwrap(), base);
        assert!(is_adapter_directory(&golden(name)) && !is_adapter_directory(&golden(base)));
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("adapter");
        save_adapter(&folder, &read.adapter, base, "0123").unwrap();
        let ours = json_of(&folder.join(ADAPTER_CONFIG));
        let theirs = json_of(&golden(name).join(ADAPTER_CONFIG));
        for (key, value) in &ours {
            let mut expected = theirs[key].clone();
            // A set there, at times of whole paths; matrices in order here.
            if let Some(targets) = expected.as_array_mut() {
                for target in targets.iter_mut() {
                    let path = target.as_str().unwrap();
                    *target = json!(path.rsplit('.').next());
                }
                targets.sort_by_key(ToString::to_string);
                targets.dedup();
            }
            assert_eq!(*value, expected, "{name}: `{key}`");
        }
        let tensors = |folder: &Path| {
            let shard = Shard::open(&folder.join(ADAPTER_WEIGHTS)).unwrap();
            let mut tensors: Vec<_> = shard
                .tensors()
                .iter()
                .map(|(name, info)| (name.clone(), info.shape.clone()))
                .collect();
            tensors.sort();
            tensors
        };
        assert_eq!(tensors(&folder), tensors(&golden(name)), "{name}");
        let twice = place.path().join("twice");
        save_adapter(&twice, &read.adapter, base, "0123").unwrap();
        let bytes = |folder: &Path| fs::read(folder.join(ADAPTER_WEIGHTS)).unwrap();
        assert_eq!(bytes(&twice), bytes(&folder), "the same bytes every time");
        let again = load_adapter(&folder, &config).unwrap();
        assert_eq!(again.adapter.options(), read.adapter.options());
        assert_eq!(
            again.adapter.parameters().flat(),
            read.adapter.parameters().flat()
        );
        assert_eq!(again.base_digest.as_deref(), Some("0123"));
        assert!(again.check_base(&folder, "0123").is_ok());
        assert!(
            read.check_base(&folder, "4567").is_ok(),
            "PEFT says nothing of the base"
        );
        let refused = again.check_base(&folder, "4567").unwrap_err().to_string();
        assert!(refused.contains("`0123`, these have `4567`"), "{refused}");
    }
}

/// A saved adapter whose configuration was changed.
fn edited(edit: impl FnOnce(&mut Map<String, Value>)) -> String {
    let config = crate::config::tests::small(Family::Llama);
    let options = AdapterOptions {
        targets: vec![Target::Query, Target::Up],
        rank: 2,
        alpha: 4.5,
        rank_stabilised: false,
    };
    let adapter = Adapter::initialise(options, &config, RandomKey::new(1)).unwrap();
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("adapter");
    save_adapter(&folder, &adapter, "base", "").unwrap();
    let path = folder.join(ADAPTER_CONFIG);
    let mut settings = json_of(&path);
    assert_eq!(settings["lora_alpha"], 4.5);
    edit(&mut settings);
    fs::write(&path, Value::Object(settings).to_string()).unwrap();
    match load_adapter(&folder, &config) {
        Ok(read) => {
            assert_eq!(read.adapter.options().alpha, 4.5);
            String::new()
        }
        Err(error) => error.to_string(),
    }
}

#[test]
fn what_is_not_computed_is_refused_by_name() {
    assert_eq!(edited(|_| {}), "");
    // Dropout is of training, an initialisation of the past.
    assert_eq!(
        edited(|settings| drop(settings.insert("lora_dropout".to_owned(), json!(0.1)))),
        ""
    );
    assert_eq!(
        edited(|settings| drop(settings.insert("init_lora_weights".to_owned(), json!("gaussian")))),
        ""
    );
    for (key, value) in [
        ("peft_type", json!("IA3")),
        ("use_dora", json!(true)),
        ("fan_in_fan_out", json!(true)),
        ("lora_bias", json!(true)),
        ("bias", json!("all")),
        ("modules_to_save", json!(["lm_head"])),
        ("rank_pattern", json!({"q_proj": 3})),
        ("alpha_pattern", json!({"q_proj": 3})),
        ("layers_to_transform", json!([0])),
        ("trainable_token_indices", json!([1, 2])),
        ("init_lora_weights", json!("pissa_niter_4")),
        ("r", json!(3)),
        ("r", json!(-1)),
        ("r", json!(1_000_000_000)),
        ("lora_alpha", json!("many")),
        ("lora_alpha", json!(0)),
    ] {
        let error = edited(|settings| drop(settings.insert(key.to_owned(), value.clone())));
        let named = if key == "lora_alpha" { "alpha" } else { key };
        assert!(
            error.contains(named) || error.contains("base and rank call for"),
            "{key} = {value}: {error}"
        );
    }
}

#[test]
fn tensors_that_do_not_fit_the_base_are_named() {
    let small = crate::config::tests::small(Family::Llama);
    let deeper = DecoderConfig {
        layers: small.layers + 1,
        ..small.clone()
    };
    let wider = DecoderConfig {
        hidden_size: small.hidden_size * 2,
        ..small.clone()
    };
    let options = AdapterOptions {
        targets: vec![Target::Value],
        rank: 1,
        alpha: 1.0,
        rank_stabilised: true,
    };
    let adapter = Adapter::initialise(options, &deeper, RandomKey::new(1)).unwrap();
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("adapter");
    save_adapter(&folder, &adapter, "base", "").unwrap();
    assert!(matches!(
        save_adapter(&folder, &adapter, "base", ""),
        Err(ModelError::AlreadyExists { .. })
    ));
    let refused = |config: &DecoderConfig| load_adapter(&folder, config).unwrap_err().to_string();
    let extra = refused(&small);
    assert!(
        extra.contains(&format!(
            "model.layers.{}.self_attn.v_proj.lora_A.weight",
            small.layers
        )),
        "{extra}"
    );
    let wide = refused(&wider);
    assert!(wide.contains("they do not belong together"), "{wide}");
    let deepest = DecoderConfig {
        layers: deeper.layers + 1,
        ..deeper
    };
    let missing = refused(&deepest);
    assert!(missing.contains("it lacks tensor"), "{missing}");
    fs::remove_file(folder.join(ADAPTER_WEIGHTS)).unwrap();
    assert!(refused(&small).contains("which writes safetensors"));
}
