//! The report of a study: Markdown, pictures and the same numbers as JSON, from the study's directory alone.
//!
//! Not for: deciding what is a success; the report says what was measured, with its uncertainty and what is missing.

mod data;
mod forest;
mod hindsight;
mod markdown;
mod pictures;
mod results;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use seed_run::write_atomic;
use serde::Serialize;

use self::data::StudyData;
use self::hindsight::Hindsight;
use self::pictures::Painter;
use crate::StudyError;
use crate::manifest::PlanRecord;
use crate::plan::CellId;
use crate::state::Status;

pub use self::data::Part;
pub use self::hindsight::{AnalyserSummary, GapSummary};
pub use self::results::{
    Comparison, CpuBudget, CurveSummary, Estimate, Measure, PanelSummary, Reach, Reached,
};

/// Folder of the report in a study's directory.
pub const REPORT: &str = "report";

/// Everything a report says, in the order in which it says it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The study's name.
    pub name: String,
    /// The arm with which the others are compared.
    pub baseline: String,
    /// Digests of the plan, oldest first: more than one when cells were added to it.
    pub plan_digests: Vec<String>,
    /// Versions of the program that began cells, with their numbers of cells.
    pub versions: BTreeMap<String, usize>,
    /// Cells in all.
    pub cells: usize,
    /// Cells that are not complete, and how far they are.
    pub incomplete: Vec<Incomplete>,
    /// Learning curves.
    pub curves: Vec<CurveSummary>,
    /// Until where the curves of a base are compared over seconds on processors.
    pub cpu_budgets: Vec<CpuBudget>,
    /// Arms against the baseline.
    pub comparisons: Vec<Comparison>,
    /// The comparisons that the study asks for besides.
    pub contrasts: Vec<Comparison>,
    /// How soon arms reach the baseline's final level.
    pub reaches: Vec<Reach>,
    /// Panels.
    pub panels: Vec<PanelSummary>,
    /// Skills.
    pub analysers: Vec<AnalyserSummary>,
    /// Why skills were not judged.
    pub unjudged: Vec<String>,
    /// Gaps and gates.
    pub gaps: Vec<GapSummary>,
    /// Files of the pictures, with their words.
    pub pictures: Vec<(String, String)>,
    #[serde(skip)]
    plan: PlanRecord,
}

/// A cell that is not complete.
#[derive(Clone, Debug, Serialize)]
pub struct Incomplete {
    /// The cell.
    pub cell: CellId,
    /// How far it is.
    #[serde(flatten)]
    pub status: Status,
}

impl Report {
    /// Reads the study in `directory` and writes its report into `folder`: `report.md`, `report.json` and pictures.
    ///
    /// # Errors
    /// When there is no study, or a file of it cannot be read or written.
    pub fn write(directory: &Path, folder: &Path) -> Result<Self, StudyError> {
        let data = StudyData::read(directory)?;
        let hindsight = Hindsight::read(directory, &data)?;
        let comparisons = results::comparisons(&data);
        fs_err::create_dir_all(folder)?;
        pictures::clear(folder)?;
        let mut painter = Painter {
            data: &data,
            folder: folder.to_owned(),
            pictures: Vec::new(),
        };
        painter.paint(&comparisons, &hindsight)?;
        let pictures = painter
            .pictures
            .into_iter()
            .map(|picture| (picture.file, picture.title))
            .collect();
        let mut versions = BTreeMap::new();
        for version in data.cells.iter().filter_map(|cell| cell.version.clone()) {
            *versions.entry(version).or_insert(0) += 1;
        }
        let incomplete = data
            .cells
            .iter()
            .filter(|cell| cell.status != Status::Done)
            .map(|cell| Incomplete {
                cell: cell.id.clone(),
                status: cell.status.clone(),
            })
            .collect();
        let report = Self {
            name: data.manifest.plan.name.clone(),
            baseline: data.manifest.plan.baseline.clone(),
            plan_digests: data
                .manifest
                .revisions
                .iter()
                .map(|revision| revision.digest.clone())
                .collect(),
            versions,
            cells: data.cells.len(),
            incomplete,
            curves: results::curve_summaries(&data),
            cpu_budgets: results::cpu_budgets(&data),
            comparisons,
            contrasts: results::contrasts(&data),
            reaches: results::reaches(&data),
            panels: results::panel_summaries(&data),
            analysers: hindsight.analysers,
            unjudged: hindsight.unjudged,
            gaps: hindsight.gaps,
            pictures,
            plan: data.manifest.plan.clone(),
        };
        let mut json = serde_json::to_string_pretty(&report).map_err(std::io::Error::from)?;
        json.push('\n');
        write_atomic(&folder.join("report.json"), json.as_bytes())?;
        write_atomic(&Self::markdown_path(folder), report.markdown().as_bytes())?;
        Ok(report)
    }

    /// The file to read.
    pub fn markdown_path(folder: &Path) -> PathBuf {
        folder.join("report.md")
    }
}

#[cfg(test)]
mod tests;
