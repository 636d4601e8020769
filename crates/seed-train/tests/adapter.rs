//! Training an adapter: what is saved, how a run goes on, and which base it belongs to.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of these tests fail as tests do"
)]

mod support;

use std::path::{Path, PathBuf};

use seed_run::StopFlag;
use seed_train::TrainError;
use seed_train::compare::Summary;
use seed_train::config::{Loaded, SftConfig, TrainConfig};
use seed_train::events::Event;
use seed_train::policy::Policy;
use seed_train::sft::sft;
use seed_train::train::{Start, train};
use seed_train::world::open_world;
use support::TinyModel;
use support::analyst::Analyst;

/// Everything that has state or a copy is on.
const ADAPTER: [&str; 7] = [
    "adapter.enabled=true",
    "adapter.rank=2",
    "adapter.alpha=4",
    "adapter.targets=[\"q_proj\",\"v_proj\",\"down_proj\"]",
    "seed.teacher=ema",
    "algorithm.kl_coefficient=0.01",
    "checkpoint.keep_best=false",
];

struct Runs {
    model: TinyModel,
    analyst: Analyst,
    folder: tempfile::TempDir,
}

impl Runs {
    fn new() -> Self {
        Self {
            model: TinyModel::new(),
            analyst: Analyst::skilled(),
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn directory(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn config(&self, name: &str, model: &Path, overrides: &[&str]) -> TrainConfig {
        let all: Vec<&str> = ADAPTER.iter().chain(overrides).copied().collect();
        support::config(&self.directory(name), model, &self.analyst.base_url, &all)
    }

    /// Fine-tunes an adapter of the tiny model.
    fn fine_tune(&self, name: &str, start: Start, stop_after: Option<usize>) -> Result<PathBuf, TrainError> {
        let data = self.directory("lessons.jsonl");
        seed_run::write_json_lines(&data, support::lessons()).unwrap();
        let text = format!(
            "[run]\ndirectory = \"{}\"\n[model]\npath = \"{}\"\ncontext_length = 256\n[adapter]\nenabled = true\nrank = 2\n\
             alpha = 4\ntargets = [\"v_proj\", \"q_proj\", \"down_proj\"]\n[sft]\ndata = [\"{}\"]\nepochs = 3\n\
             batch_rows = 4\nmax_length = 256\nlearning_rate = 1e-2\nselection = \"best\"\n[checkpoint]\nevery = 2\n",
            self.directory(name).display(),
            self.model.path().display(),
            data.display(),
        );
        let config = Loaded::<SftConfig>::from_text("test", &text, &[]).unwrap().config;
        let stop = StopFlag::new();
        let mut observer = |event: &Event<'_>| {
            if let Event::Progress { done, .. } = event
                && Some(*done) == stop_after
            {
                stop.set();
            }
        };
        sft(&config, start, Vec::new(), &stop, &mut observer).map(|summary| summary.model)
    }
}

fn run(config: &TrainConfig, start: Start, stop_after: Option<u64>) -> Result<Summary, TrainError> {
    let world = open_world(&config.world, &config.search).unwrap().world;
    let stop = StopFlag::new();
    let mut observer = |event: &Event<'_>| {
        if let Event::Iteration { iteration, .. } = event
            && Some(*iteration) == stop_after
        {
            stop.set();
        }
    };
    train(config, world, start, Vec::new(), &stop, &mut observer)
}

fn logits(policy: &Policy) -> Vec<f32> {
    let ids: Vec<u32> = (3..40).collect();
    policy.decoder.logits(&ids).unwrap()
}

fn largest_difference(left: &[f32], right: &[f32]) -> f32 {
    left.iter()
        .zip(right)
        .map(|(left, right)| (left - right).abs())
        .fold(0.0, f32::max)
}

fn refusal(result: Result<impl Sized, TrainError>) -> String {
    match result {
        Ok(_) => panic!("expected a refusal"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn checkpoints_hold_the_adapter_alone_and_a_stopped_run_ends_with_the_same_bytes() {
    let runs = Runs::new();
    let base = runs.model.path();
    run(&runs.config("whole", &base, &[]), Start::New, None).unwrap();
    let newest = |name: &str| {
        let mut contents = support::contents(&runs.directory(name));
        contents.retain(|name, _| name == "metrics.jsonl" || name.starts_with("checkpoints/step-00000006/"));
        contents
    };
    let expected = newest("whole");
    let files: Vec<&str> = expected.keys().map(String::as_str).collect();
    assert_eq!(
        files,
        [
            "checkpoints/step-00000006/MANIFEST.json",
            "checkpoints/step-00000006/model/adapter_config.json",
            "checkpoints/step-00000006/model/adapter_model.safetensors",
            "checkpoints/step-00000006/optimiser.safetensors",
            "checkpoints/step-00000006/state.json",
            "checkpoints/step-00000006/teacher.safetensors",
            "metrics.jsonl",
        ]
    );
    let size = |name: &str| expected[&format!("checkpoints/step-00000006/{name}")].len();
    let adapter = size("model/adapter_model.safetensors");
    assert!(
        size("teacher.safetensors").abs_diff(adapter) < 1000,
        "the average is the adapter's"
    );
    assert!(size("optimiser.safetensors") < 3 * adapter);
    for stop_after in [1, 4] {
        let name = format!("stopped-{stop_after}");
        let config = runs.config(&name, &base, &[]);
        assert!(matches!(
            run(&config, Start::New, Some(stop_after)),
            Err(TrainError::Stopped { .. })
        ));
        run(&config, Start::Resume, None).unwrap();
        support::assert_same_contents(&newest(&name), &expected, &name);
    }
    // Results do not depend on how the work is cut, with an adapter as without.
    let other = [
        "run.threads=1",
        "rollout.max_active_sequences=2",
        "algorithm.micro_batch_tokens=64",
    ];
    run(&runs.config("cut", &base, &other), Start::New, None).unwrap();
    support::assert_same_contents(&newest("cut"), &expected, "cut otherwise");
    // The base is the one that the run began with.
    let weights = base.join("model.safetensors");
    let mut bytes = fs_err::read(&weights).unwrap();
    let last_number = bytes.len() - 4;
    bytes[last_number] ^= 1;
    fs_err::write(&weights, bytes).unwrap();
    let text = refusal(run(&runs.config("whole", &base, &[]), Start::Resume, None));
    assert!(text.contains("other weights than when the run began"), "{text}");
    let saved = runs.directory("whole/checkpoints/step-00000006/model");
    let text = refusal(Policy::load(&saved, false));
    assert!(text.contains("trained beside weights with the digest"), "{text}");
}

#[test]
fn an_adapter_of_fine_tuning_is_trained_further_and_merged_once() {
    let runs = Runs::new();
    let base = runs.model.path();
    let whole = runs.fine_tune("whole", Start::New, None).unwrap();
    assert!(matches!(
        runs.fine_tune("halting", Start::New, Some(4)),
        Err(TrainError::Stopped { .. })
    ));
    let halting = runs.fine_tune("halting", Start::Resume, None).unwrap();
    support::assert_same_contents(
        &support::contents(&halting),
        &support::contents(&whole),
        "halting",
    );
    let tuned = Policy::load(&whole, false).unwrap();
    let plain = logits(&runs.model.policy());
    assert!(largest_difference(&logits(&tuned), &plain) > 0.01);
    assert_eq!(
        tuned.decoder.parameters().digest(),
        runs.model.policy().decoder.parameters().digest()
    );

    // Training goes on from it, and measures the divergence from it rather than from the base.
    // One step per iteration: the first one is taken where the reference stands.
    let config = runs.config("further", &whole, &["algorithm.mini_batch_rows=8"]);
    run(&config, Start::New, None).unwrap();
    let first: serde_json::Value = {
        let text = fs_err::read_to_string(runs.directory("further/metrics.jsonl")).unwrap();
        serde_json::from_str(text.lines().next().unwrap()).unwrap()
    };
    assert_eq!(first["metrics"]["policy/kl"], 0.0, "{first}");
    let trained = Policy::load(&runs.directory("further/checkpoints/step-00000006/model"), false).unwrap();
    assert!(largest_difference(&logits(&trained), &logits(&tuned)) > 0.0);
    let text = refusal(run(
        &runs.config("other", &whole, &["adapter.rank=3"]),
        Start::New,
        None,
    ));
    assert!(text.contains("it has rank 2, alpha 4"), "{text}");
    let text = refusal(run(
        &runs.config("full", &whole, &["adapter.enabled=false"]),
        Start::New,
        None,
    ));
    assert!(text.contains("`seed merge`"), "{text}");

    let merged = runs.directory("merged");
    tuned.save_merged(&merged).unwrap();
    let expected = logits(&tuned);
    let difference = largest_difference(&logits(&Policy::load(&merged, false).unwrap()), &expected);
    let largest = expected
        .iter()
        .fold(0.0_f32, |largest, logit| largest.max(logit.abs()));
    assert!(difference <= 1e-5 * largest, "{difference} of {largest}");
    assert!(refusal(runs.model.policy().save_merged(&runs.directory("none"))).contains("nothing to merge"));
    // Beside weights that it was merged into already, it would be applied twice.
    let text = refusal(Policy::load_beside(&whole, &merged, false));
    assert!(text.contains("merged into already"), "{text}");
    assert!(Policy::load_beside(&whole, &base, false).is_ok());
    // A base that has moved is named.
    fs_err::rename(&base, runs.directory("elsewhere")).unwrap();
    let text = refusal(Policy::load(&whole, false));
    assert!(
        text.contains("is not here") && text.contains("base_model_name_or_path"),
        "{text}"
    );
}
