//! Requests to stop, as a flag that loops look at.
//!
//! SIGTERM, SIGINT and SIGUSR1 (what Slurm sends before a job's end) set the flag; the trainer then saves at the next
//! step boundary and exits with [`crate::ExitCode::Stopped`]. A second SIGINT ends the process at once. SIGHUP is left
//! alone, so that `nohup` works.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::RunError;
use crate::exit_code::ExitCode;

/// Whether someone asked the process to stop. Clones share one flag.
#[derive(Clone, Debug, Default)]
pub struct StopFlag {
    flag: Arc<AtomicBool>,
}

impl StopFlag {
    /// A flag no signal sets; for tests and for programs that embed the trainer.
    pub fn new() -> Self {
        Self::default()
    }

    /// A flag set by signals. To be called once, early in the process.
    ///
    /// # Errors
    /// [`RunError::Signal`] when a handler cannot be installed.
    pub fn on_signals() -> Result<Self, RunError> {
        let stop = Self::new();
        let install = |signal: i32, result: std::io::Result<_>| {
            result
                .map(|_| ())
                .map_err(|source| RunError::Signal { signal, source })
        };
        let interrupted = Arc::new(AtomicBool::new(false));
        let interrupt = signal_hook::consts::SIGINT;
        // Order matters: the shutdown looks at the flag as it was before this SIGINT.
        install(
            interrupt,
            signal_hook::flag::register_conditional_shutdown(
                interrupt,
                i32::from(ExitCode::Interrupted as u8),
                Arc::clone(&interrupted),
            ),
        )?;
        install(interrupt, signal_hook::flag::register(interrupt, interrupted))?;
        install(
            interrupt,
            signal_hook::flag::register(interrupt, Arc::clone(&stop.flag)),
        )?;
        let terminate = signal_hook::consts::SIGTERM;
        install(
            terminate,
            signal_hook::flag::register(terminate, Arc::clone(&stop.flag)),
        )?;
        #[cfg(unix)]
        {
            let user = signal_hook::consts::SIGUSR1;
            install(user, signal_hook::flag::register(user, Arc::clone(&stop.flag)))?;
        }
        Ok(stop)
    }

    /// Whether a stop was requested.
    pub fn is_set(&self) -> bool {
        self.flag.load(Ordering::SeqCst)
    }

    /// Requests a stop from inside the program.
    pub fn set(&self) {
        self.flag.store(true, Ordering::SeqCst);
    }
}
