//! The recipe of `configs/alfworld-smollm2-135m` as a person runs it, with a small decoder of random weights in the place of
//! SmolLM2: demonstrations, fine-tuning and SEED with an adapter.
//!
//! With `SEED_SHARED` the world is ALFWorld, with a few of its games, else a generated one.

mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use common::{finish, lay_out_games, program, shared_data};
use seed_run::read_json_lines;
use seed_train::config::{Loaded, TrainConfig, differences};
use serde_json::Value;

fn recipe(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../configs")
        .join(file)
}

fn run(command: &str, config: &Path, set: &[(&str, String)]) {
    let mut program = program();
    program.arg(command).arg(config);
    for (key, value) in set {
        program.arg("--set").arg(format!("{key}={value}"));
    }
    let ended = finish(&mut program);
    assert_eq!(ended.code, Some(0), "{command}: {}", ended.errors);
}

/// Overrides for a world with a few games, laid out below `folder`.
fn world(folder: &Path) -> Vec<(&'static str, String)> {
    let Some(shared) = shared_data() else {
        return vec![("world.name", "household-full".to_owned())];
    };
    let splits = ["train", "train", "valid_seen", "valid_unseen"];
    lay_out_games(&shared, &splits, folder);
    vec![("world.data", folder.display().to_string())]
}

#[test]
fn the_recipe_for_a_pre_trained_model_runs_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    let shown = |name: &str| place(name).display().to_string();
    let mut played = world(&place("games"));
    played.push(("world.max_steps", "3".to_owned()));

    let mut set = played.clone();
    set.push(("demonstrations.examples", "24".to_owned()));
    set.push(("demonstrations.out", shown("demonstrations.jsonl.zst")));
    run(
        "demonstrate",
        &recipe("alfworld-smollm2-135m/demonstrations.toml"),
        &set,
    );

    let data = format!("[{:?}]", shown("demonstrations.jsonl.zst"));
    let base = format!(
        "[run]\ndirectory = {:?}\n[model]\ncontext_length = 2048\n[initialise]\nenabled = true\nvocabulary_size = 384\nhidden_size = 32\nintermediate_size = 64\n\
         layers = 2\nquery_heads = 2\nkey_value_heads = 1\nhead_dim = 16\nmax_positions = 2048\n\
         [sft]\ndata = {data}\nmax_updates = 1\nmax_length = 2048\n",
        shown("base")
    );
    fs_err::write(place("base.toml"), base).unwrap();
    run("sft", &place("base.toml"), &[]);
    let weights = place("base/model/model.safetensors");
    let before = fs_err::read(&weights).unwrap();

    let set = [
        ("run.directory", shown("sft")),
        ("model.path", shown("base/model")),
        ("sft.data", data),
        ("sft.max_updates", "3".to_owned()),
    ];
    run("sft", &recipe("alfworld-smollm2-135m/sft.toml"), &set);

    let mut set = played;
    set.extend([
        ("run.directory", shown("seed")),
        ("model.path", shown("sft/model")),
        ("rollout.tasks_per_iteration", "2".to_owned()),
        ("rollout.samples_per_task", "2".to_owned()),
        ("algorithm.iterations", "2".to_owned()),
        ("evaluation.tasks", "1".to_owned()),
    ]);
    let config = recipe("alfworld-smollm2-135m.toml");
    run("train", &config, &set);

    let load = |path: &Path| Loaded::<TrainConfig>::from_file(path, &[]).unwrap().config;
    let changed: BTreeSet<String> = differences(&load(&config), &load(&place("seed/config.resolved.toml")))
        .into_iter()
        .map(|difference| difference.key)
        .collect();
    let asked: BTreeSet<String> = set.iter().map(|(key, _)| (*key).to_owned()).collect();
    assert_eq!(changed, asked);

    let metrics: Vec<Value> = read_json_lines(&place("seed/metrics.jsonl"))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    // One of the evaluation before training, and two iterations.
    assert_eq!(metrics.len(), 3);
    for record in &metrics[1..] {
        let value = |name: &str| record["metrics"][name].as_f64().unwrap();
        assert_eq!(value("episode/count"), 4.0);
        assert_eq!(value("analysis/requests"), 4.0);
        assert_eq!(value("policy/rows"), 4.0);
        assert!(value("policy/gradient_norm").is_finite());
    }
    // The adapter is what was trained; the base is as it was.
    let trained = place("seed/checkpoints/step-00000002/model");
    let text = fs_err::read_to_string(trained.join("adapter_config.json")).unwrap();
    let adapter: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (adapter["r"].as_u64(), adapter["lora_alpha"].as_f64()),
        (Some(16), Some(32.0))
    );
    assert!(!trained.join("model.safetensors").exists());
    assert!(fs_err::read(&weights).unwrap() == before);
}
