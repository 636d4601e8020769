//! The decoder on candle's devices against its own kernels.
//!
//! Each test runs on candle's CPU device, and once more, ignored, on the GPU that the build's features name:
//! `cargo test --release --features cuda -p seed-model -- --ignored device`.

use std::sync::Arc;

use seed_model::config::Family;
use seed_model::{
    AdamW, AdamWOptions, Decoder, Device, Engine, GenerateRequest, Generation, Gradients, ModelError, Place,
    Precision, Sampling, SequenceState, StepOutcome, TokenSequence,
};
use seed_random::{Draw, RandomKey};

use crate::support::{
    VOCABULARY, adapted, bits, decoder, derivatives, largest_difference, norm, options, positions, tokens,
};

/// What a test runs on, and how far results may be off there.
#[derive(Clone, Copy)]
struct On {
    device: Device,
    /// Of values around one.
    tolerance: f32,
}

impl On {
    fn place(self, precision: Precision) -> Place {
        Place {
            device: self.device,
            precision,
        }
    }

    fn placed(self, decoder: &Decoder) -> Decoder {
        decoder.clone().placed(self.place(Precision::F32)).unwrap()
    }
}

const CANDLE_CPU: On = On {
    device: Device::CandleCpu,
    tolerance: 1e-4,
};

const GPU: On = On {
    device: if cfg!(feature = "metal") {
        Device::Metal(0)
    } else {
        Device::Cuda(0)
    },
    tolerance: 1e-3,
};

macro_rules! on_every_device {
    ($($name:ident),+ $(,)?) => {
        mod candle_cpu {
            $(#[test] fn $name() { super::$name(super::CANDLE_CPU); })+
        }
        mod gpu {
            $(
                #[test]
                #[ignore = "needs a GPU and a build with the feature `cuda` or `metal`"]
                fn $name() { super::$name(super::GPU); }
            )+
        }
    };
}

on_every_device!(
    logits_scores_and_every_gradient_agree_with_the_kernels,
    adapters_agree_with_the_kernels,
    batches_and_recomputing_change_nothing_but_rounding,
    steps_of_the_optimiser_agree_with_the_kernels,
    a_resumed_optimiser_goes_on_with_the_same_moments,
    gradients_that_are_not_finite_change_nothing_and_are_named,
    generation_draws_what_the_kernels_draw,
    generation_records_what_scoring_gives,
    an_update_of_the_host_shows_on_the_device,
    caches_of_other_weights_are_refused,
    bf16_is_close_and_its_master_weights_keep_small_steps,
    a_model_trained_in_bf16_learns_its_examples,
);

/// Every family, with the output matrix tied and not.
fn decoders() -> impl Iterator<Item = (String, Decoder)> {
    Family::ALL
        .into_iter()
        .flat_map(|family| [(family, false), (family, true)])
        .map(|(family, tied)| (format!("{family:?}, tied {tied}"), decoder(family, tied, 11)))
}

/// Sequences of very different lengths, and one of which nothing is scored.
struct Lists(Vec<(Vec<u32>, Vec<u32>)>);

impl Lists {
    fn new(seed: u64) -> Self {
        let mut generator = RandomKey::new(seed).generator();
        let mut lists: Vec<(Vec<u32>, Vec<u32>)> = [2, 19, 37, 5, 18, 3]
            .into_iter()
            .map(|length| {
                let tokens = tokens(&mut generator, length);
                (tokens, positions(&mut generator, length, 0.7))
            })
            .collect();
        lists.insert(3, (vec![4, 5, 6], Vec::new()));
        Self(lists)
    }

    fn sequences(&self) -> Vec<TokenSequence<'_>> {
        self.0
            .iter()
            .map(|(tokens, scored)| TokenSequence { tokens, scored })
            .collect()
    }
}

fn gradient_of(decoder: &Decoder, sequences: &[TokenSequence<'_>], recompute: bool) -> Gradients {
    let mut gradients = Gradients::of(decoder);
    decoder
        .accumulate_gradient(sequences, 0.7, &mut gradients, &mut derivatives, recompute)
        .unwrap();
    gradients
}

/// Every tensor's gradient is there and close.
fn assert_gradients_agree(label: &str, ours: &mut Gradients, theirs: &mut Gradients, tolerance: f64) {
    let whole = theirs.global_norm();
    for (ours, theirs) in ours.values().iter().zip(theirs.values().iter()) {
        let difference = norm(
            ours.values
                .iter()
                .zip(theirs.values)
                .map(|(left, right)| left - right),
        );
        let scale = norm(theirs.values.iter().copied());
        assert!(scale > 1e-6 * whole, "{label} `{}`: no gradient", ours.name);
        assert!(
            difference <= tolerance * (scale + 1e-2 * whole),
            "{label} `{}`: gradient differs by {difference} of {scale}",
            ours.name
        );
    }
}

fn logits_scores_and_every_gradient_agree_with_the_kernels(on: On) {
    let lists = Lists::new(12);
    let sequences = lists.sequences();
    for (label, decoder) in decoders() {
        let twin = on.placed(&decoder);
        assert_eq!(twin.place().device, on.device);
        let logits = largest_difference(
            &decoder.logits(&lists.0[2].0).unwrap(),
            &twin.logits(&lists.0[2].0).unwrap(),
        );
        assert!(logits < on.tolerance, "{label}: logits differ by {logits}");

        let ours = decoder.score(&sequences, 0.7).unwrap();
        let theirs = twin.score(&sequences, 0.7).unwrap();
        assert_eq!(ours.len(), theirs.len());
        for (ours, theirs) in ours.iter().zip(&theirs) {
            let log_probs = largest_difference(&ours.log_probs, &theirs.log_probs);
            let entropies = largest_difference(&ours.entropies, &theirs.entropies);
            assert!(
                log_probs < on.tolerance && entropies < on.tolerance,
                "{label}: {log_probs} {entropies}"
            );
        }
        assert_eq!(decoder.rows_computed(), twin.rows_computed());

        let mut ours = gradient_of(&decoder, &sequences, false);
        let mut theirs = gradient_of(&twin, &sequences, false);
        assert_gradients_agree(&label, &mut ours, &mut theirs, f64::from(on.tolerance));
    }
}

fn adapters_agree_with_the_kernels(on: On) {
    let lists = Lists::new(13);
    let sequences = lists.sequences();
    for seed in 0..4 {
        let family = Family::ALL[seed as usize % 3];
        let decoder = adapted(decoder(family, seed % 2 == 0, seed), seed);
        let twin = on.placed(&decoder);
        let label = format!("{family:?} {:?}", decoder.adapter().unwrap().options());
        let (ours, theirs) = (
            decoder.score(&sequences, 1.0).unwrap(),
            twin.score(&sequences, 1.0).unwrap(),
        );
        for (ours, theirs) in ours.iter().zip(&theirs) {
            let difference = largest_difference(&ours.log_probs, &theirs.log_probs);
            assert!(difference < on.tolerance, "{label}: {difference}");
        }
        let mut ours = gradient_of(&decoder, &sequences, false);
        let mut theirs = gradient_of(&twin, &sequences, true);
        assert_gradients_agree(&label, &mut ours, &mut theirs, f64::from(on.tolerance));

        // The base alone scores as the base does, and does not train.
        let (base, twin_base) = (decoder.without_adapter(), twin.without_adapter());
        let difference = largest_difference(
            &base.logits(&lists.0[1].0).unwrap(),
            &twin_base.logits(&lists.0[1].0).unwrap(),
        );
        assert!(difference < on.tolerance, "{label}: {difference}");
        let mut gradients = Gradients::of(&twin_base);
        let refused = twin_base.accumulate_gradient(&sequences, 1.0, &mut gradients, &mut derivatives, false);
        assert!(matches!(refused, Err(ModelError::DeviceFrozen)));

        // A step moves the adapter alone.
        let mut twin = twin;
        let mut gradients = gradient_of(&twin, &sequences, false);
        let mut optimiser = AdamW::new(AdamWOptions::default(), twin.trained());
        twin.optimise(&mut optimiser, &mut gradients, 0.01).unwrap();
        twin.fetch().unwrap();
        assert_eq!(twin.parameters().digest(), decoder.parameters().digest());
        assert_ne!(twin.trained().digest(), decoder.trained().digest());
        let moved = largest_difference(twin.trained().flat(), decoder.trained().flat());
        assert!((0.005..0.02).contains(&moved), "{label}: {moved}");
    }
}

fn batches_and_recomputing_change_nothing_but_rounding(on: On) {
    let lists = Lists::new(14);
    let sequences = lists.sequences();
    let decoder = decoder(Family::Qwen3, true, 15);
    let whole = on.placed(&decoder);
    let expected = whole.score(&sequences, 1.0).unwrap();
    for limit in [1, 20, 40, 100] {
        let twin = on.placed(&decoder).with_pack_tokens(limit);
        for recompute in [false, true] {
            let mut ours = gradient_of(&whole, &sequences, false);
            let mut theirs = gradient_of(&twin, &sequences, recompute);
            assert_gradients_agree(
                &format!("limit {limit}"),
                &mut ours,
                &mut theirs,
                f64::from(on.tolerance),
            );
        }
        for (left, right) in expected.iter().zip(twin.score(&sequences, 1.0).unwrap()) {
            let difference = largest_difference(&left.log_probs, &right.log_probs);
            assert!(difference < on.tolerance, "limit {limit}: {difference}");
        }
    }
    // The same call twice gives the same bits.
    let (mut first, mut second) = (
        gradient_of(&whole, &sequences, false),
        gradient_of(&whole, &sequences, false),
    );
    assert_eq!(bits(first.values().flat()), bits(second.values().flat()));
}

fn steps_of_the_optimiser_agree_with_the_kernels(on: On) {
    let lists = Lists::new(16);
    let sequences = lists.sequences();
    for (label, native) in decoders() {
        for (max_norm, decay_vectors) in [(None, true), (Some(0.05), false)] {
            let (mut ours, mut theirs) = (native.clone(), on.placed(&native));
            let options = AdamWOptions {
                weight_decay: 0.1,
                max_norm,
                decay_vectors,
                // So large that the size of a gradient shows in the step, and not only its sign.
                epsilon: 1e-3,
                ..AdamWOptions::default()
            };
            let mut optimisers = [
                AdamW::new(options, native.parameters()),
                AdamW::new(options, native.parameters()),
            ];
            for step in 1..=3 {
                let mut norms = Vec::new();
                for (decoder, optimiser) in [&mut ours, &mut theirs].into_iter().zip(&mut optimisers) {
                    let mut gradients = gradient_of(decoder, &sequences, false);
                    let outcome = decoder.optimise(optimiser, &mut gradients, 0.003).unwrap();
                    let StepOutcome::Applied { gradient_norm } = outcome else {
                        panic!("{label}: {outcome:?}");
                    };
                    norms.push(gradient_norm);
                    assert_eq!(optimiser.steps(), step);
                }
                let off = (norms[0] - norms[1]).abs() / norms[0];
                assert!(off < f64::from(on.tolerance), "{label}: {norms:?}");
            }
            theirs.fetch().unwrap();
            let moved = largest_difference(native.parameters().flat(), ours.parameters().flat());
            let off = largest_difference(ours.parameters().flat(), theirs.parameters().flat());
            assert!(
                moved > 0.002 && off < 1e-2 * moved,
                "{label}: off by {off} of {moved}"
            );

            optimisers[1].fetch().unwrap();
            for (ours, theirs) in optimisers[0].state().iter().zip(optimisers[1].state()) {
                assert_eq!(ours.name, theirs.name);
                let scale = norm(ours.values.iter().copied());
                let off = norm(
                    ours.values
                        .iter()
                        .zip(&theirs.values)
                        .map(|(left, right)| left - right),
                );
                assert!(
                    scale > 0.0 && off < 0.01 * scale,
                    "{label} `{}`: {off} of {scale}",
                    ours.name
                );
            }

            // What came back is a model like any other: the kernels score it as the device does.
            let scores = theirs.score(&sequences, 1.0).unwrap();
            let back = theirs.placed(Place::default()).unwrap();
            for (left, right) in scores.iter().zip(back.score(&sequences, 1.0).unwrap()) {
                assert!(largest_difference(&left.log_probs, &right.log_probs) < on.tolerance);
            }
        }
    }
}

fn a_resumed_optimiser_goes_on_with_the_same_moments(on: On) {
    let lists = Lists::new(17);
    let sequences = lists.sequences();
    let mut straight = on.placed(&decoder(Family::Llama, true, 18));
    let mut optimiser = AdamW::new(AdamWOptions::default(), straight.parameters());
    let step = |decoder: &mut Decoder, optimiser: &mut AdamW| {
        let mut gradients = gradient_of(decoder, &sequences, false);
        decoder.optimise(optimiser, &mut gradients, 0.01).unwrap();
    };
    step(&mut straight, &mut optimiser);
    step(&mut straight, &mut optimiser);
    straight.fetch().unwrap();
    optimiser.fetch().unwrap();
    let native = Decoder::new(straight.config().clone(), straight.parameters().clone()).unwrap();
    let mut resumed = on.placed(&native);
    let mut restored = AdamW::new(AdamWOptions::default(), resumed.parameters());
    restored.restore(optimiser.steps(), &optimiser.state()).unwrap();
    step(&mut straight, &mut optimiser);
    step(&mut resumed, &mut restored);
    straight.fetch().unwrap();
    resumed.fetch().unwrap();
    assert_eq!(
        bits(straight.parameters().flat()),
        bits(resumed.parameters().flat())
    );
    assert_eq!(restored.steps(), 3);
}

fn gradients_that_are_not_finite_change_nothing_and_are_named(on: On) {
    let lists = Lists::new(19);
    let sequences = lists.sequences();
    let mut decoder = on.placed(&decoder(Family::Llama, false, 20));
    let mut optimiser = AdamW::new(AdamWOptions::default(), decoder.parameters());
    let mut gradients = gradient_of(&decoder, &sequences, false);
    gradients.scale(f32::INFINITY);
    let before = bits(decoder.parameters().flat());
    let outcome = decoder.optimise(&mut optimiser, &mut gradients, 0.01).unwrap();
    let StepOutcome::SkippedNonFinite { tensor, .. } = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(tensor.as_deref(), Some("model.embed_tokens.weight"));
    decoder.fetch().unwrap();
    assert_eq!(bits(decoder.parameters().flat()), before);
    assert_eq!(optimiser.steps(), 0);
}

/// Conversations of two turns that begin alike, sampled in little room: prompts wait, are read in parts, and are forked.
fn converse(decoder: &Decoder, sampling: Sampling, max_active: usize, chunk: usize) -> Vec<Generation> {
    let key = RandomKey::new(21);
    let mut generator = key.generator();
    let shared = tokens(&mut generator, 20);
    let prompts: Vec<Vec<u32>> = (0..7)
        .map(|index| {
            let mut prompt = if index < 4 { shared.clone() } else { Vec::new() };
            let length = 1 + generator.below(30);
            prompt.extend(tokens(&mut generator, length));
            prompt
        })
        .collect();
    let mut engine = Engine::new(decoder, options(max_active, chunk));
    let states = engine.prefill_shared(&prompts).unwrap();
    let request = |index: usize, state: SequenceState, append: Vec<u32>, turn: u64| GenerateRequest {
        id: index as u64,
        state,
        append,
        max_new_tokens: 3 + index,
        max_length: 128,
        sampling,
        stop: Arc::from([2, 3]),
        key: key.with("request", index as u64).with("turn", turn),
    };
    let requests = states
        .into_iter()
        .enumerate()
        .map(|(index, (state, rest))| request(index, state, rest, 0))
        .collect();
    let first = engine.run(requests).unwrap();
    let requests = first
        .iter()
        .enumerate()
        .map(|(index, generation)| {
            let mut state = generation.state.clone();
            if index == 2 {
                // A turn taken back.
                state.truncate(state.len() - 1);
            }
            request(index, state, vec![7; 1 + index], 1)
        })
        .collect();
    let mut all = first;
    all.extend(engine.run(requests).unwrap());
    all
}

const SAMPLED: Sampling = Sampling {
    temperature: 0.9,
    top_p: 0.95,
    top_k: 40,
};

fn generation_draws_what_the_kernels_draw(on: On) {
    for (label, decoder) in decoders() {
        let twin = on.placed(&decoder);
        for sampling in [Sampling::GREEDY, SAMPLED] {
            let expected = converse(&decoder, sampling, 64, 1024);
            for (max_active, chunk) in [(64, 1024), (3, 7), (1, 1)] {
                let found = converse(&twin, sampling, max_active, chunk);
                assert_eq!(expected.len(), found.len());
                for (ours, theirs) in expected.iter().zip(&found) {
                    assert_eq!(ours.token_ids, theirs.token_ids, "{label}");
                    assert_eq!(ours.finish, theirs.finish);
                    let difference = largest_difference(&ours.log_probs, &theirs.log_probs);
                    assert!(difference < on.tolerance, "{label}: {difference}");
                    assert_eq!(ours.state.token_ids(), theirs.state.token_ids());
                    assert_eq!(ours.state.cached(), theirs.state.cached());
                    assert_eq!(ours.state.bytes() > 0, theirs.state.bytes() > 0);
                }
            }
        }
    }
}

fn generation_records_what_scoring_gives(on: On) {
    let decoder = decoder(Family::Qwen2, false, 22);
    for (precision, tolerance) in [(Precision::F32, on.tolerance), (Precision::Bf16, 0.2)] {
        let twin = decoder.clone().placed(on.place(precision)).unwrap();
        for generation in converse(&twin, SAMPLED, 4, 16) {
            let tokens = generation.state.token_ids();
            let first = tokens.len() - generation.token_ids.len();
            let scored: Vec<u32> = (first as u32..tokens.len() as u32).collect();
            let sequence = TokenSequence {
                tokens,
                scored: &scored,
            };
            let scores = twin.score(&[sequence], SAMPLED.temperature).unwrap();
            let difference = largest_difference(&scores[0].log_probs, &generation.log_probs);
            assert!(difference < tolerance, "{precision:?}: {difference}");
        }
    }
}

fn an_update_of_the_host_shows_on_the_device(on: On) {
    let lists = Lists::new(23);
    let sequences = lists.sequences();
    let native = decoder(Family::Qwen3, false, 24);
    let mut twin = on.placed(&native);
    let mut gradients = gradient_of(&twin, &sequences, false);
    let mut optimiser = AdamW::new(AdamWOptions::default(), twin.parameters());
    let shared = twin.clone();
    twin.optimise(&mut optimiser, &mut gradients, 0.01).unwrap();
    // The change is made to the values of the device, though nobody fetched them.
    twin.update(|parameters| parameters.flat_mut().iter_mut().for_each(|value| *value *= 1.1));
    let moved = Decoder::new(twin.config().clone(), twin.parameters().clone()).unwrap();
    assert!(largest_difference(moved.parameters().flat(), native.parameters().flat()) > 0.005);
    let expected = moved.score(&sequences, 1.0).unwrap();
    for (left, right) in expected.iter().zip(twin.score(&sequences, 1.0).unwrap()) {
        assert!(largest_difference(&left.log_probs, &right.log_probs) < on.tolerance);
    }
    // A clone from before has the old weights.
    let expected = native.score(&sequences, 1.0).unwrap();
    for (left, right) in expected.iter().zip(shared.score(&sequences, 1.0).unwrap()) {
        assert!(largest_difference(&left.log_probs, &right.log_probs) < on.tolerance);
    }
}

fn caches_of_other_weights_are_refused(on: On) {
    let lists = Lists::new(25);
    let native = decoder(Family::Llama, true, 26);
    let mut twin = on.placed(&native);
    let state = {
        let mut engine = Engine::new(&twin, options(4, 16));
        engine.prefill(SequenceState::new(&twin), &[4, 5, 6]).unwrap()
    };
    assert_eq!(state.cached(), 3);
    let refused = |decoder: &Decoder| {
        let result = Engine::new(decoder, options(4, 16)).prefill(state.clone(), &[7]);
        matches!(result, Err(ModelError::StaleState { .. }))
    };
    assert!(!refused(&twin));
    assert!(!refused(&twin.clone()), "a clone has the same weights and memory");
    assert!(refused(&native));
    let mut gradients = gradient_of(&twin, &lists.sequences(), false);
    let mut optimiser = AdamW::new(AdamWOptions::default(), twin.parameters());
    twin.optimise(&mut optimiser, &mut gradients, 0.01).unwrap();
    assert!(refused(&twin));
}

fn bf16_is_close_and_its_master_weights_keep_small_steps(on: On) {
    let lists = Lists::new(27);
    let sequences = lists.sequences();
    for (label, native) in decoders() {
        let mut twin = native.clone().placed(on.place(Precision::Bf16)).unwrap();
        let (ours, theirs) = (
            native.score(&sequences, 1.0).unwrap(),
            twin.score(&sequences, 1.0).unwrap(),
        );
        let (mut sum, mut count) = (0.0, 0);
        for (ours, theirs) in ours.iter().zip(&theirs) {
            for (left, right) in ours.log_probs.iter().zip(&theirs.log_probs) {
                sum += f64::from((left - right).abs());
                count += 1;
            }
        }
        let mean = sum / f64::from(count);
        assert!(mean > 1e-4, "{label}: {mean}: nothing was rounded");
        assert!(mean < 0.05, "{label}: {mean}");
        let mut ours = gradient_of(&native, &sequences, false);
        let mut theirs = gradient_of(&twin, &sequences, false);
        assert_gradients_agree(&label, &mut ours, &mut theirs, 0.15);

        // Steps of a hundred-thousandth are lost in eight bits and kept in the master weights.
        let before = native.parameters().flat();
        let mut optimiser = AdamW::new(
            AdamWOptions {
                weight_decay: 0.0,
                ..AdamWOptions::default()
            },
            twin.parameters(),
        );
        for _ in 0..3 {
            let mut gradients = gradient_of(&twin, &sequences, false);
            twin.optimise(&mut optimiser, &mut gradients, 1e-5).unwrap();
        }
        twin.fetch().unwrap();
        let moved = largest_difference(before, twin.parameters().flat());
        assert!((2.5e-5..3.5e-5).contains(&moved), "{label}: {moved}");
        let unmoved = before
            .iter()
            .zip(twin.parameters().flat())
            .filter(|(before, after)| before == after)
            .count();
        // Only rows of the embedding that no sequence uses stay.
        assert!(
            unmoved * 3 < before.len(),
            "{label}: {unmoved} of {}",
            before.len()
        );
    }
}

fn a_model_trained_in_bf16_learns_its_examples(on: On) {
    let lists = Lists::new(28);
    let sequences = lists.sequences();
    let scored: usize = lists.0.iter().map(|(_, scored)| scored.len()).sum();
    for adapter in [false, true] {
        let mut model = decoder(Family::Qwen3, true, 29);
        if adapter {
            model = adapted(model, 30);
        }
        let mut twin = model.placed(on.place(Precision::Bf16)).unwrap();
        let options = AdamWOptions {
            weight_decay: 0.0,
            ..AdamWOptions::default()
        };
        let mut optimiser = AdamW::new(options, twin.trained());
        let mut gradients = Gradients::of(&twin);
        let mut losses = Vec::new();
        for _ in 0..30 {
            gradients.clear();
            let mut loss = 0.0;
            twin.accumulate_gradient(
                &sequences,
                1.0,
                &mut gradients,
                &mut |_, scores| {
                    loss -= scores.log_probs.iter().sum::<f32>();
                    seed_model::ScoreGradients {
                        log_probs: vec![-1.0 / scored as f32; scores.log_probs.len()],
                        entropies: vec![0.0; scores.entropies.len()],
                    }
                },
                true,
            )
            .unwrap();
            losses.push(loss / scored as f32);
            twin.optimise(&mut optimiser, &mut gradients, 0.02).unwrap();
        }
        let (first, last) = (losses[0], losses[29]);
        assert!(first > (VOCABULARY as f32).ln() - 1.0, "{losses:?}");
        assert!(last < 0.3 * first, "adapter {adapter}: {losses:?}");
    }
}
