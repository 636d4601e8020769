//! A model behind an OpenAI-compatible HTTP server.
//!
//! Requests join the running batch of one [`seed_model::Engine`] at token boundaries, and what one receives has the
//! same bits whatever else is in the batch. Responses come whole or as they grow, with log-probs and token ids on
//! request.
//!
//! Not for: encrypted connections (put a proxy in front), tools, images, or several models.

mod api_error;
mod body;
mod error;
mod fields;
mod model;
mod options;
mod request;
mod response;
mod server;
mod text;
mod update;
mod worker;

pub use error::ServeError;
pub use model::ServedModel;
pub use options::ServeOptions;
pub use server::{Drained, Server};
