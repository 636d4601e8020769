//! The body of a request to `seed serve`, for a chat or for a completion: it is refused with a reason, or answered in the
//! form it asks for, and the server goes on.
#![no_main]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use seed_model::{
    CHATML_TEMPLATE, CHATML_TOKENS, ChatTemplate, DecoderConfig, EngineOptions, ModelDirectory, Parameters,
    train_byte_level_bpe,
};
use seed_random::RandomKey;
use seed_serve::{ServeOptions, ServedModel, Server};
use serde_json::Value;

const CONFIG: &str = r#"{"model_type":"llama","vocab_size":272,"hidden_size":8,"intermediate_size":8,"eos_token_id":1,
"num_hidden_layers":1,"num_attention_heads":2,"tie_word_embeddings":true,"max_position_embeddings":48}"#;

/// Sequences that the server holds at a time.
const PLACES: usize = 6;

/// Where the server of a very small model listens.
fn address() -> SocketAddr {
    static ADDRESS: OnceLock<SocketAddr> = OnceLock::new();
    *ADDRESS.get_or_init(|| {
        let config = DecoderConfig::from_json(CONFIG).unwrap();
        let parameters = Parameters::initialise(&config, RandomKey::new(1));
        let tokenizer = train_byte_level_bpe(["go to desk 1"; 2], 270, &CHATML_TOKENS).unwrap();
        let chat = ChatTemplate::new(CHATML_TEMPLATE, &tokenizer).unwrap();
        let directory = ModelDirectory::new(config, parameters, tokenizer, Some(chat)).unwrap();
        let options = ServeOptions {
            engine: EngineOptions {
                max_active: 4,
                prefill_chunk: 16,
            },
            waiting: PLACES - 4,
            max_body_bytes: 1 << 16,
            ..ServeOptions::new("127.0.0.1:0".parse().unwrap())
        };
        let server = Server::bind(ServedModel::new("m", directory).unwrap(), options).unwrap();
        let address = server.address();
        std::thread::spawn(move || server.run(|| false));
        address
    })
}

/// Status and body of the answer.
fn post(path: &str, body: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(address()).unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: here\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: \
         {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    // A body that is too long is refused before it was read.
    let _ = stream.write_all(body);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).expect("answers are text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.expect("an answer has a status"), body.to_owned())
}

fuzz_target!(|input: (bool, &[u8])| {
    let (is_chat, bytes) = input;
    let path = if is_chat {
        "/v1/chat/completions"
    } else {
        "/v1/completions"
    };
    let (status, body) = post(path, bytes);
    if status != 200 {
        assert!(matches!(status, 400 | 404 | 413), "{status}: {body}");
        let answer: Value = serde_json::from_str(&body).expect("a refusal is JSON");
        assert!(
            answer["error"]["message"]
                .as_str()
                .is_some_and(|message| !message.is_empty())
        );
        return;
    }
    let request: Value = serde_json::from_slice(bytes).expect("what is answered was JSON");
    if request["stream"] == true {
        assert!(body.contains("data: [DONE]"), "{body}");
        assert!(!body.contains("\"error\""), "{body}");
        return;
    }
    let answer: Value = serde_json::from_str(&body).expect("an answer is JSON");
    let choices = answer["choices"].as_array().expect("an answer has choices").len();
    let wanted = request["n"].as_u64().unwrap_or(1) as usize;
    assert!(
        choices >= wanted && choices.is_multiple_of(wanted) && choices <= PLACES,
        "{body}"
    );
    let usage = &answer["usage"];
    let count = |key: &str| usage[key].as_u64().expect("usage is counted");
    assert!(count("prompt_tokens") >= 1);
    assert_eq!(
        count("prompt_tokens") + count("completion_tokens"),
        count("total_tokens")
    );
});
