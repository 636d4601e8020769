//! A small world of invented knowledge to ask about, with nothing to download.
//!
//! Countries with towns, people born in them, their teachers and their works: all drawn from one seed, told in
//! passages whose sentences vary, and asked about in questions of one hop (`Who painted The Silent Harbour?`) and
//! of two (`Where was the painter of The Silent Harbour born?`). Everything follows from the seed; the same seed is
//! the same world on every machine.
//!
//! There are 20 countries, 100 towns, 600 people and about 900 works. Four of the countries are held out with all
//! their towns, people and works. Training, development and seen questions are about the others, and no question
//! occurs twice. Unseen questions are about what is held out; besides the kinds of question known from training,
//! they hold two kinds of two hops that are never trained on.
//!
//! Not for: facts about the real world, or answering questions.

mod draw;
mod names;
mod player;
mod questions;
mod texts;
mod world;

pub use draw::KnowledgeConfig;
pub use player::{PlayedQuestion, PlayedTurn, play_knowledge};
pub use questions::{Plan, QuestionKind};
pub use world::KnowledgeWorld;
