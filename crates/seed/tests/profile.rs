//! `--profile`: a whole trace however the command ends, and not a byte of difference in the results.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests fail as tests do")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

use common::support::analyst::Analyst;
use common::support::{assert_same_contents, contents, lessons};
use common::{Scratch, finish, last_lines, program, train};
use serde_json::Value;

/// A trace's spans by name, after a check that each thread's lie within one another.
fn spans(path: &Path) -> BTreeMap<String, Vec<Value>> {
    let events: Vec<Value> = serde_json::from_slice(&fs_err::read(path).unwrap()).unwrap();
    let mut by_thread: BTreeMap<u64, Vec<(f64, f64)>> = BTreeMap::new();
    let mut by_name: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for event in events.into_iter().filter(|event| event["ph"] == "X") {
        let (start, length) = (event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap());
        let thread = event["tid"].as_u64().unwrap();
        by_thread.entry(thread).or_default().push((start, start + length));
        let name = event["name"].as_str().unwrap().to_owned();
        by_name.entry(name).or_default().push(event);
    }
    for intervals in by_thread.values_mut() {
        intervals.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
        let mut open: Vec<f64> = Vec::new();
        for &(start, end) in &*intervals {
            // Times have whole nanoseconds; a microsecond's fraction as a float has not.
            while open.last().is_some_and(|&last| last <= start + 1e-3) {
                open.pop();
            }
            assert!(
                open.last().is_none_or(|&last| end <= last + 1e-3),
                "spans of a thread overlap"
            );
            open.push(end);
        }
    }
    by_name
}

fn thread_names(path: &Path) -> BTreeSet<String> {
    let events: Vec<Value> = serde_json::from_slice(&fs_err::read(path).unwrap()).unwrap();
    events
        .iter()
        .filter(|event| event["name"] == "thread_name")
        .map(|event| event["args"]["name"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_profile_changes_no_byte_of_a_run_and_shows_its_phases_and_operations() {
    let analyst = Analyst::skilled();
    let scratch = Scratch::new(&analyst.base_url);
    let own = ["--set", "seed.analyser=policy", "--set", "run.threads=2"];
    let plain = train(&scratch.config("plain"), &own);
    assert_eq!(plain.code, Some(0), "{}", plain.errors);
    let file = scratch.path("profile.json");
    let mut more = own.to_vec();
    more.extend(["--profile", file.to_str().unwrap(), "--profile-iterations", "3"]);
    let profiled = train(&scratch.config("profiled"), &more);
    assert_eq!(profiled.code, Some(0), "{}", profiled.errors);
    assert!(
        profiled.errors.contains("profile: ") && profiled.errors.contains("ui.perfetto.dev"),
        "{}",
        profiled.errors
    );
    let results = |name: &str| {
        let mut contents = contents(&scratch.path(name));
        contents.remove("config.resolved.toml");
        contents
    };
    let expected = results("plain");
    assert!(expected.contains_key("metrics.jsonl"));
    assert_same_contents(&results("profiled"), &expected, "with a profile");

    let spans = spans(&file);
    let count = |name: &str| spans.get(name).map_or(0, Vec::len);
    assert_eq!(count("iteration"), 6);
    for phase in ["rollout", "analysis", "rescore", "update"] {
        assert_eq!(count(phase), 6, "{phase}");
    }
    for name in [
        "evaluation",
        "checkpoint",
        "environment",
        "engine_step",
        "step_group",
        "score",
        "score_pack",
        "mini_batch",
        "pack",
        "forward",
        "head",
        "loss",
        "head_backward",
        "backward",
        "optimiser_step",
        "repack",
        "matmul",
        "accumulate_outer",
        "attention",
        "attention_backward",
        "token_log_probs",
        "rms_norm",
        "swiglu",
        "rotate",
        "adamw_step",
    ] {
        assert!(count(name) > 0, "{name} is not there");
    }
    let total = |name: &str, argument: &str| -> u64 {
        spans[name]
            .iter()
            .map(|span| span["args"][argument].as_u64().unwrap())
            .sum()
    };
    assert_eq!(
        total("engine_step", "rows"),
        total("engine_step", "prefill") + total("engine_step", "decode")
    );
    assert_eq!(
        total("engine_step", "rows"),
        total("step_group", "rows"),
        "no row is computed twice"
    );
    // Three iterations in detail: what the metrics counted is what the packs held.
    let computed: f64 = fs_err::read_to_string(scratch.path("profiled/metrics.jsonl"))
        .unwrap()
        .lines()
        .filter_map(|line| {
            serde_json::from_str::<Value>(line).unwrap()["metrics"]["cost/update_tokens"].as_f64()
        })
        .take(3)
        .sum();
    assert_eq!(total("pack", "rows"), computed as u64);
    let threads = thread_names(&file);
    for name in ["main", "kernels-1"] {
        assert!(threads.contains(name), "{name} is none of {threads:?}");
    }
}

#[test]
fn a_stopped_or_failed_command_leaves_a_whole_profile() {
    let analyst = Analyst::skilled();
    let scratch = Scratch::new(&analyst.base_url);
    let config = scratch.config("stopped");
    let file = scratch.path("stopped.json");
    let mut child = program()
        .arg("train")
        .arg(&config)
        .args(["--set", "algorithm.iterations=100000", "--profile"])
        .arg(&file)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let metrics = scratch.path("stopped/metrics.jsonl");
    while fs_err::read_to_string(&metrics).map_or(0, |text| text.lines().count()) < 4 {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let line = format!("kill -INT {}", child.id());
    assert!(Command::new("sh").args(["-c", &line]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(75),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let stopped = spans(&file);
    let numbers = |name: &str| -> Vec<u64> {
        stopped[name]
            .iter()
            .map(|span| span["args"]["number"].as_u64().unwrap())
            .collect()
    };
    let iterations = numbers("iteration");
    assert_eq!(iterations, (1..=iterations.len() as u64).collect::<Vec<_>>());
    assert_eq!(numbers("update"), iterations);
    assert_eq!(
        numbers("checkpoint").last(),
        iterations.last(),
        "the one written when it was stopped is there"
    );
    assert!(iterations.len() >= 4);

    let failed = scratch.path("failed.json");
    let ended = finish(
        program()
            .arg("eval")
            .arg(&config)
            .args(["--min", "0.99", "--profile"])
            .arg(&failed),
    );
    assert_eq!(ended.code, Some(1), "{}", ended.errors);
    assert!(spans(&failed)["engine_step"].len() > 1);
}

#[test]
fn fine_tuning_is_recorded_in_detail_for_as_many_updates_as_asked_for() {
    let scratch = Scratch::new("http://127.0.0.1:1/v1");
    let examples = scratch.path("examples.jsonl");
    seed_run::write_json_lines(&examples, lessons()).unwrap();
    let config = scratch.path("sft.toml");
    let text = format!(
        "[run]\ndirectory = {:?}\n[model]\npath = {:?}\ncontext_length = 512\n[sft]\ndata = [{examples:?}]\n\
         epochs = 2\nbatch_rows = 4\nmax_length = 512\n",
        scratch.path("tuned"),
        scratch.model.path(),
    );
    fs_err::write(&config, text).unwrap();
    let file = scratch.path("sft.json");
    let mut command = program();
    command.arg("sft").arg(&config).arg("--profile").arg(&file);
    let ended = finish(command.args(["--profile-iterations", "1"]));
    assert_eq!(ended.code, Some(0), "{}", ended.errors);
    let spans = spans(&file);
    assert!(spans["update"].len() > 2);
    assert_eq!(spans["optimiser_step"].len(), 1, "of the first update");
}

#[test]
fn a_file_that_cannot_be_written_is_named_before_anything_runs() {
    let scratch = Scratch::new("http://127.0.0.1:1/v1");
    let config = scratch.config("run");
    let file = scratch.path("nowhere/profile.json");
    let ended = train(&config, &["--profile", file.to_str().unwrap()]);
    insta::assert_snapshot!("unwritable", scratch.shown(&last_lines(&ended)));
    assert!(!scratch.path("run").exists(), "no run was begun");
}
