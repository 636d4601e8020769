//! The endpoint analyser against a small HTTP server on loopback that misbehaves on request.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::*;

/// Requests that an echoing server waits for before it answers the first.
const ECHO_TOGETHER: usize = 3;

/// What the server does with one connection.
#[derive(Clone, Debug)]
enum Behaviour {
    /// Answers with status, extra header lines and body.
    Answer(u16, &'static str, String),
    /// Promises more bytes than it sends.
    CutOff,
    /// Answers with something that is not HTTP.
    Noise,
    /// Says nothing for this long.
    Silence(Duration),
}

/// A server that treats its connections by script, then keeps repeating the last line of it.
struct Server {
    base_url: String,
    /// Headers and body of every request, in the order of arrival.
    requests: Arc<Mutex<Vec<(String, String)>>>,
    /// Most requests under way at a time.
    most_at_once: Arc<AtomicUsize>,
}

impl Server {
    fn start(script: Vec<Behaviour>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let most_at_once = Arc::new(AtomicUsize::new(0));
        let server = Self {
            base_url,
            requests: Arc::clone(&requests),
            most_at_once: Arc::clone(&most_at_once),
        };
        let active = Arc::new(AtomicUsize::new(0));
        thread::spawn(move || {
            for (index, stream) in listener.incoming().enumerate() {
                let behaviour = script[index.min(script.len() - 1)].clone();
                let (requests, active, most) = (
                    Arc::clone(&requests),
                    Arc::clone(&active),
                    Arc::clone(&most_at_once),
                );
                thread::spawn(move || {
                    most.fetch_max(active.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    // The client may be gone already.
                    let _ = serve(stream.unwrap(), behaviour, &requests, &active, &most);
                });
            }
        });
        server
    }

    fn options(&self) -> EndpointOptions {
        EndpointOptions {
            base_url: self.base_url.clone(),
            model: "analyst".into(),
            attempts: 3,
            first_delay_milliseconds: 1,
            timeout_seconds: 10.0,
            ..EndpointOptions::default()
        }
    }

    fn requests(&self) -> Vec<(String, String)> {
        self.requests.lock().unwrap().clone()
    }
}

fn serve(
    stream: TcpStream,
    behaviour: Behaviour,
    requests: &Mutex<Vec<(String, String)>>,
    active: &AtomicUsize,
    most_at_once: &AtomicUsize,
) -> std::io::Result<()> {
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
    let body = String::from_utf8(body).unwrap();
    let prompt = body.clone();
    requests.lock().unwrap().push((head, body));
    let mut stream = reader.into_inner();
    let done = || active.fetch_sub(1, Ordering::SeqCst);
    match behaviour {
        Behaviour::Answer(status, headers, body) => {
            if body == "ECHO" {
                // Holds the first answers back until as many requests as expected are under way.
                let patience = Instant::now() + Duration::from_secs(20);
                while most_at_once.load(Ordering::SeqCst) < ECHO_TOGETHER && Instant::now() < patience {
                    thread::sleep(Duration::from_millis(1));
                }
            }
            let prompt: Value = serde_json::from_str(&prompt).unwrap();
            let echo = completion(prompt["messages"][0]["content"].as_str().unwrap());
            let body = if body == "ECHO" { echo } else { body };
            done();
            write!(
                stream,
                "HTTP/1.1 {status} Status\r\ncontent-type: application/json\r\ncontent-length: {}\r\n{headers}\
                 connection: close\r\n\r\n{body}",
                body.len()
            )
        }
        Behaviour::CutOff => {
            done();
            write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-length: 5000\r\nconnection: close\r\n\r\n{{\"choices\": ["
            )
        }
        Behaviour::Noise => {
            done();
            write!(stream, "220 mail.example ready\r\n")
        }
        Behaviour::Silence(duration) => {
            thread::sleep(duration);
            done();
            Ok(())
        }
    }
}

fn completion(text: &str) -> String {
    json!({
        "id": "x", "object": "chat.completion",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    })
    .to_string()
}

fn ok(text: &str) -> Behaviour {
    Behaviour::Answer(200, "", completion(text))
}

fn status(status: u16, body: &str) -> Behaviour {
    Behaviour::Answer(status, "", body.into())
}

fn request(id: &str, prompt: &str) -> AnalysisRequest {
    AnalysisRequest {
        id: id.into(),
        prompt: prompt.into(),
    }
}

/// One request against a script.
fn ask(script: Vec<Behaviour>) -> (Result<AnalysisReply, AnalyserError>, Server) {
    ask_with(script, |_| {})
}

fn ask_with(
    script: Vec<Behaviour>,
    change: impl FnOnce(&mut EndpointOptions),
) -> (Result<AnalysisReply, AnalyserError>, Server) {
    let server = Server::start(script);
    let mut options = server.options();
    change(&mut options);
    let mut analyser = EndpointAnalyser::new(options).unwrap();
    let mut answers = analyser.analyse(&[request("task:0", "What went wrong?")]);
    assert_eq!(answers.len(), 1);
    (answers.remove(0), server)
}

#[test]
fn an_answer_and_the_request_behind_it() {
    let (answer, server) = ask_with(vec![ok("Look first.")], |options| {
        options.temperature = 0.25;
    });
    let expected = AnalysisReply {
        text: "Look first.".into(),
        truncated: false,
        completion_tokens: Some(7),
    };
    assert_eq!(answer, Ok(expected));
    let (head, body) = &server.requests()[0];
    assert!(
        head.starts_with("post /v1/chat/completions http/1.1\r\n"),
        "{head}"
    );
    assert!(!head.contains("authorization"));
    let expected = json!({
        "model": "analyst", "messages": [{"role": "user", "content": "What went wrong?"}],
        "temperature": 0.25, "max_tokens": 4096, "stream": false
    });
    assert_eq!(serde_json::from_str::<Value>(body).unwrap(), expected);
}

#[test]
fn a_cut_off_completion_is_marked() {
    let body = completion("half").replace("stop", "length");
    let (answer, _) = ask(vec![Behaviour::Answer(200, "", body)]);
    assert!(answer.unwrap().truncated);
}

#[test]
fn a_server_error_is_retried() {
    let (answer, server) = ask(vec![status(500, "oops"), status(503, "busy"), ok("fine")]);
    assert_eq!(answer.unwrap().text, "fine");
    assert_eq!(server.requests().len(), 3);
}

#[test]
fn retries_end() {
    let (answer, server) = ask(vec![status(502, "bad\n  gateway")]);
    let error = answer.unwrap_err();
    assert!(
        matches!(
            &error,
            AnalyserError::Status {
                status: 502,
                attempts: 3,
                ..
            }
        ),
        "{error:?}"
    );
    assert!(
        error
            .to_string()
            .ends_with("answered status 502 after 3 attempts: bad gateway"),
        "{error}"
    );
    assert_eq!(server.requests().len(), 3);
}

#[test]
fn a_refusal_is_final() {
    for code in [400, 401, 404, 307] {
        let (answer, server) = ask(vec![status(code, ""), ok("never")]);
        let error = answer.unwrap_err();
        assert!(
            matches!(&error, AnalyserError::Status { attempts: 1, excerpt, .. } if excerpt == "(no body)")
        );
        assert_eq!(server.requests().len(), 1, "status {code}");
    }
}

#[test]
fn the_wait_the_endpoint_asks_for_is_kept() {
    let limited = Behaviour::Answer(429, "retry-after: 0.2\r\n", "slow down".into());
    let start = Instant::now();
    let (answer, server) = ask(vec![limited, ok("fine")]);
    assert_eq!(
        (answer.unwrap().text.as_str(), server.requests().len()),
        ("fine", 2)
    );
    assert!(start.elapsed() >= Duration::from_millis(200));
}

#[test]
fn waits_double_up_to_a_bound_and_repeat() {
    let server = Server::start(vec![ok("")]);
    let options = EndpointOptions {
        first_delay_milliseconds: 1000,
        max_delay_milliseconds: 5000,
        ..server.options()
    };
    let analyser = EndpointAnalyser::new(options).unwrap();
    let longest: Vec<u128> = (1..=4)
        .map(|attempt| analyser.delay(attempt, None, 1.0).as_millis())
        .collect();
    assert_eq!(longest, [1000, 2000, 4000, 5000]);
    assert_eq!(analyser.delay(1, None, 0.0).as_millis(), 500);
    assert_eq!(analyser.delay(200, None, 1.0).as_millis(), 5000);
    let asked = |seconds| {
        analyser
            .delay(1, Some(Duration::from_secs(seconds)), 0.0)
            .as_millis()
    };
    assert_eq!((asked(2), asked(3600)), (2000, 5000));
}

#[test]
fn silence_times_out() {
    let (answer, server) = ask_with(vec![Behaviour::Silence(Duration::from_secs(5))], |options| {
        options.timeout_seconds = 0.1;
        options.attempts = 2;
    });
    let url = format!("{}/chat/completions", server.base_url);
    assert_eq!(
        answer,
        Err(AnalyserError::TimedOut {
            url,
            seconds: 0.1,
            attempts: 2
        })
    );
}

#[test]
fn nobody_there() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
    drop(listener);
    let options = EndpointOptions {
        base_url,
        model: "m".into(),
        attempts: 2,
        first_delay_milliseconds: 1,
        ..EndpointOptions::default()
    };
    let answers = EndpointAnalyser::new(options)
        .unwrap()
        .analyse(&[request("a", "p"), request("b", "p")]);
    assert_eq!(answers.len(), 2);
    for answer in answers {
        let error = answer.unwrap_err();
        assert!(
            matches!(error, AnalyserError::Connection { attempts: 2, .. }),
            "{error:?}"
        );
        assert!(
            error.to_string().contains("check that the endpoint is up"),
            "{error}"
        );
    }
}

#[test]
fn garbage_is_named() {
    for (body, reason) in [
        ("<html>login</html>", "expected value"),
        ("{\"choices\": []}", "`choices` is empty"),
        (
            "{\"choices\": [{\"message\": {\"role\": \"assistant\"}}]}",
            "the message has no content",
        ),
        ("{\"error\": \"no model\"}", "missing field `choices`"),
        ("", "EOF"),
    ] {
        let (answer, server) = ask(vec![status(200, body)]);
        let error = answer.unwrap_err();
        assert!(
            matches!(error, AnalyserError::Malformed { attempts: 3, .. }),
            "{body}: {error:?}"
        );
        assert!(error.to_string().contains(reason), "{body}: {error}");
        assert_eq!(server.requests().len(), 3);
    }
}

#[test]
fn broken_transfers_are_retried() {
    for broken in [Behaviour::CutOff, Behaviour::Noise] {
        let (answer, server) = ask(vec![broken.clone(), ok("fine")]);
        assert_eq!(
            (answer.unwrap().text.as_str(), server.requests().len()),
            ("fine", 2),
            "{broken:?}"
        );
        let (answer, _) = ask(vec![broken.clone()]);
        let error = answer.unwrap_err();
        assert!(
            matches!(error, AnalyserError::Connection { attempts: 3, .. }),
            "{broken:?}: {error:?}"
        );
    }
}

#[test]
fn long_bodies_are_refused_unread() {
    let (answer, server) = ask_with(vec![ok(&"x".repeat(5000))], |options| {
        options.max_response_bytes = 1000;
    });
    let url = format!("{}/chat/completions", server.base_url);
    assert_eq!(answer, Err(AnalyserError::Oversized { url, limit: 1000 }));
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn many_requests_keep_their_order_under_the_limit() {
    let server = Server::start(vec![Behaviour::Answer(200, "", "ECHO".into())]);
    let mut analyser = EndpointAnalyser::new(EndpointOptions {
        concurrency: ECHO_TOGETHER,
        ..server.options()
    })
    .unwrap();
    let requests: Vec<_> = (0..12)
        .map(|index| request(&index.to_string(), &format!("prompt {index}")))
        .collect();
    let answers = analyser.analyse(&requests);
    let texts: Vec<String> = answers.into_iter().map(|answer| answer.unwrap().text).collect();
    assert_eq!(
        texts,
        requests
            .iter()
            .map(|request| request.prompt.clone())
            .collect::<Vec<_>>()
    );
    assert_eq!(server.most_at_once.load(Ordering::SeqCst), ECHO_TOGETHER);
    assert!(analyser.analyse(&[]).is_empty());
}

const KEY: &str = "sk-very-secret-1234";

fn with_key(options: EndpointOptions) -> Result<EndpointAnalyser, AnalyserError> {
    let options = EndpointOptions {
        api_key_variable: Some("ANALYST_KEY".into()),
        ..options
    };
    EndpointAnalyser::with_environment(options, |variable| {
        assert_eq!(variable, "ANALYST_KEY");
        Some(format!(" {KEY}\n"))
    })
}

#[test]
fn the_key_is_sent_and_never_shown() {
    let server = Server::start(vec![status(401, &format!("Incorrect API key provided: {KEY}"))]);
    let mut analyser = with_key(server.options()).unwrap();
    let error = analyser.analyse(&[request("a", "p")]).remove(0).unwrap_err();
    assert!(
        server.requests()[0]
            .0
            .contains(&format!("authorization: bearer {KEY}\r\n"))
    );
    for shown in [error.to_string(), format!("{error:?}"), format!("{analyser:?}")] {
        assert!(!shown.contains(KEY), "{shown}");
    }
    assert!(
        error
            .to_string()
            .ends_with("Incorrect API key provided: [hidden]"),
        "{error}"
    );
    let saved = serde_json::to_string(&analyser.options).unwrap();
    assert!(saved.contains("ANALYST_KEY") && !saved.contains(KEY));
}

#[test]
fn missing_and_unusable_keys_are_named_by_variable() {
    for found in [None, Some(""), Some("  "), Some("two\nlines")] {
        let options = EndpointOptions {
            model: "m".into(),
            api_key_variable: Some("ANALYST_KEY".into()),
            ..EndpointOptions::default()
        };
        let error = EndpointAnalyser::with_environment(options, |_| found.map(str::to_owned)).unwrap_err();
        assert_eq!(
            error,
            AnalyserError::MissingKey {
                variable: "ANALYST_KEY".into()
            }
        );
    }
}

#[test]
fn keys_do_not_travel_unencrypted() {
    let at = |base_url: &str| EndpointOptions {
        base_url: base_url.into(),
        model: "m".into(),
        ..EndpointOptions::default()
    };
    let error = with_key(at("http://10.0.0.5:8000/v1")).unwrap_err();
    assert!(matches!(error, AnalyserError::UnprotectedKey { .. }), "{error:?}");
    for fine in [
        "https://api.example.com/v1/",
        "http://localhost:1/v1",
        "http://[::1]:1/v1",
        "http://127.0.0.9/v1",
    ] {
        assert!(with_key(at(fine)).is_ok(), "{fine}");
    }
    let analyser = with_key(at("https://api.example.com/v1/")).unwrap();
    assert_eq!(analyser.url, "https://api.example.com/v1/chat/completions");
}

#[test]
fn options_out_of_range_are_named() {
    let base = EndpointOptions {
        model: "m".into(),
        ..EndpointOptions::default()
    };
    let error = |change: &dyn Fn(&mut EndpointOptions)| {
        let mut options = base.clone();
        change(&mut options);
        EndpointAnalyser::new(options).unwrap_err().to_string()
    };
    assert!(error(&|o| o.model = String::new()).contains("`model`"));
    assert!(error(&|o| o.concurrency = 0).contains("`concurrency` is `0`; it must be between 1 and 1024"));
    assert!(error(&|o| o.timeout_seconds = f64::NAN).contains("`timeout_seconds` is `NaN`"));
    assert!(error(&|o| o.attempts = 0).contains("`attempts`"));
    for url in [
        "ftp://host/v1",
        "host",
        "/v1",
        "not a url",
        "http://host/v1?key=1",
    ] {
        assert!(
            error(&|o| o.base_url = url.into()).contains("`base_url`"),
            "{url}"
        );
    }
    let leaky = error(&|o| o.base_url = "http://me:secret@host/v1".into());
    assert!(
        leaky.contains("`base_url` is `[hidden]`") && !leaky.contains("secret"),
        "{leaky}"
    );
}
