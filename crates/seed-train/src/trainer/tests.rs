//! The scores an update is made of: which rows get a skill's, and what they are.

#[path = "../../tests/support/mod.rs"]
mod support;

mod self_check;

use seed_model::{Gradients, ScoreGradients};
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
        let (sequences, _) = batch::build(&trajectories, &advantage).unwrap();
        Self {
            trainer,
            trajectories,
            sequences,
            learning_rate: 1e-3,
        }
    }

    /// Scores with these skills, one per trajectory.
    fn score(&mut self, skill: impl Fn(usize) -> Option<String>) -> Metrics {
        let analyses: Vec<Analysis> = (0..self.trajectories.len())
            .map(|index| Analysis {
                skill: skill(index),
                status: "parsed".to_owned(),
                ..Analysis::default()
            })
            .collect();
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
}
