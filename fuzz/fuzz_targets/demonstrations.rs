//! Fine-tuning examples as lines of JSON, plain or compressed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use seed_run::write_json_lines;
use seed_train::examples::read_examples;

fuzz_target!(|input: (bool, &[u8])| {
    let (is_compressed, bytes) = input;
    let folder = tempfile::tempdir().unwrap();
    let name = if is_compressed {
        "examples.jsonl.zst"
    } else {
        "examples.jsonl"
    };
    std::fs::write(folder.path().join(name), bytes).unwrap();
    let Ok(records) = read_examples(&folder.path().join(name)) else {
        return;
    };
    for record in &records {
        assert!(!record.messages.is_empty() && record.messages.len().is_multiple_of(2));
    }
    let again = folder.path().join("again.jsonl.zst");
    write_json_lines(&again, &records).unwrap();
    assert_eq!(read_examples(&again).expect("what was written is read"), records);
});
