//! Adapters: against PEFT in float64 (`golden/make_adapter_golden.py`), merged, switched off, and optimised.
//!
//! That generation, scoring and training agree to the last bit with an adapter too is tested with the rest
//! (`bit_equality`, `cache_reuse`).

use safetensors::SafeTensors;
use seed_model::adapter::{Adapter, AdapterOptions, Target};
use seed_model::config::Family;
use seed_model::error::ModelError;
use seed_model::{AdamW, AdamWOptions, Decoder, Gradients, ScoreGradients, TokenSequence, load_adapter};
use seed_random::RandomKey;

use crate::golden;
use crate::support::{adapted, bits, decoder, derivatives, largest_difference, norm, tokens};

/// Folder of the adapter, folder of its base, and its scale.
const GOLDEN: [(&str, &str, f32); 3] = [
    ("adapter-llama", "llama", 2.0),
    ("adapter-qwen2", "qwen2", 2.886_751_3),
    ("adapter-qwen3", "qwen3", 3.0),
];

fn golden_decoder(name: &str, base: &str) -> Decoder {
    let decoder = golden::decoder(base, base);
    let read = load_adapter(golden::folder(name), decoder.config()).unwrap();
    assert_eq!(read.base_digest, None, "PEFT does not know of it");
    decoder.with_adapter(read.adapter).unwrap()
}

/// Sequences with every token but the first scored, and the derivatives of their mean negative log-prob.
fn all_scored(inputs: &[Vec<u32>]) -> (Vec<Vec<u32>>, f32) {
    let scored: Vec<Vec<u32>> = inputs
        .iter()
        .map(|input| (1..input.len() as u32).collect())
        .collect();
    let count: usize = scored.iter().map(Vec::len).sum();
    (scored, -1.0 / count as f32)
}

#[test]
fn logits_and_gradients_are_as_near_to_float64_as_those_of_pytorch() {
    for (name, base, scale) in GOLDEN {
        let bytes = fs_err::read(golden::folder(name).join("golden.safetensors")).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let decoder = golden_decoder(name, base);
        assert_eq!(decoder.adapter().unwrap().options().scale(), scale, "{name}");
        let inputs: Vec<Vec<u32>> = (0..2)
            .map(|s| golden::ids(&tensors, &format!("input_ids.{s}")))
            .collect();
        for (s, input) in inputs.iter().enumerate() {
            let exact = golden::floats(&tensors, &format!("logits.{s}"));
            let single = golden::floats(&tensors, &format!("single.logits.{s}"));
            let ours = largest_difference(&decoder.logits(input).unwrap(), &exact);
            let theirs = largest_difference(&single, &exact);
            assert!(
                ours <= 2.0 * theirs + 1e-6,
                "{name} {s}: logits off by {ours}, PyTorch's by {theirs}"
            );
            let base = golden::floats(&tensors, &format!("base.logits.{s}"));
            let off = largest_difference(&decoder.without_adapter().logits(input).unwrap(), &base);
            assert!(off < 1e-4, "{name} {s}: without the adapter off by {off}");
            assert!(
                largest_difference(&base, &exact) > 0.1,
                "{name} {s}: the adapter changes nothing"
            );
        }
        let (scored, weight) = all_scored(&inputs);
        let sequences: Vec<TokenSequence<'_>> = inputs
            .iter()
            .zip(&scored)
            .map(|(tokens, scored)| TokenSequence { tokens, scored })
            .collect();
        let mut gradients = Gradients::of(&decoder);
        decoder
            .accumulate_gradient(
                &sequences,
                1.0,
                &mut gradients,
                &mut |_, scores| ScoreGradients {
                    log_probs: vec![weight; scores.log_probs.len()],
                    entropies: vec![0.0; scores.entropies.len()],
                },
                false,
            )
            .unwrap();
        let names = tensors.names();
        let expected = names.iter().filter(|name| name.starts_with("gradient.")).count();
        assert_eq!(
            gradients.values().len(),
            expected,
            "{name}: nothing else is trained"
        );
        for tensor in gradients.values().iter() {
            let exact = golden::floats(&tensors, &format!("gradient.{}", tensor.name));
            let single = golden::floats(&tensors, &format!("single.gradient.{}", tensor.name));
            let distance = |values: &[f32]| norm(values.iter().zip(&exact).map(|(left, right)| left - right));
            let (ours, theirs) = (distance(tensor.values), distance(&single));
            let size = norm(exact.iter().copied());
            assert!(
                ours <= 2.0 * theirs + 2e-7 * size && size > 1e-4,
                "{name} `{}`: off by {ours}, PyTorch's by {theirs}, of {size}",
                tensor.name
            );
        }
    }
}

/// Within 1e-5 of the largest logit, which is where single precision ends: PyTorch's own are that far from float64.
#[test]
fn merged_weights_give_the_logits_of_the_adapter() {
    for (name, base, _) in GOLDEN {
        let decoder = golden_decoder(name, base);
        let adapter = decoder.adapter().unwrap();
        assert!(!adapter.is_neutral());
        if name == "adapter-llama" {
            assert_eq!((adapter.options().rank, adapter.options().alpha), (4, 8.0));
        }
        let merged = adapter.merged(decoder.config(), decoder.parameters()).unwrap();
        let merged = Decoder::new(decoder.config().clone(), merged).unwrap();
        let ids = tokens(&mut RandomKey::new(4).generator(), 30);
        let expected = decoder.logits(&ids).unwrap();
        let difference = largest_difference(&merged.logits(&ids).unwrap(), &expected);
        let largest = expected
            .iter()
            .fold(0.0_f32, |largest, logit| largest.max(logit.abs()));
        assert!(
            difference <= 1e-5 * largest,
            "{name}: logits differ by {difference} of {largest}"
        );
    }
}

#[test]
fn a_fresh_adapter_changes_nothing_and_is_drawn_from_the_seed() {
    let base = decoder(Family::Qwen3, false, 3);
    let options = AdapterOptions {
        targets: vec![Target::Down, Target::Query, Target::Down],
        rank: 5,
        alpha: 10.0,
        rank_stabilised: false,
    };
    let fresh = |seed| Adapter::initialise(options.clone(), base.config(), RandomKey::new(seed)).unwrap();
    let adapter = fresh(1);
    assert!(adapter.is_neutral());
    assert_eq!(adapter.options().targets, [Target::Query, Target::Down]);
    assert_eq!(adapter.parameters().digest(), fresh(1).parameters().digest());
    assert_ne!(adapter.parameters().digest(), fresh(2).parameters().digest());
    for tensor in adapter.parameters().iter() {
        if tensor.name.ends_with("lora_A.weight") {
            // PEFT's bound; a uniform sample of this size comes near it.
            let bound = 1.0 / (tensor.shape[1] as f32).sqrt();
            let largest = tensor
                .values
                .iter()
                .fold(0.0_f32, |largest, value| largest.max(value.abs()));
            assert!(
                largest <= bound && largest > 0.9 * bound,
                "{}: {largest} {bound}",
                tensor.name
            );
        }
    }
    let ids = tokens(&mut RandomKey::new(6).generator(), 20);
    let decoder = base.clone().with_adapter(adapter).unwrap();
    assert_eq!(decoder.logits(&ids).unwrap(), base.logits(&ids).unwrap());
    assert_ne!(decoder.version(), base.version(), "caches are not shared");
    assert_ne!(decoder.digest(), base.digest());
    assert_eq!(decoder.without_adapter().digest(), base.digest());
}

#[test]
fn steps_change_the_adapter_alone_and_copies_share_the_base() {
    let mut policy = adapted(decoder(Family::Llama, true, 8), 8);
    let base = bits(policy.parameters().flat());
    let reference = policy.without_adapter();
    let teacher = policy.clone();
    assert!(std::ptr::eq(policy.parameters(), reference.parameters()));
    assert!(std::ptr::eq(policy.parameters(), teacher.parameters()));
    let ids = tokens(&mut RandomKey::new(9).generator(), 25);
    let scored: Vec<u32> = (1..25).collect();
    let sequence = TokenSequence {
        tokens: &ids,
        scored: &scored,
    };
    let before = policy.score(&[sequence], 1.0).unwrap();
    let reference_scores = reference.score(&[sequence], 1.0).unwrap();
    let mut gradients = Gradients::of(&policy);
    let mut optimiser = AdamW::new(AdamWOptions::default(), policy.trained());
    let mut loss = |_: usize, scores: &seed_model::Scores| ScoreGradients {
        log_probs: vec![-1.0; scores.log_probs.len()],
        entropies: vec![0.0; scores.entropies.len()],
    };
    for _ in 0..5 {
        gradients.clear();
        policy
            .accumulate_gradient(&[sequence], 1.0, &mut gradients, &mut loss, false)
            .unwrap();
        policy.update(|trained| optimiser.step(trained, &mut gradients, 0.02));
    }
    let sum = |scores: &[seed_model::Scores]| scores[0].log_probs.iter().sum::<f32>();
    let after = policy.score(&[sequence], 1.0).unwrap();
    assert!(
        sum(&after) > sum(&before) + 1.0,
        "{} {}",
        sum(&before),
        sum(&after)
    );
    assert_eq!(bits(policy.parameters().flat()), base);
    assert_eq!(teacher.score(&[sequence], 1.0).unwrap(), before);
    assert_eq!(reference.score(&[sequence], 1.0).unwrap(), reference_scores);
    assert_eq!(optimiser.state().len(), 2 * policy.trained().len());
}

#[test]
fn gradients_of_the_whole_model_are_refused() {
    let policy = adapted(decoder(Family::Llama, false, 1), 2);
    let mut gradients = Gradients::zeros(policy.config());
    let error = policy
        .accumulate_gradient(&[], 1.0, &mut gradients, &mut derivatives, false)
        .unwrap_err();
    assert!(matches!(error, ModelError::GradientCount { expected, found }
        if expected == policy.trained().total() && found == policy.parameters().total()));
}
