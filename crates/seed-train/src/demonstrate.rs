//! Scripted demonstrations: what a policy is first taught with.
//!
//! Four kinds of example, drawn by weight: plain play by a noisy expert (`act`), play with a skill from an earlier
//! attempt at the same task (`act_with_skill`), plain play beside a skill of an unrelated task
//! (`act_with_other_skill`), and writing the skill of a finished episode (`analyse`). Only training tasks are played.
//! Example `i` depends on the seed and `i` alone.

use rayon::prelude::*;
use seed_alfworld::expert::skill::{self, Advice, Annotation};
use seed_alfworld::expert::{NoisyExpert, PlayedEpisode, play};
use seed_alfworld::{Game, GameSource};
use seed_env::{ContextKind, Exchange, PromptState, Split, Task, World};
use seed_random::{Draw, RandomKey};
use seed_run::write_json_lines;

use crate::TrainError;
use crate::config::{DemonstrateConfig, DemonstrationsSection};
use crate::events::{Event, Observer, Phase};
use crate::examples::{ExampleMessage, ExampleRecord, Role, Trained};
use crate::hindsight::{Hindsight, played_episode_text, response};

/// Examples made between two progress reports.
const BATCH: usize = 1_024;

/// What each example needs.
pub struct Demonstrator<'a> {
    /// Tasks and wording.
    pub world: &'a dyn World,
    /// The games behind the tasks.
    pub games: &'a dyn GameSource,
    /// How episodes are shown and analysed.
    pub hindsight: &'a Hindsight,
    /// The mixture.
    pub section: &'a DemonstrationsSection,
    /// Context kind of the examples.
    pub context: ContextKind,
    /// Exchanges shown by a windowed prompt.
    pub history_length: usize,
    /// Step limit.
    pub max_steps: usize,
    /// Root of all draws.
    pub key: RandomKey,
}

/// Records `section.examples` demonstrations into `section.out`, in order.
///
/// # Errors
/// When a game cannot be made or the file cannot be written.
pub fn demonstrate(
    config: &DemonstrateConfig,
    world: &dyn World,
    games: &dyn GameSource,
    hindsight: &Hindsight,
    observer: &mut dyn Observer,
) -> Result<usize, TrainError> {
    let demonstrator = Demonstrator {
        world,
        games,
        hindsight,
        section: &config.demonstrations,
        context: config.world.context.into(),
        history_length: config.world.history_length,
        max_steps: config.world.max_steps,
        key: RandomKey::new(config.run.seed).with_text("purpose", "demonstrations"),
    };
    let total = config.demonstrations.examples;
    let mut records = Vec::with_capacity(total);
    for start in (0..total).step_by(BATCH) {
        let end = (start + BATCH).min(total);
        let batch: Vec<Vec<ExampleRecord>> = (start..end)
            .into_par_iter()
            .map(|index| demonstrator.example(index as u64))
            .collect::<Result<_, _>>()?;
        records.extend(batch.into_iter().flatten());
        observer.event(&Event::Progress {
            iteration: 0,
            phase: Phase::Rollout,
            done: end,
            total,
        });
    }
    let out = &config.demonstrations.out;
    if let Some(parent) = out.parent() {
        fs_err::create_dir_all(parent)?;
    }
    write_json_lines(out, &records)?;
    Ok(records.len())
}

impl Demonstrator<'_> {
    /// The examples of demonstration `index`: one in transcript context, one a step in windowed context.
    ///
    /// # Errors
    /// When the game cannot be made.
    pub fn example(&self, index: u64) -> Result<Vec<ExampleRecord>, TrainError> {
        let key = self.key.with("example", index);
        let mut draw = key.with_text("draw", "mixture").generator();
        let task = self.draw_task(&mut draw)?;
        let game = self
            .games
            .game(&task.id)
            .map_err(crate::world::WorldError::from)?;
        let section = self.section;
        let noise = section.noise_low + (section.noise_high - section.noise_low) * draw.unit();
        let attempt = play(
            &game,
            &mut NoisyExpert::new(key.with_text("play", "attempt"), noise),
            self.max_steps,
        );
        let shares = [
            section.act_share,
            section.act_with_skill_share,
            section.act_with_other_skill_share,
            section.analyse_share,
        ];
        let mut position = draw.unit() * shares.iter().sum::<f64>();
        let kind = shares
            .iter()
            .position(|share| {
                position -= share;
                position < 0.0
            })
            .unwrap_or(0);
        Ok(match kind {
            1 => {
                let skill = annotate(&attempt)?.episode_skill;
                let again_key = key.with_text("play", "again");
                let mut expert = NoisyExpert::advised(again_key, section.skill_noise, Advice::read(&skill));
                let again = play(&game, &mut expert, self.max_steps);
                self.acting("act_with_skill", &game, &again, Some(&skill))
            }
            2 => {
                let other = self.draw_task(&mut draw)?;
                let game_of_other = self
                    .games
                    .game(&other.id)
                    .map_err(crate::world::WorldError::from)?;
                let player = &mut NoisyExpert::new(key.with_text("play", "other"), noise);
                let skill = annotate(&play(&game_of_other, player, self.max_steps))?.episode_skill;
                self.acting("act_with_other_skill", &game, &attempt, Some(&skill))
            }
            3 => {
                let written = annotate(&attempt)?;
                let text = played_episode_text(self.world.dialogue(), &attempt);
                vec![ExampleRecord {
                    kind: "analyse".to_owned(),
                    messages: vec![
                        message(Role::User, self.hindsight.prompt(&text)),
                        message(
                            Role::Assistant,
                            self.hindsight
                                .record_json(&written.episode_summary, &written.episode_skill),
                        ),
                    ],
                    train: Trained::Last,
                }]
            }
            _ => self.acting("act", &game, &attempt, None),
        })
    }

    fn draw_task(&self, draw: &mut impl Draw) -> Result<&Task, TrainError> {
        draw.choose(self.world.tasks(Split::Train))
            .ok_or_else(|| TrainError::NoTasks {
                world: self.world.name().to_owned(),
                split: Split::Train,
            })
    }

    /// An episode as the policy would have seen and answered it.
    fn acting(
        &self,
        kind: &str,
        game: &Game,
        episode: &PlayedEpisode,
        skill: Option<&str>,
    ) -> Vec<ExampleRecord> {
        let dialogue = self.world.dialogue();
        let place = |text: String| match skill {
            Some(skill) => self.hindsight.place(&text, skill),
            None => text,
        };
        let mut history = Vec::new();
        let mut messages = Vec::new();
        let mut records = Vec::new();
        let commands = AdmissibleCommands::new(game, episode, self.context == ContextKind::Windowed);
        for (step, played) in episode.steps.iter().enumerate() {
            let state = PromptState {
                task_description: &episode.task,
                observation: &played.observation,
                admissible_actions: commands.at(step),
                history: &history,
                history_length: self.history_length,
            };
            let prompt = match (self.context, step) {
                (ContextKind::Windowed, _) => place(dialogue.windowed_prompt(&state)),
                (ContextKind::Transcript, 0) => place(dialogue.transcript_opening(&state)),
                (ContextKind::Transcript, _) => dialogue.transcript_turn(&state),
            };
            messages.push(message(Role::User, prompt));
            messages.push(message(
                Role::Assistant,
                response(&played.intention, &played.command),
            ));
            if self.context == ContextKind::Windowed {
                records.push(record(kind, std::mem::take(&mut messages)));
            }
            history.push(Exchange {
                observation: played.observation.clone(),
                action: played.command.clone(),
            });
        }
        if !messages.is_empty() {
            records.push(record(kind, messages));
        }
        records
    }
}

fn annotate(episode: &PlayedEpisode) -> Result<Annotation, TrainError> {
    skill::annotate(episode).ok_or_else(|| TrainError::UnreadableTask {
        task: episode.task.clone(),
    })
}

fn message(role: Role, content: String) -> ExampleMessage {
    ExampleMessage { role, content }
}

fn record(kind: &str, messages: Vec<ExampleMessage>) -> ExampleRecord {
    ExampleRecord {
        kind: kind.to_owned(),
        messages,
        train: Trained::All,
    }
}

/// The commands possible at each step of a played episode; computed only when prompts show them.
struct AdmissibleCommands(Vec<Vec<String>>);

impl AdmissibleCommands {
    fn new(game: &Game, episode: &PlayedEpisode, shown: bool) -> Self {
        if !shown {
            return Self(Vec::new());
        }
        let mut state = game.initial_state();
        let (mut ids, mut text) = (Vec::new(), String::new());
        let lists = episode
            .steps
            .iter()
            .map(|step| {
                game.admissible_commands(&state, &mut ids);
                let list = ids.iter().map(|&id| game.command_text(id).to_owned()).collect();
                text.clear();
                game.step(&mut state, &step.command, &mut text);
                list
            })
            .collect();
        Self(lists)
    }

    fn at(&self, step: usize) -> &[String] {
        self.0.get(step).map_or(&[], Vec::as_slice)
    }
}
