//! Households: games under ALFWorld's rules that need no download.
//!
//! A [`HouseholdGenerator`] draws rooms, what lies in them and what is asked, all from a world seed, a split and an
//! index. A drawn [`Household`] becomes a game through the same `pddl_problem` text that ALFWorld's files hold, so one
//! engine plays both, and the original engine plays these. [`HouseholdWorld`] offers them as tasks.
//!
//! Not for: the rules of play; those are the engine's.

mod catalogue;
mod combination;
mod draw;
mod environment;
mod export;
mod furnishing;
mod generator;
mod problem;
mod room;
mod world;

pub use catalogue::{ObjectClass, ReceptacleClass};
pub use combination::{Combination, HeldOut};
pub use environment::{GameEnvironment, GameSource};
pub use export::EngineTemplate;
pub use generator::{HouseholdError, HouseholdGenerator, HouseholdSize};
pub use problem::{Household, PlacedObject};
pub use room::{Fixture, Location, Position, Receptacle, Room, RoomKind};
pub use world::{HouseholdConfig, HouseholdWorld};
