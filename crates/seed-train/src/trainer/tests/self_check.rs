//! The recorded log-probs against those of scoring, and what happens where they differ.

use std::collections::BTreeSet;

use super::*;
use crate::trainer::self_check::choose;

const ALL: &str = "rollout.self_check_share=1";

impl Scored {
    fn self_check(&self, iteration: u64) -> (Result<(), TrainError>, Metrics) {
        let mut metrics = Metrics::new();
        let result = self
            .trainer
            .self_check(iteration, &self.trajectories, &self.sequences, &mut metrics);
        (result, metrics)
    }

    /// Changes the lowest bit of a recorded log-prob, where the rollout wrote it.
    fn flip_a_bit(&mut self, trajectory: usize, step: usize, token: usize) {
        let log_prob = &mut self.trajectories[trajectory].steps[step].log_probs[token];
        *log_prob = f32::from_bits(log_prob.to_bits() ^ 1);
        let advantage = options::advantage_options(&self.trainer.config.advantage);
        (self.sequences, _) = batch::build(&self.trajectories, &advantage, None).unwrap();
    }
}

fn mismatch(result: Result<(), TrainError>) -> LogProbMismatch {
    match result.unwrap_err() {
        TrainError::SelfCheck(mismatch) => *mismatch,
        other => panic!("{other}"),
    }
}

#[test]
fn the_choice_is_a_share_without_repetition_and_reaches_every_row() {
    let key = |iteration| RandomKey::new(3).with("iteration", iteration);
    for (count, share, expected) in [
        (0, 1.0, 0),
        (64, 0.0, 0),
        (1, 0.01, 1),
        (64, 0.01, 1),
        (200, 0.01, 2),
        (201, 0.01, 3),
        (64, 1.0, 64),
    ] {
        let chosen = choose(count, share, key(1));
        assert_eq!(chosen.len(), expected, "{share} of {count}");
        assert!(chosen.windows(2).all(|pair| pair[0] < pair[1]) && chosen.iter().all(|&row| row < count));
        assert_eq!(chosen, choose(count, share, key(1)));
    }
    let mut times = [0; 40];
    for iteration in 0..2000 {
        for row in choose(40, 0.05, key(iteration)) {
            times[row] += 1;
        }
    }
    assert!(
        times.iter().all(|&times| (60..145).contains(&times)),
        "each row is checked about a hundred times: {times:?}"
    );
}

#[test]
fn policy_teacher_and_reference_give_the_recorded_bits_under_every_setting() {
    let model = TinyModel::new();
    for overrides in [
        &[][..],
        &["world.context=windowed"],
        &["rollout.temperature=0.6", "rollout.top_k=7"],
        &[
            "world.context=windowed",
            "rollout.temperature=1.7",
            "rollout.top_p=0.8",
            "rollout.top_k=40",
        ],
        // Prompts cut from the left, responses cut at their limit, and conversations that fill their room.
        &[
            "world.context=windowed",
            "rollout.max_prompt_tokens=30",
            "seed.extra_prompt_tokens=0",
        ],
        &["rollout.max_response_tokens=5", "world.max_steps=8"],
        &["rollout.max_prompt_tokens=110", "world.max_steps=8"],
        &[
            "rollout.max_active_sequences=2",
            "rollout.prefill_tokens=7",
            "algorithm.micro_batch_tokens=33",
        ],
    ] {
        let base = [ALL, "seed.teacher=ema", "seed.gap_zero=teacher"];
        let all: Vec<&str> = base.iter().chain(overrides).copied().collect();
        let mut scored = Scored::new(&model, &all);
        let (result, metrics) = scored.self_check(1);
        result.unwrap();
        assert!(
            scored
                .trajectories
                .iter()
                .any(|trajectory| trajectory.steps.len() > 1),
            "{overrides:?}"
        );
        let tokens: usize = scored.trajectories.iter().map(Trajectory::response_tokens).sum();
        assert_eq!(
            metrics.get("self_check/rows"),
            Some(scored.sequences.len() as f64)
        );
        assert_eq!(metrics.get("self_check/tokens"), Some(tokens as f64));
        let mut metrics = scored.score(|_| Some(String::new()));
        for trained in &scored.sequences {
            let recorded = bits(&trained.old);
            assert_eq!(
                bits(trained.reference.as_ref().unwrap()),
                recorded,
                "{overrides:?}"
            );
            // A conversation that fills its room has none for even an empty skill.
            for teachers in [&trained.skill, &trained.placebo].into_iter().flatten() {
                assert_eq!(bits(teachers), recorded, "{overrides:?}");
            }
        }
        scored.update(&mut metrics);
        let value = |name: &str| metrics.get(name).unwrap();
        assert_eq!(
            (value("policy/ratio_maximum"), value("policy/kl_to_old")),
            (1.0, 0.0),
            "{overrides:?}: the forward pass of training"
        );
    }
}

#[test]
fn an_iteration_checks_its_share_also_after_the_weights_have_moved() {
    let model = TinyModel::new();
    for (share, rows) in [("1", 6.0), ("0.01", 1.0), ("0", 0.0)] {
        let overrides = [
            format!("rollout.self_check_share={share}"),
            "algorithm.name=grpo".to_owned(),
            "algorithm.epochs=2".to_owned(),
        ];
        let overrides: Vec<&str> = overrides.iter().map(String::as_str).collect();
        let config = support::config(&model.path(), &model.path(), NOBODY, &overrides);
        let mut trainer = Trainer::new(config, Luck::world(), model.policy()).unwrap();
        for _ in 0..3 {
            let before = trainer.policy.decoder.parameters().digest();
            let metrics = trainer.run_iteration(&mut Silent).unwrap().metrics;
            assert_ne!(trainer.policy.decoder.parameters().digest(), before);
            assert_eq!(metrics.get("self_check/rows"), Some(rows));
            assert_eq!(metrics.get("self_check/tokens").unwrap() > 0.0, rows > 0.0);
            assert!(metrics.get("timing/self_check_seconds").is_some());
        }
    }
}

#[test]
fn one_flipped_bit_is_found_and_told() {
    let model = TinyModel::new();
    for context in ["world.context=transcript", "world.context=windowed"] {
        let mut scored = Scored::new(&model, &[context, ALL]);
        let trajectory = scored
            .trajectories
            .iter()
            .rposition(|trajectory| trajectory.steps.len() > 1)
            .unwrap();
        let (step, token) = (1, 2);
        scored.flip_a_bit(trajectory, step, token);
        let played = &scored.trajectories[trajectory];
        let found = mismatch(scored.self_check(4).0);
        let recorded = played.steps[step].log_probs[token];
        assert_eq!(
            found,
            LogProbMismatch {
                iteration: 4,
                task: played.task.clone(),
                group: played.group,
                sample: played.sample,
                step,
                token,
                recorded,
                scored: f32::from_bits(recorded.to_bits() ^ 1),
                differing: 1,
                tokens: scored.trajectories.iter().map(Trajectory::response_tokens).sum(),
                rows: scored.sequences.len(),
            },
            "{context}"
        );
    }
}

#[test]
fn a_difference_is_found_in_the_iteration_that_checks_its_row() {
    let model = TinyModel::new();
    let mut scored = Scored::new(&model, &["rollout.self_check_share=0.2"]);
    scored.flip_a_bit(3, 0, 0);
    let found: BTreeSet<u64> = (1..60)
        .filter(|&iteration| scored.self_check(iteration).0.is_err())
        .collect();
    // Two of six rows are checked.
    assert!((8..35).contains(&found.len()), "{found:?}");
}

#[test]
fn weights_or_a_temperature_that_moved_in_between_are_noticed() {
    let model = TinyModel::new();
    let mut scored = Scored::new(&model, &[ALL]);
    let temperature = std::mem::replace(&mut scored.trainer.config.rollout.temperature, 1.000_001);
    let found = mismatch(scored.self_check(1).0);
    assert!(found.differing * 2 > found.tokens, "{found}");
    scored.trainer.config.rollout.temperature = temperature;
    scored.self_check(1).0.unwrap();
    scored.trainer.policy.decoder.update(|parameters| {
        let last = parameters.flat_mut().last_mut().unwrap();
        *last += 0.01;
    });
    let found = mismatch(scored.self_check(1).0);
    assert!(found.differing * 2 > found.tokens, "{found}");
}

#[test]
fn the_message_says_where_what_and_what_to_do() {
    let error = LogProbMismatch {
        iteration: 12,
        task: seed_env::TaskId::new("household-studio/train/17".to_owned()),
        group: 1,
        sample: 3,
        step: 2,
        token: 5,
        recorded: -0.25,
        scored: f32::from_bits((-0.25f32).to_bits() + 1),
        differing: 1,
        tokens: 71,
        rows: 2,
    };
    insta::assert_snapshot!(TrainError::from(Box::new(error)).to_string(), @"iteration 12: the rollout recorded a log-prob that scoring does not give again: task `household-studio/train/17`, group 1, sample 3, step 2, response token 5: recorded `-0.25` (bits be800000), scored `-0.25000003` (bits be800001); 1 of the 71 tokens in 2 checked rows differ. Nothing was updated. Continue from the last checkpoint with `--resume`: if the same difference comes back, it is a fault of the program, to be reported; if not, suspect the processor or the memory. `rollout.self_check_share = 0` trains without the check");
}
