//! From the names under which `seed-rl` reports an update to the registered metric names.

use seed_run::Metrics;

/// Pairs of `seed-rl`'s name and the registered one. What is not listed is not recorded: it can be derived.
const NAMES: &[(&str, &str)] = &[
    ("policy/loss", "policy/loss"),
    ("policy/kl_reference", "policy/kl"),
    ("policy/entropy", "policy/entropy"),
    ("policy/kl_old", "policy/kl_to_old"),
    ("policy/largest_ratio", "policy/ratio_maximum"),
    ("policy/clip_fraction_high", "policy/clip_fraction_high"),
    ("policy/clip_fraction_low", "policy/clip_fraction_low"),
    ("policy/clip_fraction_dual", "policy/dual_clip_fraction"),
    ("policy/tokens", "policy/tokens"),
    ("skill/loss", "seed/opd_loss"),
    ("skill/gate_mean", "seed/gate_mean"),
    ("skill/gate_above_half", "seed/gate_above_half_share"),
    ("skill/gate_mean_success", "seed/gate_mean_success"),
    ("skill/gate_mean_failure", "seed/gate_mean_failure"),
    (
        "skill/gate_above_half_success",
        "seed/gate_above_half_share_success",
    ),
    (
        "skill/gate_above_half_failure",
        "seed/gate_above_half_share_failure",
    ),
    ("skill/gap_within_noise", "seed/gate_within_epsilon_share"),
    ("skill/gap_mean", "seed/gap_mean_live"),
    ("skill/coverage_sequences", "seed/row_share"),
    ("skill/coverage_tokens", "seed/token_share"),
    ("skill/coverage_tokens_success", "seed/token_share_success"),
    ("skill/coverage_tokens_failure", "seed/token_share_failure"),
    ("skill/initial_gap_mean", "seed/gap_mean"),
    ("skill/initial_gap_std", "seed/gap_deviation"),
    ("skill/initial_gap_p05", "seed/gap_percentile_5"),
    ("skill/initial_gap_p50", "seed/gap_percentile_50"),
    ("skill/initial_gap_p95", "seed/gap_percentile_95"),
    ("skill/initial_gap_success_mean", "seed/gap_mean_success"),
    ("skill/initial_gap_failure_mean", "seed/gap_mean_failure"),
    ("skill/initial_gap_action_mean", "seed/gap_mean_action"),
    ("skill/initial_gap_reasoning_mean", "seed/gap_mean_reasoning"),
];

/// Records the named values of an update.
pub(super) fn record(named: &[(String, f64)], metrics: &mut Metrics) {
    for (name, value) in named {
        if let Some((_, registered)) = NAMES.iter().find(|(ours, _)| ours == name) {
            metrics.set(*registered, *value);
        }
    }
}

#[cfg(test)]
mod tests {
    use seed_run::metrics::definition;

    use super::*;

    #[test]
    fn every_target_is_registered() {
        for (_, registered) in NAMES {
            assert!(definition(registered).is_some(), "{registered}");
        }
    }
}
