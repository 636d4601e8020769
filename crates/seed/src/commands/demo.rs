//! `seed demo`: GRPO and SEED from the same weights, on the same tasks and seed, with both curves as they grow.

use std::time::Instant;

use console::Term;
use seed_env::Split;
use seed_run::{ExitCode, StopFlag};
use seed_train::compare::{RunResult, compare, draw};
use seed_train::demo;
use seed_train::events::{Event, Observer};
use seed_train::train::{Start, train};
use seed_train::world::open_world;

use super::{command_line, set_threads};
use crate::arguments::{Demo, Output};
use crate::chart::{Line, chart};
use crate::display::{Display, output_line};
use crate::failure::Outcome;

/// Iterations over which the curve of training success is averaged.
const WINDOW: usize = 5;
/// Rows of the terminal that the live chart leaves to progress and messages.
const ROWS_FOR_LINES: u16 = 8;
/// Rows below which a chart shows nothing.
const SMALLEST_CHART: u16 = 8;

/// Watches one arm: passes events on and keeps the curve.
struct Watch<'a> {
    display: &'a mut Display,
    curves: &'a mut Vec<Curve>,
    total_episodes: f64,
}

struct Curve {
    name: String,
    rates: Vec<f64>,
    points: Vec<(f64, f64)>,
}

impl Observer for Watch<'_> {
    fn event(&mut self, event: &Event<'_>) {
        self.display.event(event);
        if let Event::Iteration { metrics, .. } = event
            && let Some(curve) = self.curves.last_mut()
        {
            curve
                .rates
                .push(metrics.get("success/rate").unwrap_or(0.0) * 100.0);
            let recent = curve
                .rates
                .get(curve.rates.len().saturating_sub(WINDOW)..)
                .unwrap_or(&[]);
            let mean = recent.iter().sum::<f64>() / recent.len().max(1) as f64;
            curve
                .points
                .push((metrics.get("episode/total").unwrap_or(0.0), mean));
            if let Some(picture) = draw_live(self.display, self.curves, self.total_episodes) {
                self.display.picture(&picture);
            }
        }
    }
}

/// The curves so far, in a size that leaves room for the lines above. `None` where nobody looks, or the terminal is too
/// small.
fn draw_live(display: &Display, curves: &[Curve], total_episodes: f64) -> Option<String> {
    let (rows, columns) = Term::stderr().size();
    if !display.is_terminal() || rows < SMALLEST_CHART + ROWS_FOR_LINES || columns < 40 {
        return None;
    }
    let lines: Vec<Line<'_>> = curves
        .iter()
        .map(|curve| Line {
            name: &curve.name,
            points: &curve.points,
        })
        .collect();
    Some(chart(
        &lines,
        total_episodes,
        "training episodes (success, running mean)",
        (columns - 1).min(90),
        (rows - ROWS_FOR_LINES).min(16),
    ))
}

pub(crate) fn run(command: &Demo, output: Output) -> Outcome {
    let mut display = Display::new(output);
    let arms = demo::arms(&command.directory, command.seed, command.iterations, &command.set)?;
    let stop = StopFlag::on_signals()?;
    let started = Instant::now();
    display.line(
        "Two arms train the built-in policy household-tiny from the same weights, tasks and seed on household-studio.\n\
         GRPO learns from success alone. SEED also lets the policy look back at every episode, write a skill, and learn\n\
         from how the skill changes the log-probs of what it sampled. Evaluation never shows a skill.",
    );
    let mut curves = Vec::new();
    let mut runs = Vec::new();
    let mut last_picture = None;
    for arm in arms {
        if runs.is_empty() {
            set_threads(arm.config.run.threads)?;
        }
        display.label(&arm.name);
        curves.push(Curve {
            name: arm.name.clone(),
            rates: Vec::new(),
            points: Vec::new(),
        });
        let world = open_world(&arm.config.world, &arm.config.search)?.world;
        let mut watch = Watch {
            display: &mut display,
            curves: &mut curves,
            total_episodes: arm.total_episodes as f64,
        };
        let result = train(&arm.config, world, Start::New, command_line(), &stop, &mut watch);
        let picture = draw_live(watch.display, watch.curves, watch.total_episodes);
        display.clear();
        result?;
        last_picture = picture;
        runs.push(RunResult::read(&arm.config.run.directory)?);
    }
    display.label("");
    if let Some(text) = last_picture {
        display.line(&text);
    }
    let picture = command.directory.join("curves.svg");
    draw(&runs, Split::Seen, &picture)?;
    let comparison = compare(&runs);
    if output.json {
        output_line(&serde_json::to_string(&comparison).unwrap_or_default());
        return Ok(ExitCode::Success);
    }
    output_line(&format!("\n{}", comparison.table().trim_end()));
    let seconds = started.elapsed().as_secs();
    output_line(&format!(
        "\nboth arms took {} min {} s",
        seconds / 60,
        seconds % 60
    ));
    output_line(&format!("curves: {}", picture.display()));
    for run in &runs {
        output_line(&format!("run:    {}", run.directory.display()));
    }
    Ok(ExitCode::Success)
}
