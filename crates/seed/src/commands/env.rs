//! `seed env`: play, measure, check, generate and list.

mod search;
mod shop;

use std::io::{BufRead, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use seed_alfworld::expert::{
    NoisyExpert, OptimalExpert, Player, RandomPlayer, SearchingExpert, play as play_game,
};
use seed_alfworld::household::{EngineTemplate, HouseholdGenerator, HouseholdSize};
use seed_alfworld::{
    Game, Library, LibraryOptions, VerifyReport, Workload, time_resets, time_steps, verify_transcripts,
    verify_walkthroughs,
};
use seed_env::{Split, Task, World};
use seed_random::RandomKey;
use seed_run::{ExitCode, write_json_lines};
use seed_train::config::{Loaded, TrainConfig};
use seed_train::world::{DATA_VARIABLE, OpenWorld, open_world};
use seed_webshop::readable_page;
use serde_json::json;

use super::split as split_by_name;
use crate::arguments::{Bench, Env, Generate, Output, Play, ScriptedPlayer, Tasks, Verify};
use crate::display::output_line;
use crate::failure::{Failure, Outcome};

/// Mistakes per step of the noisy player.
const NOISE: f64 = 0.3;
/// Differences shown by `verify`.
const SHOWN: usize = 10;

pub(crate) fn run(command: &Env, output: Output) -> Outcome {
    match command {
        Env::Play(command) => play(command),
        Env::Bench(command) => bench(command, output),
        Env::Verify(command) => verify(command, output),
        Env::Generate(command) => generate(command),
        Env::Tasks(command) => tasks(command),
    }
}

/// Opens a world by its name, with the rules of configurations; `more` changes keys of it.
fn open(world: &str, data: Option<&Path>, more: &[String]) -> Result<OpenWorld, Failure> {
    let mut set = vec![
        format!("world.name=\"{world}\""),
        "world.prompts=\"full\"".to_owned(),
    ];
    set.extend(search::usual_steps(world));
    set.extend(data.map(|path| format!("world.data={:?}", path.display().to_string())));
    set.extend_from_slice(more);
    let config = Loaded::<TrainConfig>::from_defaults(&set)?.config;
    Ok(open_world(&config.world, &config.search)?)
}

fn tasks_of_world(world: &dyn World, split: Split) -> Result<&[Task], Failure> {
    match world.tasks(split) {
        [] => Err(Failure::usage(format!(
            "the world `{}` has no tasks in `{}`",
            world.name(),
            split.name()
        ))),
        tasks => Ok(tasks),
    }
}

fn tasks(command: &Tasks) -> Outcome {
    let open = open(&command.world, command.data.as_deref(), &command.set)?;
    for task in tasks_of_world(&*open.world, split_by_name(&command.split)?)? {
        output_line(&format!("{}\t{}", task.id, task.family));
    }
    Ok(ExitCode::Success)
}

fn play(command: &Play) -> Outcome {
    let open = open(&command.world, command.data.as_deref(), &command.set)?;
    let split = split_by_name(&command.split)?;
    let task = match &command.task {
        Some(id) => Split::ALL
            .into_iter()
            .flat_map(|split| open.world.tasks(split))
            .find(|task| task.id.as_str() == id)
            .ok_or_else(|| {
                Failure::usage(format!(
                    "no task `{id}`; `seed env tasks {}` lists them",
                    command.world
                ))
            })?,
        None => tasks_of_world(&*open.world, split)?
            .first()
            .ok_or_else(|| Failure::usage("no tasks"))?,
    };
    output_line(&format!("{} ({})\n", task.id, task.family));
    match (command.player, &open.shop, &open.knowledge) {
        (None, _, _) => play_by_hand(&open, task),
        (Some(player), Some(shop), _) => shop::watch(shop, task, player),
        (Some(player), None, Some(knowledge)) => search::watch(knowledge, task, player),
        (Some(player), None, None) => {
            let game = open.household_games("scripted players")?.game(&task.id)?;
            Ok(watch(&game, player, open.world.default_max_steps()))
        }
    }
}

fn watch(game: &Game, player: ScriptedPlayer, max_steps: usize) -> ExitCode {
    let key = RandomKey::new(0).with_text("player", game.id());
    let mut player: Box<dyn Player> = match player {
        ScriptedPlayer::Optimal => Box::new(OptimalExpert),
        ScriptedPlayer::Searching => Box::new(SearchingExpert::new(key)),
        ScriptedPlayer::Noisy => Box::new(NoisyExpert::new(key, NOISE)),
        ScriptedPlayer::Random => Box::new(RandomPlayer::new(key)),
    };
    let episode = play_game(game, &mut *player, max_steps);
    for step in &episode.steps {
        output_line(&format!(
            "{}\n\n{} {}",
            step.observation,
            console::style(">").bold(),
            console::style(&step.command).cyan()
        ));
    }
    output_line(&episode.last_observation);
    let steps = episode.steps.len();
    output_line(&if episode.won {
        format!("\nwon in {steps} steps")
    } else {
        format!("\nnot won in {steps} steps")
    });
    if episode.won {
        ExitCode::Success
    } else {
        ExitCode::CheckFailed
    }
}

/// Reads actions from standard input until the episode is over, the steps are used up, or the input ends.
fn play_by_hand(open: &OpenWorld, task: &Task) -> Outcome {
    let world = &open.world;
    let mut environment = world.environment();
    let opening = environment.reset(&task.id, 0)?;
    let wish = environment.task_description();
    let shown = |text: String| match open.shop {
        Some(_) => readable_page(&text, &wish),
        None => text,
    };
    if !opening.text.contains(&wish) {
        output_line(&format!("{wish}\n"));
    }
    output_line(&format!(
        "{}\n\nWrite a command, `?` for the commands possible now, or end the input to stop.",
        shown(opening.text)
    ));
    let mut steps = 0;
    let interactive = std::io::stdin().is_terminal();
    let mut lines = std::io::stdin().lock().lines();
    while steps < world.default_max_steps() {
        if interactive {
            let mut out = std::io::stdout();
            let _ = write!(out, "\n> ");
            let _ = out.flush();
        }
        let Some(line) = lines.next() else { break };
        let line = line?;
        if line.trim() == "?" {
            output_line(&environment.admissible_actions().join("\n"));
            continue;
        }
        let transition = environment.step(&line)?;
        steps += 1;
        output_line(&shown(transition.observation.text));
        if transition.won {
            output_line(&format!("\nYou won in {steps} steps."));
            return Ok(ExitCode::Success);
        }
        if transition.terminated {
            break;
        }
    }
    let score = environment
        .score()
        .map_or_else(String::new, |score| format!(" Score {:.1}.", score * 100.0));
    output_line(&format!("\nNot won after {steps} steps.{score}"));
    Ok(ExitCode::CheckFailed)
}

fn bench(command: &Bench, output: Output) -> Outcome {
    let started = Instant::now();
    let open = open(&command.world, command.data.as_deref(), &[])?;
    if let Some(shop) = &open.shop {
        return shop::bench(shop, command, output, started.elapsed());
    }
    let games = open.household_games("measurements")?;
    let list = tasks_of_world(&*open.world, Split::Train)?;
    let key = RandomKey::new(0).with_text("purpose", "bench");
    let started = Instant::now();
    let games = list
        .iter()
        .take(command.games.max(1))
        .map(|task| games.game(&task.id))
        .collect::<Result<Vec<_>, _>>()?;
    let load = started.elapsed().as_secs_f64() / games.len() as f64;
    let workloads: Vec<Workload> = games
        .into_iter()
        .enumerate()
        .map(|(index, game)| Workload::random(game, 50, &key.with("game", index as u64)))
        .collect();
    let clock = move || started.elapsed();
    let measure = Duration::from_secs_f64(command.seconds.max(0.01));
    let resets = time_resets(&workloads, measure, &clock);
    let steps = time_steps(&workloads, measure, &clock);
    if output.json {
        output_line(
            &json!({
                "world": open.world.name(),
                "games": workloads.len(),
                "load_milliseconds": load * 1e3,
                "reset_microseconds": resets.seconds_each() * 1e6,
                "steps_per_second": steps.per_second(),
            })
            .to_string(),
        );
    } else {
        output_line(&format!(
            "{}: {} games, one thread\n  load   {:10.3} ms a game\n  reset  {:10.2} us\n  step   {:10.0} steps a second, \
             with observation text and the full list of commands",
            open.world.name(),
            workloads.len(),
            load * 1e3,
            resets.seconds_each() * 1e6,
            steps.per_second()
        ));
    }
    Ok(ExitCode::Success)
}

fn verify(command: &Verify, output: Output) -> Outcome {
    match command.world.as_str() {
        "alfworld" => verify_games(command, output),
        "webshop" => shop::verify(command, output),
        other => Err(Failure::usage(format!(
            "there are no transcripts of `{other}`; there are those of `alfworld` and `webshop`"
        ))),
    }
}

fn verify_games(command: &Verify, output: Output) -> Outcome {
    let data = command
        .data
        .clone()
        .or_else(|| std::env::var_os(DATA_VARIABLE).map(Into::into))
        .ok_or_else(|| {
            Failure::usage(format!(
                "name the folder with the games: `--data FOLDER` or `{DATA_VARIABLE}`"
            ))
        })?;
    let library = Library::open(&data, &LibraryOptions::default())?;
    let mut transcripts = VerifyReport::default();
    for path in &command.transcripts {
        transcripts.merge(verify_transcripts(path, &library)?);
    }
    let walkthroughs = command
        .walkthroughs
        .then(|| verify_walkthroughs(&library, &Split::ALL))
        .transpose()?;
    let reports = [("transcripts", Some(transcripts)), ("walkthroughs", walkthroughs)];
    let mut exact = true;
    for (name, report) in reports {
        let Some(report) = report else { continue };
        exact &= report.is_exact();
        let differences: Vec<String> = report.first_differences.iter().map(ToString::to_string).collect();
        let counts = [report.episodes, report.steps, report.differences];
        show_check(output, name, counts, &differences);
    }
    Ok(if exact {
        ExitCode::Success
    } else {
        ExitCode::CheckFailed
    })
}

/// Shows how many episodes and steps were compared and how much differed, with the first differences in words.
fn show_check(output: Output, name: &str, [episodes, steps, differences]: [usize; 3], first: &[String]) {
    if output.json {
        output_line(
            &json!({
                "checked": name,
                "episodes": episodes,
                "steps": steps,
                "differences": differences,
            })
            .to_string(),
        );
        return;
    }
    output_line(&format!(
        "{name}: {episodes} episodes, {steps} steps, {differences} differences"
    ));
    for difference in first.iter().take(SHOWN) {
        output_line(&format!("  {difference}"));
    }
}

fn generate(command: &Generate) -> Outcome {
    let size = match command.size.as_str() {
        "studio" => HouseholdSize::Studio,
        "full" => HouseholdSize::Full,
        other => {
            return Err(Failure::usage(format!(
                "`{other}` is no size; there are `studio` and `full`"
            )));
        }
    };
    let split = split_by_name(&command.split)?;
    let generator = HouseholdGenerator::new(size, command.seed)?;
    if let Some(path) = &command.engine_files_from {
        let template = EngineTemplate::read(path)?;
        for index in 0..command.games {
            template.write(&command.out, &generator, split, index)?;
        }
        output_line(&format!(
            "{} games in {}",
            command.games,
            command.out.join("json_2.1.1").display()
        ));
        return Ok(ExitCode::Success);
    }
    let mut games = Vec::with_capacity(command.games);
    for index in 0..command.games {
        let household = generator.household(split, index)?;
        let id = format!("household-{}/{}/{index:06}", size.name(), split.name());
        let goal = household.goal_sentence();
        let problem = household.problem();
        let game = Arc::new(
            Game::from_problem(&problem, &goal, &[], &id)
                .map_err(|error| Failure::new(error, ExitCode::Internal))?,
        );
        let walkthrough =
            seed_alfworld::expert::walkthrough(&game, &game.initial_state()).unwrap_or_default();
        games.push(json!({
            "id": id,
            "family": game.family().name(),
            "goal": goal,
            "walkthrough": walkthrough,
            "pddl_problem": problem,
        }));
    }
    fs_err::create_dir_all(&command.out)?;
    let path = command.out.join("games.jsonl");
    write_json_lines(&path, &games)?;
    output_line(&format!("{} games in {}", games.len(), path.display()));
    Ok(ExitCode::Success)
}
