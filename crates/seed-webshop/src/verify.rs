//! Checking the shop against recorded episodes of the original.
//!
//! A transcript is a file of JSON lines (plain or gzip), one episode a line: `seed`, `session` (the goal's number), the `goal`
//! with its `goal_options`, what the reset showed (`reset_observation`, `reset_available`), and `steps` with `action`,
//! `observation`, `reward`, `done` and `available_actions`. Not for: recording transcripts; that takes the original.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use seed_random::RandomKey;
use serde::Deserialize;
use serde_json::Value;

use crate::session::SEPARATOR;
use crate::{Catalogue, Goal, GoalKind, Session, Shop, WebshopError, files};

/// Differences that a report keeps in words; all are counted.
const KEPT_DIFFERENCES: usize = 10;

#[derive(Deserialize)]
struct Episode {
    seed: u64,
    session: usize,
    goal: RecordedGoal,
    reset_observation: String,
    reset_available: Available,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct RecordedGoal {
    /// An object in synthetic goals, a list in goals by people.
    goal_options: Value,
}

#[derive(Default, Deserialize)]
struct Available {
    has_search_bar: bool,
    clickables: Vec<String>,
}

#[derive(Deserialize)]
struct Step {
    action: String,
    observation: String,
    reward: f64,
    done: bool,
    /// Null after the purchase.
    available_actions: Option<Available>,
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Episodes replayed.
    pub episodes: usize,
    /// Steps compared.
    pub steps: usize,
    /// Texts, lists, rewards and ends that differ.
    pub differences: usize,
    /// The first of them in words.
    pub first_differences: Vec<String>,
}

impl VerifyReport {
    /// Whether everything was as recorded.
    pub fn is_exact(&self) -> bool {
        self.differences == 0
    }

    fn compare<T: PartialEq + std::fmt::Debug>(&mut self, place: &str, what: &str, found: &T, recorded: &T) {
        if found == recorded {
            return;
        }
        self.differences += 1;
        if self.first_differences.len() < KEPT_DIFFERENCES {
            self.first_differences
                .push(format!("{place}: {what} is {found:?}, recorded {recorded:?}"));
        }
    }
}

/// Replays the episodes of transcript files on a catalogue. Each seed and kind of goal met is drawn anew.
///
/// # Errors
/// [`WebshopError`] when a file cannot be read, a line is no episode, or the catalogue has no goals of the kind recorded.
pub fn verify_transcripts(
    paths: &[PathBuf],
    catalogue: &Arc<Catalogue>,
) -> Result<VerifyReport, WebshopError> {
    let mut report = VerifyReport::default();
    let mut shops: BTreeMap<(bool, u64), Shop> = BTreeMap::new();
    for path in paths {
        for (index, line) in files::open(path)?.lines().enumerate() {
            let line = line?;
            if line.trim().is_empty() {
                continue;
            }
            let episode: Episode = serde_json::from_str(&line).map_err(|source| WebshopError::Line {
                path: path.clone(),
                line: index + 1,
                expected: "a recorded episode",
                source,
            })?;
            let by_people = episode.goal.goal_options.is_array();
            let key = (by_people, episode.seed);
            let shop = match shops.entry(key) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    let kind = if by_people {
                        GoalKind::Human
                    } else {
                        GoalKind::Synthetic
                    };
                    entry.insert(Shop::new(Arc::clone(catalogue), kind, episode.seed)?)
                }
            };
            let place = place(path, index + 1);
            match shop.goal(episode.session) {
                Some(goal) => replay(shop, &goal, &episode, &place, &mut report),
                None => report.compare(
                    &place,
                    "number of goals",
                    &shop.goal_count(),
                    &(episode.session + 1),
                ),
            }
            report.episodes += 1;
        }
    }
    Ok(report)
}

fn place(path: &Path, line: usize) -> String {
    format!("`{}`, line {line}", path.display())
}

fn replay(shop: &Shop, goal: &Goal, episode: &Episode, place: &str, report: &mut VerifyReport) {
    let mut session = Session::new(RandomKey::new(episode.seed));
    let shown = |session: &Session| session.texts(shop, goal).join(SEPARATOR);
    let offered = |session: &Session| (session.has_search_bar(), session.clickables(shop));
    let recorded = |available: &Available| (available.has_search_bar, available.clickables.clone());
    report.compare(place, "first page", &shown(&session), &episode.reset_observation);
    report.compare(
        place,
        "first list",
        &offered(&session),
        &recorded(&episode.reset_available),
    );
    for (number, step) in episode.steps.iter().enumerate() {
        let place = format!("{place}, step {number} (`{}`)", step.action);
        session.act(shop, goal, &step.action);
        let score = session.purchase().map_or(0.0, |purchase| purchase.reward.score);
        report.compare(&place, "observation", &shown(&session), &step.observation);
        report.compare(&place, "reward", &score, &step.reward);
        report.compare(&place, "end", &session.purchase().is_some(), &step.done);
        let available = step
            .available_actions
            .as_ref()
            .map_or_else(Default::default, recorded);
        report.compare(&place, "list", &offered(&session), &available);
        report.steps += 1;
    }
}
