//! WebShop ([arXiv 2207.01206](https://arxiv.org/abs/2207.01206)), played natively.
//!
//! A [`Catalogue`] is read once from the original's files and shared by everything; a [`Shop`] adds the prices and goals that
//! a seed draws, as the original draws them; a [`Session`] is one visit, small and cheap. Texts, lists of what can be
//! clicked and rewards are those of the original's text environment, letter by letter.
//!
//! Not for: the original's HTML, or its modes for people.

mod action;
mod catalogue;
mod dialogue;
mod environment;
mod error;
mod files;
mod fuzzy;
mod generator;
mod measure;
mod nouns;
mod player;
mod product;
mod python;
mod reader;
mod reward;
mod session;
mod shop;
mod verify;
mod world;

pub use catalogue::{Catalogue, CatalogueFiles, CatalogueSize};
pub use dialogue::{WebshopDialogue, WebshopStyle, readable_page};
pub use environment::{EpisodeReward, WebshopEnvironment};
pub use error::WebshopError;
pub use fuzzy::token_set_ratio;
pub use generator::{GENERATED_PRODUCTS, generate_catalogue};
pub use measure::{Timing, Workload, time_steps};
pub use nouns::TitleNouns;
pub use player::{PlayedStep, PlayedVisit, Shopper, play};
pub use product::{Instruction, OptionGroup, Price, Product};
pub use reader::{ReaderStep, ReaderVisit, read_and_buy};
pub use reward::{Reward, reward};
pub use session::{Purchase, Session};
pub use shop::{Goal, GoalKind, GoalOptions, Shop};
pub use verify::{VerifyReport, verify_transcripts};
pub use world::{GoalSplit, WebshopWorld, WorldOptions};
