//! Retrieval over HTTP: the format of Search-R1's retrieval server, a client, and a server.
//!
//! A request is `{"query": "…"}` or `{"queries": ["…", …]}` with `topk` and `return_scores`; the answer is
//! `{"result": [[{"document": {"id": "…", "contents": "…"}, "score": 1.5}, …], …]}` with one list per query, or
//! bare documents where no scores were asked for.
//!
//! Not for: finding passages.

mod client;
mod server;
mod wire;

pub use client::{HttpOptions, HttpRetriever, QueryPayload};
pub use server::{RetrievalServer, ServerOptions};
