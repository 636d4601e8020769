//! `seed doctor`: what it looks at, and its exit code.

mod common;

use std::path::Path;

use common::support::analyst::Analyst;
use common::{Scratch, finish, program, seed};
use serde_json::Value;

#[test]
fn a_sound_configuration_has_nothing_wrong() {
    let scratch = Scratch::new(&Analyst::nobody());
    let config = scratch.config("run");
    let config = config.to_str().unwrap();
    let own = [
        "--set",
        "seed.analyser=\"policy\"",
        "--set",
        "endpoint.model=\"\"",
    ];
    let ended = finish(program().args(["doctor", config, "--json"]).args(own));
    assert_eq!(
        (ended.code, ended.errors.as_str()),
        (Some(0), ""),
        "{}",
        ended.output
    );
    let answer: Value = serde_json::from_str(&ended.output).unwrap();
    assert_eq!(answer["wrong"], 0);
    let findings = answer["findings"].as_array().unwrap();
    let in_area = |area: &str| findings.iter().filter(|finding| finding["area"] == area).count();
    assert!(in_area("machine") >= 4 && in_area("model") >= 8 && in_area("data") == 1);
    for finding in findings {
        assert_eq!(
            finding["level"] == "fine",
            finding["remedy"].is_null(),
            "{finding}"
        );
    }
    let wrong = seed(&["doctor", config, "--json"]);
    assert_eq!(
        wrong.code,
        Some(1),
        "nobody listens at the endpoint: {}",
        wrong.output
    );
}

#[test]
fn an_endpoint_that_training_does_not_ask_is_not_examined() {
    let scratch = Scratch::new(&Analyst::nobody());
    let config = scratch.config("run");
    let doctor = |more: &[&str]| {
        let words = ["--json", "--set", "algorithm.name=grpo", "--set"];
        let ended = finish(program().arg("doctor").arg(&config).args(words).args(more));
        assert_eq!(ended.code, Some(0), "{}", ended.output);
        let answer: Value = serde_json::from_str(&ended.output).unwrap();
        assert_eq!(answer["wrong"], 0);
        let findings = answer["findings"].as_array().unwrap();
        assert!(findings.iter().all(|finding| finding["area"] != "endpoint"));
    };
    // The configuration has `analyser = "endpoint"`, and nobody listens there.
    doctor(&["seed.analyser=endpoint"]);
    doctor(&["endpoint.model=\"\""]);
}

#[test]
fn memory_is_estimated_for_the_model_that_is_named() {
    let scratch = Scratch::new(&Analyst::nobody());
    let memory = |config: &Path, more: &[&str]| {
        let ended = finish(program().arg("doctor").arg(config).arg("--json").args(more));
        let answer: Value = serde_json::from_str(&ended.output).unwrap();
        let findings = answer["findings"].as_array().unwrap().iter();
        let mut texts = findings.map(|finding| finding["text"].as_str().unwrap().to_owned());
        texts.find(|text| text.starts_with("training needs")).unwrap()
    };
    let config = scratch.config("run");
    let other = "embedded:household-tiny";
    let named = memory(&config, &["--model", other]);
    assert_eq!(
        named,
        memory(&config, &["--set", "model.path=embedded:household-tiny"])
    );
    assert_ne!(named, memory(&config, &[]));
}

#[test]
fn what_is_wrong_is_shown_with_what_to_do() {
    let ended = finish(program().args([
        "doctor",
        "--quiet",
        "--model",
        "/no/such/model",
        "--endpoint",
        "http://127.0.0.1:1/v1",
    ]));
    assert_eq!(ended.code, Some(1));
    // What the machine has comes first; the system words its own reason.
    let lines: Vec<&str> = ended
        .output
        .lines()
        .skip_while(|line| !line.contains(" model "))
        .map(|line| line.split(" reached: ").next().unwrap_or(line))
        .collect();
    insta::assert_snapshot!(lines.join("\n"), @r"
    wrong   model     `/no/such/model/config.json` is missing: name the directory of a model in the Hugging Face layout
                      to do: correct what is named, or fetch or export the model again; docs/models.md lists the files and families that are read
    wrong   endpoint  `http://127.0.0.1:1/v1/models` cannot be
                      to do: start the server, or correct the address
    ");
    assert_eq!(seed(&["doctor"]).code, Some(0));
}
