//! A profile that reaches its limit. One test: a process records one profile in its life.

use seed_run::{Profile, ProfileOptions};
use serde_json::Value;
use tracing::{info_span, trace_span};

#[test]
fn from_the_limit_on_only_phases_are_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profile.json");
    let options = ProfileOptions {
        most_spans: 100_000,
        ..ProfileOptions::default()
    };
    let profile = Profile::start(&path, options).unwrap();
    let phase = info_span!(target: "seed_test", "rollout").entered();
    for rows in 0..300_000_u64 {
        let _operation = trace_span!(target: "seed_test", "matmul", rows).entered();
    }
    phase.exit();
    drop(profile);
    let events: Vec<Value> = serde_json::from_slice(&fs_err::read(&path).unwrap()).unwrap();
    let count = |name: &str| events.iter().filter(|event| event["name"] == name).count();
    assert!(
        (100_000..200_000).contains(&count("matmul")),
        "{}",
        count("matmul")
    );
    assert_eq!(
        (count("rollout"), count("only phases are recorded from here on")),
        (1, 1)
    );
    let rows: Vec<u64> = events
        .iter()
        .filter(|event| event["name"] == "matmul")
        .map(|event| event["args"]["rows"].as_u64().unwrap())
        .collect();
    assert!(
        rows.windows(2).all(|pair| pair[1] == pair[0] + 1),
        "none is missing before the limit"
    );
}
