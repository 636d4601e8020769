//! The program killed at any moment: what was begun ends with the bytes of a run that nobody disturbed.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests fail as tests do")]

mod common;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::support::analyst::Analyst;
use common::support::{assert_same_contents, contents};
use common::{Scratch, last_lines, program, train};
use seed_random::{Draw, RandomKey};

/// All files of a run but the resolved configuration, which names the run's own directory.
fn results(run: &Path) -> std::collections::BTreeMap<String, Vec<u8>> {
    let mut contents = contents(run);
    contents.remove("config.resolved.toml");
    contents
}

fn start(config: &Path, more: &[&str], resume: bool) -> Child {
    let mut command = program();
    command
        .arg("train")
        .arg(config)
        .args(more)
        .args(resume.then_some("--resume"));
    command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Sleeps until a condition holds or the child has ended.
fn wait_for(child: &mut Child, condition: impl Fn() -> bool) {
    while !condition() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_micros(300));
    }
}

fn is_saving(run: &Path) -> bool {
    let names = fs_err::read_dir(run.join("checkpoints"))
        .into_iter()
        .flatten()
        .flatten();
    names
        .into_iter()
        .any(|entry| entry.file_name().to_string_lossy().contains(".tmp-"))
}

#[test]
fn killed_at_any_moment_and_resumed_it_ends_with_the_same_bytes() {
    kill_and_resume(25, &[]);
}

#[test]
fn killed_while_it_trains_an_adapter_it_ends_with_the_same_bytes() {
    kill_and_resume(9, &["--set", "adapter.enabled=true", "--set", "adapter.rank=2"]);
}

/// Runs with the arguments `more`, killed `count` times altogether.
fn kill_and_resume(count: usize, more: &[&str]) {
    let analyst = Analyst::skilled();
    let scratch = Scratch::new(&analyst.base_url);
    let begun = Instant::now();
    let whole = train(&scratch.config("whole"), more);
    let span = begun.elapsed().as_secs_f64();
    assert_eq!(whole.code, Some(0), "{}", whole.errors);
    let expected = results(&scratch.path("whole"));
    let mut draw = RandomKey::new(2_607).generator();
    let (mut kills, mut in_saving, mut round) = (0, 0, 0);
    while kills < count {
        round += 1;
        let name = format!("round-{round}");
        let (config, run) = (scratch.config(&name), scratch.path(&name));
        loop {
            // Killed before it was one, the folder holds no run yet.
            let mut child = start(&config, more, run.join("run.json").exists());
            if kills < count {
                let at = Instant::now() + Duration::from_secs_f64(draw.unit() * span);
                // Every third time in the middle of saving, if it comes to that.
                let waits_for_saving = kills % 3 == 2;
                wait_for(&mut child, || {
                    Instant::now() >= at && (!waits_for_saving || is_saving(&run))
                });
            }
            if kills >= count || child.try_wait().unwrap().is_some() {
                let output = child.wait_with_output().unwrap();
                assert!(
                    output.status.success(),
                    "{}",
                    String::from_utf8_lossy(&output.stderr)
                );
                break;
            }
            child.kill().unwrap();
            child.wait().unwrap();
            kills += 1;
            in_saving += usize::from(is_saving(&run));
        }
        assert_same_contents(&results(&run), &expected, &format!("after {kills} kills"));
    }
    assert!(
        in_saving > 0,
        "none of {kills} kills in {round} runs fell into saving"
    );
}

fn signal(child: &Child, name: &str) {
    let line = format!("kill -{name} {}", child.id());
    assert!(Command::new("sh").args(["-c", &line]).status().unwrap().success());
}

#[test]
fn a_stop_signal_saves_and_says_how_to_go_on() {
    let analyst = Analyst::skilled();
    let scratch = Scratch::new(&analyst.base_url);
    let longer = [
        "--set",
        "algorithm.iterations=40",
        "--set",
        "checkpoint.every=100",
        "--set",
        "evaluation.every=0",
    ];
    let whole = train(&scratch.config("whole"), &longer);
    assert_eq!(whole.code, Some(0), "{}", whole.errors);
    for (name, number) in [("TERM", 1), ("INT", 2), ("USR1", 3)] {
        let run = scratch.path(name);
        let config = scratch.config(name);
        let mut command = program();
        command
            .arg("train")
            .arg(&config)
            .args(longer)
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines =
            || fs_err::read_to_string(run.join("metrics.jsonl")).map_or(0, |text| text.lines().count());
        wait_for(&mut child, || lines() >= number);
        signal(&child, name);
        let output = child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(75), "{errors}");
        assert!(
            errors.contains("stopped: stopped at iteration") && errors.contains("`--resume`"),
            "{errors}"
        );
        let mut more = longer.to_vec();
        more.push("--resume");
        let resumed = train(&config, &more);
        assert_eq!(resumed.code, Some(0), "{}", resumed.errors);
        assert!(
            resumed.errors.contains("resuming after iteration"),
            "{}",
            resumed.errors
        );
        let last = |run: &Path| {
            let mut contents = results(run);
            let newest = "checkpoints/step-00000040/";
            contents.retain(|name, _| !name.starts_with("checkpoints/") || name.starts_with(newest));
            contents
        };
        assert_same_contents(&last(&run), &last(&scratch.path("whole")), name);
    }
}

#[test]
fn a_second_trainer_is_told_who_is_there() {
    let analyst = Analyst::skilled();
    let scratch = Scratch::new(&analyst.base_url);
    let config = scratch.config("run");
    assert_eq!(train(&config, &[]).code, Some(0));
    let holder = seed_run::RunDirectory::open(&scratch.path("run")).unwrap();
    let second = train(&config, &["--resume"]);
    let shown = scratch
        .shown(&last_lines(&second))
        .replace(&std::process::id().to_string(), "[process]");
    let host = fs_err::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    insta::assert_snapshot!("second_trainer", shown.replace(host.trim(), "[host]"));
    drop(holder);
    insta::assert_snapshot!("run_exists", scratch.shown(&last_lines(&train(&config, &[]))));
    assert_eq!(
        train(&config, &["--resume"]).code,
        Some(0),
        "a finished run has nothing left to do"
    );
    let changed = train(
        &config,
        &[
            "--resume",
            "--set",
            "seed.beta=2",
            "--set",
            "rollout.temperature=0.9",
        ],
    );
    insta::assert_snapshot!("resume_with_other_settings", scratch.shown(&last_lines(&changed)));
    let faster = train(
        &config,
        &[
            "--resume",
            "--set",
            "rollout.max_active_sequences=1",
            "--set",
            "run.threads=1",
        ],
    );
    assert_eq!(faster.code, Some(0), "{}", faster.errors);
    let elsewhere = format!("run.directory={}", scratch.path("elsewhere").display());
    let absent = train(&config, &["--resume", "--set", &elsewhere]);
    insta::assert_snapshot!("resume_without_a_run", scratch.shown(&last_lines(&absent)));
}

#[test]
fn a_damaged_checkpoint_is_passed_over_with_a_warning() {
    let analyst = Analyst::skilled();
    let scratch = Scratch::new(&analyst.base_url);
    let config = scratch.config("run");
    assert_eq!(train(&config, &[]).code, Some(0));
    let expected = results(&scratch.path("run"));
    let weights = scratch.path("run/checkpoints/step-00000006/model/model.safetensors");
    let bytes = fs_err::read(&weights).unwrap();
    fs_err::write(&weights, &bytes[..bytes.len() - 100]).unwrap();
    let resumed = train(&config, &["--resume"]);
    assert_eq!(resumed.code, Some(0), "{}", resumed.errors);
    let lines: Vec<&str> = resumed
        .errors
        .lines()
        .filter(|line| line.contains("warning") || line.contains("resum"))
        .collect();
    insta::assert_snapshot!("damaged_checkpoint", scratch.shown(&lines.join("\n")));
    assert_same_contents(&results(&scratch.path("run")), &expected, "made again");
}
