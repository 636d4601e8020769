//! Chrome's trace event format, as a JSON array that is written piece by piece.
//!
//! The array is closed last. Viewers also open one that was never closed, as of a process that was killed.
//! Not for: what is recorded.

use std::fmt;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use fs_err::File;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use tracing::{Level, Metadata};

use crate::error::RunError;

/// Most fields of a span.
pub(super) const MOST_FIELDS: usize = 4;

/// One finished span of a thread. Times are nanoseconds since the profile began.
#[derive(Clone, Copy)]
pub(super) struct Record {
    pub(super) metadata: &'static Metadata<'static>,
    pub(super) start: u64,
    pub(super) duration: u64,
    /// In the order of the span's fields.
    pub(super) values: [u64; MOST_FIELDS],
}

/// One event of the format: `X` is a span, `M` a name, `i` a mark.
#[derive(Serialize)]
struct Event<'a, A> {
    ph: &'static str,
    name: &'a str,
    cat: &'static str,
    pid: u32,
    tid: u32,
    /// Microseconds.
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    args: A,
}

#[derive(Serialize)]
struct ThreadName<'a> {
    name: &'a str,
}

#[derive(Serialize)]
struct NoArguments {}

/// A span's fields by name.
struct Fields<'a>(&'a Record);

impl Serialize for Fields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = self.0.metadata.fields();
        let mut map = serializer.serialize_map(Some(fields.len()))?;
        for (field, value) in fields.iter().zip(&self.0.values) {
            map.serialize_entry(field.name(), value)?;
        }
        map.end()
    }
}

/// The file, until it is closed or an error ends it.
pub(super) struct TraceFile {
    path: PathBuf,
    writer: Option<BufWriter<File>>,
    error: Option<RunError>,
    /// One event, so that only whole ones reach the writer.
    line: Vec<u8>,
    pub(super) spans: u64,
    pub(super) bytes: u64,
}

impl fmt::Debug for TraceFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("TraceFile")
            .field("path", &self.path)
            .field("spans", &self.spans)
            .finish_non_exhaustive()
    }
}

impl TraceFile {
    pub(super) fn create(path: &Path) -> Result<Self, RunError> {
        let file = File::create(path).map_err(|error| RunError::io("create the profile", path, 0, error))?;
        let mut trace = Self {
            path: path.to_owned(),
            writer: Some(BufWriter::new(file)),
            error: None,
            line: Vec::new(),
            spans: 0,
            bytes: 0,
        };
        trace.put(b"[");
        trace.event(&Event {
            ph: "M",
            name: "process_name",
            cat: "",
            pid: 1,
            tid: 0,
            ts: 0.0,
            dur: None,
            args: ThreadName { name: "seed" },
        });
        match trace.error.take() {
            Some(error) => Err(error),
            None => Ok(trace),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Names a thread.
    pub(super) fn thread(&mut self, thread: u32, name: &str) {
        self.event(&Event {
            ph: "M",
            name: "thread_name",
            cat: "",
            pid: 1,
            tid: thread,
            ts: 0.0,
            dur: None,
            args: ThreadName { name },
        });
    }

    /// Marks a moment with a text, over all threads.
    pub(super) fn mark(&mut self, text: &str, at: u64) {
        self.event(&Event {
            ph: "i",
            name: text,
            cat: "profile",
            pid: 1,
            tid: 1,
            ts: microseconds(at),
            dur: None,
            args: NoArguments {},
        });
    }

    /// Spans of one thread.
    pub(super) fn records(&mut self, thread: u32, records: &[Record]) {
        for record in records {
            self.event(&Event {
                ph: "X",
                name: record.metadata.name(),
                cat: category(*record.metadata.level()),
                pid: 1,
                tid: thread,
                ts: microseconds(record.start),
                dur: Some(microseconds(record.duration)),
                args: Fields(record),
            });
        }
        self.spans += records.len() as u64;
        self.flush();
    }

    fn event<A: Serialize>(&mut self, event: &Event<'_, A>) {
        let mut line = std::mem::take(&mut self.line);
        line.clear();
        // The process's name comes first and is the only event without a comma before it.
        line.extend_from_slice(if self.bytes > 1 { b",\n" } else { b"\n" });
        match serde_json::to_writer(&mut line, event) {
            Ok(()) => self.put(&line),
            Err(error) => self.fail(error.into()),
        }
        self.line = line;
    }

    fn put(&mut self, bytes: &[u8]) {
        if let Some(writer) = &mut self.writer {
            match writer.write_all(bytes) {
                Ok(()) => self.bytes += bytes.len() as u64,
                Err(error) => self.fail(error),
            }
        }
    }

    fn flush(&mut self) {
        if let Some(writer) = &mut self.writer
            && let Err(error) = writer.flush()
        {
            self.fail(error);
        }
    }

    /// Keeps the first error and writes nothing more.
    fn fail(&mut self, error: std::io::Error) {
        if let Some(writer) = self.writer.take() {
            // What is buffered would fail again when dropped.
            let _ = writer.into_parts();
            self.error = Some(RunError::io("write the profile", &self.path, self.bytes, error));
        }
    }

    /// Whether nothing more can be written.
    pub(super) fn is_closed(&self) -> bool {
        self.writer.is_none()
    }

    /// Closes the array and the file; the first error of all is returned once.
    pub(super) fn close(&mut self) -> Result<(), RunError> {
        self.put(b"\n]\n");
        self.flush();
        self.writer = None;
        self.error.take().map_or(Ok(()), Err)
    }
}

fn microseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1000.0
}

/// A level's name in the file.
fn category(level: Level) -> &'static str {
    match level {
        Level::TRACE => "operation",
        Level::DEBUG => "step",
        _ => "phase",
    }
}
