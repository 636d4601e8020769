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
mod game_file;
mod goal;
pub mod household;
mod ids;
mod lexer;
mod library;
mod measure;
mod problem;
mod state;
mod text;
mod verify;
mod world;

pub use commands::Action;
pub use engine::StepOutcome;
pub use error::ProblemError;
pub use game::{Game, Treatment};
pub use game_file::{DOMAIN_SHA256, GRAMMAR_SHA256, MAX_GAME_BYTES, read_game_file};
pub use goal::{Family, Goal};
pub use household::{GameEnvironment, GameSource};
pub use ids::{ClassId, CommandId, LocationId, ObjectId, ReceptacleId};
pub use library::{
    ArchivedGame, CacheFolder, Library, LibraryCounters, LibraryError, LibraryGame, LibraryOptions,
    WORLD_NAME, read_archive, split_folder, split_from_folder,
};
pub use measure::{Timing, Workload, time_resets, time_steps};
pub use state::State;
pub use verify::{
    Difference, VerifyError, VerifyReport, verify_archive, verify_transcripts, verify_walkthroughs,
};
pub use world::AlfworldWorld;
