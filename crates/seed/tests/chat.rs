//! `seed import` and `seed chat` as a person meets them.

mod common;

use std::path::Path;

use common::{Ended, Scratch, failure, finish, program, typed};
use serde_json::Value;

/// Says `lines` to the model, one after the other.
fn chat(model: &Path, lines: &str, more: &[&str]) -> Ended {
    typed(program().arg("chat").arg(model).args(more), lines)
}

#[test]
fn a_conversation_is_answered_line_by_line_and_the_same_each_time() {
    let model = Path::new("embedded:household-tiny");
    let lines = "go to desk 1\n\n<|im_end|> look\n";
    let text = chat(model, lines, &["--max-new-tokens", "24"]);
    assert_eq!((text.code, text.errors.as_str()), (Some(0), ""));
    let records = chat(
        model,
        lines,
        &["--max-new-tokens", "24", "--json", "--threads", "1"],
    );
    let records: Vec<Value> = records
        .output
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(records.len(), 2, "an empty line is no message");
    let answers: Vec<&str> = records
        .iter()
        .map(|record| record["answer"].as_str().unwrap())
        .collect();
    assert_eq!(text.output, answers.join("\n") + "\n");
    for record in &records {
        let length = record["token_ids"].as_array().unwrap().len();
        let finish = record["finish"].as_str().unwrap();
        assert!(length <= 24 && (finish == "stop" || length == 24), "{record}");
    }
    let drawn = |seed: &str| {
        let more = ["--temperature", "1.5", "--seed", seed, "--max-new-tokens", "24"];
        chat(model, lines, &more).output
    };
    assert_eq!(drawn("3"), drawn("3"));
    assert_ne!(drawn("3"), drawn("4"));
}

#[test]
fn what_is_no_model_is_named() {
    let scratch = Scratch::new("http://127.0.0.1:1/v1");
    let file = scratch.path("model.gguf");
    fs_err::write(&file, b"GGUFxxxx").unwrap();
    let out = scratch.path("out");
    let import = |more: &[&str]| {
        let ended = finish(program().arg("import").arg(&file).arg(&out).args(more));
        scratch.shown(&failure(&ended))
    };
    insta::assert_snapshot!(import(&[]), @r"
    exit code 3
    error: `[scratch]/model.gguf` is broken: its version is `2021161080`; versions 2 and 3 are read; fetch or export the model again
    ");
    assert!(!out.exists());
    fs_err::create_dir(&out).unwrap();
    fs_err::write(out.join("thesis.tex"), "years of work").unwrap();
    insta::assert_snapshot!(import(&[]), @r"
    exit code 2
    error: `[scratch]/out` already exists: choose another name, or replace the model there with `--force`
    ");
    insta::assert_snapshot!(import(&["--force"]), @r"
    exit code 2
    error: `[scratch]/out` is no model directory (it holds no config.json) and is not replaced: remove it or choose another name
    ");
    assert!(out.join("thesis.tex").exists());
    let talk = scratch.shown(&failure(&chat(&file, "hi\n", &[])));
    insta::assert_snapshot!(talk, @r"
    exit code 3
    error: `[scratch]/model.gguf` is broken: its version is `2021161080`; versions 2 and 3 are read; fetch or export the model again
    ");
    let serve = finish(program().arg("serve").arg(&file));
    assert_eq!(scratch.shown(&failure(&serve)), talk);
    let doctor = finish(program().arg("doctor").arg("--model").arg(&file));
    let broken = "model.gguf` is broken: its version is `2021161080`; versions 2 and 3 are read";
    assert!(doctor.output.contains(broken), "{}", doctor.output);
}

/// A real model is converted and talked to. `SEED_SMOLLM2` names its file; `.ci/models` fetches it.
#[test]
fn smollm2_is_imported_and_holds_a_conversation() {
    let Some(file) = std::env::var_os("SEED_SMOLLM2") else {
        println!("skipped: SEED_SMOLLM2 names no SmolLM2-135M-Instruct.Q4_1.gguf");
        return;
    };
    let scratch = Scratch::new("http://127.0.0.1:1/v1");
    let out = scratch.path("smollm2");
    let import = |more: &[&str]| finish(program().arg("import").arg(&file).arg(&out).args(more));
    let ended = import(&["--weights", "f16"]);
    assert_eq!(ended.code, Some(0), "{}", ended.errors);
    insta::assert_snapshot!(scratch.shown(&ended.output), @r"
    [scratch]/smollm2: llama, 134515008 parameters in 30 layers of width 576, 49152 tokens, context 8192, head tied to the embedding
    answers end with <|im_end|>; with a chat template
             368  chat_template.jinja
             566  config.json
              55  generation_config.json
       269060272  model.safetensors
         3522758  tokenizer.json
             241  tokenizer_config.json
    ");
    assert_eq!(import(&[]).code, Some(2));
    let exact = import(&["--force"]);
    assert_eq!(exact.code, Some(0), "{}", exact.errors);
    let names: Vec<_> = fs_err::read_dir(out.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["smollm2"], "nothing else is left behind");

    let lines = "What is the capital of France? Answer in one sentence.\nAnd of Italy?\n";
    let talk = chat(&out, lines, &["--max-new-tokens", "40"]);
    assert_eq!(talk.code, Some(0), "{}", talk.errors);
    insta::assert_snapshot!(talk.output, @r"
    The capital of France is Paris.
    The capital of Italy is Rome.
    ");
    let direct = chat(Path::new(&file), lines, &["--max-new-tokens", "40"]);
    assert_eq!(direct.output, talk.output);
}
