//! The project's own annotator client against the server.

use seed_hindsight::{Analyser, AnalysisRequest, EndpointAnalyser, EndpointOptions};
use seed_model::{Decoder, Message};
use serde_json::json;

use crate::support::{Running, model};

fn options(server: &Running) -> EndpointOptions {
    EndpointOptions {
        base_url: format!("{}/v1", server.url),
        model: "tiny".into(),
        max_tokens: 20,
        attempts: 1,
        ..EndpointOptions::default()
    }
}

#[test]
fn analyses_are_what_a_greedy_chat_answers() {
    let server = Running::start(|options| options.token_variable = Some("CARGO_PKG_NAME".into()));
    let mut options = options(&server);
    options.api_key_variable = Some("CARGO_PKG_NAME".into());
    let requests: Vec<AnalysisRequest> = ["What went wrong?", "Look back 🙂", "again"]
        .iter()
        .enumerate()
        .map(|(index, prompt)| AnalysisRequest {
            id: index.to_string(),
            prompt: (*prompt).to_owned(),
        })
        .collect();
    let replies = EndpointAnalyser::new(options).unwrap().analyse(&requests);
    let directory = model();
    let decoder = Decoder::new(directory.config.clone(), directory.parameters.clone()).unwrap();
    for (request, reply) in requests.iter().zip(replies) {
        let reply = reply.unwrap();
        let chat = directory.chat.as_ref().unwrap();
        let mut ids = chat
            .encode(&directory.tokenizer, &[Message::user(&request.prompt)], true)
            .unwrap();
        let start = ids.len();
        while ids.len() < start + 20 && !directory.end_tokens.contains(&ids[ids.len() - 1]) {
            let logits = decoder.logits(&ids).unwrap();
            let last = &logits[logits.len() - directory.config.vocabulary_size..];
            let greatest = last.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            ids.push(last.iter().position(|&logit| logit == greatest).unwrap() as u32);
        }
        let response = &ids[start..];
        assert_eq!(reply.text, directory.tokenizer.decode(response, true));
        assert_eq!(reply.completion_tokens, Some(response.len() as u64));
        assert_eq!(
            reply.truncated,
            !directory.end_tokens.contains(&response[response.len() - 1])
        );
    }
}

#[test]
fn what_the_server_refuses_reaches_the_annotator_as_its_message() {
    let server = Running::start(|_| {});
    let request = AnalysisRequest {
        id: "1".into(),
        prompt: "drawer ".repeat(300),
    };
    let reply = EndpointAnalyser::new(options(&server))
        .unwrap()
        .analyse(&[request])
        .remove(0);
    let message = reply.unwrap_err().to_string();
    assert!(
        message.contains("400") && message.contains("this model's context holds 256"),
        "{message}"
    );
    assert_eq!(
        server
            .post("/v1/completions", &json!({"model": "tiny", "prompt": "x"}))
            .0,
        200
    );
}
