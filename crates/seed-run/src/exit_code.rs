//! How the programs say how they ended.

/// Exit codes of every command. Scripts and schedulers may rely on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitCode {
    /// Done.
    Success = 0,
    /// A check was made and its answer is no: differences found, a required score not reached.
    CheckFailed = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// Data or model files are missing or wrong.
    Data = 3,
    /// Memory, disk or another resource ran out.
    Resource = 4,
    /// A bug in the program.
    Internal = 5,
    /// Stopped early by a signal with everything saved: run again with `--resume` (`EX_TEMPFAIL`).
    Stopped = 75,
    /// Stopped by SIGINT before a checkpoint could be written.
    Interrupted = 130,
    /// Stopped by SIGTERM before a checkpoint could be written.
    Terminated = 143,
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::ExitCode;

    #[test]
    fn codes_are_those_that_were_promised() {
        let codes = [
            (ExitCode::Success, 0),
            (ExitCode::CheckFailed, 1),
            (ExitCode::Usage, 2),
            (ExitCode::Data, 3),
            (ExitCode::Resource, 4),
            (ExitCode::Internal, 5),
            (ExitCode::Stopped, 75),
            (ExitCode::Interrupted, 130),
            (ExitCode::Terminated, 143),
        ];
        for (code, number) in codes {
            assert_eq!(code as u8, number);
        }
    }
}
