//! What can stop a program.

use std::path::PathBuf;

use thiserror::Error;

/// Why a program stopped.
#[derive(Debug, Error)]
pub enum TrainError {
    /// The configuration is not usable.
    #[error(transparent)]
    Config(#[from] crate::config::ConfigError),
    /// The model could not be read, run or written.
    #[error(transparent)]
    Model(#[from] seed_model::ModelError),
    /// Episodes could not be played.
    #[error(transparent)]
    Rollout(#[from] seed_rollout::RolloutError),
    /// The numbers of an update are not usable.
    #[error(transparent)]
    Rl(#[from] seed_rl::RlError),
    /// The environments could not be set up.
    #[error(transparent)]
    Pool(#[from] seed_env::PoolError),
    /// A panel or a schedule cannot be made from the tasks.
    #[error(transparent)]
    Panel(#[from] seed_env::PanelError),
    /// The world's data could not be opened.
    #[error(transparent)]
    World(#[from] crate::world::WorldError),
    /// The run directory could not be written or read.
    #[error(transparent)]
    Run(#[from] seed_run::RunError),
    /// Fine-tuning examples are not usable.
    #[error(transparent)]
    Examples(#[from] crate::examples::ExampleError),
    /// A picture could not be drawn.
    #[error(transparent)]
    Picture(#[from] crate::picture::PictureError),
    /// The analyser's endpoint could not be used.
    #[error(transparent)]
    Analyser(#[from] seed_hindsight::AnalyserError),
    /// The engine outside of this process could not be used; the weights are those before the iteration.
    #[error(transparent)]
    Engine(#[from] seed_backend::BackendError),
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] std::io::Error),
    /// The run was asked to stop and has saved; `seed train --resume` continues it.
    #[error("stopped at iteration {iteration} of {total} and saved; continue with `--resume`")]
    Stopped {
        /// Iterations finished.
        iteration: u64,
        /// Iterations of the run.
        total: u64,
    },
    /// Resuming would change the result.
    #[error("`{}` was started with other settings: {differences}; keep them, or start a new run directory", directory.display())]
    Mismatch {
        /// The run directory.
        directory: PathBuf,
        /// What differs.
        differences: String,
    },
    /// A split without tasks.
    #[error("the world `{world}` has no tasks in its split `{}`", split.name())]
    NoTasks {
        /// The world.
        world: String,
        /// The split.
        split: seed_env::Split,
    },
    /// Skills by rule are asked for in a world without rules.
    #[error(
        "the world `{world}` has no rules that write skills; use `seed.analyser = \"policy\"` or `\"endpoint\"`, \
         `seed.wrong_skill_share = 0` and `evaluation.prompts = [\"plain\"]`"
    )]
    NoSkillRules {
        /// The world.
        world: String,
    },
    /// A task sentence that the rules cannot read.
    #[error("the rules cannot read the task `{task}`; they know ALFWorld's sentences only")]
    UnreadableTask {
        /// The sentence.
        task: String,
    },
    /// A model without a chat template.
    #[error("`{}` has no chat template, so turns cannot be told apart; add a `chat_template.jinja`", path.display())]
    NoChatTemplate {
        /// The model.
        path: PathBuf,
    },
    /// A model without an end token.
    #[error("`{}` names no end token; set `eos_token_id` in its config.json", path.display())]
    NoEndToken {
        /// The model.
        path: PathBuf,
    },
    /// Something is where a model was to be written.
    #[error("`{}` already exists: choose another name, or replace the model there with `--force`", path.display())]
    Occupied {
        /// The place.
        path: PathBuf,
    },
    /// What was to be replaced is no model.
    #[error("`{}` is no model directory (it holds no config.json) and is not replaced: remove it or choose another name", path.display())]
    NotAModel {
        /// The place.
        path: PathBuf,
    },
    /// An adapter and the settings or the base do not fit together.
    #[error("`{}`: {problem}", path.display())]
    Adapter {
        /// The adapter's folder.
        path: PathBuf,
        /// What is in the way, and what to do.
        problem: String,
    },
    /// A recorded log-prob is not the policy's; the weights are those before the iteration.
    #[error(transparent)]
    SelfCheck(#[from] Box<crate::trainer::LogProbMismatch>),
    /// On a device, generation and scoring are further apart than allowed; the weights are those before the iteration.
    #[error(transparent)]
    DeviceMismatch(#[from] crate::trainer::DeviceMismatch),
    /// Two runs cannot be compared.
    #[error("`{}` is not a finished run: {message}", path.display())]
    NotARun {
        /// The path given.
        path: PathBuf,
        /// What is missing.
        message: String,
    },
}

impl TrainError {
    /// Whether an engine outside of this process is what stopped the program. It is asked before the update, so the weights
    /// are those before the iteration.
    pub fn is_of_engine(&self) -> bool {
        use seed_model::ModelError;
        use seed_rollout::RolloutError;
        matches!(
            self,
            Self::Engine(_)
                | Self::Model(ModelError::Engine { .. })
                | Self::Rollout(RolloutError::Generation(ModelError::Engine { .. }))
        )
    }

    /// Whether the disk, a quota or a limit of file sizes is what stopped the program.
    pub fn is_resource(&self) -> bool {
        use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        match self {
            Self::Run(error) => error.is_resource(),
            Self::File(error) | Self::Model(seed_model::ModelError::File(error)) => {
                matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
            }
            _ => false,
        }
    }
}
