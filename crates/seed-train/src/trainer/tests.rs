//! The scores an update is made of: which rows get a skill's, and what they are.

#[path = "../../tests/support/mod.rs"]
mod support;

mod adapter;
mod device;
mod faults;
mod self_check;

use seed_model::{Gradients, ScoreGradients, TokenSequence};
use seed_random::Draw;

use self::support::TinyModel;
use self::support::luck::Luck;
use super::*;
use crate::events::Silent;
use crate::trainer::update::UpdateOptions;

const NOBODY: &str = "http://127.0.0.1:1/v1";

struct Scored {
    trainer: Trainer,
    trajectories: Vec<Trajectory>,
    sequences: Vec<TrainedSequence>,
    learning_rate: f64,
}

impl Scored {
    /// The episodes of a first iteration, with advantages and without scores.
    fn new(model: &TinyModel, overrides: &[&str]) -> Self {
        let config = support::config(&model.path(), &model.path(), NOBODY, overrides);
        Self::with(config, model)
    }

    fn with(config: TrainConfig, model: &TinyModel) -> Self {
        Self::of(Trainer::new(config, Luck::world(), model.policy()).unwrap())
    }

    fn of(mut trainer: Trainer) -> Self {
        let trajectories = trainer.roll_out(1, &mut Metrics::new(), &mut Silent).unwrap();
        let advantage = options::advantage_options(&trainer.config.advantage);
        let (sequences, _) = batch::build(&trajectories, &advantage, None).unwrap();
        Self {
            trainer,
            trajectories,
            sequences,
            learning_rate: 1e-3,
        }
    }

    /// Scores with these skills, one per trajectory.
    fn score(&mut self, skill: impl Fn(usize) -> Option<String>) -> Metrics {
        self.score_analyses(|index| Analysis {
            skill: skill(index),
            ..Analysis::default()
        })
    }

    /// Scores with these analyses, one per trajectory.
    fn score_analyses(&mut self, analysis: impl Fn(usize) -> Analysis) -> Metrics {
        let analyses: Vec<Analysis> = (0..self.trajectories.len()).map(analysis).collect();
        let mut metrics = Metrics::new();
        let sequences = &mut self.sequences;
        self.trainer
            .score(
                1,
                &self.trajectories,
                &analyses,
                sequences,
                &mut metrics,
                &mut Silent,
            )
            .unwrap();
        metrics
    }

    /// One optimiser step over all rows.
    fn update(&mut self, metrics: &mut Metrics) {
        let trainer = &mut self.trainer;
        update::update(
            &mut trainer.policy.decoder,
            &mut trainer.optimiser,
            &mut trainer.gradients,
            &*trainer.algorithm,
            &options::policy_options(&trainer.config),
            &self.sequences,
            1,
            &UpdateOptions {
                epochs: 1,
                mini_batch_rows: usize::MAX,
                learning_rate: self.learning_rate,
                temperature: trainer.config.rollout.temperature as f32,
                recompute: false,
            },
            metrics,
            &mut |_, _| {},
        )
        .unwrap();
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn a_skill_that_says_nothing_opens_no_gap() {
    let model = TinyModel::new();
    for overrides in [
        &["world.context=transcript"][..],
        &["world.context=windowed"],
        &[
            "world.context=windowed",
            "rollout.max_prompt_tokens=30",
            "seed.extra_prompt_tokens=0",
        ],
        &[
            "world.context=transcript",
            "rollout.temperature=0.7",
            "seed.gap_zero=teacher",
        ],
        &[
            "world.context=transcript",
            "seed.teacher=ema",
            "seed.gap_zero=teacher",
        ],
        &["world.context=windowed", "seed.teacher=frozen"],
    ] {
        let mut scored = Scored::new(&model, overrides);
        let mut metrics = scored.score(|_| Some(String::new()));
        assert!(!scored.sequences.is_empty());
        for trained in &scored.sequences {
            assert_eq!(
                bits(trained.skill.as_ref().unwrap()),
                bits(&trained.old),
                "{overrides:?}"
            );
            let reference = trained.reference.as_ref().unwrap();
            assert_eq!(
                bits(reference),
                bits(&trained.old),
                "{overrides:?}: nothing was trained yet"
            );
        }
        scored.update(&mut metrics);
        let value = |name: &str| metrics.get(name).unwrap();
        assert_eq!(
            (
                value("seed/gap_mean"),
                value("seed/gap_deviation"),
                value("seed/gap_mean_live")
            ),
            (0.0, 0.0, 0.0)
        );
        assert_eq!((value("seed/gate_mean"), value("seed/opd_loss")), (0.5, 0.0));
        assert_eq!((value("seed/row_share"), value("seed/token_share")), (1.0, 1.0));
    }
}

#[test]
fn a_step_s_context_is_the_recorded_one_but_for_its_skill() {
    let model = TinyModel::new();
    for context in ["world.context=transcript", "world.context=windowed"] {
        for mode in ["step", "episode_step"] {
            let mode = format!("seed.skill_mode={mode}");
            let mut scored = Scored::new(&model, &[context, &mode]);
            let with = |text: &str, episode: Option<&str>| Analysis {
                skill: episode.map(str::to_owned),
                step_skills: (0..3).map(|step| (step, text.to_owned())).collect(),
                ..Analysis::default()
            };
            scored.score_analyses(|_| with("", None));
            for trained in &scored.sequences {
                assert_eq!(
                    bits(trained.skill.as_ref().unwrap()),
                    bits(&trained.old),
                    "{context}"
                );
                assert!(trained.skill_tokens.iter().all(|&token| token));
            }
            // A step's own skill takes the place of the episode's, whatever that is.
            scored.score_analyses(|_| with("Look behind shelf 2.", None));
            let alone: Vec<Vec<u32>> = skill_bits(&scored);
            for trained in &mut scored.sequences {
                (trained.skill, trained.skill_tokens) = (None, Vec::new());
            }
            scored.score_analyses(|_| with("Look behind shelf 2.", Some("Go home.")));
            assert_eq!(skill_bits(&scored), alone, "{context}");
            assert_ne!(
                alone,
                scored
                    .sequences
                    .iter()
                    .map(|trained| bits(&trained.old))
                    .collect::<Vec<_>>()
            );
        }
    }
}

fn skill_bits(scored: &Scored) -> Vec<Vec<u32>> {
    scored
        .sequences
        .iter()
        .map(|trained| bits(trained.skill.as_ref().unwrap()))
        .collect()
}

#[test]
fn without_routing_a_step_s_score_stands_beside_the_episode_s() {
    let model = TinyModel::new();
    let overrides = [
        "algorithm.name=opid",
        "seed.skill_mode=episode_step",
        "seed.routing=additive",
    ];
    let mut scored = Scored::new(&model, &overrides);
    scored.score(|_| Some("Go home.".to_owned()));
    let episode = skill_bits(&scored);
    scored.score_analyses(|_| Analysis {
        skill: Some("Go home.".to_owned()),
        step_skills: [(0, "Look behind shelf 2.".to_owned())].into(),
        ..Analysis::default()
    });
    assert_eq!(skill_bits(&scored), episode);
    for (trained, trajectory) in scored.sequences.iter().zip(&scored.trajectories) {
        let first = trajectory.steps[0].response_ids.len();
        let step = trained.step_skill.as_ref().unwrap();
        assert_ne!(bits(&step[..first]), bits(&trained.old[..first]));
        assert_eq!(bits(&step[first..]), bits(&trained.old[first..]));
    }
}

#[test]
fn measured_from_another_skill_an_equal_one_says_nothing() {
    let model = TinyModel::new();
    for context in ["world.context=transcript", "world.context=windowed"] {
        let mut scored = Scored::new(&model, &[context, "seed.gap_zero=other_skill"]);
        let analysis = |placebo: &str| Analysis {
            skill: Some("Look behind shelf 2.".to_owned()),
            placebo: Some(placebo.to_owned()),
            ..Analysis::default()
        };
        let mut metrics = scored.score_analyses(|_| analysis("Look behind shelf 2."));
        scored.update(&mut metrics);
        assert_eq!(metrics.get("seed/gap_deviation"), Some(0.0));
        assert_eq!(metrics.get("seed/gap_mean"), Some(0.0));
        // The episode of index 0 has no other task's skill: its gap has no zero, and it is left to GRPO.
        for trained in &mut scored.sequences {
            (trained.skill, trained.placebo) = (None, None);
        }
        let mut metrics = scored.score_analyses(|index| Analysis {
            placebo: (index > 0).then(|| "Go home.".to_owned()),
            ..analysis("")
        });
        for trained in &scored.sequences {
            assert_eq!(trained.skill.is_some(), trained.trajectory > 0);
        }
        scored.update(&mut metrics);
        assert!(metrics.get("seed/gap_deviation").unwrap() > 0.0);
    }
}

#[test]
fn without_a_gap_the_distillation_is_half_of_imitation() {
    let model = TinyModel::new();
    let mut config = support::config(&model.path(), &model.path(), NOBODY, &["seed.coefficient=0.8"]);
    config.algorithm.policy_coefficient = 0.0;
    config.algorithm.kl_coefficient = 0.0;
    config.algorithm.entropy_coefficient = 0.0;
    let mut scored = Scored::with(config, &model);
    let mut metrics = scored.score(|_| Some(String::new()));
    let decoder = scored.trainer.policy.decoder.clone();
    scored.update(&mut metrics);
    // The gradient of the mean negative log-prob of the same tokens.
    let tokens: Vec<_> = scored.sequences.iter().map(TrainedSequence::tokens).collect();
    let count: usize = scored.sequences.iter().map(|trained| trained.old.len()).sum();
    let mut gradients = Gradients::zeros(decoder.config());
    decoder
        .accumulate_gradient(
            &tokens,
            1.0,
            &mut gradients,
            &mut |_, scores| ScoreGradients {
                log_probs: vec![-1.0 / count as f32; scores.log_probs.len()],
                entropies: vec![0.0; scores.entropies.len()],
            },
            false,
        )
        .unwrap();
    let expected = 0.8 * 0.5 * gradients.global_norm();
    let found = metrics.get("policy/gradient_norm").unwrap();
    assert!(
        expected > 1e-3 && (found / expected - 1.0).abs() < 1e-5,
        "{found} against {expected}"
    );
}

#[test]
fn a_missing_skill_changes_the_rows_of_its_trajectory_alone() {
    let model = TinyModel::new();
    for context in ["world.context=transcript", "world.context=windowed"] {
        let mut scored = Scored::new(&model, &[context]);
        let plain = scored.sequences.clone();
        let skill = |index: usize| Some(format!("Look behind shelf {index} at once."));
        scored.score(skill);
        let all = std::mem::replace(&mut scored.sequences, plain.clone());
        let missing = 2;
        scored.score(|index| if index == missing { None } else { skill(index) });
        let (mut with, mut without) = (0, 0);
        for (index, (found, expected)) in scored.sequences.iter().zip(&all).enumerate() {
            assert_eq!(found.tokens().tokens, plain[index].tokens().tokens);
            assert_eq!(
                (&found.advantages, &found.mask, &found.old),
                (&plain[index].advantages, &plain[index].mask, &plain[index].old)
            );
            assert_eq!(found.reference, expected.reference);
            if found.trajectory == missing {
                assert!(found.skill.is_none() && found.placebo.is_none() && !found.skill_truncated);
                without += 1;
            } else {
                assert_eq!(
                    bits(found.skill.as_ref().unwrap()),
                    bits(expected.skill.as_ref().unwrap())
                );
                assert_ne!(
                    bits(found.skill.as_ref().unwrap()),
                    bits(&found.old),
                    "the skill is read"
                );
                with += 1;
            }
        }
        let rows = |trajectory: &Trajectory| {
            if context.ends_with("transcript") {
                1
            } else {
                trajectory.steps.len()
            }
        };
        assert_eq!(without, rows(&scored.trajectories[missing]));
        assert_eq!(
            with + without,
            scored.trajectories.iter().map(rows).sum::<usize>()
        );
        let mut metrics = Metrics::new();
        scored.update(&mut metrics);
        assert_eq!(
            metrics.get("seed/row_share"),
            Some(f64::from(with as u32) / f64::from((with + without) as u32))
        );
    }
}

#[test]
fn rows_whose_skill_prompt_was_cut_are_counted_and_masked_on_request() {
    let model = TinyModel::new();
    for (mask, share) in [("false", 1.0), ("true", 0.0)] {
        let mask = format!("seed.mask_truncated_prompts={mask}");
        let overrides = [
            "world.context=windowed",
            "rollout.max_prompt_tokens=90",
            "seed.extra_prompt_tokens=0",
            &mask,
        ];
        let mut scored = Scored::new(&model, &overrides);
        let rows = scored.sequences.len() as f64;
        let mut metrics = scored.score(|_| Some("Look behind every shelf and below every desk. ".repeat(12)));
        scored.update(&mut metrics);
        assert!(
            scored
                .sequences
                .iter()
                .all(|trained| trained.skill_truncated && trained.skill.is_some())
        );
        assert_eq!(metrics.get("seed/prompts_truncated"), Some(rows), "{mask}");
        assert_eq!(metrics.get("seed/row_share"), Some(share), "{mask}");
    }
}

#[test]
fn a_skill_that_does_not_fit_the_context_leaves_its_trajectory_to_grpo() {
    let model = TinyModel::new();
    // Longer than the configuration allows, and longer than the model allows.
    for extra in [8, 2000] {
        let mut config = support::config(&model.path(), &model.path(), NOBODY, &[]);
        config.seed.extra_prompt_tokens = extra;
        let mut scored = Scored::with(config, &model);
        let conversation = &scored.trainer.policy.conversation;
        let long = (1..1_000)
            .map(|count| "Look behind every shelf and below every desk. ".repeat(count))
            .find(|text| conversation.opening(text).len() > 1050)
            .unwrap();
        let mut metrics = scored.score(|index| match index {
            0 => None,
            1 => Some(long.clone()),
            _ => Some("Look.".to_owned()),
        });
        scored.update(&mut metrics);
        for trained in &scored.sequences {
            assert_eq!(trained.skill.is_some(), trained.trajectory > 1, "{extra}");
        }
        assert_eq!(metrics.get("seed/row_share"), Some(4.0 / 6.0));
    }
}

#[test]
fn the_divergence_term_alone_brings_the_policy_back_to_the_reference() {
    let model = TinyModel::new();
    let overrides = ["algorithm.name=grpo", "rollout.samples_per_task=6"];
    let mut config = support::config(&model.path(), &model.path(), NOBODY, &overrides);
    // No configuration may ask for this term alone.
    config.algorithm.policy_coefficient = 0.0;
    config.algorithm.entropy_coefficient = 0.0;
    config.algorithm.kl_coefficient = 1.0;
    config.optimiser.weight_decay = 0.0;
    let mut trainer = Trainer::new(config, Luck::world(), model.policy()).unwrap();
    let mut noise = RandomKey::new(1).generator();
    trainer.policy.decoder.update(|parameters| {
        for value in parameters.flat_mut() {
            *value += 0.05 * (noise.unit() as f32 - 0.5);
        }
    });
    let mut scored = Scored::of(trainer);
    scored.score(|_| None);
    // Small enough for AdamW's momentum not to carry past the reference.
    scored.learning_rate = 2e-5;
    let mut curve = Vec::new();
    for _ in 0..50 {
        let mut metrics = Metrics::new();
        scored.update(&mut metrics);
        curve.push(metrics.get("policy/kl").unwrap());
        assert!(metrics.get("policy/gradient_norm").unwrap() > 0.0);
    }
    assert!(curve[0] > 1e-3, "there is a way to go: {curve:?}");
    assert!(
        curve.windows(2).all(|pair| pair[1] < pair[0]),
        "it falls all the way: {curve:?}"
    );
    assert!(curve[49] < 0.2 * curve[0], "{curve:?}");
}

#[test]
fn teachers_move_as_they_are_said_to() {
    let model = TinyModel::new();
    let analyst = support::analyst::Analyst::skilled();
    let run = |teacher: &str| {
        let overrides = [teacher, "seed.ema_decay=0.75"];
        let config = support::config(&model.path(), &model.path(), &analyst.base_url, &overrides);
        let mut trainer = Trainer::new(config, Luck::world(), model.policy()).unwrap();
        let mut expected: Vec<f32> = trainer.policy.decoder.parameters().flat().to_vec();
        for _ in 0..3 {
            trainer.run_iteration(&mut Silent).unwrap();
            for (value, new) in expected
                .iter_mut()
                .zip(trainer.policy.decoder.parameters().flat())
            {
                *value = 0.75 * *value + 0.25 * new;
            }
        }
        (trainer, expected)
    };
    let (trainer, expected) = run("seed.teacher=ema");
    let teacher = trainer.teacher.as_ref().unwrap().parameters().flat();
    assert_eq!(bits(teacher), bits(&expected));
    assert_ne!(bits(teacher), bits(trainer.policy.decoder.parameters().flat()));
    let (trainer, _) = run("seed.teacher=frozen");
    let initial = model.policy().decoder;
    assert_eq!(
        trainer.teacher.as_ref().unwrap().parameters().digest(),
        initial.parameters().digest()
    );
    assert_eq!(
        trainer.reference.as_ref().unwrap().parameters().digest(),
        initial.parameters().digest()
    );
    assert_ne!(
        trainer.policy.decoder.parameters().digest(),
        initial.parameters().digest()
    );
    assert!(run("seed.teacher=policy").0.teacher.is_none());
    // Copied after the second of three iterations.
    let overrides = ["seed.teacher=periodic", "seed.teacher_every=2"];
    let config = support::config(&model.path(), &model.path(), &analyst.base_url, &overrides);
    let mut trainer = Trainer::new(config, Luck::world(), model.policy()).unwrap();
    let mut digests = Vec::new();
    for _ in 0..3 {
        trainer.run_iteration(&mut Silent).unwrap();
        digests.push((
            trainer.teacher.as_ref().unwrap().parameters().digest(),
            trainer.policy.decoder.parameters().digest(),
        ));
    }
    assert_eq!(digests[0].0, initial.parameters().digest());
    assert_eq!((digests[1].0, digests[2].0), (digests[1].1, digests[1].1));
    assert_ne!(digests[2].0, digests[2].1);
}

#[test]
fn the_frozen_analyser_stays_the_initial_policy() {
    let model = TinyModel::new();
    let config = support::config(&model.path(), &model.path(), NOBODY, &["seed.analyser=frozen"]);
    let mut trainer = Trainer::new(config, Luck::world(), model.policy()).unwrap();
    trainer.run_iteration(&mut Silent).unwrap();
    let initial = model.policy().decoder.parameters().digest();
    let analyser = trainer.frozen_analyser.as_ref().unwrap();
    assert_eq!(analyser.parameters().digest(), initial);
    assert_ne!(trainer.policy.decoder.parameters().digest(), initial);
}
