//! What must hold of whole iterations: SEED without a signal is GRPO, nothing depends on threads or order, what must not
//! be trained is not, and a trouble with an analysis stays with its episode.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests fail as tests do")]

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use seed_env::testing::{Failures, ToyOptions, ToyWorld};
use seed_env::{HouseholdDialogue, HouseholdStyle, World};
use seed_random::{Draw, RandomKey};
use seed_rollout::Trajectory;
use seed_run::Metrics;
use seed_run::metrics::definition;
use seed_train::config::{self, EvaluationSplit};
use seed_train::events::Silent;
use seed_train::hindsight::Analysis;
use seed_train::trainer::{Trainer, batch, options};
use seed_train::world::open_world;
use support::TinyModel;
use support::analyst::{Analyst, Answer, completion_text, number_of, skill_for};
use support::luck::Luck;

/// What a run of some iterations amounts to.
struct Ran {
    digest: String,
    moments: Vec<Vec<u32>>,
    metrics: Vec<Metrics>,
    trajectories: Vec<String>,
    analyses: Vec<Vec<Analysis>>,
    trainer: Trainer,
}

impl Ran {
    fn sum(&self, name: &str) -> f64 {
        self.metrics
            .iter()
            .map(|metrics| metrics.get(name).unwrap())
            .sum()
    }

    /// Metrics without those of the clock.
    fn results(&self) -> Vec<Vec<(String, u64)>> {
        self.metrics
            .iter()
            .map(|metrics| {
                let kept = metrics
                    .iter()
                    .filter(|(name, _)| !definition(name).unwrap().is_wall_clock);
                kept.map(|(name, value)| (name.to_owned(), value.to_bits()))
                    .collect()
            })
            .collect()
    }
}

fn lines(trajectories: &[Trajectory]) -> String {
    serde_json::to_string(trajectories).unwrap()
}

fn trainer(model: &TinyModel, world: &Arc<dyn World>, base_url: &str, overrides: &[&str]) -> Trainer {
    let config = support::config(&model.path(), &model.path(), base_url, overrides);
    Trainer::new(config, world.clone(), model.policy()).unwrap()
}

fn run(mut trainer: Trainer, iterations: usize) -> Ran {
    let (mut metrics, mut trajectories, mut analyses) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..iterations {
        let output = trainer.run_iteration(&mut Silent).unwrap();
        metrics.push(output.metrics);
        trajectories.push(lines(&output.trajectories));
        analyses.push(output.analyses);
    }
    let moments = trainer.optimiser.state();
    Ran {
        digest: trainer.policy.decoder.parameters().digest().to_hex().to_string(),
        moments: moments
            .iter()
            .map(|tensor| tensor.values.iter().map(|value| value.to_bits()).collect())
            .collect(),
        metrics,
        trajectories,
        analyses,
        trainer,
    }
}

#[test]
fn seed_without_a_signal_is_grpo_bit_for_bit() {
    let model = TinyModel::new();
    let world = Luck::world();
    let skilled = Analyst::skilled().base_url;
    let garbage =
        Analyst::start(|_| Answer::Text("I would rather talk about the weather {\"a\": ".to_owned()))
            .base_url;
    let empty = Analyst::start(|_| Answer::Text(completion_text("  "))).base_url;
    let failing = Analyst::start(|_| Answer::Status(500)).base_url;
    let silent = Analyst::start(|_| Answer::Nothing).base_url;
    let play = |base_url: &str, overrides: &[&str]| run(trainer(&model, &world, base_url, overrides), 3);
    let grpo = play(&skilled, &["algorithm.name=grpo"]);
    assert!(
        grpo.sum("policy/updates") >= 3.0 && grpo.sum("group/tied_share") < 3.0,
        "there is something to learn"
    );
    assert!(grpo.metrics[0].get("reward/deviation").unwrap() > 0.0);

    let seed = play(&skilled, &[]);
    assert_ne!(seed.digest, grpo.digest, "a skill does change the update");
    assert!(seed.sum("seed/token_share") > 2.9);
    assert_eq!(
        seed.trajectories[0], grpo.trajectories[0],
        "both arms begin alike"
    );

    let (up, down) = (skilled.as_str(), Analyst::nobody());
    let variants: [(&str, &str, &[&str]); 10] = [
        ("no coefficient", up, &["seed.coefficient=0"]),
        (
            "no coefficient, as an advantage",
            up,
            &["seed.coefficient=0", "seed.placement=advantage"],
        ),
        (
            "no coefficient, another teacher",
            up,
            &["seed.coefficient=0", "seed.teacher=ema"],
        ),
        ("not begun", up, &["seed.start_after=3"]),
        ("stopped before the beginning", up, &["seed.stop_after=0"]),
        ("an endpoint that is down", &down, &[]),
        ("an endpoint that fails", &failing, &[]),
        ("an endpoint that hangs up", &silent, &[]),
        ("garbage", &garbage, &[]),
        ("empty skills", &empty, &[]),
    ];
    for (what, base_url, overrides) in variants {
        let found = play(base_url, overrides);
        assert_eq!(found.digest, grpo.digest, "{what}: parameters");
        assert_eq!(found.moments, grpo.moments, "{what}: optimiser");
        assert_eq!(found.trajectories, grpo.trajectories, "{what}: episodes");
        assert_eq!(found.sum("policy/loss"), grpo.sum("policy/loss"), "{what}: loss");
        let idle = ["seed.start_after=3", "seed.stop_after=0"];
        if overrides.first().is_some_and(|first| idle.contains(first)) {
            assert!(
                found.analyses.iter().all(Vec::is_empty),
                "{what}: nothing is analysed"
            );
        }
        if overrides.is_empty() {
            assert_eq!(
                found.sum("seed/row_share") + found.sum("seed/opd_loss"),
                0.0,
                "{what}"
            );
            assert_eq!(found.sum("analysis/accepted_share"), 0.0, "{what}");
        }
    }
}

#[test]
fn troubles_with_the_analyst_are_counted_by_kind() {
    let model = TinyModel::new();
    let world = Luck::world();
    // A third of the episodes each: a skill, garbage, an error.
    let mixed = Analyst::start(|prompt| match number_of(prompt) % 3 {
        0 => Answer::Text(completion_text(&skill_for(prompt))),
        1 => Answer::Text("no object here".to_owned()),
        _ => Answer::Status(500),
    });
    let overrides = [
        "rollout.tasks_per_iteration=5",
        "rollout.samples_per_task=4",
        "endpoint.parse_attempts=1",
    ];
    let found = run(trainer(&model, &world, &mixed.base_url, &overrides), 1);
    let metrics = &found.metrics[0];
    let status = |name: &str| {
        found.analyses[0]
            .iter()
            .filter(|analysis| analysis.status.starts_with(name))
            .count()
    };
    let (parsed, failed) = (status("parsed"), status("failed: "));
    let garbage = found.analyses[0]
        .iter()
        .filter(|analysis| analysis.status == "no_object")
        .count();
    assert_eq!(
        (parsed + failed + garbage, mixed.prompts().len()),
        (20, 20),
        "every episode is asked about once"
    );
    assert!(
        parsed > 0 && failed > 0 && garbage > 0,
        "{parsed} {failed} {garbage}"
    );
    assert_eq!(metrics.get("analysis/requests"), Some(20.0));
    assert_eq!(metrics.get("analysis/failed_requests"), Some(failed as f64));
    assert_eq!(metrics.get("analysis/parse_rate"), Some(parsed as f64 / 20.0));
    assert_eq!(metrics.get("analysis/accepted_share"), Some(parsed as f64 / 20.0));
    assert_eq!(metrics.get("seed/row_share"), Some(parsed as f64 / 20.0));
    for analysis in &found.analyses[0] {
        assert_eq!(analysis.skill.is_some(), analysis.status == "parsed");
        assert_eq!(analysis.answer.is_none(), analysis.status.starts_with("failed: "));
        assert!(
            !analysis.status.starts_with("failed: ") || analysis.status.contains("500"),
            "{}",
            analysis.status
        );
    }
    let again = run(trainer(&model, &world, &mixed.base_url, &overrides), 1);
    assert_eq!((again.digest, &again.analyses), (found.digest, &found.analyses));
}

#[test]
fn how_an_analysis_fails_makes_no_difference() {
    let model = TinyModel::new();
    let world = Luck::world();
    // One episode in five gets no skill, in four ways.
    let arms: Vec<Ran> = [
        Answer::Text("{\"episode_skill\": ".to_owned()),
        Answer::Text(completion_text("")),
        Answer::Status(404),
        Answer::Nothing,
    ]
    .into_iter()
    .map(|bad| {
        let analyst = Analyst::start(move |prompt| match number_of(prompt) % 5 {
            0 => bad.clone(),
            _ => Answer::Text(completion_text(&skill_for(prompt))),
        });
        run(
            trainer(
                &model,
                &world,
                &analyst.base_url,
                &["rollout.samples_per_task=6", "endpoint.parse_attempts=1"],
            ),
            2,
        )
    })
    .collect();
    let shares: Vec<f64> = arms
        .iter()
        .map(|arm| arm.sum("analysis/accepted_share"))
        .collect();
    assert!(
        shares[0] > 0.5 && shares[0] < 2.0,
        "some fail, some do not: {shares:?}"
    );
    for arm in &arms {
        assert_eq!(arm.digest, arms[0].digest);
    }
}

#[test]
fn the_gap_of_the_first_optimiser_step_is_the_gap_before_it() {
    let model = TinyModel::new();
    let world = Luck::world();
    let analyst = Analyst::skilled();
    for context in ["world.context=transcript", "world.context=windowed"] {
        let overrides = [context, "algorithm.mini_batch_rows=1000"];
        let found = run(trainer(&model, &world, &analyst.base_url, &overrides), 2);
        for metrics in &found.metrics {
            let value = |name: &str| metrics.get(name).unwrap();
            assert_eq!(value("policy/updates"), 1.0);
            assert!(value("seed/gap_deviation") > 1e-3, "the skill is read");
            assert!(
                (value("seed/gap_mean") - value("seed/gap_mean_live")).abs() < 1e-12,
                "{context}"
            );
            assert_eq!(
                (value("policy/ratio_maximum"), value("policy/kl_to_old")),
                (1.0, 0.0),
                "no step yet, no ratio"
            );
            assert_eq!(value("policy/clip_fraction"), 0.0);
        }
        // With several steps the later ones see a policy that has moved.
        let found = run(
            trainer(
                &model,
                &world,
                &analyst.base_url,
                &[context, "algorithm.mini_batch_rows=2"],
            ),
            1,
        );
        let metrics = &found.metrics[0];
        assert!(metrics.get("policy/updates").unwrap() > 1.0);
        assert_ne!(metrics.get("seed/gap_mean"), metrics.get("seed/gap_mean_live"));
        assert!(metrics.get("policy/ratio_maximum").unwrap() > 1.0);
    }
}

/// Runs that use every path of an iteration: who analyses, who scores, and how episodes are seen.
const ARMS: [&[&str]; 3] = [
    &[
        "world.context=transcript",
        "seed.analyser=policy",
        "seed.teacher=ema",
        "seed.gap_zero=teacher",
        "seed.analyser_temperature=0.7",
    ],
    &[
        "world.context=windowed",
        "rollout.temperature=0.8",
        "rollout.top_k=9",
    ],
    &[
        "world.context=transcript",
        "algorithm.name=grpo",
        "algorithm.epochs=2",
    ],
];

/// Parameters, metrics, trajectories and analyses.
type Results = (String, Vec<Vec<(String, u64)>>, Vec<String>, Vec<Vec<Analysis>>);

/// Two iterations of an arm, with every row checked; what does not follow from the configuration is left out.
fn play(model: &TinyModel, analyst: &Analyst, arm: usize, threads: usize, settings: &[String]) -> Results {
    let overrides: Vec<&str> = ARMS[arm]
        .iter()
        .copied()
        .chain(["rollout.self_check_share=1"])
        .chain(settings.iter().map(String::as_str))
        .collect();
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .unwrap();
    pool.install(|| {
        let config = support::config(&model.path(), &model.path(), &analyst.base_url, &overrides);
        let world = open_world(&config.world, &config.search).unwrap().world;
        let found = run(Trainer::new(config, world, model.policy()).unwrap(), 2);
        let results = found.results();
        (found.digest, results, found.trajectories, found.analyses)
    })
}

#[test]
fn neither_threads_nor_any_split_of_the_work_changes_a_bit_of_an_iteration() {
    let model = TinyModel::new();
    let analyst = Analyst::skilled();
    let expected: Vec<Results> = (0..ARMS.len())
        .map(|arm| play(&model, &analyst, arm, 1, &[]))
        .collect();
    let settings = (
        1usize..8,
        prop_oneof![1usize..30, 30usize..2000],
        prop_oneof![1usize..200, 200usize..9000],
        any::<bool>(),
        1usize..5,
    );
    let threads = prop::sample::select(vec![1usize, 2, 3, 5]);
    let mut runner = TestRunner::new(ProptestConfig {
        cases: 12,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let law = |(arm, threads, settings): (usize, usize, (usize, usize, usize, bool, usize))| {
        let (active, prefill, micro_batch, recompute, concurrency) = settings;
        let settings = [
            format!("rollout.max_active_sequences={active}"),
            format!("rollout.prefill_tokens={prefill}"),
            format!("algorithm.micro_batch_tokens={micro_batch}"),
            format!("model.recompute_activations={recompute}"),
            format!("endpoint.concurrency={concurrency}"),
        ];
        let found = play(&model, &analyst, arm, threads, &settings);
        prop_assert_eq!(&found.0, &expected[arm].0, "parameters");
        prop_assert_eq!(&found.1, &expected[arm].1, "metrics");
        prop_assert_eq!(&found.2, &expected[arm].2, "trajectories");
        prop_assert_eq!(&found.3, &expected[arm].3, "analyses");
        Ok(())
    };
    runner.run(&(0..ARMS.len(), threads, settings), law).unwrap();
}

#[test]
fn the_order_of_trajectories_does_not_change_their_advantages() {
    let model = TinyModel::new();
    let mut trainer = trainer(
        &model,
        &Luck::world(),
        &Analyst::nobody(),
        &["rollout.samples_per_task=5"],
    );
    let trajectories = trainer.run_iteration(&mut Silent).unwrap().trajectories;
    for unit in [
        "advantage.statistic_unit=step",
        "advantage.statistic_unit=trajectory",
    ] {
        let config = support::config(&model.path(), &model.path(), "http://127.0.0.1:1/v1", &[unit]);
        let options = options::advantage_options(&config.advantage);
        let of = |trajectories: &[Trajectory]| {
            let (sequences, _) = batch::build(trajectories, &options, None).unwrap();
            let mut all: Vec<_> = sequences
                .iter()
                .map(|trained| {
                    let trajectory = &trajectories[trained.trajectory];
                    let bits: Vec<u32> = trained.advantages.iter().map(|value| value.to_bits()).collect();
                    (trajectory.group, trajectory.sample, bits, trained.tied)
                })
                .collect();
            all.sort();
            all
        };
        let expected = of(&trajectories);
        assert!(
            expected
                .iter()
                .any(|(_, _, bits, _)| bits.iter().any(|bits| f32::from_bits(*bits) != 0.0))
        );
        for seed in 0..5 {
            let mut shuffled = trajectories.clone();
            RandomKey::new(seed).generator().shuffle(&mut shuffled);
            assert_eq!(of(&shuffled), expected, "{unit}");
        }
    }
}

fn toy(failures: Failures) -> Arc<dyn World> {
    let dialogue = HouseholdDialogue::new(HouseholdStyle::Compact);
    Arc::new(
        ToyWorld::new(ToyOptions {
            failures,
            ..ToyOptions::default()
        })
        .with_dialogue(dialogue),
    )
}

#[test]
fn an_iteration_in_which_nothing_may_be_trained_leaves_every_bit_as_it_was() {
    let model = TinyModel::new();
    let analyst = Analyst::skilled();
    let overrides = ["rollout.max_error_share=1"];
    let step_error = Failures {
        step_error: 1.0,
        ..Failures::default()
    };
    let reset_error = Failures {
        reset_error: 1.0,
        ..Failures::default()
    };
    for (failures, steps) in [(step_error, 2), (reset_error, 0)] {
        let trainer = trainer(&model, &toy(failures), &analyst.base_url, &overrides);
        let before = trainer.policy.decoder.parameters().digest();
        let found = run(trainer, 2);
        assert_eq!(found.trainer.policy.decoder.parameters().digest(), before);
        assert_eq!(
            found.trainer.optimiser.steps(),
            0,
            "the optimiser has not moved either"
        );
        assert!(found.moments.iter().flatten().all(|&bits| bits == 0));
        for metrics in &found.metrics {
            let value = |name: &str| metrics.get(name).unwrap();
            assert_eq!(
                value("policy/updates") + value("policy/rows") + value("policy/loss"),
                0.0
            );
            assert_eq!(
                value("policy/skipped_updates"),
                if steps == 0 { 0.0 } else { 2.0 }
            );
            assert_eq!((value("episode/count"), value("episode/excluded")), (6.0, 6.0));
            assert_eq!(value("episode/outcome/environment_error"), 1.0);
            assert_eq!(
                value("analysis/requests"),
                0.0,
                "nothing is asked about an episode that does not count"
            );
            assert!(metrics.iter().all(|(_, value)| value.is_finite()));
        }
        let trajectories: Vec<Trajectory> = serde_json::from_str(&found.trajectories[0]).unwrap();
        assert!(
            trajectories
                .iter()
                .all(|trajectory| trajectory.steps.len() == steps)
        );
    }
    assert!(analyst.prompts().is_empty());
}

#[test]
fn episodes_of_failed_environments_are_masked_and_move_no_one_elses_advantage() {
    let model = TinyModel::new();
    let overrides = ["rollout.samples_per_task=6"];
    let mut trainer = trainer(&model, &Luck::world(), &Analyst::nobody(), &overrides);
    let mut trajectories = trainer.run_iteration(&mut Silent).unwrap().trajectories;
    let options = options::advantage_options(&trainer.config().advantage);
    // The same episodes, once without two of them and once with their environments failing at the end.
    let (failed, without): (Vec<_>, Vec<_>) = trajectories
        .iter()
        .cloned()
        .partition(|trajectory| trajectory.group == 0 && trajectory.sample < 2);
    assert_eq!(failed.len(), 2);
    for trajectory in &mut trajectories {
        if trajectory.group == 0 && trajectory.sample < 2 {
            trajectory.outcome = seed_env::Outcome::EnvironmentError;
            // What an episode had earned before does not count.
            trajectory.steps[0].reward = 100.0;
        }
    }
    let (with, advantages) = batch::build(&trajectories, &options, None).unwrap();
    let (expected, _) = batch::build(&without, &options, None).unwrap();
    let trained: Vec<_> = with
        .iter()
        .filter(|sequence| sequence.mask.contains(&true))
        .collect();
    assert_eq!(trained.len(), expected.len());
    for (found, expected) in trained.iter().zip(&expected) {
        assert_eq!(found.advantages, expected.advantages);
        assert!(found.mask.iter().all(|&trains| trains));
    }
    assert!(advantages.untrained_rows >= 2);
    // A reward that is no number excludes its episode in the same way.
    for trajectory in &mut trajectories {
        if trajectory.group == 0 && trajectory.sample < 2 {
            trajectory.outcome = seed_env::Outcome::Success;
            trajectory.steps[0].reward = f32::NAN;
        }
    }
    let (with, advantages) = batch::build(&trajectories, &options, None).unwrap();
    assert_eq!(advantages.excluded.len(), 2);
    let trained: Vec<_> = with
        .iter()
        .filter(|sequence| sequence.mask.contains(&true))
        .collect();
    let pairs = trained.iter().zip(&expected);
    assert!(trained.len() == expected.len() && pairs.into_iter().all(|(a, b)| a.advantages == b.advantages));
}

#[test]
fn iterations_draw_anew_and_evaluations_draw_the_same() {
    let model = TinyModel::new();
    // Two tasks in all and a step that moves nothing: only the draws can differ.
    let still = [
        "algorithm.name=grpo",
        "world.train_tasks=2",
        "optimiser.learning_rate=1e-30",
    ];
    let mut trainer = trainer(&model, &Luck::world(), &Analyst::nobody(), &still);
    let digest = trainer.policy.decoder.parameters().digest();
    let mut seen: Vec<Vec<u32>> = Vec::new();
    let mut evaluations = Vec::new();
    for _ in 0..3 {
        let played = trainer.evaluate(EvaluationSplit::Seen, &mut Silent).unwrap();
        evaluations.extend(played.into_iter().map(|panel| (panel.result, panel.trajectories)));
        let trajectories = trainer.run_iteration(&mut Silent).unwrap().trajectories;
        let tasks: BTreeSet<_> = trajectories
            .iter()
            .map(|trajectory| trajectory.task.as_str())
            .collect();
        assert_eq!(tasks.len(), 2, "every iteration plays different tasks");
        seen.extend(
            trajectories
                .iter()
                .flat_map(|trajectory| &trajectory.steps)
                .map(|step| step.response_ids.clone()),
        );
    }
    assert_eq!(trainer.policy.decoder.parameters().digest(), digest);
    assert_eq!(evaluations[0], evaluations[1]);
    assert_eq!(evaluations[0], evaluations[2]);
    assert_eq!((trainer.iteration, trainer.episodes), (3, 18));
    let sampled: usize = seen.iter().map(Vec::len).sum();
    assert_eq!(trainer.sampled_tokens, sampled as u64);
    // Responses of a policy that has learned a form do repeat, but not in whole iterations.
    let distinct: BTreeSet<_> = seen.iter().collect();
    assert!(
        distinct.len() * 2 > seen.len(),
        "{} of {} responses are distinct",
        distinct.len(),
        seen.len()
    );
}

#[test]
fn rows_updates_and_learning_rates_are_as_configured() {
    let model = TinyModel::new();
    let overrides = [
        "algorithm.name=grpo",
        "rollout.samples_per_task=4",
        "algorithm.mini_batch_rows=3",
        "algorithm.epochs=2",
        "optimiser.learning_rate=1e-3",
        "optimiser.warmup_ratio=0.5",
        "optimiser.schedule=linear",
    ];
    let found = run(trainer(&model, &Luck::world(), &Analyst::nobody(), &overrides), 6);
    let rates: Vec<f64> = found
        .metrics
        .iter()
        .map(|metrics| metrics.get("policy/learning_rate").unwrap())
        .collect();
    assert!(
        rates[0] < rates[1] && rates[1] < rates[2],
        "it rises over half of six iterations: {rates:?}"
    );
    assert!(
        rates[3] > rates[4] && rates[4] > rates[5],
        "and falls over the rest: {rates:?}"
    );
    assert!(rates.iter().all(|&rate| rate <= 1e-3 + 1e-12));
    for metrics in &found.metrics {
        let value = |name: &str| metrics.get(name).unwrap();
        assert_eq!(
            (value("policy/rows"), value("policy/updates")),
            (8.0, 6.0),
            "two passes in threes over eight rows"
        );
        assert_eq!(value("policy/skipped_updates"), 0.0);
    }
    assert_eq!(found.trainer.optimiser.steps(), 36);
}

#[test]
fn the_settings_of_analyses_are_followed() {
    let model = TinyModel::new();
    let analyst = Analyst::skilled();
    let play = |overrides: &[&str]| {
        let overrides: Vec<&str> = ["rollout.samples_per_task=6"]
            .iter()
            .chain(overrides)
            .copied()
            .collect();
        run(trainer(&model, &Luck::world(), &analyst.base_url, &overrides), 2)
    };
    let asked = |found: &Ran, iteration: usize, success: bool| {
        let of = found.analyses[iteration]
            .iter()
            .filter(|analysis| analysis.success == success);
        let all: Vec<_> = of.map(|analysis| analysis.status != "not_asked").collect();
        assert!(!all.is_empty(), "both outcomes occur");
        assert!(all.iter().all(|&asked| asked == all[0]));
        all[0]
    };
    let everything = play(&[]);
    assert!(asked(&everything, 0, true) && asked(&everything, 0, false));
    let failures = play(&["seed.failed_only=true", "seed.gate=centered"]);
    assert!(!asked(&failures, 0, true) && asked(&failures, 0, false));
    let later = play(&["seed.failed_only_after=1", "seed.gate=centered"]);
    assert!(asked(&later, 0, true) && !asked(&later, 1, true) && asked(&later, 1, false));
    let stopped = play(&["seed.stop_after=1"]);
    assert_eq!((stopped.analyses[0].len(), stopped.analyses[1].len()), (12, 0));

    let skills = |found: &Ran| -> Vec<String> {
        found.analyses[0]
            .iter()
            .filter_map(|analysis| analysis.skill.clone())
            .collect()
    };
    let short = play(&["seed.max_skill_words=5"]);
    assert!(
        skills(&short).len() == 12
            && skills(&short)
                .iter()
                .all(|skill| skill.split_whitespace().count() == 5)
    );
    assert_eq!(short.metrics[0].get("analysis/skill_words_mean"), Some(5.0));
    assert!(skills(&play(&["seed.min_skill_words=100"])).is_empty());
    // The episodes show no drawer, so sentences that name one are dropped.
    let grounded = play(&["seed.grounding_filter=true"]);
    assert!(grounded.metrics[0].get("analysis/dropped_sentences").unwrap() > 0.0);
    assert!(skills(&grounded).iter().all(|skill| !skill.contains("drawer")));
    for analysis in &everything.analyses[0] {
        assert_eq!(analysis.summary.as_deref(), Some("The agent looked around."));
        assert!(
            analysis.answer_tokens == 5
                && !analysis.answer_cut
                && (0.0..=1.0).contains(&analysis.copied_share)
        );
    }
}

#[test]
fn every_recorded_name_is_registered() {
    let model = TinyModel::new();
    let analyst = Analyst::skilled();
    for overrides in [
        &["algorithm.name=grpo"][..],
        &[
            "seed.teacher=ema",
            "seed.gap_zero=teacher",
            "seed.analyser=policy",
        ],
        &[
            "world.context=windowed",
            "seed.placement=advantage",
            "seed.gate=centered",
        ],
    ] {
        let config = support::config(&model.path(), &model.path(), &analyst.base_url, overrides);
        let is_seed = config.algorithm.name == config::Algorithm::Seed;
        let world = open_world(&config.world, &config.search).unwrap().world;
        let mut trainer = Trainer::new(config, world, model.policy()).unwrap();
        let metrics = trainer.run_iteration(&mut Silent).unwrap().metrics;
        for (name, value) in metrics.iter() {
            assert!(definition(name).is_some(), "`{name}` is not registered");
            assert!(value.is_finite(), "`{name}` is {value}");
        }
        let has = |prefix: &str| metrics.iter().any(|(name, _)| name.starts_with(prefix));
        assert_eq!((has("seed/row_share"), has("analysis/")), (is_seed, is_seed));
        for expected in [
            "policy/loss",
            "policy/entropy",
            "policy/kl",
            "policy/gradient_norm",
            "success/rate",
            "reward/mean",
            "episode/steps_mean",
            "response/tokens_mean",
            "prompt/tokens_mean",
            "action/valid_share",
            "group/tied_share",
            "advantage/mean",
            "cost/update_tokens_per_trained_token",
            "cost/tokens_per_trained_token",
            "timing/rollout_seconds",
            "timing/environment_seconds",
            "timing/environment_share",
            "timing/prefill_seconds",
            "timing/decode_seconds",
            "timing/update_seconds",
            "timing/rescore_seconds",
            "timing/iteration_seconds",
            "timing/cpu_seconds",
        ] {
            assert!(metrics.get(expected).is_some(), "`{expected}` is missing");
        }
        let played = trainer.evaluate(EvaluationSplit::Seen, &mut Silent).unwrap();
        let counts: Vec<_> = played
            .iter()
            .map(|panel| (panel.result.evaluation.episodes, panel.trajectories.len()))
            .collect();
        assert_eq!(counts, [(2, 2)]);
    }
}

#[test]
fn the_tokens_computed_are_those_that_have_to_be() {
    let model = TinyModel::new();
    let overrides = [
        "algorithm.name=grpo",
        "algorithm.epochs=2",
        "rollout.self_check_share=0.0",
    ];
    let config = support::config(&model.path(), &model.path(), "http://127.0.0.1:1/v1", &overrides);
    let world = open_world(&config.world, &config.search).unwrap().world;
    let mut trainer = Trainer::new(config, world, model.policy()).unwrap();
    for _ in 0..2 {
        let output = trainer.run_iteration(&mut Silent).unwrap();
        let (mut sampling, mut training, mut trained, mut group) = (0, 0, 0, None);
        for trajectory in &output.trajectories {
            let opening = trajectory.steps[0].prompt_ids.len();
            let lengths = trajectory
                .steps
                .iter()
                .map(|step| step.prompt_ids.len() + step.response_ids.len());
            // The last token is sampled and never read.
            let rows = lengths.sum::<usize>() - 1;
            // All but the last token of the opening are read once for a whole group.
            let shared = group.replace(trajectory.group) == Some(trajectory.group);
            sampling += rows - if shared { opening - 1 } else { 0 };
            training += rows;
            trained += trajectory.response_tokens();
        }
        let value = |name: &str| output.metrics.get(name).unwrap();
        assert_eq!(value("cost/rollout_tokens"), sampling as f64);
        assert_eq!(
            (value("cost/analysis_tokens"), value("cost/self_check_tokens")),
            (0.0, 0.0)
        );
        assert_eq!(
            value("cost/rescore_tokens"),
            training as f64,
            "the reference scores each row"
        );
        assert_eq!(
            value("cost/update_tokens"),
            2.0 * training as f64,
            "in two epochs"
        );
        assert_eq!(
            value("cost/update_tokens_per_trained_token"),
            2.0 * training as f64 / trained as f64
        );
        assert_eq!(
            value("cost/tokens_per_trained_token"),
            (sampling + 3 * training) as f64 / trained as f64
        );
    }
}
