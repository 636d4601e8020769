//! Products against a chain written out, for every instruction set, thread count and batch split.

mod support;

use proptest::prelude::*;
use seed_kernels::matmul::{PackedMatrix, accumulate_outer, accumulate_rows, add_bias, matmul};
use support::{assert_bits, each_circumstance, noise};

/// The law itself: one chain of fused multiply-adds per element.
fn chain(a: &[f32], w: &[f32], rows: usize, depth: usize, columns: usize, out: &mut [f32]) {
    for r in 0..rows {
        for c in 0..columns {
            for k in 0..depth {
                out[r * columns + c] = a[r * depth + k].mul_add(w[c * depth + k], out[r * columns + c]);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn every_path_computes_the_chain(
        rows in 1usize..40, depth in 0usize..600, columns in 1usize..70, accumulate: bool, seed: u64,
    ) {
        let a = noise(rows * depth, seed);
        let w = noise(columns * depth, seed ^ 1);
        let start = noise(rows * columns, seed ^ 2);
        let mut expected = if accumulate { start.clone() } else { vec![0.0; rows * columns] };
        chain(&a, &w, rows, depth, columns, &mut expected);
        let packed = PackedMatrix::from_transposed(&w, columns, depth);
        each_circumstance(|| {
            let mut out = start.clone();
            matmul(&a, rows, &packed, &mut out, accumulate);
            assert_bits(&out, &expected);
        });
    }
}
