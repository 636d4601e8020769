//! Numbers a run reports: a registry that says what each one is, and writers that keep them.
//!
//! Deterministic metrics go to `metrics.jsonl`, which is byte-identical between two runs of the same configuration.
//! Wall-clock ones (seconds, memory) go to `timings.jsonl`. Both also go to TensorBoard event files.
//!
//! Not for: computing the numbers.

mod event_file;
mod registry;
mod table;
mod writer;

pub use event_file::EventFile;
pub use registry::{MetricDefinition, MetricNaming, definition, reference_markdown, registry};
pub use writer::{Metrics, MetricsOptions, MetricsWriter, Record, read_records};
