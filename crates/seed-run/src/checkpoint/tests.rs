//! A checkpoint is complete and right, or it is not there: under bit rot, full disks, dying processes and power loss.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::draft::check_name;
use super::simulated_disk::{Fault, SimulatedDisk};
use super::*;
use crate::error::{CheckpointFault, RunError};
use crate::file_system::FileSystem;
use crate::tensors::TensorView;

/// The checkpoints' folder on a simulated disk.
fn folder() -> &'static Path {
    Path::new("/run/checkpoints")
}

fn store_on(disk: &SimulatedDisk) -> CheckpointStore {
    CheckpointStore::open_on(Arc::new(disk.clone()), folder()).unwrap()
}

fn empty_disk() -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    disk.create_directories(Path::new("/run")).unwrap();
    disk.sync_directory(Path::new("/")).unwrap();
    disk
}

/// A small checkpoint with every kind of file, different at every step.
fn save(store: &CheckpointStore, step: u64) -> Result<Checkpoint, RunError> {
    let numbers: Vec<f32> = (0..20).map(|index| index as f32 + step as f32).collect();
    let mut draft = store.begin(step)?;
    draft.write_json("state.json", &serde_json::json!({ "step": step }))?;
    draft.write_tensors(
        "model/model.safetensors",
        &[TensorView {
            name: "weight".to_owned(),
            shape: vec![4, 5],
            data: &numbers,
        }],
    )?;
    draft.write(
        "skills.jsonl",
        format!("skill of step {step}\n").repeat(3).as_bytes(),
    )?;
    draft.publish()
}

fn assert_is_right(checkpoint: &Checkpoint) {
    let step = checkpoint.step();
    let state: serde_json::Value = checkpoint.read_json("state.json").unwrap();
    assert_eq!(state["step"], step);
    let tensors = checkpoint.read_tensors("model/model.safetensors").unwrap();
    assert_eq!(tensors[0].shape, [4, 5]);
    assert_eq!(tensors[0].data[3], 3.0 + step as f32);
    assert!(
        checkpoint
            .read("skills.jsonl")
            .unwrap()
            .starts_with(b"skill of step")
    );
}

fn newest_step(disk: &SimulatedDisk) -> Option<u64> {
    let found = store_on(disk).newest().unwrap().found?;
    assert_is_right(&found);
    Some(found.step())
}

#[test]
fn a_checkpoint_on_the_real_disk_returns_what_was_saved() {
    let temporary = tempfile::tempdir().unwrap();
    let directory = temporary.path().join("run/checkpoints");
    let store = CheckpointStore::open(&directory).unwrap();
    assert!(store.newest().unwrap().found.is_none());
    let first = save(&store, 1).unwrap();
    let second = save(&store, 120).unwrap();
    let found = store.newest().unwrap();
    assert!(found.rejected.is_empty());
    let found = found.found.unwrap();
    assert_eq!(found.step(), 120);
    assert_eq!(found.digest(), second.digest());
    assert_ne!(first.digest(), second.digest());
    assert_is_right(&found);
    assert_eq!(
        fs_err::read_to_string(directory.join("LATEST")).unwrap(),
        "step-00000120\n"
    );
    let names: Vec<_> = crate::Disk
        .list(&directory)
        .unwrap()
        .into_iter()
        .map(|entry| entry.0)
        .collect();
    assert_eq!(
        names,
        ["LATEST", "step-00000001", "step-00000120"],
        "nothing temporary is left"
    );
    let missing = found.read("absent").unwrap_err().to_string();
    assert!(missing.contains("it has no file `absent`"), "{missing}");
}

#[test]
fn equal_contents_have_equal_bytes() {
    let bytes = |disk: &SimulatedDisk, name: &str| {
        let mut bytes = Vec::new();
        disk.open(&folder().join("step-00000003").join(name))
            .unwrap()
            .read_to_end(&mut bytes)
            .unwrap();
        bytes
    };
    let disks = [empty_disk(), empty_disk()];
    let digests = disks
        .each_ref()
        .map(|disk| save(&store_on(disk), 3).unwrap().digest());
    assert_eq!(digests[0], digests[1]);
    for name in ["MANIFEST.json", "model/model.safetensors", "state.json"] {
        assert_eq!(bytes(&disks[0], name), bytes(&disks[1], name), "{name}");
    }
}

#[test]
fn files_written_by_other_code_are_adopted() {
    let temporary = tempfile::tempdir().unwrap();
    let store = CheckpointStore::open(temporary.path()).unwrap();
    let mut draft = store.begin(4).unwrap();
    let model = draft.folder("model").unwrap();
    fs_err::write(model.join("config.json"), "{}").unwrap();
    draft.adopt("model").unwrap();
    let duplicate = draft.write("model/config.json", b"x").unwrap_err().to_string();
    assert!(
        duplicate.contains("already has a file `model/config.json`"),
        "{duplicate}"
    );
    draft.publish().unwrap();
    assert_eq!(store.load(4).unwrap().read("model/config.json").unwrap(), b"{}");
}

#[test]
fn names_cannot_leave_the_checkpoint() {
    for name in ["a", "a.b", "model/model-00001-of-00002.safetensors", "A_9"] {
        check_name(name).unwrap();
    }
    for name in [
        "", "/a", "a/", "a//b", "../a", "a/../b", ".hidden", "a b", "a\\b", "c:", "é",
    ] {
        assert!(check_name(name).is_err(), "{name}");
    }
    let disk = empty_disk();
    let store = store_on(&disk);
    let mut draft = store.begin(1).unwrap();
    assert!(
        draft.write("MANIFEST.json", b"").is_err(),
        "the manifest is not the caller's"
    );
}

#[test]
fn every_flipped_bit_is_found_and_its_file_named() {
    let disk = empty_disk();
    let checkpoint = save(&store_on(&disk), 7).unwrap();
    let files: Vec<(String, usize)> = checkpoint
        .manifest()
        .files
        .iter()
        .map(|(name, record)| (name.clone(), record.bytes as usize))
        .collect();
    assert_eq!(files.len(), 3);
    for (name, bytes) in &files {
        for bit in 0..bytes * 8 {
            let rotten = disk.after_death();
            rotten.flip(&folder().join("step-00000007").join(name), bit);
            let search = store_on(&rotten).newest().unwrap();
            assert!(search.found.is_none(), "bit {bit} of {name}");
            assert_eq!(search.rejected[0].fault, CheckpointFault::Digest(name.clone()));
        }
    }
    let mut length = 0;
    let manifest = folder().join("step-00000007/MANIFEST.json");
    disk.change(&manifest, |bytes| length = bytes.len());
    for bit in 0..length * 8 {
        let rotten = disk.after_death();
        rotten.flip(&manifest, bit);
        let search = store_on(&rotten).newest().unwrap();
        assert!(
            matches!(search.rejected[0].fault, CheckpointFault::Manifest(_)),
            "bit {bit}: {:?}",
            search.rejected
        );
    }
}

#[test]
fn a_file_damaged_after_loading_is_found_when_it_is_read() {
    let disk = empty_disk();
    let store = store_on(&disk);
    let checkpoint = save(&store, 7).unwrap();
    disk.flip(&folder().join("step-00000007/state.json"), 3);
    let message = checkpoint.read("state.json").unwrap_err().to_string();
    assert!(message.contains("`state.json` is damaged"), "{message}");
}

#[test]
fn cut_grown_missing_and_misplaced_files_are_named() {
    let disk = empty_disk();
    save(&store_on(&disk), 7).unwrap();
    let inside = |name: &str| folder().join("step-00000007").join(name);
    let fault = |damage: &dyn Fn(&SimulatedDisk)| {
        let damaged = disk.after_death();
        damage(&damaged);
        store_on(&damaged).load(7).unwrap_err().to_string()
    };
    let cut = fault(&|disk| disk.change(&inside("skills.jsonl"), |bytes| bytes.truncate(10)));
    assert!(cut.contains("`skills.jsonl` has 10 bytes instead of 48"), "{cut}");
    let grown = fault(&|disk| disk.change(&inside("skills.jsonl"), |bytes| bytes.push(b' ')));
    assert!(
        grown.contains("`skills.jsonl` has 49 bytes instead of 48"),
        "{grown}"
    );
    let missing = fault(&|disk| disk.remove_file(&inside("model/model.safetensors")).unwrap());
    assert!(
        missing.contains("`model/model.safetensors` is missing"),
        "{missing}"
    );
    let unfinished = fault(&|disk| disk.remove_file(&inside("MANIFEST.json")).unwrap());
    assert!(unfinished.contains("its manifest is missing"), "{unfinished}");
    let renamed = disk.after_death();
    renamed
        .rename(&folder().join("step-00000007"), &folder().join("step-00000008"))
        .unwrap();
    let misplaced = store_on(&renamed).load(8).unwrap_err().to_string();
    assert!(misplaced.contains("its manifest is of step 7"), "{misplaced}");
}

#[test]
fn a_damaged_newest_checkpoint_is_passed_over_and_written_again() {
    let disk = empty_disk();
    let store = store_on(&disk);
    save(&store, 1).unwrap();
    save(&store, 2).unwrap();
    disk.flip(&folder().join("step-00000002/state.json"), 0);
    let search = store.newest().unwrap();
    assert_eq!(search.found.unwrap().step(), 1);
    assert_eq!(search.rejected[0].directory, folder().join("step-00000002"));
    save(&store, 2).unwrap();
    assert_eq!(newest_step(&disk), Some(2));
    assert_eq!(store.steps().unwrap(), [1, 2]);
}

/// Looks at the disk after the work met its fault at a call.
type Check<'a> = &'a dyn Fn(usize, &SimulatedDisk, &Result<(), RunError>);

/// Runs `work` with a fault at each call in turn until it succeeds without meeting it, and hands each outcome on.
fn at_every_call(
    before: &SimulatedDisk,
    fault: Fault,
    work: &dyn Fn(&CheckpointStore) -> Result<(), RunError>,
    check: Check<'_>,
) -> usize {
    let opening = opening_calls(before);
    for call in opening.. {
        let disk = before.copy_with(Some((call, fault)));
        let store = store_on(&disk);
        let result = work(&store);
        check(call, &disk, &result);
        if disk.calls() <= call {
            return call - opening;
        }
    }
    0
}

fn save_and_prune(store: &CheckpointStore) -> Result<(), RunError> {
    save(store, 4)?;
    store
        .prune(&Retention {
            keep_last: 2,
            best: None,
            keep_every: None,
        })
        .map(|_| ())
}

fn three_checkpoints() -> SimulatedDisk {
    let disk = empty_disk();
    let store = store_on(&disk);
    for step in 1..=3 {
        save(&store, step).unwrap();
    }
    disk
}

#[test]
fn an_error_at_any_call_leaves_a_complete_checkpoint_and_no_litter() {
    for kind in [
        ErrorKind::StorageFull,
        ErrorKind::Other,
        ErrorKind::PermissionDenied,
    ] {
        let calls = at_every_call(
            &three_checkpoints(),
            Fault::Error(kind),
            &save_and_prune,
            &|call, disk, result| {
                let newest = newest_step(&disk.after_death()).unwrap();
                assert!(newest == 3 || newest == 4, "call {call}");
                if result.is_ok() {
                    assert_eq!(newest, 4, "call {call}");
                }
                if let (ErrorKind::StorageFull, Err(error)) = (kind, result) {
                    assert!(error.is_resource(), "call {call}: {error}");
                }
                // Trying again succeeds: nothing half-done is in the way.
                save_and_prune(&store_on(&disk.after_death())).unwrap();
            },
        );
        assert!(calls > 25, "only {calls} calls were tried");
    }
}

#[test]
fn a_full_disk_names_the_file_and_the_bytes() {
    // Calls of a draft: create its folder, create the file, write, sync.
    let disk = empty_disk();
    let full = disk.copy_with(Some((
        opening_calls(&disk) + 2,
        Fault::Error(ErrorKind::StorageFull),
    )));
    let store = store_on(&full);
    let mut draft = store.begin(1).unwrap();
    let message = draft.write("weights", &[0; 1000]).unwrap_err().to_string();
    assert!(message.contains("the disk is full"), "{message}");
    assert!(
        message.contains("weights") && message.contains("1000 bytes"),
        "{message}"
    );
    drop(draft);
    let left: Vec<_> = full.list(folder()).unwrap();
    assert!(left.is_empty(), "{left:?}");
}

fn opening_calls(disk: &SimulatedDisk) -> usize {
    let copy = disk.copy_with(None);
    store_on(&copy);
    copy.calls()
}

#[test]
fn a_process_dying_at_any_call_leaves_a_complete_checkpoint() {
    let calls = at_every_call(
        &three_checkpoints(),
        Fault::Death,
        &save_and_prune,
        &|call, disk, result| {
            let found = disk.after_death();
            let newest = newest_step(&found).unwrap();
            assert!(newest == 3 || newest == 4, "call {call}");
            if result.is_ok() {
                assert_eq!(newest, 4);
            }
            let names = found.list(folder()).unwrap();
            assert!(
                names.iter().all(|(name, _)| !name.contains(".tmp-")),
                "call {call}: {names:?}"
            );
        },
    );
    assert!(calls > 25, "only {calls} calls were tried");
}

#[test]
fn a_power_loss_at_any_call_leaves_a_complete_checkpoint() {
    let published = std::sync::atomic::AtomicUsize::new(0);
    at_every_call(
        &three_checkpoints(),
        Fault::Death,
        &|store| save(store, 4).map(|_| ()),
        &|call, disk, result| {
            for choice in 0..40 {
                let found = disk.after_power_loss(choice);
                let newest = newest_step(&found).unwrap_or_else(|| panic!("call {call}, choice {choice}"));
                assert!(newest == 3 || newest == 4, "call {call}, choice {choice}");
                assert!(
                    hint(&found) <= newest,
                    "LATEST names what is there; call {call}, choice {choice}"
                );
                if result.is_ok() {
                    published.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    assert_eq!(newest, 4, "a published checkpoint survives; choice {choice}");
                }
            }
        },
    );
    assert!(published.into_inner() >= 40);
}

/// The step that `LATEST` names.
fn hint(disk: &SimulatedDisk) -> u64 {
    let mut text = String::new();
    disk.open(&folder().join("LATEST"))
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    text.trim().strip_prefix("step-").unwrap().parse().unwrap()
}

#[test]
fn a_power_loss_while_pruning_leaves_the_newest() {
    at_every_call(
        &three_checkpoints(),
        Fault::Death,
        &save_and_prune,
        &|call, disk, _| {
            for choice in 0..20 {
                let newest = newest_step(&disk.after_power_loss(choice));
                assert!(newest >= Some(3), "call {call}, choice {choice}: {newest:?}");
            }
        },
    );
}

#[test]
fn pruning_keeps_the_last_the_best_and_the_multiples() {
    let disk = empty_disk();
    let store = store_on(&disk);
    for step in 1..=10 {
        save(&store, step).unwrap();
    }
    let retention = Retention {
        keep_last: 2,
        best: Some(3),
        keep_every: Some(4),
    };
    assert_eq!(store.prune(&retention).unwrap(), [7, 6, 5, 2, 1]);
    assert_eq!(store.steps().unwrap(), [3, 4, 8, 9, 10]);
    assert_eq!(store.prune(&retention).unwrap(), Vec::<u64>::new());
}

#[test]
fn damaged_checkpoints_do_not_count_as_kept() {
    let disk = three_checkpoints();
    disk.flip(&folder().join("step-00000003/state.json"), 0);
    let retention = Retention {
        keep_last: 0,
        best: None,
        keep_every: None,
    };
    // Two good ones are left: fewer than two are never kept, so nothing may go.
    assert_eq!(store_on(&disk).prune(&retention).unwrap(), Vec::<u64>::new());
    assert_eq!(store_on(&disk).steps().unwrap(), [1, 2, 3]);
}

#[test]
fn other_folders_and_files_are_left_alone() {
    let disk = three_checkpoints();
    let notes: [PathBuf; 3] = ["notes", "step-3", "step-00000099x"].map(|name| folder().join(name));
    for note in &notes {
        disk.create_directories(note).unwrap();
    }
    let store = store_on(&disk);
    assert_eq!(store.steps().unwrap(), [1, 2, 3]);
    save_and_prune(&store).unwrap();
    for note in &notes {
        assert!(disk.list(note).is_ok(), "{}", note.display());
    }
}
