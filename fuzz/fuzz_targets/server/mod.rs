//! A server on this machine that answers what a fuzzer wants it to.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

/// The server's next response: `bytes` as they are, or as the body of a good response. Gives the server's address.
pub fn answers(is_whole: bool, bytes: &[u8]) -> &'static str {
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
    address
}

/// The server, which gives one response to each request: its address and where the responses go.
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

