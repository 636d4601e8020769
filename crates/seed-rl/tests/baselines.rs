//! Every algorithm against values that `golden/baselines.py` computes from the equations.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test by panicking")]

use seed_rl::advantages::Row;
use seed_rl::gigpo::{StepRow, step_advantages};
use seed_rl::{
    AdvantageOptions, AlgorithmOptions, GigpoOptions, Normalisation, PolicyOptions, Sequence, TokenSpan,
    UpdatePlan,
};
use serde::Deserialize;

#[derive(Deserialize)]
struct Golden {
    batch: Vec<Response>,
    cases: Vec<Case>,
    steps: Vec<Step>,
    gigpo: Vec<GigpoCase>,
}

#[derive(Deserialize)]
struct Response {
    mask: Vec<bool>,
    advantage: f32,
    spans: Vec<TokenSpan>,
    old: Vec<f32>,
    skill: Option<Vec<f32>>,
    step_skill: Option<Vec<f32>>,
    student: Vec<f32>,
}

#[derive(Deserialize)]
struct Case {
    options: AlgorithmOptions,
    update: u64,
    advantages: Vec<Vec<f64>>,
    gradients: Vec<Vec<f64>>,
    auxiliary: f64,
}

#[derive(Deserialize)]
struct Step {
    group: u64,
    trajectory: u64,
    #[serde(rename = "step")]
    index: u32,
    anchor: String,
    reward: f32,
    valid: bool,
}

#[derive(Deserialize)]
struct GigpoCase {
    discount: f64,
    penalty: f64,
    deviation: bool,
    advantages: Vec<f64>,
}

fn golden() -> Golden {
    serde_json::from_str(include_str!("golden/baselines.json")).unwrap()
}

fn assert_close(found: &[f32], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (found, expected) in found.iter().zip(expected) {
        let difference = (f64::from(*found) - expected).abs();
        assert!(difference < 1e-6, "{what}: {found} against {expected}");
    }
}

#[test]
fn losses_and_advantages_are_those_of_the_equations() {
    let golden = golden();
    let advantages: Vec<Vec<f32>> = golden
        .batch
        .iter()
        .map(|response| vec![response.advantage; response.mask.len()])
        .collect();
    let policy = PolicyOptions {
        kl_coefficient: 0.0,
        entropy_coefficient: 0.0,
        ..PolicyOptions::default()
    };
    let mut named = Vec::new();
    for case in &golden.cases {
        let algorithm = case.options.build().unwrap();
        let what = format!("{} at update {}", algorithm.name(), case.update);
        let batch: Vec<Sequence<'_>> = golden
            .batch
            .iter()
            .zip(&advantages)
            .enumerate()
            .map(|(index, (response, advantages))| Sequence {
                trajectory: index as u64,
                mask: &response.mask,
                advantages,
                old: &response.old,
                skill: response.skill.as_deref(),
                step_skill: response.step_skill.as_deref(),
                spans: &response.spans,
                ..Sequence::default()
            })
            .collect();
        let plan = UpdatePlan::new(&*algorithm, &policy, &batch, case.update).unwrap();
        let indices: Vec<usize> = (0..batch.len()).collect();
        let mut objective = plan.mini_batch(&indices).unwrap();
        for (index, response) in golden.batch.iter().enumerate() {
            assert_close(plan.advantages(index), &case.advantages[index], &what);
            let entropies = vec![0.0; response.student.len()];
            let gradients = objective.evaluate(index, &response.student, &entropies);
            assert_close(&gradients.log_probs, &case.gradients[index], &what);
        }
        let metrics = objective.finish().unwrap();
        assert!(
            (metrics.auxiliary_sum - case.auxiliary).abs() < 1e-6,
            "{what}: {}",
            metrics.auxiliary_sum
        );
        if case.options.coefficient().is_some() {
            assert_eq!(
                (plan.report().guided, plan.report().without_skill),
                (2, 1),
                "{what}"
            );
        }
        named.push(algorithm.name());
    }
    for name in AlgorithmOptions::NAMES {
        // SEED's own vectors stand in `objective.rs`.
        assert!(name == "seed" || named.contains(&name), "no case of {name}");
    }
}

#[test]
fn steps_that_saw_the_same_are_alternatives() {
    let golden = golden();
    let rows: Vec<Row> = golden
        .steps
        .iter()
        .map(|step| Row {
            group: step.group,
            trajectory: step.trajectory,
            step: step.index,
            score: 0.0,
            valid: step.valid,
            trains: true,
        })
        .collect();
    let steps: Vec<StepRow<'_>> = golden
        .steps
        .iter()
        .map(|step| StepRow {
            anchor: &step.anchor,
            reward: step.reward,
        })
        .collect();
    for case in &golden.gigpo {
        let advantage = AdvantageOptions {
            normalisation: if case.deviation {
                Normalisation::MeanStd
            } else {
                Normalisation::Mean
            },
            invalid_action_penalty: case.penalty,
            ..AdvantageOptions::default()
        };
        let options = GigpoOptions {
            discount: case.discount,
            ..GigpoOptions::default()
        };
        let found = step_advantages(&rows, &steps, &advantage, &options);
        assert_close(&found, &case.advantages, "step advantages");
        // The order in which rows come changes no bit.
        let reversed: Vec<Row> = rows.iter().rev().copied().collect();
        let reversed_steps: Vec<StepRow<'_>> = steps.iter().rev().copied().collect();
        let mut backwards = step_advantages(&reversed, &reversed_steps, &advantage, &options);
        backwards.reverse();
        assert_eq!(backwards, found);
    }
}

#[test]
fn rows_that_may_not_train_take_no_part_in_step_groups() {
    let row = |trajectory: u64, trains: bool| Row {
        group: 0,
        trajectory,
        step: 0,
        score: 0.0,
        valid: true,
        trains,
    };
    let step = |reward: f32| StepRow {
        anchor: "hall",
        reward,
    };
    let advantage = AdvantageOptions {
        normalisation: Normalisation::Mean,
        ..AdvantageOptions::default()
    };
    let found = step_advantages(
        &[row(0, true), row(1, true), row(2, false), row(3, true)],
        &[step(1.0), step(0.0), step(100.0), step(f32::NAN)],
        &advantage,
        &GigpoOptions::default(),
    );
    assert_eq!(found, [0.5, -0.5, 0.0, 0.0]);
}

#[test]
fn options_out_of_range_are_refused() {
    for (text, named) in [
        (r#"{"name": "sdar", "gate_slope": -1}"#, "gate_slope"),
        (
            r#"{"name": "opsd", "coefficient": {"value": -1}}"#,
            "coefficient.value",
        ),
        (
            r#"{"name": "grpo_opsd", "coefficient": {"value": -1}}"#,
            "coefficient.value",
        ),
        (
            r#"{"name": "skill_sd", "coefficient": {"value": -1}}"#,
            "coefficient.value",
        ),
        (
            r#"{"name": "opid", "coefficient": {"value": -1}}"#,
            "coefficient.value",
        ),
        (r#"{"name": "serl", "clip": 1.5}"#, "clip 1.5"),
        (r#"{"name": "gigpo", "discount": 1.5}"#, "discount 1.5"),
    ] {
        let options: AlgorithmOptions = serde_json::from_str(text).unwrap();
        let message = options.build().unwrap_err().to_string();
        assert!(message.contains(named), "{text}: {message}");
    }
}
