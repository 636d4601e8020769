use std::path::Path;

use proptest::prelude::*;
use serde_json::Value as Json;

use super::*;
use crate::config::RopeScaling;
use crate::error::ModelError;
use crate::{Decoder, Message};

/// Writes files as the format describes them.
#[derive(Clone, Default)]
struct Writer {
    keys: Vec<(String, Vec<u8>)>,
    /// Name, sizes innermost first, number of the type, bytes.
    tensors: Vec<(String, Vec<u64>, u32, Vec<u8>)>,
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

impl Writer {
    fn raw(&mut self, key: &str, kind: u32, value: &[u8]) {
        self.remove(key);
        self.keys
            .push((key.to_owned(), [&kind.to_le_bytes(), value].concat()));
    }

    fn remove(&mut self, key: &str) {
        self.keys.retain(|(name, _)| name != key);
    }

    fn size(&mut self, key: &str, value: u32) {
        self.raw(key, 4, &value.to_le_bytes());
    }

    fn number(&mut self, key: &str, value: f32) {
        self.raw(key, 6, &value.to_le_bytes());
    }

    fn text(&mut self, key: &str, value: &str) {
        self.raw(key, 8, &text(value));
    }

    fn array(&mut self, key: &str, kind: u32, items: &[Vec<u8>]) {
        let value = [
            kind.to_le_bytes().to_vec(),
            (items.len() as u64).to_le_bytes().to_vec(),
            items.concat(),
        ];
        self.raw(key, 9, &value.concat());
    }

    fn tensor(&mut self, name: &str, sizes: &[u64], values: &[f32]) {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.tensors.retain(|(known, ..)| known != name);
        self.tensors.push((name.to_owned(), sizes.to_vec(), 0, bytes));
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(3u32.to_le_bytes());
        bytes.extend((self.tensors.len() as u64).to_le_bytes());
        bytes.extend((self.keys.len() as u64).to_le_bytes());
        for (key, value) in &self.keys {
            bytes.extend(text(key));
            bytes.extend(value);
        }
        let mut offset = 0u64;
        for (name, sizes, kind, data) in &self.tensors {
            bytes.extend(text(name));
            bytes.extend((sizes.len() as u32).to_le_bytes());
            bytes.extend(sizes.iter().flat_map(|size| size.to_le_bytes()));
            bytes.extend(kind.to_le_bytes());
            bytes.extend(offset.to_le_bytes());
            offset = (offset + data.len() as u64).next_multiple_of(32);
        }
        for (.., data) in &self.tensors {
            bytes.resize(bytes.len().next_multiple_of(32), 0);
            bytes.extend(data);
        }
        bytes
    }
}

const TOKENS: [&str; 9] = [
    "<|im_start|>",
    "<|im_end|>",
    "<think>",
    "a",
    "b",
    "ab",
    "1",
    "Ġ",
    "[PAD8]",
];

/// A model of one layer with heads of width 4. Value `i` of tensor `n` is `n + i / 1000`.
fn tiny(architecture: &str) -> Writer {
    let mut file = Writer::default();
    file.text("general.architecture", architecture);
    for (key, value) in [
        ("context_length", 64),
        ("embedding_length", 8),
        ("block_count", 1),
        ("feed_forward_length", 6),
        ("attention.head_count", 2),
        ("attention.head_count_kv", 1),
        ("rope.dimension_count", 4),
        ("attention.key_length", 4),
    ] {
        file.size(&format!("{architecture}.{key}"), value);
    }
    file.number(&format!("{architecture}.rope.freq_base"), 5000.0);
    file.number(&format!("{architecture}.attention.layer_norm_rms_epsilon"), 1e-5);
    file.text("tokenizer.ggml.model", "gpt2");
    file.text("tokenizer.ggml.pre", "smollm");
    file.array("tokenizer.ggml.tokens", 8, &TOKENS.map(text));
    file.array(
        "tokenizer.ggml.token_type",
        5,
        &[3i32, 3, 4, 1, 1, 1, 1, 1, 5].map(|kind| kind.to_le_bytes().to_vec()),
    );
    file.array("tokenizer.ggml.merges", 8, &[text("a b")]);
    file.size("tokenizer.ggml.bos_token_id", 0);
    file.size("tokenizer.ggml.eos_token_id", 1);
    file.text("tokenizer.chat_template", crate::CHATML_TEMPLATE);
    let mut number = 0;
    let mut tensor = |name: &str, sizes: &[u64]| {
        number += 1;
        let values: Vec<f32> = (0..sizes.iter().product())
            .map(|index| number as f32 + index as f32 / 1000.0)
            .collect();
        file.tensor(name, sizes, &values);
    };
    tensor("token_embd.weight", &[8, 9]);
    tensor("blk.0.attn_norm.weight", &[8]);
    tensor("blk.0.attn_q.weight", &[8, 8]);
    tensor("blk.0.attn_k.weight", &[8, 4]);
    tensor("blk.0.attn_v.weight", &[8, 4]);
    tensor("blk.0.attn_output.weight", &[8, 8]);
    tensor("blk.0.ffn_norm.weight", &[8]);
    tensor("blk.0.ffn_gate.weight", &[8, 6]);
    tensor("blk.0.ffn_up.weight", &[8, 6]);
    tensor("blk.0.ffn_down.weight", &[6, 8]);
    tensor("output_norm.weight", &[8]);
    if architecture == "qwen2" {
        tensor("blk.0.attn_q.bias", &[8]);
        tensor("blk.0.attn_k.bias", &[4]);
        tensor("blk.0.attn_v.bias", &[4]);
    }
    if architecture == "qwen3" {
        tensor("blk.0.attn_q_norm.weight", &[4]);
        tensor("blk.0.attn_k_norm.weight", &[4]);
    }
    file
}

fn load(bytes: &[u8]) -> Result<ModelDirectory, ModelError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    fs::write(&path, bytes).unwrap();
    load_gguf(path)
}

/// The error of a file that is not read, its folder left out.
fn refusal(bytes: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    fs::write(&path, bytes).unwrap();
    let error = load_gguf(path).unwrap_err();
    let mut message = error.to_string();
    if let ModelError::InFile { source, .. } = &error {
        assert_eq!(
            message,
            format!("`{}`: {source}", folder.path().join("m.gguf").display())
        );
    }
    message = message.replace(&format!("{}/", folder.path().display()), "");
    message
}

fn refused(edit: impl FnOnce(&mut Writer)) -> String {
    let mut file = tiny("llama");
    edit(&mut file);
    refusal(&file.bytes())
}

fn values<'a>(model: &'a ModelDirectory, name: &str) -> &'a [f32] {
    model.parameters.get(model.parameters.index_of(name).unwrap())
}

#[test]
fn a_llama_has_its_sizes_weights_and_texts() {
    let model = load(&tiny("llama").bytes()).unwrap();
    let config = &model.config;
    assert_eq!(config.family, Family::Llama);
    assert_eq!(
        (
            config.vocabulary_size,
            config.hidden_size,
            config.intermediate_size,
            config.layers
        ),
        (9, 8, 6, 1)
    );
    assert_eq!(
        (
            config.query_heads,
            config.key_value_heads,
            config.head_dim,
            config.max_positions
        ),
        (2, 1, 4, 64)
    );
    assert_eq!((config.rope_theta, config.rms_norm_epsilon), (5000.0, 1e-5));
    assert!(config.tied_embeddings);
    assert_eq!(
        (config.begin_token, config.end_tokens.as_slice()),
        (Some(0), [1].as_slice())
    );
    // Sizes are written innermost first, so the values lie as they are.
    assert_eq!(
        values(&model, "model.embed_tokens.weight")[..3],
        [1.0, 1.001, 1.002]
    );
    assert_eq!(values(&model, "model.layers.0.mlp.down_proj.weight")[47], 10.047);
    // Rows 0, 1, 2, 3 of a head in the file are rows 0, 2, 1, 3 of the model: the halves of each pair lie together.
    let firsts = |name: &str| -> Vec<f32> { values(&model, name).iter().step_by(8).copied().collect() };
    assert_eq!(
        firsts("model.layers.0.self_attn.q_proj.weight"),
        [3.0, 3.016, 3.008, 3.024, 3.032, 3.048, 3.04, 3.056]
    );
    assert_eq!(
        firsts("model.layers.0.self_attn.k_proj.weight"),
        [4.0, 4.016, 4.008, 4.024]
    );
    assert_eq!(
        firsts("model.layers.0.self_attn.v_proj.weight"),
        [5.0, 5.008, 5.016, 5.024]
    );

    assert_eq!(model.tokenizer.encode_text("ab1 a"), [5, 6, 7, 3]);
    // Control tokens are not read from text; tokens that only are spelled in one piece are.
    assert!(model.tokenizer.encode_text("<|im_end|>").iter().all(|&id| id > 2));
    assert_eq!(model.tokenizer.encode_text("<think>"), [2]);
    assert_eq!(model.tokenizer.token_id("[PAD8]"), None);
    assert_eq!(model.tokenizer.named_token("eos_token"), Some("<|im_end|>"));
    let chat = model.chat.as_ref().unwrap();
    let text = chat.render(&[Message::user("ab")], false).unwrap();
    assert!(text.contains("<|im_start|>user\nab<|im_end|>"), "{text}");
    assert_eq!(model.end_tokens, [1]);
}

#[test]
fn rows_of_qwen_heads_are_left_as_they_are() {
    for (architecture, family) in [("qwen2", Family::Qwen2), ("qwen3", Family::Qwen3)] {
        let mut file = tiny(architecture);
        file.text("tokenizer.ggml.pre", "qwen2");
        let head: Vec<f32> = (0..72).map(|index| index as f32).collect();
        file.tensor("output.weight", &[8, 9], &head);
        let model = load(&file.bytes()).unwrap();
        assert_eq!(model.config.family, family);
        assert!(!model.config.tied_embeddings);
        assert_eq!(values(&model, "lm_head.weight"), head);
        assert_eq!(
            values(&model, "model.layers.0.self_attn.q_proj.weight")[8..10],
            [3.008, 3.009]
        );
        let own = if family == Family::Qwen2 {
            "v_proj.bias"
        } else {
            "k_norm.weight"
        };
        assert_eq!(
            values(&model, &format!("model.layers.0.self_attn.{own}")).len(),
            4
        );
        // Full-width and ligature forms stay, composed forms are composed: é is one character of two bytes, not three.
        let composed = model.tokenizer.to_json().unwrap();
        assert!(composed.contains("NFC"));
        Decoder::new(model.config, model.parameters).unwrap();
    }
}

#[test]
fn a_converted_directory_is_the_same_model() {
    let mut file = tiny("qwen3");
    file.raw("tokenizer.ggml.add_bos_token", 7, &[1]);
    file.text("tokenizer.ggml.pre", "llama-bpe");
    let model = load(&file.bytes()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("converted");
    crate::save_directory(&place, model.contents(), crate::ShardOptions::default()).unwrap();
    let again = crate::load_directory(&place).unwrap();
    assert_eq!(again.config, model.config);
    assert_eq!(again.parameters.digest(), model.parameters.digest());
    assert_eq!(
        again.tokenizer.to_json().unwrap(),
        model.tokenizer.to_json().unwrap()
    );
    assert_eq!(again.chat.unwrap().source(), model.chat.unwrap().source());
    assert_eq!(again.end_tokens, model.end_tokens);
    let json: Json = serde_json::from_str(&again.tokenizer.to_json().unwrap()).unwrap();
    assert_eq!(json["model"]["ignore_merges"], true);
    assert_eq!(
        json["post_processor"]["processors"][1]["special_tokens"]["<|im_start|>"]["ids"][0],
        0
    );
}

#[test]
fn values_of_blocks_are_those_of_the_reference() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/gguf/blocks.json");
    let cases: Json = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let cases = cases.as_object().unwrap();
    assert_eq!(cases.len(), 11);
    for (name, case) in cases {
        let kind = (0..40)
            .find(|&number| TensorType::of(number).is_some() && TensorType::name_of(number) == *name)
            .and_then(TensorType::of)
            .unwrap();
        let hex = case["bytes"].as_str().unwrap();
        let bytes: Vec<u8> = (0..hex.len() / 2)
            .map(|index| u8::from_str_radix(&hex[2 * index..2 * index + 2], 16).unwrap())
            .collect();
        let expected: Vec<u32> = serde_json::from_value(case["bits"].clone()).unwrap();
        let mut values = vec![0.0f32; expected.len()];
        assert_eq!(kind.bytes_of(values.len()), bytes.len() as u64, "{name}");
        kind.decode(&bytes, &mut values);
        for (index, (value, bits)) in values.iter().zip(&expected).enumerate() {
            let same = value.to_bits() == *bits || value.is_nan() && f32::from_bits(*bits).is_nan();
            assert!(same, "{name} {index}: {value} {}", f32::from_bits(*bits));
        }
    }
}

#[test]
fn scalings_of_rotary_positions_are_read_or_refused() {
    let mut file = tiny("llama");
    file.text("llama.rope.scaling.type", "linear");
    assert_eq!(
        refusal(&file.bytes()),
        "`m.gguf`: key `llama.rope.scaling.factor` is missing: convert the model to GGUF again"
    );
    file.number("llama.rope.scaling.factor", 4.0);
    assert_eq!(
        load(&file.bytes()).unwrap().config.rope_scaling,
        RopeScaling::Linear { factor: 4.0 }
    );
    file.text("llama.rope.scaling.type", "yarn");
    file.size("llama.rope.scaling.original_context_length", 16);
    let RopeScaling::Yarn {
        factor,
        original_max_positions,
        ..
    } = load(&file.bytes()).unwrap().config.rope_scaling
    else {
        panic!("not yarn");
    };
    assert_eq!((factor, original_max_positions), (4.0, 16));
    let mut file = tiny("llama");
    file.number("llama.rope.freq_base", 1e10);
    // The lower of the two frequencies turns once in 628,319 positions, beyond the 8,192 of training.
    file.tensor("rope_freqs.weight", &[2], &[1.0, 32.0]);
    assert_eq!(
        load(&file.bytes()).unwrap().config.rope_scaling,
        RopeScaling::Llama3 {
            factor: 32.0,
            low_frequency_factor: 1.0,
            high_frequency_factor: 4.0,
            original_max_positions: 8192
        }
    );
    file.tensor("rope_freqs.weight", &[2], &[2.0, 32.0]);
    assert_eq!(
        refusal(&file.bytes()),
        "`m.gguf`: key `llama.rope.scaling.type` is given by tensor `rope_freqs.weight`, whose factors are not those of \
         Llama 3; use the model's Hugging Face directory"
    );
    let mut file = tiny("llama");
    file.text("llama.rope.scaling.type", "longrope");
    assert_eq!(
        refusal(&file.bytes()),
        "`m.gguf`: key `llama.rope.scaling.type` is `longrope`, none of `none`, `linear`, `yarn`"
    );
}

#[test]
fn what_is_not_computed_is_refused_by_its_key() {
    for (key, value, message) in [
        (
            "general.architecture",
            "gemma3",
            "is `gemma3`, none of `llama`, `qwen2`, `qwen3`",
        ),
        (
            "tokenizer.ggml.model",
            "llama",
            "is `llama`; only byte-level vocabularies, `gpt2`, are read: use the model's Hugging Face directory",
        ),
        (
            "tokenizer.ggml.pre",
            "tekken",
            "is `tekken`, none of `gpt-2`, `smollm`, `starcoder`, `llama-bpe`, `qwen2`: use the model's Hugging Face \
             directory",
        ),
        (
            "llama.block_count",
            "one",
            "is a text, it must be an integer of at least 0",
        ),
    ] {
        assert_eq!(
            refused(|file| file.text(key, value)),
            format!("`m.gguf`: key `{key}` {message}")
        );
    }
    for (key, value, message) in [
        (
            "llama.expert_count",
            8,
            "is `8`: mixtures of experts are not computed here",
        ),
        (
            "llama.attention.sliding_window",
            32,
            "is `32`; attention is full here",
        ),
        (
            "llama.rope.dimension_count",
            2,
            "is `2`; only the width of a whole head, `4`, is computed here",
        ),
    ] {
        assert_eq!(
            refused(|file| file.size(key, value)),
            format!("`m.gguf`: key `{key}` {message}")
        );
    }
    assert_eq!(
        refused(|file| file.size("tokenizer.ggml.eos_token_id", 9)),
        "`m.gguf`: key `general.architecture` is given sizes that are not computed here: as in a config.json, `eos_token_id` \
         `9` is outside the vocabulary of `9`"
    );
    assert_eq!(
        refused(|file| file.size("tokenizer.ggml.padding_token_id", 9)),
        "`m.gguf`: key `tokenizer.ggml.padding_token_id` is `9`, but there are `9` tokens"
    );
    assert_eq!(
        refused(|file| file.remove("llama.context_length")),
        "`m.gguf`: key `llama.context_length` is missing: convert the model to GGUF again"
    );
    assert_eq!(
        refused(|file| file.tensors[2].2 = 10),
        "`m.gguf`: tensor `blk.0.attn_q.weight` has elements of type `Q2_K`; use a file with `F32`, `F16`, `BF16`, \
         `Q4_0`, `Q4_1`, `Q5_0`, `Q5_1`, `Q8_0`, `Q4_K`, `Q5_K`, `Q6_K`"
    );
}

#[test]
fn tensors_that_do_not_fit_are_named() {
    assert_eq!(
        refused(|file| file.tensors.truncate(9)),
        "`m.gguf` lacks tensor `blk.0.ffn_down.weight` (and 1 more) which the configuration calls for: the files do not \
         belong together"
    );
    assert_eq!(
        refused(|file| file.tensor("blk.1.attn_norm.weight", &[8], &[0.0; 8])),
        "`m.gguf` holds tensor `blk.1.attn_norm.weight` which the configuration does not call for: the files do not belong \
         together"
    );
    assert_eq!(
        refused(|file| file.tensor("blk.0.attn_v.weight", &[4, 8], &[0.0; 32])),
        "`m.gguf`: tensor `blk.0.attn_v.weight` has shape [8, 4], the configuration calls for [4, 8]: the files do not \
         belong together"
    );
    assert_eq!(
        refused(|file| file.tensor(
            "output_norm.weight",
            &[8],
            &[1.0, 1.0, f32::NAN, 1.0, 1.0, 1.0, 1.0, 1.0]
        )),
        "`m.gguf`: tensor `output_norm.weight` holds `NaN` at element 2: the model is damaged or has diverged"
    );
    // A configuration of terabytes is compared with the list of tensors before anything is allocated for it.
    assert!(refused(|file| file.size("llama.feed_forward_length", 1 << 24)).contains("[16777216, 8]"));
    assert!(refused(|file| file.size("llama.block_count", 4096)).contains("(and 36854 more)"));
}

#[test]
fn vocabularies_that_contradict_themselves_are_refused() {
    assert_eq!(
        refused(|file| file.array("tokenizer.ggml.tokens", 8, &["a", "b", "a"].map(text))),
        "`m.gguf`: key `tokenizer.ggml.token_type` has `9` types for `3` tokens"
    );
    let mut twice = TOKENS;
    twice[4] = "a";
    assert_eq!(
        refused(|file| file.array("tokenizer.ggml.tokens", 8, &twice.map(text))),
        "`m.gguf`: key `tokenizer.ggml.tokens` has token \"a\" twice, as `3` and as `4`"
    );
    let unknown = refused(|file| file.array("tokenizer.ggml.merges", 8, &[text("a z")]));
    assert!(
        unknown.starts_with("`m.gguf`: the tokenizer cannot be used: "),
        "{unknown}"
    );
    assert!(
        refused(|file| file.text("tokenizer.chat_template", "{% for %}"))
            .starts_with("`m.gguf`: chat template: ")
    );
}

#[test]
fn broken_containers_are_refused() {
    let whole = tiny("llama").bytes();
    let with = |position: usize, bytes: &[u8]| {
        let mut copy = whole.clone();
        copy[position..position + bytes.len()].copy_from_slice(bytes);
        refusal(&copy)
    };
    let broken = |problem: &str| format!("`m.gguf` is broken: {problem}; fetch or export the model again");
    assert_eq!(
        with(0, b"GGML"),
        broken("it begins with [71, 71, 77, 76] and not with `GGUF`: it is no GGUF file")
    );
    assert_eq!(
        with(4, &1u32.to_le_bytes()),
        broken("its version is `1`; versions 2 and 3 are read")
    );
    assert_eq!(
        with(4, &3u32.to_be_bytes()),
        broken("it is in big-endian byte order, which is not read")
    );
    let left = whole.len() - 16;
    assert_eq!(
        with(8, &u64::MAX.to_le_bytes()),
        broken(&format!(
            "the number of tensors is `{}`, too many for the `{left}` bytes left",
            u64::MAX
        ))
    );
    let left = whole.len() - 32;
    assert_eq!(
        with(24, &(1u64 << 40).to_le_bytes()),
        broken(&format!(
            "the name of a key needs `1099511627776` bytes, the file ends after `{left}`: it is truncated"
        ))
    );
    assert_eq!(
        refused(|file| file.keys.push(file.keys[0].clone())),
        broken("it holds key `general.architecture` twice")
    );
    assert_eq!(
        refused(|file| file.tensors.push(file.tensors[0].clone())),
        broken("it holds tensor `token_embd.weight` twice")
    );
    assert_eq!(
        refused(|file| file.size("general.alignment", 48)),
        broken("its `general.alignment` is no power of two")
    );
    assert_eq!(
        refused(|file| file.raw("x", 7, &[2])),
        broken("key `x` is a flag of value `2`")
    );
    assert_eq!(
        refused(|file| file.raw("x", 13, &[])),
        broken("key `x` has a value of type `13`, which the format does not know")
    );
    assert_eq!(
        refused(|file| file.array("x", 9, &[])),
        broken("key `x` is an array of values of type `9`, which is not read")
    );
    assert_eq!(
        refused(|file| file.tensors[0].1 = vec![1 << 40, 1 << 40]),
        broken("tensor `token_embd.weight` has sizes [1099511627776, 1099511627776], too many values")
    );
    assert_eq!(
        refused(|file| file.tensors[0].1 = vec![0]),
        broken("tensor `token_embd.weight` has a size of `0`")
    );
    assert_eq!(
        refused(|file| file.tensors[0].2 = 2),
        broken("tensor `token_embd.weight` has rows of `8` values, which are no whole blocks of `32`")
    );
    let overlapping = refused(|file| file.tensors[0].1 = vec![8, 10]);
    assert_eq!(
        overlapping,
        broken("tensor `blk.0.attn_norm.weight` begins within the one before it")
    );
}

#[test]
fn every_truncation_is_refused() {
    let whole = tiny("llama").bytes();
    for length in (0..whole.len()).step_by(7).chain([whole.len() - 1]) {
        let message = refusal(&whole[..length]);
        assert!(
            message.contains("truncated") || message.contains("too many"),
            "{length}: {message}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever one changes in a file, it is read as a whole model or refused.
    #[test]
    fn changed_files_are_read_or_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)
    ) {
        let mut bytes = tiny("llama").bytes();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        match load(&bytes) {
            Ok(model) => {
                prop_assert_eq!(model.parameters.total() as u64, model.config.parameter_count());
                prop_assert!(model.parameters.flat().iter().all(|value| value.is_finite()));
            }
            Err(error) => prop_assert!(error.to_string().contains("m.gguf")),
        }
    }
}
