//! The folder of an adapter, as fine-tuning writes it, where a model is asked for.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests fail as tests do")]

mod common;

use std::path::{Path, PathBuf};

use common::{Ended, Scratch, exchange, failure, finish, listening, program, support, typed};
use seed_model::TokenSequence;
use seed_train::examples::ExampleRecord;
use seed_train::policy::Policy;
use serde_json::{Value, json};

/// A tiny model with an adapter that makes it answer otherwise.
struct Adapted {
    scratch: Scratch,
    adapter: PathBuf,
}

impl Adapted {
    fn new() -> Self {
        let scratch = Scratch::new("http://127.0.0.1:1/v1");
        let mut records: Vec<ExampleRecord> = support::lessons();
        for record in &mut records {
            for answer in record.messages.iter_mut().skip(1).step_by(2) {
                "<action>inventory</action>".clone_into(&mut answer.content);
            }
        }
        let data = scratch.path("lessons.jsonl");
        seed_run::write_json_lines(&data, records).unwrap();
        let config = scratch.path("sft.toml");
        let text = format!(
            "[run]\ndirectory = \"{}\"\n[model]\npath = \"{}\"\ncontext_length = 256\n[adapter]\nenabled = true\nrank = 4\n\
             alpha = 8.0\n[sft]\ndata = [\"{}\"]\nepochs = 8\nvalidation_fraction = 0.0\nmax_length = 256\n\
             learning_rate = 2e-2\n",
            scratch.path("sft").display(),
            scratch.model.path().display(),
            data.display(),
        );
        fs_err::write(&config, text).unwrap();
        let ended = finish(program().arg("sft").arg(&config));
        assert_eq!(ended.code, Some(0), "{}", ended.errors);
        let adapter = scratch.path("sft/model");
        assert!(adapter.join("adapter_config.json").is_file());
        Self { scratch, adapter }
    }

    fn base(&self) -> PathBuf {
        self.scratch.model.path()
    }

    fn doctor(&self) -> (Option<i32>, Vec<String>) {
        let ended = finish(program().args(["doctor", "--json", "--model"]).arg(&self.adapter));
        let answer: Value = serde_json::from_str(&ended.output).unwrap();
        let findings = answer["findings"].as_array().unwrap().iter();
        let lines = findings
            .filter(|finding| finding["area"] != "machine")
            .map(|finding| {
                let [level, area, text] = ["level", "area", "text"].map(|key| finding[key].as_str().unwrap());
                self.scratch.shown(&format!("{level} {area}: {text}"))
            });
        (ended.code, lines.collect())
    }

    /// Changes the last weight of the base.
    fn change_base(&self) {
        let weights = self.base().join("model.safetensors");
        let mut bytes = fs_err::read(&weights).unwrap();
        let place = bytes.len() - 4;
        bytes[place] ^= 1;
        fs_err::write(&weights, bytes).unwrap();
    }
}

fn chat(model: &Path) -> Ended {
    let more = ["--json", "--max-new-tokens", "16"];
    typed(program().arg("chat").arg(model).args(more), "Nothing happens.\n")
}

fn ids(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).unwrap()
}

#[test]
fn it_is_talked_to() {
    let adapted = Adapted::new();
    let answer = |model: &Path| -> Value {
        let ended = chat(model);
        assert_eq!((ended.code, ended.errors.as_str()), (Some(0), ""));
        serde_json::from_str(&ended.output).unwrap()
    };
    let found = answer(&adapted.adapter);
    assert_eq!(found["answer"], "<action>inventory</action>");
    assert_ne!(found, answer(&adapted.base()), "the adapter is used");
}

#[test]
fn it_is_served_with_its_base() {
    let adapted = Adapted::new();
    let (mut server, url) = listening(&["serve", adapted.adapter.to_str().unwrap(), "--name", "tuned"]);
    let body = json!({
        "model": "tuned", "messages": [{"role": "user", "content": "Nothing happens."}], "max_tokens": 16,
        "temperature": 0, "logprobs": true, "return_token_ids": true,
    });
    let host = url.trim_start_matches("http://").trim_end_matches("/v1");
    let answer = exchange(host, "POST", "/v1/chat/completions", &body.to_string());
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    let (_, answer) = answer.split_once("\r\n\r\n").unwrap();
    let answer: Value = serde_json::from_str(answer).unwrap();
    let choice = &answer["choices"][0];
    assert_eq!(choice["message"]["content"], "<action>inventory</action>");
    // Merged, its log-probs are those of the adapter beside its base within rounding.
    let (prompt, response) = (ids(&answer["prompt_token_ids"]), ids(&choice["token_ids"]));
    let tokens = [&prompt[..], &response].concat();
    let scored: Vec<u32> = (prompt.len() as u32..tokens.len() as u32).collect();
    let sequence = TokenSequence {
        tokens: &tokens,
        scored: &scored,
    };
    let log_probs = |model: &Path| {
        let decoder = Policy::load(model, false).unwrap().decoder;
        decoder.score(&[sequence], 1.0).unwrap().remove(0).log_probs
    };
    let listed = choice["logprobs"]["content"].as_array().unwrap();
    assert_eq!(listed.len(), response.len());
    let distance = |expected: &[f32]| {
        let pairs = listed.iter().zip(expected);
        pairs
            .map(|(entry, expected)| (entry["logprob"].as_f64().unwrap() - f64::from(*expected)).abs())
            .fold(0.0, f64::max)
    };
    let (adapter, base) = (log_probs(&adapted.adapter), log_probs(&adapted.base()));
    assert!(distance(&adapter) < 1e-4, "{}", distance(&adapter));
    assert!(distance(&base) > 0.1, "{}", distance(&base));
}

#[test]
fn it_is_examined_with_its_base() {
    let adapted = Adapted::new();
    let (code, lines) = adapted.doctor();
    assert_eq!(code, Some(0), "{lines:?}");
    insta::assert_snapshot!(lines[..3].join("\n"), @r"
    fine adapter: rank 4, alpha 8, beside q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj of every layer: 4096 parameters
    fine adapter: its base is `[model]`, which has the digest of the weights it was trained beside
    fine model: llama: 29952 parameters, 117.0 KiB in f32; context of 1024 tokens
    ");
    let computes = "fine model: it generates, and scoring gives the log-probs of generating to the last bit";
    assert_eq!(lines.last().unwrap(), computes);

    adapted.change_base();
    let (code, lines) = adapted.doctor();
    assert_eq!((code, lines.len()), (Some(1), 1), "{lines:?}");
    assert!(
        lines[0].contains("trained beside weights with the digest"),
        "{lines:?}"
    );
    fs_err::rename(adapted.base(), adapted.scratch.path("moved")).unwrap();
    let (code, lines) = adapted.doctor();
    assert_eq!(code, Some(1));
    insta::assert_snapshot!(lines.join("\n"), @"wrong model: `[scratch]/sft/model`: its base `[model]` is not here: fetch it and write its place as `base_model_name_or_path` into adapter_config.json");
}

#[test]
fn it_is_not_imported_but_merged() {
    let adapted = Adapted::new();
    let out = adapted.scratch.path("out");
    let ended = finish(program().arg("import").arg(&adapted.adapter).arg(&out));
    insta::assert_snapshot!(adapted.scratch.shown(&failure(&ended)), @r"
    exit code 3
    error: `[scratch]/sft/model`: it is an adapter's folder, and model files are imported: write its base with the adapter in it as a model with `seed merge`
    ");
    assert!(!out.exists());
}
