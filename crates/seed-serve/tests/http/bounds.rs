//! Bounds, the token, clients that go away, and the end.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use seed_serve::{ServeError, ServedModel, Server};
use serde_json::{Value, json};

use crate::support::{Running, model, options};

const COMPLETIONS: &str = "/v1/completions";

/// A request that goes on until the context is full, and is seen to have begun.
fn long() -> Value {
    json!({"model": "tiny", "prompt": [5], "max_tokens": 250, "ignore_eos": true, "stream": true})
}

fn short() -> Value {
    json!({"model": "tiny", "prompt": [5], "max_tokens": 2})
}

#[test]
fn others_can_reach_the_server_only_with_a_token() {
    let bind = |variable: Option<&str>| {
        let mut options = options();
        options.address = "0.0.0.0:0".parse().unwrap();
        options.token_variable = variable.map(str::to_owned);
        Server::bind(ServedModel::new("tiny", model()).unwrap(), options).map(|_| ())
    };
    assert!(matches!(bind(None), Err(ServeError::Guard(_))));
    assert!(matches!(
        bind(Some("SEED_TEST_TOKEN_THAT_IS_NOT_SET")),
        Err(ServeError::Guard(_))
    ));
    // A variable that is set for every test: a token that is known.
    assert!(bind(Some("CARGO_PKG_NAME")).is_ok());
    let server = Running::start(|options| options.token_variable = Some("CARGO_PKG_NAME".into()));
    let token = format!("Bearer {}", std::env::var("CARGO_PKG_NAME").unwrap());
    let status = |path: &str, body: &str, headers: &[(&str, &str)]| {
        let method = if body.is_empty() { "GET" } else { "POST" };
        server.send(method, path, body, headers).0
    };
    let body = short().to_string();
    for headers in [&[][..], &[("authorization", "Bearer wrong")]] {
        assert_eq!(status(COMPLETIONS, &body, headers), 401);
        assert_eq!(status("/v1/models", "", headers), 401);
        assert_eq!(status("/health", "", headers), 200);
    }
    assert_eq!(status(COMPLETIONS, &body, &[("authorization", &token)]), 200);
    assert_eq!(status("/v1/models", "", &[("authorization", &token)]), 200);
}

#[test]
fn bodies_are_bounded_in_size_and_time() {
    let server = Running::start(|options| {
        options.max_body_bytes = 1000;
        options.body_timeout = Duration::from_millis(100);
    });
    let mut body = short();
    body["user"] = json!("x".repeat(1000));
    let (status, answer) = server.post(COMPLETIONS, &body);
    assert_eq!(status, 413, "{answer}");
    // Without a length, and with one that is never reached.
    for headers in ["transfer-encoding: chunked", "content-length: 500"] {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        write!(
            stream,
            "POST {COMPLETIONS} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n{headers}\r\n\r\n"
        )
        .unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 408");
    }
    assert_eq!(server.post(COMPLETIONS, &short()).0, 200);
}

#[test]
fn a_client_that_goes_away_frees_its_place() {
    let server = Running::start(|options| {
        options.engine.max_active = 1;
        options.waiting = 0;
    });
    let (status, answer) = {
        let mut two = short();
        two["n"] = json!(2);
        server.post(COMPLETIONS, &two)
    };
    assert_eq!((status, &answer["error"]["param"]), (400, &json!("n")));
    for stream in [true, false] {
        let mut body = long();
        body["stream"] = json!(stream);
        // Many of them, so that it takes a while.
        let holder = Running::start(|options| {
            options.engine.max_active = 40;
            options.waiting = 0;
        });
        body["n"] = json!(40);
        let mut full = short();
        full["n"] = json!(40);
        // Without a stream nothing says that the long request was taken, and a short one that comes first has it refused.
        let taken = (0..50).find_map(|_| {
            let connection = holder.begin(COMPLETIONS, &body, if stream { 100 } else { 0 });
            let refused = (0..20).find_map(|_| {
                let (status, answer) = holder.post(COMPLETIONS, &full);
                (status == 503).then_some(answer)
            });
            Some((connection, refused?))
        });
        let (connection, refused) = taken.unwrap();
        assert_eq!(refused["error"]["code"], "overloaded");
        assert_eq!(refused["error"]["type"], "server_error");
        drop(connection);
        let until = Instant::now() + Duration::from_secs(20);
        while holder.post(COMPLETIONS, &full).0 == 503 {
            assert!(Instant::now() < until, "the place is not free yet");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn responses_that_wait_leave_with_their_client() {
    let server = Running::start(|options| {
        options.engine.max_active = 2;
        options.waiting = 48;
    });
    let mut body = long();
    body["n"] = json!(25);
    body["prompt"] = json!([[5, 6, 7], [8, 9]]);
    let connection = server.begin(COMPLETIONS, &body, 100);
    let mut full = short();
    full["n"] = json!(50);
    assert_eq!(server.post(COMPLETIONS, &full).0, 503);
    drop(connection);
    let until = Instant::now() + Duration::from_secs(20);
    while server.post(COMPLETIONS, &full).0 == 503 {
        assert!(Instant::now() < until, "the places are not free yet");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_stopped_server_finishes_what_was_begun_and_takes_no_more() {
    let server = Running::start(|_| {});
    let mut connection = server.begin(COMPLETIONS, &long(), 100);
    server.stop();
    let mut rest = String::new();
    connection.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("\"finish_reason\":\"length\""), "{rest}");
    assert!(rest.contains("data: [DONE]"));
    let port = server.port;
    assert_eq!(server.end().abandoned, 0);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
}

#[test]
fn what_takes_too_long_at_the_end_is_given_up() {
    let server = Running::start(|options| options.drain_timeout = Duration::ZERO);
    let mut body = long();
    body["n"] = json!(64);
    let _connection = server.begin(COMPLETIONS, &body, 100);
    assert_eq!(server.end().abandoned, 64);
}
