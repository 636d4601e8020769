//! A checkpoint: its manifest, sealed or not, and after a byte 0xff its tensors.
#![no_main]

use std::path::{Component, Path};

use libfuzzer_sys::fuzz_target;
use seed_run::{CheckpointStore, Manifest, read_tensors};
use serde_json::json;

fuzz_target!(|input: (bool, &[u8])| {
    let (is_sealed, bytes) = input;
    let end = bytes.iter().position(|&byte| byte == 0xff).unwrap_or(bytes.len());
    let (manifest, tensors) = (&bytes[..end], bytes.get(end + 1..).unwrap_or_default());
    let folder = tempfile::tempdir().unwrap();
    let step = folder.path().join("step-00000007");
    std::fs::create_dir(&step).unwrap();
    std::fs::write(step.join("model.safetensors"), tensors).unwrap();
    // Random text does not come with its own digest.
    let sealed = serde_json::from_slice::<Manifest>(manifest)
        .ok()
        .filter(|_| is_sealed)
        .map(|manifest| {
            let digest = blake3::hash(serde_json::to_string(&manifest).unwrap().as_bytes());
            let sealed = json!({"manifest": manifest, "blake3": digest.to_hex().as_str()});
            format!("{sealed:#}\n").into_bytes()
        });
    std::fs::write(step.join("MANIFEST.json"), sealed.as_deref().unwrap_or(manifest)).unwrap();
    let store = CheckpointStore::open(folder.path()).unwrap();
    let search = store.newest().unwrap();
    assert_eq!(search.found.is_some(), search.rejected.is_empty());
    if let Ok(checkpoint) = store.load(7) {
        for name in checkpoint.manifest().files.keys() {
            let is_inside = Path::new(name)
                .components()
                .all(|component| matches!(component, Component::Normal(_)));
            assert!(is_inside, "{name}");
            checkpoint.read(name).unwrap();
        }
    }
    if let Ok(tensors) = read_tensors(Path::new("model.safetensors"), tensors) {
        for tensor in &tensors {
            assert_eq!(tensor.shape.iter().product::<usize>(), tensor.data.len());
        }
        assert!(tensors.is_sorted_by(|left, right| left.name < right.name));
    }
});
