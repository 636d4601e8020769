//! Spreading independent outputs over rayon's current pool.
//!
//! Not for: sums. No partial result ever crosses a task boundary, so the number of threads cannot change a bit.

use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

/// Multiply-adds under which a call stays on its thread: waking another costs about as much as this work.
const WORTH_SPLITTING: usize = 1 << 19;

/// Elements under which an element-wise call stays on its thread.
const WORTH_SPLITTING_ELEMENTS: usize = 1 << 15;

/// Number of threads for `work` multiply-adds: one under the threshold, else the pool's.
pub(crate) fn threads_for(work: usize) -> usize {
    if work < WORTH_SPLITTING {
        1
    } else {
        rayon::current_num_threads()
    }
}

/// Number of threads for element-wise work on `elements` values: one under the threshold, else the pool's.
pub(crate) fn threads_for_elements(elements: usize) -> usize {
    if elements < WORTH_SPLITTING_ELEMENTS {
        1
    } else {
        rayon::current_num_threads()
    }
}

/// Runs `task` for every index under `count`, on several threads when `threads > 1`.
pub(crate) fn for_each(threads: usize, count: usize, task: impl Fn(usize) + Send + Sync) {
    if threads <= 1 || count <= 1 {
        (0..count).for_each(task);
    } else if let Some(caller) = rayon::current_thread_index() {
        (0..count).into_par_iter().with_max_len(1).for_each(|index| {
            // In a profile, the caller's share is the kernel's own.
            let helps = rayon::current_thread_index() != Some(caller);
            let _span = helps.then(|| tracing::trace_span!("help").entered());
            task(index);
        });
    } else {
        // The caller is no thread of the pool, as in a program's main loop. Handing the whole call over would put it to
        // sleep and wake one more thread than there is work for; instead it takes indices like the others.
        let next = AtomicUsize::new(0);
        let take = || {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= count {
                    break;
                }
                task(index);
            }
        };
        rayon::in_place_scope(|scope| {
            for _ in 1..threads.min(count) {
                scope.spawn(|_| {
                    let _span = tracing::trace_span!("help").entered();
                    take();
                });
            }
            take();
        });
    }
}

/// A pointer to the start of a mutable slice that several tasks write to, each to its own elements.
#[derive(Clone, Copy)]
pub(crate) struct SharedOutput(*mut f32);

// SAFETY: the pointer is only a number here; every access goes through `at` or `slice`, whose callers promise that no
// two tasks touch the same element.
unsafe impl Send for SharedOutput {}
// SAFETY: as above.
unsafe impl Sync for SharedOutput {}

impl SharedOutput {
    /// Shares `out`, which must stay borrowed for as long as the tasks run.
    pub(crate) fn new(out: &mut [f32]) -> Self {
        Self(out.as_mut_ptr())
    }

    /// The address of element `index`.
    ///
    /// # Safety
    ///
    /// `index` lies within the slice.
    pub(crate) unsafe fn at(self, index: usize) -> *mut f32 {
        // SAFETY: the caller's promise.
        unsafe { self.0.add(index) }
    }

    /// The `length` elements from `start`.
    ///
    /// # Safety
    ///
    /// They lie within the slice, and nothing else accesses them while the result lives.
    pub(crate) unsafe fn slice<'a>(self, start: usize, length: usize) -> &'a mut [f32] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(start), length) }
    }
}
