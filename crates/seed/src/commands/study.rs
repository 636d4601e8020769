//! `seed study`.

use seed_run::{ExitCode, StopFlag};
use seed_study::overview::Overview;
use seed_study::plan::Plan;
use seed_study::report::{REPORT, Report};
use seed_study::run::{CellEvent, StudyObserver, run as run_study};
use seed_train::events::{Event, Observer};

use super::{command_line, set_threads};
use crate::arguments::{Output, Study, StudyCommand, StudyReport};
use crate::display::{Display, output_line};
use crate::failure::{Failure, Outcome};

/// Shows what happens in cells, and to them.
struct Watch {
    display: Display,
    json: bool,
}

impl Observer for Watch {
    fn event(&mut self, event: &Event<'_>) {
        self.display.event(event);
    }
}

impl StudyObserver for Watch {
    fn cell(&mut self, event: &CellEvent<'_>) {
        self.display.clear();
        if self.json {
            output_line(&serde_json::to_string(event).unwrap_or_default());
            return;
        }
        match event {
            CellEvent::Started {
                name,
                iteration,
                done,
                total,
            } => {
                self.display.label("");
                let from = match iteration {
                    0 => String::new(),
                    _ => format!(", from iteration {iteration}"),
                };
                let heading = console::style(*name).for_stderr().bold();
                self.display
                    .line(&format!("{heading}{from}  ({done} of {total} cells done)"));
            }
            CellEvent::Finished { name } => self.display.line(&format!("finished: {name}")),
            CellEvent::Failed { name, error } => {
                let word = console::style("failed:").for_stderr().red().bold();
                self.display.line(&format!("{word} {name}: {error}"));
            }
        }
    }
}

pub(crate) fn run(command: &Study, output: Output) -> Outcome {
    if let Some(StudyCommand::Report(command)) = &command.command {
        return report(command, output);
    }
    let Some(file) = &command.file else {
        return Err(Failure::usage("a study file is missing: `seed study STUDY.toml`"));
    };
    let display = Display::new(output);
    let plan = Plan::read(file)?;
    let overview = Overview::of(&plan)?;
    for warning in &overview.warnings {
        let word = console::style("warning:").for_stderr().yellow().bold();
        display.line(&format!("{word} {warning}"));
    }
    if command.dry_run {
        if output.json {
            output_line(&serde_json::to_string(&overview).unwrap_or_default());
        } else {
            output_line(overview.table().trim_end());
        }
        return Ok(ExitCode::Success);
    }
    display.line(overview.table().trim_end());
    set_threads(plan.threads())?;
    let stop = StopFlag::on_signals()?;
    let mut watch = Watch {
        display,
        json: output.json,
    };
    let result = run_study(&plan, &command.arms, &command_line(), &stop, &mut watch);
    watch.display.clear();
    watch.display.label("");
    let outcome = result?;
    if output.json {
        let failed: Vec<&str> = outcome.failed.iter().map(|(name, _)| name.as_str()).collect();
        let busy: Vec<String> = outcome.busy.iter().map(ToString::to_string).collect();
        let event = serde_json::json!({
            "event": "study_ended",
            "done": outcome.done,
            "total": outcome.total,
            "failed": failed,
            "busy": busy,
            "left_out": outcome.left_out,
        });
        output_line(&event.to_string());
    }
    let standing = format!("{} of {} cells done", outcome.done, outcome.total);
    if outcome.is_stopped {
        let text = format!("{standing}, everything saved; the same command goes on");
        return Err(Failure::new(text, ExitCode::Stopped));
    }
    let directory = plan.directory.display();
    if !outcome.failed.is_empty() {
        let names: Vec<&str> = outcome.failed.iter().map(|(name, _)| name.as_str()).collect();
        let text = format!(
            "{standing}, {} failed: {}; the same command tries them again",
            names.len(),
            names.join(", ")
        );
        let code = outcome
            .failed
            .into_iter()
            .next()
            .map(|(_, error)| Failure::from(error).exit_code());
        return Err(Failure::new(text, code.unwrap_or(ExitCode::Data)));
    }
    if !outcome.busy.is_empty() {
        let count = outcome.busy.len();
        watch.display.line(&format!(
            "other processes work on the {count} cells that are left"
        ));
    }
    if outcome.left_out > 0 {
        let count = outcome.left_out;
        watch
            .display
            .line(&format!("cells of other arms that are left: {count}"));
    }
    watch.display.line(&format!("{standing}: {directory}"));
    Ok(ExitCode::Success)
}

fn report(command: &StudyReport, output: Output) -> Outcome {
    let directory = if command.study.is_dir() {
        command.study.clone()
    } else {
        Plan::read(&command.study)?.directory
    };
    let folder = command.out.clone().unwrap_or_else(|| directory.join(REPORT));
    let report = Report::write(&directory, &folder)?;
    if output.json {
        output_line(&serde_json::to_string(&report).unwrap_or_default());
    } else {
        output_line(report.summary().trim_end());
        output_line(&format!("\nreport: {}", Report::markdown_path(&folder).display()));
    }
    Ok(ExitCode::Success)
}
