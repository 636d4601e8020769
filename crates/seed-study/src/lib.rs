//! Studies: arms x bases x seeds, each cell a run directory, and a report of them.
//!
//! [`plan::Plan`] makes a configuration of every cell, [`run::run`] works through them, alone or beside other processes.
//! Nothing here trains: a cell is what `seed train` would make of its configuration.

mod error;
mod file;
pub mod manifest;
pub mod overview;
pub mod panel;
pub mod plan;
pub mod report;
pub mod run;
pub mod state;
pub mod statistics;
mod table;

pub use error::StudyError;
