//! Shared by the kernel tests: reproducible noise, bit comparison, and running a body under every circumstance that
//! must not change a bit.
#![allow(dead_code, reason = "each test file uses its own part")]

use seed_kernels::InstructionSet;

/// `count` values in (-1, 1) that depend on `seed` alone.
pub(crate) fn noise(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2).wrapping_add(0x9E37_79B9_7F4A_7C15);
    (0..count)
        .map(|_| {
            // splitmix64
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            ((z >> 40) as f32 - 8_388_607.5) / 8_388_608.0
        })
        .collect()
}

/// Asserts that two slices are equal bit for bit.
#[track_caller]
pub(crate) fn assert_bits(actual: &[f32], expected: &[f32]) {
    assert_eq!(actual.len(), expected.len());
    for (index, (a, e)) in actual.iter().zip(expected).enumerate() {
        assert!(a.to_bits() == e.to_bits(), "element {index}: {a:e} is not {e:e}");
    }
}

/// Runs `body` in a pool of `threads`.
#[expect(clippy::expect_used, reason = "a test helper")]
pub(crate) fn with_threads<R: Send>(threads: usize, body: impl FnOnce() -> R + Send) -> R {
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .expect("a pool")
        .install(body)
}

/// Runs `body` on every instruction set of this processor, and the fastest also on three threads.
pub(crate) fn each_circumstance(body: impl Fn() + Sync) {
    with_threads(1, || {
        for set in InstructionSet::available() {
            set.scope(&body);
        }
    });
    with_threads(3, &body);
}

/// Asserts `|actual - expected| <= tolerance * (1 + |expected|)` everywhere.
#[track_caller]
pub(crate) fn assert_close(actual: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(actual.len(), expected.len());
    for (index, (a, e)) in actual.iter().zip(expected).enumerate() {
        let error = (f64::from(*a) - e).abs();
        assert!(
            error <= tolerance * (1.0 + e.abs()),
            "element {index}: {a:e}, expected {e:e}"
        );
    }
}

/// Checks a gradient, in double precision, against central differences of `loss` at `x`.
#[track_caller]
pub(crate) fn assert_gradient(gradient: &[f32], x: &[f64], tolerance: f64, loss: impl Fn(&[f64]) -> f64) {
    assert_eq!(gradient.len(), x.len());
    let mut moved = x.to_vec();
    let differences: Vec<f64> = (0..x.len())
        .map(|index| {
            let step = 1e-5;
            moved[index] = x[index] + step;
            let above = loss(&moved);
            moved[index] = x[index] - step;
            let below = loss(&moved);
            moved[index] = x[index];
            (above - below) / (2.0 * step)
        })
        .collect();
    assert_close(gradient, &differences, tolerance);
}

/// The values in double precision.
pub(crate) fn double(values: &[f32]) -> Vec<f64> {
    values.iter().map(|value| f64::from(*value)).collect()
}

/// Σ a·b.
pub(crate) fn dot(a: &[f64], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * f64::from(*b)).sum()
}
