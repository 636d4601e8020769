//! What Python does where the original's results depend on it: its random numbers and its ways with text.
//!
//! Not for: random numbers of our own (`seed_random` has them).

mod random;
mod text;

pub(crate) use random::PythonRandom;
pub(crate) use text::{float_text, json_text, repr, strip};
