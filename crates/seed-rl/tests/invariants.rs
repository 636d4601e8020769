//! Properties of the whole update that need no language model: a table of logits stands in for one.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test by panicking")]

use seed_rl::gate::GateMode;
use seed_rl::grpo::Grpo;
use seed_rl::seed::Seed;
use seed_rl::{
    CoefficientSchedule, Normaliser, OutcomeLabel, Placement, PolicyOptions, SeedOptions, Sequence,
    UpdatePlan,
};

fn seed(options: SeedOptions) -> Seed {
    Seed::new(options).unwrap()
}

const OLD: [f32; 3] = [-1.0, -0.5, -2.0];

fn sequence(trajectory: u64, skill: Option<&'static [f32]>) -> Sequence<'static> {
    Sequence {
        trajectory,
        outcome: OutcomeLabel::Success,
        mask: &[true; 3],
        advantages: &[0.5; 3],
        old: &OLD,
        reference: Some(&[-1.1, -0.6, -1.9]),
        skill,
        ..Sequence::default()
    }
}

fn gradients(
    algorithm: &Seed,
    policy: &PolicyOptions,
    batch: &[Sequence<'_>],
    order: &[usize],
) -> Vec<Vec<f32>> {
    let plan = UpdatePlan::new(algorithm, policy, batch, 1).unwrap();
    let mut objective = plan.mini_batch(order).unwrap();
    let found = (0..order.len())
        .map(|position| objective.evaluate(position, &OLD, &[0.3; 3]).log_probs)
        .collect();
    let _metrics = objective.finish().unwrap();
    found
}

#[test]
fn a_plain_teacher_has_no_gap_and_is_half_self_imitation() {
    let policy = PolicyOptions {
        policy_coefficient: 0.0,
        kl_coefficient: 0.0,
        entropy_coefficient: 0.0,
        ..PolicyOptions::default()
    };
    let algorithm = seed(SeedOptions {
        coefficient: CoefficientSchedule::constant(1.0),
        ..SeedOptions::default()
    });
    let batch = [sequence(1, Some(&OLD))];
    let plan = UpdatePlan::new(&algorithm, &policy, &batch, 1).unwrap();
    assert!(plan.report().gaps.0.iter().all(|record| record.gap == 0.0));
    let found = gradients(&algorithm, &policy, &batch, &[0]);
    // Negative log-likelihood over three tokens has gradient −1/3 each.
    assert_eq!(found[0], [-0.5f32 / 3.0; 3]);

    // The centred gate removes exactly that part.
    let centred = seed(SeedOptions {
        gate: GateMode::Centered,
        coefficient: CoefficientSchedule::constant(1.0),
        ..SeedOptions::default()
    });
    assert!(
        gradients(&centred, &policy, &batch, &[0])[0]
            .iter()
            .all(|&value| value == 0.0)
    );
}

#[test]
fn live_gap_equals_initial_gap_before_the_first_step() {
    let skill: &[f32] = &[-0.7, -0.9, -2.0];
    let (algorithm, policy) = (seed(SeedOptions::default()), PolicyOptions::default());
    let batch = [sequence(1, Some(skill))];
    let plan = UpdatePlan::new(&algorithm, &policy, &batch, 1).unwrap();
    let mut objective = plan.mini_batch(&[0]).unwrap();
    let _ = objective.evaluate(0, &OLD, &[0.3; 3]);
    let metrics = objective.finish().unwrap();
    assert_eq!(metrics.gaps, plan.report().gaps);
    assert_eq!(
        (metrics.old_kl_sum, metrics.clipped_high + metrics.clipped_low),
        (0.0, 0)
    );
}

#[test]
fn shuffled_sequences_keep_their_teacher() {
    let skills: [&'static [f32]; 3] = [&[-0.7, -0.9, -2.0], &[-1.4, -0.1, -2.5], &[-1.0, -0.6, -0.2]];
    let (algorithm, policy) = (seed(SeedOptions::default()), PolicyOptions::default());
    let batch: Vec<Sequence<'_>> = (0..3).map(|id| sequence(id, Some(skills[id as usize]))).collect();
    let straight = gradients(&algorithm, &policy, &batch, &[0, 1, 2]);
    let shuffled = gradients(&algorithm, &policy, &batch, &[2, 0, 1]);
    assert_eq!(
        [&shuffled[1], &shuffled[2], &shuffled[0]],
        [&straight[0], &straight[1], &straight[2]]
    );
    assert_ne!(straight[0], straight[1]);
}

#[test]
fn a_parse_failure_changes_its_own_trajectory_only() {
    let skill: &[f32] = &[-0.7, -0.9, -2.0];
    let policy = PolicyOptions::default();
    let normaliser = Normaliser::GlobalMini;
    let algorithm = seed(SeedOptions {
        normaliser,
        ..SeedOptions::default()
    });
    let whole = [sequence(1, Some(skill)), sequence(2, Some(skill))];
    let failed = [
        whole[0],
        Sequence {
            skill: None,
            ..whole[1]
        },
    ];
    let (before, after) = (
        gradients(&algorithm, &policy, &whole, &[0, 1]),
        gradients(&algorithm, &policy, &failed, &[0, 1]),
    );
    assert_eq!(before[0], after[0]);
    let plan = UpdatePlan::new(&algorithm, &policy, &failed, 1).unwrap();
    assert_eq!(plan.guided(0), [true; 3]);
    assert!(plan.guided(1).is_empty());

    // What remains for the failed one is GRPO.
    let plan = UpdatePlan::new(&Grpo, &policy, &failed, 1).unwrap();
    let mut objective = plan.mini_batch(&[0, 1]).unwrap();
    let grpo = [0, 1].map(|position| objective.evaluate(position, &OLD, &[0.3; 3]).log_probs);
    assert!(objective.finish().is_ok());
    assert_eq!(after[1], grpo[1]);
}

#[test]
fn duplicated_padding_shares_its_source_s_scores_and_counts_twice() {
    let skills: [&'static [f32]; 2] = [&[-0.7, -0.9, -2.0], &[-1.4, -0.1, -2.5]];
    let (algorithm, policy) = (seed(SeedOptions::default()), PolicyOptions::default());
    let batch = [sequence(1, Some(skills[0])), sequence(2, Some(skills[1]))];
    let padded = gradients(&algorithm, &policy, &batch, &[0, 1, 0, 1]);
    assert_eq!(padded[..2], padded[2..]);
    let plain = gradients(&algorithm, &policy, &batch, &[0, 1]);
    for (twice, once) in padded[0].iter().zip(&plain[0]) {
        assert!((2.0 * twice - once).abs() < 1e-7, "half the weight, seen twice");
    }
}

/// Bug class: micro-batches with unequal shares. Four sequences, split 4, 3 + 1 and 1 + 1 + 1 + 1.
#[test]
fn accumulation_never_changes_gradients_or_metrics() {
    let skill: &[f32] = &[-0.7, -0.9, -2.0];
    let (algorithm, policy) = (seed(SeedOptions::default()), PolicyOptions::default());
    let short = Sequence {
        mask: &[true, false, false],
        ..sequence(3, None)
    };
    let batch = [
        sequence(1, Some(skill)),
        sequence(2, None),
        short,
        sequence(4, Some(skill)),
    ];
    let plan = UpdatePlan::new(&algorithm, &policy, &batch, 1).unwrap();
    let run = |splits: &[usize]| {
        let mut objective = plan.mini_batch(&[0, 1, 2, 3]).unwrap();
        let mut position = 0;
        let mut found = Vec::new();
        for &size in splits {
            for _ in 0..size {
                found.push(objective.evaluate(position, &OLD, &[0.3; 3]));
                position += 1;
            }
        }
        (found, objective.finish().unwrap())
    };
    let whole = run(&[4]);
    assert_eq!(whole, run(&[3, 1]));
    assert_eq!(whole, run(&[1, 1, 1, 1]));
    assert_eq!(whole.1.tokens, 10);
}

/// A softmax over a table of logits, the smallest policy.
#[derive(Clone)]
struct Table(Vec<f64>);

impl Table {
    fn log_probs(&self) -> Vec<f64> {
        let largest = self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = self.0.iter().map(|logit| (logit - largest).exp()).sum();
        self.0.iter().map(|logit| logit - largest - total.ln()).collect()
    }

    /// Descends along `gradients[action]`, the loss gradient by that action's log-prob.
    fn descend(&mut self, gradients: &[f64], rate: f64) {
        let probabilities: Vec<f64> = self.log_probs().iter().map(|score| score.exp()).collect();
        let total: f64 = gradients.iter().sum();
        for ((logit, gradient), probability) in self.0.iter_mut().zip(gradients).zip(probabilities) {
            *logit -= rate * (gradient - probability * total);
        }
    }

    fn divergence_to(&self, other: &Self) -> f64 {
        self.log_probs()
            .iter()
            .zip(other.log_probs())
            .map(|(own, other)| own.exp() * (own - other))
            .sum()
    }
}

/// Bug class: the sign of the divergence. Minimising only the k3 term moves the policy to the reference.
#[test]
fn the_divergence_term_alone_falls_monotonically() {
    let reference = Table(vec![0.3, -0.4, 0.9, 0.0]);
    let mut policy = Table(vec![1.1, 0.2, -0.3, 0.4]);
    let options = PolicyOptions {
        policy_coefficient: 0.0,
        kl_coefficient: 1.0,
        entropy_coefficient: 0.0,
        ..PolicyOptions::default()
    };
    let mut last = policy.divergence_to(&reference);
    let start = last;
    for _ in 0..50 {
        // Every action once, weighted by its probability: the exact expectation.
        let scores: Vec<f32> = policy.log_probs().iter().map(|&score| score as f32).collect();
        let target: Vec<f32> = reference.log_probs().iter().map(|&score| score as f32).collect();
        let batch = [Sequence {
            mask: &[true; 4],
            advantages: &[0.0; 4],
            old: &scores,
            reference: Some(&target),
            ..Sequence::default()
        }];
        let plan = UpdatePlan::new(&Grpo, &options, &batch, 1).unwrap();
        let mut objective = plan.mini_batch(&[0]).unwrap();
        let found = objective.evaluate(0, &scores, &[0.0; 4]);
        assert!(objective.finish().unwrap().kl_sum >= 0.0);
        let weighted: Vec<f64> = found
            .log_probs
            .iter()
            .zip(policy.log_probs())
            .map(|(&gradient, score)| 4.0 * f64::from(gradient) * score.exp())
            .collect();
        policy.descend(&weighted, 0.5);
        let now = policy.divergence_to(&reference);
        assert!(now < last, "{now} after {last}");
        last = now;
    }
    assert!(last < 0.1 * start);
}

/// The direction of every sampled-token update, averaged exactly over the samples that `behaviour` would draw.
fn bandit_step(algorithm: &Seed, policy: &mut Table, behaviour: &Table, teacher: &Table, rate: f64) {
    let options = PolicyOptions {
        policy_coefficient: 1.0,
        kl_coefficient: 0.0,
        entropy_coefficient: 0.0,
        ..PolicyOptions::default()
    };
    let as_f32 = |table: &Table| {
        table
            .log_probs()
            .iter()
            .map(|&score| score as f32)
            .collect::<Vec<_>>()
    };
    let (fresh, old, skill) = (as_f32(policy), as_f32(behaviour), as_f32(teacher));
    let batch = [Sequence {
        mask: &[true; 2],
        advantages: &[0.0; 2],
        old: &old,
        skill: Some(&skill),
        ..Sequence::default()
    }];
    let plan = UpdatePlan::new(algorithm, &options, &batch, 1).unwrap();
    let mut objective = plan.mini_batch(&[0]).unwrap();
    let found = objective.evaluate(0, &fresh, &[0.0; 2]);
    assert!(objective.finish().is_ok());
    let weighted: Vec<f64> = found
        .log_probs
        .iter()
        .zip(behaviour.log_probs())
        .map(|(&gradient, score)| 2.0 * f64::from(gradient) * score.exp())
        .collect();
    policy.descend(&weighted, rate);
}

#[test]
fn on_policy_the_gated_loss_converges_to_the_teacher() {
    let teacher = Table(vec![1.0, 0.0]);
    let placements = [Placement::AsLoss, Placement::AsAdvantage];
    let gates = [
        GateMode::Sigmoid,
        GateMode::Centered,
        GateMode::Delta,
        GateMode::K3Is,
    ];
    for placement in placements {
        for gate in gates {
            let coefficient = CoefficientSchedule::constant(1.0);
            let algorithm = seed(SeedOptions {
                placement,
                gate,
                coefficient,
                ..SeedOptions::default()
            });
            let mut policy = Table(vec![-1.0, 1.0]);
            for _ in 0..600 {
                let behaviour = policy.clone();
                bandit_step(&algorithm, &mut policy, &behaviour, &teacher, 0.5);
            }
            let divergence = policy.divergence_to(&teacher);
            assert!(divergence < 1e-4, "{placement:?} {gate:?}: {divergence}");
        }
    }
}

#[test]
fn one_reused_batch_drifts_to_determinism_as_a_loss_and_is_bounded_as_an_advantage() {
    // Every sample of the fixed batch is the first action, whose gap at the start is 0.
    let behaviour = Table(vec![0.0, 0.0]);
    let run = |placement| {
        let coefficient = CoefficientSchedule::constant(1.0);
        let algorithm = seed(SeedOptions {
            placement,
            coefficient,
            ..SeedOptions::default()
        });
        let mut policy = behaviour.clone();
        // The teacher is re-scored with the newest weights, as in the next iteration: the gate never closes.
        for _ in 0..2000 {
            let teacher = policy.clone();
            let as_f32 = |table: &Table| vec![table.log_probs()[0] as f32];
            let (fresh, old, skill) = (as_f32(&policy), as_f32(&behaviour), as_f32(&teacher));
            let batch = [Sequence {
                mask: &[true],
                advantages: &[0.0],
                old: &old,
                skill: Some(&skill),
                ..Sequence::default()
            }];
            let options = PolicyOptions {
                kl_coefficient: 0.0,
                ..PolicyOptions::default()
            };
            let plan = UpdatePlan::new(&algorithm, &options, &batch, 1).unwrap();
            let mut objective = plan.mini_batch(&[0]).unwrap();
            let found = objective.evaluate(0, &fresh, &[0.0]);
            assert!(objective.finish().is_ok());
            policy.descend(&[f64::from(found.log_probs[0]), 0.0], 0.2);
        }
        policy.log_probs()[0].exp()
    };
    assert!(run(Placement::AsLoss) > 0.99);
    assert!(
        run(Placement::AsAdvantage) < 0.65,
        "the policy clip holds the ratio near 1.2"
    );
}
