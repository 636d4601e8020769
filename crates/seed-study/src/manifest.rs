//! `study.json`: the plan that the cells of a directory were begun with.
//!
//! A study whose file has been changed under cells that are there would mix two experiments. So the plan is recorded with
//! every configuration, the digests of the weights and of the tasks, and its own digest; a plan that changes any of it for
//! a cell that was begun is refused with what changed. Additions are fine, and recorded too.

use std::path::{Path, PathBuf};
use std::time::Duration;

use seed_env::Split;
use seed_run::{RunError, RunLock, write_atomic};
use seed_train::config::{Effect, Loaded, TrainConfig, differences, to_toml};
use seed_train::policy::Policy;
use serde::{Deserialize, Serialize};

use crate::StudyError;
use crate::panel::Worlds;
use crate::plan::{CellId, Contrast, Panel, Plan, cell_directory};
use crate::state::{is_begun, unix_seconds};

const MANIFEST: &str = "study.json";
/// Version of the layout.
const SCHEMA: u32 = 1;
/// How often, and after how long each time, the directory's lock is tried: whoever has it writes one small file.
const LOCK_TRIES: usize = 200;
const LOCK_WAIT: Duration = Duration::from_millis(50);

/// The record of a study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of this layout.
    schema: u32,
    /// The plan.
    pub plan: PlanRecord,
    /// The plan's digests, oldest first: more than one when something was added.
    pub revisions: Vec<Revision>,
}

/// A plan at a moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revision {
    /// BLAKE3 of the plan's record.
    pub digest: String,
    /// Version of the program.
    pub version: String,
    /// When it was first run.
    pub unix_seconds: u64,
}

/// A plan in a form that does not depend on files elsewhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanRecord {
    /// The study's name.
    pub name: String,
    /// The arm with which the others are compared.
    pub baseline: String,
    /// Split on whose learning curve arms are compared first.
    pub primary: Split,
    /// Bases in the file's order.
    pub bases: Vec<String>,
    /// Arms in the file's order.
    pub arms: Vec<String>,
    /// Comparisons besides those with the baseline.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contrasts: Vec<Contrast>,
    /// Arms on bases.
    pub groups: Vec<GroupRecord>,
    /// Weights that cells begin from.
    pub starts: Vec<StartRecord>,
    /// Panels.
    pub panels: Vec<Panel>,
}

/// One arm on one base.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupRecord {
    /// The base.
    pub base: String,
    /// The arm.
    pub arm: String,
    /// Name of the base's weights it begins from.
    pub start: String,
    /// Seeds in the order in which they are run.
    pub seeds: Vec<u64>,
    /// The configuration without seed and folder, as TOML.
    pub config: String,
}

/// Weights that cells begin from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartRecord {
    /// The base.
    pub base: String,
    /// Their name among the base's.
    pub name: String,
    /// Where they were read from.
    pub path: PathBuf,
    /// Digest of the weights.
    pub weights: String,
    /// Digest of the tasks of the base's world.
    pub tasks: String,
}

impl PlanRecord {
    /// The record of a plan; reads all starting weights and worlds.
    fn of(plan: &Plan, worlds: &mut Worlds) -> Result<Self, StudyError> {
        let mut starts = Vec::new();
        for start in &plan.starts {
            let model = &start.config.model;
            let policy = Policy::load(&model.path, model.thinking)?;
            starts.push(StartRecord {
                base: start.base.clone(),
                name: start.name.clone(),
                path: model.path.clone(),
                weights: policy.digest().to_hex().to_string(),
                tasks: worlds.get(&start.config)?.world.digest(),
            });
        }
        let groups = plan
            .groups
            .iter()
            .map(|group| GroupRecord {
                base: group.base.clone(),
                arm: group.arm.clone(),
                start: plan
                    .starts
                    .get(group.start)
                    .map(|start| start.name.clone())
                    .unwrap_or_default(),
                seeds: group.seeds.clone(),
                config: to_toml(&group.config),
            })
            .collect();
        Ok(Self {
            name: plan.name.clone(),
            baseline: plan.baseline.clone(),
            primary: plan.primary,
            bases: plan.bases.clone(),
            arms: plan.arms.clone(),
            contrasts: plan.contrasts.clone(),
            groups,
            starts,
            panels: plan.panels.clone(),
        })
    }

    fn digest(&self) -> Result<String, StudyError> {
        let text = serde_json::to_vec(self).map_err(std::io::Error::from)?;
        Ok(blake3::hash(&text).to_hex().to_string())
    }

    /// All cells, in the order in which they are run.
    pub fn cells(&self) -> Vec<CellId> {
        let rounds = self
            .groups
            .iter()
            .map(|group| group.seeds.len())
            .max()
            .unwrap_or(0);
        (0..rounds)
            .flat_map(|round| {
                self.groups.iter().filter_map(move |group| {
                    Some(CellId {
                        base: group.base.clone(),
                        arm: group.arm.clone(),
                        seed: *group.seeds.get(round)?,
                    })
                })
            })
            .collect()
    }

    /// The record of an arm on a base.
    pub fn group(&self, base: &str, arm: &str) -> Option<&GroupRecord> {
        self.groups
            .iter()
            .find(|group| group.base == base && group.arm == arm)
    }

    /// What a newer plan changes for cells that have been begun, as sentences.
    fn changes(&self, newer: &Self, directory: &Path) -> Vec<String> {
        let is_cell_begun = |cell: &CellId| is_begun(&cell_directory(directory, cell));
        let begun: Vec<CellId> = self.cells().into_iter().filter(is_cell_begun).collect();
        if begun.is_empty() {
            return Vec::new();
        }
        let mut changes = Vec::new();
        if self.baseline != newer.baseline {
            changes.push(format!(
                "the baseline was `{}`, now `{}`",
                self.baseline, newer.baseline
            ));
        }
        if self.primary != newer.primary {
            let (before, now) = (self.primary.name(), newer.primary.name());
            changes.push(format!("arms were compared on `{before}`, now on `{now}`"));
        }
        for group in &self.groups {
            let who = format!("arm `{}` on base `{}`", group.arm, group.base);
            let cells: Vec<&CellId> = begun
                .iter()
                .filter(|cell| cell.base == group.base && cell.arm == group.arm)
                .collect();
            if cells.is_empty() {
                continue;
            }
            let Some(now) = newer.group(&group.base, &group.arm) else {
                changes.push(format!(
                    "{who} is gone, and {} of its cells have been begun",
                    cells.len()
                ));
                continue;
            };
            for cell in cells.iter().filter(|cell| !now.seeds.contains(&cell.seed)) {
                changes.push(format!("seed {} of {who} is gone, and has been begun", cell.seed));
            }
            changes.extend(group.changes(now, &who));
        }
        for start in &self.starts {
            let is_used = |cell: &CellId| {
                let group = self.group(&cell.base, &cell.arm);
                group.is_some_and(|group| group.base == start.base && group.start == start.name)
            };
            if !begun.iter().any(is_used) {
                continue;
            }
            let now = newer
                .starts
                .iter()
                .find(|now| now.base == start.base && now.name == start.name);
            let Some(now) = now else { continue };
            if now.weights != start.weights {
                let path = now.path.display();
                changes.push(format!(
                    "`{path}` holds other weights than those base `{}` began from",
                    start.base
                ));
            }
            if now.tasks != start.tasks {
                changes.push(format!("the tasks of base `{}` are others", start.base));
            }
        }
        for panel in &self.panels {
            match newer.panels.iter().find(|now| now.name == panel.name) {
                None => changes.push(format!("panel `{}` is gone", panel.name)),
                Some(now) if now != panel => {
                    changes.push(format!("panel `{}` asks for something else", panel.name));
                }
                Some(_) => {}
            }
        }
        changes
    }
}

impl GroupRecord {
    /// What differs in keys on which results depend. Evaluation is one of them here: it makes the learning curves.
    fn changes(&self, now: &Self, who: &str) -> Vec<String> {
        let read =
            |text: &str| Loaded::<TrainConfig>::from_text(MANIFEST, text, &[]).map(|loaded| loaded.config);
        match (read(&self.config), read(&now.config)) {
            (Ok(before), Ok(now)) => differences(&before, &now)
                .into_iter()
                .filter(|difference| {
                    difference.effect == Effect::Result || difference.key.starts_with("evaluation.")
                })
                .map(|difference| {
                    format!(
                        "`{}` of {who} was `{}`, now `{}`",
                        difference.key, difference.before, difference.after
                    )
                })
                .collect(),
            (Err(error), _) | (_, Err(error)) => {
                vec![format!("the recorded configuration of {who}: {error}")]
            }
        }
    }
}

impl Manifest {
    /// Reads the record of a study.
    ///
    /// # Errors
    /// [`StudyError::NoStudy`], or [`StudyError::Record`] when it is damaged.
    pub fn read(directory: &Path) -> Result<Self, StudyError> {
        let path = directory.join(MANIFEST);
        if !path.exists() {
            return Err(StudyError::NoStudy {
                directory: directory.to_owned(),
            });
        }
        let wrong = |message: String| StudyError::Record {
            path: path.clone(),
            message,
        };
        let manifest: Self =
            serde_json::from_slice(&fs_err::read(&path)?).map_err(|error| wrong(error.to_string()))?;
        if manifest.schema == SCHEMA {
            Ok(manifest)
        } else {
            Err(wrong(format!(
                "its schema is {}, this program reads {SCHEMA}",
                manifest.schema
            )))
        }
    }

    /// Compares a plan with the record of its directory, and records it where it is new or adds something.
    ///
    /// # Errors
    /// [`StudyError::Changed`] when it changes what was begun; otherwise when weights, worlds or the record cannot be read.
    pub(crate) fn agree(plan: &Plan, worlds: &mut Worlds) -> Result<Self, StudyError> {
        let record = PlanRecord::of(plan, worlds)?;
        fs_err::create_dir_all(&plan.directory)?;
        let _lock = lock(&plan.directory)?;
        let mut revisions = match Self::read(&plan.directory) {
            Ok(before) if before.plan == record => return Ok(before),
            Ok(before) => {
                let changes = before.plan.changes(&record, &plan.directory);
                if !changes.is_empty() {
                    return Err(StudyError::Changed {
                        directory: plan.directory.clone(),
                        changes,
                    });
                }
                before.revisions
            }
            Err(StudyError::NoStudy { .. }) => Vec::new(),
            Err(error) => return Err(error),
        };
        revisions.push(Revision {
            digest: record.digest()?,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            unix_seconds: unix_seconds(),
        });
        let manifest = Self {
            schema: SCHEMA,
            plan: record,
            revisions,
        };
        manifest.write(&plan.directory)?;
        Ok(manifest)
    }

    /// Writes the record of a study.
    pub(crate) fn write(&self, directory: &Path) -> Result<(), StudyError> {
        let text = serde_json::to_string_pretty(self).map_err(std::io::Error::from)?;
        Ok(write_atomic(
            &directory.join(MANIFEST),
            format!("{text}\n").as_bytes(),
        )?)
    }

    /// A record that no program made.
    #[cfg(test)]
    pub(crate) fn for_tests(plan: PlanRecord) -> Self {
        Self {
            schema: SCHEMA,
            plan,
            revisions: vec![Revision {
                digest: "0123456789abcdef0123".to_owned(),
                version: "1.2.3".to_owned(),
                unix_seconds: 0,
            }],
        }
    }
}

/// The lock of a study's own files, waited for.
fn lock(directory: &Path) -> Result<RunLock, RunError> {
    let mut tries = 0;
    loop {
        match RunLock::acquire(directory) {
            Err(RunError::Locked { .. }) if tries < LOCK_TRIES => {
                tries += 1;
                std::thread::sleep(LOCK_WAIT);
            }
            result => return result,
        }
    }
}
