//! Recording metrics: JSON lines and TensorBoard.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::event_file::EventFile;
use super::registry::{MetricNaming, definition, displayed, nearest};
use crate::error::RunError;
use crate::line_file::{LineFile, SyncPolicy};

/// Version of a record's layout.
const SCHEMA: u32 = 1;

/// Metrics of one step, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    values: BTreeMap<String, f64>,
}

impl Metrics {
    /// No metrics yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a metric; the name is checked against the registry when it is recorded.
    pub fn set(&mut self, name: impl Into<String>, value: f64) {
        // A sum over nothing is -0, which nobody should have to read.
        self.values.insert(name.into(), value + 0.0);
    }

    /// A metric's value.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.values.get(name).copied()
    }

    /// Takes over every metric of `other`.
    pub fn extend(&mut self, other: Self) {
        self.values.extend(other.values);
    }

    /// Names and values, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.values.iter().map(|(name, value)| (name.as_str(), *value))
    }
}

/// One line of a metrics file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Version of this layout.
    pub schema: u32,
    /// The iteration (or update, when fine-tuning) it belongs to; 0 is before training.
    pub step: u64,
    /// Values by name; a value that is not finite is null.
    pub metrics: BTreeMap<String, Option<f64>>,
}

/// How metrics are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetricsOptions {
    /// Whether TensorBoard files are written, and with whose names.
    pub tensorboard: Option<MetricNaming>,
    /// The step of the checkpoint the run resumes from: records of later steps are removed. `None` when the run begins
    /// at its beginning: all earlier records are removed.
    pub resume_after: Option<u64>,
}

/// Writes a run's metrics.
#[derive(Debug)]
pub struct MetricsWriter {
    metrics: LineFile,
    timings: LineFile,
    events: Option<(EventFile, MetricNaming)>,
}

impl MetricsWriter {
    /// Opens `metrics.jsonl`, `timings.jsonl` and, when asked for, a new event file in `tensorboard/` of a run
    /// directory. A torn last line is removed, and so are records after the step resumed from.
    ///
    /// # Errors
    /// The failed operation, or [`RunError::Text`] for a line that is no record.
    pub fn open(directory: &Path, options: MetricsOptions) -> Result<Self, RunError> {
        let open = |name: &str| {
            let mut file = LineFile::open(&directory.join(name), SyncPolicy::OnRequest)?;
            file.keep_while(&mut |line| {
                // Passed over by the reader too.
                if line.is_empty() {
                    return Ok(true);
                }
                let record = parse(line)?;
                Ok(options.resume_after.is_some_and(|last| record.step <= last))
            })?;
            Ok::<_, RunError>(file)
        };
        let events = options
            .tensorboard
            .map(|naming| {
                EventFile::create(
                    &directory.join("tensorboard"),
                    unix_seconds(),
                    options.resume_after,
                )
                .map(|file| (file, naming))
            })
            .transpose()?;
        Ok(Self {
            metrics: open("metrics.jsonl")?,
            timings: open("timings.jsonl")?,
            events,
        })
    }

    /// Records the metrics of a step. Lines are handed to the operating system at once.
    ///
    /// # Errors
    /// [`RunError::UnknownMetric`] before anything is written, [`RunError::DiskFull`] or [`RunError::Io`].
    pub fn record(&mut self, step: u64, metrics: &Metrics) -> Result<(), RunError> {
        let mut deterministic = BTreeMap::new();
        let mut timings = BTreeMap::new();
        let mut scalars = Vec::new();
        for (name, value) in metrics.iter() {
            let known = definition(name).ok_or_else(|| RunError::UnknownMetric {
                name: name.to_owned(),
                nearest: nearest(name),
            })?;
            let lines = if known.is_wall_clock {
                &mut timings
            } else {
                &mut deterministic
            };
            lines.insert(name.to_owned(), Some(value));
            if let Some((_, naming)) = &self.events {
                scalars.push((displayed(known, name, *naming), value));
            }
        }
        append(&mut self.metrics, step, deterministic)?;
        append(&mut self.timings, step, timings)?;
        match &mut self.events {
            Some((file, _)) if !scalars.is_empty() => file.write(unix_seconds(), step, &scalars),
            _ => Ok(()),
        }
    }

    /// Forces the records to disk; to be called before a checkpoint of the same step is published, so that a resumed
    /// run finds every record up to it.
    ///
    /// # Errors
    /// The failed operation.
    pub fn sync(&mut self) -> Result<(), RunError> {
        self.metrics.sync()?;
        self.timings.sync()
    }
}

/// Reads a metrics file, also one that is being written: a torn last line is passed over.
///
/// # Errors
/// [`RunError::Io`], or [`RunError::Text`] naming the line that is no record.
pub fn read_records(path: &Path) -> Result<Vec<Record>, RunError> {
    let text = fs_err::read_to_string(path).map_err(|source| RunError::io("read", path, 0, source))?;
    let whole = text
        .rfind('\n')
        .map_or("", |end| text.get(..end).unwrap_or_default());
    whole
        .split('\n')
        .enumerate()
        .filter(|(_, line)| !line.is_empty())
        .map(|(index, line)| {
            parse(line).map_err(|message| RunError::Text {
                path: path.to_owned(),
                line: index as u64 + 1,
                message,
            })
        })
        .collect()
}

fn parse(line: &str) -> Result<Record, String> {
    let record: Record = serde_json::from_str(line).map_err(|error| error.to_string())?;
    if record.schema == SCHEMA {
        Ok(record)
    } else {
        Err(format!(
            "its schema is {}, this program reads schema {SCHEMA}",
            record.schema
        ))
    }
}

fn append(file: &mut LineFile, step: u64, metrics: BTreeMap<String, Option<f64>>) -> Result<(), RunError> {
    if metrics.is_empty() {
        return Ok(());
    }
    let record = Record {
        schema: SCHEMA,
        step,
        metrics,
    };
    match serde_json::to_string(&record) {
        Ok(line) => file.append(&line),
        Err(error) => file.failed("describe", error.into()),
    }
}

fn unix_seconds() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(values: &[(&str, f64)]) -> Metrics {
        let mut metrics = Metrics::new();
        for (name, value) in values {
            metrics.set(*name, *value);
        }
        metrics
    }

    fn write(folder: &Path, resume_after: Option<u64>, steps: std::ops::RangeInclusive<u64>) {
        let mut writer = MetricsWriter::open(
            folder,
            MetricsOptions {
                tensorboard: None,
                resume_after,
            },
        )
        .unwrap();
        for step in steps {
            let values = [
                ("success/rate", step as f64 / 8.0),
                ("reward/mean", f64::NAN),
                ("timing/rollout_seconds", 0.25),
            ];
            writer.record(step, &metrics(&values)).unwrap();
        }
        writer.sync().unwrap();
    }

    #[test]
    fn a_sum_over_nothing_is_recorded_as_0() {
        let nothing: f64 = [0.0_f64; 0].iter().sum();
        let recorded = metrics(&[("analysis/copied_share", nothing)]);
        assert!(recorded.iter().all(|(_, value)| value.is_sign_positive()));
    }

    #[test]
    fn records_are_sorted_versioned_and_keep_clocks_apart() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), None, 1..=1);
        assert_eq!(
            fs_err::read_to_string(folder.path().join("metrics.jsonl")).unwrap(),
            "{\"schema\":1,\"step\":1,\"metrics\":{\"reward/mean\":null,\"success/rate\":0.125}}\n"
        );
        assert_eq!(
            fs_err::read_to_string(folder.path().join("timings.jsonl")).unwrap(),
            "{\"schema\":1,\"step\":1,\"metrics\":{\"timing/rollout_seconds\":0.25}}\n"
        );
    }

    #[test]
    fn a_resumed_run_has_the_bytes_of_an_uninterrupted_one() {
        let whole = tempfile::tempdir().unwrap();
        write(whole.path(), None, 0..=6);
        let resumed = tempfile::tempdir().unwrap();
        write(resumed.path(), None, 0..=5);
        let path = resumed.path().join("metrics.jsonl");
        // The process died while writing a line after the checkpoint of step 3.
        let mut bytes = fs_err::read(&path).unwrap();
        bytes.extend_from_slice(b"{\"schema\":1,\"st");
        fs_err::write(&path, bytes).unwrap();
        assert_eq!(
            read_records(&path).unwrap().len(),
            6,
            "the torn line is passed over"
        );
        write(resumed.path(), Some(3), 4..=6);
        assert_eq!(
            fs_err::read(path).unwrap(),
            fs_err::read(whole.path().join("metrics.jsonl")).unwrap()
        );
        write(resumed.path(), None, 0..=0);
        assert_eq!(
            read_records(&resumed.path().join("metrics.jsonl")).unwrap().len(),
            1,
            "begun again"
        );
    }

    #[test]
    fn an_empty_line_does_not_stop_a_resumed_run() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), None, 0..=2);
        let path = folder.path().join("metrics.jsonl");
        let text = fs_err::read_to_string(&path).unwrap();
        fs_err::write(&path, text.replacen('\n', "\n\n", 1)).unwrap();
        write(folder.path(), Some(1), 2..=2);
        let steps: Vec<u64> = read_records(&path)
            .unwrap()
            .iter()
            .map(|record| record.step)
            .collect();
        assert_eq!(steps, [0, 1, 2]);
    }

    #[test]
    fn an_unregistered_name_is_refused_before_anything_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = MetricsWriter::open(folder.path(), MetricsOptions::default()).unwrap();
        let message = writer
            .record(1, &metrics(&[("reward/mean", 1.0), ("reward/meen", 1.0)]))
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("`reward/meen`") && message.contains("`reward/mean`"),
            "{message}"
        );
        assert!(
            read_records(&folder.path().join("metrics.jsonl"))
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn a_damaged_record_is_named() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), None, 0..=2);
        let path = folder.path().join("metrics.jsonl");
        let text = fs_err::read_to_string(&path)
            .unwrap()
            .replacen("\"step\":1", "\"step\":-", 1);
        fs_err::write(&path, text).unwrap();
        for error in [
            read_records(&path).unwrap_err(),
            MetricsWriter::open(
                folder.path(),
                MetricsOptions {
                    tensorboard: None,
                    resume_after: Some(2),
                },
            )
            .unwrap_err(),
        ] {
            let message = error.to_string();
            assert!(message.contains("metrics.jsonl` line 2"), "{message}");
        }
    }
}
