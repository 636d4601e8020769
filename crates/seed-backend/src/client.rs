//! Calls to an engine, with bounded waits and attempts.
//!
//! Not for: what is asked, which is the dialects'.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use seed_http::{Address, Secret, agent, excerpt, redacted};
use serde_json::Value;

use crate::{BackendError, BackendOptions};

/// Characters of an error body that are shown.
const EXCERPT: usize = 300;

/// A way to an engine.
#[derive(Debug)]
pub struct Client {
    pub(crate) options: BackendOptions,
    base: String,
    key: Option<Secret>,
    agent: ureq::Agent,
    retries: AtomicU64,
}

impl Client {
    /// Checks the options and reads the key. Connects to nothing.
    ///
    /// # Errors
    /// [`BackendError::Option`] naming what is wrong.
    pub fn new(options: BackendOptions) -> Result<Self, BackendError> {
        options.validate()?;
        let wrong = |option, value: &str, rule| BackendError::Option {
            option,
            value: value.to_owned(),
            rule,
        };
        let base = options.url.trim_end_matches('/').to_owned();
        // A URL that cannot be read may hold a password.
        let address = Address::read(&base).map_err(|_| {
            wrong(
                "url",
                "[hidden]",
                "an address such as `http://host:8000`, without user and password",
            )
        })?;
        if address.has_query {
            return Err(wrong("url", &base, "free of a query"));
        }
        let key = match &options.key_variable {
            None => None,
            Some(variable) => {
                let key = std::env::var(variable).ok().and_then(|text| Secret::read(&text));
                let rule = "an environment variable that holds a key";
                let key = key.ok_or_else(|| wrong("api_key_env", variable, rule))?;
                if !address.is_encrypted && !address.is_loopback {
                    return Err(wrong(
                        "url",
                        &base,
                        "https, or on this machine, where a key is sent",
                    ));
                }
                Some(key)
            }
        };
        let timeout = Duration::from_secs_f64(options.timeout_seconds);
        Ok(Self {
            agent: agent(timeout, address.is_loopback),
            options,
            base,
            key,
            retries: AtomicU64::new(0),
        })
    }

    /// Attempts after a first one that failed, over all calls so far.
    pub fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    /// The whole address of a path.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// Posts a body and returns the answer's. Calls can be repeated: none does something twice that it should do once.
    pub(crate) fn post(&self, path: &str, body: &Value) -> Result<Vec<u8>, BackendError> {
        let url = self.url(path);
        let text = body.to_string();
        let mut delay = Duration::from_millis(self.options.first_delay_milliseconds);
        let mut attempt = 1;
        loop {
            let (error, passes) = match self.attempt(&url, &text, attempt) {
                Ok(bytes) => return Ok(bytes),
                Err(failure) => failure,
            };
            if !passes || attempt >= self.options.attempts {
                return Err(error);
            }
            self.retries.fetch_add(1, Ordering::Relaxed);
            thread::sleep(delay);
            delay = delay.saturating_mul(2);
            attempt += 1;
        }
    }

    /// One attempt; with an error, whether another may succeed.
    fn attempt(&self, url: &str, body: &str, attempts: u32) -> Result<Vec<u8>, (BackendError, bool)> {
        let broken = |error: &ureq::Error| {
            let passes = !matches!(error, ureq::Error::BodyExceedsLimit(_));
            let error = BackendError::Connection {
                url: url.to_owned(),
                attempts,
                reason: redacted(&error.to_string(), self.key.as_ref()),
            };
            (error, passes)
        };
        let mut request = self.agent.post(url).header("content-type", "application/json");
        if let Some(key) = &self.key {
            request = request.header("authorization", key.bearer());
        }
        let mut response = request.send(body).map_err(|error| broken(&error))?;
        let status = response.status().as_u16();
        let read = response
            .body_mut()
            .with_config()
            .limit(self.options.max_response_bytes)
            .read_to_vec();
        if status == 200 {
            return read.map_err(|error| broken(&error));
        }
        let passes = matches!(status, 408 | 425 | 429 | 500 | 502 | 503 | 504);
        let error = BackendError::Status {
            url: url.to_owned(),
            status,
            attempts,
            excerpt: excerpt(&read.unwrap_or_default(), EXCERPT, self.key.as_ref()),
        };
        Err((error, passes))
    }
}
