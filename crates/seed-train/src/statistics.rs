//! Small statistics with their uncertainty: every success rate this program prints has an interval.
//!
//! Not for: statistics that enter a loss (`seed-rl`).

use seed_random::{Draw, RandomKey};
use serde::{Deserialize, Serialize};

/// A value with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The estimate.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// The standard normal's 97.5 % quantile.
const Z: f64 = 1.959_963_984_540_054;

/// Wilson's score interval for `successes` out of `trials`; the whole of `[0, 1]` for no trials.
///
/// Unlike the normal approximation it stays inside `[0, 1]` and is not empty at 0 or 100 %.
pub fn wilson(successes: usize, trials: usize) -> Interval {
    if trials == 0 {
        return Interval {
            value: 0.0,
            low: 0.0,
            high: 1.0,
        };
    }
    let n = trials as f64;
    let rate = successes as f64 / n;
    let denominator = 1.0 + Z * Z / n;
    let centre = (rate + Z * Z / (2.0 * n)) / denominator;
    let half = Z * (rate * (1.0 - rate) / n + Z * Z / (4.0 * n * n)).sqrt() / denominator;
    Interval {
        value: rate,
        low: (centre - half).max(0.0),
        high: (centre + half).min(1.0),
    }
}

/// Arithmetic mean, 0 for an empty slice.
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() {
        0.0
    } else {
        values.iter().sum::<f64>() / values.len() as f64
    }
}

/// Percentile bootstrap interval of the mean over `values` (one per seed or task), with `draws` resamples.
/// `None` for fewer than two values: they have no spread to resample.
pub fn bootstrap_mean(values: &[f64], draws: usize, key: RandomKey) -> Option<Interval> {
    stratified_bootstrap_mean(&[values], draws, key)
}

/// As [`bootstrap_mean`] over the values of all `strata`, which are drawn again within their stratum, so that every
/// resample has the strata in the same shares. `None` unless every stratum has two values or more.
pub fn stratified_bootstrap_mean<S: AsRef<[f64]>>(
    strata: &[S],
    draws: usize,
    key: RandomKey,
) -> Option<Interval> {
    if strata.is_empty() || draws == 0 || strata.iter().any(|stratum| stratum.as_ref().len() < 2) {
        return None;
    }
    let all: Vec<f64> = strata.iter().flat_map(AsRef::as_ref).copied().collect();
    let mut generator = key.generator();
    let mut means: Vec<f64> = (0..draws)
        .map(|_| {
            let mut total = 0.0;
            for stratum in strata.iter().map(AsRef::as_ref) {
                for _ in 0..stratum.len() {
                    total += stratum
                        .get(generator.below(stratum.len()))
                        .copied()
                        .unwrap_or_default();
                }
            }
            total / all.len() as f64
        })
        .collect();
    means.sort_by(f64::total_cmp);
    Some(Interval {
        value: mean(&all),
        low: quantile(&means, 0.025),
        high: quantile(&means, 0.975),
    })
}

/// The quantile of sorted values, by nearest rank; 0 for none.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    let index = (share * sorted.len().saturating_sub(1) as f64).round() as usize;
    sorted.get(index).copied().unwrap_or_default()
}

/// Area under a curve of `(x, y)` points by the trapezoid rule, divided by the width: the mean height. Without width, as
/// for one point, the mean of the heights; 0 for no point.
pub fn mean_height(points: &[(f64, f64)]) -> f64 {
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return 0.0;
    };
    let width = last.0 - first.0;
    if width <= 0.0 {
        return points.iter().map(|point| point.1).sum::<f64>() / points.len() as f64;
    }
    let area: f64 = points
        .windows(2)
        .map(|pair| match pair {
            [(x0, y0), (x1, y1)] => (x1 - x0) * (y0 + y1) / 2.0,
            _ => 0.0,
        })
        .sum();
    area / width
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wilson_matches_published_values() {
        // Values from the formula as tabulated in the statistics literature (statsmodels proportion_confint, wilson).
        let interval = wilson(84, 100);
        assert!((interval.low - 0.755_797_3).abs() < 1e-6, "{interval:?}");
        assert!((interval.high - 0.899_047_1).abs() < 1e-6, "{interval:?}");
        let none = wilson(0, 10);
        assert!(
            none.low == 0.0 && (none.high - 0.277_532_8).abs() < 1e-6,
            "{none:?}"
        );
        assert_eq!(wilson(0, 0).high, 1.0);
    }

    #[test]
    fn bootstrap_covers_the_mean_and_is_repeatable() {
        let values = [0.1, 0.2, 0.4, 0.3, 0.5];
        let resample = || bootstrap_mean(&values, 2_000, RandomKey::new(1)).unwrap();
        let first = resample();
        assert_eq!(first, resample());
        assert!((first.value - 0.3).abs() < 1e-12);
        assert!(first.low < 0.3 && 0.3 < first.high && first.low >= 0.1 && first.high <= 0.5);
        assert_eq!(bootstrap_mean(&[0.7], 100, RandomKey::new(1)), None);
    }

    #[test]
    fn mean_height_is_the_trapezoid_area_over_the_width() {
        assert!((mean_height(&[(0.0, 0.0), (10.0, 1.0), (20.0, 1.0)]) - 0.75).abs() < 1e-12);
        assert_eq!(mean_height(&[(3.0, 0.25)]), 0.25);
        assert_eq!(mean_height(&[(3.0, 0.5), (3.0, 1.0)]), 0.75);
        assert_eq!(mean_height(&[]), 0.0);
    }
}
