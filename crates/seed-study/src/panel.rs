//! Playing the panels of a study with given weights, and the file that keeps what came of it.
//!
//! What a cell's training evaluates itself is in its `evaluations.jsonl`. Panels are what a study asks for besides: other
//! temperatures, other worlds, and how strong the policy is with a skill in its prompt.

use std::path::Path;

use seed_run::{RunError, StopFlag, read_json_lines, write_json_lines};
use seed_train::TrainError;
use seed_train::config::{SearchSection, TrainConfig, WorldSection};
use seed_train::evaluate_program::evaluate_panels;
use seed_train::events::{Event, Observer};
use seed_train::prompted::PanelResult;
use seed_train::world::{OpenWorld, open_world};
use serde::{Deserialize, Serialize};

use crate::plan::{Panel, Plan};

/// File with the panels of a cell, beside its run's files.
pub(crate) const PANELS: &str = "panels.jsonl";

/// Whose weights play a panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Weights {
    /// Those that the cells begin from.
    Initial,
    /// Those at the end of a cell's training.
    Final,
}

impl Weights {
    /// The words of a study file.
    pub(crate) const WORDS: [(&'static str, Self); 2] = [("initial", Self::Initial), ("final", Self::Final)];

    /// The word in files and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Initial => "initial",
            Self::Final => "final",
        }
    }
}

/// One line of a panels file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PanelRecord {
    /// The panel.
    pub panel: String,
    /// Whose weights played it.
    pub weights: Weights,
    /// Sampling temperature as the study asks for it.
    pub temperature: f64,
    /// Split, prompt and result.
    #[serde(flatten)]
    pub result: PanelResult,
}

/// Worlds that were opened, so that a large one is read once.
#[derive(Default)]
pub(crate) struct Worlds {
    open: Vec<(WorldSection, SearchSection, OpenWorld)>,
}

impl Worlds {
    /// The world of a configuration.
    pub(crate) fn get(&mut self, config: &TrainConfig) -> Result<OpenWorld, TrainError> {
        let is_same = |(world, search, _): &&(WorldSection, SearchSection, OpenWorld)| {
            *world == config.world && *search == config.search
        };
        if let Some((_, _, open)) = self.open.iter().find(is_same) {
            return Ok(open.clone());
        }
        let open = open_world(&config.world, &config.search)?;
        self.open
            .push((config.world.clone(), config.search.clone(), open.clone()));
        Ok(open)
    }
}

/// The records of a panels file; none when there is no file.
pub(crate) fn read_panels(directory: &Path) -> Result<Vec<PanelRecord>, RunError> {
    let path = directory.join(PANELS);
    if !path.exists() {
        return Ok(Vec::new());
    }
    read_json_lines(&path)?.collect()
}

/// Whose weights play panels.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Player<'a> {
    /// Those that cells of a base begin from.
    Start,
    /// The final ones of a cell of this arm.
    Arm(&'a str),
}

impl Player<'_> {
    fn weights(self) -> Weights {
        match self {
            Player::Start => Weights::Initial,
            Player::Arm(_) => Weights::Final,
        }
    }
}

/// The panels and temperatures that `player` has to play and has not yet: indices into `panels`.
pub(crate) fn open_panels(
    panels: &[Panel],
    player: Player<'_>,
    records: &[PanelRecord],
) -> Vec<(usize, f64)> {
    let weights = player.weights();
    let mut open = Vec::new();
    for (index, panel) in panels.iter().enumerate() {
        let is_asked = match player {
            Player::Start => true,
            Player::Arm(arm) => panel.is_of(arm),
        };
        if !is_asked || !panel.weights.contains(&weights) {
            continue;
        }
        for &temperature in &panel.temperatures {
            let is_played = panel.splits.iter().all(|split| {
                panel.prompts.iter().all(|prompt| {
                    records.iter().any(|record| {
                        record.panel == panel.name
                            && record.weights == weights
                            && record.temperature == temperature
                            && record.result.split == *split
                            && record.result.prompt == *prompt
                    })
                })
            });
            if !is_played {
                open.push((index, temperature));
            }
        }
    }
    open
}

/// Plays what is open with the weights that `config.model.path` names, and adds it to the panels file in `directory`.
/// False when a stop was asked for before all was played; what was played is kept.
pub(crate) fn play_panels(
    plan: &Plan,
    player: Player<'_>,
    config: &TrainConfig,
    directory: &Path,
    worlds: &mut Worlds,
    stop: &StopFlag,
    observer: &mut dyn Observer,
) -> Result<bool, TrainError> {
    let weights = player.weights();
    let mut records = read_panels(directory)?;
    for (index, temperature) in open_panels(&plan.panels, player, &records) {
        if stop.is_set() {
            return Ok(false);
        }
        let Some(panel) = plan.panels.get(index) else {
            continue;
        };
        let panel_config = plan.panel_config(index, config, temperature)?;
        let world = worlds.get(&panel_config)?;
        for result in evaluate_panels(&panel_config, &world, None, observer)? {
            observer.event(&Event::Note {
                text: format!(
                    "panel {}, {} weights, {}, {}, T {temperature}: success {:.1} % of {} episodes",
                    panel.name,
                    weights.name(),
                    result.split.name(),
                    result.prompt,
                    result.evaluation.success.value * 100.0,
                    result.evaluation.episodes
                ),
            });
            records.retain(|record| {
                !(record.panel == panel.name
                    && record.weights == weights
                    && record.temperature == temperature
                    && record.result.split == result.split
                    && record.result.prompt == result.prompt)
            });
            records.push(PanelRecord {
                panel: panel.name.clone(),
                weights,
                temperature,
                result,
            });
        }
        fs_err::create_dir_all(directory)?;
        write_json_lines(&directory.join(PANELS), &records)?;
    }
    Ok(true)
}
