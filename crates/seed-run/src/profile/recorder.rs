//! The receiver of spans.
//!
//! Recording must not slow down what it watches: operations can be as short as two microseconds. Each thread keeps its
//! finished spans in a list of its own, as numbers; text is made when an iteration has ended, when a list is full, or
//! at the end. Spans here are always entered where they are made and left in the opposite order on the same thread, so
//! that a stack per thread is all the bookkeeping there is.
//!
//! Not for: the file's format ([`super::trace_file`]).

use std::cell::RefCell;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record as Values};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};

use super::trace_file::{MOST_FIELDS, Record, TraceFile};
use super::{ProfileOptions, ProfileReport};
use crate::error::RunError;

/// Spans a thread keeps before it writes them itself.
const FULL: usize = 1 << 16;
/// Modules whose spans are recorded.
const OURS: &str = "seed";

/// What is recorded now.
const NOTHING: u8 = 0;
const PHASES: u8 = 1;
const EVERYTHING: u8 = 2;

/// The finished spans of one thread that are not in the file yet.
#[derive(Default)]
struct ThreadLog {
    number: u32,
    records: Mutex<Vec<Record>>,
}

/// A span that has not ended.
struct Open {
    metadata: &'static Metadata<'static>,
    start: u64,
    values: [u64; MOST_FIELDS],
}

/// What a thread knows of its own spans.
struct ThreadState {
    log: Arc<ThreadLog>,
    open: Vec<Open>,
}

thread_local! {
    static THREAD: RefCell<Option<ThreadState>> = const { RefCell::new(None) };
}

/// What the recorder and the profile's owner share.
pub(super) struct Shared {
    options: ProfileOptions,
    began: Instant,
    detail: AtomicU8,
    iterations: AtomicU64,
    threads: AtomicU32,
    logs: Mutex<Vec<Arc<ThreadLog>>>,
    file: Mutex<TraceFile>,
    limited: AtomicBool,
}

impl fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Shared")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// A panic elsewhere cannot leave a list or a file of whole records half-changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn create(path: &Path, options: ProfileOptions) -> Result<Self, RunError> {
        Ok(Self {
            file: Mutex::new(TraceFile::create(path)?),
            options,
            began: Instant::now(),
            detail: AtomicU8::new(if options.detailed_iterations == Some(0) {
                PHASES
            } else {
                EVERYTHING
            }),
            iterations: AtomicU64::new(0),
            threads: AtomicU32::new(0),
            logs: Mutex::default(),
            limited: AtomicBool::new(false),
        })
    }

    fn now(&self) -> u64 {
        // Five centuries of nanoseconds fit.
        self.began.elapsed().as_nanos() as u64
    }

    /// Records less from now on: call sites of what is left out are back to one comparison.
    fn reduce(&self, detail: u8) {
        if self.detail.fetch_min(detail, Ordering::Relaxed) > detail {
            tracing::callsite::rebuild_interest_cache();
        }
    }

    /// Makes the current thread known by its name.
    fn register_thread(&self) -> ThreadState {
        let log = Arc::new(ThreadLog {
            number: self.threads.fetch_add(1, Ordering::Relaxed) + 1,
            records: Mutex::default(),
        });
        let thread = std::thread::current();
        let name = thread
            .name()
            .map_or_else(|| format!("thread {}", log.number), str::to_owned);
        lock(&self.file).thread(log.number, &name);
        lock(&self.logs).push(Arc::clone(&log));
        ThreadState {
            log,
            open: Vec::new(),
        }
    }

    /// Writes the finished spans of one thread.
    fn write(&self, log: &ThreadLog) {
        let mut file = lock(&self.file);
        // Taken under the file's lock, so that an ended file and an empty list go together.
        let records = std::mem::take(&mut *lock(&log.records));
        file.records(log.number, &records);
        let (spans, failed) = (file.spans, file.is_closed());
        if spans >= self.options.most_spans && !self.limited.swap(true, Ordering::Relaxed) {
            file.mark("only phases are recorded from here on", self.now());
        }
        drop(file);
        if failed {
            self.reduce(NOTHING);
        } else if spans >= self.options.most_spans {
            self.reduce(PHASES);
        }
    }

    fn write_all(&self) {
        let logs: Vec<Arc<ThreadLog>> = lock(&self.logs).clone();
        for log in logs {
            self.write(&log);
        }
    }

    /// An iteration's span has ended.
    fn iteration_ended(&self) {
        let ended = self.iterations.fetch_add(1, Ordering::Relaxed) + 1;
        if self
            .options
            .detailed_iterations
            .is_some_and(|count| ended >= count)
        {
            self.reduce(PHASES);
        }
        let _span = tracing::debug_span!("write_profile").entered();
        self.write_all();
    }

    pub(super) fn finish(&self) -> Result<ProfileReport, RunError> {
        self.reduce(NOTHING);
        self.write_all();
        let mut file = lock(&self.file);
        file.close()?;
        Ok(ProfileReport {
            path: file.path().to_owned(),
            spans: file.spans,
            bytes: file.bytes,
            limited: self.limited.load(Ordering::Relaxed),
        })
    }
}

/// Receives spans.
pub(super) struct Recorder {
    shared: Arc<Shared>,
}

impl Recorder {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Runs `work` on the current thread's state. `None` while the thread ends, when it has no state any more.
    fn with_thread<T>(&self, work: impl FnOnce(&mut ThreadState) -> T) -> Option<T> {
        THREAD
            .try_with(|state| {
                let mut state = state.borrow_mut();
                work(state.get_or_insert_with(|| self.shared.register_thread()))
            })
            .ok()
    }
}

/// Takes a span's numbers.
struct Numbers<'a>(&'a mut [u64; MOST_FIELDS]);

impl Visit for Numbers<'_> {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if let Some(place) = self.0.get_mut(field.index()) {
            *place = value;
        }
    }

    /// Only numbers are recorded.
    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}

impl Subscriber for Recorder {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.enabled(metadata) {
            Interest::always()
        } else {
            Interest::never()
        }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target().starts_with(OURS)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(match self.shared.detail.load(Ordering::Relaxed) {
            NOTHING => LevelFilter::OFF,
            PHASES => LevelFilter::INFO,
            _ => LevelFilter::TRACE,
        })
    }

    /// A span's id is its place on the thread's stack, from 1.
    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut values = [0; MOST_FIELDS];
        attributes.record(&mut Numbers(&mut values));
        let depth = self.with_thread(|thread| {
            thread.open.push(Open {
                metadata: attributes.metadata(),
                start: 0,
                values,
            });
            thread.open.len()
        });
        Id::from_u64(depth.unwrap_or(1) as u64)
    }

    fn record(&self, _: &Id, _: &Values<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, id: &Id) {
        self.with_thread(|thread| {
            // Ids are places on the stack, from 1.
            if let Some(open) = thread.open.get_mut(id.into_u64() as usize - 1) {
                open.start = self.shared.now();
            }
        });
    }

    fn exit(&self, id: &Id) {
        let end = self.shared.now();
        let ended = self.with_thread(|thread| {
            let open = thread.open.get(id.into_u64() as usize - 1)?;
            let mut records = lock(&thread.log.records);
            records.push(Record {
                metadata: open.metadata,
                start: open.start,
                duration: end.saturating_sub(open.start),
                values: open.values,
            });
            let full = (records.len() >= FULL).then(|| Arc::clone(&thread.log));
            Some((open.metadata.name(), full))
        });
        let Some((name, full)) = ended.flatten() else {
            return;
        };
        if name == self.shared.options.iteration {
            self.shared.iteration_ended();
        } else if let Some(log) = full {
            let _span = tracing::debug_span!("write_profile").entered();
            self.shared.write(&log);
        }
    }

    fn try_close(&self, id: Id) -> bool {
        self.with_thread(|thread| thread.open.truncate(id.into_u64() as usize - 1));
        true
    }
}
