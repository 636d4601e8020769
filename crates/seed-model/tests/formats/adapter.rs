//! Adapters between this crate and the real PEFT, both ways (`tests/golden/check_adapter.py`).
//!
//! Runs where the environment variable `SEED_PYTHON` names an interpreter that has torch, transformers and peft. Adapters
//! that PEFT wrote are in `tests/golden/` and are read without it.

use std::env;
use std::path::Path;
use std::process::Command;

use fs_err as fs;
use seed_model::{
    Adapter, AdapterOptions, Decoder, Family, RopeScaling, ShardOptions, Target, load_adapter, load_weights,
    save_adapter, save_directory,
};
use seed_random::{Draw, RandomKey};
use serde_json::json;

use crate::export::model;

const SEQUENCES: [[u32; 9]; 2] = [[5, 17, 200, 3, 3, 299, 0, 64, 8], [1, 2, 3, 4, 250, 6, 7, 8, 9]];

fn largest_difference(left: &[f32], right: &[f32]) -> f32 {
    assert_eq!(left.len(), right.len());
    left.iter()
        .zip(right)
        .map(|(left, right)| (left - right).abs())
        .fold(0.0, f32::max)
}

#[test]
fn peft_computes_the_same_with_our_adapters_and_we_with_its() {
    let Ok(python) = env::var("SEED_PYTHON") else {
        println!("skipped: SEED_PYTHON names no interpreter with torch, transformers and peft");
        return;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/check_adapter.py");
    for (family, targets, rank_stabilised) in [
        (Family::Llama, Target::ALL.to_vec(), false),
        (Family::Qwen2, vec![Target::Query, Target::Value], true),
        (
            Family::Qwen3,
            vec![Target::Key, Target::Gate, Target::Down],
            false,
        ),
    ] {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        let model = model(family, RopeScaling::None);
        save_directory(path("base"), model.contents(), ShardOptions::default()).unwrap();
        let base = Decoder::new(model.config, model.parameters).unwrap();
        let options = AdapterOptions {
            targets,
            rank: 4,
            alpha: 8.0,
            rank_stabilised,
        };
        let adapter = Adapter::initialise(options.clone(), base.config(), RandomKey::new(3)).unwrap();
        let mut decoder = base.clone().with_adapter(adapter).unwrap();
        let mut generator = RandomKey::new(4).generator();
        decoder.update(|parameters| {
            for value in parameters.flat_mut() {
                *value += (0.6 * generator.unit() - 0.3) as f32;
            }
        });
        let digest = base.parameters().digest().to_hex();
        save_adapter(path("adapter"), decoder.adapter().unwrap(), "base", &digest).unwrap();
        let sequences: Vec<_> = SEQUENCES
            .iter()
            .map(|ids| json!({"ids": ids, "logits": decoder.logits(ids).unwrap()}))
            .collect();
        let targets: Vec<&str> = options.targets.iter().map(|target| target.name()).collect();
        let cases = json!({
            "sequences": sequences,
            "r": options.rank,
            "lora_alpha": options.alpha,
            "use_rslora": rank_stabilised,
            "targets": targets,
        });
        fs::write(path("cases.json"), cases.to_string()).unwrap();
        let output = Command::new(&python)
            .arg(&script)
            .args([path("base"), path("adapter"), path("cases.json"), path("output")])
            .output()
            .unwrap();
        let (out, error) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(output.status.success(), "{family:?}: {out}{error}");
        assert!(!error.contains("Unexpected keyword"), "{error}");
        println!("{family:?}: {out}");

        let read = load_adapter(path("output/adapter"), base.config()).unwrap();
        let theirs = base.clone().with_adapter(read.adapter).unwrap();
        let expected: Vec<Vec<f32>> =
            serde_json::from_str(&fs::read_to_string(path("output/logits.json")).unwrap()).unwrap();
        let merged = theirs
            .adapter()
            .unwrap()
            .merged(base.config(), base.parameters())
            .unwrap();
        let (_, merged_by_peft) = load_weights(path("output/merged")).unwrap();
        let weights = largest_difference(merged.flat(), merged_by_peft.flat());
        assert!(weights <= 1e-6, "{family:?}: merged weights differ by {weights}");
        let merged = Decoder::new(base.config().clone(), merged).unwrap();
        for (ids, expected) in SEQUENCES.iter().zip(&expected) {
            for (decoder, what) in [(&theirs, "beside"), (&merged, "merged")] {
                let difference = largest_difference(&decoder.logits(ids).unwrap(), expected);
                assert!(
                    difference <= 1e-4,
                    "{family:?} {what}: logits differ by {difference}"
                );
            }
        }
    }
}
