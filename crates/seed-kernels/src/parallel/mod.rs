//! Spreading independent outputs over threads: the one place where work is split, for kernels and for their callers.
//!
//! As many threads as rayon's current pool has take part, which is where a program says how many it wants; they are not
//! rayon's, whose workers sleep between two operations. There is one level: inside of a task everything stays on the
//! task's thread.
//!
//! Not for: sums. No partial result ever crosses a task boundary, so the number of threads cannot change a bit.

mod team;

/// Multiply-adds under which a call stays on its thread: sharing it costs about as much as this work.
const WORTH_SPLITTING: usize = 1 << 18;

/// Elements under which an element-wise call stays on its thread.
const WORTH_SPLITTING_ELEMENTS: usize = 1 << 15;

/// Number of threads that a call from here is spread over: that of rayon's current pool, or one inside of a task.
pub fn threads() -> usize {
    if team::in_job() {
        1
    } else {
        rayon::current_num_threads()
    }
}

/// Calls `task` with every item and its index, on several threads.
///
/// Items are taken in order, one at a time: put the longest first. Kernels called by a task stay on its thread.
///
/// # Panics
///
/// Panics when a task does, after the others have ended.
pub fn for_each_mut<T: Send>(items: &mut [T], task: impl Fn(usize, &mut T) + Sync) {
    for_each_mut_on(threads(), items, task);
}

/// As [`for_each_mut`], on several threads when `threads > 1`.
pub(crate) fn for_each_mut_on<T: Send>(threads: usize, items: &mut [T], task: impl Fn(usize, &mut T) + Sync) {
    let count = items.len();
    let first = SharedItems(items.as_mut_ptr());
    for_each(threads, count, |index| {
        // SAFETY: every index under `count` is given to one task only, and the items stay borrowed until all are done.
        let item = unsafe { &mut *first.at(index) };
        task(index, item);
    });
}

/// The results of `task` for every item, in order, computed on several threads.
///
/// # Panics
///
/// Panics when a task does, after the others have ended.
pub fn map<T: Sync, R: Send>(items: &[T], task: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let mut results: Vec<Option<R>> = items.iter().map(|_| None).collect();
    for_each_mut(&mut results, |index, result| {
        *result = items.get(index).map(&task);
    });
    // Every index was visited, so nothing is left out here.
    results.into_iter().flatten().collect()
}

/// The items of a mutable slice, each for one task.
struct SharedItems<T>(*mut T);

// SAFETY: items move between threads one at a time, which `T: Send` allows; see `for_each_mut`.
unsafe impl<T: Send> Sync for SharedItems<T> {}

impl<T> SharedItems<T> {
    /// The address of item `index`, which must lie within the slice.
    unsafe fn at(&self, index: usize) -> *mut T {
        // SAFETY: the caller's promise.
        unsafe { self.0.add(index) }
    }
}

/// Number of threads for `work` multiply-adds: one under the threshold, else all.
pub(crate) fn threads_for(work: usize) -> usize {
    if work < WORTH_SPLITTING { 1 } else { threads() }
}

/// Number of threads for element-wise work on `elements` values: one under the threshold, else all.
pub(crate) fn threads_for_elements(elements: usize) -> usize {
    if elements < WORTH_SPLITTING_ELEMENTS {
        1
    } else {
        threads()
    }
}

/// Runs `task` for every index under `count`, on several threads when `threads > 1`.
pub(crate) fn for_each(threads: usize, count: usize, task: impl Fn(usize) + Sync) {
    if threads <= 1 || count <= 1 || team::in_job() {
        (0..count).for_each(task);
    } else {
        team::run(threads, count, &task);
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::panic::catch_unwind;
    use std::sync::{Mutex, mpsc};

    use super::*;

    fn with_threads<R: Send>(count: usize, body: impl FnOnce() -> R + Send) -> R {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(count)
            .build()
            .unwrap();
        pool.install(body)
    }

    #[test]
    fn every_index_is_taken_once_in_thousands_of_jobs() {
        for threads in [1, 2, 3, 7] {
            with_threads(threads, || {
                for round in 0..2000 {
                    let mut counts = vec![0; round % 50];
                    for_each_mut(&mut counts, |index, count| *count += index + 1);
                    let expected: Vec<usize> = (1..=round % 50).collect();
                    assert_eq!(counts, expected);
                }
            });
        }
    }

    #[test]
    fn jobs_from_several_threads_at_once_are_all_done() {
        let sums = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for caller in 0..4_usize {
                let sums = &sums;
                scope.spawn(move || {
                    for _ in 0..500 {
                        let squares = map(&[1, 2, 3, 4, 5], |value| value * value + caller);
                        sums.lock().unwrap().push((caller, squares.iter().sum::<usize>()));
                    }
                });
            }
        });
        let sums = sums.into_inner().unwrap();
        assert_eq!(sums.len(), 2000);
        assert!(sums.iter().all(|&(caller, sum)| sum == 55 + 5 * caller));
    }

    #[test]
    fn inside_a_task_everything_stays_on_its_thread() {
        with_threads(4, || {
            let outer: Vec<usize> = (0..16).collect();
            let inner = map(&outer, |_| {
                let here = std::thread::current().id();
                assert_eq!(threads(), 1);
                map(&[(); 8], |()| std::thread::current().id() == here)
            });
            assert!(inner.into_iter().flatten().all(|same| same));
            assert_eq!(threads(), 4);
        });
    }

    #[test]
    fn one_level_also_while_another_thread_has_the_helpers() {
        let (taken, is_taken) = mpsc::channel();
        let (release, is_released) = mpsc::channel::<()>();
        // `release` goes with this closure, so a failed assertion lets the other thread go too.
        std::thread::scope(move |scope| {
            scope.spawn(move || {
                let gates = [Mutex::new(Some((taken, is_released))), Mutex::new(None)];
                with_threads(2, || {
                    map(&gates, |gate| {
                        if let Some((taken, is_released)) = gate.lock().unwrap().take() {
                            taken.send(()).unwrap();
                            let _ = is_released.recv();
                        }
                    })
                });
            });
            is_taken.recv().unwrap();
            with_threads(4, || {
                let inside = map(&[(); 8], |()| threads());
                assert_eq!(inside, [1; 8]);
                let result = catch_unwind(|| map(&[0, 1], |&value| assert_ne!(value, 1)));
                assert!(result.is_err());
                assert_eq!(threads(), 4);
            });
            release.send(()).unwrap();
        });
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_next_job_is_whole() {
        with_threads(3, || {
            let result = catch_unwind(|| {
                map(&[0, 1, 2, 3, 4, 5, 6, 7], |&value| {
                    assert_ne!(value, 5, "five");
                    value
                })
            });
            let payload = result.unwrap_err();
            let text = payload.downcast_ref::<String>().unwrap();
            assert!(text.contains("five"), "{text}");
            let seen: BTreeSet<i32> = map(&[1, 2, 3], |&value| value).into_iter().collect();
            assert_eq!(seen, BTreeSet::from([1, 2, 3]));
        });
    }
}
