//! The native half of `bench/alfworld`: prepares games and commands that both engines play, and measures this one.
//!
//! `steps_per_second prepare DATA OUT [--games N] [--steps N]` writes games and `workload.json`;
//! `steps_per_second measure OUT` plays them and prints one JSON object.

#![expect(clippy::print_stdout, reason = "a program that prints its result")]

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use seed_alfworld::{
    CacheFolder, Game, GameEnvironment, GameSource, Library, LibraryOptions, Timing, Workload,
    read_game_file, split_folder, time_resets, time_steps,
};
use seed_env::{Environment, EnvironmentError, Split, TaskId};
use seed_random::RandomKey;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// One game of the workload, and what to play on it.
#[derive(Serialize, Deserialize)]
struct Entry {
    name: String,
    commands: Vec<String>,
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["prepare", data, out, options @ ..] => prepare(Path::new(data), Path::new(out), options),
        ["measure", out] => measure(Path::new(out)),
        _ => Err("usage: steps_per_second prepare DATA OUT [--games N] [--steps N] | measure OUT".into()),
    }
}

/// The number after an option's name.
fn option(options: &[&str], name: &str, default: usize) -> Outcome<usize> {
    match options.iter().position(|&option| option == name) {
        None => Ok(default),
        Some(index) => Ok(options
            .get(index + 1)
            .ok_or_else(|| format!("`{name}` needs a number"))?
            .parse()?),
    }
}

fn prepare(data: &Path, out: &Path, options: &[&str]) -> Outcome<()> {
    let games = option(options, "--games", 6)?;
    let steps = option(options, "--steps", 30)?;
    let root = RandomKey::new(0).with_text("purpose", "engine benchmark");
    let mut entries = Vec::new();
    let library = Library::open(
        data,
        &LibraryOptions {
            splits: vec![Split::Unseen],
            cache: CacheFolder::Disabled,
            ..LibraryOptions::default()
        },
    )?;
    let listed = library.games(Split::Unseen);
    for number in 0..games.min(listed.len()) {
        // Spread over the sorted list, so that all families and scenes come in.
        let chosen = &listed[number * listed.len() / games];
        let game = library.load(chosen)?;
        let file = game_file(data, chosen.path())?;
        let name = format!("game-{number:02}");
        write_game(out, &name, &file)?;
        let workload = Workload::random(game, steps, &root.with("game", number as u64));
        entries.push(Entry {
            name,
            commands: workload.commands,
        });
    }
    fs_err::write(out.join("workload.json"), serde_json::to_vec_pretty(&entries)?)?;
    println!("{} games in {}", entries.len(), out.display());
    Ok(())
}

/// The bytes of a game of the split `valid_unseen`, from a folder or an archive.
fn game_file(data: &Path, path: &str) -> Outcome<Vec<u8>> {
    let folder = split_folder(Split::Unseen);
    for root in [data.join("json_2.1.1"), data.to_owned()] {
        let file = root.join(folder).join(path).join("game.tw-pddl");
        if file.is_file() {
            return Ok(fs_err::read(file)?);
        }
    }
    let archive = if data.is_file() {
        data.to_owned()
    } else {
        data.join(format!("{folder}.tar.zst"))
    };
    let mut found = None;
    seed_alfworld::read_archive(&archive, |game| {
        if game.path == path {
            found = Some(game.game);
        }
        Ok(())
    })?;
    found.ok_or_else(|| format!("no game `{path}` in `{}`", archive.display()).into())
}

fn write_game(out: &Path, name: &str, file: &[u8]) -> Outcome<()> {
    fs_err::create_dir_all(out.join(name))?;
    Ok(fs_err::write(out.join(name).join("game.tw-pddl"), file)?)
}

/// Processor time of this thread, which other programs on the machine do not stretch.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

fn measure(out: &Path) -> Outcome<()> {
    let entries: Vec<Entry> = serde_json::from_slice(&fs_err::read(out.join("workload.json"))?)?;
    let mut workloads = Vec::new();
    let mut files = Vec::new();
    let mut digests = serde_json::Map::new();
    for entry in entries {
        let bytes = fs_err::read(out.join(&entry.name).join("game.tw-pddl"))?;
        let workload = Workload {
            game: Arc::new(read_game_file(&bytes, &entry.name)?),
            commands: entry.commands,
        };
        digests.insert(entry.name, Value::from(workload.digest()));
        files.push(bytes);
        workloads.push(workload);
    }
    let second = Duration::from_secs(1);
    let start = processor_time();
    let mut parsed = 0;
    while processor_time().saturating_sub(start) < second {
        for bytes in &files {
            read_game_file(bytes, "game")?;
            parsed += 1;
        }
    }
    let parses = Timing {
        count: parsed,
        elapsed: processor_time().saturating_sub(start),
    };
    let resets = time_resets(&workloads, second, &processor_time);
    let steps = time_steps(&workloads, second, &processor_time);
    let environment = time_environment(&workloads, second)?;
    let mean_state: usize = workloads
        .iter()
        .map(|workload| workload.game.initial_state().size_in_bytes())
        .sum::<usize>()
        / workloads.len().max(1);
    let result = json!({
        "engine": "seed-alfworld",
        "load_seconds": parses.seconds_each(),
        "reset_seconds": resets.seconds_each(),
        "steps_per_second": steps.per_second(),
        "environment_steps_per_second": environment.per_second(),
        "state_bytes": mean_state,
        "digests": digests,
    });
    println!("{}", serde_json::to_string_pretty(&result)?);
    Ok(())
}

/// The games of the workloads, by number.
struct Games(Vec<Arc<Game>>);

impl GameSource for Games {
    fn game(&self, task: &TaskId) -> Result<Arc<Game>, EnvironmentError> {
        let number: Option<usize> = task.as_str().parse().ok();
        number
            .and_then(|number| self.0.get(number))
            .cloned()
            .ok_or_else(|| EnvironmentError::UnknownTask {
                task: task.clone(),
                world: "benchmark".to_owned(),
            })
    }
}

/// Steps through the general environment interface, where every observation and command is a string of its own.
fn time_environment(workloads: &[Workload], minimum: Duration) -> Outcome<Timing> {
    let games = workloads
        .iter()
        .map(|workload| Arc::clone(&workload.game))
        .collect();
    let mut environment = GameEnvironment::new(Arc::new(Games(games)));
    let tasks: Vec<TaskId> = (0..workloads.len())
        .map(|number| TaskId::new(number.to_string()))
        .collect();
    let start = processor_time();
    let mut count = 0;
    while processor_time().saturating_sub(start) < minimum {
        for (workload, task) in workloads.iter().zip(&tasks) {
            environment.reset(task, 0)?;
            for command in &workload.commands {
                std::hint::black_box(environment.step(command)?);
                std::hint::black_box(environment.admissible_actions());
                count += 1;
            }
        }
    }
    Ok(Timing {
        count,
        elapsed: processor_time().saturating_sub(start),
    })
}
