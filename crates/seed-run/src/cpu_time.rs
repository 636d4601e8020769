//! How much time the process has spent on processors, as the system counts it.
//!
//! Not for: how long anything took ([`crate::PhaseClock`]).

/// Seconds that all threads of this process together have run so far, in the program and in the system. `None` where the
/// system does not tell.
pub fn process_cpu_seconds() -> Option<f64> {
    #[cfg(unix)]
    {
        use rustix::time::{ClockId, clock_gettime};
        let time = clock_gettime(ClockId::ProcessCPUTime);
        Some(time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9)
    }
    #[cfg(not(unix))]
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn work_of_all_threads_counts() {
        let before = process_cpu_seconds().unwrap();
        let sums: Vec<u64> = std::thread::scope(|scope| {
            let work = || (0..20_000_000_u64).fold(0, |sum, number| std::hint::black_box(sum ^ number));
            let threads = [scope.spawn(work), scope.spawn(work)];
            threads.map(|thread| thread.join().unwrap()).to_vec()
        });
        assert_eq!(sums[0], sums[1]);
        let after = process_cpu_seconds().unwrap();
        assert!(after > before, "{before} {after}");
    }
}
