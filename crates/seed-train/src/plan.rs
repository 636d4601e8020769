//! How long a training run takes at most, from the speed of its model on this machine.
//!
//! The model is loaded and measured for some seconds on sequences of arbitrary tokens; the bounds are those of
//! [`Derived`]. Episodes that end early, and analyses and responses that are short, take less. Not for: results, which
//! never depend on it.

use std::time::Instant;

use seed_env::World;
use seed_model::{
    Engine, EngineOptions, GenerateRequest, Gradients, Sampling, ScoreGradients, Scores, SequenceState,
    TokenSequence,
};
use seed_random::RandomKey;
use serde::Serialize;

use crate::TrainError;
use crate::config::{Context, Derived, TrainConfig, aligned_table};
use crate::policy::Policy;

/// Tokens of a measured sequence.
const LENGTH: usize = 256;

/// Measured sequences that are read or trained on at once.
const SEQUENCES: usize = 2;

/// Most sequences that are decoded in the measurement, and the tokens of each.
const DECODED: usize = 16;
const DECODED_TOKENS: usize = 8;

/// Tokens per second of one model on one machine, at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Speeds {
    /// Reading prompts and scoring.
    pub reading: f64,
    /// Decoding with as many sequences as the configuration has in progress, but no more than 16.
    pub decoding: f64,
    /// Forward and backward pass.
    pub training: f64,
}

/// Seconds, at most.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TimePlan {
    /// Episodes of one iteration.
    pub rollout: f64,
    /// Analyses of one iteration by the policy itself.
    pub analysis: f64,
    /// Scoring of one iteration's rows under skill prompts and by the reference.
    pub scoring: f64,
    /// Update of one iteration.
    pub update: f64,
    /// One evaluation of all panels.
    pub evaluation: f64,
    /// The whole run.
    pub total: f64,
}

impl Speeds {
    /// Loads the configured model and measures it.
    ///
    /// # Errors
    /// When the model cannot be read, or its numbers are not finite.
    pub fn measure(config: &TrainConfig) -> Result<Self, TrainError> {
        let policy = Policy::configured(config)?;
        let decoder = &policy.decoder;
        let vocabulary = decoder.config().vocabulary_size;
        let length = LENGTH.min(decoder.config().max_positions - 1);
        let tokens: Vec<Vec<u32>> = (0..SEQUENCES)
            .map(|row| {
                (0..length)
                    .map(|index| ((index + 1) * (row + 7919) % vocabulary) as u32)
                    .collect()
            })
            .collect();
        let scored: Vec<u32> = (1..length as u32).collect();
        let sequences: Vec<TokenSequence<'_>> = tokens
            .iter()
            .map(|tokens| TokenSequence {
                tokens,
                scored: &scored,
            })
            .collect();
        let count = (SEQUENCES * length) as f64;
        // The first call of each makes the buffers.
        let reading = per_second(count, || {
            decoder.score(&sequences, 1.0)?;
            Ok(())
        })?;
        let mut gradients = Gradients::of(decoder);
        let recompute = config.model.recompute_activations;
        let training = per_second(count, || {
            decoder.accumulate_gradient(
                &sequences,
                1.0,
                &mut gradients,
                &mut |_: usize, scores: &Scores| ScoreGradients {
                    log_probs: vec![1e-3; scores.log_probs.len()],
                    entropies: vec![0.0; scores.entropies.len()],
                },
                recompute,
            )?;
            Ok(())
        })?;
        let active = config.rollout.max_active_sequences.clamp(1, DECODED);
        let mut engine = Engine::new(decoder, EngineOptions::default());
        let start = engine.prefill(SequenceState::new(decoder), &tokens[0][..length / 2])?;
        let decoding = per_second((active * DECODED_TOKENS) as f64, || {
            let requests = (0..active as u64)
                .map(|id| GenerateRequest {
                    id,
                    state: start.clone(),
                    append: vec![id as u32 % vocabulary as u32],
                    max_new_tokens: DECODED_TOKENS,
                    max_length: length,
                    sampling: Sampling::at_temperature(1.0),
                    stop: [].into(),
                    key: RandomKey::new(id),
                })
                .collect();
            engine.run(requests)?;
            Ok(())
        })?;
        Ok(Self {
            reading,
            decoding,
            training,
        })
    }

    /// What the run takes at most at these speeds.
    pub fn plan(&self, config: &TrainConfig, derived: &Derived, world: &dyn World) -> TimePlan {
        let rollout = &config.rollout;
        let steps = config.world.max_steps as f64;
        let row_tokens = (rollout.max_prompt_tokens + rollout.max_response_tokens) as f64;
        // Of one episode. A transcript is read once, and no longer than a row; a windowed prompt is read at every step.
        let (read, sampled) = match config.world.context {
            Context::Transcript => (
                row_tokens,
                (steps * rollout.max_response_tokens as f64).min(row_tokens),
            ),
            Context::Windowed => (
                steps * rollout.max_prompt_tokens as f64,
                steps * rollout.max_response_tokens as f64,
            ),
        };
        let episode = read / self.reading + sampled / self.decoding;
        let rows = derived.max_rows_per_iteration as f64;
        let analysis = if config.seed.analyser.is_own_model() {
            config.seed.max_analysis_prompt_tokens as f64 / self.reading
                + config.seed.max_analysis_tokens as f64 / self.decoding
        } else {
            0.0
        };
        let mut scored = 0.0;
        if config.algorithm.name.has_teacher() {
            scored += row_tokens + config.seed.extra_prompt_tokens as f64;
        }
        if config.algorithm.kl_coefficient > 0.0 {
            scored += row_tokens;
        }
        let panel_episodes: usize = config
            .evaluation
            .splits
            .iter()
            .map(|split| {
                let tasks = world.tasks((*split).into()).len();
                config.evaluation.tasks.map_or(tasks, |most| most.min(tasks))
                    * config.evaluation.samples_per_task
            })
            .sum();
        let mut plan = TimePlan {
            rollout: derived.episodes_per_iteration as f64 * episode,
            analysis: derived.analyses_per_iteration as f64 * analysis,
            scoring: rows * scored / self.reading,
            update: rows * row_tokens * config.algorithm.epochs as f64 / self.training,
            evaluation: panel_episodes as f64 * episode,
            total: 0.0,
        };
        plan.total = config.algorithm.iterations as f64 * plan.iteration()
            + derived.evaluations as f64 * plan.evaluation;
        plan
    }
}

impl TimePlan {
    /// One iteration without an evaluation.
    pub fn iteration(&self) -> f64 {
        self.rollout + self.analysis + self.scoring + self.update
    }

    /// Speeds and times as an aligned table.
    pub fn table(&self, speeds: &Speeds) -> String {
        let speed = |number: f64| format!("{number:.0} tokens/s");
        aligned_table(&[
            ("speed: reading and scoring", speed(speeds.reading)),
            ("speed: decoding", speed(speeds.decoding)),
            ("speed: training", speed(speeds.training)),
            ("time: rollout, at most", duration(self.rollout)),
            ("time: analysis, at most", duration(self.analysis)),
            ("time: re-scoring, at most", duration(self.scoring)),
            ("time: update, at most", duration(self.update)),
            ("time: iteration, at most", duration(self.iteration())),
            ("time: evaluation, at most", duration(self.evaluation)),
            ("time: whole run, at most", duration(self.total)),
        ])
    }
}

/// Items per second of the faster of two calls, after one that is not timed.
fn per_second(count: f64, mut work: impl FnMut() -> Result<(), TrainError>) -> Result<f64, TrainError> {
    work()?;
    let mut least = f64::INFINITY;
    for _ in 0..2 {
        let started = Instant::now();
        work()?;
        least = least.min(started.elapsed().as_secs_f64());
    }
    // A clock may stand still over a very small model.
    Ok(count / least.max(1e-9))
}

/// Hours, minutes and seconds.
fn duration(seconds: f64) -> String {
    let whole = seconds.ceil() as u64;
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds:02} s"),
        (hours, minutes, _) => format!("{hours} h {minutes:02} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_people_say_them() {
        assert_eq!(duration(0.2), "1 s");
        assert_eq!(duration(61.0), "1 min 01 s");
        assert_eq!(duration(7_260.0), "2 h 01 min");
    }

    /// Sixteen episodes of at most 112 tokens, of which 40 at each of 2 steps are sampled.
    #[test]
    fn times_follow_from_counts_and_speeds() {
        let config: TrainConfig = crate::config::Loaded::from_text(
            "plan.toml",
            r#"
            [world]
            name = "household-studio"
            context = "transcript"
            max_steps = 2
            [rollout]
            tasks_per_iteration = 4
            samples_per_task = 4
            max_prompt_tokens = 72
            max_response_tokens = 40
            [algorithm]
            name = "seed"
            iterations = 10
            kl_coefficient = 0.0
            [advantage]
            statistic_unit = "trajectory"
            [seed]
            max_analysis_prompt_tokens = 100
            max_analysis_tokens = 10
            extra_prompt_tokens = 8
            [evaluation]
            every = 5
            tasks = 8
            "#,
            &[],
        )
        .unwrap()
        .config;
        let speeds = Speeds {
            reading: 100.0,
            decoding: 10.0,
            training: 28.0,
        };
        let world = crate::world::open_world(&config.world, &config.search)
            .unwrap()
            .world;
        let plan = speeds.plan(&config, &config.derive(None), &*world);
        // (112 / 100 + 80 / 10) x 16, (100 / 100 + 10 / 10) x 16, 120 x 16 / 100, 112 x 16 / 28.
        let expected = [145.92, 32.0, 19.2, 64.0];
        for (found, expected) in [plan.rollout, plan.analysis, plan.scoring, plan.update]
            .iter()
            .zip(expected)
        {
            assert!((found - expected).abs() < 1e-9, "{found} {expected}");
        }
        // Two panels of 8 tasks, twice.
        assert!((plan.evaluation - 145.92).abs() < 1e-9);
        assert!((plan.total - (10.0 * 261.12 + 2.0 * 145.92)).abs() < 1e-6);
        let table = plan.table(&speeds);
        assert!(table.contains(" 4 min 22 s\n"), "{table}");
    }

    #[test]
    fn a_model_is_measured_as_it_is_trained() {
        let mut config = TrainConfig::default();
        config.model.path = crate::embedded::HOUSEHOLD_TINY.into();
        for adapter in [false, true] {
            config.adapter.enabled = adapter;
            let speeds = Speeds::measure(&config).unwrap();
            for speed in [speeds.reading, speeds.decoding, speeds.training] {
                assert!(speed.is_finite() && speed > 0.0);
            }
        }
    }
}
