//! The flat index, and the sentence encoder against a slow one in double precision and against recorded embeddings.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests fail as tests do")]

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use safetensors::tensor::{Dtype, TensorView, serialize_to_file};
use seed_random::{Draw, RandomKey};
use seed_retrieval::{DenseIndex, EncoderOptions, Pooling, RetrievalError, SentenceEncoder};
use serde_json::{Value, json};

const HIDDEN: usize = 24;
const INNER: usize = 40;
const HEADS: usize = 3;
const LAYERS: usize = 2;
const POSITIONS: usize = 12;
const WORDS: [&str; 8] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "green", "tea", "##s", "milk"];

/// The tensors of a tiny encoder, by name with their shapes.
fn tensors() -> Vec<(String, Vec<usize>, Vec<f32>)> {
    let mut shapes = vec![
        (
            "embeddings.word_embeddings.weight".to_owned(),
            vec![WORDS.len(), HIDDEN],
        ),
        (
            "embeddings.position_embeddings.weight".to_owned(),
            vec![POSITIONS, HIDDEN],
        ),
        (
            "embeddings.token_type_embeddings.weight".to_owned(),
            vec![2, HIDDEN],
        ),
    ];
    let mut part = |name: String, outputs: usize, inputs: Option<usize>| {
        let mut shape = vec![outputs];
        shape.extend(inputs);
        shapes.push((format!("{name}.weight"), shape));
        shapes.push((format!("{name}.bias"), vec![outputs]));
    };
    part("embeddings.LayerNorm".to_owned(), HIDDEN, None);
    for layer in 0..LAYERS {
        let of = |name: &str| format!("encoder.layer.{layer}.{name}");
        for name in ["query", "key", "value"] {
            part(of(&format!("attention.self.{name}")), HIDDEN, Some(HIDDEN));
        }
        part(of("attention.output.dense"), HIDDEN, Some(HIDDEN));
        part(of("attention.output.LayerNorm"), HIDDEN, None);
        part(of("intermediate.dense"), INNER, Some(HIDDEN));
        part(of("output.dense"), HIDDEN, Some(INNER));
        part(of("output.LayerNorm"), HIDDEN, None);
    }
    shapes
        .into_iter()
        .map(|(name, shape)| {
            let mut generator = RandomKey::new(1).with_text("tensor", &name).generator();
            let values = (0..shape.iter().product())
                .map(|_| generator.unit() as f32 - 0.4)
                .collect();
            (name, shape, values)
        })
        .collect()
}

fn tokenizer() -> Value {
    let vocabulary: serde_json::Map<String, Value> = WORDS
        .iter()
        .enumerate()
        .map(|(id, word)| ((*word).to_owned(), json!(id)))
        .collect();
    let special = |id: usize| json!({"id": id, "content": WORDS[id], "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false});
    json!({
        "version": "1.0", "truncation": {"max_length": 3, "strategy": "LongestFirst", "stride": 0, "direction": "Right"},
        "padding": {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"},
        "added_tokens": [special(0), special(1), special(2), special(3)],
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]}, "[SEP]": {"id": "[SEP]", "ids": [3], "tokens": ["[SEP]"]}}},
        "decoder": null,
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": vocabulary},
    })
}

fn config() -> Value {
    json!({"model_type": "bert", "vocab_size": WORDS.len(), "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "intermediate_size": INNER, "max_position_embeddings": POSITIONS, "type_vocab_size": 2,
        "layer_norm_eps": 1e-12, "hidden_act": "gelu", "position_embedding_type": "absolute"})
}

/// A folder with a tiny encoder whose tensors' names begin with `prefix`.
fn folder(prefix: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs_err::write(folder.path().join("config.json"), config().to_string()).unwrap();
    fs_err::write(folder.path().join("tokenizer.json"), tokenizer().to_string()).unwrap();
    write_tensors(folder.path(), prefix, &tensors());
    folder
}

fn write_tensors(folder: &Path, prefix: &str, tensors: &[(String, Vec<usize>, Vec<f32>)]) {
    let bytes: Vec<(String, Vec<usize>, Vec<u8>)> = tensors
        .iter()
        .map(|(name, shape, values)| {
            let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            (format!("{prefix}{name}"), shape.clone(), bytes)
        })
        .collect();
    let views = bytes.iter().map(|(name, shape, bytes)| {
        (
            name.as_str(),
            TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap(),
        )
    });
    serialize_to_file(views, None, &folder.join("model.safetensors")).unwrap();
}

/// The encoder once more, slowly, in double precision, straight from the paper.
fn slow_vector(ids: &[usize]) -> Vec<f64> {
    let tensors = tensors();
    let tensor = |name: &str| -> Vec<f64> {
        let found = tensors.iter().find(|(known, ..)| known == name).unwrap();
        found.2.iter().map(|&value| f64::from(value)).collect()
    };
    let linear = |name: &str, row: &[f64]| -> Vec<f64> {
        let (weight, bias) = (tensor(&format!("{name}.weight")), tensor(&format!("{name}.bias")));
        let sums = weight.chunks(row.len()).zip(bias);
        sums.map(|(weights, bias)| bias + weights.iter().zip(row).map(|(w, x)| w * x).sum::<f64>())
            .collect()
    };
    let norm = |name: &str, row: &[f64]| -> Vec<f64> {
        let (scale, shift) = (tensor(&format!("{name}.weight")), tensor(&format!("{name}.bias")));
        let mean = row.iter().sum::<f64>() / row.len() as f64;
        let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / row.len() as f64;
        let parts = row.iter().zip(scale).zip(shift);
        parts
            .map(|((x, scale), shift)| (x - mean) / (variance + 1e-12).sqrt() * scale + shift)
            .collect()
    };
    let add =
        |left: &[f64], right: &[f64]| -> Vec<f64> { left.iter().zip(right).map(|(l, r)| l + r).collect() };
    // Φ(x) by numerical integration of the density.
    let phi = |x: f64| {
        let steps = 2000;
        let width = x / f64::from(steps);
        let density = |y: f64| (-y * y / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
        0.5 + (0..steps)
            .map(|step| density((f64::from(step) + 0.5) * width) * width)
            .sum::<f64>()
    };
    let (words, positions, segments) = (
        tensor("embeddings.word_embeddings.weight"),
        tensor("embeddings.position_embeddings.weight"),
        tensor("embeddings.token_type_embeddings.weight"),
    );
    let mut rows: Vec<Vec<f64>> = ids
        .iter()
        .enumerate()
        .map(|(place, &id)| {
            let word = add(
                &words[id * HIDDEN..][..HIDDEN],
                &positions[place * HIDDEN..][..HIDDEN],
            );
            norm("embeddings.LayerNorm", &add(&word, &segments[..HIDDEN]))
        })
        .collect();
    for layer in 0..LAYERS {
        let of = |name: &str| format!("encoder.layer.{layer}.{name}");
        let project = |name: &str| -> Vec<Vec<f64>> {
            rows.iter()
                .map(|row| linear(&of(&format!("attention.self.{name}")), row))
                .collect()
        };
        let (queries, keys, values) = (project("query"), project("key"), project("value"));
        let size = HIDDEN / HEADS;
        rows = rows
            .iter()
            .zip(&queries)
            .map(|(row, query)| {
                let mut mixed = Vec::new();
                for head in 0..HEADS {
                    let columns = head * size..(head + 1) * size;
                    let weights: Vec<f64> = keys
                        .iter()
                        .map(|key| {
                            let products = query[columns.clone()].iter().zip(&key[columns.clone()]);
                            (products.map(|(q, k)| q * k).sum::<f64>() / (size as f64).sqrt()).exp()
                        })
                        .collect();
                    let total: f64 = weights.iter().sum();
                    for column in columns {
                        let parts = weights.iter().zip(&values);
                        mixed.push(parts.map(|(weight, value)| weight / total * value[column]).sum());
                    }
                }
                let attended = add(row, &linear(&of("attention.output.dense"), &mixed));
                let middle = norm(&of("attention.output.LayerNorm"), &attended);
                let inner: Vec<f64> = linear(&of("intermediate.dense"), &middle)
                    .into_iter()
                    .map(|x| x * phi(x))
                    .collect();
                norm(
                    &of("output.LayerNorm"),
                    &add(&middle, &linear(&of("output.dense"), &inner)),
                )
            })
            .collect();
    }
    let sums: Vec<f64> = (0..HIDDEN)
        .map(|column| rows.iter().map(|row| row[column]).sum())
        .collect();
    let length = sums.iter().map(|sum| sum * sum).sum::<f64>().sqrt();
    sums.iter().map(|sum| sum / length).collect()
}

fn open(folder: &Path) -> SentenceEncoder {
    SentenceEncoder::open(folder, EncoderOptions::default()).unwrap()
}

#[test]
fn vectors_are_those_of_the_slow_encoder() {
    let (folder, prefixed) = (folder(""), folder("bert."));
    for encoder in [open(folder.path()), open(prefixed.path())] {
        assert_eq!(encoder.dimension(), HIDDEN);
        for (text, ids) in [
            ("green teas", &[2, 4, 5, 6, 3][..]),
            ("Milk, TEA", &[2, 7, 1, 5, 3]),
            ("", &[2, 3]),
            // Cut to as many tokens as there are positions.
            (
                "tea tea tea tea tea tea tea tea tea tea tea tea tea tea",
                &[2, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 3],
            ),
        ] {
            let vector = encoder.encode_queries(&[text]).unwrap();
            for (value, expected) in vector.iter().zip(slow_vector(ids)) {
                assert!(
                    (f64::from(*value) - expected).abs() < 2e-6,
                    "{text}: {value} for {expected}"
                );
            }
        }
    }
}

#[test]
fn a_text_without_tokens_has_the_zero_vector() {
    let folder = folder("");
    let mut bare = tokenizer();
    bare["post_processor"] = Value::Null;
    fs_err::write(folder.path().join("tokenizer.json"), bare.to_string()).unwrap();
    let encoder = open(folder.path());
    let vectors = encoder.encode_passages(&["tea", "", "milk"]).unwrap();
    assert!(vectors[HIDDEN..2 * HIDDEN].iter().all(|&value| value == 0.0));
    assert_eq!(vectors[..HIDDEN], encoder.encode_passages(&["tea"]).unwrap());
    assert_eq!(encoder.encode_passages(&[""]).unwrap(), vec![0.0; HIDDEN]);
    assert!(encoder.encode_passages(&[]).unwrap().is_empty());
}

#[test]
fn options_change_what_they_say() {
    let folder = folder("");
    let with = |options: EncoderOptions| SentenceEncoder::open(folder.path(), options).unwrap();
    let plain = with(EncoderOptions::default());
    let e5 = with(EncoderOptions {
        query_prefix: "tea ".into(),
        passage_prefix: "milk ".into(),
        ..EncoderOptions::default()
    });
    let vector = |encoder: &SentenceEncoder, text: &str| encoder.encode_queries(&[text]).unwrap();
    assert_eq!(vector(&e5, "green"), vector(&plain, "tea green"));
    assert_eq!(
        e5.encode_passages(&["green"]).unwrap(),
        vector(&plain, "milk green")
    );
    let short = with(EncoderOptions {
        max_tokens: Some(4),
        ..EncoderOptions::default()
    });
    assert_eq!(vector(&short, "tea milk green green"), vector(&plain, "tea milk"));
    let first = with(EncoderOptions {
        pooling: Some(Pooling::FirstToken),
        ..EncoderOptions::default()
    });
    assert_ne!(vector(&first, "tea"), vector(&plain, "tea"));
    let digests = [plain.digest(), e5.digest(), short.digest(), first.digest()];
    for (index, digest) in digests.iter().enumerate() {
        assert!(!digests[index + 1..].contains(digest));
    }
    // What sentence-transformers keep beside the model.
    fs_err::write(
        folder.path().join("sentence_bert_config.json"),
        r#"{"max_seq_length": 4, "do_lower_case": false}"#,
    )
    .unwrap();
    fs_err::create_dir(folder.path().join("1_Pooling")).unwrap();
    let pooling = folder.path().join("1_Pooling/config.json");
    fs_err::write(
        &pooling,
        r#"{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}"#,
    )
    .unwrap();
    let told = with(EncoderOptions::default());
    assert_eq!(vector(&told, "tea milk green"), vector(&first, "tea milk"));
    fs_err::write(&pooling, r#"{"pooling_mode_max_tokens": true}"#).unwrap();
    let error = SentenceEncoder::open(folder.path(), EncoderOptions::default()).unwrap_err();
    assert!(
        error.to_string().contains("neither the mean nor the first token"),
        "{error}"
    );
}

#[test]
fn a_folder_that_is_no_encoder_is_refused_with_its_reason() {
    let change = |change: &dyn Fn(&mut Value)| {
        let folder = folder("");
        let mut value = config();
        change(&mut value);
        fs_err::write(folder.path().join("config.json"), value.to_string()).unwrap();
        let error = SentenceEncoder::open(folder.path(), EncoderOptions::default()).unwrap_err();
        assert!(matches!(error, RetrievalError::Encoder { .. }));
        error.to_string()
    };
    for (key, value, reason) in [
        ("model_type", json!("roberta"), "only `bert`"),
        ("hidden_act", json!("gelu_new"), "only `gelu`"),
        ("position_embedding_type", json!("relative_key"), "not `absolute`"),
        ("num_attention_heads", json!(7), "no multiple"),
        ("num_attention_heads", json!(0), "between 1"),
        ("hidden_size", json!(1_u64 << 40), "between 1"),
        ("hidden_size", json!(48), "config.json calls for"),
        ("layer_norm_eps", json!(-1.0), "layer_norm_eps"),
        ("vocab_size", json!(5), "vocab_size"),
        ("num_hidden_layers", json!(3), "no tensor `encoder.layer.2"),
    ] {
        let message = change(&|config: &mut Value| config[key] = value.clone());
        assert!(message.contains(reason), "{key}: {message}");
    }
    let broken = |name: &str, contents: &[u8]| {
        let folder = folder("");
        fs_err::write(folder.path().join(name), contents).unwrap();
        let error = SentenceEncoder::open(folder.path(), EncoderOptions::default()).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
    };
    for name in ["config.json", "tokenizer.json", "model.safetensors"] {
        broken(name, b"");
        broken(name, b"{\"model\": ");
        broken(name, &[0xff; 64]);
        let folder = folder("");
        fs_err::remove_file(folder.path().join(name)).unwrap();
        let error = SentenceEncoder::open(folder.path(), EncoderOptions::default()).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
    }
    let folder = folder("");
    let mut wild = tensors();
    wild[4].2[3] = f32::NAN;
    write_tensors(folder.path(), "", &wild);
    let error = SentenceEncoder::open(folder.path(), EncoderOptions::default()).unwrap_err();
    assert!(error.to_string().contains("not finite"), "{error}");
}

#[test]
fn vectors_of_wrong_shape_are_refused() {
    assert!(matches!(
        DenseIndex::new(3, vec![0.0; 4]),
        Err(RetrievalError::VectorShape { .. })
    ));
    assert!(matches!(
        DenseIndex::new(0, vec![]),
        Err(RetrievalError::VectorShape { .. })
    ));
    assert_eq!(
        DenseIndex::new(2, vec![0.0, 1.0, f32::INFINITY, 0.0]),
        Err(RetrievalError::NotFinite { document: 1 })
    );
    let index = DenseIndex::new(2, vec![1.0, 0.0]).unwrap();
    assert!(matches!(
        index.search(&[1.0], 1),
        Err(RetrievalError::QueryLength { .. })
    ));
    let empty = DenseIndex::new(2, vec![]).unwrap();
    assert_eq!(empty.search(&[1.0, 0.0], 3).unwrap(), []);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// A text's vector has the same bits alone, in company, and on any number of threads.
    #[test]
    fn company_changes_no_bit(texts in prop::collection::vec("(green |tea|s |milk |x ){0,9}", 1..40), threads in 1..4_usize) {
        let folder = folder("");
        let encoder = open(folder.path());
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let together = pool.install(|| encoder.encode_passages(&texts).unwrap());
        for (text, vector) in texts.iter().zip(together.chunks(HIDDEN)) {
            let alone = encoder.encode_passages(&[text]).unwrap();
            prop_assert!(alone.iter().zip(vector).all(|(left, right)| left.to_bits() == right.to_bits()));
        }
    }

    /// The index gives what sorting all products gives, on any number of threads.
    #[test]
    fn the_best_are_those_of_a_full_sort(
        numbers in prop::collection::vec(-4_i8..4, 0..600), query in prop::collection::vec(-4_i8..4, 3), count in 0..30_usize, threads in 1..4_usize,
    ) {
        // Small whole numbers: sums are exact and ties frequent.
        let numbers: Vec<f32> = numbers.iter().map(|&number| f32::from(number)).collect();
        let query: Vec<f32> = query.iter().map(|&number| f32::from(number)).collect();
        let numbers = &numbers[..numbers.len() / 3 * 3];
        let mut expected: Vec<(usize, f32)> = numbers
            .chunks(3)
            .map(|vector| vector.iter().zip(&query).map(|(left, right)| left * right).sum())
            .enumerate()
            .collect();
        expected.sort_by(|left, right| right.1.total_cmp(&left.1).then(left.0.cmp(&right.0)));
        expected.truncate(count);
        let index = DenseIndex::new(3, numbers.to_vec()).unwrap();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let hits = pool.install(|| index.search(&query, count).unwrap());
        // Zero has two signs; they are the same score.
        let hits: Vec<(usize, f32)> = hits.iter().map(|hit| (hit.document, hit.score)).collect();
        prop_assert_eq!(hits.len(), expected.len());
        for (hit, expected) in hits.iter().zip(&expected) {
            prop_assert_eq!(hit.1, expected.1);
        }
    }
}

/// all-MiniLM-L6-v2 against its recorded embeddings.
#[test]
fn recorded_embeddings_are_met() {
    let shared = std::env::var_os("SEED_SHARED").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
        PathBuf::from,
    );
    let recorded = shared.join("data/searchqa/minilm_golden_embeddings.json");
    let Some(folder) = std::env::var_os("SEED_MINILM") else {
        println!("skipped: `SEED_MINILM` names no folder with all-MiniLM-L6-v2");
        return;
    };
    if !recorded.is_file() {
        println!("skipped: there is no `{}`", recorded.display());
        return;
    }
    let encoder = open(Path::new(&folder));
    let cases: Vec<Value> = serde_json::from_str(&fs_err::read_to_string(recorded).unwrap()).unwrap();
    assert_eq!(cases.len(), 5);
    for case in cases {
        let vector = encoder
            .encode_passages(&[case["text"].as_str().unwrap()])
            .unwrap();
        let expected: Vec<f32> = serde_json::from_value(case["embedding"].clone()).unwrap();
        assert_eq!(vector.len(), expected.len());
        let worst = vector
            .iter()
            .zip(expected)
            .map(|(left, right)| (left - right).abs())
            .fold(0.0, f32::max);
        assert!(worst <= 1e-4, "{}: {worst}", case["text"]);
    }
}
