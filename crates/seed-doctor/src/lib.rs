//! Looks at what a run needs and says what is wrong with it: the machine, a model folder, an endpoint.
//!
//! Each examination returns [`Finding`]s; nothing here fails, since what is in the way is what is to be found.
//!
//! Not for: configurations, which validate themselves, or repairing anything.

mod adapter;
mod endpoint;
mod finding;
mod machine;
mod model;

pub use adapter::examine_adapter;
pub use endpoint::{Endpoint, examine_endpoint};
pub use finding::{Finding, Level};
pub use machine::{Machine, examine_machine, examine_memory};
pub use model::{examine_model, unreadable_model};
