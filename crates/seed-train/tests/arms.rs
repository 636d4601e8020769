//! Every arm of a study does what it claims, by configuration alone: baselines, ablations, options.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests fail as tests do")]

mod support;

use std::collections::{BTreeMap, BTreeSet};

use seed_rollout::Trajectory;
use seed_run::StopFlag;
use seed_run::metrics::definition;
use seed_train::compare::{EVALUATIONS, EvaluationRecord, RunResult, compare};
use seed_train::config::{self, EvaluationSplit};
use seed_train::evaluate_program::evaluate_panels;
use seed_train::events::Silent;
use seed_train::hindsight::Analysis;
use seed_train::prompted::PanelResult;
use seed_train::skills::SkillSource;
use seed_train::train::{Start, train};
use seed_train::trainer::{IterationOutput, Trainer};
use seed_train::world::{OpenWorld, open_world};
use serde_json::json;
use support::TinyModel;
use support::analyst::{Analyst, Answer, completion_text, number_of};
use support::luck::Luck;

const NOBODY: &str = "http://127.0.0.1:1/v1";

/// The weights after some iterations, and what they left.
struct Ran {
    digest: String,
    outputs: Vec<IterationOutput>,
    trainer: Trainer,
}

impl Ran {
    fn metric(&self, name: &str) -> Option<f64> {
        self.outputs[0].metrics.get(name)
    }
}

fn play(model: &TinyModel, base_url: &str, overrides: &[&str], iterations: usize) -> Ran {
    let config = support::config(&model.path(), &model.path(), base_url, overrides);
    let mut trainer = Trainer::new(config, Luck::world(), model.policy()).unwrap();
    let outputs = (0..iterations)
        .map(|_| trainer.run_iteration(&mut Silent).unwrap())
        .collect();
    Ran {
        digest: trainer.policy.decoder.parameters().digest().to_hex().to_string(),
        outputs,
        trainer,
    }
}

/// An analyst that never says the same of two episodes.
fn wordy() -> Analyst {
    Analyst::start(|prompt| {
        let number = number_of(prompt) % 1_000_000_007;
        Answer::Text(completion_text(&format!(
            "Go to shelf {number} before anything else."
        )))
    })
}

fn sources(analyses: &[Analysis]) -> BTreeMap<SkillSource, usize> {
    let mut counts = BTreeMap::new();
    for analysis in analyses.iter().filter(|analysis| analysis.has_skill()) {
        *counts.entry(analysis.source).or_default() += 1;
    }
    counts
}

#[test]
fn every_baseline_trains_from_the_library_and_counts_its_skills() {
    let model = TinyModel::new();
    let start = model.policy().decoder.parameters().digest().to_hex().to_string();
    let mut digests = BTreeMap::new();
    for name in ["opsd", "grpo_opsd", "skill_sd", "rlsd", "sdar", "serl", "opid"] {
        let algorithm = format!("algorithm.name={name}");
        let overrides = [
            algorithm.as_str(),
            "seed.analyser=library",
            "baseline.coefficient=0.9",
        ];
        let ran = play(&model, NOBODY, &overrides, 1);
        assert_ne!(ran.digest, start, "{name}");
        let [output] = ran.outputs.as_slice() else {
            panic!("one iteration")
        };
        for (metric, value) in output.metrics.iter() {
            assert!(
                definition(metric).is_some() && value.is_finite(),
                "{name}: {metric} = {value}"
            );
        }
        let with_skill = output
            .analyses
            .iter()
            .filter(|analysis| analysis.skill.is_some())
            .count();
        assert!(with_skill > 0, "{name}");
        assert_eq!(
            ran.metric("skill/source/library"),
            Some(with_skill as f64),
            "{name}"
        );
        assert_eq!(ran.metric("analysis/requests"), None, "{name}: nobody was asked");
        assert_eq!(ran.metric("seed/coefficient"), Some(0.9), "{name}");
        let share = with_skill as f64 / output.trajectories.len() as f64;
        let rows = ran.metric("seed/row_share").unwrap();
        let tokens = ran.metric("seed/token_share").unwrap();
        if name == "serl" {
            // Action tokens only, and not every response holds an action.
            assert!(
                rows <= share && 0.0 < tokens && tokens < 0.9 * share,
                "{tokens} of {share}"
            );
        } else {
            assert!(rows == share && tokens > 0.0, "{name}: {rows} of {share}");
        }
        digests.insert(ran.digest.clone(), name);
    }
    assert_eq!(digests.len(), 7, "no two methods are the same: {digests:?}");
}

#[test]
fn opsd_reads_no_outcome_and_grpo_opsd_no_teacher() {
    let model = TinyModel::new();
    let digest = |name: &str, key: &str| {
        let name = format!("algorithm.name={name}");
        play(&model, NOBODY, &[&name, "baseline.coefficient=0.9", key], 1).digest
    };
    let with_advantages = |name: &str| {
        ["mean", "mean_deviation"].map(|normalisation| {
            let name = format!("algorithm.name={name}");
            let normalisation = format!("advantage.normalisation={normalisation}");
            let overrides = [
                name.as_str(),
                "seed.analyser=oracle",
                "baseline.coefficient=0.9",
                "rollout.samples_per_task=6",
                normalisation.as_str(),
            ];
            play(&model, NOBODY, &overrides, 1).digest
        })
    };
    let [mean, deviation] = with_advantages("opsd");
    assert_eq!(mean, deviation);
    let [mean, deviation] = with_advantages("sdar");
    assert_ne!(mean, deviation);
    // Both have a skill for every episode: what it says reaches the gated loss alone.
    let [oracle, rules] = ["seed.analyser=oracle", "seed.analyser=rules"].map(|key| digest("grpo_opsd", key));
    assert_eq!(oracle, rules);
    let [oracle, rules] = ["seed.analyser=oracle", "seed.analyser=rules"].map(|key| digest("sdar", key));
    assert_ne!(oracle, rules);
}

#[test]
fn a_faded_weight_asks_for_no_skill() {
    let model = TinyModel::new();
    let overrides = [
        "algorithm.name=rlsd",
        "seed.analyser=oracle",
        "baseline.decay_iterations=2",
    ];
    let ran = play(&model, NOBODY, &overrides, 3);
    let weights: Vec<_> = ran
        .outputs
        .iter()
        .map(|output| output.metrics.get("seed/coefficient").unwrap())
        .collect();
    assert_eq!(weights, [0.5, 0.25, 0.0]);
    let analysed: Vec<_> = ran.outputs.iter().map(|output| output.analyses.len()).collect();
    assert_eq!(analysed, [6, 6, 0]);
}

#[test]
fn gigpo_without_its_weight_is_grpo() {
    let model = TinyModel::new();
    let digest = |overrides: &[&str]| play(&model, NOBODY, overrides, 2).digest;
    let grpo = digest(&["algorithm.name=grpo"]);
    assert_eq!(digest(&["algorithm.name=gigpo", "baseline.coefficient=0"]), grpo);
    let gigpo = play(&model, NOBODY, &["algorithm.name=gigpo"], 2);
    assert_ne!(gigpo.digest, grpo);
    assert!(gigpo.outputs.iter().all(|output| output.analyses.is_empty()));
    assert_eq!(gigpo.metric("seed/row_share"), None);
}

#[test]
fn skill_grpo_plays_with_the_skill_and_is_evaluated_with_and_without() {
    let model = TinyModel::new();
    let overrides = [
        "algorithm.name=skill_grpo",
        "seed.analyser=oracle",
        "evaluation.prompts=[\"plain\", \"oracle_skill\", \"other_skill\"]",
    ];
    let mut ran = play(&model, NOBODY, &overrides, 1);
    let conversation = ran.trainer.policy.conversation.clone();
    // The prompt as the policy read it.
    let shown = |trajectory: &Trajectory| {
        let text = conversation.decode(&trajectory.steps[0].prompt_ids);
        let (_, rest) = text.split_once("Skill: [")?;
        Some(rest.split(']').next()?.to_owned())
    };
    for trajectory in &ran.outputs[0].trajectories {
        let number: u32 = trajectory.task.as_str().bytes().map(u32::from).sum();
        let skill = shown(trajectory);
        assert_eq!(skill, Some(format!("Go to desk {number} at once.")));
    }
    let played = ran.trainer.evaluate(EvaluationSplit::Seen, &mut Silent).unwrap();
    let seen: BTreeMap<&str, Vec<_>> = played
        .iter()
        .map(|panel| {
            let skills = panel.trajectories.iter().map(shown).collect();
            (panel.result.prompt.word(), skills)
        })
        .collect();
    let shares: Vec<f64> = played.iter().map(|panel| panel.result.skill_share).collect();
    assert_eq!(shares, [0.0, 1.0, 1.0]);
    assert_eq!(seen["plain"], [None, None]);
    let oracle = &seen["oracle_skill"];
    assert!(oracle.iter().all(Option::is_some) && oracle[0] != oracle[1]);
    let swapped = [oracle[1].clone(), oracle[0].clone()];
    assert_eq!(seen["other_skill"], swapped, "of a panel of two, the other's");
}

#[test]
fn a_training_run_and_an_evaluation_of_its_weights_play_alike() {
    let model = TinyModel::new();
    let overrides = [
        "algorithm.name=grpo",
        "evaluation.prompts=[own_skill, library_skill, plain, other_skill, oracle_skill]",
        "evaluation.samples_per_task=2",
    ];
    let config = support::config(&model.path(), &model.path(), NOBODY, &overrides);
    let mut trainer = Trainer::new(config.clone(), Luck::world(), model.policy()).unwrap();
    let played = trainer.evaluate(EvaluationSplit::Seen, &mut Silent).unwrap();
    let results: Vec<PanelResult> = played.iter().map(|panel| panel.result.clone()).collect();
    let words: Vec<&str> = results.iter().map(|result| result.prompt.word()).collect();
    assert_eq!(
        words,
        [
            "own_skill",
            "library_skill",
            "plain",
            "other_skill",
            "oracle_skill"
        ]
    );
    // The tiny policy's analyses hold no skill, so that its own play is the plain one; rules always write.
    let shares: Vec<f64> = results.iter().map(|result| result.skill_share).collect();
    assert_eq!(shares, [0.0, 1.0, 0.0, 1.0, 1.0]);
    assert_eq!(played[0].trajectories, played[2].trajectories);
    assert_eq!(results[0].evaluation, results[2].evaluation);
    assert_eq!(results[2].evaluation.episodes, 4);
    let open = OpenWorld::of(Luck::world());
    let evaluated = evaluate_panels(&config, &open, None, &mut Silent).unwrap();
    assert_eq!(evaluated, results);
}

#[test]
fn a_placebo_is_never_of_the_episode_s_own_task() {
    let model = TinyModel::new();
    let analyst = wordy();
    for overrides in [
        &["seed.skill_from=other_task"][..],
        &["seed.skill_from=other_task", "seed.analyser=oracle"],
        &[
            "seed.skill_from=other_task",
            "algorithm.name=sdar",
            "seed.analyser=rules",
        ],
    ] {
        let ran = play(&model, &analyst.base_url, overrides, 2);
        let own_overrides: Vec<&str> = overrides[1..].to_vec();
        let own = play(&model, &analyst.base_url, &own_overrides, 1);
        // The same episodes with their own skills: whose is it?
        let mut writers: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for analysis in &own.outputs[0].analyses {
            writers
                .entry(analysis.skill.as_deref().unwrap())
                .or_default()
                .insert(&analysis.task);
        }
        let analyses = &ran.outputs[0].analyses;
        for (analysis, own) in analyses.iter().zip(&own.outputs[0].analyses) {
            let tasks = &writers[analysis.skill.as_deref().unwrap()];
            assert!(!tasks.contains(analysis.task.as_str()), "{analysis:?}");
            assert_eq!((&analysis.task, analysis.sample), (&own.task, own.sample));
        }
        assert_eq!(sources(analyses), BTreeMap::from([(SkillSource::OtherTask, 6)]));
        assert_eq!(ran.metric("skill/source/other_task"), Some(6.0));
        assert_ne!(
            ran.digest,
            play(&model, &analyst.base_url, &own_overrides, 2).digest
        );
    }
}

#[test]
fn a_sibling_s_skill_is_a_success_of_the_group() {
    let model = TinyModel::new();
    let analyst = wordy();
    let own = play(&model, &analyst.base_url, &["rollout.samples_per_task=6"], 1);
    let overrides = ["rollout.samples_per_task=6", "seed.skill_from=sibling"];
    let ran = play(&model, &analyst.base_url, &overrides, 1);
    let own = &own.outputs[0].analyses;
    let mut given = 0;
    for (index, analysis) in ran.outputs[0].analyses.iter().enumerate() {
        let siblings: BTreeSet<&str> = own
            .iter()
            .enumerate()
            .filter(|&(other, candidate)| {
                other != index && candidate.group == analysis.group && candidate.success
            })
            .filter_map(|(_, candidate)| candidate.skill.as_deref())
            .collect();
        match &analysis.skill {
            Some(skill) => {
                given += 1;
                assert!(siblings.contains(skill.as_str()));
            }
            None => assert!(siblings.is_empty()),
        }
    }
    assert!(given > 0, "some group has a success");
    assert_eq!(ran.metric("skill/source/sibling"), Some(f64::from(given)));

    // Or only where the episode has failed, and its own where no other has succeeded.
    let overrides = ["rollout.samples_per_task=6", "seed.skill_from=own_or_sibling"];
    let mixed = play(&model, &analyst.base_url, &overrides, 1);
    let mut lent = 0;
    for (index, analysis) in mixed.outputs[0].analyses.iter().enumerate() {
        let of_itself = own[index].skill.as_deref().unwrap();
        let mut siblings = own
            .iter()
            .filter(|other| other.group == analysis.group && other.success);
        if own[index].success || siblings.clone().next().is_none() {
            assert_eq!(
                (analysis.source, analysis.skill.as_deref()),
                (SkillSource::Own, Some(of_itself))
            );
        } else {
            lent += 1;
            assert_eq!(analysis.source, SkillSource::Sibling);
            assert!(siblings.any(|sibling| sibling.skill == analysis.skill));
        }
    }
    assert!(lent > 0 && lent < mixed.outputs[0].analyses.len());
}

#[test]
fn wrong_skills_come_at_their_rate() {
    let model = TinyModel::new();
    let wrong = |share: &str| {
        let share = format!("seed.wrong_skill_share={share}");
        let overrides = ["rollout.samples_per_task=20", "seed.analyser=oracle", &share];
        let ran = play(&model, NOBODY, &overrides, 1);
        for analysis in &ran.outputs[0].analyses {
            let number: u32 = analysis.task.bytes().map(u32::from).sum();
            let expected = match analysis.source {
                SkillSource::Wrong => format!("Go to bed {number}"),
                _ => format!("Go to desk {number}"),
            };
            assert!(analysis.skill.as_ref().unwrap().starts_with(&expected));
        }
        assert_eq!(ran.metric("skill/source/oracle").is_none(), share.ends_with("=1"));
        ran.metric("skill/source/wrong").unwrap_or(0.0)
    };
    assert_eq!((wrong("0"), wrong("1")), (0.0, 40.0));
    let some = wrong("0.3");
    assert!((4.0..=20.0).contains(&some), "{some} of 40");
    assert!(wrong("0.6") > some, "a larger share holds the smaller one");
}

#[test]
fn step_skills_reach_their_steps_and_routing_decides_about_the_rest() {
    let model = TinyModel::new();
    let analyst = Analyst::start(|prompt| {
        let place = number_of(prompt) % 9;
        let answer = json!({
            "episode_summary": "It went on.",
            "episode_skill": format!("Go to shelf {place} before anything else."),
            "step_skills": { "1": format!("Now take what lies on shelf {place}."), "7": "There is no such step at all." },
        });
        Answer::Text(answer.to_string())
    });
    let run = |overrides: &[&str]| {
        let all = [
            &["algorithm.name=opid", "baseline.coefficient=0.5"][..],
            overrides,
        ]
        .concat();
        play(&model, &analyst.base_url, &all, 1)
    };
    for context in ["world.context=transcript", "world.context=windowed"] {
        let episode = run(&[context]);
        let step = run(&[context, "seed.skill_mode=step"]);
        let both = run(&[context, "seed.skill_mode=episode_step", "seed.max_step_skills=3"]);
        let added = run(&[
            context,
            "seed.skill_mode=episode_step",
            "seed.max_step_skills=3",
            "seed.routing=additive",
        ]);
        assert_eq!(episode.metric("seed/token_share"), Some(1.0));
        assert_eq!(both.metric("seed/token_share"), Some(1.0));
        let share = step.metric("seed/token_share").unwrap();
        let (mut second, mut all) = (0, 0);
        for (trajectory, analysis) in step.outputs[0].trajectories.iter().zip(&step.outputs[0].analyses) {
            assert!(analysis.skill.is_none());
            let steps: Vec<usize> = analysis.step_skills.keys().copied().collect();
            let expected: &[usize] = if trajectory.steps.len() > 1 { &[1] } else { &[] };
            assert_eq!(steps, expected, "only steps that were");
            for (index, step) in trajectory.steps.iter().enumerate() {
                all += step.response_ids.len();
                second += if index == 1 { step.response_ids.len() } else { 0 };
            }
        }
        assert!(second > 0 && (share - f64::from(second as u32) / f64::from(all as u32)).abs() < 1e-12);
        let digests: BTreeSet<&String> = [&episode, &step, &both, &added].map(|ran| &ran.digest).into();
        assert_eq!(digests.len(), 4, "{context}: all four differ");
    }
}

#[test]
fn verified_skills_won_an_episode_more_and_their_trials_count() {
    let model = TinyModel::new();
    let analyst = Analyst::skilled();
    let run = |overrides: &[&str]| play(&model, &analyst.base_url, overrides, 1);
    let plain = run(&[]);
    assert_eq!(plain.trainer.episodes, 6);
    let verified = run(&["seed.verification_replays=8"]);
    let metric = |name: &str| verified.metric(name).unwrap();
    // Two tasks played plainly, and six skills.
    assert_eq!(metric("verification/episodes"), 8.0 * 8.0);
    assert_eq!(verified.trainer.episodes, 6 + 64);
    let analyses = &verified.outputs[0].analyses;
    let mut accepted = 0;
    for (analysis, unverified) in analyses.iter().zip(&plain.outputs[0].analyses) {
        let gain = analysis.verified_gain.unwrap();
        assert_eq!(analysis.skill.is_some(), gain >= 0.125, "{analysis:?}");
        if analysis.skill.is_some() {
            accepted += 1;
            assert_eq!(analysis.skill, unverified.skill);
        } else {
            assert_eq!(analysis.status, "unverified");
        }
    }
    let share = f64::from(accepted) / 6.0;
    assert!((metric("verification/accepted_share") - share).abs() < 1e-12);
    assert_eq!(metric("seed/row_share"), share);
    // A gain that is out of reach refuses all, and what is left is GRPO.
    let refused = run(&["seed.verification_replays=2", "seed.verification_gain=1.0"]);
    let grpo = run(&["algorithm.name=grpo"]);
    if refused.metric("verification/accepted_share") == Some(0.0) {
        assert_eq!(refused.digest, grpo.digest);
    }
}

#[test]
fn a_rejected_skill_counts_under_no_source() {
    let model = TinyModel::new();
    let analyst = Analyst::skilled();
    let ran = play(&model, &analyst.base_url, &["seed.verification_replays=8"], 1);
    let kept = ran.outputs[0]
        .analyses
        .iter()
        .filter(|analysis| analysis.skill.is_some())
        .count();
    assert!((1..6).contains(&kept), "some are rejected and some kept: {kept}");
    assert_eq!(ran.metric("skill/source/own"), Some(kept as f64));
}

#[test]
fn a_frozen_analyser_says_what_the_initial_policy_would() {
    let model = TinyModel::new();
    let answers = |analyser: &str| {
        let overrides = [analyser, "optimiser.learning_rate=0.03"];
        let ran = play(&model, NOBODY, &overrides, 2);
        let texts = |index: usize| -> Vec<Option<String>> {
            ran.outputs[index]
                .analyses
                .iter()
                .map(|analysis| analysis.answer.clone())
                .collect()
        };
        (texts(0), texts(1), ran.digest.clone())
    };
    // The tiny policy writes no skill, so that all arms train alike: only the writer differs.
    let (first, second, digest) = answers("seed.analyser=policy");
    let (frozen_first, frozen_second, frozen_digest) = answers("seed.analyser=frozen");
    assert_eq!((&frozen_first, &frozen_digest), (&first, &digest));
    assert_ne!(frozen_second, second, "the policy's words have moved on");
}

#[test]
fn a_run_without_iterations_only_evaluates() {
    let model = TinyModel::new();
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("run");
    let overrides = [
        "algorithm.name=grpo",
        "algorithm.iterations=0",
        "evaluation.prompts=[\"plain\", \"library_skill\"]",
    ];
    let config = support::config(&directory, &model.path(), NOBODY, &overrides);
    let stop = StopFlag::new();
    let summary = train(&config, Luck::world(), Start::New, Vec::new(), &stop, &mut Silent).unwrap();
    assert_eq!((summary.iterations, summary.episodes), (0, 0));
    let text = fs_err::read_to_string(directory.join(EVALUATIONS)).unwrap();
    let records: Vec<EvaluationRecord> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let prompts: Vec<&str> = records.iter().map(|record| record.prompt.word()).collect();
    assert_eq!(prompts, ["plain", "library_skill"]);
    assert!(
        !text.lines().next().unwrap().contains("prompt"),
        "the plain prompt is not named"
    );
    let comparison = compare(&[RunResult::read(&directory).unwrap()]);
    let panels: Vec<&String> = comparison.arms[0].panels.keys().collect();
    assert_eq!(panels, ["seen", "seen library_skill"]);
}

#[test]
fn rule_written_skills_of_the_household_train() {
    let model = TinyModel::new();
    for (overrides, source) in [
        (&["algorithm.name=sdar", "seed.analyser=library"][..], "library"),
        (&["seed.analyser=oracle"], "oracle"),
        (&["seed.analyser=rules"], "own"),
        (
            &[
                "algorithm.name=opid",
                "seed.analyser=rules",
                "seed.skill_mode=episode_step",
            ],
            "own",
        ),
        (&["seed.analyser=rules", "seed.wrong_skill_share=1"], "wrong"),
    ] {
        let all = [
            overrides,
            &["rollout.tasks_per_iteration=2", "world.train_tasks=8"],
        ]
        .concat();
        let config = support::config(&model.path(), &model.path(), NOBODY, &all);
        let world = open_world(&config.world, &config.search).unwrap().world;
        let mut trainer = Trainer::new(config, world, model.policy()).unwrap();
        let output = trainer.run_iteration(&mut Silent).unwrap();
        let skills = output
            .analyses
            .iter()
            .filter(|analysis| analysis.skill.is_some())
            .count();
        assert_eq!(skills, output.trajectories.len(), "{source}");
        let count = output.metrics.get(&format!("skill/source/{source}"));
        assert_eq!(count, Some(skills as f64), "{source}");
    }
}

#[test]
fn a_world_without_rules_says_so_before_anything_is_played() {
    let model = TinyModel::new();
    let world = || -> std::sync::Arc<dyn seed_env::World> {
        std::sync::Arc::new(seed_env::testing::ToyWorld::new(
            seed_env::testing::ToyOptions::default(),
        ))
    };
    for overrides in [
        &["seed.analyser=oracle"][..],
        &["seed.wrong_skill_share=0.1"],
        &["algorithm.name=skill_grpo", "seed.analyser=library"],
        &["algorithm.name=grpo", "evaluation.prompts=[\"library_skill\"]"],
    ] {
        let config = support::config(&model.path(), &model.path(), NOBODY, overrides);
        let message = Trainer::new(config, world(), model.policy())
            .err()
            .unwrap()
            .to_string();
        assert!(message.contains("has no rules that write skills"), "{message}");
    }
    let config = support::config(&model.path(), &model.path(), NOBODY, &["algorithm.name=grpo"]);
    assert_eq!(config.seed.analyser, config::Analyser::Endpoint);
    assert!(Trainer::new(config, world(), model.policy()).is_ok());
}
