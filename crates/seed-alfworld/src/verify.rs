//! Checking the engine against recorded episodes and stored walkthroughs.
//!
//! A transcript is a file of JSON lines (plain or gzip), one episode a line: `game` (`<split>/<task folder>/<trial>`),
//! the `reset` text and its admissible list `adm`, and `steps` with the command `cmd` and what the original engine
//! answered: `obs`, `adm`, `won`, `score`, `done`. Not for: recording transcripts; that takes the original engine.

use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use fs_err::File;
use rayon::iter::{IntoParallelIterator, IntoParallelRefIterator, ParallelIterator};
use seed_env::Split;
use serde::Deserialize;
use thiserror::Error;

use crate::library::WORLD_NAME;
use crate::{CommandId, Game, Library, LibraryError, read_archive, read_game_file};

/// Bound on one episode's line; recorded ones have at most 100 kB.
const MAX_LINE_BYTES: u64 = 64 << 20;
/// Differences that a report keeps in words; all are counted.
const KEPT_DIFFERENCES: usize = 10;
/// Archived games checked together, which bounds the memory they take.
const BATCH: usize = 128;

/// Why a check could not be made.
#[derive(Debug, Error)]
pub enum VerifyError {
    /// A file could not be read; the message names it.
    #[error(transparent)]
    Read(#[from] std::io::Error),
    /// A line is no episode.
    #[error("`{path}`, line {line}: not a recorded episode")]
    Episode {
        /// The transcript.
        path: PathBuf,
        /// 1-based line.
        line: usize,
        /// What is wrong.
        #[source]
        source: serde_json::Error,
    },
    /// A line is longer than any episode.
    #[error("`{path}`, line {line}: longer than `{MAX_LINE_BYTES}` bytes, not a recorded episode")]
    LineTooLong {
        /// The transcript.
        path: PathBuf,
        /// 1-based line.
        line: usize,
    },
    /// There is no transcript at the path.
    #[error("no transcripts (`*.jsonl` or `*.jsonl.gz`) at `{path}`")]
    NoTranscripts {
        /// The path searched.
        path: PathBuf,
    },
    /// A game could not be loaded.
    #[error(transparent)]
    Library(#[from] LibraryError),
}

/// One answer of the engine that differs from the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The game, as the record names it.
    pub game: String,
    /// 0-based step; `None` for the reset.
    pub step: Option<usize>,
    /// The command of the step, empty for the reset.
    pub command: String,
    /// Which answer differs: `observation`, `admissible`, `won`, `score` or `done`.
    pub field: &'static str,
    /// What was recorded.
    pub expected: String,
    /// What the engine says.
    pub found: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            game,
            step,
            command,
            field,
            expected,
            found,
        } = self;
        match step {
            Some(step) => write!(formatter, "{game}, step {step}, `{command}`: ")?,
            None => write!(formatter, "{game}, reset: ")?,
        }
        write!(formatter, "{field} is `{found}`, recorded was `{expected}`")
    }
}

/// What a check of transcripts or walkthroughs found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Episodes or walkthroughs played.
    pub episodes: usize,
    /// Commands played.
    pub steps: usize,
    /// Answers that differ.
    pub differences: usize,
    /// The first of them in words.
    pub first_differences: Vec<Difference>,
}

impl VerifyReport {
    /// Adds another report behind this one.
    pub fn merge(&mut self, other: Self) {
        self.episodes += other.episodes;
        self.steps += other.steps;
        self.differences += other.differences;
        let room = KEPT_DIFFERENCES.saturating_sub(self.first_differences.len());
        self.first_differences
            .extend(other.first_differences.into_iter().take(room));
    }

    /// Whether nothing differs.
    pub fn is_exact(&self) -> bool {
        self.differences == 0
    }

    fn compare(
        &mut self,
        context: (&str, Option<usize>, &str),
        field: &'static str,
        expected: &str,
        found: &str,
    ) {
        if expected == found {
            return;
        }
        self.differences += 1;
        if self.first_differences.len() < KEPT_DIFFERENCES {
            let (game, step, command) = context;
            self.first_differences.push(Difference {
                game: game.to_owned(),
                step,
                command: command.to_owned(),
                field,
                expected: expected.to_owned(),
                found: found.to_owned(),
            });
        }
    }
}

#[derive(Deserialize)]
struct Episode {
    game: String,
    reset: String,
    adm: Vec<String>,
    steps: Vec<RecordedStep>,
}

#[derive(Deserialize)]
struct RecordedStep {
    cmd: String,
    obs: String,
    adm: Vec<String>,
    won: bool,
    score: i64,
    done: bool,
}

/// Replays all episodes of a transcript, or of all transcripts in a folder, on the games of a library.
///
/// # Errors
/// [`VerifyError`] when a transcript or a game cannot be read; differences are no error.
pub fn verify_transcripts(path: &Path, library: &Library) -> Result<VerifyReport, VerifyError> {
    let mut report = VerifyReport::default();
    for file in transcripts(path)? {
        report.merge(verify_transcript(&file, library)?);
    }
    Ok(report)
}

/// The transcript itself, or those in a folder by name.
fn transcripts(path: &Path) -> Result<Vec<PathBuf>, VerifyError> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs_err::read_dir(path)? {
        let file = entry?.path();
        let name = file.to_string_lossy();
        if name.ends_with(".jsonl") || name.ends_with(".jsonl.gz") {
            files.push(file);
        }
    }
    if files.is_empty() {
        return Err(VerifyError::NoTranscripts {
            path: path.to_owned(),
        });
    }
    files.sort_unstable();
    Ok(files)
}

fn verify_transcript(path: &Path, library: &Library) -> Result<VerifyReport, VerifyError> {
    let file = File::open(path)?;
    let compressed = path.extension().is_some_and(|extension| extension == "gz");
    let reader: Box<dyn Read> = if compressed {
        Box::new(flate2::read::MultiGzDecoder::new(BufReader::new(file)))
    } else {
        Box::new(file)
    };
    let mut reader = BufReader::new(reader);
    let mut report = VerifyReport::default();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let read = (&mut reader).take(MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
        if read == 0 {
            break;
        }
        if read as u64 == MAX_LINE_BYTES {
            return Err(VerifyError::LineTooLong {
                path: path.to_owned(),
                line: number,
            });
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let episode: Episode = serde_json::from_slice(&line).map_err(|source| VerifyError::Episode {
            path: path.to_owned(),
            line: number,
            source,
        })?;
        let game = library.load_id(&format!("{WORLD_NAME}/{}", episode.game))?;
        replay(&game, &episode, &mut report);
    }
    Ok(report)
}

/// Whether the engine's list is the recorded one; if not, both are written out.
fn compare_admissible(
    game: &Game,
    found: &[CommandId],
    expected: &[String],
    context: (&str, Option<usize>, &str),
    report: &mut VerifyReport,
) {
    let same = found.len() == expected.len()
        && found
            .iter()
            .zip(expected)
            .all(|(&found, expected)| game.command_text(found) == expected);
    if !same {
        let found: Vec<&str> = found.iter().map(|&command| game.command_text(command)).collect();
        report.compare(context, "admissible", &expected.join(", "), &found.join(", "));
    }
}

fn replay(game: &Game, episode: &Episode, report: &mut VerifyReport) {
    report.episodes += 1;
    let mut state = game.initial_state();
    let mut admissible = Vec::new();
    let mut observation = String::new();
    let start = (episode.game.as_str(), None, "");
    report.compare(start, "observation", &episode.reset, game.reset_text());
    game.admissible_commands(&state, &mut admissible);
    compare_admissible(game, &admissible, &episode.adm, start, report);
    for (number, step) in episode.steps.iter().enumerate() {
        report.steps += 1;
        let outcome = game.step(&mut state, &step.cmd, &mut observation);
        let context = (episode.game.as_str(), Some(number), step.cmd.as_str());
        report.compare(context, "observation", &step.obs, &observation);
        game.admissible_commands(&state, &mut admissible);
        compare_admissible(game, &admissible, &step.adm, context, report);
        let (won, score) = (outcome.won.to_string(), i64::from(outcome.won).to_string());
        report.compare(context, "won", &step.won.to_string(), &won);
        report.compare(context, "score", &step.score.to_string(), &score);
        report.compare(context, "done", &step.done.to_string(), &won);
    }
}

/// Plays the stored walkthroughs of a library's splits: every command must be admissible, and the game be won by the
/// last command and not before.
///
/// # Errors
/// [`VerifyError`] when a game cannot be read; a walkthrough that does not win is a difference.
pub fn verify_walkthroughs(library: &Library, splits: &[Split]) -> Result<VerifyReport, VerifyError> {
    let mut report = VerifyReport::default();
    for &split in splits {
        let reports: Vec<VerifyReport> = library
            .games(split)
            .par_iter()
            .map(|game| Ok(play_walkthrough(&*library.load(game)?, game.path())))
            .collect::<Result<_, LibraryError>>()?;
        for other in reports {
            report.merge(other);
        }
    }
    Ok(report)
}

/// Plays the stored walkthroughs of all games in an archive, whatever folders they are in.
///
/// # Errors
/// [`VerifyError`] when the archive or a game cannot be read.
pub fn verify_archive(path: &Path) -> Result<VerifyReport, VerifyError> {
    let mut report = VerifyReport::default();
    let mut batch = Vec::new();
    let mut play = |batch: Vec<crate::ArchivedGame>| -> Result<(), LibraryError> {
        let reports: Vec<VerifyReport> = batch
            .into_par_iter()
            .map(|archived| {
                let game =
                    read_game_file(&archived.game, &archived.path).map_err(|source| LibraryError::Game {
                        game: archived.path.clone(),
                        path: path.to_owned(),
                        source,
                    })?;
                Ok(play_walkthrough(&game, &archived.path))
            })
            .collect::<Result<_, LibraryError>>()?;
        for other in reports {
            report.merge(other);
        }
        Ok(())
    };
    read_archive(path, |archived| {
        batch.push(archived);
        if batch.len() == BATCH {
            play(std::mem::take(&mut batch))?;
        }
        Ok(())
    })?;
    play(batch)?;
    Ok(report)
}

fn play_walkthrough(game: &Game, name: &str) -> VerifyReport {
    let mut report = VerifyReport {
        episodes: 1,
        ..VerifyReport::default()
    };
    let mut state = game.initial_state();
    let mut observation = String::new();
    let count = game.walkthrough().len();
    let start = (name, None, "");
    report.compare(start, "won", "false", &game.is_won(&state).to_string());
    if count == 0 {
        report.compare(start, "walkthrough", "some commands", "none");
    }
    for (number, command) in game.walkthrough().enumerate() {
        report.steps += 1;
        let outcome = game.step(&mut state, command, &mut observation);
        let context = (name, Some(number), command);
        report.compare(context, "admissible", "true", &outcome.admissible.to_string());
        let last = number + 1 == count;
        report.compare(context, "won", &last.to_string(), &outcome.won.to_string());
    }
    report
}
