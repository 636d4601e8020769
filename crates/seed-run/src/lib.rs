//! Run directories: durable files, checkpoints, metrics, locks.
