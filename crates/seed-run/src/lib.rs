//! A run's files: durable, checked, and the same bytes every time.
//!
//! - [`RunDirectory`]: where everything lies, under a lock.
//! - [`CheckpointStore`]: checkpoints that are complete and checked, or not there.
//! - [`MetricsWriter`]: numbers, each registered with what it means.
//! - [`write_json_lines`], [`read_json_lines`]: trajectories and skills.
//! - [`write_atomic`], [`LineFile`]: the two ways a file may change.
//! - [`Profile`]: what the process did when, for a trace viewer.
//! - [`StopFlag`], [`ExitCode`]: being asked to stop, and saying how it ended.
//!
//! Not for: anything about models, environments or training; contents are bytes, lines and named tensors.

mod checkpoint;
mod cpu_time;
mod durable;
mod error;
mod exit_code;
mod file_system;
mod json_lines;
mod line_file;
mod lock;
mod memory;
pub mod metrics;
mod phase_clock;
mod profile;
mod run_directory;
mod signals;
mod tensors;

pub use checkpoint::{
    Checkpoint, CheckpointDraft, CheckpointStore, FileRecord, Manifest, Rejected, Retention, Search,
};
pub use cpu_time::process_cpu_seconds;
pub use durable::{file_record, write_atomic, write_atomic_on, write_atomic_with};
pub use error::{CheckpointFault, RunError};
pub use exit_code::ExitCode;
pub use file_system::{Disk, DurableFile, FileSystem};
pub use json_lines::{JsonLines, read_json_lines, write_json_lines};
pub use line_file::{LineFile, SyncPolicy};
pub use lock::RunLock;
pub use memory::process_memory;
pub use metrics::{Metrics, MetricsOptions, MetricsWriter};
pub use phase_clock::PhaseClock;
pub use profile::{Profile, ProfileOptions, ProfileReport};
pub use run_directory::{RunDirectory, RunRecord, config_path, read_run_record};
pub use signals::StopFlag;
pub use tensors::{NamedTensor, TensorView, read_tensors};
