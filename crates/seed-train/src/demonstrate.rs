//! Scripted demonstrations: what a policy is first taught with.
//!
//! Four kinds of example, drawn by weight: plain play by a script that errs (`act`), play with a skill from an earlier
//! attempt at the same task (`act_with_skill`), plain play beside a skill of an unrelated task
//! (`act_with_other_skill`), and writing the skill of a finished episode (`analyse`). Only training tasks are played.
//! Example `i` depends on the seed and `i` alone.
//!
//! Not for: how a world is played by script (its module `script`).

mod script;

use rayon::prelude::*;
use seed_env::{ContextKind, Exchange, PromptState, Split, Task, World};
use seed_random::{Draw, RandomKey};
use seed_run::write_json_lines;

use crate::TrainError;
use crate::config::{DemonstrateConfig, DemonstrationsSection};
use crate::events::{Event, Observer, Phase};
use crate::examples::{ExampleMessage, ExampleRecord, Role, Trained};
use crate::hindsight::Hindsight;
use crate::world::OpenWorld;

use script::{Script, ScriptedEpisode, script_of};

/// Examples made between two progress reports.
const BATCH: usize = 1_024;

/// What each example needs.
struct Demonstrator<'a> {
    /// Tasks and wording.
    world: &'a dyn World,
    /// Who plays them.
    script: Box<dyn Script + 'a>,
    /// How episodes are shown and analysed.
    hindsight: &'a Hindsight,
    /// The mixture.
    section: &'a DemonstrationsSection,
    /// Context kind of the examples.
    context: ContextKind,
    /// Exchanges shown by a windowed prompt.
    history_length: usize,
    /// Root of all draws.
    key: RandomKey,
}

/// Records `section.examples` demonstrations into `section.out`, in order.
///
/// # Errors
/// When the world has no script, a task cannot be played, or the file cannot be written.
pub fn demonstrate(
    config: &DemonstrateConfig,
    open: &OpenWorld,
    hindsight: &Hindsight,
    observer: &mut dyn Observer,
) -> Result<usize, TrainError> {
    let context = config.world.context.into();
    let demonstrator = Demonstrator {
        world: &*open.world,
        script: script_of(open, context, config.world.max_steps)?,
        hindsight,
        section: &config.demonstrations,
        context,
        history_length: config.world.history_length,
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
    fn example(&self, index: u64) -> Result<Vec<ExampleRecord>, TrainError> {
        let key = self.key.with("example", index);
        let mut draw = key.with_text("draw", "mixture").generator();
        let task = self.draw_task(&mut draw)?;
        let section = self.section;
        let noise = section.noise_low + (section.noise_high - section.noise_low) * draw.unit();
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
        let attempt = self
            .script
            .play(task, noise, None, key.with_text("play", "attempt"))?;
        Ok(match kind {
            1 => {
                let skill = attempt.lesson()?.episode_skill;
                let again_key = key.with_text("play", "again");
                let again = self
                    .script
                    .play(task, section.skill_noise, Some(&skill), again_key)?;
                self.acting("act_with_skill", &again, Some(&skill))
            }
            2 => {
                let other = self.draw_task(&mut draw)?;
                let played = self
                    .script
                    .play(other, noise, None, key.with_text("play", "other"))?;
                let skill = played.lesson()?.episode_skill;
                self.acting("act_with_other_skill", &attempt, Some(&skill))
            }
            3 => {
                let written = attempt.lesson()?;
                let text = attempt.text(self.world.dialogue());
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
            _ => self.acting("act", &attempt, None),
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
    fn acting(&self, kind: &str, episode: &ScriptedEpisode, skill: Option<&str>) -> Vec<ExampleRecord> {
        let dialogue = self.world.dialogue();
        let place = |text: String| match skill {
            Some(skill) => self.hindsight.place(&text, skill),
            None => text,
        };
        let mut history = Vec::new();
        let mut messages = Vec::new();
        let mut records = Vec::new();
        let admissible_actions = episode.admissible_actions();
        for (index, (step, admissible_actions)) in
            episode.steps.iter().zip(admissible_actions.iter()).enumerate()
        {
            let state = PromptState {
                task_description: &episode.task,
                observation: &step.observation,
                admissible_actions,
                history: &history,
                history_length: self.history_length,
            };
            let prompt = match (self.context, index) {
                (ContextKind::Windowed, _) => place(dialogue.windowed_prompt(&state)),
                (ContextKind::Transcript, 0) => place(dialogue.transcript_opening(&state)),
                (ContextKind::Transcript, _) => dialogue.transcript_turn(&state),
            };
            messages.push(message(Role::User, prompt));
            messages.push(message(Role::Assistant, step.response.clone()));
            if self.context == ContextKind::Windowed {
                records.push(record(kind, std::mem::take(&mut messages)));
            }
            history.push(Exchange {
                observation: step.observation.clone(),
                action: step.action.clone(),
            });
        }
        if !messages.is_empty() {
            records.push(record(kind, messages));
        }
        records
    }
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
