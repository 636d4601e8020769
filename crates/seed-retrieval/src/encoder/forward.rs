//! The forward pass of a BERT encoder ([arXiv 1810.04805](https://arxiv.org/abs/1810.04805)).
//!
//! Sequences lie one after the other without padding; only attention knows where one ends. A row's values depend on
//! its own sequence alone, since every matrix product is one chain of multiply-adds per element
//! (`seed_kernels::matmul`).
//!
//! Not for: tokens to text, or which sequences go together.

use seed_kernels::math::exp_in_place;
use seed_kernels::matmul::{PackedMatrix, add_bias, matmul};

use super::Pooling;
use super::config::BertConfig;
use super::weights::{BertWeights, Layer, Linear, Norm};

/// Coefficients of the error function's rational approximation: Abramowitz and Stegun, 7.1.26, error below 1.5e-7.
const ERF_SCALE: f32 = 0.327_591_1;
const ERF: [f32; 5] = [1.061_405_4, -1.453_152_1, 1.421_413_8, -0.284_496_74, 0.254_829_6];

/// One vector of length 1 per sequence, `[sequences, hidden]`. Ids must be below the vocabulary's size and
/// sequences not longer than the model has positions.
pub(super) fn encode(
    weights: &BertWeights,
    config: &BertConfig,
    sequences: &[&[u32]],
    pooling: Pooling,
) -> Vec<f32> {
    let hidden = config.hidden_size;
    let lengths: Vec<usize> = sequences.iter().map(|sequence| sequence.len()).collect();
    let mut rows = embed(weights, hidden, sequences, config.layer_norm_eps);
    // A tokenizer may make nothing of a text.
    if !rows.is_empty() {
        for layer in &weights.layers {
            rows = apply(layer, config, &lengths, rows);
        }
    }
    pool(&rows, hidden, &lengths, pooling)
}

/// Word, position and segment embeddings, normalised.
fn embed(weights: &BertWeights, hidden: usize, sequences: &[&[u32]], epsilon: f64) -> Vec<f32> {
    let total: usize = sequences.iter().map(|sequence| sequence.len()).sum();
    let mut rows = Vec::with_capacity(total * hidden);
    for sequence in sequences {
        let positions = weights.positions.chunks_exact(hidden);
        for (&id, position) in sequence.iter().zip(positions) {
            let start = id as usize * hidden;
            let word = weights.words.get(start..start + hidden).unwrap_or_default();
            let sums = word.iter().zip(position).zip(&weights.segment);
            rows.extend(sums.map(|((word, position), segment)| word + position + segment));
        }
    }
    normalise(&mut rows, &weights.embedding_norm, epsilon);
    rows
}

/// One layer: attention and a two-layer network, each added to its input and normalised.
fn apply(layer: &Layer, config: &BertConfig, lengths: &[usize], input: Vec<f32>) -> Vec<f32> {
    let hidden = config.hidden_size;
    let rows = input.len() / hidden;
    let [query, key, value] =
        [&layer.query, &layer.key, &layer.value].map(|linear| product(linear, &input, rows));
    let mixed = attend(config, lengths, &query, &key, &value);
    // A residual connection is where the next product's sums start.
    let mut middle = input;
    add_product(&layer.attention_output, &mixed, rows, &mut middle);
    normalise(&mut middle, &layer.attention_norm, config.layer_norm_eps);
    let mut inner = product(&layer.intermediate, &middle, rows);
    gelu(&mut inner);
    let mut output = middle;
    add_product(&layer.output, &inner, rows, &mut output);
    normalise(&mut output, &layer.output_norm, config.layer_norm_eps);
    output
}

fn product(linear: &Linear, input: &[f32], rows: usize) -> Vec<f32> {
    let mut out = vec![0.0; rows * linear.bias.len()];
    matmul(input, rows, &linear.matrix, &mut out, false);
    add_bias(&mut out, rows, &linear.bias);
    out
}

fn add_product(linear: &Linear, input: &[f32], rows: usize, out: &mut [f32]) {
    matmul(input, rows, &linear.matrix, out, true);
    add_bias(out, rows, &linear.bias);
}

/// Soft-max attention within each sequence, head by head; every token sees every other.
fn attend(config: &BertConfig, lengths: &[usize], query: &[f32], key: &[f32], value: &[f32]) -> Vec<f32> {
    let (hidden, size) = (config.hidden_size, config.head_size());
    let scale = 1.0 / (size as f32).sqrt();
    let mut mixed = vec![0.0; query.len()];
    let mut first = 0;
    for &length in lengths {
        let range = first * hidden..(first + length) * hidden;
        first += length;
        if length == 0 {
            continue;
        }
        for head in 0..config.num_attention_heads {
            let columns = head * size..(head + 1) * size;
            let [query, key, value] = [query, key, value].map(|matrix| {
                let rows = matrix.get(range.clone()).unwrap_or_default().chunks_exact(hidden);
                rows.flat_map(|row| row.get(columns.clone()).unwrap_or_default())
                    .copied()
                    .collect::<Vec<f32>>()
            });
            let mut scores = vec![0.0; length * length];
            let keys = PackedMatrix::from_transposed(&key, length, size);
            matmul(&query, length, &keys, &mut scores, false);
            for row in scores.chunks_exact_mut(length) {
                soft_max(row, scale);
            }
            let mut out = vec![0.0; length * size];
            let values = PackedMatrix::from_plain(&value, length, size);
            matmul(&scores, length, &values, &mut out, false);
            let target = mixed
                .get_mut(range.clone())
                .unwrap_or_default()
                .chunks_exact_mut(hidden);
            for (target, source) in target.zip(out.chunks_exact(size)) {
                if let Some(target) = target.get_mut(columns.clone()) {
                    target.copy_from_slice(source);
                }
            }
        }
    }
    mixed
}

fn soft_max(row: &mut [f32], scale: f32) {
    let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    for value in row.iter_mut() {
        *value = (*value - largest) * scale;
    }
    exp_in_place(row);
    let sum: f64 = row.iter().map(|&value| f64::from(value)).sum();
    let inverse = (1.0 / sum) as f32;
    for value in row {
        *value *= inverse;
    }
}

/// Layer normalisation of every row.
fn normalise(rows: &mut [f32], norm: &Norm, epsilon: f64) {
    let width = norm.scale.len();
    for row in rows.chunks_exact_mut(width) {
        let mean = row.iter().map(|&value| f64::from(value)).sum::<f64>() / width as f64;
        let squares = row.iter().map(|&value| (f64::from(value) - mean).powi(2));
        let inverse = 1.0 / (squares.sum::<f64>() / width as f64 + epsilon).sqrt();
        for ((value, scale), shift) in row.iter_mut().zip(&norm.scale).zip(&norm.shift) {
            *value = ((f64::from(*value) - mean) * inverse) as f32 * scale + shift;
        }
    }
}

/// `x · (1 + erf(x / √2)) / 2` for every value.
fn gelu(values: &mut [f32]) {
    let mut exponentials: Vec<f32> = values.iter().map(|&value| -0.5 * value * value).collect();
    exp_in_place(&mut exponentials);
    for (value, exponential) in values.iter_mut().zip(exponentials) {
        let x = *value * std::f32::consts::FRAC_1_SQRT_2;
        let t = 1.0 / (1.0 + ERF_SCALE * x.abs());
        let polynomial = ERF.iter().fold(0.0, |sum, coefficient| sum * t + coefficient) * t;
        let erf = (1.0 - polynomial * exponential).copysign(x);
        *value *= 0.5 * (1.0 + erf);
    }
}

/// Rows to one vector of length 1 per sequence. A sequence whose vector is zero stays zero.
fn pool(rows: &[f32], hidden: usize, lengths: &[usize], pooling: Pooling) -> Vec<f32> {
    let mut pooled = Vec::with_capacity(lengths.len() * hidden);
    let mut rest = rows.chunks_exact(hidden);
    for &length in lengths {
        let mut sums = vec![0.0_f64; hidden];
        for (index, row) in rest.by_ref().take(length).enumerate() {
            if pooling == Pooling::Mean || index == 0 {
                for (sum, &value) in sums.iter_mut().zip(row) {
                    *sum += f64::from(value);
                }
            }
        }
        let norm = sums.iter().map(|sum| sum * sum).sum::<f64>().sqrt();
        let inverse = if norm > 0.0 { 1.0 / norm } else { 0.0 };
        pooled.extend(sums.iter().map(|sum| (sum * inverse) as f32));
    }
    pooled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gelu_is_the_one_with_the_error_function() {
        // Values of x · Φ(x) in double precision.
        let cases = [
            (-6.0, -5.919_5e-9),
            (-1.5, -0.100_210_8),
            (-0.1, -0.046_017_2),
            (0.0, 0.0),
            (0.5, 0.345_731_23),
            (1.0, 0.841_344_7),
            (3.0, 2.995_950_3),
            (20.0, 20.0),
        ];
        let mut values: Vec<f32> = cases.iter().map(|&(x, _)| x).collect();
        gelu(&mut values);
        for (value, (x, expected)) in values.iter().zip(cases) {
            assert!((value - expected).abs() < 1e-6, "{x}: {value} for {expected}");
        }
    }

    #[test]
    fn soft_max_and_normalisation_by_hand() {
        let mut row = [0.0, 2.0_f32.ln() * 2.0];
        soft_max(&mut row, 0.5);
        assert!((row[0] - 1.0 / 3.0).abs() < 1e-6 && (row[1] - 2.0 / 3.0).abs() < 1e-6);
        let norm = Norm {
            scale: vec![1.0, 2.0],
            shift: vec![0.0, 10.0],
        };
        let mut rows = [3.0, 5.0];
        normalise(&mut rows, &norm, 1e-12);
        assert!((rows[0] + 1.0).abs() < 1e-6 && (rows[1] - 12.0).abs() < 1e-6);
    }

    #[test]
    fn pooled_vectors_have_length_one() {
        let rows = [3.0, 0.0, 3.0, 8.0, 0.0, 0.0];
        let mean = pool(&rows, 2, &[2, 1], Pooling::Mean);
        assert_eq!(mean, [0.6, 0.8, 0.0, 0.0]);
        assert_eq!(pool(&rows, 2, &[2, 1], Pooling::FirstToken), [1.0, 0.0, 0.0, 0.0]);
    }
}
