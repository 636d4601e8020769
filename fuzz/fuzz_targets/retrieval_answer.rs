//! What a retrieval server answers: a whole HTTP response, or the body of one.
#![no_main]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

use libfuzzer_sys::fuzz_target;
use seed_search::{HttpOptions, HttpRetriever, QueryPayload, Retriever};

/// Longest body read.
const LIMIT: u64 = 1 << 16;

/// A server on this machine that gives one response to each request; its address and where the responses go.
fn server() -> &'static (String, Sender<Vec<u8>>) {
    static SERVER: OnceLock<(String, Sender<Vec<u8>>)> = OnceLock::new();
    SERVER.get_or_init(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (sender, responses) = channel::<Vec<u8>>();
        std::thread::spawn(move || {
            for response in responses {
                let (mut stream, _) = listener.accept().unwrap();
                read_request(&mut stream);
                // The client may have gone away after the head.
                let _ = stream.write_all(&response);
            }
        });
        (address, sender)
    })
}

fn read_request(stream: &mut TcpStream) {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count == 1) {
        request.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&request).to_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    let _ = stream.read_exact(&mut body);
}

fuzz_target!(|input: (bool, &[u8])| {
    let (is_whole, bytes) = input;
    let (address, responses) = server();
    let response = if is_whole {
        bytes.to_vec()
    } else {
        let head = format!(
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            bytes.len()
        );
        [head.as_bytes(), bytes].concat()
    };
    responses.send(response).unwrap();
    let retriever = HttpRetriever::new(HttpOptions {
        payload: QueryPayload::Batch,
        timeout_seconds: 5.0,
        attempts: 1,
        max_response_bytes: LIMIT,
        ..HttpOptions::new(vec![format!("http://{address}/retrieve")])
    })
    .unwrap();
    match retriever.retrieve(&["who?", "where?"], 3) {
        Ok(lists) => assert_eq!(lists.len(), 2),
        Err(error) => assert!(error.message.contains("attempt 1 of 1")),
    }
});
