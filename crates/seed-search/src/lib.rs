//! Question answering by search.
//!
//! The protocol of Search-R1 ([arXiv 2503.09516](https://arxiv.org/abs/2503.09516)) in its own dialect and in that
//! of verl-agent: the policy reasons, may ask a retriever, and answers; the reward is exact match of the last
//! answer. Rules and texts of the environment are those of the Python originals, character by character; the
//! prompts' instructions are in our own words.
//!
//! Not for: finding text ([`Retriever`] is the seam), or anything about models.

mod block;
mod bm25_retriever;
mod compact;
mod dense_retriever;
mod dialogue;
mod environment;
mod error;
mod http;
mod knowledge;
mod options;
mod passages;
mod projection;
mod python;
mod question;
mod question_file;
mod results;
mod retriever;
mod score;
mod world;

pub use bm25_retriever::Bm25Retriever;
pub use dense_retriever::DenseRetriever;
pub use dialogue::{QUESTION_ANCHOR, SearchDialogue};
pub use environment::SearchEnvironment;
pub use error::SearchError;
pub use http::{HttpOptions, HttpRetriever, QueryPayload, RetrievalServer, ServerOptions};
pub use knowledge::{
    KnowledgeConfig, KnowledgeWorld, Plan, PlayedQuestion, PlayedTurn, QuestionKind, play_knowledge,
};
pub use options::{FailureHandling, SearchDialect, SearchOptions, SearchStyle};
pub use passages::Passages;
pub use projection::project_response;
pub use question::Question;
pub use question_file::read_questions;
pub use results::{failure_block, information_block};
pub use retriever::{FoundPassage, Passage, Retriever, RetrieverError};
pub use score::{exact_match, extract_answer, normalise_answer, score_transcript};
pub use seed_retrieval::{Accents, EncoderOptions, Pooling, SentenceEncoder};
pub use world::{QuestionSplits, SearchWorld};
