//! A run that was stopped and went on ends with the bytes of one that never stopped.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of these tests fail as tests do"
)]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use seed_env::World;
use seed_run::{RunDirectory, RunError, StopFlag};
use seed_train::TrainError;
use seed_train::compare::Summary;
use seed_train::config::{Loaded, SftConfig, TrainConfig};
use seed_train::events::{Event, Silent};
use seed_train::sft::sft;
use seed_train::train::{Start, train};
use seed_train::world::open_world;
use support::TinyModel;
use support::analyst::Analyst;
use support::luck::Luck;

/// Paths with their bytes.
type Contents = BTreeMap<String, Vec<u8>>;

/// Everything that has state is on: reference, moving average, evaluation before training, the best checkpoint.
const STATEFUL: [&str; 4] = [
    "seed.teacher=ema",
    "evaluation.before_training=true",
    "checkpoint.keep_best=true",
    "rollout.temperature=0.9",
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

    fn config(&self, name: &str, overrides: &[&str]) -> TrainConfig {
        let all: Vec<&str> = STATEFUL.iter().chain(overrides).copied().collect();
        support::config(
            &self.directory(name),
            &self.model.path(),
            &self.analyst.base_url,
            &all,
        )
    }

    /// Trains until the end, or until `stop_after` iterations are done (0: before the first).
    fn train(
        &self,
        config: &TrainConfig,
        start: Start,
        stop_after: Option<u64>,
    ) -> Result<Summary, TrainError> {
        let world = open_world(&config.world, &config.search).unwrap().world;
        self.train_in(world, config, start, stop_after)
    }

    #[expect(clippy::unused_self, reason = "reads as what this run does")]
    fn train_in(
        &self,
        world: Arc<dyn World>,
        config: &TrainConfig,
        start: Start,
        stop_after: Option<u64>,
    ) -> Result<Summary, TrainError> {
        let stop = StopFlag::new();
        let mut observer = |event: &Event<'_>| {
            if let Event::Iteration { iteration, .. } = event
                && Some(*iteration) == stop_after
            {
                stop.set();
            }
        };
        if stop_after == Some(0) {
            stop.set();
        }
        train(
            config,
            world,
            start,
            vec!["test".to_owned()],
            &stop,
            &mut observer,
        )
    }

    fn whole(&self, name: &str) -> Summary {
        self.train(&self.config(name, &[]), Start::New, None).unwrap()
    }
}

/// A run's files without those of checkpoints other than the newest.
fn results(run: &Path) -> Contents {
    let mut contents = support::contents(run);
    contents.retain(|name, _| {
        !name.starts_with("checkpoints/") || name.starts_with("checkpoints/step-00000006/")
    });
    contents
}

/// What a summary says, without seconds.
fn facts(mut summary: Summary) -> Summary {
    summary.seconds.clear();
    summary
}

#[test]
fn a_run_stopped_after_any_iteration_ends_with_the_same_bytes() {
    let runs = Runs::new();
    let expected_summary = facts(runs.whole("whole"));
    let expected = results(&runs.directory("whole"));
    assert_eq!((expected_summary.iterations, expected_summary.episodes), (6, 36));
    assert!(expected.len() > 20, "{:?}", expected.keys());
    for name in [
        "metrics.jsonl",
        "evaluations.jsonl",
        "trajectories/iteration-000006.jsonl.zst",
        "skills/iteration-000001.jsonl.zst",
    ] {
        assert!(!expected[name].is_empty());
    }
    runs.whole("again");
    compare(&results(&runs.directory("again")), &expected, "a second run");
    for stop_after in 0..=5 {
        let name = format!("stopped-{stop_after}");
        let config = runs.config(&name, &[]);
        match runs.train(&config, Start::New, Some(stop_after)) {
            Err(TrainError::Stopped { iteration, total: 6 }) => assert_eq!(iteration, stop_after),
            other => panic!("expected a stop after {stop_after}, got {other:?}"),
        }
        let summary = runs.train(&config, Start::Resume, None).unwrap();
        assert_eq!(facts(summary), expected_summary);
        compare(&results(&runs.directory(&name)), &expected, &name);
    }
    // Stopped after every single iteration.
    let config = runs.config("halting", &[]);
    let mut start = Start::New;
    for iteration in 1..=5 {
        assert!(runs.train(&config, start, Some(iteration)).is_err());
        start = Start::Resume;
    }
    assert_eq!(facts(runs.train(&config, start, None).unwrap()), expected_summary);
    compare(&results(&runs.directory("halting")), &expected, "halting");
    // A finished run can be resumed, and is what it was.
    assert_eq!(
        facts(runs.train(&config, Start::Resume, None).unwrap()),
        expected_summary
    );
    compare(&results(&runs.directory("halting")), &expected, "finished");
}

/// Compares all but the resolved configuration, which names the run's own directory.
fn compare(found: &Contents, expected: &Contents, what: &str) {
    let without = |contents: &Contents| {
        let mut contents = contents.clone();
        assert!(contents.remove("config.resolved.toml").is_some(), "{what}");
        contents
    };
    support::assert_same_contents(&without(found), &without(expected), what);
}

#[test]
fn a_damaged_newest_checkpoint_is_passed_over_and_made_again() {
    let runs = Runs::new();
    runs.whole("run");
    let directory = runs.directory("run");
    let expected = results(&directory);
    for file in [
        "model/model.safetensors",
        "optimiser.safetensors",
        "teacher.safetensors",
        "state.json",
        "MANIFEST.json",
    ] {
        let path = directory.join("checkpoints/step-00000006").join(file);
        let mut bytes = fs_err::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 4;
        fs_err::write(&path, bytes).unwrap();
        let mut warnings = Vec::new();
        let mut observer = |event: &Event<'_>| {
            if let Event::Warning { text } = event {
                warnings.push(text.clone());
            }
        };
        let config = runs.config("run", &[]);
        let world = open_world(&config.world, &config.search).unwrap().world;
        train(
            &config,
            world,
            Start::Resume,
            Vec::new(),
            &StopFlag::new(),
            &mut observer,
        )
        .unwrap();
        assert_eq!(warnings.len(), 1, "{file}");
        assert!(warnings[0].contains("step-00000006"), "{}", warnings[0]);
        compare(&results(&directory), &expected, file);
    }
}

#[test]
fn without_any_whole_checkpoint_the_run_begins_again() {
    let runs = Runs::new();
    runs.whole("run");
    let directory = runs.directory("run");
    let expected = results(&directory);
    for step in ["step-00000004", "step-00000006"] {
        fs_err::remove_file(directory.join("checkpoints").join(step).join("MANIFEST.json")).unwrap();
    }
    let config = runs.config("run", &[]);
    assert_eq!(runs.train(&config, Start::Resume, None).unwrap().iterations, 6);
    compare(&results(&directory), &expected, "from the beginning");
}

#[test]
fn a_kill_between_publishing_and_pruning_leaves_nothing_behind() {
    let runs = Runs::new();
    let config = runs.config("run", &["checkpoint.keep_best=false"]);
    let directory = runs.directory("run");
    let checkpoints = directory.join("checkpoints");
    assert!(runs.train(&config, Start::New, Some(2)).is_err());
    let kept = runs.directory("kept");
    copy(&checkpoints.join("step-00000002"), &kept);
    runs.train(&config, Start::Resume, None).unwrap();
    let expected = support::contents(&directory);
    assert!(!checkpoints.join("step-00000002").exists());
    // As if the process had died after the last checkpoint was in place and before older ones were removed.
    copy(&kept, &checkpoints.join("step-00000002"));
    runs.train(&config, Start::Resume, None).unwrap();
    support::assert_same_contents(&support::contents(&directory), &expected, "after the kill");
}

fn copy(from: &Path, to: &Path) {
    fs_err::create_dir_all(to).unwrap();
    for entry in fs_err::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs_err::copy(&path, &target).unwrap();
        }
    }
}

/// What a run says that will not go on.
fn refusal(result: Result<Summary, TrainError>) -> String {
    match result {
        Err(error @ TrainError::Mismatch { .. }) => error.to_string(),
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[test]
fn what_the_result_depends_on_cannot_change_and_the_rest_can() {
    let runs = Runs::new();
    let config = runs.config("run", &[]);
    assert!(runs.train(&config, Start::New, Some(2)).is_err());
    let changed = runs.config("run", &["optimiser.learning_rate=1e-4", "seed.beta=2.0"]);
    let text = refusal(runs.train(&changed, Start::Resume, None));
    assert!(
        text.contains("`optimiser.learning_rate` was `0.003`, now `0.0001`"),
        "{text}"
    );
    assert!(text.contains("`seed.beta`"), "{text}");
    // Other weights under the same path are noticed too.
    let weights = runs.model.path().join("model.safetensors");
    let genuine = fs_err::read(&weights).unwrap();
    let mut changed = genuine.clone();
    let last_number = changed.len() - 4;
    changed[last_number] ^= 1;
    fs_err::write(&weights, changed).unwrap();
    let text = refusal(runs.train(&config, Start::Resume, None));
    assert!(text.contains("other weights than when the run began"), "{text}");
    fs_err::write(&weights, genuine).unwrap();
    // And so are other tasks under the same name, as when a folder of games was changed.
    let text = refusal(runs.train_in(Luck::world(), &config, Start::Resume, None));
    assert!(
        text.contains("tasks of the world `luck` are not those the run began with"),
        "{text}"
    );
    let faster = [
        "run.threads=1",
        "rollout.max_active_sequences=2",
        "algorithm.micro_batch_tokens=64",
        "evaluation.tasks=1",
    ];
    assert_eq!(
        runs.train(&runs.config("run", &faster), Start::Resume, None)
            .unwrap()
            .iterations,
        6
    );
}

#[test]
fn one_run_directory_has_one_trainer() {
    let runs = Runs::new();
    let config = runs.config("run", &[]);
    assert!(runs.train(&config, Start::New, Some(1)).is_err());
    let holder = RunDirectory::open(&runs.directory("run")).unwrap();
    match runs.train(&config, Start::Resume, None) {
        Err(TrainError::Run(error @ RunError::Locked { .. })) => {
            assert!(
                error
                    .to_string()
                    .contains(&format!("process {} ", std::process::id())),
                "{error}"
            );
        }
        other => panic!("expected a refusal, got {other:?}"),
    }
    drop(holder);
    assert!(matches!(
        runs.train(&config, Start::New, None),
        Err(TrainError::Run(RunError::RunExists { .. }))
    ));
    assert!(matches!(
        runs.train(&runs.config("elsewhere", &[]), Start::Resume, None),
        Err(TrainError::Run(RunError::NoRun { .. }))
    ));
}

#[test]
fn fine_tuning_resumes_to_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("lessons.jsonl");
    seed_run::write_json_lines(&data, support::lessons()).unwrap();
    let text = |name: &str| {
        format!(
            "[run]\ndirectory = {:?}\n[model]\ncontext_length = 256\n[initialise]\nenabled = true\nvocabulary_size = 300\n\
             hidden_size = 16\nintermediate_size = 16\nlayers = 1\nquery_heads = 2\nkey_value_heads = 1\nhead_dim = 8\n\
             max_positions = 256\n[sft]\ndata = [{data:?}]\nepochs = 4\nbatch_rows = 4\nmax_length = 256\n\
             learning_rate = 3e-3\nvalidate_every = 3\nselection = \"best\"\n[checkpoint]\nevery = 2\n",
            folder.path().join(name),
        )
    };
    let config = |name: &str| {
        Loaded::<SftConfig>::from_text("test", &text(name), &[])
            .unwrap()
            .config
    };
    let whole = sft(
        &config("whole"),
        Start::New,
        Vec::new(),
        &StopFlag::new(),
        &mut Silent,
    )
    .unwrap();
    assert!(whole.updates >= 12 && whole.validation_loss > 0.0);
    let result = |name: &str| {
        let mut contents = support::contents(&folder.path().join(name));
        contents.retain(|name, _| name == "metrics.jsonl" || name.starts_with("model/"));
        contents
    };
    let expected = result("whole");
    assert_eq!(expected.len(), 7, "{:?}", expected.keys());
    // Stopped now and then: at the ends of epochs, between them, and before anything was done.
    let config = config("halting");
    let mut start = Start::New;
    for stops in [0, 1, 3, 3, 5] {
        let stop = StopFlag::new();
        let mut left = stops;
        if left == 0 {
            stop.set();
        }
        let mut observer = |event: &Event<'_>| {
            if let Event::Progress { .. } = event {
                left -= 1;
                if left == 0 {
                    stop.set();
                }
            }
        };
        match sft(&config, start, Vec::new(), &stop, &mut observer) {
            Err(TrainError::Stopped { .. }) => start = Start::Resume,
            other => panic!("expected a stop, got {other:?}"),
        }
    }
    let summary = sft(&config, Start::Resume, Vec::new(), &StopFlag::new(), &mut Silent).unwrap();
    assert_eq!(
        (summary.updates, summary.validation_loss),
        (whole.updates, whole.validation_loss)
    );
    support::assert_same_contents(&result("halting"), &expected, "halting");
    // Other examples under the same name are noticed.
    let mut lessons = support::lessons();
    lessons[3].messages[1].content.push('!');
    seed_run::write_json_lines(&data, lessons).unwrap();
    match sft(&config, Start::Resume, Vec::new(), &StopFlag::new(), &mut Silent) {
        Err(error @ TrainError::Mismatch { .. }) => {
            assert!(
                error.to_string().contains("lessons.jsonl` had the digest"),
                "{error}"
            );
        }
        other => panic!("expected a refusal, got {other:?}"),
    }
    seed_run::write_json_lines(&data, support::lessons()).unwrap();
    // A finished run can be resumed: nothing is left to do, and the result is there.
    let summary = sft(&config, Start::Resume, Vec::new(), &StopFlag::new(), &mut Silent).unwrap();
    assert_eq!(summary.validation_loss, whole.validation_loss);
    support::assert_same_contents(&result("halting"), &expected, "finished");
}
