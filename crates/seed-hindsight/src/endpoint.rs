//! An analyser behind an OpenAI-compatible chat completions endpoint.
//!
//! Requests run on a bounded number of threads and are retried with exponential back-off and jitter; the jitter is
//! keyed by request and attempt, so a run repeats its waits. Bodies are bounded. The API key comes from an
//! environment variable only, is never followed to another host, and never reaches an error or a debug print.
//!
//! Not for: streaming, tools, or images.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use seed_http::{Address, AddressFault, Secret, agent, excerpt, redacted};
use seed_random::RandomKey;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{Analyser, AnalyserError, AnalysisReply, AnalysisRequest};

#[cfg(test)]
mod tests;

/// Characters of an error body that are shown.
const EXCERPT: usize = 300;

/// Options of [`EndpointAnalyser`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EndpointOptions {
    /// The part of the URL before `/chat/completions`, such as `http://127.0.0.1:8000/v1`.
    pub base_url: String,
    /// Model name to ask for.
    pub model: String,
    /// Environment variable that holds the API key; `None` = no key is sent.
    pub api_key_variable: Option<String>,
    /// Sampling temperature.
    pub temperature: f64,
    /// Most completion tokens.
    pub max_tokens: u32,
    /// Limit for one attempt from connecting to the last byte, in seconds.
    pub timeout_seconds: f64,
    /// Attempts per request, the first included.
    pub attempts: u32,
    /// Wait before the second attempt; doubled before each further one, then multiplied by 0.5 to 1.
    pub first_delay_milliseconds: u64,
    /// Longest wait, also when the endpoint asks for a longer one.
    pub max_delay_milliseconds: u64,
    /// Requests under way at a time.
    pub concurrency: usize,
    /// Longest body read, in bytes.
    pub max_response_bytes: u64,
}

impl Default for EndpointOptions {
    /// The paper's annotation settings: greedy, 4,096 tokens, 120 s, five attempts from 1 s on.
    fn default() -> Self {
        Self {
            base_url: "http://127.0.0.1:8000/v1".into(),
            model: String::new(),
            api_key_variable: None,
            temperature: 0.0,
            max_tokens: 4096,
            timeout_seconds: 120.0,
            attempts: 5,
            first_delay_milliseconds: 1000,
            max_delay_milliseconds: 60_000,
            concurrency: 8,
            max_response_bytes: 4 << 20,
        }
    }
}

impl EndpointOptions {
    /// Checks the options' ranges.
    ///
    /// # Errors
    /// [`AnalyserError::InvalidOption`] naming the option.
    pub fn validate(&self) -> Result<(), AnalyserError> {
        let number = |value: f64| value.to_string();
        let rules: [(&'static str, String, &'static str, bool); 6] = [
            (
                "model",
                self.model.clone(),
                "the name of a model the endpoint serves",
                !self.model.is_empty(),
            ),
            (
                "temperature",
                number(self.temperature),
                "finite and not negative",
                self.temperature.is_finite() && self.temperature >= 0.0,
            ),
            (
                "timeout_seconds",
                number(self.timeout_seconds),
                "between 0.001 and 86400",
                (0.001..=86_400.0).contains(&self.timeout_seconds),
            ),
            (
                "attempts",
                self.attempts.to_string(),
                "at least 1",
                self.attempts > 0,
            ),
            (
                "concurrency",
                self.concurrency.to_string(),
                "between 1 and 1024",
                { (1..=1024).contains(&self.concurrency) },
            ),
            (
                "max_response_bytes",
                self.max_response_bytes.to_string(),
                "at least 1",
                self.max_response_bytes > 0,
            ),
        ];
        for (option, value, rule, holds) in rules {
            if !holds {
                return Err(AnalyserError::InvalidOption { option, value, rule });
            }
        }
        Ok(())
    }
}

/// The analyser behind an endpoint.
#[derive(Debug)]
pub struct EndpointAnalyser {
    options: EndpointOptions,
    url: String,
    key: Option<Secret>,
    agent: ureq::Agent,
}

/// What to do after a failed attempt.
enum Failure {
    /// Try again, after this long if the endpoint said so.
    Retry(AnalyserError, Option<Duration>),
    /// Give up.
    Final(AnalyserError),
}

impl EndpointAnalyser {
    /// Validates the options and reads the key. Connects to nothing.
    ///
    /// # Errors
    /// [`AnalyserError::InvalidOption`], [`AnalyserError::MissingKey`], [`AnalyserError::UnprotectedKey`].
    pub fn new(options: EndpointOptions) -> Result<Self, AnalyserError> {
        Self::with_environment(options, |variable| std::env::var(variable).ok())
    }

    fn with_environment(
        options: EndpointOptions,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, AnalyserError> {
        options.validate()?;
        let url = format!("{}/chat/completions", options.base_url.trim_end_matches('/'));
        let address = read_address(&url, &options.base_url)?;
        let key = match &options.api_key_variable {
            None => None,
            Some(variable) => {
                let missing = || AnalyserError::MissingKey {
                    variable: variable.clone(),
                };
                let key = environment(variable).and_then(|text| Secret::read(&text));
                let key = key.ok_or_else(missing)?;
                if !address.is_encrypted && !address.is_loopback {
                    return Err(AnalyserError::UnprotectedKey { url });
                }
                Some(key)
            }
        };
        let timeout = Duration::from_secs_f64(options.timeout_seconds);
        Ok(Self {
            agent: agent(timeout, address.is_loopback),
            options,
            url,
            key,
        })
    }

    /// Answers one request, with retries.
    fn answer(&self, request: &AnalysisRequest) -> Result<AnalysisReply, AnalyserError> {
        let jitter = RandomKey::new(0).with_text("analysis request", &request.id);
        let mut attempt = 1;
        loop {
            match self.attempt(request, attempt) {
                Ok(reply) => return Ok(reply),
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Retry(error, _)) if attempt >= self.options.attempts => return Err(error),
                Err(Failure::Retry(_, asked)) => {
                    thread::sleep(self.delay(attempt, asked, jitter.uniform(u64::from(attempt))));
                    attempt += 1;
                }
            }
        }
    }

    /// The wait after the failed attempt `attempt`, given what the endpoint asked for and a number in `[0, 1)`.
    fn delay(&self, attempt: u32, asked: Option<Duration>, jitter: f64) -> Duration {
        let longest = Duration::from_millis(self.options.max_delay_milliseconds);
        if let Some(asked) = asked {
            return asked.min(longest);
        }
        let doubled = 2u64
            .saturating_pow(attempt - 1)
            .saturating_mul(self.options.first_delay_milliseconds);
        Duration::from_millis(doubled)
            .min(longest)
            .mul_f64(0.5 + 0.5 * jitter)
    }

    fn attempt(&self, request: &AnalysisRequest, attempt: u32) -> Result<AnalysisReply, Failure> {
        let mut post = self
            .agent
            .post(&self.url)
            .header("content-type", "application/json");
        if let Some(key) = &self.key {
            post = post.header("authorization", key.bearer());
        }
        let body = self.body(request).to_string();
        let mut response = post.send(&body).map_err(|error| self.broken(error, attempt))?;
        let status = response.status().as_u16();
        let asked = response
            .headers()
            .get("retry-after")
            .and_then(|value| value.to_str().ok()?.trim().parse::<f64>().ok())
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let read = response
            .body_mut()
            .with_config()
            .limit(self.options.max_response_bytes)
            .read_to_vec();
        if !(200..300).contains(&status) {
            let error = AnalyserError::Status {
                url: self.url.clone(),
                status,
                attempts: attempt,
                excerpt: excerpt(&read.unwrap_or_default(), EXCERPT, self.key.as_ref()),
            };
            let passes = matches!(status, 408 | 409 | 425 | 429 | 500 | 502 | 503 | 504 | 529);
            return Err(if passes {
                Failure::Retry(error, asked)
            } else {
                Failure::Final(error)
            });
        }
        let bytes = read.map_err(|error| self.broken(error, attempt))?;
        read_completion(&bytes).map_err(|reason| {
            let error = AnalyserError::Malformed {
                url: self.url.clone(),
                attempts: attempt,
                reason,
            };
            Failure::Retry(error, None)
        })
    }

    fn body(&self, request: &AnalysisRequest) -> Value {
        json!({
            "model": self.options.model,
            "messages": [{"role": "user", "content": request.prompt}],
            "temperature": self.options.temperature,
            "max_tokens": self.options.max_tokens,
            "stream": false,
        })
    }

    /// A failure below HTTP, or while reading the body.
    fn broken(&self, error: ureq::Error, attempts: u32) -> Failure {
        let url = self.url.clone();
        match error {
            ureq::Error::BodyExceedsLimit(limit) => Failure::Final(AnalyserError::Oversized { url, limit }),
            ureq::Error::Timeout(_) => {
                let seconds = self.options.timeout_seconds;
                Failure::Retry(
                    AnalyserError::TimedOut {
                        url,
                        seconds,
                        attempts,
                    },
                    None,
                )
            }
            other => {
                let reason = redacted(&other.to_string(), self.key.as_ref());
                Failure::Retry(
                    AnalyserError::Connection {
                        url,
                        attempts,
                        reason,
                    },
                    None,
                )
            }
        }
    }
}

impl Analyser for EndpointAnalyser {
    fn analyse(&mut self, requests: &[AnalysisRequest]) -> Vec<Result<AnalysisReply, AnalyserError>> {
        let next = AtomicUsize::new(0);
        let workers = self.options.concurrency.min(requests.len());
        let this = &*self;
        let mut answers: Vec<(usize, Result<AnalysisReply, AnalyserError>)> = thread::scope(|scope| {
            let threads: Vec<_> = (0..workers)
                .map(|_| {
                    scope.spawn(|| {
                        let mut own = Vec::new();
                        while let Some((index, request)) = {
                            let index = next.fetch_add(1, Ordering::Relaxed);
                            requests.get(index).map(|request| (index, request))
                        } {
                            own.push((index, this.answer(request)));
                        }
                        own
                    })
                })
                .collect();
            let join = |thread: thread::ScopedJoinHandle<'_, Vec<_>>| match thread.join() {
                Ok(own) => own,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            threads.into_iter().flat_map(join).collect()
        });
        answers.sort_by_key(|(index, _)| *index);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }
}

/// Whom the URL reaches.
fn read_address(url: &str, base_url: &str) -> Result<Address, AnalyserError> {
    let invalid = |rule| AnalyserError::InvalidOption {
        option: "base_url",
        value: base_url.to_owned(),
        rule,
    };
    let address = Address::read(url).map_err(|fault| match fault {
        AddressFault::NoUrl => invalid("a URL such as `https://host/v1`"),
        AddressFault::NoHost => invalid("a URL with scheme and host, such as `https://host/v1`"),
        AddressFault::Credentials => AnalyserError::InvalidOption {
            option: "base_url",
            value: "[hidden]".into(),
            rule: "free of user and password; put the key in an environment variable",
        },
        AddressFault::Scheme => invalid("http or https"),
    })?;
    if address.has_query {
        return Err(invalid("free of a query"));
    }
    Ok(address)
}

/// The parts of a chat completion that are used.
#[derive(Deserialize)]
struct Completion {
    choices: Vec<Choice>,
    #[serde(default)]
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Choice {
    message: Message,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    content: Option<String>,
}

#[derive(Deserialize, Default)]
struct Usage {
    #[serde(default)]
    completion_tokens: Option<u64>,
}

/// Reads a chat completion; the error says what is wrong with it.
fn read_completion(bytes: &[u8]) -> Result<AnalysisReply, String> {
    let completion: Completion = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let choice = completion
        .choices
        .into_iter()
        .next()
        .ok_or("`choices` is empty")?;
    let text = choice.message.content.ok_or("the message has no content")?;
    let usage = completion.usage.unwrap_or_default();
    Ok(AnalysisReply {
        text,
        truncated: choice.finish_reason.as_deref() == Some("length"),
        completion_tokens: usage.completion_tokens,
    })
}
