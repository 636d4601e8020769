//! A chat-completions server on loopback that answers as a test wants: with a skill, with nonsense, or not at all.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// What becomes of one request.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// A completion with this text.
    Text(String),
    /// A status and an error body.
    Status(u16),
    /// The connection is closed without a word.
    Nothing,
}

/// The server; it lives as long as the process.
pub(crate) struct Analyst {
    /// The address to configure.
    pub(crate) base_url: String,
    prompts: Arc<Mutex<Vec<String>>>,
}

impl Analyst {
    /// A server that answers each prompt by `answer`, which must depend on the prompt alone.
    pub(crate) fn start(answer: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
        let prompts = Arc::new(Mutex::new(Vec::new()));
        let (seen, answer) = (prompts.clone(), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (seen, answer) = (seen.clone(), answer.clone());
                // A client that was killed is gone.
                std::thread::spawn(move || stream.and_then(|stream| serve(stream, &seen, &*answer)));
            }
        });
        Self { base_url, prompts }
    }

    /// A server that writes a skill for every episode.
    pub(crate) fn skilled() -> Self {
        Self::start(|prompt| Answer::Text(completion_text(&skill_for(prompt))))
    }

    /// An address at which nobody listens.
    pub(crate) fn nobody() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}/v1", listener.local_addr().unwrap())
    }

    /// Prompts received so far, in order of arrival.
    pub(crate) fn prompts(&self) -> Vec<String> {
        self.prompts.lock().unwrap().clone()
    }
}

/// A number that depends on a prompt alone.
pub(crate) fn number_of(prompt: &str) -> u64 {
    prompt.bytes().fold(14_695_981_039_346_656_037, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(1_099_511_628_211)
    })
}

/// A skill that depends on a prompt alone.
pub(crate) fn skill_for(prompt: &str) -> String {
    let number = number_of(prompt);
    let place = ["desk 1", "shelf 2", "drawer 3", "bed 1"][(number >> 20) as usize % 4];
    format!(
        "Go to {place} first, then look into drawer {} before anything else.",
        (number >> 40) % 7 + 1
    )
}

/// An analysis in the form that is asked for.
pub(crate) fn completion_text(skill: &str) -> String {
    json!({ "episode_summary": "The agent looked around.", "episode_skill": skill }).to_string()
}

fn serve(
    stream: TcpStream,
    seen: &Mutex<Vec<String>>,
    answer: &dyn Fn(&str) -> Answer,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let body: Value = serde_json::from_slice(&body)?;
    let prompt = body["messages"][0]["content"].as_str().unwrap().to_owned();
    let answer = answer(&prompt);
    seen.lock().unwrap().push(prompt);
    let (status, body) = match answer {
        Answer::Nothing => return Ok(()),
        Answer::Status(status) => (status, "{\"error\": \"as the test wants\"}".to_owned()),
        Answer::Text(text) => {
            let message = json!({ "role": "assistant", "content": text });
            let choice = json!({ "index": 0, "message": message, "finish_reason": "stop" });
            let usage = json!({ "prompt_tokens": 7, "completion_tokens": 5 });
            (200, json!({ "choices": [choice], "usage": usage }).to_string())
        }
    };
    write!(
        reader.into_inner(),
        "HTTP/1.1 {status} Status\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}
