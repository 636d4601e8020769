//! How a command that failed tells it: the whole chain of causes, and an exit code for scripts.

use std::error::Error;
use std::fmt;

use seed_run::{ExitCode, RunError};
use seed_search::SearchError;
use seed_serve::ServeError;
use seed_study::StudyError;
use seed_train::TrainError;

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    error: Box<dyn Error>,
    code: ExitCode,
}

/// What a command returns.
pub(crate) type Outcome = Result<ExitCode, Failure>;

impl Failure {
    /// A failure with a code of its own.
    pub(crate) fn new(error: impl Into<Box<dyn Error>>, code: ExitCode) -> Self {
        Self {
            error: error.into(),
            code,
        }
    }

    /// Wrong words on the command line.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(message.into(), ExitCode::Usage)
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        self.code
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.code == ExitCode::Stopped {
            "stopped:"
        } else {
            "error:"
        };
        write!(
            formatter,
            "{} {}",
            console::style(word).for_stderr().red().bold(),
            self.error
        )?;
        for cause in causes(&*self.error) {
            write!(formatter, "\n  caused by: {cause}")?;
        }
        Ok(())
    }
}

/// The texts of an error's causes, without those that repeat the one above, as transparent errors do.
fn causes(error: &dyn Error) -> Vec<String> {
    let mut shown = error.to_string();
    let mut causes = Vec::new();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        if !shown.contains(&text) {
            causes.push(text.clone());
            shown = text;
        }
        source = cause.source();
    }
    causes
}

/// An error and its causes in one line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut texts = vec![error.to_string()];
    texts.extend(causes(error));
    texts.join(": ")
}

impl From<TrainError> for Failure {
    fn from(error: TrainError) -> Self {
        let code = match &error {
            TrainError::Stopped { .. } => ExitCode::Stopped,
            TrainError::Config(_)
            | TrainError::Mismatch { .. }
            | TrainError::Occupied { .. }
            | TrainError::NotAModel { .. } => ExitCode::Usage,
            TrainError::Run(run) => code_of_run(run),
            TrainError::SelfCheck(_) | TrainError::DeviceMismatch(_) => ExitCode::Internal,
            other if other.is_resource() => ExitCode::Resource,
            _ => ExitCode::Data,
        };
        Self {
            error: Box::new(error),
            code,
        }
    }
}

impl From<StudyError> for Failure {
    fn from(error: StudyError) -> Self {
        let code = match error {
            StudyError::Train(error) => return error.into(),
            StudyError::Run(error) => return error.into(),
            StudyError::File(error) => return TrainError::from(error).into(),
            StudyError::Read { .. }
            | StudyError::Invalid { .. }
            | StudyError::Changed { .. }
            | StudyError::NoStudy { .. }
            | StudyError::NoArm { .. }
            | StudyError::Config(_) => ExitCode::Usage,
            StudyError::Record { .. } | StudyError::Picture(_) => ExitCode::Data,
        };
        Self::new(error, code)
    }
}

impl From<ServeError> for Failure {
    fn from(error: ServeError) -> Self {
        let code = match error {
            ServeError::Guard(_) | ServeError::Option { .. } | ServeError::Listen { .. } => ExitCode::Usage,
            ServeError::Model(_) => ExitCode::Data,
            ServeError::Io(_) => ExitCode::Resource,
            ServeError::Panicked => ExitCode::Internal,
        };
        Self::new(error, code)
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        let code = code_of_run(&error);
        Self {
            error: Box::new(error),
            code,
        }
    }
}

fn code_of_run(error: &RunError) -> ExitCode {
    if error.is_resource() {
        return ExitCode::Resource;
    }
    match error {
        RunError::RunExists { .. } | RunError::NoRun { .. } | RunError::Locked { .. } => ExitCode::Usage,
        _ => ExitCode::Data,
    }
}

/// Failures of the data a command reads.
macro_rules! data_failure {
    ($($error:ty),+ $(,)?) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self { error: Box::new(error), code: ExitCode::Data }
            }
        })+
    };
}

data_failure!(
    seed_alfworld::LibraryError,
    seed_alfworld::VerifyError,
    seed_alfworld::household::HouseholdError,
    seed_env::EnvironmentError,
    seed_train::world::WorldError,
    seed_webshop::WebshopError,
    std::io::Error,
);

impl From<SearchError> for Failure {
    fn from(error: SearchError) -> Self {
        let code = match &error {
            SearchError::Option { .. } | SearchError::Guard(_) | SearchError::Listen { .. } => {
                ExitCode::Usage
            }
            SearchError::File(run) => code_of_run(run),
            _ => ExitCode::Data,
        };
        Self {
            error: Box::new(error),
            code,
        }
    }
}

impl From<seed_train::config::ConfigError> for Failure {
    fn from(error: seed_train::config::ConfigError) -> Self {
        Self {
            error: Box::new(error),
            code: ExitCode::Usage,
        }
    }
}
