//! The demo's two arms: one configuration, two algorithms, nothing else different.

use std::path::Path;

use crate::TrainError;
use crate::config::{Loaded, TrainConfig};
use crate::embedded::HOUSEHOLD_TINY;

/// The configuration both arms share.
const QUICKSTART: &str = include_str!("../../../configs/quickstart.toml");

/// One arm.
pub struct DemoArm {
    /// Its name in tables and pictures.
    pub name: String,
    /// Its configuration.
    pub config: TrainConfig,
    /// Training episodes it will play.
    pub total_episodes: u64,
}

/// GRPO and SEED from the embedded policy with the same seed. The run directories lie in a numbered folder of
/// `directory`, so that an earlier demo is never overwritten.
///
/// # Errors
/// When an override does not fit.
pub fn arms(
    directory: &Path,
    seed: u64,
    iterations: Option<usize>,
    overrides: &[String],
) -> Result<Vec<DemoArm>, TrainError> {
    let folder = (1..10_000)
        .map(|number| directory.join(format!("{number:03}")))
        .find(|folder| !folder.exists())
        .unwrap_or_else(|| directory.to_owned());
    ["grpo", "seed"]
        .into_iter()
        .map(|algorithm| {
            let mut set = vec![
                format!("algorithm.name=\"{algorithm}\""),
                format!("model.path=\"{HOUSEHOLD_TINY}\""),
                format!("run.seed={seed}"),
                format!("run.name=\"{}\"", algorithm.to_uppercase()),
            ];
            set.extend(iterations.map(|iterations| format!("algorithm.iterations={iterations}")));
            set.extend_from_slice(overrides);
            let mut config =
                Loaded::<TrainConfig>::from_text("configs/quickstart.toml", QUICKSTART, &set)?.config;
            config.run.directory = folder.join(algorithm);
            Ok(DemoArm {
                name: algorithm.to_uppercase(),
                total_episodes: config.derive(None).total_episodes,
                config,
            })
        })
        .collect()
}
