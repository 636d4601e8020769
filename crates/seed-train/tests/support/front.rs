//! A server in front of another: a test decides what it answers itself and what it passes on.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use serde_json::Value;

type Decide = dyn Fn(&str, &Value) -> Option<(u16, Value)> + Send + Sync;

/// The server; it lives as long as the process.
pub(crate) struct Front {
    pub(crate) url: String,
}

impl Front {
    /// A server that answers what `decide` says for a path and a body, and passes everything else on to `behind`.
    pub(crate) fn start(
        behind: String,
        decide: impl Fn(&str, &Value) -> Option<(u16, Value)> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let decide: Arc<Decide> = Arc::new(decide);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (behind, decide) = (behind.clone(), Arc::clone(&decide));
                std::thread::spawn(move || {
                    let mut stream = stream.unwrap();
                    let (path, body) = read(&stream);
                    let (status, answer) =
                        decide(&path, &body).unwrap_or_else(|| post(&behind, &path, &body));
                    write(&mut stream, status, &answer);
                });
            }
        });
        Self { url }
    }
}

/// Asks a server.
pub(crate) fn post(url: &str, path: &str, body: &Value) -> (u16, Value) {
    let address = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let body = body.to_string();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let status = line.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_slice(&rest(&mut reader)).unwrap())
}

fn read(stream: &TcpStream) -> (String, Value) {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let path = line.split(' ').nth(1).unwrap().to_owned();
    (path, serde_json::from_slice(&rest(&mut reader)).unwrap())
}

/// The body behind the headers.
fn rest(reader: &mut impl BufRead) -> Vec<u8> {
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
    body
}

fn write(stream: &mut TcpStream, status: u16, body: &Value) {
    let body = body.to_string();
    let _ = write!(
        stream,
        "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
}
