//! The plan: a study file becomes cells, each with the configuration that `seed train` would be given.
//!
//! A configuration is made of layers: the file that `config` names, `[set]`, the base, the arm; later ones win. Cells
//! stand in an order in which every arm has its first seed on every base before any has its second, so that a study
//! that ends early is balanced.
//!
//! Not for: what has been done of it ([`crate::state`]).

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use seed_env::Split;
use seed_train::config::{
    ConfigError, EvaluationPrompt, EvaluationSplit, Loaded, Origin, RawEntry, TrainConfig,
};
use serde::{Deserialize, Serialize};
use toml::Value;

use crate::StudyError;
use crate::file::{ArmEntry, BaseEntry, PanelEntry, StudyFile};
use crate::panel::Weights;

/// Name of the base of a study that lists none, and of the only starting weights of a base.
const ONLY: &str = "base";

/// One cell's place in the matrix.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CellId {
    /// The base.
    pub base: String,
    /// The arm.
    pub arm: String,
    /// The seed.
    pub seed: u64,
}

impl fmt::Display for CellId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}/seed-{}", self.base, self.arm, self.seed)
    }
}

/// One arm on one base: all but the seed.
#[derive(Clone, Debug)]
pub struct Group {
    /// The base.
    pub base: String,
    /// The arm.
    pub arm: String,
    /// Index into [`Plan::starts`].
    pub start: usize,
    /// Seeds in the order in which they are run.
    pub seeds: Vec<u64>,
    /// The configuration; `run` holds name and threads only.
    pub config: TrainConfig,
    /// What runs but hardly means what was written.
    pub warnings: Vec<String>,
}

/// Weights that cells begin from.
#[derive(Clone, Debug)]
pub struct StartingWeights {
    /// The base.
    pub base: String,
    /// Its name among the base's starting weights.
    pub name: String,
    /// The base's configuration with these weights and without any arm.
    pub config: TrainConfig,
}

/// What is played with a cell's weights besides the panels of its training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Panel {
    /// Its name.
    pub name: String,
    /// Arms whose final weights play it; `None` for all.
    pub arms: Option<Vec<String>>,
    /// Splits to play.
    pub splits: Vec<Split>,
    /// Sampling temperatures to play each at.
    pub temperatures: Vec<f64>,
    /// The first so many tasks; `None` for all.
    pub tasks: Option<usize>,
    /// Episodes per task.
    pub samples_per_task: usize,
    /// What is placed in the prompts.
    pub prompts: Vec<EvaluationPrompt>,
    /// Whose weights play.
    pub weights: Vec<Weights>,
    /// Keys of the configuration that it changes, as `table.key = value`.
    pub settings: Vec<String>,
}

impl Panel {
    /// Whether the final weights of an arm play it.
    pub fn is_of(&self, arm: &str) -> bool {
        self.arms
            .as_ref()
            .is_none_or(|arms| arms.iter().any(|name| name == arm))
    }
}

/// Two arms that are compared although neither is the baseline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contrast {
    /// The arm.
    pub arm: String,
    /// The arm it is compared with.
    pub against: String,
}

/// A checked study.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its name.
    pub name: String,
    /// Where everything of it lies.
    pub directory: PathBuf,
    /// Name of the arm with which the others are compared.
    pub baseline: String,
    /// Split on whose learning curve arms are compared first.
    pub primary: Split,
    /// Bases in the file's order.
    pub bases: Vec<String>,
    /// Arms in the file's order.
    pub arms: Vec<String>,
    /// Comparisons besides those with the baseline, in the file's order.
    pub contrasts: Vec<Contrast>,
    /// Arms on bases.
    pub groups: Vec<Group>,
    /// Weights that cells begin from.
    pub starts: Vec<StartingWeights>,
    /// Panels.
    pub panels: Vec<Panel>,
    /// Each panel's configuration keys.
    panel_settings: Vec<Vec<RawEntry>>,
}

/// A cell to run.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Where it stands.
    pub id: CellId,
    /// What `seed train` is given.
    pub config: TrainConfig,
}

impl Plan {
    /// Reads a study file and makes every configuration.
    ///
    /// # Errors
    /// [`StudyError::Invalid`] with everything that is wrong in the file and in the configurations.
    pub fn read(path: &Path) -> Result<Self, StudyError> {
        let file = StudyFile::read(path)?;
        let text = Loaded::<TrainConfig>::read(&file.config)?;
        let shown = file.config.display().to_string();
        Self::build(file, &shown, &text, &path.display().to_string()).map_err(|problems| {
            StudyError::Invalid {
                path: path.to_owned(),
                problems,
            }
        })
    }

    /// Makes the plan of a file. `config_name` and `config_text` are the configuration all cells begin from.
    fn build(
        file: StudyFile,
        config_name: &str,
        config_text: &str,
        study_name: &str,
    ) -> Result<Self, Vec<String>> {
        let mut maker = Maker {
            file: &file,
            config_name,
            config_text,
            study_name,
            problems: Vec::new(),
        };
        let bases = if file.bases.is_empty() {
            vec![BaseEntry {
                name: ONLY.to_owned(),
                starts: BTreeMap::new(),
                settings: Vec::new(),
            }]
        } else {
            file.bases.clone()
        };
        let mut starts = Vec::new();
        let mut groups = Vec::new();
        for base in &bases {
            let first = starts.len();
            for (name, path) in starts_of(base) {
                starts.extend(maker.start(base, &name, path.as_deref()));
            }
            for arm in &file.arms {
                if arm
                    .bases
                    .as_ref()
                    .is_some_and(|bases| !bases.contains(&base.name))
                {
                    continue;
                }
                let start = maker.start_of(base, arm);
                let index = starts
                    .iter()
                    .skip(first)
                    .position(|known: &StartingWeights| Some(&known.name) == start.as_ref());
                if let (Some(index), Some(start)) = (index, start) {
                    groups.extend(maker.group(base, arm, first + index, &start));
                }
            }
        }
        let primary = maker.primary(&groups);
        let panels = if file.panels.is_empty() {
            default_panels()
        } else {
            file.panels.clone()
        };
        for panel in &panels {
            for start in &starts {
                maker.check_panel(panel, &start.config);
            }
        }
        let problems = maker.problems;
        if !problems.is_empty() {
            return Err(problems);
        }
        let baseline = file
            .arms
            .iter()
            .find(|arm| arm.is_baseline)
            .map(|arm| arm.name.clone());
        Ok(Self {
            baseline: baseline.unwrap_or_default(),
            primary,
            bases: bases.into_iter().map(|base| base.name).collect(),
            arms: file.arms.iter().map(|arm| arm.name.clone()).collect(),
            contrasts: file.arms.iter().flat_map(contrasts_of).collect(),
            groups,
            starts,
            panel_settings: panels.iter().map(|panel| panel.settings.clone()).collect(),
            panels: panels.into_iter().map(Panel::from).collect(),
            name: file.name,
            directory: file.directory,
        })
    }

    /// All cells, in the order in which they are run.
    pub fn cells(&self) -> Vec<Cell> {
        let rounds = self
            .groups
            .iter()
            .map(|group| group.seeds.len())
            .max()
            .unwrap_or(0);
        (0..rounds)
            .flat_map(|round| {
                self.groups
                    .iter()
                    .filter_map(move |group| Some(self.cell(group, *group.seeds.get(round)?)))
            })
            .collect()
    }

    fn cell(&self, group: &Group, seed: u64) -> Cell {
        let id = CellId {
            base: group.base.clone(),
            arm: group.arm.clone(),
            seed,
        };
        let mut config = group.config.clone();
        config.run.seed = seed;
        config.run.directory = cell_directory(&self.directory, &id);
        Cell { id, config }
    }

    /// `config` with a panel's settings on top, for one of its temperatures.
    ///
    /// # Errors
    /// When the settings do not fit the configuration.
    pub fn panel_config(
        &self,
        index: usize,
        config: &TrainConfig,
        temperature: f64,
    ) -> Result<TrainConfig, ConfigError> {
        let settings = self.panel_settings.get(index).cloned().unwrap_or_default();
        let mut config = with_settings(config, settings)?;
        if let Some(panel) = self.panels.get(index) {
            config.evaluation.splits = panel
                .splits
                .iter()
                .map(|split| evaluation_split(*split))
                .collect();
            config.evaluation.prompts.clone_from(&panel.prompts);
            config.evaluation.tasks = panel.tasks;
            config.evaluation.samples_per_task = panel.samples_per_task;
            config.evaluation.temperature = temperature;
        }
        Ok(config)
    }

    /// Worker threads; every cell has the same.
    pub fn threads(&self) -> usize {
        self.groups.first().map_or(0, |group| group.config.run.threads)
    }
}

/// The run directory of a cell.
pub fn cell_directory(study: &Path, cell: &CellId) -> PathBuf {
    study
        .join("cells")
        .join(&cell.base)
        .join(&cell.arm)
        .join(format!("seed-{}", cell.seed))
}

/// Finals at the temperature of the paper's evaluation and at that of sampling, where a study asks for nothing else.
fn default_panels() -> Vec<PanelEntry> {
    vec![PanelEntry {
        name: "final".to_owned(),
        arms: None,
        splits: vec![Split::Seen, Split::Unseen],
        temperatures: vec![0.4, 1.0],
        tasks: None,
        samples_per_task: 1,
        prompts: vec![EvaluationPrompt::Plain],
        weights: vec![Weights::Final],
        settings: Vec::new(),
    }]
}

impl From<PanelEntry> for Panel {
    fn from(entry: PanelEntry) -> Self {
        Self {
            name: entry.name,
            arms: entry.arms,
            splits: entry.splits,
            temperatures: entry.temperatures,
            tasks: entry.tasks,
            samples_per_task: entry.samples_per_task,
            prompts: entry.prompts,
            weights: entry.weights,
            settings: entry
                .settings
                .iter()
                .map(|entry| format!("{} = {}", entry.path.join("."), entry.value))
                .collect(),
        }
    }
}

/// What an arm asks to be compared with besides the baseline.
fn contrasts_of(arm: &ArmEntry) -> impl Iterator<Item = Contrast> {
    arm.against.iter().map(|against| Contrast {
        arm: arm.name.clone(),
        against: against.clone(),
    })
}

fn evaluation_split(split: Split) -> EvaluationSplit {
    match split {
        Split::Train => EvaluationSplit::Train,
        Split::Development => EvaluationSplit::Development,
        Split::Seen => EvaluationSplit::Seen,
        Split::Unseen => EvaluationSplit::Unseen,
    }
}

/// The starting weights of a base by name; without a path they are those of the configuration.
fn starts_of(base: &BaseEntry) -> Vec<(String, Option<PathBuf>)> {
    if base.starts.is_empty() {
        return vec![(ONLY.to_owned(), None)];
    }
    base.starts
        .iter()
        .map(|(name, path)| (name.clone(), Some(path.clone())))
        .collect()
}

fn with_settings(config: &TrainConfig, settings: Vec<RawEntry>) -> Result<TrainConfig, ConfigError> {
    let text = seed_train::config::to_toml(config);
    Ok(Loaded::<TrainConfig>::from_layers("the cell's configuration", &text, settings)?.config)
}

/// Makes configurations and collects what is wrong with them, each problem once.
struct Maker<'a> {
    file: &'a StudyFile,
    config_name: &'a str,
    config_text: &'a str,
    study_name: &'a str,
    problems: Vec<String>,
}

impl Maker<'_> {
    /// The configuration of some layers above the base configuration and `[set]`.
    fn config(&mut self, layers: Vec<RawEntry>, who: &str) -> Option<(TrainConfig, Vec<String>)> {
        let mut all = self.file.shared.clone();
        all.extend(layers);
        match Loaded::<TrainConfig>::from_layers(self.config_name, self.config_text, all) {
            Ok(loaded) => Some((loaded.config, loaded.warnings)),
            Err(ConfigError::Invalid { problems, .. }) => {
                for problem in problems {
                    // A problem of one place says where it is; one of several keys together does not.
                    let is_placed = [self.config_name, self.study_name]
                        .iter()
                        .any(|name| problem.starts_with(&format!("{name}:")));
                    self.add(if is_placed {
                        problem
                    } else {
                        format!("{who}: {problem}")
                    });
                }
                None
            }
            Err(other) => {
                self.add(other.to_string());
                None
            }
        }
    }

    fn add(&mut self, problem: String) {
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    fn start(&mut self, base: &BaseEntry, name: &str, path: Option<&Path>) -> Option<StartingWeights> {
        let mut layers = base.settings.clone();
        layers.extend(path.map(|path| self.model_path(path)));
        let (mut config, _) = self.config(layers, &format!("base `{}`", base.name))?;
        config.run.name = format!("{}/{name}", base.name);
        Some(StartingWeights {
            base: base.name.clone(),
            name: name.to_owned(),
            config,
        })
    }

    /// The name of the weights an arm begins from on a base.
    fn start_of(&mut self, base: &BaseEntry, arm: &ArmEntry) -> Option<String> {
        let names: Vec<String> = starts_of(base).into_iter().map(|(name, _)| name).collect();
        match (&arm.start, names.as_slice()) {
            (Some(start), _) if base.starts.contains_key(start) => Some(start.clone()),
            (Some(start), _) if base.starts.is_empty() => {
                self.add(format!(
                    "{}: arm `{}` begins from `{start}`, but base `{}` has no `start.{start}`",
                    self.study_name, arm.name, base.name
                ));
                None
            }
            (Some(start), _) => {
                self.add(format!(
                    "{}: arm `{}` begins from `{start}`; base `{}` has {}",
                    self.study_name,
                    arm.name,
                    base.name,
                    names
                        .iter()
                        .map(|name| format!("`{name}`"))
                        .collect::<Vec<_>>()
                        .join(" and ")
                ));
                None
            }
            (None, [only]) => Some(only.clone()),
            (None, _) => {
                self.add(format!(
                    "{}: base `{}` has several starting weights; arm `{}` must choose with `start`",
                    self.study_name, base.name, arm.name
                ));
                None
            }
        }
    }

    fn group(&mut self, base: &BaseEntry, arm: &ArmEntry, start: usize, name: &str) -> Option<Group> {
        let mut layers = base.settings.clone();
        layers.extend(base.starts.get(name).map(|path| self.model_path(path)));
        layers.extend(arm.settings.iter().cloned());
        let who = format!("arm `{}` on base `{}`", arm.name, base.name);
        let (mut config, warnings) = self.config(layers, &who)?;
        config.run.name = format!("{}/{}", base.name, arm.name);
        Some(Group {
            base: base.name.clone(),
            arm: arm.name.clone(),
            start,
            seeds: arm.seeds.clone().unwrap_or_else(|| self.file.seeds.clone()),
            config,
            warnings,
        })
    }

    fn model_path(&self, path: &Path) -> RawEntry {
        RawEntry {
            path: vec!["model".to_owned(), "path".to_owned()],
            value: Value::String(path.display().to_string()),
            plain: None,
            origin: Origin::File {
                name: self.study_name.to_owned(),
                line: 1,
            },
        }
    }

    /// The split arms are compared on: every arm must be evaluated on it while it trains.
    fn primary(&mut self, groups: &[Group]) -> Split {
        let first = groups
            .first()
            .and_then(|group| group.config.evaluation.splits.first().copied());
        let primary = self
            .file
            .primary
            .or(first.map(Split::from))
            .unwrap_or(Split::Seen);
        for group in groups {
            if !group
                .config
                .evaluation
                .splits
                .contains(&evaluation_split(primary))
            {
                self.add(format!(
                    "arm `{}` on base `{}` is not evaluated on `{}`, on which arms are compared; add it to \
                     `evaluation.splits`, or set `primary`",
                    group.arm,
                    group.base,
                    primary.name()
                ));
            }
        }
        primary
    }

    fn check_panel(&mut self, panel: &PanelEntry, config: &TrainConfig) {
        if let Err(ConfigError::Invalid { problems, .. }) = with_settings(config, panel.settings.clone()) {
            for problem in problems {
                self.add(if problem.starts_with(&format!("{}:", self.study_name)) {
                    problem
                } else {
                    format!("panel `{}`: {problem}", panel.name)
                });
            }
        }
    }
}

#[cfg(test)]
mod tests;
