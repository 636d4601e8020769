//! Norms, rotary embedding, gated activation, embedding and the mathematics below them, against double precision.

mod support;

use proptest::prelude::*;
use seed_kernels::embedding::{gather, scatter_add};
use seed_kernels::math;
use seed_kernels::norm::{rms_norm, rms_norm_backward};
use seed_kernels::rotary::{RotaryTable, rotate, rotate_backward};
use seed_kernels::swiglu::{swiglu, swiglu_backward};
use support::{assert_bits, assert_close, assert_gradient, dot, double, each_circumstance, noise};

/// Distance in units in the last place of `expected` rounded to single precision.
fn ulps(actual: f32, expected: f64) -> f64 {
    let rounded = (expected as f32).abs().max(f32::MIN_POSITIVE);
    (f64::from(actual) - expected).abs() / f64::from(rounded.next_up() - rounded)
}

#[test]
fn exp_is_accurate_over_its_range() {
    let mut worst: f64 = 0.0;
    // A step that visits every binade and many residues.
    let inputs: Vec<f32> = (0..2_000_000)
        .map(|i| -86.98 + 175.7 * (i as f32 / 2_000_000.0))
        .collect();
    let mut outputs = inputs.clone();
    math::exp_in_place(&mut outputs);
    for (x, y) in inputs.iter().zip(&outputs) {
        worst = worst.max(ulps(*y, f64::from(*x).exp()));
    }
    assert!(worst < 1.5, "worst error is {worst} units in the last place");
}

#[test]
fn exp_has_defined_edges() {
    let cases = [
        (0.0, 1.0),
        (-0.0, 1.0),
        (f32::NEG_INFINITY, 0.0),
        (-87.1, 0.0),
        (-1e30, 0.0),
        (f32::INFINITY, f32::INFINITY),
        (88.8, f32::INFINITY),
        (1e30, f32::INFINITY),
    ];
    each_circumstance(|| {
        for (x, y) in cases {
            let mut value = [x];
            math::exp_in_place(&mut value);
            assert_eq!(value[0], y, "exp({x})");
            assert_eq!(math::exp(x), y, "exp({x})");
        }
        let mut value = [f32::NAN];
        math::exp_in_place(&mut value);
        assert!(value[0].is_nan());
        assert!(math::exp(88.72).is_finite());
    });
}

#[test]
fn logarithm_sine_and_cosine_agree_with_the_platform() {
    for i in 0..20_000 {
        let x = 1.37_f64.powi(i % 400 - 200) * (1.0 + f64::from(i) / 20_000.0);
        let log = math::log(x);
        assert!(
            (log - x.ln()).abs() <= 4e-16 * (1.0 + x.ln().abs()),
            "log({x}) = {log}"
        );
        let angle = f64::from(i) * 47.123_4;
        let (sine, cosine) = math::sin_cos(angle);
        assert!((sine - angle.sin()).abs() < 1e-15, "sin({angle}) = {sine}");
        assert!((cosine - angle.cos()).abs() < 1e-15, "cos({angle}) = {cosine}");
    }
    assert_eq!(math::log(1.0), 0.0);
    assert_eq!(math::log(0.0), f64::NEG_INFINITY);
    assert_eq!(math::log(f64::INFINITY), f64::INFINITY);
    assert!(math::log(-1.0).is_nan());
    assert_eq!(math::sin_cos(0.0), (0.0, 1.0));
    assert!((math::sin_cos(-2.0).0 + 2.0_f64.sin()).abs() < 1e-15);
}

/// RMS norm in double precision.
fn rms_norm_double(x: &[f64], weight: &[f64], eps: f64) -> Vec<f64> {
    let dim = weight.len();
    x.chunks(dim)
        .flat_map(|row| {
            let inverse = (row.iter().map(|x| x * x).sum::<f64>() / dim as f64 + eps)
                .sqrt()
                .recip();
            row.iter()
                .zip(weight)
                .map(move |(x, w)| x * inverse * w)
                .collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn rms_norm_and_its_gradients_agree_with_double_precision() {
    for (rows, dim) in [(3, 8), (4, 16), (2, 37), (5, 64)] {
        let (x, weight, dy) = (noise(rows * dim, 1), noise(dim, 2), noise(rows * dim, 3));
        let mut y = vec![0.0; rows * dim];
        rms_norm(&x, rows, &weight, 1e-5, &mut y);
        assert_close(&y, &rms_norm_double(&double(&x), &double(&weight), 1e-5), 1e-6);
        let (mut dx, mut dweight) = (vec![9.0; rows * dim], vec![0.0; dim]);
        rms_norm_backward(&x, rows, &weight, 1e-5, &dy, &mut dx, &mut dweight);
        assert_gradient(&dx, &double(&x), 3e-6, |x| {
            dot(&rms_norm_double(x, &double(&weight), 1e-5), &dy)
        });
        assert_gradient(&dweight, &double(&weight), 3e-6, |w| {
            dot(&rms_norm_double(&double(&x), w, 1e-5), &dy)
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn rms_norm_bits_depend_on_the_row_alone(rows in 1usize..400, dim in 1usize..150, cut in 0.0f64..1.0, seed: u64) {
        let (x, weight, dy) = (noise(rows * dim, seed), noise(dim, seed ^ 2), noise(rows * dim, seed ^ 3));
        let run = |x: &[f32], dy: &[f32], dweight: &mut [f32]| {
            let rows = x.len() / dim;
            let (mut y, mut dx) = (vec![0.0; rows * dim], vec![0.0; rows * dim]);
            rms_norm(x, rows, &weight, 1e-6, &mut y);
            rms_norm_backward(x, rows, &weight, 1e-6, dy, &mut dx, dweight);
            y.extend(dx);
            y
        };
        let mut dweight = noise(dim, seed ^ 4);
        let expected = support::with_threads(1, || run(&x, &dy, &mut dweight));
        each_circumstance(|| {
            let mut again = noise(dim, seed ^ 4);
            assert_bits(&run(&x, &dy, &mut again), &expected);
            assert_bits(&again, &dweight);
            let mut again = noise(dim, seed ^ 4);
            let first = (rows as f64 * cut) as usize * dim;
            let low = run(&x[..first], &dy[..first], &mut again);
            let high = run(&x[first..], &dy[first..], &mut again);
            assert_bits(&low[..first], &expected[..first]);
            assert_bits(&high[rows * dim - first..], &expected[rows * dim + first..]);
            assert_bits(&again, &dweight);
        });
    }

    #[test]
    fn element_wise_bits_are_the_same_everywhere(count in 1usize..40_000, seed: u64) {
        let scaled = |seed: u64| noise(count, seed).into_iter().map(|x| x * 20.0).collect::<Vec<_>>();
        let (gate, up, dout) = (scaled(seed), scaled(seed ^ 1), scaled(seed ^ 2));
        let run = || {
            let mut out = gate.clone();
            math::exp_in_place(&mut out);
            let (mut y, mut dgate, mut dup) = (vec![0.0; count], vec![0.0; count], vec![0.0; count]);
            swiglu(&gate, &up, &mut y);
            swiglu_backward(&gate, &up, &dout, &mut dgate, &mut dup);
            [out, y, dgate, dup].concat()
        };
        let expected = support::with_threads(1, run);
        assert_bits(&expected[..1], &[math::exp(gate[0])]);
        each_circumstance(|| assert_bits(&run(), &expected));
    }

    #[test]
    fn rotation_bits_are_the_same_everywhere_and_backward_undoes_it(
        rows in 1usize..120, heads in 1usize..4, half in 1usize..40, seed: u64,
    ) {
        let frequencies: Vec<f32> = (0..half).map(|i| 10_000_f32.powf(-(i as f32) / half as f32)).collect();
        let table = RotaryTable::new(&frequencies, 1.0, 5000);
        let positions: Vec<u32> = (0..rows as u32).map(|r| (r * 37 + seed as u32 % 100) % 5000).collect();
        let x = noise(rows * heads * 2 * half, seed);
        let run = || {
            let mut y = x.clone();
            rotate(&mut y, rows, heads, 2 * half, &positions, &table);
            let mut back = y.clone();
            rotate_backward(&mut back, rows, heads, 2 * half, &positions, &table);
            (y, back)
        };
        let (y, back) = support::with_threads(1, run);
        assert_close(&back, &double(&x), 3e-7);
        each_circumstance(|| assert_bits(&run().0, &y));
        // Against the definition, in double precision from the single-precision angle.
        let mut expected = double(&x);
        for (row, position) in expected.chunks_mut(heads * 2 * half).zip(&positions) {
            for head in row.chunks_mut(2 * half) {
                for i in 0..half {
                    let (sine, cosine) = f64::from(*position as f32 * frequencies[i]).sin_cos();
                    let (a, b) = (head[i], head[i + half]);
                    head[i] = a * cosine - b * sine;
                    head[i + half] = b * cosine + a * sine;
                }
            }
        }
        assert_close(&y, &expected, 3e-7);
    }
}

#[test]
fn rotary_tables_grow_without_changing_and_scale_both_parts() {
    let mut table = RotaryTable::new(&[1.0, 0.1], 0.5, 3);
    assert_eq!(table.positions(), 3);
    table.ensure(2);
    assert_eq!(table.positions(), 3);
    table.ensure(10);
    let whole = RotaryTable::new(&[1.0, 0.1], 0.5, 10);
    let turned = |table: &RotaryTable| {
        let mut x = [1.0, 1.0, 0.0, 0.0];
        rotate(&mut x, 1, 1, 4, &[9], table);
        x
    };
    assert_eq!(turned(&table), turned(&whole));
    let expected = [
        0.5 * 9.0_f64.cos(),
        0.5 * 0.9_f64.cos(),
        0.5 * 9.0_f64.sin(),
        0.5 * 0.9_f64.sin(),
    ];
    assert_close(&turned(&table), &expected, 1e-7);
}

fn swiglu_double(gate: &[f64], up: &[f64]) -> Vec<f64> {
    gate.iter()
        .zip(up)
        .map(|(g, u)| g / (1.0 + (-g).exp()) * u)
        .collect()
}

#[test]
fn swiglu_and_its_gradients_agree_with_double_precision() {
    let gate: Vec<f32> = noise(101, 1).into_iter().map(|x| 12.0 * x).collect();
    let (up, dout) = (noise(101, 2), noise(101, 3));
    let mut out = vec![0.0; 101];
    swiglu(&gate, &up, &mut out);
    assert_close(&out, &swiglu_double(&double(&gate), &double(&up)), 5e-7);
    let (mut dgate, mut dup) = (vec![0.0; 101], vec![0.0; 101]);
    swiglu_backward(&gate, &up, &dout, &mut dgate, &mut dup);
    assert_gradient(&dgate, &double(&gate), 1e-6, |gate| {
        dot(&swiglu_double(gate, &double(&up)), &dout)
    });
    assert_gradient(&dup, &double(&up), 1e-6, |up| {
        dot(&swiglu_double(&double(&gate), up), &dout)
    });
}

#[test]
fn swiglu_stays_finite_at_the_extremes() {
    let mut out = [0.0; 2];
    swiglu(&[-200.0, 200.0], &[1.0, 1.0], &mut out);
    assert_eq!(out, [0.0, 200.0]);
    let (mut dgate, mut dup) = ([1.0; 2], [1.0; 2]);
    swiglu_backward(&[-200.0, 200.0], &[1.0, 1.0], &[1.0, 1.0], &mut dgate, &mut dup);
    assert_eq!((dgate, dup), ([0.0, 1.0], [0.0, 200.0]));
}

#[test]
fn embedding_rows_are_gathered_and_their_gradients_summed_in_order() {
    let table = [0.0, 1.0, 10.0, 11.0, 20.0, 21.0];
    let mut out = [0.0; 6];
    gather(&table, 2, &[2, 0, 2], &mut out);
    assert_eq!(out, [20.0, 21.0, 0.0, 1.0, 20.0, 21.0]);
    let mut dtable = [0.0, 0.0, 0.0, 0.0, 1e8, 0.0];
    scatter_add(&[3.0, 1.0, 5.0, 6.0, -1e8, 2.0], 2, &[2, 0, 2], &mut dtable);
    assert_eq!(dtable, [5.0, 6.0, 0.0, 0.0, 0.0, 3.0]);
}
