//! Who answers analysis prompts.
//!
//! Not for: what is asked ([`crate::analysis_prompt`]) or how answers are read ([`crate::parse_analysis`]).

use thiserror::Error;

/// One prompt to answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnalysisRequest {
    /// Names the trajectory in errors and records, and separates random streams.
    pub id: String,
    /// The user message.
    pub prompt: String,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnalysisReply {
    /// The answer's text.
    pub text: String,
    /// The completion limit cut it off.
    pub truncated: bool,
    /// Completion tokens, when the analyser counts them.
    pub completion_tokens: Option<u64>,
}

/// Answers analysis prompts.
pub trait Analyser {
    /// One result per request, in their order. A request that fails does not affect the others.
    fn analyse(&mut self, requests: &[AnalysisRequest]) -> Vec<Result<AnalysisReply, AnalyserError>>;
}

/// Why a request has no answer. No message ever holds an API key.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum AnalyserError {
    /// An option of the endpoint is outside its range.
    #[error("endpoint option `{option}` is `{value}`; it must be {rule}")]
    InvalidOption {
        /// The option.
        option: &'static str,
        /// The value given.
        value: String,
        /// The rule it breaks.
        rule: &'static str,
    },
    /// The variable that should hold the API key is not set.
    #[error(
        "environment variable `{variable}` holds no API key; set it to one, or unset it for an endpoint without keys"
    )]
    MissingKey {
        /// The variable.
        variable: String,
    },
    /// A key would travel unencrypted.
    #[error(
        "the API key would go to `{url}` unencrypted; use https, or unset the variable that holds the key"
    )]
    UnprotectedKey {
        /// The endpoint.
        url: String,
    },
    /// No connection, or it broke.
    #[error("no answer from `{url}` after {attempts} attempts: {reason}; check that the endpoint is up")]
    Connection {
        /// The endpoint.
        url: String,
        /// Attempts made.
        attempts: u32,
        /// The last failure.
        reason: String,
    },
    /// No answer in time.
    #[error(
        "no answer from `{url}` within {seconds} s after {attempts} attempts; raise `timeout_seconds` or lower \
         `concurrency`"
    )]
    TimedOut {
        /// The endpoint.
        url: String,
        /// The limit.
        seconds: f64,
        /// Attempts made.
        attempts: u32,
    },
    /// The endpoint refused.
    #[error("`{url}` answered status {status} after {attempts} attempts: {excerpt}")]
    Status {
        /// The endpoint.
        url: String,
        /// HTTP status.
        status: u16,
        /// Attempts made.
        attempts: u32,
        /// Start of the body, without keys.
        excerpt: String,
    },
    /// The body is longer than is read.
    #[error(
        "the answer of `{url}` is longer than {limit} bytes; raise `max_response_bytes` or lower `max_tokens`"
    )]
    Oversized {
        /// The endpoint.
        url: String,
        /// The limit.
        limit: u64,
    },
    /// The body is not a chat completion.
    #[error(
        "the answer of `{url}` is not a chat completion after {attempts} attempts: {reason}; check that `base_url` \
         is the part before `/chat/completions`"
    )]
    Malformed {
        /// The endpoint.
        url: String,
        /// Attempts made.
        attempts: u32,
        /// What is wrong with the last one.
        reason: String,
    },
    /// The engine on which the policy itself answers gave no usable answer.
    #[error("the engine gave no answer: {problem}")]
    Engine {
        /// What happened.
        problem: String,
    },
    /// The analyser broke its contract.
    #[error("the analyser gave no result for request `{id}`")]
    NoResult {
        /// The request.
        id: String,
    },
}
