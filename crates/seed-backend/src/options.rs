//! Where an engine is and how it is spoken to.

use crate::{BackendError, Dialect};

/// Options of [`crate::Client`].
#[derive(Clone, Debug, PartialEq)]
pub struct BackendOptions {
    /// The engine's address without a path, such as `http://127.0.0.1:8000`.
    pub url: String,
    /// How it is spoken to.
    pub dialect: Dialect,
    /// The name under which it serves the model.
    pub model: String,
    /// Environment variable with its key; `None` = no key is sent.
    pub key_variable: Option<String>,
    /// Limit for one attempt, from connecting to the last byte, in seconds.
    pub timeout_seconds: f64,
    /// Attempts per call, the first included.
    pub attempts: u32,
    /// Wait before the second attempt; doubled before each further one.
    pub first_delay_milliseconds: u64,
    /// Requests under way at a time.
    pub concurrency: usize,
    /// Longest answer read, in bytes.
    pub max_response_bytes: u64,
}

impl BackendOptions {
    /// The usual bounds.
    pub fn new(url: impl Into<String>, dialect: Dialect, model: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            dialect,
            model: model.into(),
            key_variable: None,
            timeout_seconds: 600.0,
            attempts: 4,
            first_delay_milliseconds: 500,
            concurrency: 64,
            max_response_bytes: 32 << 20,
        }
    }

    pub(crate) fn validate(&self) -> Result<(), BackendError> {
        let rules = [
            (
                "model",
                self.model.clone(),
                "the name the engine serves",
                !self.model.is_empty(),
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
            (
                "concurrency",
                self.concurrency.to_string(),
                "between 1 and 1024",
                (1..=1024).contains(&self.concurrency),
            ),
        ];
        for (option, value, rule, holds) in rules {
            if !holds {
                return Err(BackendError::Option { option, value, rule });
            }
        }
        Ok(())
    }
}
