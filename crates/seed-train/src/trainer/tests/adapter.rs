//! Copies of a policy with an adapter: what they share, and how they move.

use super::*;

const ADAPTER: [&str; 4] = [
    "adapter.enabled=true",
    "adapter.rank=3",
    "adapter.alpha=6",
    "rollout.self_check_share=1",
];

fn trainer(model: &TinyModel, overrides: &[&str]) -> Trainer {
    let all: Vec<&str> = ADAPTER.iter().chain(overrides).copied().collect();
    let config = support::config(&model.path(), &model.path(), NOBODY, &all);
    let mut policy = model.policy();
    policy
        .prepare(&config.adapter, RandomKey::new(config.run.seed), &model.path())
        .unwrap();
    Trainer::new(config, Luck::world(), policy).unwrap()
}

#[test]
fn the_reference_is_the_base_with_the_adapter_off_and_teachers_average_the_adapter() {
    let model = TinyModel::new();
    let overrides = [
        "seed.teacher=ema",
        "seed.ema_decay=0.75",
        "seed.analyser=policy",
        "algorithm.kl_coefficient=0.01",
    ];
    let mut trainer = trainer(&model, &overrides);
    let base = model.policy().decoder.parameters().digest();
    let mut expected: Vec<f32> = trainer.policy.decoder.trained().flat().to_vec();
    for _ in 0..3 {
        // Every row's log-probs are compared with the rollout's, to the last bit.
        let output = trainer.run_iteration(&mut Silent).unwrap();
        assert!(output.metrics.get("self_check/rows").unwrap() > 0.0);
        for (value, new) in expected.iter_mut().zip(trainer.policy.decoder.trained().flat()) {
            *value = 0.75 * *value + 0.25 * new;
        }
    }
    let policy = &trainer.policy.decoder;
    let teacher = trainer.teacher.as_ref().unwrap();
    let reference = trainer.reference.as_ref().unwrap();
    assert_eq!(bits(teacher.trained().flat()), bits(&expected));
    assert!(reference.adapter().is_none());
    for decoder in [policy, teacher, reference] {
        assert!(
            std::ptr::eq(decoder.parameters(), policy.parameters()),
            "one base for all"
        );
    }
    assert_eq!(policy.parameters().digest(), base);
    assert!(!policy.adapter().unwrap().is_neutral());
}
