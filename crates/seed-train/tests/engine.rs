//! Training on an engine outside of the trainer: `seed serve`'s own server, and what can be wrong with an engine.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests fail as tests do")]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use seed_env::Outcome;
use seed_model::load_directory;
use seed_random::{Draw, RandomKey};
use seed_rollout::Trajectory;
use seed_run::{StopFlag, read_json_lines};
use seed_serve::{ServeOptions, ServedModel, Server};
use seed_train::TrainError;
use seed_train::compare::Summary;
use seed_train::config::TrainConfig;
use seed_train::events::Event;
use seed_train::policy::Policy;
use seed_train::train::{Start, train};
use seed_train::world::open_world;
use serde_json::{Value, json};
use support::TinyModel;
use support::front::Front;

/// GRPO with the policy's own skills, on weights that move at every iteration.
const OWN_SKILLS: [&str; 4] = [
    "seed.analyser=policy",
    "checkpoint.every=1",
    "checkpoint.keep=10",
    "optimiser.learning_rate=1e-2",
];

/// A server of a model, in this process.
struct Engine {
    url: String,
    stop: StopFlag,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Engine {
    fn start(model: &Path, weights_folder: Option<&Path>) -> Self {
        let options = ServeOptions {
            weights_folder: weights_folder.map(Path::to_owned),
            ..ServeOptions::new("127.0.0.1:0".parse().unwrap())
        };
        let served = ServedModel::new("policy", load_directory(model).unwrap()).unwrap();
        let server = Server::bind(served, options).unwrap();
        let url = format!("http://{}", server.address());
        let stop = StopFlag::new();
        let flag = stop.clone();
        let thread = std::thread::spawn(move || {
            server.run(move || flag.is_set()).unwrap();
        });
        Self {
            url,
            stop,
            thread: Some(thread),
        }
    }

    fn stop(&mut self) {
        self.stop.set();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Runs {
    model: TinyModel,
    folder: tempfile::TempDir,
}

impl Runs {
    fn new() -> Self {
        Self {
            model: TinyModel::new(),
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn directory(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn weights(&self) -> PathBuf {
        let folder = self.directory("weights");
        fs_err::create_dir_all(&folder).unwrap();
        folder
    }

    fn native(&self, name: &str, overrides: &[&str]) -> TrainConfig {
        let all: Vec<&str> = OWN_SKILLS.iter().chain(overrides).copied().collect();
        support::config(
            &self.directory(name),
            &self.model.path(),
            "http://127.0.0.1:1/v1",
            &all,
        )
    }

    /// The same on an engine, whose log-probs must be the trainer's to the last bit.
    fn external(&self, name: &str, url: &str, overrides: &[&str]) -> TrainConfig {
        let own = [
            "engine.kind=seed".to_owned(),
            format!("engine.url={url}"),
            "engine.model=policy".to_owned(),
            format!("engine.weights_directory={}", self.weights().display()),
            "engine.max_mean_log_prob_difference=0".to_owned(),
            "engine.max_log_prob_difference=0".to_owned(),
            "engine.retries=0".to_owned(),
        ];
        let all: Vec<&str> = own
            .iter()
            .map(String::as_str)
            .chain(overrides.iter().copied())
            .collect();
        self.native(name, &all)
    }

    /// What a run left, but for what says which engine it had.
    fn results(&self, name: &str) -> BTreeMap<String, Vec<u8>> {
        let mut contents = support::contents(&self.directory(name));
        contents.retain(|name, _| name != "config.resolved.toml" && !name.ends_with("MANIFEST.json"));
        let metrics = contents.remove("metrics.jsonl").unwrap();
        let kept: Vec<String> = String::from_utf8(metrics)
            .unwrap()
            .lines()
            .map(|line| {
                let mut record: Value = serde_json::from_str(line).unwrap();
                if let Some(metrics) = record["metrics"].as_object_mut() {
                    metrics.retain(|name, _| {
                        !["engine/", "self_check/", "cost/"]
                            .iter()
                            .any(|prefix| name.starts_with(prefix))
                    });
                }
                record.to_string()
            })
            .collect();
        contents.insert("metrics.jsonl".to_owned(), kept.join("\n").into_bytes());
        contents
    }

    /// A metric of every iteration.
    fn metric(&self, run: &str, name: &str) -> Vec<f64> {
        let text = fs_err::read_to_string(self.directory(run).join("metrics.jsonl")).unwrap();
        text.lines()
            .filter_map(|line| {
                let record: Value = serde_json::from_str(line).unwrap();
                record["metrics"][name].as_f64()
            })
            .collect()
    }

    fn trajectories(&self, run: &str) -> Vec<Trajectory> {
        let mut files: Vec<PathBuf> = support::contents(&self.directory(run))
            .into_keys()
            .filter(|name| name.starts_with("trajectories"))
            .map(|name| self.directory(run).join(name))
            .collect();
        files.sort();
        files
            .iter()
            .flat_map(|file| read_json_lines::<Trajectory>(file).unwrap())
            .map(Result::unwrap)
            .collect()
    }
}

fn run(
    config: &TrainConfig,
    start: Start,
    mut after: impl FnMut(u64) + 'static,
) -> Result<Summary, TrainError> {
    let world = open_world(&config.world, &config.search).unwrap().world;
    let mut observer = move |event: &Event<'_>| {
        if let Event::Iteration { iteration, .. } = event {
            after(*iteration);
        }
    };
    train(config, world, start, Vec::new(), &StopFlag::new(), &mut observer)
}

/// The whole chain of an error.
fn told(error: &TrainError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[test]
fn a_run_on_seed_serve_is_the_native_run_to_the_last_bit() {
    let runs = Runs::new();
    run(&runs.native("native", &[]), Start::New, |_| {}).unwrap();
    let engine = Engine::start(&runs.model.path(), Some(&runs.weights()));
    // The engine's weights follow: were they those of the start, the second iteration would differ.
    run(&runs.external("external", &engine.url, &[]), Start::New, |_| {}).unwrap();
    support::assert_same_contents(&runs.results("external"), &runs.results("native"), "engine");
    let tokens = runs.metric("external", "engine/compared_tokens");
    assert_eq!(tokens.len(), 6);
    let sampled: usize = runs
        .trajectories("external")
        .iter()
        .map(Trajectory::response_tokens)
        .sum();
    assert_eq!(tokens.iter().sum::<f64>(), sampled as f64);
    for name in [
        "engine/log_prob_difference_mean",
        "engine/log_prob_difference_maximum",
        "engine/over_limit_share",
        "engine/divergence",
        "engine/broken_episodes",
    ] {
        assert_eq!(runs.metric("external", name), [0.0; 6], "{name}");
    }
    // Every iteration wrote its weights; the two newest are left.
    let mut left: Vec<String> = fs_err::read_dir(runs.weights())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    left.sort();
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(left[0].starts_with("seed-model-000005-"), "{left:?}");
    assert!(left[1].starts_with("seed-model-000006-"), "{left:?}");
}

#[test]
fn a_merged_adapter_is_rounded_otherwise_and_scored_again() {
    let runs = Runs::new();
    let engine = Engine::start(&runs.model.path(), Some(&runs.weights()));
    let config = runs.external(
        "merged",
        &engine.url,
        &[
            "adapter.enabled=true",
            "adapter.rank=2",
            // One optimiser step per iteration, on the weights that sampled.
            "algorithm.mini_batch_rows=1000",
            "engine.max_mean_log_prob_difference=1e-5",
            "engine.max_log_prob_difference=1e-4",
        ],
    );
    run(&config, Start::New, |_| {}).unwrap();
    let differences = runs.metric("merged", "engine/log_prob_difference_maximum");
    // A fresh adapter adds nothing, a trained one is summed in another order.
    assert_eq!(differences.len(), 6);
    assert_eq!(differences[0], 0.0);
    assert!(
        differences[1..].iter().all(|&difference| difference > 0.0),
        "{differences:?}"
    );
    // The old policy's log-probs are those of scoring: with the engine's the ratio would be near 1 and not 1.
    assert_eq!(runs.metric("merged", "policy/ratio_maximum"), [1.0; 6]);
    assert_eq!(runs.metric("merged", "policy/kl_to_old"), [0.0; 6]);
}

#[test]
fn an_engine_without_the_new_weights_stops_the_run_and_loses_nothing() {
    let runs = Runs::new();
    run(&runs.native("native", &[]), Start::New, |_| {}).unwrap();
    let engine = Engine::start(&runs.model.path(), Some(&runs.weights()));
    let stale = ["engine.weights=none", "checkpoint.every=6"];
    let error = run(&runs.external("stale", &engine.url, &stale), Start::New, |_| {}).unwrap_err();
    assert!(error.is_of_engine());
    let text = told(&error);
    assert!(
        text.contains("log-probs of the engine differ from the trainer's by"),
        "{text}"
    );
    assert!(text.contains("nothing was updated"), "{text}");
    // The first iteration was fine and is saved, though no checkpoint was due.
    assert_eq!(runs.metric("stale", "engine/log_prob_difference_maximum"), [0.0]);
    let checkpoints = runs.directory("stale").join("checkpoints");
    assert!(checkpoints.join("step-00000001").exists());
    assert!(!checkpoints.join("step-00000002").exists());
    run(&runs.external("stale", &engine.url, &[]), Start::Resume, |_| {}).unwrap();
    support::assert_same_contents(&runs.results("stale"), &runs.results("native"), "resumed");
}

#[test]
fn an_engine_that_dies_stops_the_run_which_goes_on_with_another() {
    let runs = Runs::new();
    run(&runs.native("native", &[]), Start::New, |_| {}).unwrap();
    let mut first = Engine::start(&runs.model.path(), Some(&runs.weights()));
    let config = runs.external("dead", &first.url, &["checkpoint.every=6"]);
    let (send, receive) = std::sync::mpsc::channel();
    let stop = first.stop.clone();
    let thread = first.thread.take().unwrap();
    let error = run(&config, Start::New, move |iteration| {
        if iteration == 2 {
            stop.set();
            send.send(()).unwrap();
            // Without the wait the engine would answer some more requests.
            std::thread::sleep(std::time::Duration::from_secs(1));
        }
    })
    .unwrap_err();
    receive.recv().unwrap();
    thread.join().unwrap();
    assert!(error.is_of_engine());
    assert!(
        told(&error).contains("cannot be reached after 1 attempts"),
        "{}",
        told(&error)
    );
    assert!(runs.directory("dead").join("checkpoints/step-00000002").exists());
    let second = Engine::start(&runs.model.path(), Some(&runs.weights()));
    run(&runs.external("dead", &second.url, &[]), Start::Resume, |_| {}).unwrap();
    let mut expected = runs.results("native");
    // It was not due.
    expected.retain(|name, _| !name.starts_with("checkpoints/step-00000001/"));
    support::assert_same_contents(&runs.results("dead"), &expected, "another engine");
}

#[test]
fn episodes_that_the_engine_broke_are_counted_and_never_trained() {
    let runs = Runs::new();
    let engine = Engine::start(&runs.model.path(), Some(&runs.weights()));
    let asked = AtomicUsize::new(0);
    let front = Front::start(engine.url.clone(), move |path, body| {
        // The probe comes first. Of the others, some fail, with the second half of their log-probs missing.
        let fails = path == "/v1/completions" && asked.fetch_add(1, Ordering::SeqCst) % 5 == 4;
        fails.then(|| {
            let choice = json!({
                "token_ids": [20, 21], "logprobs": {"token_logprobs": [-1.0]}, "finish_reason": "length",
            });
            (200, json!({"model": body["model"], "choices": [choice]}))
        })
    });
    let overrides = [
        "algorithm.iterations=1",
        "algorithm.name=grpo",
        "engine.max_error_share=0.9",
    ];
    run(
        &runs.external("broken", &front.url, &overrides),
        Start::New,
        |_| {},
    )
    .unwrap();
    let trajectories = runs.trajectories("broken");
    let broken: Vec<&Trajectory> = trajectories
        .iter()
        .filter(|trajectory| trajectory.outcome == Outcome::EngineError)
        .collect();
    assert!(!broken.is_empty() && broken.len() < trajectories.len());
    for trajectory in &broken {
        let error = trajectory.error.as_deref().unwrap();
        assert!(error.contains("there are 2 ids and 1 log-probs"), "{error}");
    }
    assert_eq!(
        runs.metric("broken", "engine/broken_episodes"),
        [broken.len() as f64]
    );
    assert_eq!(runs.metric("broken", "episode/excluded"), [broken.len() as f64]);
    assert_eq!(
        runs.metric("broken", "policy/rows"),
        [(trajectories.len() - broken.len()) as f64]
    );
    // With fewer allowed than there were, the run stops.
    let few = [
        "algorithm.iterations=1",
        "algorithm.name=grpo",
        "engine.max_error_share=0",
    ];
    let error = run(&runs.external("few", &front.url, &few), Start::New, |_| {}).unwrap_err();
    assert!(
        told(&error).contains("(1 requests failed, 0 may)"),
        "{}",
        told(&error)
    );
}

/// The folder of an adapter that changes the tiny model visibly, and that of the model with it merged in.
fn adapter(runs: &Runs) -> (PathBuf, PathBuf) {
    let config = runs.native("unused", &["adapter.enabled=true", "adapter.rank=2"]);
    let mut policy: Policy = runs.model.policy();
    policy
        .prepare(&config.adapter, RandomKey::new(1), &runs.model.path())
        .unwrap();
    let mut generator = RandomKey::new(2).generator();
    policy.decoder.update(|parameters| {
        for value in parameters.flat_mut() {
            *value = (generator.unit() as f32 - 0.5) * 0.4;
        }
    });
    let (folder, merged) = (runs.directory("adapter"), runs.directory("with-adapter"));
    policy.save(&folder).unwrap();
    policy.save_merged(&merged).unwrap();
    (folder, merged)
}

/// An engine in vLLM's way over two servers: one with its own weights, one with what it has after an adapter is loaded.
/// Returns it with the paths that it was asked, and bodies of those that load.
fn vllm(own: &Engine, loaded: &Engine) -> (Front, Arc<Mutex<Vec<Value>>>) {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&calls);
    let loaded_url = loaded.url.clone();
    let front = Front::start(own.url.clone(), move |path, body| {
        if path.ends_with("load_lora_adapter") {
            seen.lock().unwrap().push(body.clone());
            return Some((200, json!("Success: LoRA adapter")));
        }
        let model = body["model"].clone();
        if model == "policy" {
            return None;
        }
        let mut asked = body.clone();
        asked["model"] = json!("policy");
        let (status, mut answer) = support::front::post(&loaded_url, path, &asked);
        answer["model"] = model;
        Some((status, answer))
    });
    (front, calls)
}

fn with_adapter(runs: &Runs, name: &str, url: &str, model: &Path) -> TrainConfig {
    let mut config = runs.external(
        name,
        url,
        &[
            "engine.kind=vllm",
            "engine.weights=adapter",
            "adapter.enabled=true",
            "adapter.rank=2",
            "algorithm.name=grpo",
            "algorithm.iterations=1",
            "engine.max_mean_log_prob_difference=1e-5",
            "engine.max_log_prob_difference=1e-4",
        ],
    );
    model.clone_into(&mut config.model.path);
    config
}

/// An adapter goes to an engine with the base under a name of its own, and what is sampled with it is trained on.
#[test]
fn an_adapter_is_loaded_over_the_base() {
    let runs = Runs::new();
    let (folder, merged) = adapter(&runs);
    let base = Engine::start(&runs.model.path(), None);
    let once = Engine::start(&merged, None);
    let (front, calls) = vllm(&base, &once);
    run(
        &with_adapter(&runs, "once", &front.url, &folder),
        Start::New,
        |_| {},
    )
    .unwrap();
    let calls = calls.lock().unwrap();
    assert_eq!(calls.len(), 1, "{calls:?}");
    let name = calls[0]["lora_name"].as_str().unwrap();
    assert!(name.starts_with("seed-adapter-000001-"), "{name}");
    let path = runs.weights().join(name);
    assert_eq!(calls[0]["lora_path"], json!(path));
    assert!(path.join("adapter_model.safetensors").exists());
    assert!(runs.metric("once", "engine/compared_tokens")[0] > 0.0);
}

/// Known elsewhere as miles#1087: merged weights were synced, then the adapter was loaded over them. The fingerprint of the
/// engine's own weights, the log-probs of a few tokens, is not the base's, and the adapter is not even loaded.
#[test]
fn an_adapter_applied_twice_fails_loudly() {
    let runs = Runs::new();
    let (folder, merged) = adapter(&runs);
    let own = Engine::start(&merged, None);
    let twice = Engine::start(&merged, None);
    let (front, calls) = vllm(&own, &twice);
    let error = run(
        &with_adapter(&runs, "twice", &front.url, &folder),
        Start::New,
        |_| {},
    )
    .unwrap_err();
    let text = told(&error);
    assert!(error.is_of_engine());
    assert!(
        text.contains("the engine's `policy` is not the base of the adapter"),
        "{text}"
    );
    assert!(text.contains("the adapter would be applied twice"), "{text}");
    assert!(calls.lock().unwrap().is_empty());
    // An engine with the base that adds the adapter twice is noticed by what it samples.
    let base = Engine::start(&runs.model.path(), None);
    let policy = Policy::load(&folder, false).unwrap();
    let doubled = runs.directory("doubled");
    {
        let decoder = &policy.decoder;
        let adapter = decoder.adapter().unwrap();
        let once = adapter.merged(decoder.config(), decoder.parameters()).unwrap();
        let twice = adapter.merged(decoder.config(), &once).unwrap();
        let mut directory = load_directory(&merged).unwrap();
        directory.parameters = twice;
        seed_model::save_directory(
            &doubled,
            directory.contents(),
            seed_model::ShardOptions::default(),
        )
        .unwrap();
    }
    let twice = Engine::start(&doubled, None);
    let (front, calls) = vllm(&base, &twice);
    let error = run(
        &with_adapter(&runs, "added", &front.url, &folder),
        Start::New,
        |_| {},
    )
    .unwrap_err();
    let text = told(&error);
    assert!(
        text.contains("log-probs of the engine differ from the trainer's by"),
        "{text}"
    );
    assert_eq!(calls.lock().unwrap().len(), 1);
    assert_eq!(runs.metric("added", "engine/compared_tokens"), [0.0; 0]);
}

/// An SGLang server tells that an earlier run gave it a whole model.
#[test]
fn an_engine_with_merged_weights_of_an_earlier_run_takes_no_adapter() {
    let runs = Runs::new();
    let (folder, _) = adapter(&runs);
    let front = Front::start(String::new(), |path, _| {
        assert_eq!(path, "/generate");
        let meta = json!({
            "finish_reason": {"type": "length", "length": 1}, "weight_version": "seed-model-000007-00ff",
            "output_token_logprobs": [[-1.0, 20, null]],
        });
        Some((200, json!({"text": "a", "output_ids": [20], "meta_info": meta})))
    });
    let mut config = with_adapter(&runs, "earlier", &front.url, &folder);
    config.engine.kind = seed_train::config::EngineKind::Sglang;
    let text = told(&run(&config, Start::New, |_| {}).unwrap_err());
    assert!(
        text.contains("the engine holds the merged weights `seed-model-000007-00ff`"),
        "{text}"
    );
}
