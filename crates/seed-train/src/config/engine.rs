//! The keys of the engine that samples training episodes, in this process or elsewhere.
//!
//! Not for: the calls to it (`seed_backend`), or when it gets new weights (`crate::trainer`).

use std::path::PathBuf;

use super::rule::Rule::{Any, AtLeast, Between, EnvironmentVariable, NotEmpty, WebAddress};
use super::schema::{Findings, Origins, section};
use super::sections::TrainConfig;
use super::value::choice;

choice! {
    /// Who samples training episodes.
    EngineKind {
        /// The engine in this process.
        Native = "native",
        /// A vLLM server.
        Vllm = "vllm",
        /// An SGLang server.
        Sglang = "sglang",
        /// A server started with `seed serve`.
        Seed = "seed",
    }
}

choice! {
    /// How an external engine gets the policy's weights before every iteration.
    EngineWeights {
        /// The adapter is written and loaded beside the base (vllm, sglang).
        Adapter = "adapter",
        /// The whole model, with an adapter merged in, is written and read (sglang, seed).
        Disk = "disk",
        /// Not by this program: something else sees to it, and the limits on differences notice where it does not.
        None = "none",
    }
}

section! {
    /// Who samples the episodes of `seed train` and the policy's own analyses. Everything else (scoring, updates,
    /// evaluation, the other commands) is computed in this process.
    EngineSection = "engine" {
        /// Which engine. The keys below are for external ones.
        kind: EngineKind = EngineKind::Native, Any;
        /// Its address without a path.
        url: String = "http://127.0.0.1:8000".to_owned(), WebAddress, Runtime;
        /// Name under which it serves the model, or the base of the adapter.
        model: String = String::new(), Any, Runtime;
        /// Name of an environment variable holding a key for it; unset sends none.
        api_key_env: Option<String> = None, EnvironmentVariable, Runtime;
        /// How it gets the policy's weights before every iteration.
        weights: EngineWeights = EngineWeights::Disk, Any, Runtime;
        /// Folder for these weights, which the engine must see too; unset is `engine` in the run directory.
        weights_directory: Option<PathBuf> = None, NotEmpty, Runtime;
        /// That folder as the engine sees it, where its path is another there.
        weights_directory_at_engine: Option<PathBuf> = None, NotEmpty, Runtime;
        /// Largest mean difference, over the tokens of an iteration, between the engine's log-probs and those of scoring, in
        /// nats: above it training stops. `seed` differs by 0.
        max_mean_log_prob_difference: f64 = 0.05, AtLeast(0.0), Runtime;
        /// Largest difference of any token.
        max_log_prob_difference: f64 = 2.0, AtLeast(0.0), Runtime;
        /// Share of an iteration's episodes, rounded down, that may break because a request fails; they are never trained.
        /// With more the run stops.
        max_error_share: f64 = 0.1, Between(0.0, 1.0), Runtime;
        /// Seconds one attempt may take.
        timeout_seconds: f64 = 600.0, Between(0.001, 86_400.0), Runtime;
        /// Further tries after a request failed.
        retries: usize = 3, Between(0.0, 100.0), Runtime;
        /// Seconds before the first further try; each later wait doubles.
        retry_delay_seconds: f64 = 1.0, AtLeast(0.0), Runtime;
        /// Requests in flight at once.
        concurrency: usize = 64, Between(1.0, 1024.0), Runtime;
        /// A longer answer is refused.
        max_response_bytes: usize = 33_554_432, AtLeast(1024.0), Runtime;
    }
}

impl EngineSection {
    /// Whether episodes are sampled outside of this process.
    pub fn is_external(&self) -> bool {
        self.kind != EngineKind::Native
    }
}

/// What an external engine needs of the other keys.
pub(super) fn check(config: &TrainConfig, origins: &Origins, findings: &mut Findings) {
    let engine = &config.engine;
    let kind = engine.kind;
    if !engine.is_external() {
        for (key, origin) in origins {
            if key.starts_with("engine.") && key != "engine.kind" {
                findings.warnings.push(format!(
                    "{origin}: `{key}` has no effect without an external `engine.kind`"
                ));
            }
        }
        return;
    }
    let mut refuse = |problem: String| findings.errors.push(problem);
    if engine.model.is_empty() {
        refuse(format!(
            "`engine.kind = \"{kind}\"` needs `engine.model`: the name under which it serves the model"
        ));
    }
    match (kind, engine.weights) {
        (EngineKind::Vllm, EngineWeights::Disk) => refuse(
            "`engine.weights = \"disk\"`: vLLM reads no whole model on request; train an adapter with \
             `adapter.enabled = true` and `engine.weights = \"adapter\"`, or use another `engine.kind`"
                .to_owned(),
        ),
        (EngineKind::Seed, EngineWeights::Adapter) => refuse(
            "`engine.weights = \"adapter\"`: `seed serve` loads no adapters; with `engine.weights = \"disk\"` it gets the \
             adapter merged into the model"
                .to_owned(),
        ),
        (_, EngineWeights::Adapter) if !config.adapter.enabled => refuse(
            "`engine.weights = \"adapter\"` needs `adapter.enabled = true`: without an adapter all weights change"
                .to_owned(),
        ),
        _ => {}
    }
    let rollout = &config.rollout;
    if kind != EngineKind::Seed && (rollout.top_p < 1.0 || rollout.top_k > 0) {
        refuse(format!(
            "`rollout.top_p = {}`, `rollout.top_k = {}` with `engine.kind = \"{kind}\"`: its log-probs are of the cut \
             distribution and cannot be compared with the policy's; use `1` and `0`",
            rollout.top_p, rollout.top_k
        ));
    }
    let at_engine = "engine.weights_directory_at_engine";
    for key in ["engine.weights_directory", at_engine] {
        if let (EngineWeights::None, Some(origin)) = (engine.weights, origins.get(key)) {
            let text = format!("{origin}: `{key}` has no effect with `engine.weights = \"none\"`");
            findings.warnings.push(text);
        }
    }
}
