//! `seed serve` as the engine of a rollout: its log-probs have the bits of scoring in this process.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests fail as tests do")]

mod support;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use seed_backend::{
    Answer, BackendError, BackendOptions, Client, Dialect, Mismatch, MismatchLimit, PublishedWeights,
    RemoteGenerator, Sample,
};
use seed_model::{
    Decoder, Engine, EngineOptions, FinishReason, GenerateRequest, Generation, ModelDirectory, Sampling,
    SequenceState, ShardOptions, TokenSequence, save_directory,
};
use seed_random::RandomKey;
use seed_rollout::Generator;
use seed_serve::{ServeOptions, ServedModel, Server};
use support::{CONTEXT, model};

const LIMIT: MismatchLimit = MismatchLimit {
    mean: 0.05,
    largest: 2.0,
};

/// Runs `work` with the address of a server of the model.
fn serving<R>(model: ModelDirectory, weights: Option<&Path>, work: impl FnOnce(&str) -> R) -> R {
    let options = ServeOptions {
        // Fewer than the tests ask for at a time: the others wait.
        engine: EngineOptions {
            max_active: 3,
            ..EngineOptions::default()
        },
        weights_folder: weights.map(Path::to_owned),
        ..ServeOptions::new("127.0.0.1:0".parse().unwrap())
    };
    let server = Server::bind(ServedModel::new("policy", model).unwrap(), options).unwrap();
    let url = format!("http://{}", server.address());
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    let thread = std::thread::spawn(move || server.run(move || flag.load(Ordering::SeqCst)));
    let result = work(&url);
    stop.store(true, Ordering::SeqCst);
    thread.join().unwrap().unwrap();
    result
}

fn client(url: &str) -> Arc<Client> {
    let options = BackendOptions {
        attempts: 1,
        ..BackendOptions::new(url, Dialect::Seed, "policy")
    };
    Arc::new(Client::new(options).unwrap())
}

fn generator(url: &str, decoder: &Decoder, weights: &PublishedWeights) -> RemoteGenerator {
    RemoteGenerator::new(&client(url), decoder, weights, 0)
}

/// Plays two turns of several sequences.
fn turns(generator: &mut dyn Generator, sampling: Sampling) -> Vec<Generation> {
    let request = |id: u64, turn: u64, state: SequenceState, append: Vec<u32>| GenerateRequest {
        id,
        state,
        append,
        max_new_tokens: 6 + id as usize,
        max_length: CONTEXT,
        sampling,
        stop: Arc::from([1, 40]),
        key: RandomKey::new(id).with("turn", turn),
    };
    for id in 0..6 {
        let state = generator.prefill(generator.empty_state(), &[5, 9]).unwrap();
        let first = request(id, 0, state, vec![id as u32 + 10]);
        generator.submit(first).unwrap();
    }
    let mut finished: Vec<Generation> = Vec::new();
    while !generator.is_idle() {
        for generation in generator.step().unwrap() {
            if !finished.iter().any(|earlier| earlier.id == generation.id) {
                let next = request(generation.id, 1, generation.state.clone(), vec![7, 8]);
                generator.submit(next).unwrap();
            }
            finished.push(generation);
        }
    }
    finished.sort_by_key(|generation| (generation.id, generation.state.len()));
    finished
}

fn mismatch(decoder: &Decoder, generations: &[Generation], temperature: f32) -> Mismatch {
    let mut mismatch = Mismatch::default();
    for generation in generations {
        let tokens = generation.state.token_ids();
        let start = tokens.len() - generation.token_ids.len();
        assert_eq!(tokens[start..], generation.token_ids);
        let scored: Vec<u32> = (start as u32..tokens.len() as u32).collect();
        let sequence = TokenSequence {
            tokens,
            scored: &scored,
        };
        let scores = decoder.score(&[sequence], temperature).unwrap();
        mismatch.add(&generation.log_probs, &scores[0].log_probs, LIMIT);
    }
    mismatch
}

#[test]
fn log_probs_of_a_served_policy_are_those_of_scoring() {
    let directory = model(1);
    let decoder = Decoder::new(directory.config.clone(), directory.parameters.clone()).unwrap();
    let sampling = Sampling::at_temperature(0.7);
    let generations = serving(directory, None, |url| {
        let mut generator = generator(url, &decoder, &PublishedWeights::Initial);
        let first = turns(&mut generator, sampling);
        let again = turns(&mut generator, sampling);
        let ids = |generations: &[Generation]| -> Vec<Vec<u32>> {
            generations
                .iter()
                .map(|generation| generation.token_ids.clone())
                .collect()
        };
        assert_eq!(ids(&first), ids(&again), "the same keys give the same tokens");
        // And they are what this process would have sampled.
        let native = turns(&mut Engine::new(&decoder, EngineOptions::default()), sampling);
        assert_eq!(ids(&first), ids(&native));
        first
    });
    assert_eq!(generations.len(), 12);
    for generation in &generations {
        let ended = generation.token_ids.iter().any(|id| [1, 40].contains(id));
        assert_eq!(ended, generation.finish == FinishReason::Stop);
    }
    let found = mismatch(&decoder, &generations, 0.7);
    assert_eq!((found.mean(), found.divergence(), found.largest), (0.0, 0.0, 0.0));
    let tokens: usize = generations
        .iter()
        .map(|generation| generation.token_ids.len())
        .sum();
    assert_eq!(found.tokens, tokens);
}

/// The engine is an update behind, or was started with another model.
#[test]
fn training_on_other_weights_is_refused() {
    let (old, new) = (model(1), model(2));
    let decoder = Decoder::new(new.config, new.parameters).unwrap();
    let generations = serving(old, None, |url| {
        let mut generator = generator(url, &decoder, &PublishedWeights::Initial);
        turns(&mut generator, Sampling::default())
    });
    let found = mismatch(&decoder, &generations, 1.0);
    assert!(found.check(LIMIT).is_err(), "{found:?}");
}

#[test]
fn weights_that_were_not_taken_are_noticed() {
    let directory = model(1);
    let decoder = Decoder::new(directory.config.clone(), directory.parameters.clone()).unwrap();
    serving(directory, None, |url| {
        let weights = PublishedWeights::Model {
            version: "step-7".to_owned(),
        };
        let mut generator = generator(url, &decoder, &weights);
        let request = GenerateRequest {
            id: 3,
            state: generator.empty_state(),
            append: vec![5],
            max_new_tokens: 2,
            max_length: CONTEXT,
            sampling: Sampling::default(),
            stop: Arc::from([1]),
            key: RandomKey::new(0),
        };
        generator.submit(request).unwrap();
        let error = generator.step().unwrap_err().to_string();
        assert!(
            error.starts_with("request `3`: the external engine failed: the engine answers with weights"),
            "{error}"
        );
        assert!(error.contains("`step-7` were published"), "{error}");
    });
}

#[test]
fn published_weights_are_used_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (model(1), model(2));
    save_directory(
        folder.path().join("step-7"),
        new.contents(),
        ShardOptions::default(),
    )
    .unwrap();
    let digest = new.parameters.digest().to_hex().to_string();
    let decoder = Decoder::new(new.config, new.parameters).unwrap();
    serving(old, Some(folder.path()), |url| {
        let client = client(url);
        let weights = client
            .publish_model(Path::new("step-7"), "step-7", &digest)
            .unwrap();
        let mut generator = RemoteGenerator::new(&client, &decoder, &weights, 0);
        let generations = turns(&mut generator, Sampling::default());
        let found = mismatch(&decoder, &generations, 1.0);
        assert_eq!((found.mean(), found.largest, found.over), (0.0, 0.0, 0));
        let error = client
            .publish_model(Path::new("step-7"), "step-7", "0123")
            .unwrap_err();
        assert!(matches!(error, BackendError::Digest { .. }), "{error}");
        for outside in ["../", "/", "step-8"] {
            let error = client
                .publish_model(Path::new(outside), "step-8", &digest)
                .unwrap_err();
            assert!(
                matches!(error, BackendError::Status { status: 400, .. }),
                "{outside}: {error}"
            );
        }
    });
    serving(model(1), None, |url| {
        let error = client(url)
            .publish_model(folder.path(), "step-7", &digest)
            .unwrap_err();
        assert!(error.to_string().contains("--weights-from"), "{error}");
    });
}

/// Requests in progress and requests that wait are answered with the weights that they name, and never with some of both.
#[test]
fn every_answer_is_of_the_weights_that_it_names() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (model(1), model(2));
    let contents = new.contents();
    save_directory(folder.path().join("new"), contents, ShardOptions::default()).unwrap();
    let digest = new.parameters.digest().to_hex().to_string();
    let decoders = [&old, &new]
        .map(|directory| Decoder::new(directory.config.clone(), directory.parameters.clone()).unwrap());
    let key = |number: u64| RandomKey::new(number).with("turn", 0);
    let answers: Vec<Answer> = serving(old, Some(folder.path()), |url| {
        let client = client(url);
        let ask = |number: u64| {
            let sample = Sample {
                ids: &[5, 9],
                max_new_tokens: 40,
                sampling: Sampling::default(),
                stop: &[],
                key: key(number),
                vocabulary_size: 300,
            };
            client.sample(&PublishedWeights::Initial, &sample).unwrap()
        };
        std::thread::scope(|scope| {
            let before = ask(0);
            let asked: Vec<_> = (1..24).map(|number| scope.spawn(move || ask(number))).collect();
            client.publish_model(Path::new("new"), "new", &digest).unwrap();
            let after = ask(24);
            let mut answers = vec![before];
            answers.extend(asked.into_iter().map(|thread| thread.join().unwrap()));
            answers.push(after);
            answers
        })
    });
    assert_eq!(answers.len(), 25);
    assert_eq!(answers[0].version, None);
    assert_eq!(answers[24].version.as_deref(), Some("new"));
    for (number, answer) in answers.iter().enumerate() {
        let decoder = &decoders[usize::from(answer.version.is_some())];
        let mut engine = Engine::new(decoder, EngineOptions::default());
        let request = GenerateRequest {
            id: 0,
            state: SequenceState::new(decoder),
            append: vec![5, 9],
            max_new_tokens: 40,
            max_length: CONTEXT,
            sampling: Sampling::default(),
            stop: Arc::from([]),
            key: key(number as u64),
        };
        let expected = &engine.run(vec![request]).unwrap()[0];
        assert_eq!(answer.token_ids, expected.token_ids, "answer {number}");
        assert_eq!(answer.log_probs, expected.log_probs, "answer {number}");
    }
}
