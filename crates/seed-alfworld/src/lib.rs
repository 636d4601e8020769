//! ALFWorld's text games, played natively, and a generator of games of the same kind.
//!
//! A [`Game`] is one parsed `game.tw-pddl` (or a generated problem), shared by all episodes; a [`State`] is what
//! changes, small and cheap to clone. [`Game::step`] performs a command with the texts and the admissible lists of
//! the original engine (ALFWorld on TextWorld), letter by letter.
//!
//! Not for: PDDL planning in general, or ALFRED's pictures.

mod commands;
mod engine;
mod error;
pub mod expert;
mod game;
mod goal;
pub mod household;
mod ids;
mod lexer;
mod problem;
mod state;
mod text;

pub use commands::Action;
pub use engine::StepOutcome;
pub use error::ProblemError;
pub use game::{Game, Treatment};
pub use goal::{Family, Goal};
pub use ids::{ClassId, CommandId, LocationId, ObjectId, ReceptacleId};
pub use state::State;
