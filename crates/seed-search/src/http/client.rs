//! A retriever behind an address.
//!
//! Requests follow the retry rules of the reference's client: connection errors, time-outs and the statuses 500,
//! 502, 503 and 504 are tried again, ten times in all, after 1, 2, 3… seconds; anything else fails at once. Bodies
//! are bounded, redirects are not followed, and a token comes from an environment variable only and never reaches
//! an error.
//!
//! Not for: caching, or asking servers that speak another format.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use seed_http::{Address, AddressFault, Secret, agent, excerpt, redacted};

use super::wire::{read_answer, request_body};
use crate::SearchError;
use crate::retriever::{FoundPassage, Retriever, RetrieverError};

/// Characters of an error body that are shown.
const EXCERPT: usize = 200;

/// How queries are put into requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueryPayload {
    /// `{"query": "…"}`, one request per query, as verl-agent's client asks.
    Single,
    /// `{"queries": ["…", …]}`, as Search-R1's asks.
    Batch,
}

/// Options of [`HttpRetriever`].
#[derive(Clone, Debug, PartialEq)]
pub struct HttpOptions {
    /// Addresses such as `http://127.0.0.1:8000/retrieve`. Requests go to them in turn; all must serve the same
    /// passages.
    pub urls: Vec<String>,
    /// How queries are put into requests.
    pub payload: QueryPayload,
    /// Limit for one attempt from connecting to the last byte, in seconds.
    pub timeout_seconds: f64,
    /// Attempts per request, the first included.
    pub attempts: u32,
    /// The wait after attempt `n` is `n` times this.
    pub retry_delay: Duration,
    /// Longest body read, in bytes.
    pub max_response_bytes: u64,
    /// Environment variable with a token that is sent as `Authorization: Bearer …`; `None` sends none.
    pub token_variable: Option<String>,
}

impl HttpOptions {
    /// The reference's settings for the given addresses: 30 s, ten attempts, 1 s.
    pub fn new(urls: Vec<String>) -> Self {
        Self {
            urls,
            payload: QueryPayload::Single,
            timeout_seconds: 30.0,
            attempts: 10,
            retry_delay: Duration::from_secs(1),
            max_response_bytes: 16 << 20,
            token_variable: None,
        }
    }

    fn check(&self) -> Result<(), SearchError> {
        let rules = [
            (
                "urls",
                self.urls.len().to_string(),
                "at least one address",
                !self.urls.is_empty(),
            ),
            (
                "timeout_seconds",
                self.timeout_seconds.to_string(),
                "between 0.001 and 86400",
                (0.001..=86_400.0).contains(&self.timeout_seconds),
            ),
            (
                "attempts",
                self.attempts.to_string(),
                "at least 1",
                self.attempts > 0,
            ),
        ];
        for (option, value, rule, holds) in rules {
            if !holds {
                return Err(SearchError::Option { option, value, rule });
            }
        }
        Ok(())
    }
}

/// A retriever behind one or more addresses.
#[derive(Debug)]
pub struct HttpRetriever {
    options: HttpOptions,
    token: Option<Secret>,
    agent: ureq::Agent,
    /// Requests so far, for taking the addresses in turn.
    requests: AtomicUsize,
}

/// Reads the address of a retrieval server.
fn read_address(url: &str) -> Result<Address, SearchError> {
    Address::read(url).map_err(|fault| match fault {
        AddressFault::Credentials => SearchError::Option {
            option: "urls",
            value: "[hidden]".to_owned(),
            rule: "free of user and password; put a token in an environment variable",
        },
        AddressFault::NoUrl | AddressFault::NoHost | AddressFault::Scheme => SearchError::Option {
            option: "urls",
            value: url.to_owned(),
            rule: "an address such as `http://127.0.0.1:8000/retrieve`",
        },
    })
}

/// What to do after a failed attempt.
enum Failure {
    Retry(String),
    Final(String),
}

impl HttpRetriever {
    /// Checks the options and reads the token. Connects to nothing.
    ///
    /// # Errors
    /// [`SearchError::Option`] naming the option that is wrong.
    pub fn new(options: HttpOptions) -> Result<Self, SearchError> {
        Self::with_environment(options, |variable| std::env::var(variable).ok())
    }

    fn with_environment(
        options: HttpOptions,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, SearchError> {
        options.check()?;
        let mut all_loopback = true;
        for url in &options.urls {
            let address = read_address(url)?;
            all_loopback &= address.is_loopback;
            if options.token_variable.is_some() && !address.is_loopback && !address.is_encrypted {
                return Err(SearchError::Option {
                    option: "urls",
                    value: url.clone(),
                    rule: "https where a token is sent to another machine",
                });
            }
        }
        let token = match &options.token_variable {
            None => None,
            Some(variable) => {
                let token = environment(variable).and_then(|text| Secret::read(&text));
                let missing = || SearchError::Option {
                    option: "token_variable",
                    value: variable.clone(),
                    rule: "an environment variable that holds a token of printable characters",
                };
                Some(token.ok_or_else(missing)?)
            }
        };
        let timeout = Duration::from_secs_f64(options.timeout_seconds);
        Ok(Self {
            agent: agent(timeout, all_loopback),
            options,
            token,
            requests: AtomicUsize::new(0),
        })
    }

    /// Sends one request, with retries.
    fn ask(&self, queries: &[&str], count: usize) -> Result<Vec<Vec<FoundPassage>>, RetrieverError> {
        let turn = self.requests.fetch_add(1, Ordering::Relaxed);
        // There is at least one address.
        let url = self
            .options
            .urls
            .get(turn % self.options.urls.len().max(1))
            .map_or("", String::as_str);
        let body = request_body(queries, count, self.options.payload == QueryPayload::Single);
        let mut attempt = 1;
        loop {
            match self.attempt(url, &body, queries.len()) {
                Ok(results) => return Ok(results),
                Err(Failure::Retry(_)) if attempt < self.options.attempts => {
                    thread::sleep(self.options.retry_delay.saturating_mul(attempt));
                    attempt += 1;
                }
                Err(Failure::Retry(reason) | Failure::Final(reason)) => {
                    return Err(RetrieverError {
                        message: format!(
                            "`{url}` {reason} (attempt {attempt} of {})",
                            self.options.attempts
                        ),
                    });
                }
            }
        }
    }

    fn attempt(&self, url: &str, body: &str, queries: usize) -> Result<Vec<Vec<FoundPassage>>, Failure> {
        let mut post = self
            .agent
            .post(url)
            .header("content-type", "application/json")
            .header("accept", "application/json");
        if let Some(token) = &self.token {
            post = post.header("authorization", token.bearer());
        }
        let mut response = post.send(body).map_err(|error| self.broken(&error))?;
        let status = response.status().as_u16();
        let read = response
            .body_mut()
            .with_config()
            .limit(self.options.max_response_bytes)
            .read_to_vec();
        if !(200..300).contains(&status) {
            let reason = format!(
                "answered with status {status}: {}",
                excerpt(&read.unwrap_or_default(), EXCERPT, self.token.as_ref())
            );
            return Err(if matches!(status, 500 | 502 | 503 | 504) {
                Failure::Retry(reason)
            } else {
                Failure::Final(reason)
            });
        }
        let bytes = read.map_err(|error| self.broken(&error))?;
        read_answer(&bytes, queries)
            .map_err(|reason| Failure::Final(format!("gave an answer that cannot be read: {reason}")))
    }

    /// A failure below HTTP, or while reading the body.
    fn broken(&self, error: &ureq::Error) -> Failure {
        match error {
            ureq::Error::BodyExceedsLimit(limit) => {
                Failure::Final(format!("gave an answer of more than {limit} bytes"))
            }
            ureq::Error::Timeout(_) => Failure::Retry(format!(
                "did not answer within {} s",
                self.options.timeout_seconds
            )),
            other => Failure::Retry(format!(
                "could not be asked: {}",
                redacted(&other.to_string(), self.token.as_ref())
            )),
        }
    }
}

impl Retriever for HttpRetriever {
    fn retrieve(&self, queries: &[&str], count: usize) -> Result<Vec<Vec<FoundPassage>>, RetrieverError> {
        match self.options.payload {
            QueryPayload::Batch if queries.is_empty() => Ok(Vec::new()),
            QueryPayload::Batch => self.ask(queries, count),
            QueryPayload::Single => queries
                .iter()
                .map(|&query| {
                    let lists = self.ask(&[query], count)?;
                    Ok(lists.into_iter().flatten().collect())
                })
                .collect(),
        }
    }

    fn is_native(&self) -> bool {
        false
    }

    /// Which server answers is no part of the identity: a run may be resumed where the server has moved.
    fn identity(&self) -> String {
        "http".to_owned()
    }
}
