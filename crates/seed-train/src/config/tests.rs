//! What a person sees: messages, explanations, precedence, and the shipped files.

use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::*;

fn load(text: &str, overrides: &[&str]) -> Result<Loaded<TrainConfig>, String> {
    let overrides: Vec<String> = overrides.iter().map(|argument| (*argument).to_owned()).collect();
    Loaded::from_text("test.toml", text, &overrides).map_err(|error| error.to_string())
}

fn refusal(text: &str, overrides: &[&str]) -> String {
    load(text, overrides).expect_err("must be refused")
}

fn shipped() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs")
}

#[test]
fn unknown_keys_are_refused_with_the_nearest() {
    insta::assert_snapshot!(refusal(
        "[rollout]\nsample_per_task = 8\n[rolout]\ntop_p = 1\n[optimiser]\nlr = 1e-3\nwarmup = 0.1\n\
         [model]\ntemperature = 0.7\n[zebra]\nx = 1\n",
        &["seed.ema=0.9", "run.sed=3", "seed=4"]
    ), @r"
    the training configuration `test.toml` has 9 problems:
      --set needs a key of the form `table.key`, not `seed`
      test.toml:2: unknown key `rollout.sample_per_task`; did you mean `rollout.samples_per_task`?
      test.toml:4: unknown table `rolout`; did you mean `[rollout]`?
      test.toml:6: unknown key `optimiser.lr`; `seed config explain optimiser` lists the keys of `[optimiser]`
      test.toml:7: unknown key `optimiser.warmup`; did you mean `optimiser.warmup_ratio`?
      test.toml:9: unknown key `model.temperature`; did you mean `rollout.temperature`?
      test.toml:11: unknown table `zebra`; the tables of a training configuration are `run`, `model`, `adapter`, `world`, `search`, `rollout`, `engine`, `advantage`, `algorithm`, `seed`, `baseline`, `optimiser`, `evaluation`, `checkpoint`, `logging`, `endpoint`
      --set seed.ema: unknown key `seed.ema`; did you mean `seed.ema_decay`?
      --set run.sed: unknown key `run.sed`; did you mean `run.seed`?
    ");
}

#[test]
fn wrong_values_name_key_value_and_what_is_expected() {
    insta::assert_snapshot!(refusal(
        "seed = 3\n[rollout]\ntop_p = 1.5\nsamples_per_task = \"eight\"\ntop_k = -1\ntemperature = inf\n\
         [world]\nname = \"household-studo\"\n[evaluation]\nsplits = []\nevery = { a = 1 }\n\
         [checkpoint]\nkeep = 1\nkeep_every = 0\n[algorithm]\ndual_clip = 1.0\niterations = 99999999999\n",
        &["evaluation.splits=[seen,unsee]"]
    ), @r#"
    the training configuration `test.toml` has 13 problems:
      test.toml:1: `seed` is a table and has no value; its keys stand under `[seed]`, or did you mean `run.seed`?
      test.toml:3: `rollout.top_p` is `1.5`, expected number, above 0 and at most 1
      test.toml:4: `rollout.samples_per_task` is `"eight"`, expected whole number, at least 1
      test.toml:5: `rollout.top_k` is `-1`, expected whole number
      test.toml:6: `rollout.temperature` is `inf`, expected number, above 0
      test.toml:8: `world.name` is `"household-studo"`, expected "alfworld" | "household-studio" | "household-full" | "webshop" | "shop" | "search-qa" | "knowledge"; did you mean `household-studio`?
      test.toml:10: `evaluation.splits` is `[]`, expected list of "train" | "development" | "seen" | "unseen", not empty
      test.toml:11: `evaluation.every` is `a table`, expected whole number
      test.toml:13: `checkpoint.keep` is `1`, expected whole number, at least 2
      test.toml:14: `checkpoint.keep_every` is `0`, expected whole number | "none", at least 1
      test.toml:16: `algorithm.dual_clip` is `1.0`, expected number | "none", above 1
      test.toml:17: `algorithm.iterations` is `99999999999`, expected whole number, at least 0 and at most 4294967295
      --set evaluation.splits: `evaluation.splits` is `["seen", "unsee"]`, expected list of "train" | "development" | "seen" | "unseen", not empty; did you mean `unseen`?
    "#);
}

#[test]
fn syntax_errors_carry_the_line() {
    insta::assert_snapshot!(refusal("[run]\nseed = \n", &[]), @r"
    the training configuration `test.toml` has 1 problem:
      test.toml:2: string values must be quoted, expected literal string
    ");
    insta::assert_snapshot!(refusal("[run]\nseed = 1\nseed = 2\n", &[]), @r"
    the training configuration `test.toml` has 1 problem:
      test.toml:3: duplicate key
    ");
}

#[test]
fn combinations_are_checked() {
    insta::assert_snapshot!(refusal(
        "[rollout]\nsamples_per_task = 1\nmax_prompt_tokens = 30000\n[world]\ntrain_tasks = 4\n\
         [algorithm]\nname = \"seed\"\n[seed]\nanalyser = \"endpoint\"\nfailed_only = true\n\
         outcome_filter = \"success_only\"\n",
        &[]
    ), @r#"
    the training configuration `test.toml` has 5 problems:
      `rollout.samples_per_task` is `1`: a group needs at least 2 episodes, with one every advantage is zero; set `advantage.allow_single_sample = true` if that is meant
      `world.train_tasks` is `4` but one iteration draws `rollout.tasks_per_iteration = 16` different tasks
      `rollout.max_prompt_tokens + rollout.max_response_tokens` is `30512`, more than `model.context_length = 20480`
      `seed.analyser = "endpoint"` needs `endpoint.model`
      `seed.failed_only = true` and `seed.outcome_filter = "success_only"` leave no episode to distil from
    "#);
}

#[test]
fn arms_that_cannot_be_are_refused() {
    let refused = |text: &str| {
        let message = refusal(text, &[]);
        let problems: Vec<&str> = message.lines().skip(1).map(str::trim).collect();
        problems.join("\n")
    };
    insta::assert_snapshot!(refused(
        "[algorithm]\nname = \"skill_grpo\"\n[seed]\nanalyser = \"policy\"\n",
    ), @r#"`algorithm.name = "skill_grpo"` plays with a skill in the prompt, which has to be there before the episode: `seed.analyser = "policy"` reads finished ones; use "library" or "oracle""#);
    insta::assert_snapshot!(refused(
        "[algorithm]\nname = \"opid\"\n[seed]\nanalyser = \"library\"\nskill_mode = \"episode_step\"\n\
         skill_from = \"other_task\"\nverification_replays = 8\n[rollout]\ntasks_per_iteration = 1\n",
    ), @r#"
    `seed.skill_mode = "episode_step"` needs an analyser that reads episodes: `seed.analyser = "library"` writes no step skills
    `seed.verification_replays` verifies episode skills: use it with `seed.skill_mode = "episode"`
    skills of another task need at least 2 tasks in an iteration; `rollout.tasks_per_iteration` is `1`
    "#);
    insta::assert_snapshot!(refused(
        "[algorithm]\nname = \"opsd\"\n[seed]\nanalyser = \"library\"\n[baseline]\ncoefficient = 0.0\n",
    ), @"neither the outcome nor a distillation has a weight: nothing would be learned; raise `algorithm.policy_coefficient` or the distillation's coefficient");
}

#[test]
fn engines_are_refused_what_they_cannot_do() {
    let refused = |text: &str| {
        let message = refusal(text, &[]);
        let problems: Vec<&str> = message.lines().skip(1).map(str::trim).collect();
        problems.join("\n")
    };
    insta::assert_snapshot!(refused(
        "[engine]\nkind = \"vllm\"\n[rollout]\ntop_p = 0.9\n",
    ), @r#"
    `engine.kind = "vllm"` needs `engine.model`: the name under which it serves the model
    `engine.weights = "disk"`: vLLM reads no whole model on request; train an adapter with `adapter.enabled = true` and `engine.weights = "adapter"`, or use another `engine.kind`
    `rollout.top_p = 0.9`, `rollout.top_k = 0` with `engine.kind = "vllm"`: its log-probs are of the cut distribution and cannot be compared with the policy's; use `1` and `0`
    "#);
    insta::assert_snapshot!(refused(
        "[engine]\nkind = \"seed\"\nmodel = \"policy\"\nweights = \"adapter\"\n",
    ), @r#"`engine.weights = "adapter"`: `seed serve` loads no adapters; with `engine.weights = "disk"` it gets the adapter merged into the model"#);
    insta::assert_snapshot!(refused(
        "[engine]\nkind = \"sglang\"\nmodel = \"policy\"\nweights = \"adapter\"\n",
    ), @r#"`engine.weights = "adapter"` needs `adapter.enabled = true`: without an adapter all weights change"#);
    insta::assert_snapshot!(refused(
        "[engine]\nkind = \"vlm\"\nweight = \"disk\"\nurl = \"http://me:secret@host\"\napi_key_env = \"sk-1\"\n\
         retries = -1\n",
    ), @r#"
    test.toml:2: `engine.kind` is `"vlm"`, expected "native" | "vllm" | "sglang" | "seed"; did you mean `vllm`?
    test.toml:3: unknown key `engine.weight`; did you mean `engine.weights`?
    test.toml:4: `engine.url` is the value (not shown, it may be secret), expected text, starting with http:// or https://, without user name or password
    test.toml:5: `engine.api_key_env` is the value (not shown, it may be secret), expected text | "none", the name of an environment variable, in capitals
    test.toml:6: `engine.retries` is `-1`, expected whole number, from 0 to 100
    "#);
    let loaded = load(
        "[engine]\nkind = \"vllm\"\nmodel = \"policy\"\nweights = \"adapter\"\n[adapter]\nenabled = true\n",
        &[],
    )
    .unwrap();
    assert!(loaded.config.engine.is_external());
    assert_eq!(loaded.warnings, Vec::<String>::new());
    let loaded = load("[engine]\nurl = \"http://host:8000\"\n", &[]).unwrap();
    insta::assert_snapshot!(loaded.warnings.join("\n"), @r#"test.toml:2: `engine.url` has no effect without an external `engine.kind`"#);
}

#[test]
fn settings_that_hardly_mean_what_was_written_are_warned_of() {
    let loaded = load(
        "[algorithm]\nname = \"seed\"\n[seed]\nstart_after = 20\nstop_after = 10\nfailed_only = true\n\
         delta_clip = 2.0\nema_decay = 0.9\n[rollout]\ntop_k = 20\n[world]\ngenerator_seed = 4\n",
        &[],
    )
    .unwrap();
    insta::assert_snapshot!(loaded.warnings.join("\n"), @r#"
    `rollout.top_p = 1`, `rollout.top_k = 20`: episodes are drawn from a cut distribution while log-probs are of the whole one, so the ratio does not start at 1 in the sampler's terms
    `seed.start_after = 20` is not before `seed.stop_after` or the last iteration: there would be no distillation at all
    only failed episodes are analysed while `seed.gate = "sigmoid"` can only raise tokens: failures would be imitated; use `seed.gate = "centered"` or `seed.outcome_filter = "advantage_aware"`
    test.toml:12: `world.generator_seed` has no effect without a generated world
    test.toml:8: `seed.ema_decay` has no effect without `seed.teacher = "ema"`
    test.toml:7: `seed.delta_clip` has no effect without `seed.gate = "delta"`
    "#);
}

#[test]
fn overrides_beat_the_file_and_the_last_one_wins() {
    let text = "[rollout]\nsamples_per_task = 4\n";
    let loaded = load(text, &[]).unwrap();
    assert_eq!(loaded.config.rollout.samples_per_task, 4);
    assert_eq!(loaded.config.rollout.tasks_per_iteration, 16, "default");
    let loaded = load(
        text,
        &[
            "rollout.samples_per_task=6",
            "rollout.samples_per_task=2",
            "seed.stop_after=30",
            "algorithm.dual_clip=none",
            "run.name=7",
            "optimiser.learning_rate=1",
        ],
    )
    .unwrap();
    assert_eq!(loaded.config.rollout.samples_per_task, 2);
    assert_eq!(loaded.config.seed.stop_after, Some(30));
    assert_eq!(loaded.config.algorithm.dual_clip, None);
    assert_eq!(
        loaded.config.run.name, "7",
        "a number where text is wanted is text"
    );
    assert_eq!(loaded.config.optimiser.learning_rate, 1.0);
}

#[test]
fn a_secret_in_the_wrong_place_is_refused_and_not_repeated() {
    let planted = "sk-planted-0123456789";
    for (text, overrides) in [
        (format!("[endpoint]\napi_key_env = \"{planted}\"\n"), vec![]),
        (
            format!("[endpoint]\nbase_url = \"https://me:{planted}@host/v1\"\n"),
            vec![],
        ),
        (String::new(), vec![format!("endpoint.api_key_env={planted}")]),
        (String::new(), vec![format!("endpoint.api_key={planted}")]),
    ] {
        let message = Loaded::<TrainConfig>::from_text("test.toml", &text, &overrides)
            .expect_err("must be refused")
            .to_string();
        assert!(!message.contains(planted), "{message}");
    }
}

#[test]
fn explain_shows_value_and_origin() {
    let loaded = load(
        "[rollout]\n\nsamples_per_task = 4\n",
        &["seed.gate=delta", "algorithm.name=seed"],
    )
    .unwrap();
    let explained = |key| explanation_text(&loaded.explain(Some(key)).unwrap());
    insta::assert_snapshot!(
        [explained("rollout.samples_per_task"), explained("seed.gate"), explained("algorithm.dual_clip")].concat(),
        @r#"
    rollout.samples_per_task
      Episodes of one task that form a group.
      type     whole number, at least 1
      default  8
      value    4  (test.toml:3)
    seed.gate
      How the gap weighs a token.
      type     "sigmoid" | "centered" | "delta" | "positive_only" | "k3_is"
      default  "sigmoid"
      value    "delta"  (--set seed.gate)
    algorithm.dual_clip
      With a negative advantage the loss is bounded at this times its size; unset leaves it unbounded.
      type     number | "none", above 1
      default  3.0
      value    3.0  (default)
    "#
    );
    insta::assert_snapshot!(loaded.explain(Some("rollout.sample_per_task")).unwrap_err(), @"no key or table `rollout.sample_per_task` in a training configuration; did you mean `rollout.samples_per_task`?");
    assert_eq!(loaded.explain(None).unwrap().len(), TrainConfig::fields().len());
    assert_eq!(
        loaded.explain(Some("optimiser")).unwrap().len(),
        TrainConfig::fields()
            .iter()
            .filter(|field| field.section == "optimiser")
            .count()
    );
}

#[test]
fn every_default_obeys_its_rule_and_survives_writing() {
    fn check<C: Document>(unset: &[&str]) {
        for field in C::fields() {
            assert!(!field.documentation.is_empty(), "{}", field.key());
            if !unset.contains(&field.key().as_str()) {
                assert!(field.rule.accepts(&field.default), "{}", field.key());
            }
            let mut config = C::default();
            assert!(
                config.set(field.section, field.name, &field.default),
                "{}",
                field.key()
            );
            assert_eq!(config, C::default(), "{}", field.key());
        }
    }
    check::<TrainConfig>(&[]);
    // Data has no sensible default: a fine-tuning configuration must name it.
    check::<SftConfig>(&["sft.data"]);
}

#[test]
fn shipped_configurations_are_valid_and_without_warnings() {
    let mut seen = Vec::new();
    for entry in fs_err::read_dir(shipped()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let loaded = Loaded::<TrainConfig>::from_file(&path, &[]).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(loaded.warnings, Vec::<String>::new(), "{}", path.display());
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        assert_eq!(loaded.config.run.name, stem);
        assert_eq!(loaded.config.algorithm.name, Algorithm::Seed);
        seen.push(stem);
    }
    seen.sort();
    assert_eq!(
        seen,
        [
            "alfworld-qwen2.5-3b",
            "alfworld-qwen2.5-7b",
            "alfworld-qwen3-1.7b",
            "alfworld-smollm2-135m",
            "alfworld-tiny",
            "quickstart",
            "search-qa-qwen2.5-3b",
            "webshop-qwen2.5-3b",
            "webshop-qwen2.5-7b",
            "webshop-qwen3-1.7b"
        ]
    );
}

#[test]
fn recipes_are_valid_and_without_warnings() {
    let mut seen = Vec::new();
    for folder in ["household-tiny", "knowledge-tiny", "shop-tiny"] {
        for entry in fs_err::read_dir(shipped().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "toml") {
                continue;
            }
            let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
            let warnings = match stem.split('-').next() {
                Some("demonstrations") => {
                    Loaded::<DemonstrateConfig>::from_file(&path, &[])
                        .unwrap()
                        .warnings
                }
                Some("sft") => Loaded::<SftConfig>::from_file(&path, &[]).unwrap().warnings,
                _ => Loaded::<TrainConfig>::from_file(&path, &[]).unwrap().warnings,
            };
            assert_eq!(warnings, Vec::<String>::new(), "{}", path.display());
            seen.push(format!("{folder}/{stem}"));
        }
    }
    seen.sort();
    assert_eq!(
        seen,
        [
            "household-tiny/demonstrations-1",
            "household-tiny/demonstrations-2",
            "household-tiny/sft-1",
            "household-tiny/sft-2",
            "knowledge-tiny/demonstrations-1",
            "knowledge-tiny/demonstrations-2",
            "knowledge-tiny/seed",
            "knowledge-tiny/sft-1",
            "knowledge-tiny/sft-2",
            "shop-tiny/demonstrations-1",
            "shop-tiny/demonstrations-2",
            "shop-tiny/seed",
            "shop-tiny/sft-1",
            "shop-tiny/sft-2"
        ]
    );
}

#[test]
fn devices_are_named_and_refused_where_this_build_has_none() {
    insta::assert_snapshot!(refusal("[model]\ndevice = \"gpu\"\n", &[]), @r#"
    the training configuration `test.toml` has 1 problem:
      test.toml:2: `model.device` is `"gpu"`, expected text, one of `cpu`, `candle-cpu`, `cuda:0`, `metal:0`, with the number of the GPU
    "#);
    insta::assert_snapshot!(refusal("[model]\nprecision = \"bf16\"\n", &[]), @r#"
    the training configuration `test.toml` has 1 problem:
      `model.device = "cpu"`: the device `cpu`: `precision` is bf16, it must be f32; bf16 is for the other devices
    "#);
    #[cfg(not(feature = "metal"))]
    insta::assert_snapshot!(refusal("[model]\ndevice = \"metal:1\"\nprecision = \"bf16\"\n", &[]), @r#"
    the training configuration `test.toml` has 1 problem:
      `model.device = "metal:1"`: this program was built without `metal:1`: build it with `cargo build --release --features metal` (docs/models.md says what that needs), or set `model.device = "cpu"`
    "#);
    // The tests are built with `composed`.
    let config = load("[model]\ndevice = \"candle-cpu\"\nprecision = \"bf16\"\n", &[])
        .unwrap()
        .config;
    let place = config.model.place().unwrap();
    assert_eq!(place.device, seed_model::Device::CandleCpu);
    assert_eq!(place.precision, seed_model::Precision::Bf16);
    assert!(TrainConfig::default().model.place().unwrap().is_native());
}

#[test]
fn the_papers_settings_are_the_defaults() {
    let path = shipped().join("alfworld-qwen2.5-3b.toml");
    let paper = Loaded::<TrainConfig>::from_file(&path, &[]).unwrap().config;
    let changed: Vec<_> = differences(&TrainConfig::default(), &paper)
        .into_iter()
        .map(|difference| difference.key)
        .collect();
    assert_eq!(
        changed,
        [
            "run.name",
            "run.directory",
            "run.seed",
            "model.path",
            "model.recompute_activations",
            "algorithm.name"
        ]
    );
}

#[test]
fn webshops_settings_differ_from_alfworlds_where_the_papers_do() {
    let read = |name: &str| {
        let path = shipped().join(name);
        Loaded::<TrainConfig>::from_file(&path, &[]).unwrap().config
    };
    let alfworld = read("alfworld-qwen2.5-7b.toml");
    let changed: Vec<String> = differences(&alfworld, &read("webshop-qwen2.5-7b.toml"))
        .into_iter()
        .map(|difference| format!("{} = {}", difference.key, difference.after))
        .collect();
    assert_eq!(
        changed,
        [
            "run.name = \"webshop-qwen2.5-7b\"",
            "run.directory = \"runs/webshop-qwen2.5-7b\"",
            "world.name = \"webshop\"",
            "world.max_steps = 15",
            "world.history_length = 2",
            "world.shop_split = \"order\"",
            "rollout.max_prompt_tokens = 4096",
            "advantage.normalisation = \"mean\"",
            "algorithm.mini_batch_rows = 64",
            "evaluation.splits = [\"seen\"]",
            "evaluation.tasks = 128"
        ]
    );
}

#[test]
fn searchs_settings_differ_from_alfworlds_where_the_papers_do() {
    let read = |name: &str| {
        let path = shipped().join(name);
        Loaded::<TrainConfig>::from_file(&path, &[]).unwrap().config
    };
    let alfworld = read("alfworld-qwen2.5-3b.toml");
    let changed: Vec<String> = differences(&alfworld, &read("search-qa-qwen2.5-3b.toml"))
        .into_iter()
        .map(|difference| format!("{} = {}", difference.key, difference.after))
        .collect();
    assert_eq!(
        changed,
        [
            "run.name = \"search-qa-qwen2.5-3b\"",
            "run.directory = \"runs/search-qa-qwen2.5-3b\"",
            "world.name = \"search-qa\"",
            "world.data = \"data/searchR1_processed_direct\"",
            "world.max_steps = 4",
            "world.history_length = 4",
            "world.step_timeout_seconds = 400.0",
            "search.retriever = \"http\"",
            "rollout.tasks_per_iteration = 128",
            "rollout.max_prompt_tokens = 4096",
            "advantage.invalid_action_penalty = 0.01",
            "algorithm.mini_batch_rows = 512",
            "algorithm.kl_coefficient = 0.001",
            "algorithm.entropy_coefficient = 0.0",
            "optimiser.warmup_ratio = 0.1"
        ]
    );
}

#[test]
fn quickstart_derives_what_the_readme_says() {
    let config = Loaded::<TrainConfig>::from_file(&shipped().join("quickstart.toml"), &[])
        .unwrap()
        .config;
    let shape = ModelShape {
        parameters: 1_500_000,
        layers: 4,
        hidden_size: 128,
        intermediate_size: 384,
        query_width: 128,
        key_value_width: 64,
        vocabulary_size: 2048,
        query_key_norm: false,
    };
    let derived = config.derive(Some(shape));
    assert_eq!(derived.episodes_per_iteration, 32);
    assert_eq!(derived.total_episodes, 1280);
    insta::assert_snapshot!(derived.table(), @r"
    episodes per iteration                        32
    episodes in all                            1,280
    rows per iteration, at most                   32
    trained tokens per iteration, at most     46,592
    sampled tokens per iteration, at most     30,720
    updates per iteration, at most                 1
    updates in all, at most                       40
    warm-up iterations                             0
    analyses per iteration, at most               32
    evaluations                                    3
    checkpoints written                            4
    memory: weights and packed copies       17.2 MiB
    memory: other sets of weights           11.4 MiB
    memory: gradient and optimiser          17.2 MiB
    memory: passes over a micro-batch      688.0 MiB
    memory: keys and values, at most       252.0 MiB
    memory: peak, estimated                985.8 MiB
    ");
}

#[test]
fn derived_counts_follow_the_context() {
    let windowed = load("", &["algorithm.epochs=2", "optimiser.warmup_ratio=0.1"])
        .unwrap()
        .config
        .derive(None);
    assert_eq!(windowed.max_rows_per_iteration, 128 * 30);
    assert_eq!(windowed.max_tokens_per_iteration, 128 * 30 * (2048 + 512));
    assert_eq!(windowed.max_updates_per_iteration, 15 * 2);
    assert_eq!(windowed.warmup_iterations, 15);
    assert_eq!(windowed.evaluations, 30);
    assert_eq!(windowed.analyses_per_iteration, 0, "GRPO analyses nothing");
    let transcript = load("", &["world.context=transcript"])
        .unwrap()
        .config
        .derive(None);
    assert_eq!(transcript.max_rows_per_iteration, 128);
    let absurd = load(
        "",
        &[
            "rollout.tasks_per_iteration=4000000000",
            "rollout.samples_per_task=4000000000",
            "algorithm.iterations=4000000000",
        ],
    )
    .unwrap();
    assert_eq!(absurd.config.derive(None).total_episodes, u64::MAX, "saturates");
}

#[test]
fn a_missing_or_huge_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("absent.toml");
    let error = Loaded::<TrainConfig>::from_file(&missing, &[]).unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("absent.toml"), "{source}");
    let huge = folder.path().join("huge.toml");
    fs_err::write(&huge, vec![b'#'; (1 << 20) + 1]).unwrap();
    let message = Loaded::<TrainConfig>::from_file(&huge, &[])
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("huge.toml") && message.contains("1048577"),
        "{message}"
    );
}

#[test]
fn fine_tuning_needs_data_and_a_possible_shape() {
    let overrides = [
        "initialise.enabled=true",
        "initialise.key_value_heads=3",
        "sft.batch_tokens=100",
    ]
    .map(str::to_owned);
    let message = Loaded::<SftConfig>::from_defaults(&overrides)
        .unwrap_err()
        .to_string();
    insta::assert_snapshot!(message, @r"
    the fine-tuning configuration `built-in defaults` has 4 problems:
      `sft.data` names no file; list the JSONL files of examples
      `sft.batch_tokens = 100` is below `sft.max_length = 8192`: the longest example would fit no batch
      `initialise.key_value_heads = 3` does not divide `initialise.query_heads = 4`
      `model.context_length = 20480` is above `initialise.max_positions = 4096`
    ");
    let overrides = ["sft.data=[a.jsonl, b.jsonl.zst]", "initialise.layers=2"].map(str::to_owned);
    let loaded = Loaded::<SftConfig>::from_defaults(&overrides).unwrap();
    assert_eq!(
        loaded.config.sft.data,
        [PathBuf::from("a.jsonl"), PathBuf::from("b.jsonl.zst")]
    );
    assert_eq!(
        loaded.warnings,
        ["--set initialise.layers: `initialise.layers` has no effect without `initialise.enabled = true`"]
    );
}

/// Settings of every kind that are valid alone and together.
fn valid_settings() -> impl Strategy<Value = Vec<String>> {
    (
        2_usize..50,
        0.0_f64..1.0,
        any::<bool>(),
        proptest::option::of(1_usize..100),
        prop::sample::select(Gate::CHOICES),
        "[a-z \"\\\\#=é]{1,20}",
        prop::collection::vec(prop::sample::select(EvaluationSplit::CHOICES), 1..4),
    )
        .prop_map(|(samples, ratio, thinking, stop, gate, name, splits)| {
            let splits: Vec<_> = splits.iter().map(|split| split.1).collect();
            let mut settings = vec![
                format!("rollout.samples_per_task={samples}"),
                format!("optimiser.warmup_ratio={ratio}"),
                format!("model.thinking={thinking}"),
                format!("seed.gate={}", gate.1),
                format!("run.name=x{name}"),
                format!("evaluation.splits=[{}]", splits.join(",")),
            ];
            if let Some(stop) = stop {
                settings.push(format!("seed.stop_after={stop}"));
            }
            settings
        })
}

proptest! {
    #[test]
    fn the_resolved_text_reads_back_equal(settings in valid_settings()) {
        let config = Loaded::<TrainConfig>::from_defaults(&settings).unwrap().config;
        let text = to_toml(&config);
        let again = Loaded::<TrainConfig>::from_text("resolved", &text, &[]).unwrap().config;
        prop_assert_eq!(&again, &config);
        prop_assert_eq!(to_toml(&again), text);
    }

    #[test]
    fn no_override_makes_it_panic(argument in "(run|rollout|seed|evaluation)\\.[a-z_]{1,12}=\\PC{0,12}") {
        let _ = Loaded::<TrainConfig>::from_defaults(&[argument]);
    }
}
