//! What a running program tells whoever watches it.
//!
//! Programs never print. They emit [`Event`]s; the command line turns them into progress bars, plain lines or JSON.

use std::path::Path;

use seed_env::Split;
use seed_run::Metrics;
use serde::{Serialize, Serializer};

use crate::config::EvaluationPrompt;
use crate::evaluate::Evaluation;

/// A phase of an iteration, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The policy plays episodes.
    Rollout,
    /// Finished episodes are analysed into skills.
    Analysis,
    /// Sampled tokens are scored again: skill context, reference.
    Scoring,
    /// The optimiser runs.
    Update,
    /// A fixed panel is played.
    Evaluation,
    /// A checkpoint is written.
    Checkpoint,
}

impl Phase {
    /// The word shown to people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rollout => "rollout",
            Self::Analysis => "analysis",
            Self::Scoring => "scoring",
            Self::Update => "update",
            Self::Evaluation => "evaluation",
            Self::Checkpoint => "checkpoint",
        }
    }
}

/// One thing that happened.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event<'a> {
    /// A line of information, once per fact.
    Note {
        /// The text.
        text: String,
    },
    /// Something suspicious that does not stop the run.
    Warning {
        /// The text.
        text: String,
    },
    /// Progress inside a phase.
    Progress {
        /// 1-based iteration (0 before the first).
        iteration: u64,
        /// The phase.
        phase: Phase,
        /// Units finished.
        done: usize,
        /// Units in all.
        total: usize,
    },
    /// An iteration is complete.
    Iteration {
        /// 1-based iteration.
        iteration: u64,
        /// Iterations of the run.
        total: u64,
        /// All metrics of the iteration, timings included.
        #[serde(serialize_with = "as_map")]
        metrics: &'a Metrics,
    },
    /// A panel was evaluated.
    Evaluation {
        /// Iterations trained before it.
        iteration: u64,
        /// The panel's split.
        split: Split,
        /// What the prompts held.
        prompt: EvaluationPrompt,
        /// What was measured.
        evaluation: &'a Evaluation,
    },
    /// A checkpoint is durable.
    Saved {
        /// Iterations it contains.
        iteration: u64,
        /// Where it is.
        path: &'a Path,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn as_map<S: Serializer>(metrics: &&Metrics, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(metrics.iter())
}

/// Receives events.
pub trait Observer {
    /// Called in order, on the program's thread.
    fn event(&mut self, event: &Event<'_>);
}

/// Hears nothing.
pub struct Silent;

impl Observer for Silent {
    fn event(&mut self, _: &Event<'_>) {}
}

impl<F: FnMut(&Event<'_>)> Observer for F {
    fn event(&mut self, event: &Event<'_>) {
        self(event);
    }
}
