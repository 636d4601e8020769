//! Products against chains written out, for every instruction set, thread count and batch split.

mod support;

use proptest::prelude::*;
use seed_kernels::matmul::{PackedMatrix, accumulate_outer, accumulate_rows, add_bias, matmul};
use support::{assert_bits, each_circumstance, noise};

/// The law itself: one chain of fused multiply-adds per element, `out[r, c] += Σ_k a(r, k) · b(k, c)`.
fn chain(
    (rows, depth, columns): (usize, usize, usize),
    a: impl Fn(usize, usize) -> f32,
    b: impl Fn(usize, usize) -> f32,
    out: &mut [f32],
) {
    for r in 0..rows {
        for c in 0..columns {
            for k in 0..depth {
                out[r * columns + c] = a(r, k).mul_add(b(k, c), out[r * columns + c]);
            }
        }
    }
}

/// The law of products deeper than 512: blocks of 256, each a chain from zero, added in order.
fn blocks(
    (rows, depth, columns): (usize, usize, usize),
    a: impl Fn(usize, usize) -> f32,
    b: impl Fn(usize, usize) -> f32,
    accumulate: bool,
    out: &mut [f32],
) {
    for first in (0..depth).step_by(256) {
        let mut block = vec![0.0; rows * columns];
        let length = 256.min(depth - first);
        chain(
            (rows, length, columns),
            |r, k| a(r, first + k),
            |k, c| b(first + k, c),
            &mut block,
        );
        for (out, block) in out.iter_mut().zip(block) {
            *out = if accumulate || first > 0 {
                *out + block
            } else {
                block
            };
        }
    }
}

#[test]
fn deep_sums_onto_great_values_lose_no_more_than_their_last_rounding() {
    let (depth, columns) = (1536, 64);
    let (a, w) = (noise(depth, 1), noise(columns * depth, 2));
    let start = vec![22_364.7f32; columns];
    let mut out = start.clone();
    matmul(
        &a,
        1,
        &PackedMatrix::from_transposed(&w, columns, depth),
        &mut out,
        true,
    );
    for ((found, start), w) in out.iter().zip(start).zip(w.chunks(depth)) {
        let sum: f64 = a.iter().zip(w).map(|(a, w)| f64::from(*a) * f64::from(*w)).sum();
        let error = (f64::from(*found) - (f64::from(start) + sum)).abs();
        // Half a unit in the last place at 2^14 is 2^-10; six additions onto it are at most six of those.
        assert!(error <= 6.5 / 1024.0, "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    #[test]
    fn every_path_computes_the_blocks_of_a_deep_sum(
        rows in 1usize..40, depth in prop_oneof![513usize..1400, Just(1024), Just(2048)], columns in 1usize..150,
        accumulate: bool, seed: u64,
    ) {
        let a = noise(rows * depth, seed);
        let w = noise(columns * depth, seed ^ 1);
        let start = noise(rows * columns, seed ^ 2);
        let mut expected = start.clone();
        blocks((rows, depth, columns), |r, k| a[r * depth + k], |k, c| w[c * depth + k], accumulate, &mut expected);
        let packed = PackedMatrix::from_transposed(&w, columns, depth);
        each_circumstance(|| {
            let mut out = start.clone();
            matmul(&a, rows, &packed, &mut out, accumulate);
            assert_bits(&out, &expected);
        });
    }

    #[test]
    fn every_path_computes_the_chain(
        rows in 1usize..40, depth in 0usize..=512, columns in 1usize..70, accumulate: bool, seed: u64,
    ) {
        let a = noise(rows * depth, seed);
        let w = noise(columns * depth, seed ^ 1);
        let start = noise(rows * columns, seed ^ 2);
        let mut expected = if accumulate { start.clone() } else { vec![0.0; rows * columns] };
        chain((rows, depth, columns), |r, k| a[r * depth + k], |k, c| w[c * depth + k], &mut expected);
        let packed = PackedMatrix::from_transposed(&w, columns, depth);
        let mut plain = vec![0.0; depth * columns];
        for c in 0..columns {
            for k in 0..depth {
                plain[k * columns + c] = w[c * depth + k];
            }
        }
        prop_assert_eq!(&packed, &PackedMatrix::from_plain(&plain, depth, columns));
        each_circumstance(|| {
            let mut out = start.clone();
            matmul(&a, rows, &packed, &mut out, accumulate);
            assert_bits(&out, &expected);
        });
    }

    #[test]
    fn a_row_has_the_same_bits_alone_and_in_a_batch(rows in 2usize..300, depth in 1usize..300, columns in 1usize..300, seed: u64) {
        let a = noise(rows * depth, seed);
        let packed = PackedMatrix::from_transposed(&noise(columns * depth, seed ^ 1), columns, depth);
        let mut whole = vec![0.0; rows * columns];
        matmul(&a, rows, &packed, &mut whole, false);
        let row = seed as usize % rows;
        let mut alone = vec![0.0; columns];
        matmul(&a[row * depth..][..depth], 1, &packed, &mut alone, false);
        assert_bits(&whole[row * columns..][..columns], &alone);
        let mut rest = vec![0.0; (rows - row) * columns];
        matmul(&a[row * depth..], rows - row, &packed, &mut rest, false);
        assert_bits(&whole[row * columns..], &rest);
    }

    #[test]
    fn outer_products_are_chains_in_row_order(
        rows in 0usize..600, out_features in 1usize..50, in_features in 1usize..50, cut in 0.0f64..1.0, seed: u64,
    ) {
        let dy = noise(rows * out_features, seed);
        let x = noise(rows * in_features, seed ^ 1);
        let start = noise(out_features * in_features, seed ^ 2);
        let mut expected = start.clone();
        chain(
            (out_features, rows, in_features),
            |o, r| dy[r * out_features + o],
            |r, i| x[r * in_features + i],
            &mut expected,
        );
        let first = (rows as f64 * cut) as usize;
        each_circumstance(|| {
            let mut dw = start.clone();
            accumulate_outer(&dy, &x, rows, out_features, in_features, &mut dw);
            assert_bits(&dw, &expected);
            let mut dw = start.clone();
            let (dy, x) = (dy.split_at(first * out_features), x.split_at(first * in_features));
            accumulate_outer(dy.0, x.0, first, out_features, in_features, &mut dw);
            accumulate_outer(dy.1, x.1, rows - first, out_features, in_features, &mut dw);
            assert_bits(&dw, &expected);
        });
    }
}

/// Sizes above every cache block and the threshold for threads.
#[test]
fn large_products_are_the_same_sums() {
    for (rows, depth, columns) in [(1, 700, 2100), (130, 520, 1100), (400, 300, 270), (9, 1, 33)] {
        let a = noise(rows * depth, 7);
        let w = noise(columns * depth, 8);
        let mut expected = vec![0.0; rows * columns];
        let (left, right) = (|r, k| a[r * depth + k], |k, c| w[c * depth + k]);
        if depth > 512 {
            blocks((rows, depth, columns), left, right, false, &mut expected);
        } else {
            chain((rows, depth, columns), left, right, &mut expected);
        }
        let packed = PackedMatrix::from_transposed(&w, columns, depth);
        for threads in [1, 2, 4] {
            support::with_threads(threads, || {
                let mut out = vec![0.0; rows * columns];
                matmul(&a, rows, &packed, &mut out, false);
                assert_bits(&out, &expected);
            });
        }
    }
}

#[test]
fn large_outer_products_are_chains_too() {
    let (rows, out_features, in_features) = (520, 300, 200);
    let dy = noise(rows * out_features, 1);
    let x = noise(rows * in_features, 2);
    let mut expected = vec![0.0; out_features * in_features];
    chain(
        (out_features, rows, in_features),
        |o, r| dy[r * out_features + o],
        |r, i| x[r * in_features + i],
        &mut expected,
    );
    for threads in [1, 2, 4] {
        support::with_threads(threads, || {
            let mut dw = vec![0.0; out_features * in_features];
            accumulate_outer(&dy, &x, rows, out_features, in_features, &mut dw);
            assert_bits(&dw, &expected);
        });
    }
}

#[test]
fn repacking_replaces_the_values() {
    let (old, new) = (noise(21 * 37, 1), noise(21 * 37, 2));
    let mut packed = PackedMatrix::from_transposed(&old, 21, 37);
    packed.repack_transposed(&new);
    assert_eq!(packed, PackedMatrix::from_transposed(&new, 21, 37));
    let mut packed = PackedMatrix::from_plain(&old, 21, 37);
    packed.repack_plain(&new);
    assert_eq!(packed, PackedMatrix::from_plain(&new, 21, 37));
    assert_eq!((packed.depth(), packed.columns()), (21, 37));
}

#[test]
fn nothing_in_gives_zeros_or_nothing_out() {
    let packed = PackedMatrix::from_plain(&[], 0, 3);
    let mut out = [1.0; 6];
    matmul(&[], 2, &packed, &mut out, false);
    assert_eq!(out, [0.0; 6]);
    matmul(&[], 0, &PackedMatrix::from_plain(&[0.5; 6], 2, 3), &mut [], false);
    let mut dw = [1.0; 2];
    accumulate_outer(&[], &[], 0, 1, 2, &mut dw);
    assert_eq!(dw, [1.0; 2]);
}

#[test]
fn bias_is_added_to_rows_and_its_gradient_summed_over_them() {
    let mut y = [1.0, 2.0, 3.0, 4.0];
    add_bias(&mut y, 2, &[0.5, -1.0]);
    assert_eq!(y, [1.5, 1.0, 3.5, 3.0]);
    let mut db = [1e8, 1.0];
    accumulate_rows(&[3.0, 1.0, -1e8, 2.0], 2, &mut db);
    // In row order: 1e8 + 3 rounds to 1e8, then cancels.
    assert_eq!(db, [0.0, 4.0]);
}

#[test]
#[should_panic(expected = "`a` must be [rows, depth]")]
fn a_wrong_length_is_refused() {
    matmul(
        &[0.0; 5],
        2,
        &PackedMatrix::from_plain(&[0.0; 6], 3, 2),
        &mut [0.0; 4],
        false,
    );
}
