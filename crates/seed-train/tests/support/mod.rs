//! What tests of training share: a tiny policy, configurations, a world of luck, and an analyst on loopback.

#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "the helpers of these tests fail as tests do")]

pub(crate) mod analyst;
pub(crate) mod front;
pub(crate) mod luck;

use std::collections::BTreeMap;
use std::path::Path;

use seed_random::RandomKey;
use seed_train::config::{InitialiseSection, Loaded, SftSection, TrainConfig};
use seed_train::examples::{ExampleMessage, ExampleRecord, Role, Trained};
use seed_train::fine_tune::{ExampleSet, FineTuner};
use seed_train::policy::Policy;
use tempfile::TempDir;

/// A policy of about 30,000 parameters that has seen the form of an answer: it acts, badly.
pub(crate) struct TinyModel {
    folder: TempDir,
}

impl TinyModel {
    pub(crate) fn new() -> Self {
        let records = lessons();
        let key = RandomKey::new(7);
        let policy = Policy::initialise(&shape(), &records, key).unwrap();
        let section = SftSection {
            epochs: 25,
            batch_rows: 8,
            learning_rate: 1e-2,
            validation_fraction: 0.0,
            ..SftSection::default()
        };
        let examples = ExampleSet::new(&records, None, &policy, &section, key).unwrap();
        let mut tuner = FineTuner::new(policy, examples, &section, 7, false, 2048);
        while tuner.step().unwrap().is_some() {}
        let folder = tempfile::tempdir().unwrap();
        let model = Self { folder };
        tuner.policy.save(&model.path()).unwrap();
        model
    }

    pub(crate) fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("model")
    }

    pub(crate) fn policy(&self) -> Policy {
        Policy::load(&self.path(), false).unwrap()
    }
}

/// The tiny policy's sizes.
pub(crate) fn shape() -> InitialiseSection {
    InitialiseSection {
        enabled: true,
        vocabulary_size: 420,
        hidden_size: 32,
        intermediate_size: 64,
        layers: 2,
        query_heads: 4,
        key_value_heads: 2,
        head_dim: 8,
        max_positions: 1024,
        initializer_range: 0.1,
        ..InitialiseSection::default()
    }
}

/// Short conversations in the household's compact wording.
pub(crate) fn lessons() -> Vec<ExampleRecord> {
    let rooms = [
        "bed 1, desk 1, shelf 2",
        "desk 1, drawer 1, shelf 1",
        "bed 1, drawer 3, shelf 2",
    ];
    let tasks = [
        "put a mug in desk.",
        "find ring 3.",
        "put a clean pen in drawer.",
        "find ring 7.",
    ];
    let actions = [
        "go to desk 1",
        "go to shelf 2",
        "open drawer 3",
        "look",
        "take pen 1 from bed 1",
        "inventory",
    ];
    let message = |role, content: String| ExampleMessage { role, content };
    let mut records = Vec::new();
    for (number, room) in rooms.iter().enumerate() {
        for (index, task) in tasks.iter().enumerate() {
            let act = |turn: usize| {
                let action = actions[(number * 5 + index * 3 + turn) % actions.len()];
                message(
                    Role::Assistant,
                    format!("<think>I try.</think><action>{action}</action>"),
                )
            };
            records.push(ExampleRecord {
                kind: "act".to_owned(),
                messages: vec![
                    message(Role::User, format!("Room: {room}.\nYour task is to: {task}")),
                    act(0),
                    message(Role::User, "Nothing happens.".to_owned()),
                    act(1),
                ],
                train: Trained::All,
            });
        }
    }
    records
}

/// The text of a short SEED run with an endpoint as its analyser.
pub(crate) fn config_text(directory: &Path, model: &Path, base_url: &str) -> String {
    format!(
        r#"[run]
name = "short"
directory = "{}"
seed = 3

[model]
path = "{}"
context_length = 512

[world]
name = "household-studio"
context = "transcript"
prompts = "compact"
max_steps = 3
train_tasks = 5

[rollout]
tasks_per_iteration = 2
samples_per_task = 3
max_prompt_tokens = 480
max_response_tokens = 24
max_active_sequences = 4

[algorithm]
name = "seed"
iterations = 6
mini_batch_rows = 3

[seed]
coefficient = 0.5
analyser = "endpoint"
analysis_style = "compact"
skill_style = "compact"
max_analysis_prompt_tokens = 400
max_analysis_tokens = 24
extra_prompt_tokens = 8

[endpoint]
base_url = {base_url:?}
model = "analyst"
api_key_env = "CARGO_PKG_VERSION"
retries = 0
retry_delay_seconds = 0.0

[optimiser]
learning_rate = 3e-3

[evaluation]
every = 2
splits = ["seen"]
tasks = 2

[checkpoint]
every = 2
keep_best = false
"#,
        directory.display(),
        model.display(),
    )
}

/// The same as a configuration, with overrides.
pub(crate) fn config(directory: &Path, model: &Path, base_url: &str, overrides: &[&str]) -> TrainConfig {
    let overrides: Vec<String> = overrides.iter().map(|text| (*text).to_owned()).collect();
    let text = config_text(directory, model, base_url);
    Loaded::<TrainConfig>::from_text("test", &text, &overrides)
        .unwrap()
        .config
}

/// Everything a run leaves that does not depend on time or process: paths with their bytes. Checkpoints included.
pub(crate) fn contents(run: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut contents = BTreeMap::new();
    let mut folders = vec![run.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs_err::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path
                .strip_prefix(run)
                .unwrap()
                .to_string_lossy()
                .replace('\\', "/");
            let differs = [
                "run.json",
                "run.lock",
                "timings.jsonl",
                "summary.json",
                "tensorboard",
            ];
            if differs.contains(&name.as_str()) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else {
                contents.insert(name, fs_err::read(&path).unwrap());
            }
        }
    }
    contents
}

/// Fails naming the first file that differs.
pub(crate) fn assert_same_contents(
    found: &BTreeMap<String, Vec<u8>>,
    expected: &BTreeMap<String, Vec<u8>>,
    what: &str,
) {
    let names = |contents: &BTreeMap<String, Vec<u8>>| contents.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(found), names(expected), "{what}: the files");
    for (name, bytes) in expected {
        assert!(found[name] == *bytes, "{what}: `{name}` differs");
    }
}
