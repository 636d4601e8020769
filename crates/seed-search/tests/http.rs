//! The client against servers that are down, slow or talk nonsense, and our own server from both sides.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests fail as tests do")]
#![expect(clippy::panic, reason = "a retriever is made to panic")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use seed_search::{
    FoundPassage, HttpOptions, HttpRetriever, Passage, QueryPayload, RetrievalServer, Retriever,
    RetrieverError, SearchError, ServerOptions,
};
use serde_json::{Value, json};

/// What the server does with one connection.
#[derive(Clone, Debug)]
enum Behaviour {
    /// Answers with status and body.
    Answer(u16, String),
    /// Promises more bytes than it sends.
    CutOff,
    /// Answers with something that is not HTTP.
    Noise,
    /// Closes the connection at once.
    Close,
    /// Says nothing for this long.
    Silence(Duration),
}

/// A server that treats its connections by script, then keeps repeating the last line of it.
struct Scripted {
    url: String,
    bodies: Arc<Mutex<Vec<String>>>,
}

impl Scripted {
    fn start(script: Vec<Behaviour>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/retrieve", listener.local_addr().unwrap());
        let bodies = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&bodies);
        thread::spawn(move || {
            for (index, stream) in listener.incoming().enumerate() {
                let behaviour = script[index.min(script.len() - 1)].clone();
                let seen = Arc::clone(&seen);
                // The client may be gone already.
                thread::spawn(move || serve(stream.unwrap(), behaviour, &seen));
            }
        });
        Self { url, bodies }
    }

    fn options(&self) -> HttpOptions {
        HttpOptions {
            attempts: 3,
            retry_delay: Duration::from_millis(1),
            timeout_seconds: 10.0,
            ..HttpOptions::new(vec![self.url.clone()])
        }
    }

    fn bodies(&self) -> Vec<String> {
        self.bodies.lock().unwrap().clone()
    }
}

fn serve(stream: TcpStream, behaviour: Behaviour, bodies: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Ok(());
        }
    }
    let head = head.to_lowercase();
    let length = head
        .split("content-length: ")
        .nth(1)
        .and_then(|rest| rest.lines().next())
        .unwrap_or("0");
    let mut body = vec![0; length.trim().parse().unwrap()];
    reader.read_exact(&mut body)?;
    bodies.lock().unwrap().push(String::from_utf8(body).unwrap());
    let mut stream = reader.into_inner();
    match behaviour {
        Behaviour::Answer(status, body) => write!(
            stream,
            "HTTP/1.1 {status} Status\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        ),
        Behaviour::CutOff => write!(
            stream,
            "HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n{{\"result\": ["
        ),
        Behaviour::Noise => write!(stream, "220 mail.example ready\r\n"),
        Behaviour::Close => Ok(()),
        Behaviour::Silence(duration) => {
            thread::sleep(duration);
            Ok(())
        }
    }
}

fn ok(body: &Value) -> Behaviour {
    Behaviour::Answer(200, body.to_string())
}

fn status(status: u16) -> Behaviour {
    Behaviour::Answer(status, "so\nit is".into())
}

fn found() -> Behaviour {
    ok(&json!({"result": [[{"document": {"id": "4", "contents": "\"T\"\ntext"}, "score": 1.5}]]}))
}

/// Asks one query of a script; gives the answer, and how often the server was asked.
fn ask(script: Vec<Behaviour>) -> (Result<Vec<FoundPassage>, String>, usize) {
    ask_with(script, |_| {})
}

fn ask_with(
    script: Vec<Behaviour>,
    change: impl FnOnce(&mut HttpOptions),
) -> (Result<Vec<FoundPassage>, String>, usize) {
    let server = Scripted::start(script);
    let mut options = server.options();
    change(&mut options);
    let retriever = HttpRetriever::new(options).unwrap();
    let answer = retriever.retrieve(&["who?"], 3).map(|mut lists| {
        assert_eq!(lists.len(), 1);
        lists.remove(0)
    });
    let asked = server.bodies().len();
    (
        answer.map_err(|error| error.message.replace(&server.url, "URL")),
        asked,
    )
}

#[test]
fn both_payloads_ask_as_the_reference_does() {
    let server = Scripted::start(vec![found()]);
    let retriever = HttpRetriever::new(server.options()).unwrap();
    assert!(!retriever.is_native());
    let lists = retriever.retrieve(&["who?", "where?"], 3).unwrap();
    assert_eq!((lists.len(), lists[1][0].score), (2, Some(1.5)));
    assert_eq!(
        *lists[0][0].passage,
        Passage {
            id: "4".into(),
            contents: "\"T\"\ntext".into()
        }
    );
    let body = |query: &str| format!("{{\"query\":\"{query}\",\"topk\":3,\"return_scores\":true}}");
    assert_eq!(server.bodies(), [body("who?"), body("where?")]);
    let two = ok(&json!({"result": [[], [{"id": 7, "contents": "bare"}]]}));
    let server = Scripted::start(vec![two]);
    let batch = HttpOptions {
        payload: QueryPayload::Batch,
        ..server.options()
    };
    let lists = HttpRetriever::new(batch)
        .unwrap()
        .retrieve(&["who?", "where?"], 5)
        .unwrap();
    assert!(lists[0].is_empty());
    assert_eq!((lists[1][0].passage.id.as_str(), lists[1][0].score), ("7", None));
    assert_eq!(
        server.bodies(),
        ["{\"queries\":[\"who?\",\"where?\"],\"topk\":5,\"return_scores\":true}"]
    );
}

#[test]
fn answers_of_other_servers_are_read() {
    let contents = |answer: &Value| {
        ask(vec![ok(answer)])
            .0
            .unwrap()
            .iter()
            .map(|found| found.passage.contents.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        contents(&json!({"result": [[{"document": {"title": " T ", "content": "c "}}]]})),
        ["\"T\"\nc"]
    );
    assert_eq!(
        contents(&json!({"result": [[{"document": {"title": "", "content": "c"}}]]})),
        ["c"]
    );
    assert_eq!(contents(&json!({"result": []})), Vec::<String>::new());
    assert_eq!(contents(&json!({"result": [[]]})), Vec::<String>::new());
}

#[test]
fn passing_failures_are_tried_again() {
    let half = Duration::from_millis(500);
    for failure in [
        status(500),
        status(502),
        status(503),
        status(504),
        Behaviour::CutOff,
        Behaviour::Noise,
        Behaviour::Close,
    ] {
        let (answer, asked) = ask(vec![failure.clone(), failure.clone(), found()]);
        assert!(answer.is_ok(), "{failure:?}: {answer:?}");
        assert_eq!(asked, 3, "{failure:?}");
    }
    let (answer, asked) = ask_with(vec![Behaviour::Silence(half), found()], |options| {
        options.timeout_seconds = 0.2;
    });
    assert!(answer.is_ok() && asked == 2, "{answer:?}");
}

#[test]
fn lasting_failures_are_told_with_their_operands() {
    let error = |script| {
        let (answer, asked) = ask(script);
        format!("{} asked {asked}", answer.unwrap_err())
    };
    insta::assert_snapshot!(error(vec![status(503)]), @"`URL` answered with status 503: so it is (attempt 3 of 3) asked 3");
    insta::assert_snapshot!(error(vec![status(404)]), @"`URL` answered with status 404: so it is (attempt 1 of 3) asked 1");
    insta::assert_snapshot!(error(vec![Behaviour::Answer(307, String::new())]), @"`URL` answered with status 307: (no body) (attempt 1 of 3) asked 1");
    insta::assert_snapshot!(error(vec![Behaviour::Answer(200, "<html>".into())]), @"`URL` gave an answer that cannot be read: it is no JSON: expected value at line 1 column 1 (attempt 1 of 3) asked 1");
    insta::assert_snapshot!(error(vec![ok(&json!([1]))]), @"`URL` gave an answer that cannot be read: it has no list `result` (attempt 1 of 3) asked 1");
    insta::assert_snapshot!(error(vec![ok(&json!({"result": "none"}))]), @"`URL` gave an answer that cannot be read: it has no list `result` (attempt 1 of 3) asked 1");
    insta::assert_snapshot!(error(vec![ok(&json!({"result": [[], []]}))]), @"`URL` gave an answer that cannot be read: it has 2 lists for 1 queries (attempt 1 of 3) asked 1");
    insta::assert_snapshot!(error(vec![ok(&json!({"result": [{}]}))]), @"`URL` gave an answer that cannot be read: a part of `result` is no list (attempt 1 of 3) asked 1");
    insta::assert_snapshot!(error(vec![ok(&json!({"result": [[{"document": {"id": "1"}}]]}))]), @"`URL` gave an answer that cannot be read: it holds a passage without `contents` (attempt 1 of 3) asked 1");
    let (answer, asked) = ask_with(vec![Behaviour::Silence(Duration::from_secs(2))], |options| {
        options.timeout_seconds = 0.05;
        options.attempts = 2;
    });
    insta::assert_snapshot!(format!("{} asked {asked}", answer.unwrap_err()), @"`URL` did not answer within 0.05 s (attempt 2 of 2) asked 2");
    let (answer, asked) = ask_with(vec![found()], |options| options.max_response_bytes = 20);
    insta::assert_snapshot!(format!("{} asked {asked}", answer.unwrap_err()), @"`URL` gave an answer of more than 20 bytes (attempt 1 of 3) asked 1");
}

#[test]
fn a_server_that_is_down_is_asked_as_often_as_allowed() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let options = HttpOptions {
        attempts: 4,
        retry_delay: Duration::from_millis(1),
        ..HttpOptions::new(vec![format!("http://{address}/retrieve")])
    };
    let error = HttpRetriever::new(options)
        .unwrap()
        .retrieve(&["who?"], 3)
        .unwrap_err();
    assert!(error.message.contains("(attempt 4 of 4)"), "{error}");
}

#[test]
fn addresses_are_taken_in_turn() {
    let servers = [Scripted::start(vec![found()]), Scripted::start(vec![found()])];
    let urls = servers.iter().map(|server| server.url.clone()).collect();
    let retriever = HttpRetriever::new(HttpOptions::new(urls)).unwrap();
    for _ in 0..4 {
        retriever.retrieve(&["who?"], 3).unwrap();
    }
    assert_eq!(servers.map(|server| server.bodies().len()), [2, 2]);
}

#[test]
fn wrong_client_options_are_named() {
    let message = |change: &dyn Fn(&mut HttpOptions)| {
        let mut options = HttpOptions::new(vec!["http://127.0.0.1:1/retrieve".into()]);
        change(&mut options);
        HttpRetriever::new(options).unwrap_err().to_string()
    };
    let url = |url: &'static str| message(&move |options| options.urls = vec![url.to_owned()]);
    let messages = [
        message(&|options| options.urls.clear()),
        url("localhost"),
        url("ftp://host/retrieve"),
        url("http://me:secret@host/retrieve"),
        message(&|options| options.timeout_seconds = f64::NAN),
        message(&|options| options.attempts = 0),
        message(&|options| options.token_variable = Some("SEED_TEST_TOKEN_THAT_IS_NOT_SET".into())),
        message(&|options| {
            options.urls = vec!["http://example.org/retrieve".into()];
            options.token_variable = Some("PATH".into());
        }),
    ];
    assert!(messages.iter().all(|message| !message.contains("secret")));
    insta::assert_snapshot!(messages.join("\n"), @r#"
    `urls` is `0`; it must be at least one address
    `urls` is `localhost`; it must be an address such as `http://127.0.0.1:8000/retrieve`
    `urls` is `ftp://host/retrieve`; it must be an address such as `http://127.0.0.1:8000/retrieve`
    `urls` is `[hidden]`; it must be free of user and password; put a token in an environment variable
    `timeout_seconds` is `NaN`; it must be between 0.001 and 86400
    `attempts` is `0`; it must be at least 1
    `token_variable` is `SEED_TEST_TOKEN_THAT_IS_NOT_SET`; it must be an environment variable that holds a token of printable characters
    `urls` is `http://example.org/retrieve`; it must be https where a token is sent to another machine
    "#);
}

/// Repeats the query as many times as asked, unless told to break.
struct Repeater;

impl Retriever for Repeater {
    fn retrieve(&self, queries: &[&str], count: usize) -> Result<Vec<Vec<FoundPassage>>, RetrieverError> {
        let list = |query: &&str| {
            let passage = |index| FoundPassage {
                passage: Arc::new(Passage {
                    id: format!("{index}"),
                    contents: format!("\"é\"\n{query}"),
                }),
                score: Some(1.0 / (index + 1) as f32),
            };
            (0..count).map(passage).collect()
        };
        match queries {
            ["break"] => Err(RetrieverError {
                message: "broken".into(),
            }),
            ["panic"] => panic!("as asked"),
            ["slow"] => {
                thread::sleep(Duration::from_millis(300));
                Ok(vec![Vec::new()])
            }
            _ => Ok(queries.iter().map(list).collect()),
        }
    }

    fn identity(&self) -> String {
        "repeater".into()
    }
}

/// A running server of ours; it stops when this goes.
struct Running {
    url: String,
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<Result<(), SearchError>>>,
}

impl Running {
    fn start(change: impl FnOnce(&mut ServerOptions)) -> Self {
        let mut options = ServerOptions::new("127.0.0.1:0".parse().unwrap());
        change(&mut options);
        let server = RetrievalServer::bind(Arc::new(Repeater), options).unwrap();
        let url = format!("http://{}/retrieve", server.address());
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || server.run(move || stopped.load(Ordering::SeqCst)));
        Self {
            url,
            stop,
            thread: Some(thread),
        }
    }

    /// Status and body of a request.
    fn post(&self, body: &str) -> (u16, String) {
        post(&self.url, body, None)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.take().unwrap().join().unwrap().unwrap();
    }
}

fn post(url: &str, body: &str, token: Option<&str>) -> (u16, String) {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .proxy(None)
        .build()
        .into();
    let mut post = agent.post(url).header("content-type", "application/json");
    if let Some(token) = token {
        post = post.header("authorization", format!("Bearer {token}"));
    }
    let mut response = post.send(body).unwrap();
    (
        response.status().as_u16(),
        response.body_mut().read_to_string().unwrap(),
    )
}

#[test]
fn the_server_answers_both_forms() {
    let server = Running::start(|_| {});
    let answers = [
        server.post(r#"{"query": "who?", "topk": 1, "return_scores": true}"#),
        server.post(r#"{"queries": ["a", "b"], "topk": 2, "return_scores": false, "other": 1}"#),
        server.post(r#"{"queries": [], "topk": 2}"#),
    ];
    insta::assert_snapshot!(answers.map(|(status, body)| format!("{status} {body}")).join("\n"), @r#"
    200 {"result":[[{"document":{"id":"0","contents":"\"é\"\nwho?"},"score":1.0}]]}
    200 {"result":[[{"id":"0","contents":"\"é\"\na"},{"id":"1","contents":"\"é\"\na"}],[{"id":"0","contents":"\"é\"\nb"},{"id":"1","contents":"\"é\"\nb"}]]}
    200 {"result":[]}
    "#);
    for body in [
        r#"{"query": "who?"}"#,
        r#"{"query": "who?", "topk": null}"#,
        r#"{"query": "who?", "topk": 0}"#,
    ] {
        let answer: Value = serde_json::from_str(&server.post(body).1).unwrap();
        assert_eq!(answer["result"][0].as_array().unwrap().len(), 3, "{body}");
    }
}

#[test]
fn the_server_refuses_what_is_wrong_and_survives() {
    let server = Running::start(|options| {
        options.max_body_bytes = 200;
        options.max_queries = 2;
        options.max_count = 5;
    });
    let long = format!(r#"{{"query": "{}"}}"#, "x".repeat(300));
    let answers = [
        "",
        "[]",
        "{}",
        r#"{"query": 4}"#,
        r#"{"queries": "a"}"#,
        r#"{"query": "a", "topk": -1}"#,
        r#"{"query": "a", "topk": 6}"#,
        r#"{"queries": ["a", "b", "c"]}"#,
        &long,
        r#"{"query": "break"}"#,
        r#"{"query": "panic"}"#,
    ]
    .map(|body| {
        let (status, answer) = server.post(body);
        format!("{status} {answer}")
    });
    insta::assert_snapshot!(answers.join("\n"), @r#"
    422 {"detail":"the body is no request: EOF while parsing a value at line 1 column 0"}
    422 {"detail":"the body is no request: invalid length 0, expected struct Request with 4 elements at line 1 column 2"}
    422 {"detail":"the body has neither `query` nor `queries`"}
    422 {"detail":"the body is no request: invalid type: integer `4`, expected a string at line 1 column 11"}
    422 {"detail":"the body is no request: invalid type: string \"a\", expected a sequence at line 1 column 15"}
    422 {"detail":"the body is no request: invalid value: integer `-1`, expected u64 at line 1 column 25"}
    422 {"detail":"`topk` is 6, above 5"}
    422 {"detail":"there are 3 queries, more than 2"}
    413 {"detail":"the body could not be read, or has more than 200 bytes: length limit exceeded"}
    500 {"detail":"broken"}
    500 {"detail":"the retriever panicked"}
    "#);
    let other = server.url.replace("/retrieve", "/other");
    assert_eq!(post(&other, "{}", None).0, 404);
    // Something that is not HTTP.
    let mut stream = TcpStream::connect(
        server
            .url
            .trim_start_matches("http://")
            .trim_end_matches("/retrieve"),
    )
    .unwrap();
    stream.write_all(b"\x16\x03\x01 no http\r\n\r\n").unwrap();
    assert_eq!(server.post(r#"{"query": "a"}"#).0, 200);
}

#[test]
fn requests_beyond_the_bound_are_told_to_come_back() {
    let server = Running::start(|options| {
        options.concurrency = 1;
        options.waiting = 0;
    });
    let slow = || server.post(r#"{"query": "slow"}"#).0;
    let mut statuses: Vec<u16> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(slow)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    statuses.sort_unstable();
    assert!(statuses.contains(&200) && statuses.contains(&503), "{statuses:?}");
    // Our client comes back until there is room.
    let options = HttpOptions {
        retry_delay: Duration::from_millis(100),
        ..HttpOptions::new(vec![server.url.clone()])
    };
    let retriever = HttpRetriever::new(options).unwrap();
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| retriever.retrieve(&["slow"], 1).unwrap());
        }
    });
}

#[test]
fn client_and_server_agree() {
    let server = Running::start(|_| {});
    for payload in [QueryPayload::Single, QueryPayload::Batch] {
        let options = HttpOptions {
            payload,
            ..HttpOptions::new(vec![server.url.clone()])
        };
        let retriever = HttpRetriever::new(options).unwrap();
        let queries = ["wer \"ist\" es?\n", "", "\u{1f600}"];
        assert_eq!(
            retriever.retrieve(&queries, 2).unwrap(),
            Repeater.retrieve(&queries, 2).unwrap()
        );
        assert_eq!(
            retriever.retrieve(&[], 2).unwrap(),
            Vec::<Vec<FoundPassage>>::new()
        );
    }
}

#[test]
fn others_can_reach_the_server_only_with_a_token() {
    let bind = |change: &dyn Fn(&mut ServerOptions)| {
        let mut options = ServerOptions::new("0.0.0.0:0".parse().unwrap());
        change(&mut options);
        RetrievalServer::bind(Arc::new(Repeater), options)
    };
    let refused = |change: &dyn Fn(&mut ServerOptions)| match bind(change) {
        Ok(_) => panic!("it listens"),
        Err(error) => error.to_string(),
    };
    insta::assert_snapshot!(refused(&|_| {}), @"`0.0.0.0:0` can be reached from other machines: name an environment variable with a token, or listen on a loopback address such as `127.0.0.1`");
    insta::assert_snapshot!(refused(&|options| options.token_variable = Some("SEED_TEST_TOKEN_THAT_IS_NOT_SET".into())), @"environment variable `SEED_TEST_TOKEN_THAT_IS_NOT_SET` holds no token: set it to one word of visible ASCII characters");
    // `CARGO_PKG_NAME` is set for every test: a token that is known.
    let token = std::env::var("CARGO_PKG_NAME").unwrap();
    let server = Running::start(|options| options.token_variable = Some("CARGO_PKG_NAME".into()));
    let body = r#"{"query": "a"}"#;
    assert_eq!(server.post(body).0, 401);
    assert_eq!(post(&server.url, body, Some("wrong")).0, 401);
    assert_eq!(post(&server.url, body, Some(&token)).0, 200);
    let options = HttpOptions {
        token_variable: Some("CARGO_PKG_NAME".into()),
        ..HttpOptions::new(vec![server.url.clone()])
    };
    assert_eq!(
        HttpRetriever::new(options)
            .unwrap()
            .retrieve(&["a"], 1)
            .unwrap()
            .len(),
        1
    );
}

proptest! {
    /// Whatever a server answers, the client has a value or an error.
    #[test]
    fn any_answer_is_read_or_refused(result in prop::collection::vec(prop_oneof![
        Just(json!([])), Just(json!(null)), Just(json!([null])), Just(json!([{"document": 4}])), Just(json!([{"contents": "x", "score": "y"}])),
    ], 0..3)) {
        let (answer, asked) = ask(vec![ok(&json!({ "result": result }))]);
        prop_assert_eq!(asked, 1);
        if let Ok(list) = answer {
            prop_assert!(list.iter().all(|found| found.passage.contents == "x"));
        }
    }
}
