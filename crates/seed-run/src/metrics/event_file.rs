//! TensorBoard event files.
//!
//! A file is a sequence of TFRecords: length (u64, little endian), masked CRC-32C of those eight bytes, payload, masked
//! CRC-32C of the payload. Each payload is an `Event` message in protocol-buffer encoding; the first names the version.
//! Only what scalars need is written: `Event { wall_time = 1, step = 2, file_version = 3, summary = 5,
//! session_log = 7 }`, `Summary { value = 1 }`, `Value { tag = 1, simple_value = 2 }`, `SessionLog { status = 1 }`.

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::RunError;
use crate::lock::host_name;

/// Wire types of protocol buffers.
const VARINT: u64 = 0;
const FIXED_64: u64 = 1;
const BYTES: u64 = 2;
const FIXED_32: u64 = 5;

/// A TensorBoard event file being written.
#[derive(Debug)]
pub struct EventFile {
    path: PathBuf,
    file: fs_err::File,
}

impl EventFile {
    /// Creates a new event file in `directory`, which is created when missing. With `restart_after`, TensorBoard is told
    /// to forget what earlier files of the folder say about later steps.
    ///
    /// # Errors
    /// The failed operation.
    pub fn create(directory: &Path, seconds: f64, restart_after: Option<u64>) -> Result<Self, RunError> {
        fs_err::create_dir_all(directory)
            .map_err(|source| RunError::io("create the folder", directory, 0, source))?;
        let host: String = host_name()
            .chars()
            .map(|character| {
                if character.is_ascii_alphanumeric() {
                    character
                } else {
                    '-'
                }
            })
            .collect();
        // Seconds alone are not unique when a run is resumed at once.
        let name = format!(
            "events.out.tfevents.{}.{host}.{}",
            seconds as u64,
            crate::durable::nonce()
        );
        let path = directory.join(name);
        let file = fs_err::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(|source| RunError::io("create", &path, 0, source))?;
        let mut events = Self { path, file };
        events.append(&version_event(seconds))?;
        if let Some(step) = restart_after {
            events.append(&restart_event(seconds, step + 1))?;
        }
        Ok(events)
    }

    /// Appends the scalars of one step.
    ///
    /// # Errors
    /// The failed operation.
    pub fn write(&mut self, seconds: f64, step: u64, scalars: &[(String, f64)]) -> Result<(), RunError> {
        self.append(&scalar_event(seconds, step, scalars))
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn append(&mut self, event: &[u8]) -> Result<(), RunError> {
        let bytes = record(event);
        self.file
            .write_all(&bytes)
            .map_err(|source| RunError::io("append to", &self.path, bytes.len() as u64, source))
    }
}

/// Frames a payload as a TFRecord.
fn record(payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u64).to_le_bytes();
    let mut bytes = Vec::with_capacity(payload.len() + 16);
    bytes.extend_from_slice(&length);
    bytes.extend_from_slice(&masked_checksum(&length).to_le_bytes());
    bytes.extend_from_slice(payload);
    bytes.extend_from_slice(&masked_checksum(payload).to_le_bytes());
    bytes
}

/// CRC-32C, rotated and offset as TFRecord wants it, so that a checksum of data holding checksums stays a good one.
fn masked_checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

fn version_event(seconds: f64) -> Vec<u8> {
    let mut event = Vec::new();
    fixed_64(&mut event, 1, seconds);
    message(&mut event, 3, b"brain.Event:2");
    event
}

fn restart_event(seconds: f64, step: u64) -> Vec<u8> {
    /// `SessionLog.SessionStatus.START`.
    const START: u64 = 1;
    let mut event = Vec::new();
    fixed_64(&mut event, 1, seconds);
    varint_field(&mut event, 2, step);
    let mut log = Vec::new();
    varint_field(&mut log, 1, START);
    message(&mut event, 7, &log);
    event
}

fn scalar_event(seconds: f64, step: u64, scalars: &[(String, f64)]) -> Vec<u8> {
    let mut summary = Vec::new();
    for (tag, value) in scalars {
        let mut entry = Vec::new();
        message(&mut entry, 1, tag.as_bytes());
        key(&mut entry, 2, FIXED_32);
        entry.extend_from_slice(&(*value as f32).to_le_bytes());
        message(&mut summary, 1, &entry);
    }
    let mut event = Vec::new();
    fixed_64(&mut event, 1, seconds);
    varint_field(&mut event, 2, step);
    message(&mut event, 5, &summary);
    event
}

fn key(out: &mut Vec<u8>, field: u64, wire_type: u64) {
    varint(out, field << 3 | wire_type);
}

fn varint_field(out: &mut Vec<u8>, field: u64, value: u64) {
    key(out, field, VARINT);
    varint(out, value);
}

fn fixed_64(out: &mut Vec<u8>, field: u64, value: f64) {
    key(out, field, FIXED_64);
    out.extend_from_slice(&value.to_le_bytes());
}

fn message(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    key(out, field, BYTES);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Seven bits at a time, lowest first, the top bit telling that more follow.
fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hexadecimal(bytes: &[u8]) -> String {
        bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<Vec<_>>()
            .concat()
    }

    #[test]
    fn varints_are_protocol_buffers() {
        for (value, expected) in [
            (0, "00"),
            (127, "7f"),
            (128, "8001"),
            (300, "ac02"),
            (u64::MAX, "ffffffffffffffffff01"),
        ] {
            let mut bytes = Vec::new();
            varint(&mut bytes, value);
            assert_eq!(hexadecimal(&bytes), expected);
        }
    }

    #[test]
    fn checksums_are_those_of_the_format() {
        // CRC-32C's check value, then the same masked.
        assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(masked_checksum(b"123456789"), 0xc78a_b0e5);
    }

    #[test]
    fn bytes_are_those_of_tensorboard() {
        // Made by tests/golden/event_file.py.
        let expected = concat!(
            "1800000000000000a37f4b220900002040fc54d9411a0d627261696e2e4576656e743a322b3531101000000000",
            "00000095fbfe180900002040fc54d94110ad023a020801596f3f7934000000000000005e33175c0900005040fc",
            "54d94110ae022a260a120a0b7265776172642f6d65616e150000203f0a100a09706f6c6963792f6b6c15000020",
            "c025a71f7c",
        );
        let folder = tempfile::tempdir().unwrap();
        let mut events = EventFile::create(folder.path(), 1_700_000_000.5, Some(300)).unwrap();
        let scalars = [("reward/mean".to_owned(), 0.625), ("policy/kl".to_owned(), -2.5)];
        events.write(1_700_000_001.25, 302, &scalars).unwrap();
        assert_eq!(hexadecimal(&fs_err::read(events.path()).unwrap()), expected);
        let name = events.path().file_name().unwrap().to_str().unwrap();
        assert!(name.starts_with("events.out.tfevents.1700000000."), "{name}");
    }
}
