//! AdamW against PyTorch's own values, and the fixed order of norms.

mod support;

use proptest::prelude::*;
use seed_kernels::optimiser::{AdamW, adamw_step, scale, squared_norm};
use support::{assert_bits, each_circumstance, noise};

const SETTINGS: AdamW = AdamW {
    learning_rate: 0.003,
    beta1: 0.9,
    beta2: 0.999,
    epsilon: 1e-8,
    weight_decay: 0.1,
};

#[test]
fn steps_follow_pytorch() {
    let mut lines = include_str!("golden/adamw.txt").lines().map(|line| {
        line.split(' ')
            .map(|bits| f32::from_bits(u32::from_str_radix(bits, 16).unwrap()))
            .collect::<Vec<_>>()
    });
    let mut parameters = lines.next().unwrap();
    let (mut first, mut second) = (vec![0.0; 16], vec![0.0; 16]);
    let mut steps = 0;
    for (step, line) in (1..).zip(lines) {
        adamw_step(
            &SETTINGS,
            step,
            &mut parameters,
            &line[..16],
            &mut first,
            &mut second,
        );
        assert_bits(&parameters, &line[16..32]);
        assert_bits(&first, &line[32..48]);
        assert_bits(&second, &line[48..]);
        steps += 1;
    }
    assert_eq!(steps, 5);
}

#[test]
fn decay_alone_shrinks_and_the_first_step_has_the_learning_rates_size() {
    let (mut parameters, mut first, mut second) = ([1.0, 1.0], [0.0; 2], [0.0; 2]);
    adamw_step(
        &SETTINGS,
        1,
        &mut parameters,
        &[0.0, -5.0],
        &mut first,
        &mut second,
    );
    assert_eq!(parameters[0], 0.9997);
    assert!((parameters[1] - (0.9997 + 0.003)).abs() < 1e-6);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn bits_are_the_same_everywhere(count in 1usize..60_000, seed: u64) {
        let run = || {
            let mut parameters = noise(count, seed);
            let (mut first, mut second) = (vec![0.0; count], vec![0.0; count]);
            for step in 1..4 {
                adamw_step(&SETTINGS, step, &mut parameters, &noise(count, seed ^ step), &mut first, &mut second);
            }
            scale(&mut first, 0.3);
            [parameters, first, second].concat()
        };
        let expected = support::with_threads(1, run);
        let norm = support::with_threads(1, || squared_norm(&expected));
        let exact: f64 = expected.iter().map(|x| f64::from(*x).powi(2)).sum();
        prop_assert!((norm - exact).abs() <= 1e-12 * exact);
        each_circumstance(|| {
            assert_bits(&run(), &expected);
            assert_eq!(squared_norm(&expected).to_bits(), norm.to_bits());
        });
    }
}

#[test]
fn the_norm_of_nothing_is_zero_and_of_a_nan_is_nan() {
    assert_eq!(squared_norm(&[]), 0.0);
    assert_eq!(squared_norm(&[3.0, 4.0]), 25.0);
    assert!(squared_norm(&[1.0, f32::NAN]).is_nan());
}
