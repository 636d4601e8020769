//! Logits, scores and gradients against those of PyTorch and transformers (`golden/make_decoder_golden.py`).

use std::path::{Path, PathBuf};

use safetensors::{Dtype, SafeTensors};
use seed_model::config::{DecoderConfig, Family};
use seed_model::decoder::Decoder;
use seed_model::gradients::Gradients;
use seed_model::parameters::Parameters;
use seed_model::sequence::{ScoreGradients, Scores, TokenSequence};

use crate::support::{largest_difference, norm};

/// Temperature of the scores and of the weighted loss.
const TEMPERATURE: f32 = 0.7;

pub(crate) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name)
}

pub(crate) fn floats(tensors: &SafeTensors<'_>, name: &str) -> Vec<f32> {
    let view = tensors.tensor(name).unwrap();
    assert_eq!(view.dtype(), Dtype::F32, "{name}");
    view.data()
        .as_chunks()
        .0
        .iter()
        .map(|bytes| f32::from_le_bytes(*bytes))
        .collect()
}

pub(crate) fn ids(tensors: &SafeTensors<'_>, name: &str) -> Vec<u32> {
    let view = tensors.tensor(name).unwrap();
    assert_eq!(view.dtype(), Dtype::I64, "{name}");
    view.data()
        .as_chunks()
        .0
        .iter()
        .map(|bytes| u32::try_from(i64::from_le_bytes(*bytes)).unwrap())
        .collect()
}

/// The decoder configured in one folder with the weights of another.
pub(crate) fn decoder(configuration: &str, weights: &str) -> Decoder {
    let text = fs_err::read_to_string(folder(configuration).join("config.json")).unwrap();
    let config = DecoderConfig::from_json(&text).unwrap();
    let mut parameters = Parameters::zeros(&config);
    let mut loaded = 0;
    for entry in fs_err::read_dir(folder(weights)).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if !(name.starts_with("model")
            && path
                .extension()
                .is_some_and(|extension| extension == "safetensors"))
        {
            continue;
        }
        let bytes = fs_err::read(&path).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        for name in tensors.names() {
            let index = parameters.index_of(name).unwrap();
            parameters.get_mut(index).copy_from_slice(&floats(&tensors, name));
            loaded += 1;
        }
    }
    assert_eq!(loaded, parameters.len());
    Decoder::new(config, parameters).unwrap()
}

#[test]
fn logits_match_for_every_family_and_rotary_scaling() {
    let folders = [
        ("llama", "llama"),
        ("qwen2", "qwen2"),
        ("qwen3", "qwen3"),
        ("llama-linear", "llama"),
        ("llama-dynamic", "llama"),
        ("llama-llama3", "llama"),
        ("llama-yarn", "llama"),
    ];
    for (name, weights) in folders {
        let bytes = fs_err::read(folder(name).join("golden.safetensors")).unwrap();
        let golden = SafeTensors::deserialize(&bytes).unwrap();
        let decoder = decoder(name, weights);
        let count = golden
            .names()
            .iter()
            .filter(|name| name.starts_with("input_ids."))
            .count();
        assert!(count > 0);
        for sequence in 0..count {
            let input = ids(&golden, &format!("input_ids.{sequence}"));
            let logits = decoder.logits(&input).unwrap();
            let difference = largest_difference(&logits, &floats(&golden, &format!("logits.{sequence}")));
            assert!(
                difference < 1e-4,
                "{name} sequence {sequence}: logits differ by {difference}"
            );
        }
    }
}

/// One of the golden losses: how it is scored and its derivatives. Both losses are linear in the scores, so the
/// derivatives are also the weights of their sum.
struct GoldenLoss {
    label: &'static str,
    temperature: f32,
    derivatives: Vec<ScoreGradients>,
}

impl GoldenLoss {
    fn value(&self, scores: &[Scores]) -> f64 {
        let dot = |left: &[f32], right: &[f32]| -> f64 {
            left.iter()
                .zip(right)
                .map(|(left, right)| f64::from(*left) * f64::from(*right))
                .sum()
        };
        scores
            .iter()
            .zip(&self.derivatives)
            .map(|(scores, weights)| {
                dot(&scores.log_probs, &weights.log_probs) + dot(&scores.entropies, &weights.entropies)
            })
            .sum()
    }
}

fn losses(golden: &SafeTensors<'_>, counts: &[usize]) -> [GoldenLoss; 2] {
    let share = 1.0 / counts.iter().sum::<usize>() as f32;
    [
        GoldenLoss {
            label: "nll",
            temperature: 1.0,
            derivatives: counts
                .iter()
                .map(|&count| ScoreGradients {
                    log_probs: vec![-share; count],
                    entropies: vec![0.0; count],
                })
                .collect(),
        },
        GoldenLoss {
            label: "weighted",
            temperature: TEMPERATURE,
            derivatives: (0..counts.len())
                .map(|sequence| ScoreGradients {
                    log_probs: floats(golden, &format!("weights.log_prob.{sequence}")),
                    entropies: floats(golden, &format!("weights.entropy.{sequence}")),
                })
                .collect(),
        },
    ]
}

#[test]
fn scores_and_the_gradient_of_every_parameter_match() {
    for family in Family::ALL {
        let name = family.model_type();
        let bytes = fs_err::read(folder(name).join("golden.safetensors")).unwrap();
        let golden = SafeTensors::deserialize(&bytes).unwrap();
        let decoder = decoder(name, name);
        let inputs: Vec<Vec<u32>> = (0..2).map(|s| ids(&golden, &format!("input_ids.{s}"))).collect();
        let scored: Vec<Vec<u32>> = inputs
            .iter()
            .map(|input| (1..input.len() as u32).collect())
            .collect();
        let sequences: Vec<TokenSequence<'_>> = inputs
            .iter()
            .zip(&scored)
            .map(|(tokens, scored)| TokenSequence { tokens, scored })
            .collect();

        let scores = decoder.score(&sequences, TEMPERATURE).unwrap();
        for (sequence, scores) in scores.iter().enumerate() {
            for (label, values) in [("log_probs", &scores.log_probs), ("entropies", &scores.entropies)] {
                let difference = largest_difference(values, &floats(&golden, &format!("{label}.{sequence}")));
                assert!(
                    difference < 1e-4,
                    "{name} sequence {sequence}: {label} differ by {difference}"
                );
            }
        }

        let counts: Vec<usize> = scored.iter().map(Vec::len).collect();
        for loss in losses(&golden, &counts) {
            let mut gradients = Gradients::zeros(decoder.config());
            let mut scores = Vec::new();
            decoder
                .accumulate_gradient(
                    &sequences,
                    loss.temperature,
                    &mut gradients,
                    &mut |index, seen| {
                        scores.push(seen.clone());
                        loss.derivatives[index].clone()
                    },
                    false,
                )
                .unwrap();
            let value = loss.value(&scores);
            let expected = f64::from(floats(&golden, &format!("loss.{}", loss.label))[0]);
            assert!(
                (value - expected).abs() < 1e-4 * (1.0 + expected.abs()),
                "{name}: {value} {expected}"
            );
            check_gradients(name, loss.label, &golden, &mut gradients);
        }
    }
}

/// Every tensor within a thousandth of its own norm; one whose true gradient vanishes, of a millionth of the whole.
fn check_gradients(name: &str, label: &str, golden: &SafeTensors<'_>, gradients: &mut Gradients) {
    let whole = gradients.global_norm();
    assert!(whole > 0.0);
    for tensor in gradients.values().iter() {
        let expected = floats(golden, &format!("gradient.{label}.{}", tensor.name));
        let difference = norm(
            tensor
                .values
                .iter()
                .zip(&expected)
                .map(|(left, right)| left - right),
        );
        let scale = norm(expected.iter().copied());
        assert!(
            difference <= 1e-3 * scale + 1e-6 * whole,
            "{name} {label} `{}`: gradient differs by {difference} of {scale}",
            tensor.name
        );
        assert!(
            scale > 1e-6 * whole,
            "{name} {label} `{}`: the golden gradient says nothing",
            tensor.name
        );
    }
}
