//! What the tests of this crate share: an engine that is a list of recorded answers, and a tiny model.

#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "the helpers of these tests fail as tests do")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;
use std::thread::JoinHandle;

use seed_model::{
    CHATML_TOKENS, DecoderConfig, Family, ModelDirectory, Parameters, RopeScaling, train_byte_level_bpe,
};
use seed_random::RandomKey;
use serde_json::Value;

/// Tokens that a sequence of the tiny model may have.
pub(crate) const CONTEXT: usize = 64;

/// A model of two small layers.
pub(crate) fn model(seed: u64) -> ModelDirectory {
    let config = DecoderConfig {
        family: Family::Qwen3,
        vocabulary_size: 300,
        hidden_size: 16,
        intermediate_size: 24,
        layers: 2,
        query_heads: 2,
        key_value_heads: 1,
        head_dim: 8,
        rms_norm_epsilon: 1e-5,
        rope_theta: 10_000.0,
        rope_scaling: RopeScaling::None,
        max_positions: CONTEXT,
        tied_embeddings: true,
        attention_bias: false,
        query_key_norm: true,
        initializer_range: 0.3,
        begin_token: None,
        end_tokens: vec![1],
    };
    let parameters = Parameters::initialise(&config, RandomKey::new(seed));
    let tokenizer = train_byte_level_bpe(["again and again"; 2], 290, &CHATML_TOKENS).unwrap();
    ModelDirectory::new(config, parameters, tokenizer, None).unwrap()
}

/// What becomes of one connection.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// A status and a body.
    Body(u16, String),
    /// Nothing, on an open connection.
    Silent,
    /// The connection is closed.
    Gone,
}

impl Answer {
    pub(crate) fn json(body: &Value) -> Self {
        Self::Body(200, body.to_string())
    }
}

/// What an engine was asked: a path with a body.
pub(crate) type Call = (String, Value);

/// Connections without an answer, which stay open.
static HELD: Mutex<Vec<TcpStream>> = Mutex::new(Vec::new());

/// An engine that answers one connection after the other, and returns what it was asked.
pub(crate) fn stub(answers: Vec<Answer>) -> (String, JoinHandle<Vec<Call>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let thread = std::thread::spawn(move || {
        let exchange = |answer: Answer| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            let path = line.split(' ').nth(1).unwrap().to_owned();
            let mut length = 0;
            loop {
                let mut header = String::new();
                reader.read_line(&mut header).unwrap();
                let header = header.trim().to_ascii_lowercase();
                if header.is_empty() {
                    break;
                }
                if let Some(value) = header.strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            match answer {
                Answer::Body(status, answer) => write!(
                    stream,
                    "HTTP/1.1 {status} x\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{answer}",
                    answer.len()
                )
                .unwrap(),
                Answer::Silent => HELD.lock().unwrap().push(stream),
                Answer::Gone => {}
            }
            (path, serde_json::from_slice(&body).unwrap())
        };
        answers.into_iter().map(exchange).collect()
    });
    (url, thread)
}
