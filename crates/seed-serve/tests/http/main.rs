//! The server over HTTP.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests fail as tests do")]

mod annotator;
mod answers;
mod bounds;
mod openai;
mod refusals;
mod support;
