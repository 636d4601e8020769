//! What can stop a study.

use std::path::PathBuf;

use seed_train::TrainError;
use seed_train::config::ConfigError;
use thiserror::Error;

/// Why a study could not be planned, run or reported.
#[derive(Debug, Error)]
pub enum StudyError {
    /// The study file could not be read.
    #[error("the study could not be read; check the path")]
    Read {
        /// The failure, which names the path.
        #[source]
        source: std::io::Error,
    },
    /// The study file, or what its arms make of the configuration, is wrong.
    #[error("{}", listed(&format!("the study `{}` has", path.display()), problems))]
    Invalid {
        /// The study file.
        path: PathBuf,
        /// Everything found, in order.
        problems: Vec<String>,
    },
    /// An arm was asked for that the study does not have.
    #[error(
        "the study has no arm `{name}`{}; its arms are {}",
        near.as_ref().map(|near| format!(" (did you mean `{near}`?)")).unwrap_or_default(),
        arms.join(", ")
    )]
    NoArm {
        /// The name that was given.
        name: String,
        /// The arm that was probably meant.
        near: Option<String>,
        /// All arms.
        arms: Vec<String>,
    },
    /// The cells that are there were begun with another plan.
    #[error(
        "{}\nkeep what was begun as it is, or set another `directory`; arms, bases, seeds and panels can be added",
        listed(&format!("the study in `{}` was begun otherwise:", directory.display()), changes)
    )]
    Changed {
        /// The study's directory.
        directory: PathBuf,
        /// What differs.
        changes: Vec<String>,
    },
    /// A directory that holds no study.
    #[error("`{}` holds no study (there is no study.json in it); check the path, or run the study first", directory.display())]
    NoStudy {
        /// The directory.
        directory: PathBuf,
    },
    /// A record of the study is damaged.
    #[error("`{}` cannot be read: {message}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// A configuration is not usable.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A program failed in a way that ends the study, such as a full disk.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// The study's own files could not be written or read.
    #[error(transparent)]
    Run(#[from] seed_run::RunError),
    /// A picture could not be drawn.
    #[error(transparent)]
    Picture(#[from] seed_train::picture::PictureError),
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] std::io::Error),
}

/// A heading with the number of problems and one indented line for each.
fn listed(heading: &str, problems: &[String]) -> String {
    let mut text = match (heading.strip_suffix(" has"), problems.len()) {
        (Some(_), 1) => format!("{heading} 1 problem:"),
        (Some(_), count) => format!("{heading} {count} problems:"),
        (None, _) => heading.to_owned(),
    };
    for problem in problems {
        text.push_str("\n  ");
        text.push_str(problem);
    }
    text
}
