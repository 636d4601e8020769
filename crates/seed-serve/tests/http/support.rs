//! A small random model behind a server on a free port, and requests to it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use seed_model::{
    CHATML_TEMPLATE, CHATML_TOKENS, ChatTemplate, DecoderConfig, Family, ModelDirectory, Parameters,
    RopeScaling, train_byte_level_bpe,
};
use seed_random::RandomKey;
use seed_serve::{Drained, ServeError, ServeOptions, ServedModel, Server};
use serde_json::Value;

/// Tokens of the model's context.
pub(crate) const CONTEXT: usize = 256;

const TEXTS: [&str; 4] = [
    "You open the drawer 12. In it, you see a keychain 2.",
    "It's 中文, and 🙂 … again and again",
    "go to the desk 1 and take the keychain 2 from the drawer 12",
    "What is the capital of the country? The capital is a city.",
];

/// A model whose responses are random texts of some tokens.
pub(crate) fn model() -> ModelDirectory {
    let config = DecoderConfig {
        family: Family::Qwen3,
        vocabulary_size: 320,
        hidden_size: 32,
        intermediate_size: 48,
        layers: 2,
        query_heads: 4,
        key_value_heads: 2,
        head_dim: 8,
        rms_norm_epsilon: 1e-5,
        rope_theta: 10_000.0,
        rope_scaling: RopeScaling::None,
        max_positions: CONTEXT,
        tied_embeddings: true,
        attention_bias: false,
        query_key_norm: true,
        initializer_range: 0.2,
        begin_token: None,
        end_tokens: vec![1],
    };
    let parameters = Parameters::initialise(&config, RandomKey::new(11));
    let tokenizer = train_byte_level_bpe(TEXTS.repeat(2), 310, &CHATML_TOKENS).unwrap();
    let chat = ChatTemplate::new(CHATML_TEMPLATE, &tokenizer).unwrap();
    ModelDirectory::new(config, parameters, tokenizer, Some(chat)).unwrap()
}

pub(crate) fn options() -> ServeOptions {
    ServeOptions {
        drain_timeout: Duration::from_secs(20),
        ..ServeOptions::new("127.0.0.1:0".parse().unwrap())
    }
}

/// A server in a thread.
pub(crate) struct Running {
    /// `http://127.0.0.1:PORT`
    pub(crate) url: String,
    pub(crate) port: u16,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Drained, ServeError>>>,
}

impl Running {
    pub(crate) fn start(change: impl FnOnce(&mut ServeOptions)) -> Self {
        Self::with_model(model(), change)
    }

    pub(crate) fn with_model(model: ModelDirectory, change: impl FnOnce(&mut ServeOptions)) -> Self {
        let mut options = options();
        change(&mut options);
        let server = Server::bind(ServedModel::new("tiny", model).unwrap(), options).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        Self {
            url: format!("http://{}", server.address()),
            port: server.address().port(),
            thread: Some(std::thread::spawn(move || {
                server.run(move || flag.load(Ordering::SeqCst))
            })),
            stop,
        }
    }

    /// Tells it to stop.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Drained {
        self.stop();
        self.thread.take().unwrap().join().unwrap().unwrap()
    }

    /// Status and body of an answer.
    pub(crate) fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let (status, text) = self.send("POST", path, &body.to_string(), &[]);
        (status, serde_json::from_str(&text).unwrap())
    }

    /// The choices of an answer that must succeed.
    pub(crate) fn choices(&self, path: &str, body: &Value) -> Vec<Value> {
        let (status, answer) = self.post(path, body);
        assert_eq!(status, 200, "{answer}");
        answer["choices"].as_array().unwrap().clone()
    }

    /// The pieces of a streamed answer, without the mark at its end.
    pub(crate) fn stream(&self, path: &str, body: &Value) -> Vec<Value> {
        let (status, text) = self.send("POST", path, &body.to_string(), &[]);
        assert_eq!(status, 200, "{text}");
        let data: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .collect();
        let (last, pieces) = data.split_last().unwrap();
        assert_eq!(*last, "[DONE]");
        pieces
            .iter()
            .map(|piece| serde_json::from_str(piece).unwrap())
            .collect()
    }

    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        body: &str,
        headers: &[(&str, &str)],
    ) -> (u16, String) {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .timeout_global(Some(Duration::from_mins(1)))
            .build()
            .new_agent();
        let mut request = ureq::http::Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.url));
        if !headers.iter().any(|(name, _)| *name == "content-type") {
            request = request.header("content-type", "application/json");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = if body.is_empty() {
            agent.run(request.body(()).unwrap())
        } else {
            agent.run(request.body(body.to_owned()).unwrap())
        };
        let mut answer = answer.unwrap();
        let text = answer.body_mut().read_to_string().unwrap();
        (answer.status().as_u16(), text)
    }

    /// A connection on which a request was sent, and of whose answer `some` bytes have come.
    pub(crate) fn begin(&self, path: &str, body: &Value, some: usize) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let body = body.to_string();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        stream.read_exact(&mut vec![0; some]).unwrap();
        stream
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take()
            && !std::thread::panicking()
        {
            thread.join().unwrap().unwrap();
        }
    }
}
