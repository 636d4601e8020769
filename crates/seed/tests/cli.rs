//! The command line as a person meets it.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests fail as tests do")]

mod common;

use std::path::Path;

use common::support::analyst::Analyst;
use common::{Scratch, finish, program, seed, shared_data, train, typed};
use serde_json::{Value, json};

#[test]
fn every_command_says_what_it_is_for() {
    let commands = [
        "",
        "demo",
        "train",
        "eval",
        "collect",
        "annotate",
        "demonstrate",
        "sft",
        "chat",
        "import",
        "merge",
        "compare",
        "study",
        "study report",
        "serve",
        "doctor",
        "env",
        "env play",
        "env bench",
        "env verify",
        "env generate",
        "env tasks",
        "retrieve",
        "retrieve index",
        "retrieve serve",
        "config",
        "config explain",
        "config reference",
    ];
    let mut text = String::new();
    for command in commands {
        let mut arguments: Vec<&str> = command.split_whitespace().collect();
        arguments.push("--help");
        let ended = seed(&arguments);
        assert_eq!((ended.code, ended.errors.as_str()), (Some(0), ""), "{command}");
        text += "$ seed ";
        text += &arguments.join(" ");
        text += "\n";
        text += &ended.output;
        text += "\n";
    }
    insta::assert_snapshot!("help", text);
    let version = seed(&["--version"]);
    assert_eq!(version.output, format!("seed {}\n", env!("CARGO_PKG_VERSION")));
    let bare = seed(&[]);
    assert_eq!(
        (bare.code, bare.output.as_str()),
        (Some(2), ""),
        "without a command the help is an error"
    );
}

#[test]
fn a_key_is_explained_with_its_value_and_where_that_comes_from() {
    let scratch = Scratch::new("http://127.0.0.1:1/v1");
    let config = scratch.config("run");
    let explain = |more: &[&str]| {
        let ended = finish(program().args(["config", "explain"]).args(more));
        assert_eq!(ended.code, Some(0), "{}", ended.errors);
        scratch.shown(&ended.output)
    };
    let file = config.to_str().unwrap();
    insta::assert_snapshot!("explain_default", explain(&["rollout.top_p"]));
    insta::assert_snapshot!("explain_file", explain(&["seed.coefficient", "--config", file]));
    insta::assert_snapshot!(
        "explain_override",
        explain(&["run.name", "--config", file, "--set", "run.name=other"])
    );
    let table = explain(&["optimiser", "--json"]);
    let rows: Vec<Value> = serde_json::from_str(&table).unwrap();
    assert!(
        rows.len() >= 9
            && rows
                .iter()
                .all(|row| row["key"].as_str().unwrap().starts_with("optimiser."))
    );
}

#[test]
fn a_dry_run_derives_and_begins_nothing() {
    let scratch = Scratch::new("http://127.0.0.1:1/v1");
    let ended = train(&scratch.config("run"), &["--dry-run"]);
    assert_eq!(ended.code, Some(0));
    insta::assert_snapshot!("dry_run", ended.errors);
    assert!(!scratch.path("run").exists());
}

#[test]
fn tasks_are_listed_and_played() {
    let listed = seed(&["env", "tasks", "household-studio", "--split", "unseen"]);
    assert_eq!(listed.code, Some(0), "{}", listed.errors);
    let tasks: Vec<(&str, &str)> = listed
        .output
        .lines()
        .map(|line| line.split_once('\t').unwrap())
        .collect();
    assert!(tasks.len() >= 60);
    assert!(
        tasks
            .iter()
            .all(
                |(id, family)| id.starts_with("household-studio/unseen/") && family.starts_with("pick_")
                    || *family == "look_at_obj_in_light"
            ),
        "{tasks:?}"
    );
    for (id, _) in [tasks[0], tasks[tasks.len() / 2], tasks[tasks.len() - 1]] {
        let played = seed(&["env", "play", "--player", "optimal", "--task", id]);
        assert_eq!(played.code, Some(0), "{}", played.output);
        assert!(
            played.output.starts_with(id) && played.output.contains("\nwon in "),
            "{}",
            played.output
        );
    }
    let first = seed(&["env", "play", "household-studio", "--player", "optimal"]);
    insta::assert_snapshot!("optimal_play", first.output);
    let random = seed(&["env", "play", "household-studio", "--player", "random"]);
    let searching = seed(&[
        "env",
        "play",
        "household-full",
        "--player",
        "searching",
        "--split",
        "unseen",
    ]);
    for (played, limit) in [(&random, 51), (&searching, 51)] {
        assert!(matches!(played.code, Some(0 | 1)) && played.output.matches("\n> ").count() < limit);
    }
}

#[test]
fn a_person_plays_by_typing() {
    let played = typed(
        program().args(["env", "play", "household-studio"]),
        "?\nlook\nfly away\n",
    );
    let text = played.output;
    assert_eq!(played.code, Some(1), "not won");
    for part in [
        "Your task is to: ",
        "\ninventory\n",
        "Nothing happens.",
        "Not won after 2 steps.",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

#[test]
fn generated_games_are_written_twice_alike_and_can_be_won() {
    let folder = tempfile::tempdir().unwrap();
    let generate = |name: &str, seed_text: &str| {
        let out = folder.path().join(name);
        let out_text = out.to_str().unwrap();
        let ended = seed(&[
            "env", "generate", out_text, "--size", "studio", "--games", "6", "--seed", seed_text,
        ]);
        assert_eq!(ended.code, Some(0), "{}", ended.errors);
        assert!(ended.output.starts_with("6 games in "), "{}", ended.output);
        fs_err::read_to_string(out.join("games.jsonl")).unwrap()
    };
    let games = generate("first", "4");
    assert_eq!(games, generate("second", "4"));
    assert_ne!(games, generate("third", "5"));
    for line in games.lines() {
        let game: Value = serde_json::from_str(line).unwrap();
        assert!(
            !game["walkthrough"].as_array().unwrap().is_empty()
                && game["goal"].as_str().unwrap().ends_with('.')
        );
        assert!(
            game["pddl_problem"]
                .as_str()
                .unwrap()
                .contains("(define (problem")
        );
    }
}

#[test]
fn recorded_episodes_are_replayed_and_a_wrong_word_is_found() {
    let Some(shared) = shared_data() else { return };
    let folder = tempfile::tempdir().unwrap();
    let transcripts = folder.path().join("some.jsonl");
    let recorded = fs_err::read_to_string(shared.join("sample/transcripts.jsonl")).unwrap();
    let some: Vec<&str> = recorded.lines().take(8).collect();
    fs_err::write(&transcripts, format!("{}\n", some.join("\n"))).unwrap();
    let data = shared.join("sample");
    let verify = || {
        seed(&[
            "env",
            "verify",
            transcripts.to_str().unwrap(),
            "--data",
            data.to_str().unwrap(),
        ])
    };
    let ended = verify();
    assert_eq!(ended.code, Some(0), "{}{}", ended.output, ended.errors);
    assert!(ended.output.starts_with("transcripts: 8 episodes, ") && ended.output.contains(" 0 differences"));
    fs_err::write(&transcripts, some[0].replacen("You arrive at", "You are at", 1)).unwrap();
    let ended = verify();
    assert_eq!(ended.code, Some(1), "{}", ended.output);
    assert!(
        ended.output.contains("1 differences") && ended.output.contains("You are at"),
        "{}",
        ended.output
    );
}

/// A run directory as `seed compare` reads it: `rates` are successes of twenty before and after training.
fn finished_run(directory: &Path, name: &str, seed: u64, rates: [usize; 3]) {
    fs_err::create_dir_all(directory).unwrap();
    let interval = |successes: usize| seed_train::statistics::wilson(successes, 20);
    let lines: Vec<String> = rates
        .iter()
        .enumerate()
        .flat_map(|(index, &successes)| {
            ["seen", "unseen"].map(|split| {
                let successes = if split == "seen" { successes } else { successes / 2 };
                let family = json!({ "episodes": 20, "successes": successes, "success": interval(successes) });
                json!({
                    "iteration": index * 10, "episodes": index * 320, "split": split,
                    "evaluation": {
                        "episodes": 20, "successes": successes, "success": interval(successes),
                        "macro_success": successes as f64 / 20.0, "families": { "pick_and_place_simple": family },
                        "mean_steps": 9.5, "valid_action_rate": 1.0, "outcomes": { "success": successes },
                        "temperature": 0.4,
                    },
                })
                .to_string()
            })
        })
        .collect();
    fs_err::write(directory.join("evaluations.jsonl"), lines.join("\n")).unwrap();
    let summary = json!({
        "name": name, "seed": seed, "algorithm": name.to_lowercase(), "iterations": 20, "episodes": 640,
        "seconds": { "rollout": 100.0 + seed as f64, "update": 50.0 },
    });
    fs_err::write(directory.join("summary.json"), summary.to_string()).unwrap();
}

#[test]
fn runs_are_compared_by_arm() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    finished_run(&path("a"), "GRPO", 1, [4, 8, 10]);
    finished_run(&path("b"), "SEED", 1, [4, 10, 14]);
    finished_run(&path("c"), "SEED", 2, [5, 11, 12]);
    let picture = path("curves.svg");
    let compare = |more: &[&str]| {
        let mut command = program();
        command
            .arg("compare")
            .args(["a", "b", "c"].map(path))
            .arg("--picture")
            .arg(&picture)
            .args(more);
        let ended = finish(&mut command);
        assert_eq!(ended.code, Some(0), "{}", ended.errors);
        ended
            .output
            .replace(&folder.path().display().to_string(), "[folder]")
    };
    insta::assert_snapshot!("compare", compare(&[]));
    let svg = fs_err::read_to_string(&picture).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("SEED (2 seeds)") && svg.contains("GRPO (1 seed)"));
    assert!(
        svg.contains(
            "Success on the seen panel, 20 tasks (bars: 95 % intervals over its tasks; bands: range over seeds)"
        ),
        "{svg}"
    );
    let value: Value = serde_json::from_str(&compare(&["--json"])).unwrap();
    assert_eq!(value["arms"][1]["seeds"], json!([1, 2]));
    let last = value["arms"][1]["panels"]["seen"]["last"]["value"]
        .as_f64()
        .unwrap();
    assert!((last - 0.65).abs() < 1e-12, "{last}");
    assert_eq!(value["arms"][0]["panels"]["unseen"]["first"], json!(0.1));
}

#[test]
fn a_model_is_evaluated_on_fixed_panels() {
    let scratch = Scratch::new("http://127.0.0.1:1/v1");
    let config = scratch.config("run");
    let out = scratch.path("result.json");
    let episodes = scratch.path("episodes.jsonl.zst");
    let eval = |more: &[&str]| {
        let mut command = program();
        command.arg("eval").arg(&config).args([
            "--set",
            "evaluation.splits=[seen,unseen]",
            "--set",
            "evaluation.tasks=4",
        ]);
        finish(
            command
                .arg("--out")
                .arg(&out)
                .arg("--trajectories")
                .arg(&episodes)
                .args(more),
        )
    };
    let first = eval(&["--with-skills"]);
    assert_eq!(first.code, Some(0), "{}", first.errors);
    let results = fs_err::read_to_string(&out).unwrap();
    let value: Vec<Value> = serde_json::from_str(&results).unwrap();
    let prompts: Vec<&str> = value
        .iter()
        .map(|result| result["prompt"].as_str().unwrap())
        .collect();
    assert_eq!(
        prompts,
        [
            "plain",
            "library_skill",
            "own_skill",
            "oracle_skill",
            "other_skill"
        ]
        .repeat(2)
    );
    assert!(
        value
            .iter()
            .all(|result| result["evaluation"]["episodes"] == json!(4))
    );
    let trajectories: Vec<seed_rollout::Trajectory> = seed_run::read_json_lines(&episodes)
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(trajectories.len(), 40);
    assert!(
        trajectories[12].steps[0].prompt_text == trajectories[0].steps[0].prompt_text,
        "recorded without the skill"
    );
    assert_ne!(
        trajectories[12].steps[0].prompt_ids, trajectories[0].steps[0].prompt_ids,
        "shown with it"
    );
    let again = eval(&["--with-skills"]);
    assert_eq!(again.output, first.output);
    assert_eq!(
        fs_err::read_to_string(&out).unwrap(),
        results,
        "the same weights give the same bytes"
    );
    let checked = eval(&["--min", "0.99"]);
    assert_eq!(checked.code, Some(1));
    assert!(
        checked.errors.contains("is below the minimum of 99.0 %"),
        "{}",
        checked.errors
    );
    let as_json = eval(&["--json"]);
    assert_eq!(
        serde_json::from_str::<Vec<Value>>(&as_json.output).unwrap().len(),
        2
    );
}

#[test]
fn from_demonstrations_to_a_trained_policy() {
    let analyst = Analyst::skilled();
    let scratch = Scratch::new(&analyst.base_url);
    let world = "[world]\nname = \"household-studio\"\ncontext = \"transcript\"\nprompts = \"compact\"\nmax_steps = 4\n";
    let seed_table = "[seed]\nanalysis_style = \"compact\"\nskill_style = \"compact\"\n";
    let write = |name: &str, text: String| {
        let path = scratch.path(name);
        fs_err::write(&path, text).unwrap();
        path
    };
    let run = |words: &[&std::ffi::OsStr]| {
        let ended = finish(program().args(words));
        assert_eq!(ended.code, Some(0), "{words:?}: {}", ended.errors);
        scratch.shown(&ended.output)
    };
    let demonstrations = scratch.path("demonstrations.jsonl.zst");
    let recipe = write(
        "demonstrate.toml",
        format!("{world}{seed_table}[demonstrations]\nout = {demonstrations:?}\nexamples = 40\n"),
    );
    let shown = run(&["demonstrate".as_ref(), recipe.as_ref()]);
    assert_eq!(shown, "40 examples in [scratch]/demonstrations.jsonl.zst\n");

    let config = scratch.config("run");
    let collected = scratch.path("collected.jsonl.zst");
    let words = [
        "collect".as_ref(),
        config.as_ref(),
        "--tasks".as_ref(),
        "5".as_ref(),
        "--out".as_ref(),
        collected.as_ref(),
    ];
    let shown = run(&words);
    assert!(
        shown.starts_with("15 trajectories (") && shown.ends_with("collected.jsonl.zst\n"),
        "{shown}"
    );
    for annotator in ["rules", "endpoint", "policy"] {
        let skills = scratch.path(&format!("{annotator}.jsonl"));
        let mut words: Vec<&std::ffi::OsStr> =
            vec!["annotate".as_ref(), config.as_ref(), "--trajectories".as_ref()];
        words.extend::<[&std::ffi::OsStr; 5]>([
            collected.as_ref(),
            "--out".as_ref(),
            skills.as_ref(),
            "--annotator".as_ref(),
            annotator.as_ref(),
        ]);
        let shown = run(&words);
        let records = fs_err::read_to_string(&skills).unwrap().lines().count();
        assert_eq!(
            shown,
            format!("{records} records from 15 trajectories in [scratch]/{annotator}.jsonl\n")
        );
        // A policy that was never taught to write skills writes none.
        assert_eq!(records, if annotator == "policy" { 0 } else { 15 });
    }
    let (rules, endpoint) = (scratch.path("rules.jsonl"), scratch.path("endpoint.jsonl"));
    let tuned = write(
        "sft.toml",
        format!(
            "[run]\ndirectory = {:?}\n[model]\ncontext_length = 512\n[initialise]\nenabled = true\nvocabulary_size = 320\n\
             hidden_size = 16\nintermediate_size = 16\nlayers = 1\nquery_heads = 2\nkey_value_heads = 1\nhead_dim = 8\n\
             max_positions = 1024\n[sft]\ndata = [{demonstrations:?}, {rules:?}, {endpoint:?}]\nepochs = 1\n\
             batch_rows = 8\nmax_length = 512\nlearning_rate = 3e-3\n",
            scratch.path("tuned"),
        ),
    );
    let shown = run(&["sft".as_ref(), tuned.as_ref()]);
    assert!(
        shown.contains(" updates on ") && shown.ends_with("weights in [scratch]/tuned/model\n"),
        "{shown}"
    );
    let model = format!("model.path={}", scratch.path("tuned/model").display());
    let grpo = train(
        &config,
        &[
            "--json",
            "--set",
            &model,
            "--set",
            "algorithm.name=grpo",
            "--set",
            "algorithm.iterations=2",
        ],
    );
    assert_eq!(
        (grpo.code, grpo.errors.as_str()),
        (Some(0), ""),
        "machine-readable output alone"
    );
    let events: Vec<Value> = grpo
        .output
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let kinds: Vec<&str> = events
        .iter()
        .map(|event| event["event"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        [
            "iteration",
            "evaluation",
            "iteration",
            "saved",
            "note",
            "finished"
        ]
    );
    assert_eq!(events.last().unwrap()["summary"]["episodes"], json!(12));
}

#[test]
fn shops_are_played_by_script_and_by_hand() {
    let oracle = seed(&["env", "play", "shop", "--player", "optimal"]);
    assert_eq!(oracle.code, Some(0), "{}{}", oracle.output, oracle.errors);
    insta::assert_snapshot!("optimal_purchase", oracle.output);
    let searching = seed(&["env", "play", "shop", "--player", "searching"]);
    assert_eq!(
        (searching.code, searching.errors.as_str()),
        (
            Some(2),
            "error: the searching player plays households; shops have `optimal`, `noisy` and `random`\n"
        )
    );
    let played = typed(
        program().args(["env", "play", "shop"]),
        "?\nsearch[<q> herbal teas]\nclick[s00027]\nclick[buy now]\n",
    );
    let text = played.output;
    assert_eq!(played.code, Some(1), "not won");
    for part in [
        "search[<your query>]\nclick[search]",
        "\nPage 1 (Total results: 33)\nNext >\n",
        "\nBought S00027 with ",
        "Not won after 3 steps. Score ",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    let without = seed(&["env", "play", "webshop"]);
    assert!(
        without.errors.contains("use `shop`, which needs no download"),
        "{}",
        without.errors
    );
}

#[test]
fn a_question_is_answered_by_one_who_knows_the_world() {
    let listed = seed(&["env", "tasks", "knowledge", "--split", "unseen"]);
    assert_eq!(listed.output.lines().count(), 128);
    let task = "knowledge/unseen/000010";
    let played = seed(&["env", "play", "knowledge", "--task", task, "--player", "optimal"]);
    assert_eq!(played.code, Some(0), "{}", played.errors);
    insta::assert_snapshot!("optimal_search", played.output);
    let other = seed(&["env", "play", "knowledge", "--player", "noisy"]);
    assert_eq!(other.code, Some(2), "{}", other.errors);
    assert_eq!(
        other.errors,
        "error: only the optimal player searches: it knows the answers\n"
    );
}

#[test]
fn a_person_asks_and_answers_in_a_folder_of_questions() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs_err::write(folder.path().join(name), text).unwrap();
    write(
        "test.jsonl",
        "{\"question\": \"What is the capital of Italy\", \"golden_answers\": [\"Rome\"], \"data_source\": \"nq\"}\n",
    );
    write(
        "passages.jsonl",
        "{\"contents\": \"\\\"Rome\\\"\\nThe capital of Italy.\"}\n",
    );
    let data = folder.path().to_str().unwrap();
    let passages = format!("search.passages={data}/passages.jsonl");
    let play = |more: &[&str], text: &str| {
        let words = [
            "env",
            "play",
            "search-qa",
            "--split",
            "unseen",
            "--data",
            data,
            "--set",
            &passages,
        ];
        let played = typed(program().args([&words, more].concat()), text);
        format!("{}{}", played.output, played.errors)
    };
    let answer = "<think>easy</think><answer>rome</answer>\n";
    insta::assert_snapshot!(
        "typed_search",
        play(&[], &format!("<search>capital</search>\nhm\n{answer}"))
    );
    let search_r1 = ["--set", "search.dialect=search_r1"];
    insta::assert_snapshot!(
        "typed_search_r1",
        play(&search_r1, &format!("<search>capital</search>\nhm\n{answer}"))
    );
}

#[test]
fn a_policy_is_trained_and_measured_on_questions() {
    let analyst = Analyst::skilled();
    let scratch = Scratch::new(&analyst.base_url);
    for (name, context, dialect) in [
        ("steps", "windowed", "verl_agent"),
        ("grown", "transcript", "search_r1"),
    ] {
        let config = scratch.config(name);
        let set = [
            "world.name=knowledge".to_owned(),
            format!("world.context={context}"),
            format!("search.dialect={dialect}"),
            "algorithm.iterations=1".to_owned(),
            "evaluation.tasks=4".to_owned(),
        ];
        let words: Vec<&str> = set.iter().flat_map(|key| ["--set", key.as_str()]).collect();
        let trained = train(&config, &words);
        assert_eq!(trained.code, Some(0), "{}", trained.errors);
        let evaluations = fs_err::read_to_string(scratch.path(name).join("evaluations.jsonl")).unwrap();
        let last: Value = serde_json::from_str(evaluations.lines().last().unwrap()).unwrap();
        let evaluation = &last["evaluation"];
        assert_eq!(evaluation["episodes"], json!(4), "{last}");
        let kinds: Vec<&String> = evaluation["families"].as_object().unwrap().keys().collect();
        assert_eq!(
            kinds,
            ["country", "creator", "creator_birth_year", "creator_birthplace"]
        );
    }
}

#[test]
fn a_trained_adapter_is_merged_into_a_model() {
    let analyst = Analyst::skilled();
    let scratch = Scratch::new(&analyst.base_url);
    let more = ["adapter.enabled=true", "adapter.rank=2", "algorithm.iterations=2"];
    let more: Vec<&str> = more.iter().flat_map(|key| ["--set", key]).collect();
    let trained = train(&scratch.config("run"), &more);
    assert_eq!(trained.code, Some(0), "{}", trained.errors);
    assert!(
        trained.errors.contains("memory at its highest: "),
        "{}",
        trained.errors
    );
    let adapter = scratch.path("run/checkpoints/step-00000002/model");
    let merge = |from: &Path, to: &str| finish(program().arg("merge").arg(from).arg(scratch.path(to)));
    let merged = merge(&adapter, "merged");
    assert_eq!(merged.code, Some(0), "{}", merged.errors);
    assert_eq!(scratch.shown(&merged.output), "merged: [scratch]/merged\n");
    let logits = |path: &Path| {
        let policy = seed_train::policy::Policy::load(path, false).unwrap();
        policy.decoder.logits(&[5, 6, 7, 8]).unwrap()
    };
    let expected = logits(&adapter);
    let largest = expected
        .iter()
        .fold(0.0_f32, |largest, logit| largest.max(logit.abs()));
    let difference = logits(&scratch.path("merged"))
        .into_iter()
        .zip(expected)
        .map(|(left, right)| (left - right).abs())
        .fold(0.0, f32::max);
    assert!(difference <= 1e-5 * largest, "{difference} of {largest}");
    let again = merge(&adapter, "merged");
    assert_eq!(again.code, Some(3), "{}", again.errors);
    assert!(again.errors.contains("already exists"), "{}", again.errors);
    let no_adapter = merge(&scratch.path("merged"), "other");
    assert!(
        no_adapter.errors.contains("nothing to merge"),
        "{}",
        no_adapter.errors
    );
}
