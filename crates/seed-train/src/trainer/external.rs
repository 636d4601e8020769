//! The engine outside of this process: its weights before an iteration, and how far its log-probs are from the policy's.
//!
//! An update takes old log-probs from scoring here, never from the engine: the ratio of an update's first pass is then
//! exactly 1, as with the engine in this process, and what the engine rounds otherwise does not enter the loss. The engine's
//! own log-probs stay in the trajectories and are compared, token by token.
//!
//! Not for: what is asked and answered (`seed_backend`).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use seed_backend::{
    BackendError, BackendOptions, Client, Dialect, Mismatch, MismatchLimit, PublishedWeights,
    RemoteGenerator, Sample, VERSION_PREFIX,
};
use seed_env::Outcome;
use seed_model::{Decoder, ModelError, Sampling, TokenSequence};
use seed_random::RandomKey;
use seed_rollout::Trajectory;
use seed_run::Metrics;

use super::batch::{self, TrainedSequence};
use crate::TrainError;
use crate::config::{EngineKind, EngineSection, EngineWeights, TrainConfig};
use crate::policy::Policy;

/// What the engine is asked before an iteration, to see which weights it has.
const PROBE: &str = "Say which weights these are.";

/// Ids of that prompt, at most, and of the answer.
const PROBE_PROMPT: usize = 64;
const PROBE_ANSWER: usize = 16;

/// Folders of weights that are left in place: an engine may read the one before again until it has taken the newest.
const KEPT: usize = 2;

/// An external engine and the weights it has.
pub(super) struct ExternalEngine {
    client: Arc<Client>,
    section: EngineSection,
    limit: MismatchLimit,
    /// Where weights are written, and where the engine finds them.
    folder: PathBuf,
    at_engine: PathBuf,
    weights: PublishedWeights,
    /// Names of the folders written, the newest last.
    written: Vec<String>,
    /// Whether the engine was seen to hold the adapter's base.
    base_checked: bool,
    retries_told: u64,
}

impl ExternalEngine {
    /// The engine of a configuration; `None` for the one in this process. Connects to nothing.
    pub(super) fn from_config(config: &TrainConfig) -> Result<Option<Self>, TrainError> {
        let section = &config.engine;
        let dialect = match section.kind {
            EngineKind::Native => return Ok(None),
            EngineKind::Vllm => Dialect::Vllm,
            EngineKind::Sglang => Dialect::Sglang,
            EngineKind::Seed => Dialect::Seed,
        };
        let client = Client::new(BackendOptions {
            key_variable: section.api_key_env.clone(),
            timeout_seconds: section.timeout_seconds,
            attempts: section.retries as u32 + 1,
            first_delay_milliseconds: Duration::try_from_secs_f64(section.retry_delay_seconds)
                .map_or(u64::MAX, |delay| delay.as_millis() as u64),
            concurrency: section.concurrency,
            max_response_bytes: section.max_response_bytes as u64,
            ..BackendOptions::new(&section.url, dialect, &section.model)
        })?;
        let folder = section
            .weights_directory
            .clone()
            .unwrap_or_else(|| config.run.directory.join("engine"));
        // The engine stands elsewhere.
        let folder = std::path::absolute(folder)?;
        Ok(Some(Self {
            client: Arc::new(client),
            limit: MismatchLimit {
                mean: section.max_mean_log_prob_difference,
                largest: section.max_log_prob_difference,
            },
            at_engine: section
                .weights_directory_at_engine
                .clone()
                .unwrap_or_else(|| folder.clone()),
            folder,
            weights: PublishedWeights::Initial,
            written: Vec::new(),
            base_checked: false,
            retries_told: 0,
            section: section.clone(),
        }))
    }

    /// Gives the engine the policy's weights and sees that it has them, before anything is sampled.
    ///
    /// # Errors
    /// When it cannot be reached, does not take them, or answers with others.
    pub(super) fn sync(
        &mut self,
        policy: &Policy,
        iteration: u64,
        temperature: f32,
        key: RandomKey,
    ) -> Result<(), TrainError> {
        match self.section.weights {
            EngineWeights::None => {}
            EngineWeights::Disk => {
                let merged;
                let parameters = match policy.decoder.adapter() {
                    Some(adapter) => {
                        merged = adapter.merged(policy.decoder.config(), policy.decoder.parameters())?;
                        &merged
                    }
                    None => policy.decoder.parameters(),
                };
                let digest = parameters.digest().to_hex();
                let name = format!("{VERSION_PREFIX}{iteration:06}-{}", &digest[..16]);
                self.write(&name, |path| policy.save_weights(path, parameters))?;
                self.weights = self
                    .client
                    .publish_model(&self.at_engine.join(&name), &name, &digest)?;
            }
            EngineWeights::Adapter => {
                if !self.base_checked {
                    self.check_base(policy, temperature, key)?;
                    self.base_checked = true;
                }
                let digest = policy.digest().to_hex();
                let name = format!("seed-adapter-{iteration:06}-{}", &digest[..16]);
                self.write(&name, |path| policy.save(path))?;
                self.weights =
                    self.client
                        .publish_adapter(&self.at_engine.join(&name), &name, &self.weights)?;
            }
        }
        let found = self.probe(&self.weights, &policy.decoder, policy, temperature, key)?;
        Ok(found.check(self.limit)?)
    }

    /// Sees that the engine's own weights are the adapter's base: over merged ones the adapter would be applied twice.
    fn check_base(&self, policy: &Policy, temperature: f32, key: RandomKey) -> Result<(), TrainError> {
        let base = policy.decoder.without_adapter();
        let found = self.probe(&PublishedWeights::Initial, &base, policy, temperature, key)?;
        found
            .check(self.limit)
            .map_err(|error| match error {
                BackendError::Mismatch {
                    measure,
                    measured,
                    limit,
                } => BackendError::Base {
                    model: self.section.model.clone(),
                    measure,
                    measured,
                    limit,
                },
                other => other,
            })
            .map_err(TrainError::from)
    }

    /// Writes weights into a folder of their own, and removes what no engine needs any more.
    fn write(
        &mut self,
        name: &str,
        save: impl FnOnce(&std::path::Path) -> Result<(), ModelError>,
    ) -> Result<(), TrainError> {
        fs_err::create_dir_all(&self.folder)?;
        let path = self.folder.join(name);
        if path.exists() {
            // Left by a run that was stopped. The name says that it held these weights, not that it was whole.
            fs_err::remove_dir_all(&path)?;
        }
        save(&path)?;
        self.written.retain(|written| written != name);
        self.written.push(name.to_owned());
        let old = self.written.len().saturating_sub(KEPT);
        for name in self.written.drain(..old) {
            let path = self.folder.join(name);
            if path.exists() {
                fs_err::remove_dir_all(path)?;
            }
        }
        Ok(())
    }

    /// Samples a few tokens with `weights` and compares their log-probs with those of `decoder`.
    fn probe(
        &self,
        weights: &PublishedWeights,
        decoder: &Decoder,
        policy: &Policy,
        temperature: f32,
        key: RandomKey,
    ) -> Result<Mismatch, TrainError> {
        let positions = decoder.config().max_positions;
        let mut ids = policy.conversation.opening(PROBE);
        ids.truncate(PROBE_PROMPT.min(positions.saturating_sub(1)));
        let answer = self.client.sample(
            weights,
            &Sample {
                ids: &ids,
                max_new_tokens: PROBE_ANSWER.min(positions.saturating_sub(ids.len())),
                sampling: Sampling::at_temperature(temperature),
                stop: &policy.end_tokens,
                key,
                vocabulary_size: decoder.config().vocabulary_size,
            },
        )?;
        if matches!(weights, PublishedWeights::Initial)
            && let Some(version) = &answer.version
            && version.starts_with(VERSION_PREFIX)
            && self.section.weights == EngineWeights::Adapter
        {
            let weights = version.clone();
            return Err(BackendError::AppliedTwice { weights }.into());
        }
        let scored: Vec<u32> = (ids.len() as u32..).take(answer.token_ids.len()).collect();
        ids.extend(&answer.token_ids);
        let sequence = TokenSequence {
            tokens: &ids,
            scored: &scored,
        };
        let mut mismatch = Mismatch::default();
        for scores in decoder.score(&[sequence], temperature)? {
            mismatch.add(&answer.log_probs, &scores.log_probs, self.limit);
        }
        Ok(mismatch)
    }

    /// Who samples `episodes` episodes or analyses. `decoder` has the weights that were given to the engine.
    pub(super) fn generator(&self, decoder: &Decoder, episodes: usize) -> RemoteGenerator {
        let allowed = (self.section.max_error_share * episodes as f64).floor() as usize;
        RemoteGenerator::new(&self.client, decoder, &self.weights, allowed)
    }

    /// Compares the recorded log-probs with those of scoring, and puts the latter in their place.
    ///
    /// # Errors
    /// [`BackendError::Mismatch`] over the limits, with the weights as they were.
    pub(super) fn compare(
        &mut self,
        decoder: &Decoder,
        sequences: &mut [TrainedSequence],
        temperature: f32,
        metrics: &mut Metrics,
    ) -> Result<(), TrainError> {
        let mut mismatch = Mismatch::default();
        batch::replace_old(decoder, sequences, temperature, &mut |recorded, scores| {
            mismatch.add(recorded, scores, self.limit);
        })?;
        metrics.set("engine/compared_tokens", mismatch.tokens as f64);
        metrics.set("engine/log_prob_difference_mean", mismatch.mean());
        metrics.set("engine/log_prob_difference_maximum", mismatch.largest);
        metrics.set("engine/over_limit_share", mismatch.over_share());
        metrics.set("engine/divergence", mismatch.divergence());
        let retries = self.client.retries();
        metrics.set("engine/retries", (retries - self.retries_told) as f64);
        self.retries_told = retries;
        Ok(mismatch.check(self.limit)?)
    }
}

/// Records how many episodes the engine broke.
pub(super) fn record_broken(trajectories: &[Trajectory], metrics: &mut Metrics) {
    let broken = trajectories
        .iter()
        .filter(|trajectory| trajectory.outcome == Outcome::EngineError)
        .count();
    metrics.set("engine/broken_episodes", broken as f64);
}
