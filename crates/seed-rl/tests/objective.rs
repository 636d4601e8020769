//! The objective: conformance values, gradients against finite differences, and independence of order and split.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test by panicking")]

use proptest::prelude::*;
use seed_rl::algorithm::Algorithm;
use seed_rl::gate::GateMode;
use seed_rl::grpo::Grpo;
use seed_rl::seed::{GapZero, Seed};
use seed_rl::{
    Aggregation, AlgorithmOptions, CoefficientSchedule, DenominatorScope, Normaliser, OutcomeFilter,
    OutcomeLabel, Placement, PolicyOptions, RlError, SeedOptions, Sequence, SequenceGradients,
    TokenSelection, TokenSpan, UpdateMetrics, UpdatePlan,
};

/// Only the auxiliary loss.
fn auxiliary_only() -> PolicyOptions {
    PolicyOptions {
        policy_coefficient: 0.0,
        kl_coefficient: 0.0,
        entropy_coefficient: 0.0,
        ..PolicyOptions::default()
    }
}

fn unit_coefficient(mut options: SeedOptions) -> Seed {
    options.coefficient = CoefficientSchedule::constant(1.0);
    Seed::new(options).unwrap()
}

/// Evaluates one mini-batch over `order`, given fresh log-probs and entropies of every sequence of the batch.
fn evaluate(
    plan: &UpdatePlan<'_>,
    order: &[usize],
    fresh: &[Vec<f32>],
    entropies: &[Vec<f32>],
) -> (Vec<SequenceGradients>, UpdateMetrics) {
    let mut objective = plan.mini_batch(order).unwrap();
    let gradients = order
        .iter()
        .enumerate()
        .map(|(position, &index)| objective.evaluate(position, &fresh[index], &entropies[index]))
        .collect();
    (gradients, objective.finish().unwrap())
}

fn close(found: &[f32], expected: &[f64]) {
    for (found, expected) in found.iter().zip(expected) {
        assert!(
            (f64::from(*found) - expected).abs() < 1e-6,
            "{found} against {expected}"
        );
    }
}

const PAPER_STUDENT: [f32; 4] = [-1.0, -0.5, -2.0, -0.1];
const PAPER_SKILL: [f32; 4] = [-0.8, -0.9, -2.0, -3.0];
const THREE_OF_FOUR: [bool; 4] = [true, true, true, false];

fn paper_sequence() -> Sequence<'static> {
    Sequence {
        trajectory: 1,
        outcome: OutcomeLabel::Success,
        mask: &THREE_OF_FOUR,
        advantages: &[0.0; 4],
        old: &PAPER_STUDENT,
        skill: Some(&PAPER_SKILL),
        ..Sequence::default()
    }
}

#[test]
fn gated_loss_conformance() {
    let (algorithm, policy) = (unit_coefficient(SeedOptions::default()), auxiliary_only());
    let batch = [paper_sequence()];
    let plan = UpdatePlan::new(&algorithm, &policy, &batch, 1).unwrap();
    let (gradients, metrics) = evaluate(&plan, &[0], &[PAPER_STUDENT.to_vec()], &[vec![0.0; 4]]);
    close(
        &gradients[0].log_probs,
        &[-0.243_686_2, -0.039_734_3, -0.166_666_7, 0.0],
    );
    assert!(
        (metrics.auxiliary_sum - 0.032_843_5).abs() < 1e-6,
        "{}",
        metrics.auxiliary_sum
    );
    assert!((metrics.gates.sum / 3.0 - 0.450_087_2).abs() < 1e-6);
    assert_eq!((metrics.gates.above_half, metrics.gates.tokens), (1, 3));
}

#[test]
fn gates_are_told_apart_by_outcome() {
    let (algorithm, policy) = (unit_coefficient(SeedOptions::default()), auxiliary_only());
    let skill = [-1.0, -0.9, -2.0, -0.1];
    let with = |outcome, skill| Sequence {
        outcome,
        skill,
        ..paper_sequence()
    };
    let batch = [
        with(OutcomeLabel::Success, paper_sequence().skill),
        with(OutcomeLabel::Failure, Some(&skill[..])),
        with(OutcomeLabel::Unknown, Some(&skill[..])),
    ];
    let plan = UpdatePlan::new(&algorithm, &policy, &batch, 1).unwrap();
    let student = vec![PAPER_STUDENT.to_vec(); 3];
    let (_, metrics) = evaluate(&plan, &[0, 1, 2], &student, &vec![vec![0.0; 4]; 3]);
    let named = metrics.named();
    let value = |name: &str| named.iter().find(|(found, _)| found == name).unwrap().1;
    // Gates of the paper's sequence: .731, .119, .5; of the other: .5, .119, .5.
    assert!((value("skill/gate_mean_success") - 0.450_087_2).abs() < 1e-6);
    assert!((value("skill/gate_mean_failure") - 0.373_067_6).abs() < 1e-6);
    assert_eq!(value("skill/gate_above_half_success"), 1.0 / 3.0);
    assert_eq!(value("skill/gate_above_half_failure"), 0.0);
    assert_eq!(value("skill/gate_above_half"), 1.0 / 9.0);
    assert_eq!(value("skill/tokens"), 9.0);
}

#[test]
fn without_a_skill_there_is_no_loss_and_no_gradient() {
    let (algorithm, policy) = (unit_coefficient(SeedOptions::default()), auxiliary_only());
    let batch = [Sequence {
        skill: None,
        ..paper_sequence()
    }];
    let plan = UpdatePlan::new(&algorithm, &policy, &batch, 1).unwrap();
    let (gradients, metrics) = evaluate(&plan, &[0], &[PAPER_STUDENT.to_vec()], &[vec![0.0; 4]]);
    assert_eq!(gradients[0].log_probs, [0.0; 4]);
    assert_eq!((metrics.auxiliary_sum, metrics.gates.tokens), (0.0, 0));
    assert_eq!((plan.report().without_skill, plan.report().guided), (1, 0));
}

#[test]
fn placement_in_the_advantage() {
    let options = SeedOptions {
        placement: Placement::AsAdvantage,
        gate: GateMode::Centered,
        coefficient: CoefficientSchedule::constant(0.5),
        ..SeedOptions::default()
    };
    let algorithm = Seed::new(options).unwrap();
    let policy = PolicyOptions {
        kl_coefficient: 0.0,
        ..PolicyOptions::default()
    };
    let batch = [Sequence {
        advantages: &[1.0; 4],
        ..paper_sequence()
    }];
    let plan = UpdatePlan::new(&algorithm, &policy, &batch, 1).unwrap();
    // 1 + 0.5·(2g − 1); the masked token keeps its advantage.
    close(plan.advantages(0), &[1.231_058_6, 0.619_202_9, 1.0, 1.0]);
    let (gradients, metrics) = evaluate(&plan, &[0], &[PAPER_STUDENT.to_vec()], &[vec![0.0; 4]]);
    close(
        &gradients[0].log_probs,
        &[-1.231_058_6 / 3.0, -0.619_202_9 / 3.0, -1.0 / 3.0, 0.0],
    );
    assert_eq!(metrics.auxiliary_sum, 0.0);
    assert_eq!(metrics.gates.tokens, 3, "gap and gate are still measured");

    // Far outside the trust region nothing pushes further, unlike a loss of its own.
    let far: Vec<f32> = PAPER_STUDENT.iter().map(|score| score + 1.0).collect();
    let (gradients, _) = evaluate(&plan, &[0], &[far], &[vec![0.0; 4]]);
    assert_eq!(gradients[0].log_probs, [0.0; 4]);
}

#[test]
fn outcome_filters() {
    let filtered = |filter| {
        unit_coefficient(SeedOptions {
            outcome_filter: filter,
            ..SeedOptions::default()
        })
    };
    let policy = auxiliary_only();
    let failure = Sequence {
        outcome: OutcomeLabel::Failure,
        advantages: &[-1.0; 4],
        ..paper_sequence()
    };
    let unknown = Sequence {
        outcome: OutcomeLabel::Unknown,
        ..failure
    };
    let batch = [
        Sequence {
            advantages: &[1.0; 4],
            ..paper_sequence()
        },
        failure,
        unknown,
    ];

    let algorithm = filtered(OutcomeFilter::SuccessOnly);
    let plan = UpdatePlan::new(&algorithm, &policy, &batch, 1).unwrap();
    assert_eq!(plan.guided(0), THREE_OF_FOUR);
    assert!(plan.guided(1).is_empty() && plan.guided(2).is_empty());
    assert_eq!(plan.report().outcome_filtered, 2);
    assert_eq!(plan.report().success_tokens.share(), 1.0);
    assert_eq!(plan.report().failure_tokens.share(), 0.0);

    // The outcome gives the direction: g for the success, −(1 − g) for the failure, each over 6 guided tokens.
    let algorithm = filtered(OutcomeFilter::AdvAware);
    let plan = UpdatePlan::new(&algorithm, &policy, &batch[..2], 1).unwrap();
    let fresh = [PAPER_STUDENT.to_vec(), PAPER_STUDENT.to_vec()];
    let (gradients, _) = evaluate(&plan, &[0, 1], &fresh, &[vec![0.0; 4], vec![0.0; 4]]);
    close(
        &gradients[0].log_probs,
        &[-0.731_058_6 / 6.0, -0.119_202_9 / 6.0, -0.5 / 6.0, 0.0],
    );
    close(
        &gradients[1].log_probs,
        &[0.268_941_4 / 6.0, 0.880_797_1 / 6.0, 0.5 / 6.0, 0.0],
    );

    // A tied group says nothing about direction: 2g − 1.
    let tied = [Sequence {
        tied: true,
        advantages: &[0.0; 4],
        ..paper_sequence()
    }];
    let plan = UpdatePlan::new(&algorithm, &policy, &tied, 1).unwrap();
    let (gradients, _) = evaluate(&plan, &[0], &fresh[..1], &[vec![0.0; 4]]);
    close(
        &gradients[0].log_probs,
        &[-0.462_117_2 / 3.0, 0.761_594_2 / 3.0, 0.0, 0.0],
    );
}

#[test]
fn signed_gates_follow_the_outcome_by_dropping_what_contradicts_it() {
    let options = SeedOptions {
        outcome_filter: OutcomeFilter::AdvAware,
        gate: GateMode::Delta,
        ..SeedOptions::default()
    };
    let algorithm = unit_coefficient(options);
    assert_eq!(algorithm.weight(0.2, 1.0, false), 0.2);
    assert_eq!(algorithm.weight(-0.4, 1.0, false), 0.0);
    assert_eq!(algorithm.weight(0.2, -1.0, false), 0.0);
    assert_eq!(algorithm.weight(-0.4, -1.0, false), -0.4);
}

#[test]
fn dead_zone_silences_small_gaps() {
    let algorithm = unit_coefficient(SeedOptions {
        gate_epsilon: 0.05,
        ..SeedOptions::default()
    });
    assert_eq!(algorithm.weight(0.049, 0.0, false), 0.0);
    assert_eq!(algorithm.weight(-0.049, 0.0, false), 0.0);
    assert!(algorithm.weight(0.051, 0.0, false) > 0.5);
}

#[test]
fn ratio_limit_stops_the_gradient_and_keeps_the_value() {
    let algorithm = unit_coefficient(SeedOptions {
        ratio_limit: Some(0.2),
        ..SeedOptions::default()
    });
    let policy = auxiliary_only();
    let batch = [paper_sequence()];
    let plan = UpdatePlan::new(&algorithm, &policy, &batch, 1).unwrap();
    let fresh = vec![-1.0, -0.2, -2.5, -0.1];
    let (gradients, metrics) = evaluate(&plan, &[0], &[fresh], &[vec![0.0; 4]]);
    assert!(gradients[0].log_probs[0] < 0.0);
    assert_eq!(gradients[0].log_probs[1..], [0.0; 3]);
    assert!(metrics.auxiliary_sum != 0.0);
}

#[test]
fn token_selection_and_normalisers() {
    const SPANS: [TokenSpan; 4] = [
        TokenSpan::Reasoning,
        TokenSpan::Action,
        TokenSpan::Action,
        TokenSpan::Action,
    ];
    let policy = auxiliary_only();
    let guided = Sequence {
        spans: &SPANS,
        ..paper_sequence()
    };
    let bare = Sequence {
        skill: None,
        ..guided
    };
    let batch = [guided, bare];
    let fresh = [PAPER_STUDENT.to_vec(), PAPER_STUDENT.to_vec()];
    let gradient_of_third = |tokens, normaliser| {
        let algorithm = unit_coefficient(SeedOptions {
            tokens,
            normaliser,
            ..SeedOptions::default()
        });
        let plan = UpdatePlan::new(&algorithm, &policy, &batch, 1).unwrap();
        let (gradients, _) = evaluate(&plan, &[0, 1], &fresh, &[vec![0.0; 4], vec![0.0; 4]]);
        assert_eq!(gradients[1].log_probs, [0.0; 4]);
        gradients[0].log_probs.clone()
    };
    // Gate one half at the third token; two action tokens, three guided tokens, six response tokens.
    close(
        &gradient_of_third(TokenSelection::Action, Normaliser::Mask),
        &[0.0, -0.059_601_5, -0.25, 0.0],
    );
    close(
        &gradient_of_third(TokenSelection::Reasoning, Normaliser::Mask),
        &[-0.731_058_6, 0.0, 0.0, 0.0],
    );
    let response = gradient_of_third(TokenSelection::All, Normaliser::Response);
    close(
        &response,
        &[-0.731_058_6 / 6.0, -0.119_202_9 / 6.0, -0.5 / 6.0, 0.0],
    );
    assert_eq!(
        response,
        gradient_of_third(TokenSelection::All, Normaliser::GlobalMini)
    );
}

#[test]
fn global_normaliser_ignores_micro_batches() {
    let policy = PolicyOptions {
        denominator_scope: DenominatorScope::MicroBatch { sequences: 1 },
        ..auxiliary_only()
    };
    let long = paper_sequence();
    let short = Sequence {
        mask: &[true, false, false, false],
        ..long
    };
    let batch = [long, short];
    let first_token = |normaliser| {
        let algorithm = unit_coefficient(SeedOptions {
            normaliser,
            ..SeedOptions::default()
        });
        let plan = UpdatePlan::new(&algorithm, &policy, &batch, 1).unwrap();
        let fresh = [PAPER_STUDENT.to_vec(), PAPER_STUDENT.to_vec()];
        let (gradients, _) = evaluate(&plan, &[0, 1], &fresh, &[vec![0.0; 4], vec![0.0; 4]]);
        [gradients[0].log_probs[0], gradients[1].log_probs[0]]
    };
    close(
        &first_token(Normaliser::GlobalMini),
        &[-0.731_058_6 / 4.0, -0.731_058_6 / 4.0],
    );
    // Two micro-batch means of 3 and 1 tokens, each with weight one half.
    close(
        &first_token(Normaliser::Mask),
        &[-0.731_058_6 / 6.0, -0.731_058_6 / 2.0],
    );
    close(
        &first_token(Normaliser::Response),
        &[-0.731_058_6 / 6.0, -0.731_058_6 / 2.0],
    );
}

#[test]
fn truncated_contexts_are_left_out_and_counted() {
    let policy = auxiliary_only();
    let batch = [
        paper_sequence(),
        Sequence {
            skill_truncated: true,
            ..paper_sequence()
        },
    ];
    let guarded = unit_coefficient(SeedOptions::default());
    let plan = UpdatePlan::new(&guarded, &policy, &batch, 1).unwrap();
    assert!(plan.guided(1).is_empty());
    assert_eq!((plan.report().truncated, plan.report().guided), (1, 1));
    let open = unit_coefficient(SeedOptions {
        truncation_guard: false,
        ..SeedOptions::default()
    });
    let plan = UpdatePlan::new(&open, &policy, &batch, 1).unwrap();
    assert_eq!(plan.guided(1), THREE_OF_FOUR);
}

#[test]
fn trajectory_gap_gate_looks_at_the_whole_trajectory() {
    let policy = auxiliary_only();
    let up: &[f32] = &[-0.5, -0.3, -1.9, 0.0];
    let down: &[f32] = &[-1.5, -0.8, -2.1, 0.0];
    let success = |trajectory, skill| Sequence {
        trajectory,
        skill: Some(skill),
        ..paper_sequence()
    };
    let failure = |trajectory, skill| Sequence {
        outcome: OutcomeLabel::Failure,
        ..success(trajectory, skill)
    };
    // Trajectory 1 rises in one sequence and falls more in another: left out as a whole.
    let batch = [
        success(1, up),
        success(1, down),
        success(2, up),
        failure(3, up),
        failure(4, down),
    ];
    let algorithm = unit_coefficient(SeedOptions {
        trajectory_gap_margin: Some(0.1),
        ..SeedOptions::default()
    });
    let plan = UpdatePlan::new(&algorithm, &policy, &batch, 1).unwrap();
    let kept: Vec<bool> = (0..batch.len())
        .map(|index| !plan.guided(index).is_empty())
        .collect();
    assert_eq!(kept, [false, false, true, false, true]);
    assert_eq!(plan.report().gap_gated, 3);
}

#[test]
fn a_placebo_moves_the_zero_of_the_gap() {
    let placebo: &[f32] = &[-0.9, -0.6, -2.1, -1.0];
    let policy = auxiliary_only();
    let batch = [Sequence {
        placebo: Some(placebo),
        ..paper_sequence()
    }];
    let algorithm = unit_coefficient(SeedOptions {
        gap_zero: GapZero::Placebo,
        gate: GateMode::Delta,
        ..SeedOptions::default()
    });
    let plan = UpdatePlan::new(&algorithm, &policy, &batch, 1).unwrap();
    let (gradients, _) = evaluate(&plan, &[0], &[PAPER_STUDENT.to_vec()], &[vec![0.0; 4]]);
    close(&gradients[0].log_probs, &[-0.1 / 3.0, 0.3 / 3.0, -0.1 / 3.0, 0.0]);

    let bare = [paper_sequence()];
    let error = UpdatePlan::new(&algorithm, &policy, &bare, 1).unwrap_err();
    assert_eq!(
        error,
        RlError::MissingScores {
            sequence: 0,
            field: "placebo",
            option: "gap_zero"
        }
    );
}

#[test]
fn skill_scores_must_cover_exactly_the_sampled_tokens() {
    let policy = auxiliary_only();
    let batch = [
        paper_sequence(),
        Sequence {
            skill: Some(&PAPER_SKILL[..3]),
            ..paper_sequence()
        },
    ];
    let error = UpdatePlan::new(&Grpo, &policy, &batch, 1).unwrap_err();
    assert_eq!(
        error,
        RlError::LengthMismatch {
            sequence: 1,
            field: "skill",
            found: 3,
            expected: 4
        }
    );
    assert!(
        error.to_string().contains("score exactly the sampled ids"),
        "{error}"
    );
}

#[test]
fn missing_reference_is_named() {
    let batch = [paper_sequence()];
    let error = UpdatePlan::new(&Grpo, &PolicyOptions::default(), &batch, 1).unwrap_err();
    assert_eq!(
        error,
        RlError::MissingScores {
            sequence: 0,
            field: "reference",
            option: "kl_coefficient"
        }
    );
}

#[test]
fn a_non_finite_score_stops_the_step_and_names_the_sample() {
    let policy = auxiliary_only();
    let batch = [
        paper_sequence(),
        Sequence {
            trajectory: 42,
            ..paper_sequence()
        },
    ];
    let plan = UpdatePlan::new(&Grpo, &policy, &batch, 1).unwrap();
    let mut objective = plan.mini_batch(&[0, 1]).unwrap();
    let _ = objective.evaluate(0, &PAPER_STUDENT, &[0.0; 4]);
    let gradients = objective.evaluate(1, &[-1.0, f32::NAN, -1.0, -1.0], &[0.0; 4]);
    assert_eq!(gradients.log_probs, [0.0; 4]);
    let error = objective.finish().unwrap_err();
    assert!(
        error
            .to_string()
            .contains("sequence 1 (trajectory `42`): `log_probs` is `NaN` at response token 1")
    );

    // Under the mask only: a masked token's score is never read.
    let mut objective = plan.mini_batch(&[0]).unwrap();
    let _ = objective.evaluate(0, &[-1.0, -0.5, -2.0, f32::NAN], &[0.0; 4]);
    assert!(objective.finish().is_ok());
}

#[test]
fn a_mini_batch_must_be_evaluated_as_announced() {
    let policy = auxiliary_only();
    let batch = [paper_sequence()];
    let plan = UpdatePlan::new(&Grpo, &policy, &batch, 1).unwrap();
    let error = plan.mini_batch(&[0, 3]).unwrap_err();
    assert_eq!(
        error,
        RlError::UnknownSequence {
            sequence: 3,
            available: 1
        }
    );
    assert_eq!(
        plan.mini_batch(&[0]).unwrap().finish(),
        Err(RlError::NotEvaluated { position: 0 })
    );
    let mut objective = plan.mini_batch(&[0]).unwrap();
    let _ = objective.evaluate(0, &PAPER_STUDENT, &[0.0; 4]);
    assert_eq!(
        objective.evaluate(1, &PAPER_STUDENT, &[0.0; 4]),
        SequenceGradients::default()
    );
    assert_eq!(
        objective.finish(),
        Err(RlError::UnknownSequence {
            sequence: 1,
            available: 1
        })
    );
}

#[test]
fn an_empty_row_adds_nothing_and_an_empty_batch_does_not_train() {
    let policy = PolicyOptions {
        kl_coefficient: 0.0,
        ..PolicyOptions::default()
    };
    let row = Sequence {
        advantages: &[1.0; 4],
        ..paper_sequence()
    };
    let empty = Sequence {
        mask: &[false; 4],
        ..row
    };
    let batch = [row, empty];
    let fresh = [PAPER_STUDENT.to_vec(), PAPER_STUDENT.to_vec()];
    let entropies = [vec![0.7; 4], vec![0.7; 4]];
    for aggregation in [
        Aggregation::TokenMean,
        Aggregation::SeqMeanTokenSum,
        Aggregation::SeqMeanTokenMean,
    ] {
        let policy = PolicyOptions {
            aggregation,
            ..policy.clone()
        };
        let algorithm = unit_coefficient(SeedOptions::default());
        let plan = UpdatePlan::new(&algorithm, &policy, &batch, 1).unwrap();
        let (with, metrics_with) = evaluate(&plan, &[0, 1], &fresh, &entropies);
        let (without, metrics_without) = evaluate(&plan, &[0], &fresh, &entropies);
        assert_eq!(with[0], without[0]);
        assert_eq!(with[1].log_probs, [0.0; 4]);
        assert_eq!(with[1].entropies, [0.0; 4]);
        assert_eq!((metrics_with.empty_sequences, metrics_with.tokens), (1, 3));
        assert_eq!(metrics_with.policy_sum, metrics_without.policy_sum);

        assert!(!plan.mini_batch(&[1, 1]).unwrap().trains());
        assert!(plan.mini_batch(&[0, 1]).unwrap().trains());
        let (_, metrics) = evaluate(&plan, &[1, 1], &fresh, &entropies);
        assert_eq!(
            (metrics.policy_sum, metrics.auxiliary_sum, metrics.entropy_sum),
            (0.0, 0.0, 0.0)
        );
        assert!(metrics.named().iter().all(|(_, value)| value.is_finite()));
    }
    assert!(
        !UpdatePlan::new(&Grpo, &policy, &[], 1)
            .unwrap()
            .mini_batch(&[])
            .unwrap()
            .trains()
    );
}

#[test]
fn options_read_and_write_as_configuration() {
    let text = r#"{"name": "seed", "coefficient": {"value": 0.5, "warm_up_updates": 3}, "gate": "centered",
        "placement": "as_advantage", "outcome_filter": "adv_aware", "normaliser": "global_mini"}"#;
    let options: AlgorithmOptions = serde_json::from_str(text).unwrap();
    let AlgorithmOptions::Seed(seed) = &options else {
        panic!("not seed: {options:?}")
    };
    assert_eq!(seed.gate, GateMode::Centered);
    assert_eq!(seed.coefficient.at(1), 0.5 / 3.0);
    assert_eq!(seed.gate_slope, 5.0, "unnamed keys keep the paper's values");
    let again: AlgorithmOptions = serde_json::from_str(&serde_json::to_string(&options).unwrap()).unwrap();
    assert_eq!(again, options);
    assert_eq!(options.coefficient(), Some(&seed.coefficient));
    assert_eq!(AlgorithmOptions::Grpo.coefficient(), None);
    for name in AlgorithmOptions::NAMES {
        let options: AlgorithmOptions = serde_json::from_str(&format!(r#"{{"name": "{name}"}}"#)).unwrap();
        assert_eq!(options.build().unwrap().name(), name);
    }
    let error = serde_json::from_str::<AlgorithmOptions>(r#"{"name": "seed", "lambda": 1}"#).unwrap_err();
    assert!(error.to_string().contains("unknown field `lambda`"), "{error}");
}

/// A batch of random sequences, owned.
#[derive(Clone, Debug)]
struct Owned {
    mask: Vec<bool>,
    advantages: Vec<f32>,
    old: Vec<f32>,
    reference: Vec<f32>,
    skill: Option<Vec<f32>>,
    fresh: Vec<f32>,
    entropies: Vec<f32>,
    outcome: OutcomeLabel,
    tied: bool,
}

impl Owned {
    fn sequence(&self, trajectory: u64) -> Sequence<'_> {
        Sequence {
            trajectory,
            outcome: self.outcome,
            tied: self.tied,
            mask: &self.mask,
            advantages: &self.advantages,
            old: &self.old,
            reference: Some(&self.reference),
            skill: self.skill.as_deref(),
            ..Sequence::default()
        }
    }
}

fn sequences() -> impl Strategy<Value = Vec<Owned>> {
    let one = (1usize..7).prop_flat_map(|tokens| {
        let scores = || prop::collection::vec(-4.0f32..-0.05, tokens);
        (
            prop::collection::vec(prop::bool::weighted(0.8), tokens),
            prop::sample::select(vec![-1.2f32, 0.0, 0.7]),
            scores(),
            scores(),
            prop::option::weighted(0.7, scores()),
            scores(),
            prop::collection::vec(0.0f32..2.0, tokens),
            any::<bool>(),
        )
            .prop_map(
                move |(mask, advantage, old, reference, skill, fresh, entropies, success)| Owned {
                    mask,
                    advantages: vec![advantage; tokens],
                    old,
                    reference,
                    skill,
                    fresh,
                    entropies,
                    outcome: if success {
                        OutcomeLabel::Success
                    } else {
                        OutcomeLabel::Failure
                    },
                    tied: advantage == 0.0,
                },
            )
    });
    prop::collection::vec(one, 1..6)
}

fn gate_modes() -> impl Strategy<Value = GateMode> {
    prop::sample::select(vec![
        GateMode::Sigmoid,
        GateMode::Centered,
        GateMode::Delta,
        GateMode::PositiveOnly,
        GateMode::K3Is,
    ])
}

fn total_loss(metrics: &UpdateMetrics, policy: &PolicyOptions, coefficient: f64) -> f64 {
    policy.policy_coefficient * metrics.policy_sum - policy.entropy_coefficient * metrics.entropy_sum
        + policy.kl_coefficient * metrics.kl_sum
        + coefficient * metrics.auxiliary_sum
}

proptest! {
    /// Evaluation order and repeats do not change gradients, and splitting does not exist for the objective: each
    /// sequence's gradient depends on its own scores and on fixed denominators only.
    #[test]
    fn order_and_batching_never_change_a_bit(owned in sequences(), gate in gate_modes()) {
        let algorithm = unit_coefficient(SeedOptions { gate, ..SeedOptions::default() });
        let policy = PolicyOptions::default();
        let batch: Vec<Sequence<'_>> = owned.iter().enumerate().map(|(id, one)| one.sequence(id as u64)).collect();
        let plan = UpdatePlan::new(&algorithm, &policy, &batch, 1).unwrap();
        let order: Vec<usize> = (0..batch.len()).collect();
        let run = |positions: &[usize]| {
            let mut objective = plan.mini_batch(&order).unwrap();
            let mut gradients = vec![SequenceGradients::default(); order.len()];
            for &position in positions {
                let one = &owned[position];
                gradients[position] = objective.evaluate(position, &one.fresh, &one.entropies);
            }
            (gradients, objective.finish().unwrap())
        };
        let reversed: Vec<usize> = order.iter().rev().copied().collect();
        let (forward, reverse) = (run(&order), run(&reversed));
        prop_assert_eq!(&forward.0, &reverse.0);
        prop_assert_eq!(&forward.1, &reverse.1);
        for gradients in &forward.0 {
            prop_assert!(gradients.log_probs.iter().all(|value| value.is_finite()));
        }
    }

    /// With coefficient 0 the bits are those of GRPO, whatever the gate and the placement.
    #[test]
    fn coefficient_zero_is_grpo(owned in sequences(), gate in gate_modes(), as_advantage in any::<bool>()) {
        let placement = if as_advantage { Placement::AsAdvantage } else { Placement::AsLoss };
        let coefficient = CoefficientSchedule::constant(0.0);
        let off = Seed::new(SeedOptions { gate, placement, coefficient, ..SeedOptions::default() }).unwrap();
        let policy = PolicyOptions::default();
        let batch: Vec<Sequence<'_>> = owned.iter().enumerate().map(|(id, one)| one.sequence(id as u64)).collect();
        let order: Vec<usize> = (0..batch.len()).collect();
        let run = |algorithm: &dyn Algorithm| {
            let plan = UpdatePlan::new(algorithm, &policy, &batch, 1).unwrap();
            let fresh: Vec<Vec<f32>> = owned.iter().map(|one| one.fresh.clone()).collect();
            let entropies: Vec<Vec<f32>> = owned.iter().map(|one| one.entropies.clone()).collect();
            evaluate(&plan, &order, &fresh, &entropies).0
        };
        for (seed, grpo) in run(&off).iter().zip(run(&Grpo)) {
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(&seed.log_probs), bits(&grpo.log_probs));
            prop_assert_eq!(bits(&seed.entropies), bits(&grpo.entropies));
        }
    }

    /// The gradient is the slope of the reported loss: exactly for the policy, divergence, entropy and k3 terms, and
    /// for detached gates of the surrogate `−weight·ℓ_θ`.
    #[test]
    fn gradients_are_slopes_of_the_loss(owned in sequences(), with_k3 in any::<bool>()) {
        let coefficient = if with_k3 { 0.3 } else { 0.0 };
        let algorithm = Seed::new(SeedOptions {
            gate: GateMode::K3Is,
            coefficient: CoefficientSchedule::constant(coefficient),
            ..SeedOptions::default()
        }).unwrap();
        let policy = PolicyOptions { kl_coefficient: 0.2, entropy_coefficient: 0.1, ..PolicyOptions::default() };
        let batch: Vec<Sequence<'_>> = owned.iter().enumerate().map(|(id, one)| one.sequence(id as u64)).collect();
        let plan = UpdatePlan::new(&algorithm, &policy, &batch, 1).unwrap();
        let order: Vec<usize> = (0..batch.len()).collect();
        let fresh: Vec<Vec<f32>> = owned.iter().map(|one| one.fresh.clone()).collect();
        let entropies: Vec<Vec<f32>> = owned.iter().map(|one| one.entropies.clone()).collect();
        let loss = |fresh: &[Vec<f32>], entropies: &[Vec<f32>]| {
            total_loss(&evaluate(&plan, &order, fresh, entropies).1, &policy, coefficient)
        };
        let (gradients, _) = evaluate(&plan, &order, &fresh, &entropies);
        // A power of two keeps the shifted f32 scores exact enough for a central difference.
        let step = 2f32.powi(-10);
        for sequence in 0..batch.len() {
            for token in 0..batch[sequence].len() {
                let slope = |scores: &[Vec<f32>], of: &dyn Fn(&[Vec<f32>]) -> f64| {
                    let (mut up, mut down) = (scores.to_vec(), scores.to_vec());
                    up[sequence][token] += step;
                    down[sequence][token] -= step;
                    (of(&up) - of(&down)) / f64::from(up[sequence][token] - down[sequence][token])
                };
                let found = slope(&fresh, &|scores| loss(scores, &entropies));
                let gradient = f64::from(gradients[sequence].log_probs[token]);
                let ratio = (owned[sequence].fresh[token] - owned[sequence].old[token]).exp();
                let kink = [0.8, 1.2, 3.0].iter().any(|kink| (ratio - kink).abs() < 0.01)
                    || (owned[sequence].reference[token] - owned[sequence].fresh[token]).exp() > 9.0;
                if !kink {
                    let close = (found - gradient).abs() < 2e-3 * (1.0 + found.abs());
                    prop_assert!(close, "{} against {}", found, gradient);
                }
                let found = slope(&entropies, &|scores| loss(&fresh, scores));
                prop_assert!((found - f64::from(gradients[sequence].entropies[token])).abs() < 1e-4);
            }
        }
    }

    /// For detached gates the auxiliary gradient is minus the weight over the denominator.
    #[test]
    fn detached_gates_push_with_their_weight(owned in sequences(), gate in gate_modes()) {
        prop_assume!(gate != GateMode::K3Is);
        let algorithm = unit_coefficient(SeedOptions { gate, ..SeedOptions::default() });
        let policy = auxiliary_only();
        let batch: Vec<Sequence<'_>> = owned.iter().enumerate().map(|(id, one)| one.sequence(id as u64)).collect();
        let plan = UpdatePlan::new(&algorithm, &policy, &batch, 1).unwrap();
        let order: Vec<usize> = (0..batch.len()).collect();
        let fresh: Vec<Vec<f32>> = owned.iter().map(|one| one.fresh.clone()).collect();
        let entropies: Vec<Vec<f32>> = owned.iter().map(|one| one.entropies.clone()).collect();
        let (gradients, metrics) = evaluate(&plan, &order, &fresh, &entropies);
        let denominator = metrics.gates.tokens as f64;
        for (one, gradients) in owned.iter().zip(&gradients) {
            for (token, &gradient) in gradients.log_probs.iter().enumerate() {
                let expected = match &one.skill {
                    Some(skill) if one.mask[token] => {
                        let gap = f64::from(skill[token]) - f64::from(one.fresh[token]);
                        -algorithm.weight(gap, f64::from(one.advantages[token]), one.tied) / denominator
                    }
                    _ => 0.0,
                };
                prop_assert!((f64::from(gradient) - expected).abs() < 1e-6);
            }
        }
    }
}
