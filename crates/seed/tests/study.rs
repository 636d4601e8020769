//! Studies as a person runs them: stopped, killed, shared between processes, with a cell that cannot work, and changed.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests fail as tests do")]

mod common;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::support::analyst::Analyst;
use common::support::{assert_same_contents, contents};
use common::{Scratch, finish, last_lines, program};

const ARMS: &str = r#"
[[arm]]
name = "GRPO"
baseline = true
algorithm.name = "grpo"

[[arm]]
name = "SEED"
algorithm.name = "seed"

[[panel]]
name = "final"
splits = ["seen"]
temperatures = [0.4, 1.0]
tasks = 2

[[panel]]
name = "teacher"
splits = ["seen"]
tasks = 2
prompts = ["plain", "own_skill", "oracle_skill", "other_skill"]
weights = ["initial", "final"]
"#;

/// A study of a scratch folder.
struct Toy {
    scratch: Scratch,
    file: PathBuf,
}

impl Toy {
    fn new(base_url: &str) -> Self {
        let scratch = Scratch::new(base_url);
        scratch.config("base");
        let toy = Self {
            file: scratch.path("STUDY.toml"),
            scratch,
        };
        toy.write("[3, 4]", ARMS);
        toy
    }

    fn write(&self, seeds: &str, arms: &str) {
        let (config, directory) = (self.scratch.path("base.toml"), self.directory());
        let text = format!(
            "name = \"toy\"\nconfig = {:?}\ndirectory = {:?}\nseeds = {seeds}\n\n[set]\nevaluation.before_training = true\n{arms}",
            config.display().to_string(),
            directory.display().to_string()
        );
        fs_err::write(&self.file, text).unwrap();
    }

    fn directory(&self) -> PathBuf {
        self.scratch.path("study")
    }

    fn cell(&self, arm: &str, seed: u64) -> PathBuf {
        self.directory().join(format!("cells/base/{arm}/seed-{seed}"))
    }

    fn command(&self) -> Command {
        let mut command = program();
        command.arg("study").arg(&self.file);
        command
    }

    fn start(&self) -> Child {
        self.command()
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }
}

/// Waits until a cell has so many lines of metrics, or the child has ended.
fn wait_for(child: &mut Child, cell: &Path, lines: usize) {
    let count = || fs_err::read_to_string(cell.join("metrics.jsonl")).map_or(0, |text| text.lines().count());
    while count() < lines && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn stopped_killed_and_shared_it_ends_with_the_bytes_of_single_runs() {
    let analyst = Analyst::skilled();
    let toy = Toy::new(&analyst.base_url);
    let dry = finish(toy.command().arg("--dry-run"));
    assert_eq!(dry.code, Some(0), "{}", dry.errors);
    insta::assert_snapshot!("dry_run_of_a_study", dry.output);
    assert!(!toy.directory().exists(), "a dry run begins nothing");

    // Ctrl-C in the first cell.
    let mut child = toy.start();
    wait_for(&mut child, &toy.cell("GRPO", 3), 2);
    let line = format!("kill -INT {}", child.id());
    assert!(Command::new("sh").args(["-c", &line]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(75), "{errors}");
    assert!(
        errors.contains("everything saved; the same command goes on"),
        "{errors}"
    );
    assert!(!toy.cell("SEED", 3).exists());

    // Killed in the second.
    let mut child = toy.start();
    wait_for(&mut child, &toy.cell("SEED", 3), 3);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(
        !toy.cell("SEED", 3).join("summary.json").exists(),
        "killed in the middle"
    );

    // Two processes share the rest.
    let both = [toy.start(), toy.start()];
    for child in both {
        let output = child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
    }
    let again = finish(&mut toy.command());
    assert_eq!(again.code, Some(0), "{}", again.errors);
    assert!(again.errors.contains("4 of 4 cells done"), "{}", again.errors);

    for (arm, seed) in [("GRPO", 3), ("SEED", 3), ("GRPO", 4), ("SEED", 4)] {
        let cell = toy.cell(arm, seed);
        let alone = toy.scratch.path(&format!("alone-{arm}-{seed}"));
        let directory = format!("run.directory={}", alone.display());
        let trained = finish(
            program()
                .arg("train")
                .arg(cell.join("config.resolved.toml"))
                .args(["--set", &directory]),
        );
        assert_eq!(trained.code, Some(0), "{}", trained.errors);
        let results = |run: &Path| {
            let mut contents = contents(run);
            contents.remove("config.resolved.toml");
            contents.remove("panels.jsonl");
            contents
        };
        assert_same_contents(&results(&cell), &results(&alone), &format!("{arm}, seed {seed}"));
    }

    let report = finish(program().arg("study").arg("report").arg(&toy.file));
    assert_eq!(report.code, Some(0), "{}", report.errors);
    assert!(
        report.output.contains("4 of 4 cells complete; baseline `GRPO`"),
        "{}",
        report.output
    );
    let text = fs_err::read_to_string(toy.directory().join("report/report.md")).unwrap();
    for heading in [
        "All 4 cells are complete",
        "## Finals",
        "## With a skill in the prompt",
        "## Skills",
        "| SEED |",
    ] {
        assert!(text.contains(heading), "{heading}: {text}");
    }
    for (start, _) in text.match_indices("](") {
        let picture: String = text[start + 2..]
            .chars()
            .take_while(|letter| *letter != ')')
            .collect();
        assert!(
            toy.directory().join("report").join(&picture).exists(),
            "{picture}"
        );
    }
    let same = finish(program().arg("study").arg("report").arg(toy.directory()));
    assert_eq!(same.output, report.output, "the directory is enough");
}

#[test]
fn a_cell_that_fails_is_noted_and_the_others_go_on() {
    let analyst = Analyst::skilled();
    let toy = Toy::new(&analyst.base_url);
    toy.write("[3]", ARMS);
    // A file where the cell's folder should be.
    let taken = toy.cell("GRPO", 3);
    fs_err::create_dir_all(taken.parent().unwrap()).unwrap();
    fs_err::write(&taken, "in the way").unwrap();
    let ended = finish(&mut toy.command());
    assert_eq!(ended.code, Some(3), "{}", ended.errors);
    assert!(
        ended.errors.contains(
            "error: 1 of 2 cells done, 1 failed: base/GRPO/seed-3; the same command tries them again"
        ),
        "{}",
        ended.errors
    );
    let dry = finish(toy.command().arg("--dry-run"));
    assert!(
        dry.output.contains("failed 0/6") && dry.output.contains("failed: base/GRPO/seed-3: "),
        "{}",
        dry.output
    );
    let report = finish(program().arg("study").arg("report").arg(&toy.file));
    assert_eq!(report.code, Some(0), "{}", report.errors);
    let text = fs_err::read_to_string(toy.directory().join("report/report.md")).unwrap();
    assert!(
        text.contains("| base/GRPO/seed-3 | failed, at iteration 0: "),
        "{text}"
    );

    fs_err::remove_file(&taken).unwrap();
    let again = finish(&mut toy.command());
    assert_eq!(again.code, Some(0), "{}", again.errors);
    assert!(again.errors.contains("2 of 2 cells done"), "{}", again.errors);
}

#[test]
fn a_call_for_some_arms_leaves_the_others_open() {
    let analyst = Analyst::skilled();
    let toy = Toy::new(&analyst.base_url);
    toy.write("[3]", ARMS);
    let some = finish(toy.command().args(["--arms", "SEED"]));
    assert_eq!(some.code, Some(0), "{}", some.errors);
    let ending = "cells of other arms that are left: 1\n1 of 2 cells done";
    assert!(some.errors.contains(ending), "{}", some.errors);
    assert!(!toy.cell("GRPO", 3).exists());

    let unknown = finish(toy.command().args(["--arms", "SEED,GRP"]));
    assert_eq!(unknown.code, Some(2), "{}", unknown.errors);
    let message = "the study has no arm `GRP` (did you mean `GRPO`?); its arms are GRPO, SEED";
    assert!(unknown.errors.contains(message), "{}", unknown.errors);

    let all = finish(&mut toy.command());
    assert!(all.errors.contains("2 of 2 cells done"), "{}", all.errors);
}

#[test]
fn shipped_studies_say_what_they_will_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (study, cells) in [
        ("study", 146),
        ("development", 18),
        ("exploration", 40),
        ("larger", 10),
        ("slower", 16),
    ] {
        let file = format!("studies/household/{study}.toml");
        let planned = finish(program().current_dir(&root).args(["study", &file, "--dry-run"]));
        assert_eq!(planned.code, Some(0), "{file}: {}", planned.errors);
        let count = format!(" of {cells} cells done");
        assert!(planned.output.contains(&count), "{file}: {}", planned.output);
    }
}

#[test]
fn a_plan_that_was_changed_under_its_cells_is_refused() {
    let analyst = Analyst::skilled();
    let toy = Toy::new(&analyst.base_url);
    toy.write("[3]", ARMS);
    let first = finish(&mut toy.command());
    assert_eq!(first.code, Some(0), "{}", first.errors);

    let changed = ARMS
        .replace(
            "algorithm.name = \"seed\"",
            "algorithm.name = \"seed\"\nseed.beta = 2.0\nevaluation.temperature = 0.9",
        )
        .replace("temperatures = [0.4, 1.0]", "temperatures = [0.4]");
    toy.write("[4]", &changed);
    let message = last_lines(&finish(&mut toy.command()));
    insta::assert_snapshot!("a_changed_plan", toy.scratch.shown(&message));

    // Speed and additions change nothing that was begun.
    let added = format!(
        "run.threads = 1\n{ARMS}\n[[arm]]\nname = \"Skill-Prompt\"\nlike = \"GRPO\"\nagainst = [\"SEED\"]\n\
         algorithm.iterations = 0\nevaluation.prompts = [\"plain\", \"library_skill\"]\n"
    );
    toy.write("[3]", &added);
    let more = finish(&mut toy.command());
    assert_eq!(more.code, Some(0), "{}", more.errors);
    assert!(more.errors.contains("3 of 3 cells done"), "{}", more.errors);
    let report = finish(program().arg("study").arg("report").arg(&toy.file));
    let text = fs_err::read_to_string(toy.directory().join("report/report.md")).unwrap();
    for row in [
        "| base | Skill-Prompt | seen | library_skill | 1 | 0 |",
        "| final, seen, T 0.4 | Skill-Prompt | GRPO | 1 |",
        "| area, equal CPU, seen | Skill-Prompt, library_skill | GRPO | 1 |",
        "| area, equal episodes, seen | Skill-Prompt | SEED | 1 |",
    ] {
        assert!(text.contains(row), "{row}: {} {text}", report.errors);
    }

    toy.write("[3]", &ARMS.replace("baseline", "basline"));
    let message = last_lines(&finish(&mut toy.command()));
    insta::assert_snapshot!("a_wrong_study", toy.scratch.shown(&message));
}
