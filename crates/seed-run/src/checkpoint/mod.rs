//! Checkpoints that are complete and checked, or not there.
//!
//! A checkpoint is a folder `step-00000120` of files. It is written under a temporary name; every file is forced to
//! disk and listed with size and digest in `MANIFEST.json`; then the folder is renamed and `LATEST` replaced. Loading
//! takes the newest folder all of whose files match the manifest; `LATEST` is a hint for people and scripts. Old
//! checkpoints go only after a newer one has been read back and found right.
//!
//! Not for: what is in the files; that is the caller's.

mod draft;
mod manifest;
#[cfg(test)]
pub(crate) mod simulated_disk;
mod store;
#[cfg(test)]
mod tests;

pub use draft::CheckpointDraft;
pub use manifest::{FileRecord, Manifest};
pub(crate) use store::digest;
pub use store::{Checkpoint, CheckpointStore, Rejected, Retention, Search};
