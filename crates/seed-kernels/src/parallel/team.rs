//! Threads that take indices of one job after the other and stay awake in between.
//!
//! A decoder's step is a few hundred operations of some ten microseconds each. Waking a sleeping thread costs more than
//! half of one, so helpers look for the next job for a while before they sleep, and a caller that has run out of
//! indices does not wait for a helper that has not woken up yet.
//!
//! Not for: several jobs at the same time, or jobs inside of jobs: the second one stays on its caller's thread.

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::thread::Thread;

/// Looks of a helper for the next job before it sleeps, about a tenth of a millisecond.
const LOOKS: u32 = 2000;
/// Looks of a caller for a helper still at work before it lets other programs run.
const CALLER_LOOKS: u32 = 1 << 14;
/// The most helpers, however many threads are asked for.
const MOST_HELPERS: usize = 255;

// The gate: helpers inside the job (bits 0..16), whether it can be entered (16), how many helpers it is meant for
// (17..32), and the job's number (32..64).
const INSIDE: u64 = 0xffff;
const OPEN: u64 = 1 << 16;
const WANTED_SHIFT: u32 = 17;
const NUMBER_SHIFT: u32 = 32;

thread_local! {
    static IN_JOB: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is running a job's indices, so that what it calls stays on it.
pub(super) fn in_job() -> bool {
    IN_JOB.get()
}

/// Marks this thread as running a job's indices until it is dropped, by a panic too.
struct InJob;

impl InJob {
    fn begin() -> Self {
        IN_JOB.set(true);
        Self
    }
}

impl Drop for InJob {
    fn drop(&mut self) {
        IN_JOB.set(false);
    }
}

/// A job as helpers see it.
struct Job<'a> {
    task: &'a (dyn Fn(usize) + Sync),
    count: usize,
    next: AtomicUsize,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Job<'_> {
    /// Takes indices until none is left. A panic ends the job and is kept for the caller.
    fn work(&self) {
        let result = catch_unwind(AssertUnwindSafe(|| {
            loop {
                let index = self.next.fetch_add(1, Ordering::Relaxed);
                if index >= self.count {
                    break;
                }
                (self.task)(index);
            }
        }));
        if let Err(payload) = result {
            self.next.store(self.count, Ordering::Relaxed);
            *self.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(payload);
        }
    }
}

struct Helper {
    thread: Thread,
    asleep: Arc<AtomicBool>,
}

/// All helpers of the process, with the one job that they may have.
struct Team {
    gate: AtomicU64,
    /// Written by the holder of `helpers` while the gate is closed and nobody is inside; read by those inside.
    job: UnsafeCell<*const Job<'static>>,
    /// Whoever holds this may post a job.
    helpers: Mutex<Vec<Helper>>,
}

// SAFETY: `job` is written only under the lock with the gate closed and empty, and read only after entering through
// the gate, whose atomic operations order the two.
unsafe impl Sync for Team {}

static TEAM: Team = Team {
    gate: AtomicU64::new(0),
    job: UnsafeCell::new(std::ptr::null()),
    helpers: Mutex::new(Vec::new()),
};

/// Calls `task` with every index under `count`, on this thread and up to `threads - 1` helpers.
pub(super) fn run(threads: usize, count: usize, task: &(dyn Fn(usize) + Sync)) {
    let mut helpers = match TEAM.helpers.try_lock() {
        Ok(helpers) => helpers,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => {
            // Another thread's job: those helpers are taken. Were this one's tasks not marked, the kernels they call
            // would share their work whenever that job happens to end in between.
            let _in_job = InJob::begin();
            (0..count).for_each(task);
            return;
        }
    };
    let wanted = (threads.min(count) - 1).min(MOST_HELPERS);
    while helpers.len() < wanted && enlist(&mut helpers) {}
    let wanted = wanted.min(helpers.len());

    let job = Job {
        task,
        count,
        next: AtomicUsize::new(0),
        panic: Mutex::new(None),
    };
    let number = (TEAM.gate.load(Ordering::Relaxed) >> NUMBER_SHIFT).wrapping_add(1);
    // SAFETY: the gate is closed and nobody is inside: the last job ended that way. The job outlives its readers,
    // since this function returns only after the gate was closed and all have left; only the lifetime is erased.
    unsafe {
        *TEAM.job.get() = (&raw const job).cast::<Job<'static>>();
    }
    let open = number << NUMBER_SHIFT | (wanted as u64) << WANTED_SHIFT | OPEN;
    // In one order with the helpers' announcements that they sleep: either they see the job or they are woken.
    TEAM.gate.store(open, Ordering::SeqCst);
    for helper in &helpers[..wanted] {
        if helper.asleep.swap(false, Ordering::SeqCst) {
            helper.thread.unpark();
        }
    }

    {
        let _in_job = InJob::begin();
        job.work();
    }

    TEAM.gate.fetch_and(!OPEN, Ordering::AcqRel);
    let mut looks = 0;
    while TEAM.gate.load(Ordering::Acquire) & INSIDE != 0 {
        looks += 1;
        if looks % CALLER_LOOKS == 0 {
            std::thread::yield_now();
        }
        std::hint::spin_loop();
    }
    drop(helpers);
    let panic = job.panic.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(payload) = panic {
        resume_unwind(payload);
    }
}

/// Starts one more helper; false where the system has no thread to give.
fn enlist(helpers: &mut Vec<Helper>) -> bool {
    let asleep = Arc::new(AtomicBool::new(false));
    let index = helpers.len();
    let started = std::thread::Builder::new()
        .name(format!("kernels-{}", index + 1))
        .spawn({
            let asleep = Arc::clone(&asleep);
            move || help(index, &asleep)
        });
    match started {
        Ok(handle) => {
            helpers.push(Helper {
                thread: handle.thread().clone(),
                asleep,
            });
            true
        }
        Err(_) => false,
    }
}

/// A helper's life.
fn help(index: usize, asleep: &AtomicBool) -> ! {
    IN_JOB.set(true);
    let mut last = 0;
    let mut looks = 0;
    loop {
        if enter(index, &mut last, Ordering::Acquire) {
            looks = 0;
        } else if looks < LOOKS {
            looks += 1;
            std::hint::spin_loop();
        } else {
            looks = 0;
            asleep.store(true, Ordering::SeqCst);
            if enter(index, &mut last, Ordering::SeqCst) {
                asleep.store(false, Ordering::SeqCst);
                continue;
            }
            while asleep.load(Ordering::SeqCst) {
                std::thread::park();
            }
        }
    }
}

/// Takes part in the present job if there is one for this helper that it has not yet been in.
fn enter(index: usize, last: &mut u64, order: Ordering) -> bool {
    let gate = TEAM.gate.load(order);
    let wanted = (gate >> WANTED_SHIFT) & 0x7fff;
    let number = gate >> NUMBER_SHIFT;
    if gate & OPEN == 0 || number == *last || index as u64 >= wanted {
        return false;
    }
    let entered = TEAM
        .gate
        .compare_exchange(gate, gate + 1, Ordering::AcqRel, Ordering::Relaxed);
    if entered.is_err() {
        // Another helper came or left, or the job is over: look again.
        return true;
    }
    *last = number;
    // SAFETY: inside the gate the job is alive: its caller waits until everyone has left.
    let job = unsafe { &**TEAM.job.get() };
    {
        let _span = tracing::trace_span!("help").entered();
        job.work();
    }
    TEAM.gate.fetch_sub(1, Ordering::Release);
    true
}
