//! Rollouts of a toy world by a tiny random model: what is recorded is what was computed, and nothing that should not
//! matter does.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests fail as tests do")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use seed_env::testing::{Failures, Injection, ToyOptions};
use seed_env::{ContextKind, EnvironmentPool, ErrorBudget, Outcome, PoolError, PoolOptions, World};
use seed_model::{Engine, EngineOptions, GenerateRequest, Generation, ModelError, SequenceState};
use seed_rollout::{
    EpisodeRequest, FailedRequest, FinishKind, Generator, Progress, RolloutError, Trajectory, Truncation,
    rollout,
};
use support::{Fixture, Scripted, bits, forgiving, requests, toy};

const CONTEXTS: [ContextKind; 2] = [ContextKind::Windowed, ContextKind::Transcript];

/// Trajectories as text, by group and sample.
fn lines(trajectories: &[Trajectory]) -> Vec<String> {
    let mut lines: Vec<((u64, u32), String)> = trajectories
        .iter()
        .map(|trajectory| {
            (
                (trajectory.group, trajectory.sample),
                serde_json::to_string(trajectory).unwrap(),
            )
        })
        .collect();
    lines.sort();
    lines.into_iter().map(|(_, line)| line).collect()
}

#[test]
fn recorded_log_probs_are_the_bits_of_scoring() {
    let fixture = Fixture::new();
    let (_, world) = toy(ToyOptions::default());
    for context in CONTEXTS {
        let options = fixture.options(context);
        let requests = requests(&*world, 4, 3);
        let report = fixture.play(&world, requests, &options, EngineOptions::default());
        assert_eq!(report.trajectories.len(), 12);
        let mut finishes = Vec::new();
        let mut sampled = 0;
        for trajectory in &report.trajectories {
            for sequence in trajectory.sequences() {
                let mut recorded = Vec::new();
                for segment in &sequence.segments {
                    let step = &trajectory.steps[segment.step];
                    assert_eq!(sequence.tokens[segment.positions.clone()], step.response_ids);
                    assert_eq!(step.log_probs.len(), step.response_ids.len());
                    recorded.extend(&step.log_probs);
                    sampled += step.response_ids.len();
                    finishes.push(step.finish);
                }
                assert_eq!(
                    bits(&fixture.score(&sequence, 0.7)),
                    bits(&recorded),
                    "{context:?}"
                );
                assert_ne!(
                    bits(&fixture.score(&sequence, 1.0)),
                    bits(&recorded),
                    "the temperature counts"
                );
            }
        }
        assert_eq!(report.sampled_tokens, sampled);
        assert!(finishes.contains(&FinishKind::Stop) && finishes.contains(&FinishKind::Length));
    }
}

#[test]
fn a_group_shares_its_opening() {
    let fixture = Fixture::new();
    let (_, world) = toy(ToyOptions::default());
    for context in CONTEXTS {
        let options = fixture.options(context);
        let options = seed_rollout::RolloutOptions {
            max_steps: 1,
            // Fewer than a group: its members begin at different times.
            max_active: 2,
            ..options
        };
        let mut all = requests(&*world, 3, 5);
        for request in &mut all {
            // All tasks of this world begin alike; what is placed in their prompts does not.
            let group = request.group;
            request.decoration = Some(Arc::new(move |prompt: &str| format!("Group {group}.\n{prompt}")));
        }
        let report = fixture.play(&world, all, &options, EngineOptions::default());
        let mut expected = 0;
        for group in report.trajectories.chunks(5) {
            let opening = &group[0].steps[0].prompt_ids;
            // The shared part once, then the last id for each member.
            expected += opening.len() - 1 + group.len();
            for member in group {
                assert_eq!(&member.steps[0].prompt_ids, opening);
                assert_eq!(member.task_description, group[0].task_description);
            }
            assert_ne!(
                group[0].steps[0].response_ids, group[1].steps[0].response_ids,
                "members draw on their own"
            );
        }
        assert_eq!(report.prefilled_tokens, expected, "{context:?}");
    }
}

#[test]
fn nothing_depends_on_order_batch_size_or_threads() {
    let fixture = Fixture::new();
    let (_, world) = toy(ToyOptions::default());
    for context in CONTEXTS {
        let options = fixture.options(context);
        let all = requests(&*world, 4, 3);
        let play =
            |requests: Vec<EpisodeRequest>, max_active: usize, prefill_chunk: usize, threads: usize| {
                let options = seed_rollout::RolloutOptions {
                    max_active,
                    ..options.clone()
                };
                rayon::ThreadPoolBuilder::new()
                    .num_threads(threads)
                    .build()
                    .unwrap()
                    .install(|| {
                        fixture.play(
                            &world,
                            requests,
                            &options,
                            EngineOptions {
                                max_active,
                                prefill_chunk,
                            },
                        )
                    })
            };
        let expected = play(all.clone(), 64, 512, 1);
        let order = |report: &seed_rollout::RolloutReport| -> Vec<(u64, u32)> {
            report
                .trajectories
                .iter()
                .map(|trajectory| (trajectory.group, trajectory.sample))
                .collect()
        };
        assert_eq!(
            order(&expected),
            (0..4)
                .flat_map(|g| (0..3).map(move |s| (g, s)))
                .collect::<Vec<_>>()
        );
        for (max_active, prefill_chunk, threads) in [(1, 512, 1), (3, 7, 2), (64, 100, 2)] {
            let report = play(all.clone(), max_active, prefill_chunk, threads);
            assert_eq!(
                lines(&report.trajectories),
                lines(&expected.trajectories),
                "{max_active} at once"
            );
            assert_eq!(order(&report), order(&expected));
            assert_eq!(report.sampled_tokens, expected.sampled_tokens);
        }
        // Groups interleaved, members backwards, and each episode alone.
        let mut mixed = all.clone();
        mixed.sort_by_key(|request| (std::cmp::Reverse(request.sample), (request.group * 7) % 4));
        let report = play(mixed.clone(), 5, 64, 2);
        assert_eq!(lines(&report.trajectories), lines(&expected.trajectories));
        assert_eq!(
            order(&report),
            mixed
                .iter()
                .map(|request| (request.group, request.sample))
                .collect::<Vec<_>>()
        );
        let alone: Vec<Trajectory> = all
            .iter()
            .flat_map(|request| play(vec![request.clone()], 1, 512, 1).trajectories)
            .collect();
        assert_eq!(lines(&alone), lines(&expected.trajectories));
    }
}

#[test]
fn episodes_begin_as_others_end() {
    let fixture = Fixture::new();
    let (_, world) = toy(ToyOptions::default());
    for context in CONTEXTS {
        // Equal responses make equal prompts at every step, which come in another order for every number.
        let mut computed = BTreeSet::new();
        for max_active in [1, 3, 4, 12, 50] {
            let options = seed_rollout::RolloutOptions {
                max_active,
                ..fixture.options(context)
            };
            let script = |_, _| vec![fixture.end_of_turn];
            let mut generator = Scripted::new(&fixture, Box::new(script));
            let requests = requests(&*world, 4, 3);
            let report = fixture.play_with(&mut generator, &world, requests, &options, &mut |_| {});
            assert!(
                report
                    .trajectories
                    .iter()
                    .all(|trajectory| trajectory.steps.len() == 3)
            );
            let slots: Vec<usize> = generator.contexts.iter().map(|(slot, _)| *slot).collect();
            let in_progress = |now: usize| {
                let begun: BTreeSet<usize> = slots[..=now].iter().copied().collect();
                begun.iter().filter(|slot| slots[now..].contains(slot)).count()
            };
            let most = (0..slots.len()).map(in_progress).max();
            assert_eq!(most, Some(max_active.min(12)), "{context:?}");
            computed.insert(report.prefilled_tokens);
        }
        assert_eq!(
            computed.len(),
            1,
            "{context:?}: {computed:?} prompt tokens computed"
        );
    }
}

#[test]
fn finished_episodes_leave_and_the_others_go_on() {
    let fixture = Fixture::new();
    let (toy, world) = toy(ToyOptions::default());
    let requests = requests(&*world, 2, 3);
    let say = |text: &str| {
        let mut ids = fixture.tokenizer.encode_text(text);
        ids.push(fixture.end_of_turn);
        ids
    };
    let tasks: Vec<_> = requests.iter().map(|request| request.task.id.clone()).collect();
    for context in CONTEXTS {
        // Sample 0 wins at once, sample 1 at its second turn, sample 2 never.
        let script = |slot: usize, turn: usize| {
            if slot % 3 == turn {
                say(&format!(
                    "<think>here</think><action>{}</action>",
                    toy.winning_action(&tasks[slot])
                ))
            } else {
                say("<think>hm</think><action>look</action>")
            }
        };
        let options = seed_rollout::RolloutOptions {
            max_steps: 2,
            ..fixture.options(context)
        };
        let mut generator = Scripted::new(&fixture, Box::new(script));
        let mut seen: Vec<Progress> = Vec::new();
        let report = fixture.play_with(
            &mut generator,
            &world,
            requests.clone(),
            &options,
            &mut |progress| seen.push(progress),
        );
        for (slot, trajectory) in report.trajectories.iter().enumerate() {
            let turns = [1, 2, 2][slot % 3];
            assert_eq!((trajectory.steps.len(), generator.of(slot).len()), (turns, turns));
            let won = slot % 3 < 2;
            assert_eq!(
                trajectory.outcome,
                if won {
                    Outcome::Success
                } else {
                    Outcome::OutOfTurns
                }
            );
            assert_eq!(trajectory.episode_return(), f32::from(u8::from(won)));
            let rewards: Vec<f32> = trajectory.steps.iter().map(|step| step.reward).collect();
            assert_eq!(
                rewards.iter().filter(|&&reward| reward == 1.0).count(),
                usize::from(won)
            );
            assert!(
                trajectory
                    .steps
                    .iter()
                    .all(|step| step.valid && step.finish == FinishKind::Stop)
            );
            assert_eq!(
                trajectory.response_tokens(),
                trajectory.steps.iter().map(|s| s.log_probs.len()).sum::<usize>()
            );
        }
        let counts: Vec<(usize, usize)> = seen
            .iter()
            .map(|progress| (progress.finished, progress.total))
            .collect();
        assert_eq!(counts, (1..=6).map(|finished| (finished, 6)).collect::<Vec<_>>());
        assert_eq!(seen.last().unwrap().successes, 4);
        assert_eq!(
            seen[1].successes, 2,
            "the first two to finish are those that won at once"
        );
    }
}

#[test]
fn the_action_tokens_are_the_tokens_of_the_action() {
    let fixture = Fixture::new();
    let (_, world) = toy(ToyOptions::default());
    let script = |_: usize, _: usize| {
        let mut ids = fixture
            .tokenizer
            .encode_text("<think>é</think><action> open box 3 </action>");
        ids.push(fixture.end_of_turn);
        ids
    };
    let options = fixture.options(ContextKind::Transcript);
    let mut generator = Scripted::new(&fixture, Box::new(script));
    let report = fixture.play_with(
        &mut generator,
        &world,
        requests(&*world, 1, 1),
        &options,
        &mut |_| {},
    );
    let step = &report.trajectories[0].steps[0];
    assert_eq!(step.action, "open box 3");
    assert_eq!(
        step.response_text,
        "<think>é</think><action> open box 3 </action>"
    );
    let action = fixture
        .conversation
        .decode(&step.response_ids[step.action_tokens.clone()]);
    assert_eq!(action.trim(), "open box 3");
}

#[test]
fn failing_environments_become_outcomes_and_touch_nobody_else() {
    let fixture = Fixture::new();
    let failures = Failures {
        reset_error: 0.15,
        step_error: 0.2,
        panic: 0.1,
        oversized: 0.1,
        invalid_reward: 0.15,
        ..Failures::default()
    };
    let (toy_world, failing) = toy(ToyOptions {
        failures,
        ..ToyOptions::default()
    });
    let (_, sound) = toy(ToyOptions::default());
    for context in CONTEXTS {
        let options = fixture.options(context);
        let all = requests(&*failing, 20, 2);
        let report = fixture.play(&failing, all.clone(), &options, EngineOptions::default());
        let expected = fixture.play(&sound, all.clone(), &options, EngineOptions::default());
        let mut failed = 0;
        for ((request, trajectory), sound) in all.iter().zip(&report.trajectories).zip(&expected.trajectories)
        {
            // An episode that ends before the step that would fail does not fail.
            let reached = sound.steps.len() > 1;
            let injection = match toy_world.injection(&request.task.id, request.environment_seed) {
                Some(injection) if injection == Injection::ResetError || reached => injection,
                _ => {
                    assert_eq!(trajectory, sound, "an episode without a failure is the same");
                    continue;
                }
            };
            failed += 1;
            assert_eq!(trajectory.outcome, Outcome::EnvironmentError);
            assert!(!trajectory.outcome.trains() && !trajectory.success());
            let error = trajectory.error.as_deref().unwrap();
            let (steps, word) = match injection {
                Injection::ResetError => (0, "injected reset error"),
                Injection::StepError => (2, "injected step error"),
                Injection::Panic => (2, "injected panic"),
                Injection::Oversized => (2, "bytes"),
                Injection::InvalidReward => (2, "NaN"),
                Injection::Hang => panic!("nothing hangs here"),
            };
            assert!(error.contains(word), "{injection:?}: {error}");
            assert_eq!(
                trajectory.steps.len(),
                steps,
                "{injection:?}: what was said until then is kept"
            );
            assert!(trajectory.episode_return().is_finite());
        }
        assert!((10..30).contains(&failed), "{failed} of 40 failed");
    }
}

/// An engine that does not answer some requests, in the place of one that answers all.
struct Unreliable<'a> {
    engine: Engine<'a>,
    /// Requests so far, by episode.
    asked: BTreeMap<u64, usize>,
    lost: Vec<FailedRequest>,
    told: Vec<FailedRequest>,
}

impl Generator for Unreliable<'_> {
    fn empty_state(&self) -> SequenceState {
        Generator::empty_state(&self.engine)
    }

    fn prefill(&mut self, state: SequenceState, tokens: &[u32]) -> Result<SequenceState, ModelError> {
        self.engine.prefill(state, tokens)
    }

    fn submit(&mut self, request: GenerateRequest) -> Result<(), ModelError> {
        let (id, turn) = (request.id, self.asked.entry(request.id).or_default());
        *turn += 1;
        // Every third episode loses its second response, every fifth its first.
        if id.is_multiple_of(3) && *turn == 2 || id.is_multiple_of(5) {
            let problem = format!("lost turn {turn}");
            self.lost.push(FailedRequest { id, problem });
            return Ok(());
        }
        self.engine.submit(request)
    }

    fn step(&mut self) -> Result<Vec<Generation>, ModelError> {
        self.told.append(&mut self.lost);
        self.engine.step()
    }

    fn take_failures(&mut self) -> Vec<FailedRequest> {
        std::mem::take(&mut self.told)
    }

    fn is_idle(&self) -> bool {
        self.lost.is_empty() && self.engine.is_idle()
    }
}

#[test]
fn a_request_without_a_response_ends_its_episode_and_touches_nobody_else() {
    let fixture = Fixture::new();
    let (_, world) = toy(ToyOptions::default());
    for context in CONTEXTS {
        let options = seed_rollout::RolloutOptions {
            max_active: 4,
            ..fixture.options(context)
        };
        let sound = fixture.play(
            &world,
            requests(&*world, 6, 2),
            &options,
            EngineOptions::default(),
        );
        let mut generator = Unreliable {
            engine: Engine::new(&fixture.decoder, EngineOptions::default()),
            asked: BTreeMap::new(),
            lost: Vec::new(),
            told: Vec::new(),
        };
        let mut finished = Vec::new();
        let report = fixture.play_with(
            &mut generator,
            &world,
            requests(&*world, 6, 2),
            &options,
            &mut |progress| finished.push(progress.finished),
        );
        assert_eq!(finished, (1..=12).collect::<Vec<_>>(), "each episode ends once");
        let mut broken = 0;
        for (id, (found, expected)) in report.trajectories.iter().zip(&sound.trajectories).enumerate() {
            let steps = if id.is_multiple_of(5) {
                Some(0)
            } else if id.is_multiple_of(3) && expected.steps.len() > 1 {
                Some(1)
            } else {
                None
            };
            let Some(steps) = steps else {
                assert_eq!(found, expected, "{context:?}, episode {id}");
                continue;
            };
            broken += 1;
            assert_eq!(found.outcome, Outcome::EngineError);
            assert!(!found.outcome.trains());
            assert_eq!(found.steps.len(), steps);
            assert_eq!(found.error, Some(format!("lost turn {}", steps + 1)));
            // What was sampled before is as it was.
            for (found, expected) in found.steps.iter().zip(&expected.steps) {
                assert_eq!(found.response_ids, expected.response_ids);
            }
        }
        assert!(broken > 3, "{broken}");
    }
}

#[test]
fn a_hanging_environment_times_out() {
    let fixture = Fixture::new();
    let failures = Failures {
        hang: 0.5,
        ..Failures::default()
    };
    let (toy_world, world) = toy(ToyOptions {
        native: false,
        failures,
        ..ToyOptions::default()
    });
    let options = fixture.options(ContextKind::Transcript);
    let all = requests(&*world, 8, 1);
    let mut engine = Engine::new(&fixture.decoder, EngineOptions::default());
    let pool_options = PoolOptions {
        step_deadline: std::time::Duration::from_secs(1),
        ..forgiving()
    };
    let mut pool = EnvironmentPool::new(world.clone(), pool_options).unwrap();
    let report = rollout(
        &mut engine,
        &fixture.conversation,
        &world,
        &mut pool,
        all.clone(),
        &options,
        &mut |_| {},
    )
    .unwrap();
    let mut hung = 0;
    for (request, trajectory) in all.iter().zip(&report.trajectories) {
        let hangs = toy_world.injection(&request.task.id, request.environment_seed) == Some(Injection::Hang)
            && trajectory.steps.len() > 1;
        hung += usize::from(hangs);
        assert_eq!(
            trajectory.outcome == Outcome::TimeOut,
            hangs,
            "{:?}",
            trajectory.outcome
        );
    }
    assert!(hung > 0, "the seeds of this test make some hang");
}

#[test]
fn too_many_failures_stop_the_rollout_with_an_example() {
    let fixture = Fixture::new();
    let failures = Failures {
        reset_error: 1.0,
        ..Failures::default()
    };
    let (_, world) = toy(ToyOptions {
        failures,
        ..ToyOptions::default()
    });
    let options = fixture.options(ContextKind::Transcript);
    let mut engine = Engine::new(&fixture.decoder, EngineOptions::default());
    let budget = ErrorBudget {
        share: 0.5,
        window: 64,
        minimum: 4,
    };
    let pool_options = PoolOptions {
        error_budget: budget,
        ..PoolOptions::default()
    };
    let mut pool = EnvironmentPool::new(world.clone(), pool_options).unwrap();
    let mut play = || {
        let requests = requests(&*world, 4, 2);
        rollout(
            &mut engine,
            &fixture.conversation,
            &world,
            &mut pool,
            requests,
            &options,
            &mut |_| {},
        )
    };
    // The verdict is given when further episodes are to begin.
    assert!(
        play()
            .unwrap()
            .trajectories
            .iter()
            .all(|trajectory| trajectory.steps.is_empty())
    );
    match play() {
        Err(RolloutError::Environment(PoolError::ErrorBudget { sample, .. })) => {
            assert!(sample.message.contains("the injected reset error"), "{sample}");
        }
        other => panic!("expected a spent error budget, got {other:?}"),
    }
}

#[test]
fn limits_end_episodes_with_their_names() {
    let fixture = Fixture::new();
    let (_, world) = toy(ToyOptions::default());
    let all = requests(&*world, 2, 2);
    let play = |options: &seed_rollout::RolloutOptions| {
        fixture
            .play(&world, all.clone(), options, EngineOptions::default())
            .trajectories
    };
    for context in CONTEXTS {
        let options = seed_rollout::RolloutOptions {
            max_steps: 2,
            ..fixture.options(context)
        };
        for trajectory in play(&options) {
            assert_eq!(
                (trajectory.outcome, trajectory.steps.len()),
                (Outcome::OutOfTurns, 2)
            );
        }
    }
    // A transcript that fills its context: the response that hits the end is kept, and is the last.
    let mut options = fixture.options(ContextKind::Transcript);
    options.max_steps = 50;
    let mut cut = 0;
    for context in 150..160 {
        options.tokens.context = context;
        for trajectory in play(&options) {
            assert_eq!(trajectory.outcome, Outcome::OutOfTokens);
            let sequences = trajectory.sequences();
            assert_eq!(sequences.len(), 1);
            assert!(sequences[0].tokens.len() <= context);
            assert!(trajectory.steps.len() > 1);
            let (last, others) = trajectory.steps.split_last().unwrap();
            cut += usize::from(last.finish == FinishKind::Context);
            assert!(others.iter().all(|step| step.finish != FinishKind::Context));
        }
    }
    assert!(cut > 0, "some response was cut by the context");
    // A conversation may be limited more tightly than the context.
    options.tokens.prompt = 100;
    for trajectory in play(&options) {
        assert_eq!(trajectory.outcome, Outcome::OutOfTokens);
        let sequence = trajectory.sequences().remove(0);
        assert!(
            sequence
                .segments
                .iter()
                .all(|segment| segment.positions.start <= 100)
        );
    }
    // A window longer than its limit loses its beginning, or ends the episode.
    let mut options = fixture.options(ContextKind::Windowed);
    let whole = play(&options);
    options.tokens.prompt = 60;
    for (trajectory, whole) in play(&options).iter().zip(&whole) {
        let (step, full) = (&trajectory.steps[0], &whole.steps[0]);
        assert_eq!(step.prompt_ids.len(), 60);
        assert_eq!(step.prompt_ids_truncated, full.prompt_ids.len() - 60);
        assert_eq!(step.prompt_ids, full.prompt_ids[step.prompt_ids_truncated..]);
        assert_eq!(step.prompt_text, full.prompt_text, "the text is recorded uncut");
    }
    options.tokens.truncation = Truncation::Error;
    for trajectory in play(&options) {
        assert_eq!(
            (trajectory.outcome, trajectory.steps.len()),
            (Outcome::OutOfTokens, 0)
        );
        assert!(trajectory.sequences().is_empty() && trajectory.error.is_none());
    }
}

#[test]
fn the_sampler_changes_what_is_drawn_but_not_what_is_recorded_of_it() {
    let fixture = Fixture::new();
    let (_, world): (_, Arc<dyn World>) = toy(ToyOptions::default());
    let mut options = fixture.options(ContextKind::Transcript);
    options.sampling.top_k = 3;
    options.sampling.top_p = 0.8;
    for trajectory in fixture
        .play(
            &world,
            requests(&*world, 2, 2),
            &options,
            EngineOptions::default(),
        )
        .trajectories
    {
        for sequence in trajectory.sequences() {
            let recorded: Vec<f32> = trajectory
                .steps
                .iter()
                .flat_map(|step| step.log_probs.clone())
                .collect();
            assert_eq!(
                bits(&fixture.score(&sequence, 0.7)),
                bits(&recorded),
                "log-probs are of the whole distribution"
            );
        }
    }
}
