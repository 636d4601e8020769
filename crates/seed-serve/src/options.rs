//! What a server is told when it starts.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use seed_model::EngineOptions;
use tokio::sync::Semaphore;

use crate::ServeError;

/// Options of [`crate::Server`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServeOptions {
    /// Where to listen; port 0 takes a free one.
    pub address: SocketAddr,
    /// Environment variable with the token that requests must carry as `Authorization: Bearer …`; needed wherever the
    /// address is not the loopback one.
    pub token_variable: Option<String>,
    /// How much the engine does at a time.
    pub engine: EngineOptions,
    /// Sequences that may wait besides those in progress. A request that finds no place is answered with status 503.
    pub waiting: usize,
    /// Longest request body, in bytes.
    pub max_body_bytes: usize,
    /// How long a client may take to send its body.
    pub body_timeout: Duration,
    /// How long requests in progress may go on after the server was told to stop.
    pub drain_timeout: Duration,
    /// Random numbers of requests without a seed of their own come from this one and the number of the request.
    pub seed: u64,
    /// Folder below which weights may be read when a request says so; `None` = such requests are refused.
    pub weights_folder: Option<PathBuf>,
}

impl ServeOptions {
    /// The usual bounds at an address.
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            token_variable: None,
            engine: EngineOptions::default(),
            waiting: 1024,
            max_body_bytes: 8 << 20,
            body_timeout: Duration::from_secs(30),
            drain_timeout: Duration::from_mins(1),
            seed: 0,
            weights_folder: None,
        }
    }

    /// Sequences in progress and waiting. A request takes its places at once, in a number of 32 bits.
    pub(crate) fn places(&self) -> usize {
        self.engine
            .max_active
            .saturating_add(self.waiting)
            .min(Semaphore::MAX_PERMITS)
            .min(u32::MAX as usize)
    }

    pub(crate) fn validate(&self) -> Result<(), ServeError> {
        for (option, value) in [
            ("max_active", self.engine.max_active),
            ("prefill_chunk", self.engine.prefill_chunk),
            ("max_body_bytes", self.max_body_bytes),
        ] {
            if value == 0 {
                return Err(ServeError::Option {
                    option,
                    value: "0".to_owned(),
                    rule: "at least 1",
                });
            }
        }
        Ok(())
    }
}
