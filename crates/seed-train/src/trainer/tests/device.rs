//! Fine-tuning, SEED and whole programs on a device, beside the same with the own kernels.
//!
//! Each test runs on candle's CPU device, and once more, ignored, on the GPU that the build's features name:
//! `cargo test --release --features cuda -p seed-train -- --ignored device`.

use seed_model::{Device, Place, Precision};
use seed_run::StopFlag;

use super::support::{lessons, shape};
use super::*;
use crate::config::{Loaded, SftConfig, SftSection};
use crate::fine_tune::{ExampleSet, FineTuner};
use crate::train::{Start, train};

const GPU: &str = if cfg!(feature = "metal") {
    "metal:0"
} else {
    "cuda:0"
};

macro_rules! on_every_device {
    ($($name:ident),+ $(,)?) => {
        mod candle_cpu {
            $(#[test] fn $name() { super::$name("candle-cpu"); })+
        }
        mod gpu {
            $(
                #[test]
                #[ignore = "needs a GPU and a build with the feature `cuda` or `metal`"]
                fn $name() { super::$name(super::GPU); }
            )+
        }
    };
}

on_every_device!(
    fine_tuning_follows_the_kernels,
    an_iteration_of_seed_follows_the_kernels,
    an_iteration_of_grpo_follows_the_kernels,
    the_old_log_probs_are_scored_and_a_large_mismatch_stops_the_run,
    iterations_in_bf16_learn_within_the_mismatch_allowed,
    programs_run_stop_and_go_on,
);

fn place(device: &str, precision: Precision) -> Place {
    Place {
        device: device.parse().unwrap(),
        precision,
    }
}

fn distance(left: &[f32], right: &[f32]) -> f64 {
    let squares = left
        .iter()
        .zip(right)
        .map(|(left, right)| f64::from(left - right).powi(2));
    squares.sum::<f64>().sqrt()
}

fn tuner(place: Place) -> FineTuner {
    let records = lessons();
    let key = RandomKey::new(5);
    let mut policy = Policy::initialise(&shape(), &records, key).unwrap();
    policy.decoder = policy.decoder.clone().placed(place).unwrap();
    let section = SftSection {
        epochs: 4,
        batch_rows: 4,
        learning_rate: 3e-3,
        epsilon: 1e-3,
        validation_fraction: 0.2,
        ..SftSection::default()
    };
    let examples = ExampleSet::new(&records, None, &policy, &section, key).unwrap();
    FineTuner::new(policy, examples, &section, 5, false, 300)
}

fn fine_tuning_follows_the_kernels(device: &str) {
    let initial = tuner(Place::default()).policy.decoder.parameters().clone();
    for (precision, off) in [(Precision::F32, 0.01), (Precision::Bf16, 0.1)] {
        let mut ours = tuner(Place::default());
        let mut theirs = tuner(place(device, precision));
        let mut losses = Vec::new();
        while let Some(expected) = ours.step().unwrap() {
            let found = theirs.step().unwrap().unwrap();
            assert!(!found.skipped);
            assert_eq!(expected.loss.tokens, found.loss.tokens);
            let difference = (expected.loss.mean - found.loss.mean).abs();
            assert!(
                difference < off * expected.loss.mean,
                "{precision:?}: {difference}"
            );
            losses.push(found.loss.mean);
        }
        assert!(theirs.step().unwrap().is_none());
        assert!(
            losses.len() >= 8 && losses[losses.len() - 1] < 0.9 * losses[0],
            "{losses:?}"
        );
        let (expected, found) = (ours.validate().unwrap().mean, theirs.validate().unwrap().mean);
        assert!(
            (expected - found).abs() < off * expected,
            "{precision:?}: {expected} {found}"
        );

        // Until they are fetched, the parameters here are the initial ones.
        assert_eq!(theirs.policy.decoder.parameters().digest(), initial.digest());
        theirs.policy.decoder.fetch().unwrap();
        let moved = distance(initial.flat(), ours.policy.decoder.parameters().flat());
        let apart = distance(
            ours.policy.decoder.parameters().flat(),
            theirs.policy.decoder.parameters().flat(),
        );
        assert!(apart < 2.0 * off * moved, "{precision:?}: {apart} of {moved}");
    }
}

fn trainer(model: &TinyModel, device: &str, overrides: &[&str]) -> Trainer {
    let device = format!("model.device={device}");
    let mut all = vec![
        device.as_str(),
        // So large that the size of a gradient shows in a step, and not only its sign.
        "optimiser.epsilon=1e-3",
        "rollout.self_check_share=1",
    ];
    all.extend(overrides);
    let config = support::config(&model.path(), &model.path(), NOBODY, &all);
    let mut policy = model.policy();
    policy
        .prepare(&config.adapter, RandomKey::new(config.run.seed), &model.path())
        .unwrap();
    policy.place(&config.model).unwrap();
    Trainer::new(config, Luck::world(), policy).unwrap()
}

/// One iteration with the kernels and one on the device: the same episodes, numbers that are close, the same step.
fn assert_iterations_agree(device: &str, overrides: &[&str]) {
    let model = TinyModel::new();
    let mut ours = trainer(&model, "cpu", overrides);
    let mut theirs = trainer(&model, device, overrides);
    let initial = ours.policy.decoder.trained().clone();
    let expected = ours.run_iteration(&mut Silent).unwrap();
    let found = theirs.run_iteration(&mut Silent).unwrap();
    assert!(expected.metrics.get("policy/updates").unwrap() >= 1.0);
    for (left, right) in expected.trajectories.iter().zip(&found.trajectories) {
        for (left, right) in left.steps.iter().zip(&right.steps) {
            assert_eq!(left.response_ids, right.response_ids);
        }
    }
    for name in [
        "policy/updates",
        "policy/rows",
        "policy/gradient_norm",
        "policy/entropy",
        "policy/kl",
        "policy/ratio_maximum",
        "seed/opd_loss",
        "seed/token_share",
        "seed/gap_mean",
    ] {
        let values = (expected.metrics.get(name), found.metrics.get(name));
        let (Some(left), Some(right)) = values else {
            assert_eq!(values.0, values.1, "{name}");
            continue;
        };
        assert!(
            (left - right).abs() < 1e-3 + 0.01 * left.abs(),
            "{name}: {left} {right}"
        );
    }
    assert!(found.metrics.get("self_check/mismatch_maximum").unwrap() < 1e-3);
    assert_eq!(expected.metrics.get("self_check/mismatch_maximum"), None);
    assert_eq!(
        expected.metrics.get("self_check/tokens"),
        found.metrics.get("self_check/tokens"),
        "here all rows are checked with the kernels too"
    );
    let moved = distance(initial.flat(), ours.policy.decoder.trained().flat());
    let apart = distance(
        ours.policy.decoder.trained().flat(),
        theirs.policy.decoder.trained().flat(),
    );
    assert!(
        moved > 0.0 && apart < 0.05 * moved,
        "{overrides:?}: {apart} of {moved}"
    );
    assert_eq!(ours.optimiser.steps(), theirs.optimiser.steps());
    if let (Some(left), Some(right)) = (&ours.teacher, &theirs.teacher) {
        let apart = distance(left.trained().flat(), right.trained().flat());
        assert!(apart < 0.05 * moved, "the teachers: {apart} of {moved}");
        assert!(distance(initial.flat(), right.trained().flat()) > 0.0);
    }
}

fn an_iteration_of_seed_follows_the_kernels(device: &str) {
    let seed = [
        "seed.analyser=oracle",
        "seed.teacher=ema",
        "seed.ema_decay=0.75",
        "algorithm.kl_coefficient=0.01",
    ];
    let adapter = ["adapter.enabled=true", "adapter.rank=3", "adapter.alpha=6"];
    assert_iterations_agree(device, &seed);
    assert_iterations_agree(device, &[&seed[..], &adapter].concat());
}

fn an_iteration_of_grpo_follows_the_kernels(device: &str) {
    assert_iterations_agree(
        device,
        &[
            "algorithm.name=grpo",
            "model.recompute_activations=true",
            "algorithm.epochs=2",
        ],
    );
}

fn the_old_log_probs_are_scored_and_a_large_mismatch_stops_the_run(device: &str) {
    let model = TinyModel::new();
    let mut scored = Scored::of(trainer(&model, device, &["model.precision=bf16"]));
    let recorded: Vec<Vec<f32>> = scored.sequences.iter().map(|row| row.old.clone()).collect();
    let mut metrics = Metrics::new();
    scored
        .trainer
        .score_old(1, &mut scored.sequences, &mut metrics)
        .unwrap();
    let plain: Vec<_> = scored.sequences.iter().map(|row| &row.sequence).collect();
    let scores = batch::score(&scored.trainer.policy.decoder, &plain, 1.0).unwrap();
    let mut largest = 0.0_f64;
    for ((row, scores), recorded) in scored.sequences.iter().zip(&scores).zip(&recorded) {
        assert_eq!(bits(&row.old), bits(scores));
        for (old, recorded) in row.old.iter().zip(recorded) {
            largest = largest.max(f64::from((old - recorded).abs()));
        }
    }
    assert_eq!(metrics.get("self_check/mismatch_maximum"), Some(largest));
    let mean = metrics.get("self_check/mismatch_mean").unwrap();
    assert!(mean > 0.0 && mean < largest && largest < 0.5, "{mean} {largest}");
    assert_eq!(
        metrics.get("self_check/rows"),
        Some(scored.sequences.len() as f64)
    );

    let overrides = ["model.precision=bf16", "rollout.device_mismatch=1e-9"];
    let mut trainer = trainer(&model, device, &overrides);
    let before = trainer.policy.decoder.trained().digest();
    let Err(TrainError::DeviceMismatch(found)) = trainer.run_iteration(&mut Silent) else {
        panic!("a mismatch above the bound stops the run");
    };
    assert_eq!((found.iteration, found.allowed), (1, 1e-9));
    assert!(found.mean > 0.0 && found.maximum >= found.mean && found.tokens > 0);
    trainer.policy.decoder.fetch().unwrap();
    assert_eq!(trainer.policy.decoder.trained().digest(), before);
    assert_eq!((trainer.iteration, trainer.optimiser.steps()), (0, 0));
}

fn iterations_in_bf16_learn_within_the_mismatch_allowed(device: &str) {
    let model = TinyModel::new();
    let overrides = [
        "model.precision=bf16",
        "seed.analyser=oracle",
        "seed.teacher=policy",
    ];
    let mut trainer = trainer(&model, device, &overrides);
    let mut digests = std::collections::BTreeSet::new();
    for iteration in 1..=3 {
        let output = trainer.run_iteration(&mut Silent).unwrap();
        assert_eq!(trainer.iteration, iteration);
        assert!(output.metrics.get("self_check/mismatch_mean").unwrap() < 0.05);
        assert!(output.metrics.get("seed/token_share").unwrap() > 0.0);
        digests.insert(trainer.policy.decoder.trained().digest().to_hex().to_string());
    }
    assert_eq!(digests.len(), 3, "every iteration moved the weights");
    assert!(
        trainer
            .policy
            .decoder
            .trained()
            .flat()
            .iter()
            .all(|value| value.is_finite())
    );
}

/// `seed sft`, then `seed train` on what it wrote, stopped after two iterations and resumed; what is left is a model as any.
fn programs_run_stop_and_go_on(device: &str) {
    let folder = tempfile::tempdir().unwrap();
    let examples = folder.path().join("examples.jsonl");
    let lines: Vec<String> = lessons()
        .iter()
        .map(|record| serde_json::to_string(record).unwrap())
        .collect();
    fs_err::write(&examples, lines.join("\n")).unwrap();
    let text = format!(
        "[run]\ndirectory = {:?}\n[model]\ndevice = {device:?}\nprecision = \"bf16\"\ncontext_length = 1024\n[sft]\nmax_length = 1024\ndata = [{examples:?}]\nepochs = \
         12\nlearning_rate = 1e-2\n[initialise]\nenabled = true\nvocabulary_size = 420\nhidden_size = 32\n\
         intermediate_size = 64\nlayers = 2\nhead_dim = 8\nmax_positions = 1024\ninitializer_range = 0.1\n",
        folder.path().join("sft")
    );
    let config = Loaded::<SftConfig>::from_text("test", &text, &[]).unwrap().config;
    let stop = StopFlag::new();
    let summary = crate::sft::sft(&config, Start::New, Vec::new(), &stop, &mut Silent).unwrap();
    assert!(
        summary.updates > 10 && summary.validation_loss < 4.0,
        "{}",
        summary.validation_loss
    );
    let tuned = Policy::load(&summary.model, false).unwrap();
    assert_eq!(tuned.decoder.place().device, Device::Cpu);

    let device = format!("model.device={device}");
    let run = |name: &str, stop_after: Option<u64>| {
        let directory = folder.path().join(name);
        let overrides = [
            device.as_str(),
            "seed.analyser=oracle",
            "seed.teacher=ema",
            "algorithm.iterations=4",
            "algorithm.kl_coefficient=0.01",
            "optimiser.epsilon=1e-3",
        ];
        let config = support::config(&directory, &summary.model, NOBODY, &overrides);
        let stop = StopFlag::new();
        let mut observer = |event: &Event<'_>| {
            if let Event::Iteration { iteration, .. } = event
                && Some(*iteration) == stop_after
            {
                stop.set();
            }
        };
        let start = if directory.exists() {
            Start::Resume
        } else {
            Start::New
        };
        train(&config, Luck::world(), start, Vec::new(), &stop, &mut observer)
    };
    assert_eq!(run("whole", None).unwrap().iterations, 4);
    assert!(matches!(
        run("stopped", Some(2)),
        Err(TrainError::Stopped {
            iteration: 2,
            total: 4
        })
    ));
    assert_eq!(run("stopped", None).unwrap().iterations, 4);
    let model = |name: &str| {
        let path = folder.path().join(name).join("checkpoints/step-00000004/model");
        Policy::load(&path, false).unwrap().decoder
    };
    let (whole, resumed) = (model("whole"), model("stopped"));
    let moved = distance(tuned.decoder.parameters().flat(), whole.parameters().flat());
    let apart = distance(whole.parameters().flat(), resumed.parameters().flat());
    assert!(moved > 0.0 && apart < 0.05 * moved, "{apart} of {moved}");
}
