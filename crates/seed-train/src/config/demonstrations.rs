//! Every key of a demonstration recording: scripted play that a policy is first taught with.

use std::path::PathBuf;

use super::rule::Rule::{AtLeast, Between, NotEmpty};
use super::schema::{document, section};
use super::sections::{RunSection, SearchSection, SeedSection, WorldSection};
use super::validate;

section! {
    /// Scripted demonstrations on training tasks. The four shares are weights of a mixture.
    DemonstrationsSection = "demonstrations" {
        /// Where the examples go (JSONL; a name ending in .zst is compressed).
        out: PathBuf = PathBuf::from("demonstrations.jsonl.zst"), NotEmpty;
        /// Examples to record.
        examples: usize = 20_000, AtLeast(1.0);
        /// Weight of plain play by the script.
        act_share: f64 = 0.45, AtLeast(0.0);
        /// Weight of play with a skill from an earlier attempt at the same task in the prompt, by a script that uses it.
        act_with_skill_share: f64 = 0.25, AtLeast(0.0);
        /// Weight of plain play with the skill of an unrelated task in the prompt: a skill must be read, not just be there.
        act_with_other_skill_share: f64 = 0.05, AtLeast(0.0);
        /// Weight of writing the skill of a finished episode.
        analyse_share: f64 = 0.25, AtLeast(0.0);
        /// Least share of mistakes per step in plain play; each episode draws its own.
        noise_low: f64 = 0.3, Between(0.0, 1.0);
        /// Largest share of mistakes per step in plain play.
        noise_high: f64 = 0.7, Between(0.0, 1.0);
        /// Share of mistakes per step when a skill is followed.
        skill_noise: f64 = 0.05, Between(0.0, 1.0);
    }
}

document! {
    /// A validated demonstration recording.
    DemonstrateConfig = "demonstration configuration", check: validate::check_demonstrations, {
        run: RunSection,
        world: WorldSection,
        search: SearchSection,
        demonstrations: DemonstrationsSection,
        seed: SeedSection,
    }
}
