//! The pictures of a report, as SVG.

use std::path::{Path, PathBuf};

use seed_env::Split;
use seed_train::picture::{Chart, Curve, Heights, PictureError, Spread, write_picture};
use seed_train::statistics::{bootstrap_mean, mean};

use super::data::{CellData, Contestant, StudyData};
use super::forest::forest;
use super::hindsight::Hindsight;
use super::results::{Comparison, Measure, report_key, splits};
use crate::StudyError;
use crate::statistics::{DRAWS, mean_curve};

/// Arms of one picture besides the baseline: more cannot be told apart.
const ARMS: usize = 5;

/// A picture with its words.
pub(crate) struct Picture {
    pub(crate) file: String,
    pub(crate) title: String,
}

/// Draws into a folder.
pub(crate) struct Painter<'a> {
    pub(crate) data: &'a StudyData,
    pub(crate) folder: PathBuf,
    pub(crate) pictures: Vec<Picture>,
}

impl Painter<'_> {
    /// All pictures, in the order of the report.
    pub(crate) fn paint(
        &mut self,
        comparisons: &[Comparison],
        hindsight: &Hindsight,
    ) -> Result<(), StudyError> {
        for split in splits(self.data) {
            for base in self.data.manifest.plan.bases.clone() {
                self.curves(&base, split, false)?;
                self.curves(&base, split, true)?;
            }
        }
        self.effects(comparisons)?;
        self.skills(hindsight)?;
        self.gaps()?;
        Ok(())
    }

    /// Arms in groups that one picture can show, each with the baseline first.
    fn groups(&self) -> Vec<Vec<Contestant>> {
        let baseline = Contestant::plain(&self.data.manifest.plan.baseline);
        let mut others = self.data.contestants();
        others.retain(|contestant| *contestant != baseline);
        if others.is_empty() {
            return vec![vec![baseline]];
        }
        others
            .chunks(ARMS)
            .map(|chunk| std::iter::once(&baseline).chain(chunk).cloned().collect())
            .collect()
    }

    fn curves(&mut self, base: &str, split: Split, over_cpu: bool) -> Result<(), StudyError> {
        let groups = self.groups();
        for (number, contestants) in groups.iter().enumerate() {
            let mut curves = Vec::new();
            for contestant in contestants {
                let cells = self.data.trained(base, &contestant.arm);
                curves.extend(success_curve(contestant, base, &cells, split, over_cpu));
            }
            if curves.is_empty() {
                continue;
            }
            let (kind, x_label) = if over_cpu {
                ("cpu", "CPU-seconds of training")
            } else {
                ("episodes", "training episodes")
            };
            let part = if groups.len() > 1 {
                format!("-{}", number + 1)
            } else {
                String::new()
            };
            let bands = if curves.iter().any(|curve| matches!(curve.spread, Spread::Band(_))) {
                "; bands: 95 % over seeds"
            } else {
                ""
            };
            let title = format!("Base {base}, {} panel{bands}", split.name());
            let chart = Chart {
                title: &title,
                x_label,
                y_label: "success rate",
                heights: Heights::Shares,
                curves: &curves,
            };
            self.write(
                &format!("{kind}-{base}-{}{part}.svg", split.name()),
                &format!("{title}, over {x_label}"),
                &chart,
            )?;
        }
        Ok(())
    }

    /// Right place by iteration.
    fn skills(&mut self, hindsight: &Hindsight) -> Result<(), StudyError> {
        let all: Vec<Curve> = hindsight
            .curves
            .iter()
            .map(|curve| Curve {
                name: curve.arm.clone(),
                points: curve.points.clone(),
                spread: Spread::Band(Vec::new()),
            })
            .collect();
        for (number, curves) in all.chunks(ARMS + 1).enumerate() {
            let title = "Skills that name a right place first";
            let chart = Chart {
                title,
                x_label: "iteration",
                y_label: "share of accepted skills",
                heights: Heights::Shares,
                curves,
            };
            self.write(&format!("skills-{}.svg", number + 1), title, &chart)?;
        }
        Ok(())
    }

    /// The gap after successes and after failures, by iteration.
    fn gaps(&mut self) -> Result<(), StudyError> {
        let plan = self.data.manifest.plan.clone();
        for arm in &plan.arms {
            let cells = self.data.trained_of(arm);
            let curves: Vec<Curve> = [
                ("successes", "seed/gap_mean_success"),
                ("failures", "seed/gap_mean_failure"),
            ]
            .into_iter()
            .filter_map(|(name, metric)| {
                let points = metric_points(&cells, metric);
                (points.len() > 1).then(|| Curve {
                    name: name.to_owned(),
                    points,
                    spread: Spread::Band(Vec::new()),
                })
            })
            .collect();
            if curves.is_empty() {
                continue;
            }
            let title = format!("Gap before the update, {arm}");
            let chart = Chart {
                title: &title,
                x_label: "iteration",
                y_label: "mean gap (nats)",
                heights: Heights::Numbers,
                curves: &curves,
            };
            self.write(&format!("gap-{arm}.svg"), &title, &chart)?;
        }
        Ok(())
    }

    /// Differences to the baseline with their intervals, one column per measure of area and panel.
    fn effects(&mut self, comparisons: &[Comparison]) -> Result<(), StudyError> {
        let mut measures: Vec<&Measure> = Vec::new();
        for row in comparisons {
            if !measures.contains(&&row.measure) && !matches!(row.measure, Measure::Last { .. }) {
                measures.push(&row.measure);
            }
        }
        for (number, measures) in measures.chunks(3).enumerate() {
            let columns: Vec<(String, Vec<&Comparison>)> = measures
                .iter()
                .map(|measure| {
                    let rows = comparisons
                        .iter()
                        .filter(|row| row.measure == **measure)
                        .collect();
                    (measure.name(), rows)
                })
                .collect();
            let file = format!("effects-{}.svg", number + 1);
            let path = self.folder.join(&file);
            let baseline = &self.data.manifest.plan.baseline;
            let text = forest(&columns).map_err(|message| PictureError {
                path: path.display().to_string(),
                message,
            })?;
            write_picture(&path, &text)?;
            self.pictures.push(Picture {
                file,
                title: format!(
                    "Differences to {baseline} in points, with 95 % intervals over pairs; filled where the corrected p is below 5 %, an \
                     arrow where the scale ends before the difference"
                ),
            });
        }
        Ok(())
    }

    fn write(&mut self, file: &str, title: &str, chart: &Chart<'_>) -> Result<(), StudyError> {
        chart.write(&self.folder.join(file))?;
        self.pictures.push(Picture {
            file: file.to_owned(),
            title: title.to_owned(),
        });
        Ok(())
    }
}

/// An arm's mean curve with a bootstrap band over cells, or Wilson's bars of a single one.
fn success_curve(
    contestant: &Contestant,
    base: &str,
    cells: &[&CellData],
    split: Split,
    over_cpu: bool,
) -> Option<Curve> {
    let (name, prompt) = (contestant.name(), contestant.prompt);
    let curves: Vec<Vec<(f64, f64)>> = cells
        .iter()
        .map(|cell| {
            if over_cpu {
                cell.cpu_curve(split, prompt)
            } else {
                cell.curve(split, prompt)
            }
        })
        .filter(|curve| curve.len() > 1)
        .collect();
    let slices: Vec<&[(f64, f64)]> = curves.iter().map(Vec::as_slice).collect();
    let points = mean_curve(&slices);
    if points.is_empty() {
        return None;
    }
    let spread = if let ([cell], [curve]) = (cells, curves.as_slice()) {
        Spread::Bars(
            cell.on(split, prompt)
                .zip(curve)
                .map(|(record, point)| {
                    (
                        point.0,
                        record.evaluation.success.low,
                        record.evaluation.success.high,
                    )
                })
                .collect(),
        )
    } else {
        let key = report_key(&format!("band/{base}/{name}/{}", split.name()));
        let band = points.iter().enumerate().filter_map(|(index, point)| {
            let values: Vec<f64> = curves
                .iter()
                .filter_map(|curve| curve.get(index))
                .map(|at| at.1)
                .collect();
            let interval = bootstrap_mean(&values, DRAWS / 5, key.with("point", index as u64))?;
            Some((point.0, interval.low, interval.high))
        });
        Spread::Band(band.collect())
    };
    let count = curves.len();
    Some(Curve {
        name: format!("{name} ({count} seed{})", if count == 1 { "" } else { "s" }),
        points,
        spread,
    })
}

/// Means of a metric over cells, by iteration.
fn metric_points(cells: &[&CellData], metric: &str) -> Vec<(f64, f64)> {
    let mut by_iteration: std::collections::BTreeMap<u64, Vec<f64>> = std::collections::BTreeMap::new();
    for record in cells.iter().flat_map(|cell| &cell.metrics) {
        if let Some(value) = record.metrics.get(metric).copied().flatten() {
            by_iteration.entry(record.step).or_default().push(value);
        }
    }
    by_iteration
        .into_iter()
        .map(|(step, values)| (step as f64, mean(&values)))
        .collect()
}

/// Removes what an earlier report left, so that no picture of it stays beside the new ones.
pub(crate) fn clear(folder: &Path) -> Result<(), StudyError> {
    for entry in fs_err::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "svg") {
            fs_err::remove_file(path)?;
        }
    }
    Ok(())
}
