//! The choices of a search world.
//!
//! Not for: what the choices lead to; each is documented where it acts.

/// Whose rules actions and result blocks follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SearchDialect {
    /// verl-agent's, which agents trained by steps use: one search or answer per step, results as JSON.
    VerlAgent,
    /// Search-R1's own: one growing transcript, results as plain text.
    SearchR1,
}

impl SearchDialect {
    /// The name used in configurations and digests.
    pub fn name(self) -> &'static str {
        match self {
            Self::VerlAgent => "verl_agent",
            Self::SearchR1 => "search_r1",
        }
    }

    /// The turns its publications use: 4 steps, or 4 searches and one last response in which no search is executed.
    pub fn usual_turns(self) -> usize {
        match self {
            Self::VerlAgent => 4,
            Self::SearchR1 => 5,
        }
    }
}

/// How much prompts say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SearchStyle {
    /// Instructions in the reference's layout, for pre-trained language models.
    Full,
    /// The question and the results alone, for a small policy trained on this very phrasing.
    Compact,
}

/// What a search that failed does to its episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureHandling {
    /// The episode ends as an environment error: counted, never trained.
    EnvironmentError,
    /// The policy reads `Search error: …` as the result and goes on, as in the reference. Such episodes are trained.
    Observation,
}

/// The rules of a search world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchOptions {
    /// Whose rules.
    pub dialect: SearchDialect,
    /// How much prompts say.
    pub style: SearchStyle,
    /// Turns of an episode, the last of which ends it whatever it is; at least 1.
    pub max_turns: usize,
    /// Passages shown per search.
    pub top_k: usize,
    /// What a failed search does.
    pub failures: FailureHandling,
}

impl SearchOptions {
    /// A dialect's published settings: its usual turns, three passages, full prompts; failed searches end the episode.
    pub fn new(dialect: SearchDialect) -> Self {
        Self {
            dialect,
            style: SearchStyle::Full,
            max_turns: dialect.usual_turns(),
            top_k: 3,
            failures: FailureHandling::EnvironmentError,
        }
    }
}
