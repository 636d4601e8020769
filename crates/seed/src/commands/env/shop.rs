//! Shops under `seed env`: scripted shoppers, speed, and the check against recordings.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use seed_env::{Split, Task, World};
use seed_random::RandomKey;
use seed_run::ExitCode;
use seed_train::world::WEBSHOP_VARIABLE;
use seed_webshop::{
    Catalogue, CatalogueFiles, CatalogueSize, PlayedVisit, Shopper, WebshopError, WebshopWorld, Workload,
    play, readable_page, time_steps, verify_transcripts,
};
use serde_json::json;

use super::{NOISE, show_check, tasks_of_world};
use crate::arguments::{Bench, Output, ScriptedPlayer, Verify};
use crate::display::output_line;
use crate::failure::{Failure, Outcome};

/// Lets a scripted shopper play.
pub(super) fn watch(world: &WebshopWorld, task: &Task, player: ScriptedPlayer) -> Outcome {
    let shopper = match player {
        ScriptedPlayer::Optimal => Shopper::Oracle,
        ScriptedPlayer::Noisy => Shopper::Noisy(NOISE),
        ScriptedPlayer::Random => Shopper::Random,
        ScriptedPlayer::Searching => {
            return Err(Failure::usage(
                "the searching player plays households; shops have `optimal`, `noisy` and `random`",
            ));
        }
    };
    let goal = world.goal(&task.id)?;
    let key = RandomKey::new(0).with_text("player", task.id.as_str());
    output_line(&format!("{}\n", goal.instruction));
    let visit: PlayedVisit = play(world.shop(), &goal, shopper, &key, world.default_max_steps());
    for step in &visit.steps {
        output_line(&format!(
            "{}\n\n{} {}",
            readable_page(&step.observation, &goal.instruction),
            console::style(">").bold(),
            console::style(&step.action).cyan()
        ));
    }
    output_line(&readable_page(&visit.last_observation, &goal.instruction));
    let steps = visit.steps.len();
    let Some(purchase) = visit.purchase else {
        output_line(&format!("\nnothing bought in {steps} steps"));
        return Ok(ExitCode::CheckFailed);
    };
    let reward = purchase.reward;
    output_line(&format!(
        "\nbought in {steps} steps: score {:.1} (kind of product {}, attributes {} of {}, options {} of {}, price {})",
        reward.score * 100.0,
        reward.kind,
        reward.attributes_met,
        reward.attributes,
        reward.options_met,
        reward.options,
        if reward.price_met { "met" } else { "too high" }
    ));
    Ok(if reward.is_perfect() {
        ExitCode::Success
    } else {
        ExitCode::CheckFailed
    })
}

/// Measures steps through the general interface.
pub(super) fn bench(world: &WebshopWorld, command: &Bench, output: Output, opened: Duration) -> Outcome {
    let key = RandomKey::new(0).with_text("purpose", "bench");
    let workloads = tasks_of_world(world, Split::Train)?
        .iter()
        .take(command.games.max(1))
        .map(|task| Workload::noisy(world, &task.id, NOISE, &key.with_text("task", task.id.as_str())))
        .collect::<Result<Vec<_>, _>>()?;
    let started = Instant::now();
    let clock = move || started.elapsed();
    let minimum = Duration::from_secs_f64(command.seconds.max(0.01));
    let timing = time_steps(world, &workloads, minimum, &clock)?;
    let share = timing.searches as f64 / timing.steps.max(1) as f64;
    output_line(&if output.json {
        json!({
            "world": world.name(),
            "products": world.shop().catalogue().products().len(),
            "goals": world.shop().goal_count(),
            "open_milliseconds": opened.as_secs_f64() * 1e3,
            "search_share": share,
            "steps_per_second": timing.per_second(),
        })
        .to_string()
    } else {
        format!(
            "{}: {} products, {} goals, one thread\n  open   {:10.0} ms\n  step   {:10.0} steps a second, {:.0} % of them \
             searches, with observation text and the full list of actions",
            world.name(),
            world.shop().catalogue().products().len(),
            world.shop().goal_count(),
            opened.as_secs_f64() * 1e3,
            timing.per_second(),
            share * 100.0
        )
    });
    Ok(ExitCode::Success)
}

/// Replays recordings of the original on its products.
pub(super) fn verify(command: &Verify, output: Output) -> Outcome {
    if command.walkthroughs {
        return Err(Failure::usage("shops have no walkthroughs"));
    }
    let data = command
        .data
        .clone()
        .or_else(|| std::env::var_os(WEBSHOP_VARIABLE).map(PathBuf::from))
        .ok_or_else(|| {
            Failure::usage(format!(
                "name the folder with the products: `--data FOLDER` or `{WEBSHOP_VARIABLE}`"
            ))
        })?;
    let read = || -> Result<_, WebshopError> {
        let files = CatalogueFiles::in_folder(&data, CatalogueSize::Small)?;
        let catalogue = Arc::new(Catalogue::read(&files)?);
        verify_transcripts(&command.transcripts, &catalogue)
    };
    let report = read()?;
    let counts = [report.episodes, report.steps, report.differences];
    show_check(output, "transcripts", counts, &report.first_differences);
    Ok(if report.is_exact() {
        ExitCode::Success
    } else {
        ExitCode::CheckFailed
    })
}
