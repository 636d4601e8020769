//! The keys of low-rank adapters, shared by training and fine-tuning.
//!
//! Not for: the adapter itself (`seed_model::adapter`).

use super::rule::Rule::{Above, Any, Between, NotEmpty};
use super::schema::section;
use super::value::choice;

choice! {
    /// A matrix of every decoder layer that an adapter can stand beside, by its name in checkpoints.
    AdapterTarget {
        /// Queries.
        Query = "q_proj",
        /// Keys.
        Key = "k_proj",
        /// Values.
        Value = "v_proj",
        /// Output of attention.
        Output = "o_proj",
        /// Gate of the feed-forward part.
        Gate = "gate_proj",
        /// Input of the feed-forward part.
        Up = "up_proj",
        /// Output of the feed-forward part.
        Down = "down_proj",
    }
}

section! {
    /// Train a low-rank adapter (LoRA) beside frozen weights instead of the weights themselves. There is no dropout: what
    /// was sampled is what is trained.
    AdapterSection = "adapter" {
        /// Train an adapter. Where `model.path` is an adapter's folder, that one is trained further, and the other keys must
        /// say what it is.
        enabled: bool = false, Any;
        /// The matrices of every layer that it stands beside.
        targets: Vec<AdapterTarget> = AdapterTarget::CHOICES.iter().map(|choice| choice.0).collect(), NotEmpty;
        /// Width between its two matrices.
        rank: usize = 16, Between(1.0, 65_536.0);
        /// What it adds is scaled by alpha over the rank.
        alpha: f64 = 32.0, Above(0.0);
        /// Scale by alpha over the root of the rank instead (rsLoRA).
        rank_stabilised: bool = false, Any;
    }
}
