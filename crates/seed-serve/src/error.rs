//! What keeps a server from starting or from going on.

use std::net::SocketAddr;

use seed_http::GuardFault;
use seed_model::ModelError;
use thiserror::Error;

/// A failure of the server itself; what is wrong with a request is told to its client.
#[derive(Debug, Error)]
pub enum ServeError {
    /// It must not listen as asked.
    #[error(transparent)]
    Guard(#[from] GuardFault),
    /// An option is out of its range.
    #[error("`{option}` is `{value}`; it must be {rule}")]
    Option {
        /// The option.
        option: &'static str,
        /// Its value.
        value: String,
        /// What it must be.
        rule: &'static str,
    },
    /// The address is taken, or is not this machine's.
    #[error("cannot listen on `{address}`: {source}; choose another address or port")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The model cannot be used.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Threads or connections fail.
    #[error("the server failed: {0}")]
    Io(#[from] std::io::Error),
    /// The thread that generates ended by a panic.
    #[error("generation ended by a panic, which is a fault of this program; all requests were given up")]
    Panicked,
}
