//! Wrong input, missing data and a full disk: each ends with its exit code and a message that says what to do.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests fail as tests do")]

mod common;

use std::process::Command;

use common::support::analyst::Analyst;
use common::support::{assert_same_contents, contents};
use common::{Scratch, failure, finish, isolate, last_lines, program, seed, shared_data, train};

const NOBODY: &str = "http://127.0.0.1:1/v1";

#[test]
fn missing_data_is_named_with_what_to_do() {
    let scratch = Scratch::new(NOBODY);
    let config = scratch.config("run");
    let alfworld = ["--set", "world.name=alfworld"];
    insta::assert_snapshot!(
        "no_data_folder",
        scratch.shown(&last_lines(&train(&config, &alfworld)))
    );
    assert!(!scratch.path("run").exists(), "nothing was begun");
    let folder = scratch.path("absent");
    let data = format!("world.data={}", folder.display());
    let named = train(&config, &[&alfworld[..], &["--set", &data]].concat());
    insta::assert_snapshot!("absent_data_folder", scratch.shown(&last_lines(&named)));
    let listed = seed(&["env", "tasks", "alfworld", "--data", folder.to_str().unwrap()]);
    insta::assert_snapshot!("absent_data_folder_of_env", scratch.shown(&failure(&listed)));
    let verified = seed(&["env", "verify", "absent.jsonl"]);
    insta::assert_snapshot!("verify_without_data", failure(&verified));
}

/// A data folder with one game.
fn one_game(scratch: &Scratch, name: &str, game: &str) -> std::path::PathBuf {
    let data = scratch.path(name);
    let trial = data.join("json_2.1.1/valid_seen/pick_and_place_simple-Mug-None-Desk-301/trial_T1");
    fs_err::create_dir_all(&trial).unwrap();
    fs_err::write(trial.join("game.tw-pddl"), game).unwrap();
    fs_err::write(
        trial.join("traj_data.json"),
        "{\"task_type\": \"pick_and_place_simple\"}",
    )
    .unwrap();
    data
}

#[test]
fn games_of_other_rules_are_refused() {
    let scratch = Scratch::new(NOBODY);
    let config = scratch.config("run");
    let open = |data: &std::path::Path| {
        let set = format!("world.data={}", data.display());
        train(&config, &["--set", "world.name=alfworld", "--set", &set])
    };
    let domain = "{\"pddl_domain\": \"(define (domain other))\", \"grammar\": \"\", \"pddl_problem\": \"\", \
                  \"solvable\": true, \"walkthrough\": []}";
    let data = one_game(&scratch, "domain", domain);
    insta::assert_snapshot!("wrong_domain", scratch.shown(&last_lines(&open(&data))));
    let data = one_game(&scratch, "cut", &domain[..60]);
    insta::assert_snapshot!("cut_game_file", scratch.shown(&last_lines(&open(&data))));
    assert!(!scratch.path("run").exists(), "nothing was begun");
    let Some(shared) = shared_data() else { return };
    let mut folder = shared.join("sample/json_2.1.1/valid_unseen");
    for _ in 0..2 {
        let mut entries: Vec<_> = fs_err::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        entries.sort();
        folder = entries.swap_remove(0);
    }
    let game = fs_err::read_to_string(folder.join("game.tw-pddl")).unwrap();
    assert!(game.contains("You move the"));
    let data = one_game(&scratch, "grammar", &game.replace("You move the", "You put the"));
    insta::assert_snapshot!("wrong_grammar", scratch.shown(&last_lines(&open(&data))));
    // The genuine game is taken.
    let data = one_game(&scratch, "genuine", &game);
    let listed = seed(&["env", "tasks", "alfworld", "--data", data.to_str().unwrap()]);
    assert_eq!(
        (listed.code, listed.output.lines().count()),
        (Some(0), 1),
        "{}",
        listed.errors
    );
}

#[test]
fn a_broken_model_is_named_by_file_and_tensor() {
    let scratch = Scratch::new(NOBODY);
    let config = scratch.config("run");
    let weights = scratch.model.path().join("model.safetensors");
    let whole = fs_err::read(&weights).unwrap();
    let attempt = || {
        let ended = train(&config, &[]);
        scratch.shown(&last_lines(&ended))
    };
    fs_err::write(&weights, &whole[..whole.len() / 2]).unwrap();
    insta::assert_snapshot!("truncated_weights", attempt());
    let mut poisoned = whole.clone();
    let end = poisoned.len();
    poisoned[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    fs_err::write(&weights, poisoned).unwrap();
    insta::assert_snapshot!("weights_with_nan", attempt());
    fs_err::remove_file(&weights).unwrap();
    insta::assert_snapshot!("missing_weights", attempt());
    fs_err::write(&weights, &whole).unwrap();
    let template = scratch.model.path().join("chat_template.jinja");
    fs_err::write(&template, "{% for message in messages %}{{ message.content }").unwrap();
    insta::assert_snapshot!("broken_chat_template", attempt());
    // Once the model is whole again, the same command works: the failures have left no run behind.
    fs_err::write(&template, seed_model::CHATML_TEMPLATE).unwrap();
    let quick = ["--set", "algorithm.iterations=1", "--set", "algorithm.name=grpo"];
    let ended = train(&config, &quick);
    assert_eq!(ended.code, Some(0), "{}", ended.errors);
    let absent = format!("model.path={}", scratch.path("absent").display());
    insta::assert_snapshot!(
        "absent_model",
        scratch.shown(&last_lines(&train(&config, &["--set", &absent])))
    );
}

#[test]
fn wrong_configurations_are_explained() {
    let scratch = Scratch::new(NOBODY);
    let config = scratch.config("run");
    let text = fs_err::read_to_string(&config).unwrap();
    let misspelt = scratch.path("misspelt.toml");
    fs_err::write(
        &misspelt,
        text.replace("samples_per_task", "sample_per_task")
            .replace("[optimiser]", "[optimizer]"),
    )
    .unwrap();
    insta::assert_snapshot!("unknown_keys", scratch.shown(&failure(&train(&misspelt, &[]))));
    let absent = scratch.path("absent.toml");
    insta::assert_snapshot!(
        "absent_configuration",
        scratch.shown(&failure(&train(&absent, &[])))
    );
    let broken = scratch.path("broken.toml");
    fs_err::write(&broken, "[run]\nname = \"unclosed\n").unwrap();
    insta::assert_snapshot!("no_toml", scratch.shown(&failure(&train(&broken, &[]))));
    let wrong = [
        "--set",
        "rollout.samples_per_task=1",
        "--set",
        "rollout.temperature=0",
        "--set",
        "seed.gate=soft",
    ];
    insta::assert_snapshot!("wrong_values", scratch.shown(&failure(&train(&config, &wrong))));
    insta::assert_snapshot!(
        "wrong_override",
        scratch.shown(&failure(&train(&config, &["--set", "temperature"])))
    );
    assert!(!scratch.path("run").exists(), "nothing was begun");
}

#[test]
fn a_key_is_not_sent_in_the_open() {
    let scratch = Scratch::new("http://analyst.example/v1");
    let config = scratch.config("run");
    insta::assert_snapshot!(
        "key_over_plain_http",
        scratch.shown(&last_lines(&train(&config, &[])))
    );
    let pasted = train(&config, &["--set", "endpoint.api_key_env=sk-secret"]);
    assert!(
        pasted.code == Some(2) && !pasted.errors.contains("sk-secret"),
        "{}",
        pasted.errors
    );
    assert!(!scratch.path("run").exists(), "nothing was begun");
}

#[test]
fn an_endpoint_that_is_down_costs_the_skills_and_not_the_run() {
    let scratch = Scratch::new(&Analyst::nobody());
    let quick = ["--set", "algorithm.iterations=2"];
    let ended = train(&scratch.config("run"), &quick);
    assert_eq!(ended.code, Some(0), "{}", ended.errors);
    let records = seed_run::metrics::read_records(&scratch.path("run/metrics.jsonl")).unwrap();
    for record in &records {
        let value = |name: &str| record.metrics[name].unwrap();
        assert_eq!(
            (value("analysis/requests"), value("analysis/failed_requests")),
            (6.0, 6.0)
        );
        assert_eq!((value("seed/row_share"), value("policy/updates")), (0.0, 2.0));
    }
    assert_eq!(records.len(), 2);
    assert!(
        ended.errors.contains("skills   0 %"),
        "the line of the iteration shows it: {}",
        ended.errors
    );
}

#[test]
fn wrong_words_on_the_command_line_are_usage_errors() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().display().to_string();
    let shown = |arguments: &[&str]| failure(&seed(arguments)).replace(&here, "[folder]");
    insta::assert_snapshot!(
        "unknown_task",
        shown(&["env", "play", "--task", "household-studio/seen/999999"])
    );
    insta::assert_snapshot!(
        "unknown_split",
        shown(&["env", "tasks", "household-studio", "--split", "valid_seen"])
    );
    insta::assert_snapshot!("unknown_world", shown(&["env", "tasks", "sokoban"]));
    insta::assert_snapshot!(
        "unknown_size",
        shown(&["env", "generate", &here, "--size", "huge"])
    );
    insta::assert_snapshot!("unknown_key", shown(&["config", "explain", "rollout.top_q"]));
    insta::assert_snapshot!("not_a_run", shown(&["compare", &here]));
    assert_eq!(seed(&["train"]).code, Some(2));
    assert_eq!(seed(&["fly"]).code, Some(2));
}

#[test]
fn damaged_records_are_named_by_line() {
    let scratch = Scratch::new(NOBODY);
    let config = scratch.config("run");
    let path = scratch.path("trajectories.jsonl");
    fs_err::write(&path, "{\"task\": 1}\n").unwrap();
    let out = scratch.path("skills.jsonl");
    let mut command = program();
    command
        .arg("annotate")
        .arg(&config)
        .args(["--annotator", "rules", "--trajectories"])
        .arg(&path);
    let ended = finish(command.arg("--out").arg(&out));
    insta::assert_snapshot!("damaged_trajectories", scratch.shown(&failure(&ended)));
    assert!(!out.exists());
}

/// Runs the program with files limited to `blocks` of 512 bytes, so that longer ones cannot be written: what a full
/// disk or a quota does, without needing either.
fn limited(blocks: u32, config: &std::path::Path) -> common::Ended {
    let mut command = Command::new("sh");
    let line = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$1\" train \"$2\"");
    command
        .args(["-c", &line, "sh", env!("CARGO_BIN_EXE_seed")])
        .arg(config);
    isolate(&mut command);
    finish(&mut command)
}

#[test]
fn a_full_disk_ends_the_run_by_name_and_loses_nothing() {
    let analyst = Analyst::skilled();
    let scratch = Scratch::new(&analyst.base_url);
    let whole = train(&scratch.config("whole"), &[]);
    assert_eq!(whole.code, Some(0), "{}", whole.errors);
    let mut expected = contents(&scratch.path("whole"));
    expected.remove("config.resolved.toml");
    // From so little that not even the configuration fits, to enough for all but the largest file.
    let mut named = Vec::new();
    for blocks in [1, 8, 16, 24, 48, 96, 200, 400] {
        let name = format!("run-{blocks}");
        let (config, run) = (scratch.config(&name), scratch.path(&name));
        let ended = limited(blocks, &config);
        if ended.code == Some(0) {
            continue;
        }
        let message = scratch.shown(&last_lines(&ended));
        assert_eq!(ended.code, Some(4), "with {blocks} blocks: {message}");
        assert!(
            message.contains(&format!("[scratch]/{name}/")),
            "it names the file: {message}"
        );
        named.push(
            message
                .replace(&name, "run")
                .lines()
                .nth(1)
                .unwrap_or_default()
                .to_owned(),
        );
        // With room again the run goes on, or begins if it never did.
        let more: &[&str] = if run.join("run.json").exists() {
            &["--resume"]
        } else {
            &[]
        };
        let resumed = train(&config, more);
        assert_eq!(
            resumed.code,
            Some(0),
            "with {blocks} blocks, resumed: {}",
            resumed.errors
        );
        let mut found = contents(&run);
        found.remove("config.resolved.toml");
        assert_same_contents(&found, &expected, &format!("with {blocks} blocks"));
    }
    for file in ["config.resolved.toml", "model.safetensors"] {
        assert!(
            named.iter().any(|message| message.contains(file)),
            "`{file}` is in none of {named:#?}"
        );
    }
}

#[test]
fn what_a_search_world_lacks_is_named() {
    let scratch = Scratch::new(NOBODY);
    let config = scratch.config("run");
    let folder = scratch.path("questions");
    fs_err::create_dir_all(&folder).unwrap();
    let data = format!("world.data={}", folder.display());
    let begin = |set: &[&str]| {
        let mut words = vec!["--set", "world.name=search-qa"];
        for key in set {
            words.extend(["--set", key]);
        }
        scratch.shown(&last_lines(&train(&config, &words)))
    };
    let no_questions = begin(&[]);
    let empty_folder = begin(&[&data]);
    fs_err::write(
        folder.join("train.jsonl"),
        "{\"question\": \"why?\", \"golden_answers\": [\"so\"], \"data_source\": \"x\"}\n",
    )
    .unwrap();
    let no_passages = begin(&[&data]);
    let absent_passages = begin(&[&data, "search.passages=absent.jsonl"]);
    let no_index = begin(&[&data, "search.retriever=dense"]);
    let wrong_address = begin(&[&data, "search.retriever=http", "search.urls=[\"localhost:8000\"]"]);
    let messages = [
        no_questions,
        empty_folder,
        no_passages,
        absent_passages,
        no_index,
        wrong_address,
    ];
    insta::assert_snapshot!("search_world", messages.join("\n----\n"));
    assert!(!scratch.path("run").exists(), "nothing was begun");
}
