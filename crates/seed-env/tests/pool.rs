//! Stepping many episodes: order, deadlines, panics and errors that stay with their episode, and the error budget.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of these tests fail as tests do"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use seed_env::testing::{Failures, Injection, ToyOptions, ToyWorld};
use seed_env::{
    EnvironmentPool, EpisodeFailure, EpisodeStart, ErrorBudget, FailureClass, Opening, Outcome, PoolError,
    PoolOptions, Split, Step, TaskId, World,
};

/// Deadlines that nothing reaches, and every share of failures allowed.
fn forgiving() -> PoolOptions {
    PoolOptions {
        error_budget: ErrorBudget {
            share: 1.0,
            ..ErrorBudget::default()
        },
        ..PoolOptions::default()
    }
}

fn pool(world: &Arc<ToyWorld>, options: PoolOptions) -> EnvironmentPool {
    EnvironmentPool::new(Arc::clone(world) as Arc<dyn World>, options).unwrap()
}

fn starts(world: &ToyWorld, seed: u64) -> Vec<EpisodeStart> {
    let tasks = world.tasks(Split::Train);
    (0..tasks.len())
        .map(|slot| EpisodeStart {
            slot,
            task: tasks[slot].id.clone(),
            seed,
        })
        .collect()
}

/// Everything two rounds of actions give, in a comparable form.
type Played = (
    Vec<Result<Opening, EpisodeFailure>>,
    Vec<Vec<(usize, Result<Step, EpisodeFailure>)>>,
);

/// Starts all episodes and steps those that are alive for three rounds, in an order given by `order`.
fn play(pool: &mut EnvironmentPool, starts: &[EpisodeStart], order: impl Fn(&mut Vec<usize>)) -> Played {
    let openings = pool.reset_all(starts).unwrap();
    let mut rounds = Vec::new();
    for round in 1..=3 {
        let mut alive: Vec<usize> = (0..starts.len()).filter(|&slot| pool.is_running(slot)).collect();
        order(&mut alive);
        let action = format!("open box {round}");
        let actions: Vec<(usize, &str)> = alive.iter().map(|&slot| (slot, action.as_str())).collect();
        let results = pool.step_all(&actions).unwrap();
        let mut results: Vec<_> = alive.into_iter().zip(results).collect();
        results.sort_by_key(|(slot, _)| *slot);
        rounds.push(results);
    }
    (openings, rounds)
}

fn failing(native: bool, failures: Failures) -> Arc<ToyWorld> {
    Arc::new(ToyWorld::new(ToyOptions {
        tasks_per_split: 60,
        native,
        failures,
        ..ToyOptions::default()
    }))
}

/// All kinds that do not depend on time.
fn errors() -> Failures {
    Failures {
        reset_error: 0.1,
        step_error: 0.1,
        panic: 0.1,
        oversized: 0.1,
        invalid_reward: 0.1,
        ..Failures::default()
    }
}

/// The failure an injected fault must give, by class and step.
fn expected(injection: Injection) -> (FailureClass, Option<usize>) {
    match injection {
        Injection::Hang => (FailureClass::StepTimeOut, Some(1)),
        Injection::ResetError => (FailureClass::Load, None),
        Injection::StepError => (FailureClass::Step, Some(1)),
        Injection::Panic => (FailureClass::Panic, Some(1)),
        Injection::Oversized => (FailureClass::ObservationTooLarge, Some(1)),
        Injection::InvalidReward => (FailureClass::InvalidReward, Some(1)),
    }
}

/// Checks every episode against what was injected into it, and returns how many failed.
fn check(world: &ToyWorld, starts: &[EpisodeStart], (openings, rounds): &Played) -> u64 {
    let mut failed = 0;
    for start in starts {
        let results = rounds
            .iter()
            .flatten()
            .filter(|(slot, _)| *slot == start.slot)
            .map(|(_, result)| result);
        let failures: Vec<&EpisodeFailure> = openings[start.slot]
            .as_ref()
            .err()
            .into_iter()
            .chain(results.clone().filter_map(|result| result.as_ref().err()))
            .collect();
        if let Some(injection) = world.injection(&start.task, start.seed) {
            let [failure] = failures[..] else {
                panic!("one failure per failing episode: {failures:?}");
            };
            assert_eq!((failure.class, failure.step), expected(injection));
            assert_eq!(failure.task, start.task);
            assert!(!failure.outcome().trains());
            failed += 1;
        } else {
            assert!(failures.is_empty(), "{failures:?}");
            assert_eq!(results.count(), 3, "a good episode goes on beside failing ones");
        }
    }
    failed
}

#[test]
fn every_kind_of_failure_stays_with_its_episode_and_is_counted() {
    for native in [true, false] {
        let world = failing(native, errors());
        let mut pool = pool(&world, forgiving());
        let starts = starts(&world, 3);
        let played = play(&mut pool, &starts, |_| {});
        let failed = check(&world, &starts, &played);
        let counters = pool.counters();
        assert_eq!(counters.failed(), failed);
        assert_eq!(counters.episodes, 60);
        assert_eq!(counters.threads_abandoned, 0);
        let messages: Vec<String> = counters
            .failures
            .iter()
            .map(|(class, failures)| format!("{} x {class}: {}", failures.count, failures.sample))
            .collect();
        insta::allow_duplicates! {
            insta::assert_snapshot!(messages.join("\n"));
        }
    }
}

#[test]
fn results_do_not_depend_on_threads_batch_order_or_backend() {
    let native = failing(true, errors());
    let starts = starts(&native, 8);
    let reference = play(&mut pool(&native, forgiving()), &starts, |_| {});
    for threads in [1, 2, 5] {
        for inline_below in [1, 8, 1000] {
            let options = PoolOptions {
                threads,
                inline_below,
                ..forgiving()
            };
            let played = play(&mut pool(&native, options), &starts, |slots| slots.reverse());
            assert_eq!(played.1, reference.1, "{threads} threads");
            assert_eq!(played.0, reference.0, "{threads} threads");
        }
    }
    let isolated = failing(false, errors());
    let played = play(&mut pool(&isolated, forgiving()), &starts, |slots| {
        let third = slots.len() / 3;
        slots.rotate_left(third);
    });
    assert_eq!(played, reference);
}

/// prime-rl#2371: an environment that never returns from a step, among ones that fail in every other way.
#[test]
fn a_hanging_step_times_out_its_episode_and_frees_its_slot() {
    let world = failing(
        false,
        Failures {
            hang: 0.1,
            step_error: 0.05,
            oversized: 0.05,
            panic: 0.05,
            ..Failures::default()
        },
    );
    // Short for a test, long for a loaded machine: only the hanging steps, which sleep for an hour, may reach it.
    let options = PoolOptions {
        step_deadline: Duration::from_secs(1),
        ..forgiving()
    };
    let mut pool = pool(&world, options);
    let starts = starts(&world, 2);
    let begin = Instant::now();
    let played = play(&mut pool, &starts, |_| {});
    // Only the second of the three rounds waits; the bound leaves room for a busy machine, not for an hour.
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    let failed = check(&world, &starts, &played);
    assert_eq!(pool.counters().failed(), failed);
    assert_eq!(pool.counters().failures.len(), 4, "{:?}", pool.counters());
    let hung = &pool.counters().failures[&FailureClass::StepTimeOut];
    assert_eq!(pool.hung_threads() as u64, hung.count);
    assert_eq!(pool.counters().threads_abandoned, hung.count);
    assert_eq!(hung.sample.outcome(), Outcome::TimeOut);
    assert_eq!(hung.sample.message, "the step took longer than 1s");

    // The slot of a hung episode takes another one, and a late thread cannot speak into it.
    let injected = |wanted| {
        let mut matching = starts
            .iter()
            .filter(|start| world.injection(&start.task, start.seed) == wanted);
        matching.next().unwrap()
    };
    let hung = injected(Some(Injection::Hang)).slot;
    let good = injected(None);
    assert!(!pool.is_running(hung));
    pool.reset(hung, &good.task, good.seed).unwrap().unwrap();
    let action = world.winning_action(&good.task);
    let steps = pool.step_all(&[(hung, &action)]).unwrap();
    assert!(steps[0].as_ref().unwrap().transition.won);
}

#[test]
fn a_thread_that_comes_back_late_is_ignored_and_no_longer_counted() {
    let world = failing(
        false,
        Failures {
            hang: 0.5,
            hang_for: Duration::from_millis(600),
            at_step: 0,
            ..Failures::default()
        },
    );
    let options = PoolOptions {
        step_deadline: Duration::from_millis(200),
        ..forgiving()
    };
    let mut pool = pool(&world, options);
    let tasks = world.tasks(Split::Seen);
    let find = |injection| {
        tasks
            .iter()
            .find(|task| world.injection(&task.id, 0) == injection)
    };
    let hanging = &find(Some(Injection::Hang)).unwrap().id;
    let good = &find(None).unwrap().id;
    pool.reset(0, hanging, 0).unwrap().unwrap();
    let failure = pool.step_all(&[(0, "look")]).unwrap().remove(0).unwrap_err();
    assert_eq!(failure.class, FailureClass::StepTimeOut);
    assert_eq!(pool.hung_threads(), 1);

    // The late answer, to `look`, arrives while the next episode runs in the same slot.
    pool.reset(0, good, 0).unwrap().unwrap();
    let patience = Instant::now() + Duration::from_secs(30);
    while pool.hung_threads() > 0 && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(pool.hung_threads(), 0, "the thread came back and left");
    assert_eq!(pool.counters().threads_abandoned, 1);
    let action = world.winning_action(good);
    let step = pool.step_all(&[(0, &action)]).unwrap().remove(0).unwrap();
    assert!(step.transition.won, "{step:?}");
}

#[test]
fn too_many_hung_threads_stop_new_episodes() {
    let world = failing(
        false,
        Failures {
            hang: 1.0,
            at_step: 0,
            ..Failures::default()
        },
    );
    let options = PoolOptions {
        maximum_hung_threads: 2,
        step_deadline: Duration::from_millis(50),
        ..forgiving()
    };
    let mut pool = pool(&world, options);
    let starts = &starts(&world, 0)[..3];
    pool.reset_all(starts).unwrap();
    pool.step_all(&[(0, "look"), (1, "look"), (2, "look")]).unwrap();
    let error = pool.reset_all(starts).unwrap_err();
    insta::assert_snapshot!(error);
}

/// prime-rl#2308: environments that fail on reset must not look like environments without tasks.
#[test]
fn the_error_budget_stops_the_run_with_the_class_and_a_sample() {
    let world = failing(
        true,
        Failures {
            reset_error: 0.3,
            ..Failures::default()
        },
    );
    let options = |share| PoolOptions {
        error_budget: ErrorBudget {
            share,
            window: 50,
            minimum: 40,
        },
        ..PoolOptions::default()
    };
    let starts = starts(&world, 1);
    let mut strict = pool(&world, options(0.1));
    // Before the minimum, no verdict.
    strict.reset_all(&starts[..39]).unwrap();
    strict.check_error_budget().unwrap();
    strict.reset_all(&starts[39..]).unwrap();
    let error = strict.reset_all(&starts[..1]).unwrap_err();
    assert!(matches!(error, PoolError::ErrorBudget { episodes: 50, .. }));
    insta::assert_snapshot!(error);
    let mut lenient = pool(&world, options(0.5));
    for _ in 0..3 {
        lenient.reset_all(&starts).unwrap();
    }
    lenient.check_error_budget().unwrap();
}

/// A good past does not hide a broken present: the share is over the latest episodes only.
#[test]
fn the_error_budget_looks_at_the_latest_episodes() {
    let world = failing(true, Failures::default());
    let options = PoolOptions {
        error_budget: ErrorBudget {
            share: 0.5,
            window: 10,
            minimum: 5,
        },
        ..PoolOptions::default()
    };
    let mut pool = pool(&world, options);
    let unknown = TaskId::new("elsewhere/1");
    for _ in 0..5 {
        pool.reset_all(&starts(&world, 0)).unwrap();
    }
    for failed in 0..6 {
        pool.check_error_budget()
            .unwrap_or_else(|error| panic!("after {failed} failures: {error}"));
        let failure = pool.reset(0, &unknown, 0).unwrap().unwrap_err();
        assert_eq!(failure.class, FailureClass::UnknownTask);
    }
    assert!(pool.check_error_budget().is_err(), "6 of the last 10");
}

#[test]
fn misuse_is_refused_before_anything_happens() {
    let world = failing(true, Failures::default());
    let mut pool = pool(&world, PoolOptions::default());
    let starts = starts(&world, 0);
    let twice = [starts[4].clone(), starts[4].clone()];
    assert!(matches!(
        pool.reset_all(&twice),
        Err(PoolError::DuplicateSlot { slot: 4 })
    ));
    assert!(matches!(
        pool.step_all(&[(0, "look")]),
        Err(PoolError::EmptySlot { slot: 0 })
    ));
    pool.reset_all(&starts[..2]).unwrap();
    assert!(matches!(
        pool.step_all(&[(0, "look"), (1, "look"), (0, "look")]),
        Err(PoolError::DuplicateSlot { slot: 0 })
    ));
    assert!(matches!(
        pool.step_all(&[(0, "look"), (7, "look")]),
        Err(PoolError::EmptySlot { slot: 7 })
    ));
    assert_eq!(pool.counters().steps, 0);
    let steps = pool.step_all(&[(1, "look"), (0, "look")]).unwrap();
    assert_eq!(steps.len(), 2);

    let refused = |options: PoolOptions| {
        EnvironmentPool::new(Arc::clone(&world) as Arc<dyn World>, options)
            .err()
            .map(|error| error.to_string())
    };
    assert_eq!(
        refused(PoolOptions {
            threads: 0,
            ..PoolOptions::default()
        }),
        Some("option `threads` of the environment pool is `0`; it must be at least 1".into())
    );
    for step_deadline in [Duration::ZERO, Duration::MAX] {
        let options = PoolOptions {
            step_deadline,
            ..PoolOptions::default()
        };
        assert!(refused(options).is_some_and(|error| error.contains("`step_deadline`")));
    }
    for share in [-0.1, 1.5, f64::NAN] {
        let error_budget = ErrorBudget {
            share,
            ..ErrorBudget::default()
        };
        let options = PoolOptions {
            error_budget,
            ..PoolOptions::default()
        };
        assert!(refused(options).is_some_and(|error| error.contains("between 0 and 1")));
    }
}

#[test]
fn long_messages_are_cut() {
    let world = failing(true, Failures::default());
    let mut pool = pool(&world, PoolOptions::default());
    let failure = pool
        .reset(0, &TaskId::new("ä".repeat(10_000)), 0)
        .unwrap()
        .unwrap_err();
    assert!(failure.message.len() < 1_200, "{}", failure.message.len());
    assert!(failure.message.ends_with(" bytes)"), "{}", failure.message);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 24,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    /// Any subset of slots in any order, on any number of threads, gives each slot what it gets when played alone.
    #[test]
    fn any_batching_gives_each_episode_its_own_course(
        threads in 1usize..4,
        seed in 0u64..50,
        batches in proptest::collection::vec(
            Just((0..12usize).collect::<Vec<_>>()).prop_shuffle().prop_flat_map(|slots| {
                (0..=slots.len()).prop_map(move |count| slots[..count].to_vec())
            }),
            0..8,
        ),
    ) {
        let world = failing(true, errors());
        let mut together = pool(&world, PoolOptions { threads, inline_below: 2, ..forgiving() });
        let starts = &starts(&world, seed)[..12];
        let openings = together.reset_all(starts).unwrap();
        let mut courses: Vec<Vec<_>> = vec![Vec::new(); 12];
        for batch in batches {
            let actions: Vec<(usize, String)> = batch
                .into_iter()
                .filter(|&slot| together.is_running(slot))
                .map(|slot| (slot, format!("open box {}", courses[slot].len() + 1)))
                .collect();
            let borrowed: Vec<(usize, &str)> = actions.iter().map(|(slot, action)| (*slot, action.as_str())).collect();
            for ((slot, _), result) in actions.iter().zip(together.step_all(&borrowed).unwrap()) {
                courses[*slot].push(result);
            }
        }
        for (start, (opening, course)) in starts.iter().zip(openings.into_iter().zip(courses)) {
            let mut alone = pool(&world, forgiving());
            prop_assert_eq!(alone.reset(0, &start.task, seed).unwrap(), opening);
            for (step, result) in course.into_iter().enumerate() {
                let action = format!("open box {}", step + 1);
                prop_assert_eq!(alone.step_all(&[(0, &action)]).unwrap().remove(0), result);
            }
        }
    }
}
