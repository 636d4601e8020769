//! Token log-probs and entropies against double precision, and their bits under every way of computing them.

mod support;

use proptest::prelude::*;
use seed_kernels::head::{
    HeadPass, log_prob_of_row, log_probs_of_row, token_log_probs, token_log_probs_backward,
};
use seed_kernels::matmul::{PackedMatrix, matmul};
use support::{assert_bits, assert_close, assert_gradient, double, each_circumstance, noise};

/// Log-probs and entropies of `targets` for `hidden` `[rows, dim]` and `weight` `[vocabulary, dim]`.
fn log_probs_double(
    hidden: &[f64],
    weight: &[f64],
    dim: usize,
    targets: &[u32],
    temperature: f64,
) -> (Vec<f64>, Vec<f64>) {
    hidden
        .chunks(dim)
        .zip(targets)
        .map(|(hidden, target)| {
            let logits: Vec<f64> = weight
                .chunks(dim)
                .map(|w| w.iter().zip(hidden).map(|(w, h)| w * h).sum::<f64>() / temperature)
                .collect();
            let log_sum = logits.iter().map(|z| z.exp()).sum::<f64>().ln();
            let entropy: f64 = logits.iter().map(|z| -(z - log_sum).exp() * (z - log_sum)).sum();
            (logits[*target as usize] - log_sum, entropy)
        })
        .unzip()
}

fn random_targets(rows: usize, vocabulary: usize, seed: u64) -> Vec<u32> {
    noise(rows, seed)
        .into_iter()
        .map(|x| ((0.5 * x + 0.5) * vocabulary as f32) as u32 % vocabulary as u32)
        .collect()
}

#[test]
fn log_probs_and_gradients_agree_with_double_precision() {
    for (rows, dim, vocabulary, temperature) in [(3, 5, 7, 1.0), (4, 16, 50, 0.7), (2, 9, 33, 2.0)] {
        let (hidden, weight) = (noise(rows * dim, 1), noise(vocabulary * dim, 2));
        let targets = random_targets(rows, vocabulary, 3);
        let (d_log_probs, d_entropies) = (noise(rows, 4), noise(rows, 5));
        let head = PackedMatrix::from_transposed(&weight, vocabulary, dim);
        let head_plain = PackedMatrix::from_plain(&weight, vocabulary, dim);
        let (mut log_probs, mut entropies) = (vec![0.0; rows], vec![0.0; rows]);
        let mut pass = HeadPass::default();
        token_log_probs(
            &hidden,
            rows,
            &head,
            &targets,
            temperature,
            &mut log_probs,
            &mut entropies,
            Some(&mut pass),
        );
        let (hidden64, weight64, temperature64) = (double(&hidden), double(&weight), f64::from(temperature));
        let expected = log_probs_double(&hidden64, &weight64, dim, &targets, temperature64);
        assert_close(&log_probs, &expected.0, 1e-6);
        assert_close(&entropies, &expected.1, 1e-6);
        let (mut dhidden, mut dhead) = (vec![9.0; rows * dim], vec![0.0; vocabulary * dim]);
        token_log_probs_backward(
            &hidden,
            rows,
            &head,
            &head_plain,
            &targets,
            temperature,
            &d_log_probs,
            &d_entropies,
            &mut pass,
            &mut dhidden,
            Some(&mut dhead),
        );
        let loss = |hidden: &[f64], weight: &[f64]| {
            let (log_probs, entropies) = log_probs_double(hidden, weight, dim, &targets, temperature64);
            support::dot(&log_probs, &d_log_probs) + support::dot(&entropies, &d_entropies)
        };
        assert_gradient(&dhidden, &hidden64, 3e-6, |hidden| loss(hidden, &weight64));
        assert_gradient(&dhead, &weight64, 3e-6, |weight| loss(&hidden64, weight));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn bits_do_not_depend_on_the_batch_and_equal_the_samplers(
        rows in 1usize..300, dim in 1usize..40, vocabulary in 2usize..200, cut in 0.0f64..1.0, seed: u64,
    ) {
        let temperature = 0.25 + (seed % 8) as f32 / 4.0;
        let (hidden, weight) = (noise(rows * dim, seed), noise(vocabulary * dim, seed ^ 1));
        let targets = random_targets(rows, vocabulary, seed ^ 2);
        let (d_log_probs, d_entropies) = (noise(rows, seed ^ 3), noise(rows, seed ^ 4));
        let head = PackedMatrix::from_transposed(&weight, vocabulary, dim);
        let head_plain = PackedMatrix::from_plain(&weight, vocabulary, dim);
        // Rows `range`, with the weight gradient continued.
        let run = |range: std::ops::Range<usize>, most_logits: usize, dhead: &mut [f32]| {
            let rows = range.len();
            let mut pass = HeadPass::keeping(most_logits);
            let hidden = &hidden[range.start * dim..range.end * dim];
            let (mut log_probs, mut entropies, mut dhidden) = (vec![0.0; rows], vec![0.0; rows], vec![0.0; rows * dim]);
            token_log_probs(
                hidden, rows, &head, &targets[range.clone()], temperature, &mut log_probs, &mut entropies,
                Some(&mut pass),
            );
            token_log_probs_backward(
                hidden, rows, &head, &head_plain, &targets[range.clone()], temperature, &d_log_probs[range.clone()],
                &d_entropies[range], &mut pass, &mut dhidden, Some(dhead),
            );
            [log_probs, entropies, dhidden]
        };
        let mut dhead = noise(vocabulary * dim, seed ^ 5);
        let expected = support::with_threads(1, || run(0..rows, 0, &mut dhead));
        let cut = (rows as f64 * cut) as usize;
        each_circumstance(|| {
            let mut again = noise(vocabulary * dim, seed ^ 5);
            // Kept logits in the one, logits made again in the other.
            let low = run(0..cut, usize::MAX, &mut again);
            let high = run(cut..rows, 0, &mut again);
            assert_bits(&again, &dhead);
            for ((low, high), expected) in low.iter().zip(&high).zip(&expected) {
                assert_bits(&[low.clone(), high.clone()].concat(), expected);
            }
        });
        let mut logits = vec![0.0; rows * vocabulary];
        matmul(&hidden, rows, &head, &mut logits, false);
        for row in 0..rows {
            let sampled = log_prob_of_row(&logits[row * vocabulary..][..vocabulary], targets[row], temperature);
            assert_bits(&[sampled.log_prob, sampled.entropy], &[expected[0][row], expected[1][row]]);
        }
    }
}

#[test]
fn uniform_and_certain_rows_have_known_values() {
    let uniform = log_prob_of_row(&[0.25; 8], 3, 0.5);
    assert_close(
        &[uniform.log_prob, uniform.entropy],
        &[-(8.0_f64.ln()), 8.0_f64.ln()],
        1e-7,
    );
    let certain = log_prob_of_row(&[1000.0, 0.0, -1000.0], 0, 1.0);
    assert_eq!((certain.log_prob, certain.entropy), (0.0, 0.0));
    assert_eq!(log_prob_of_row(&[1000.0, 0.0, -1000.0], 2, 1.0).log_prob, -2000.0);
    assert_eq!(
        log_probs_of_row(&[1000.0, 0.0, -1000.0], &[2, 0, 1], 1.0),
        [-2000.0, 0.0, -1000.0]
    );
}

#[test]
fn masked_logits_take_no_part() {
    let masked = log_prob_of_row(&[f32::NEG_INFINITY, 1.0, f32::NEG_INFINITY, 1.0], 1, 1.0);
    assert_close(
        &[masked.log_prob, masked.entropy],
        &[-(2.0_f64.ln()), 2.0_f64.ln()],
        1e-7,
    );
    assert_eq!(
        log_prob_of_row(&[f32::NEG_INFINITY, 1.0], 0, 1.0).log_prob,
        f32::NEG_INFINITY
    );
}

#[test]
fn a_large_vocabulary_stays_accurate() {
    let logits: Vec<f32> = noise(150_000, 9).into_iter().map(|x| 10.0 * x).collect();
    let exact: f64 = logits.iter().map(|z| f64::from(*z).exp()).sum::<f64>().ln();
    let mean: f64 = logits
        .iter()
        .map(|z| (f64::from(*z) - exact).exp() * f64::from(*z))
        .sum();
    let result = log_prob_of_row(&logits, 77, 1.0);
    assert_close(
        &[result.log_prob, result.entropy],
        &[f64::from(logits[77]) - exact, exact - mean],
        1e-6,
    );
}

#[test]
fn without_a_weight_gradient_the_rest_is_the_same() {
    let (hidden, weight) = (noise(6 * 4, 1), noise(10 * 4, 2));
    let head = PackedMatrix::from_transposed(&weight, 10, 4);
    let head_plain = PackedMatrix::from_plain(&weight, 10, 4);
    let run = |dhead: Option<&mut [f32]>| {
        let (mut dhidden, mut pass) = (vec![0.0; 24], HeadPass::default());
        token_log_probs(
            &hidden,
            6,
            &head,
            &[0, 1, 2, 3, 4, 9],
            1.0,
            &mut [0.0; 6],
            &mut [0.0; 6],
            Some(&mut pass),
        );
        token_log_probs_backward(
            &hidden,
            6,
            &head,
            &head_plain,
            &[0, 1, 2, 3, 4, 9],
            1.0,
            &[1.0; 6],
            &[0.5; 6],
            &mut pass,
            &mut dhidden,
            dhead,
        );
        dhidden
    };
    assert_bits(&run(None), &run(Some(&mut [0.0; 40])));
}
