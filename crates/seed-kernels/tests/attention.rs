//! Attention against double precision, and its bits under every way of computing it.

mod support;

use proptest::prelude::*;
use seed_kernels::attention::{AttentionShape, KeyValueCache, attention, attention_backward};
use support::{assert_bits, assert_close, assert_gradient, dot, double, each_circumstance, noise};

fn shape(query_heads: usize, key_value_heads: usize, head_dim: usize) -> AttentionShape {
    AttentionShape {
        query_heads,
        key_value_heads,
        head_dim,
        scale: 1.0 / (head_dim as f32).sqrt(),
    }
}

fn filled(shape: &AttentionShape, k: &[f32], v: &[f32], rows: usize) -> KeyValueCache {
    let mut cache = KeyValueCache::new(shape, rows);
    cache.append(k, v, rows);
    cache
}

/// Causal attention over a whole sequence in double precision: outputs and log-sum-exps.
fn attention_double(
    shape: &AttentionShape,
    rows: usize,
    q: &[f64],
    k: &[f64],
    v: &[f64],
) -> (Vec<f64>, Vec<f64>) {
    let (dim, group) = (shape.head_dim, shape.query_heads / shape.key_value_heads);
    let (wide, narrow) = (shape.query_width(), shape.key_value_width());
    let (mut out, mut log_sum_exp) = (vec![0.0; rows * wide], Vec::new());
    for r in 0..rows {
        for h in 0..shape.query_heads {
            let weights: Vec<f64> = (0..=r)
                .map(|j| {
                    let score: f64 = (0..dim)
                        .map(|d| q[r * wide + h * dim + d] * k[j * narrow + h / group * dim + d])
                        .sum();
                    (score * f64::from(shape.scale)).exp()
                })
                .collect();
            let sum: f64 = weights.iter().sum();
            log_sum_exp.push(sum.ln());
            for (j, weight) in weights.iter().enumerate() {
                for d in 0..dim {
                    out[r * wide + h * dim + d] += weight / sum * v[j * narrow + h / group * dim + d];
                }
            }
        }
    }
    (out, log_sum_exp)
}

#[test]
fn attention_and_its_gradients_agree_with_double_precision() {
    for (rows, query_heads, key_value_heads, head_dim) in
        [(1, 1, 1, 4), (19, 4, 2, 8), (40, 3, 3, 16), (33, 4, 1, 20)]
    {
        let shape = shape(query_heads, key_value_heads, head_dim);
        let (wide, narrow) = (rows * shape.query_width(), rows * shape.key_value_width());
        let loud = |seed| noise(wide, seed).into_iter().map(|x| 3.0 * x).collect::<Vec<_>>();
        let (q, k, v, dout) = (loud(1), noise(narrow, 2), noise(narrow, 3), noise(wide, 4));
        let cache = filled(&shape, &k, &v, rows);
        let (mut out, mut log_sum_exp) = (vec![0.0; wide], vec![0.0; rows * query_heads]);
        attention(&q, rows, &cache, 0, &shape, &mut out, Some(&mut log_sum_exp));
        let (q64, k64, v64) = (double(&q), double(&k), double(&v));
        let expected = attention_double(&shape, rows, &q64, &k64, &v64);
        assert_close(&out, &expected.0, 2e-6);
        assert_close(&log_sum_exp, &expected.1, 2e-6);
        let (mut dq, mut dk, mut dv) = (vec![9.0; wide], vec![9.0; narrow], vec![9.0; narrow]);
        attention_backward(
            &q,
            rows,
            &cache,
            &out,
            &log_sum_exp,
            &dout,
            &shape,
            &mut dq,
            &mut dk,
            &mut dv,
        );
        let loss = |q: &[f64], k: &[f64], v: &[f64]| dot(&attention_double(&shape, rows, q, k, v).0, &dout);
        assert_gradient(&dq, &q64, 5e-6, |q| loss(q, &k64, &v64));
        assert_gradient(&dk, &k64, 5e-6, |k| loss(&q64, k, &v64));
        assert_gradient(&dv, &v64, 5e-6, |v| loss(&q64, &k64, v));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10))]

    /// Training pass, pre-fill in chunks and decoding one by one give the same bits.
    #[test]
    fn a_query_has_the_same_bits_in_every_pass(
        rows in 1usize..100, key_value_heads in 1usize..3, group in 1usize..5, head_dim in 1usize..70,
        chunk in 1usize..40, seed: u64,
    ) {
        let shape = shape(key_value_heads * group, key_value_heads, head_dim);
        let (wide, narrow) = (shape.query_width(), shape.key_value_width());
        let (q, k, v) = (noise(rows * wide, seed), noise(rows * narrow, seed ^ 1), noise(rows * narrow, seed ^ 2));
        let mut expected = vec![0.0; rows * wide];
        let mut log_sum_exp = vec![0.0; rows * shape.query_heads];
        support::with_threads(1, || {
            attention(&q, rows, &filled(&shape, &k, &v, rows), 0, &shape, &mut expected, Some(&mut log_sum_exp));
        });
        each_circumstance(|| {
            let mut out = vec![0.0; rows * wide];
            let mut sums = vec![0.0; rows * shape.query_heads];
            attention(&q, rows, &filled(&shape, &k, &v, rows), 0, &shape, &mut out, Some(&mut sums));
            assert_bits(&out, &expected);
            assert_bits(&sums, &log_sum_exp);
            for chunk in [chunk, 1] {
                let mut cache = KeyValueCache::new(&shape, 0);
                let mut out = Vec::new();
                for first in (0..rows).step_by(chunk) {
                    let count = chunk.min(rows - first);
                    cache.append(&k[first * narrow..][..count * narrow], &v[first * narrow..][..count * narrow], count);
                    let mut part = vec![0.0; count * wide];
                    attention(&q[first * wide..][..count * wide], count, &cache, first, &shape, &mut part, None);
                    out.extend(part);
                }
                assert_bits(&out, &expected);
            }
        });
    }

    #[test]
    fn gradient_bits_are_the_same_everywhere(
        rows in 1usize..100, key_value_heads in 1usize..4, group in 1usize..4, head_dim in 1usize..40, seed: u64,
    ) {
        let shape = shape(key_value_heads * group, key_value_heads, head_dim);
        let (wide, narrow) = (rows * shape.query_width(), rows * shape.key_value_width());
        let (q, k, v, dout) = (noise(wide, seed), noise(narrow, seed ^ 1), noise(narrow, seed ^ 2), noise(wide, seed ^ 3));
        let cache = filled(&shape, &k, &v, rows);
        let (mut out, mut log_sum_exp) = (vec![0.0; wide], vec![0.0; rows * shape.query_heads]);
        attention(&q, rows, &cache, 0, &shape, &mut out, Some(&mut log_sum_exp));
        let run = || {
            let (mut dq, mut dk, mut dv) = (vec![0.0; wide], vec![0.0; narrow], vec![0.0; narrow]);
            attention_backward(&q, rows, &cache, &out, &log_sum_exp, &dout, &shape, &mut dq, &mut dk, &mut dv);
            [dq, dk, dv].concat()
        };
        let expected = support::with_threads(1, run);
        each_circumstance(|| assert_bits(&run(), &expected));
    }

    /// Forking, truncating and appending again leave no trace.
    #[test]
    fn a_truncated_cache_equals_a_shorter_one(length in 1usize..80, kept in 0usize..80, head_dim in 1usize..40, seed: u64) {
        let shape = shape(2, 2, head_dim);
        let kept = kept.min(length - 1);
        let narrow = shape.key_value_width();
        let (k, v, q) = (noise(length * narrow, seed), noise(length * narrow, seed ^ 1), noise(narrow, seed ^ 2));
        let mut fork = filled(&shape, &k, &v, length).clone();
        fork.truncate(kept);
        prop_assert_eq!(fork.len(), kept);
        let (new_k, new_v) = (noise(narrow, seed ^ 3), noise(narrow, seed ^ 4));
        fork.append(&new_k, &new_v, 1);
        let mut fresh = filled(&shape, &k[..kept * narrow], &v[..kept * narrow], kept);
        fresh.append(&new_k, &new_v, 1);
        let result = |cache: &KeyValueCache| {
            let mut out = vec![0.0; narrow];
            attention(&q, 1, cache, kept, &shape, &mut out, None);
            out
        };
        assert_bits(&result(&fork), &result(&fresh));
    }
}

#[test]
fn later_positions_in_the_cache_are_not_seen() {
    let shape = shape(2, 1, 8);
    let (k, v, q) = (noise(40 * 8, 1), noise(40 * 8, 2), noise(3 * 16, 3));
    let mut all = vec![0.0; 3 * 16];
    attention(&q, 3, &filled(&shape, &k, &v, 40), 10, &shape, &mut all, None);
    let mut some = vec![0.0; 3 * 16];
    attention(
        &q,
        3,
        &filled(&shape, &k[..13 * 8], &v[..13 * 8], 13),
        10,
        &shape,
        &mut some,
        None,
    );
    assert_bits(&all, &some);
}

#[test]
fn large_scores_do_not_overflow() {
    let shape = AttentionShape {
        query_heads: 1,
        key_value_heads: 1,
        head_dim: 1,
        scale: 1.0,
    };
    let cache = filled(&shape, &[500.0, -500.0, 499.0], &[1.0, 2.0, 3.0], 3);
    let (mut out, mut log_sum_exp) = ([0.0], [0.0]);
    attention(&[1.0], 1, &cache, 2, &shape, &mut out, Some(&mut log_sum_exp));
    let weight = (-1.0_f64).exp();
    assert_close(&out, &[(1.0 + 3.0 * weight) / (1.0 + weight)], 1e-6);
    assert_close(&log_sum_exp, &[500.0 + (1.0 + weight).ln()], 1e-6);
}

#[test]
fn a_cache_reports_its_memory() {
    let shape = shape(4, 2, 20);
    let cache = KeyValueCache::new(&shape, 17);
    assert!(cache.is_empty());
    // 32 positions of two heads: keys of 20 and values of 32 padded values.
    assert_eq!(cache.bytes(), 32 * 2 * (20 + 32) * 4);
}

#[test]
fn a_growing_cache_holds_little_more_than_it_needs() {
    let shape = shape(2, 1, 16);
    let mut cache = KeyValueCache::new(&shape, 0);
    let row = [0.5; 16];
    for length in 1..=1_000_usize {
        cache.append(&row, &row, 1);
        // Keys and values of 16 numbers, in steps of 256 positions.
        assert_eq!(
            cache.bytes(),
            length.next_multiple_of(256) * 2 * 16 * 4,
            "{length}"
        );
    }
    let mut fork = cache.clone();
    fork.append(&row, &row, 1);
    assert!(fork.bytes() <= (1_001 + 256) * 2 * 16 * 4, "{}", fork.bytes());
}

#[test]
#[should_panic(expected = "the cache must hold the positions of all rows")]
fn queries_past_the_cache_are_refused() {
    let shape = shape(1, 1, 4);
    attention(
        &[0.0; 4],
        1,
        &filled(&shape, &[0.0; 4], &[0.0; 4], 1),
        1,
        &shape,
        &mut [0.0; 4],
        None,
    );
}
