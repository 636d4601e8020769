//! What a person sees while a program runs: bars on a terminal, one line per iteration elsewhere, JSON on request.
//!
//! Results go to standard output; everything here goes to standard error, but for `--json`, whose lines are the
//! result.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use console::style;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use seed_train::evaluate::Evaluation;
use seed_train::events::{Event, Observer};

use crate::arguments::Output;

/// Shows events in the way the command line asks for.
pub(crate) struct Display {
    mode: Mode,
    /// Put before every line, such as the arm of a demo.
    label: String,
    /// What stays at the bottom of the terminal while lines scroll by above.
    bottom: MultiProgress,
    picture: Option<ProgressBar>,
    bar: Option<ProgressBar>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Terminal,
    Plain,
    Json,
    Quiet,
}

impl Display {
    pub(crate) fn new(output: Output) -> Self {
        let mode = match output {
            Output { json: true, .. } => Mode::Json,
            Output { quiet: true, .. } => Mode::Quiet,
            _ if std::io::stderr().is_terminal() => Mode::Terminal,
            _ => Mode::Plain,
        };
        Self {
            mode,
            label: String::new(),
            bottom: MultiProgress::new(),
            picture: None,
            bar: None,
        }
    }

    /// Names what follows.
    pub(crate) fn label(&mut self, label: &str) {
        self.label = if label.is_empty() {
            String::new()
        } else {
            format!("{label:<5} ")
        };
    }

    /// Whether people read along on a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        self.mode == Mode::Terminal
    }

    /// A line for people.
    pub(crate) fn line(&self, text: &str) {
        match self.mode {
            Mode::Terminal => self.bottom.suspend(|| error_line(text)),
            Mode::Plain => error_line(text),
            Mode::Json | Mode::Quiet => {}
        }
    }

    /// Shows a picture of a few lines above the progress bar, in place of the one before.
    pub(crate) fn picture(&mut self, text: &str) {
        let picture = self.picture.get_or_insert_with(|| {
            let picture = self.bottom.insert(0, ProgressBar::no_length());
            if let Ok(style) = ProgressStyle::with_template("{msg}") {
                picture.set_style(style);
            }
            picture
        });
        picture.set_message(text.to_owned());
        picture.tick();
    }

    /// Removes progress bar and picture.
    pub(crate) fn clear(&mut self) {
        for shown in [self.bar.take(), self.picture.take()].into_iter().flatten() {
            shown.finish_and_clear();
            self.bottom.remove(&shown);
        }
    }

    /// Moves the progress bar; people who read lines are spared.
    pub(crate) fn progress(&mut self, prefix: &str, done: usize, total: usize) {
        if self.mode == Mode::Terminal {
            let bar = self.bar();
            bar.set_prefix(prefix.to_owned());
            bar.set_length(total as u64);
            bar.set_position(done as u64);
        }
    }

    fn bar(&mut self) -> &ProgressBar {
        self.bar.get_or_insert_with(|| {
            let bar = self.bottom.add(ProgressBar::new(0));
            let template = "{prefix:>18} {bar:32.cyan/dim} {pos:>5}/{len:<5} {elapsed} {msg}";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style.progress_chars("━╸─"));
            }
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        })
    }
}

impl Observer for Display {
    fn event(&mut self, event: &Event<'_>) {
        if self.mode == Mode::Json {
            if !matches!(event, Event::Progress { .. })
                && let Ok(text) = serde_json::to_string(event)
            {
                output_line(&text);
            }
            return;
        }
        match event {
            Event::Note { text } => self.line(&format!("{}{text}", self.label)),
            Event::Warning { text } => self.line(&format!(
                "{}{} {text}",
                self.label,
                style("warning:").for_stderr().yellow().bold()
            )),
            Event::Progress {
                iteration,
                phase,
                done,
                total,
            } => {
                let prefix = match iteration {
                    0 => phase.name().to_owned(),
                    _ => format!("{iteration} {}", phase.name()),
                };
                self.progress(&prefix, *done, *total);
            }
            Event::Iteration {
                iteration,
                total,
                metrics,
            } => {
                let value = |name: &str| metrics.get(name).unwrap_or(f64::NAN);
                let mut text = format!(
                    "{}{iteration:>4}/{total}  success {:5.1} %  steps {:4.1}  entropy {:.3}",
                    self.label,
                    value("success/rate") * 100.0,
                    value("episode/steps_mean"),
                    value("policy/entropy"),
                );
                if metrics.get("analysis/parse_rate").is_some() {
                    // Writing to a string cannot fail.
                    let _ = write!(
                        text,
                        "  skills {:3.0} %  gap {:+.3}",
                        value("analysis/accepted_share") * 100.0,
                        value("seed/gap_mean")
                    );
                }
                let _ = write!(text, "  {:.1} s", value("timing/iteration_seconds"));
                self.line(&text);
            }
            Event::Evaluation {
                iteration,
                split,
                prompt,
                evaluation,
            } => {
                let with = if prompt.is_plain() {
                    String::new()
                } else {
                    format!(", {prompt} prompt")
                };
                self.line(&format!(
                    "{}{iteration:>4}  {} {}{with}: {}",
                    self.label,
                    style("panel").for_stderr().bold(),
                    split.name(),
                    describe(evaluation)
                ));
            }
            Event::Saved { iteration, path } => {
                if self.mode == Mode::Plain {
                    self.line(&format!("{}{iteration:>4}  saved {}", self.label, path.display()));
                }
            }
        }
    }
}

/// A panel's result in one line.
pub(crate) fn describe(evaluation: &Evaluation) -> String {
    let score = evaluation
        .mean_score
        .map_or_else(String::new, |score| format!("score {:.1}, ", score * 100.0));
    format!(
        "{score}success {:.1} % [{:.1}, {:.1}] of {} episodes, macro {:.1} %, {:.1} steps, T {}",
        evaluation.success.value * 100.0,
        evaluation.success.low * 100.0,
        evaluation.success.high * 100.0,
        evaluation.episodes,
        evaluation.macro_success * 100.0,
        evaluation.mean_steps,
        evaluation.temperature
    )
}

/// Writes a line of results. A reader that has gone away is no error.
pub(crate) fn output_line(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Writes a line for people.
pub(crate) fn error_line(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
