//! The line files of a run: metrics, trajectories, evaluations, and the run's own record.
#![no_main]

use libfuzzer_sys::fuzz_target;
use seed_rollout::Trajectory;
use seed_run::metrics::read_records;
use seed_run::{MetricsOptions, MetricsWriter, read_json_lines, read_run_record, write_json_lines};
use seed_train::compare::{RunResult, compare};

fuzz_target!(|input: (u8, &[u8])| {
    let (choice, bytes) = input;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let write = |name: &str, bytes: &[u8]| std::fs::write(path(name), bytes).unwrap();
    match choice % 4 {
        0 => {
            write("metrics.jsonl", bytes);
            if let Ok(records) = read_records(&path("metrics.jsonl")) {
                // A resumed run keeps the records up to its checkpoint, and nothing else.
                let last = u64::from(choice / 4);
                let options = MetricsOptions {
                    resume_after: Some(last),
                    ..MetricsOptions::default()
                };
                drop(MetricsWriter::open(folder.path(), options).expect("every line is a record"));
                let kept = read_records(&path("metrics.jsonl")).expect("kept lines are records");
                assert!(kept.iter().all(|record| record.step <= last));
                assert!(kept.len() <= records.len() && records.starts_with(&kept));
            }
        }
        1 => {
            let name = if choice & 4 == 0 { "t.jsonl" } else { "t.jsonl.zst" };
            write(name, bytes);
            let Ok(lines) = read_json_lines::<Trajectory>(&path(name)) else {
                return;
            };
            if let Ok(trajectories) = lines.collect::<Result<Vec<_>, _>>() {
                write_json_lines(&path("again.jsonl"), &trajectories).unwrap();
                let again: Vec<Trajectory> = read_json_lines(&path("again.jsonl"))
                    .unwrap()
                    .collect::<Result<_, _>>()
                    .expect("what was written is read");
                write_json_lines(&path("third.jsonl"), &again).unwrap();
                assert_eq!(
                    std::fs::read(path("again.jsonl")).unwrap(),
                    std::fs::read(path("third.jsonl")).unwrap()
                );
            }
        }
        2 => {
            let end = bytes.iter().position(|&byte| byte == 0xff).unwrap_or(bytes.len());
            write("summary.json", &bytes[..end]);
            write("evaluations.jsonl", bytes.get(end + 1..).unwrap_or_default());
            if let Ok(result) = RunResult::read(folder.path()) {
                compare(&[result]).table();
            }
        }
        _ => {
            write("run.json", bytes);
            let _ = read_run_record(folder.path());
        }
    }
});
