//! What is said of differences between arms: intervals, p-values and their correction, as pure functions.
//!
//! Arms are compared on pairs: the cells of one base and one seed, which share weights, tasks and random numbers. What
//! has nothing to do with pairs (intervals, the mean height of a curve) is in [`seed_train::statistics`].
//!
//! Not for: reading runs.

use seed_random::{Draw, RandomKey};
use seed_train::statistics::mean;

/// Resamples of every bootstrap.
pub const DRAWS: usize = 10_000;
/// Pairs up to which all sign flips are gone through.
const EXACT_PAIRS: usize = 16;
/// Sign flips drawn where there are more.
const FLIPS: u64 = 100_000;
/// Sums of equal numbers in another order differ by rounding; this much counts as equal.
const TIE: f64 = 1e-12;

/// Two-sided p-value of the mean of paired differences, by flipping their signs: the share of flips whose mean is at
/// least as far from 0. It assumes nothing but that without an effect a difference is as likely as its negative.
///
/// Up to sixteen pairs all flips are gone through; with more, 100,000 are drawn from `key` and the observed one counts too.
/// 1 for no pairs. With n pairs it is never below 2 / 2ⁿ.
pub fn sign_flip_p_value(differences: &[f64], key: RandomKey) -> f64 {
    let count = differences.len();
    if count == 0 {
        return 1.0;
    }
    let observed = differences.iter().sum::<f64>().abs();
    let reaches = |flips: &dyn Fn(usize) -> bool| {
        let total: f64 = differences
            .iter()
            .enumerate()
            .map(|(index, difference)| if flips(index) { -difference } else { *difference })
            .sum();
        total.abs() >= observed - TIE
    };
    if count <= EXACT_PAIRS {
        let all = 1_u64 << count;
        let reached = (0..all)
            .filter(|flips| reaches(&|index| (flips >> index) & 1 == 1))
            .count();
        return reached as f64 / all as f64;
    }
    let mut generator = key.generator();
    let mut flips = vec![false; count];
    let mut reached = 1_u64;
    for _ in 0..FLIPS {
        for flip in &mut flips {
            *flip = generator.below(2) == 1;
        }
        reached += u64::from(reaches(&|index| flips.get(index).copied().unwrap_or(false)));
    }
    reached as f64 / (FLIPS + 1) as f64
}

/// Holm's step-down correction: p-values that may be compared with the level of the whole family (Holm 1979).
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<(usize, f64)> = p_values.iter().copied().enumerate().collect();
    order.sort_by(|left, right| left.1.total_cmp(&right.1));
    let mut adjusted = vec![1.0; p_values.len()];
    let mut largest = 0.0_f64;
    for (rank, (index, p_value)) in order.into_iter().enumerate() {
        largest = largest.max((p_values.len() - rank) as f64 * p_value).min(1.0);
        if let Some(slot) = adjusted.get_mut(index) {
            *slot = largest;
        }
    }
    adjusted
}

/// The height of a curve of `(x, y)` points at `x`, on the line between its neighbours; `None` outside the curve.
pub fn height_at(points: &[(f64, f64)], x: f64) -> Option<f64> {
    if let [only] = points {
        return (only.0 == x).then_some(only.1);
    }
    points.windows(2).find_map(|pair| match pair {
        [(x0, y0), (x1, y1)] if *x0 <= x && x <= *x1 => {
            let width = x1 - x0;
            Some(if width > 0.0 {
                y0 + (y1 - y0) * (x - x0) / width
            } else {
                *y1
            })
        }
        _ => None,
    })
}

/// The part of a curve from `start` to `end`, with points on the lines there. A curve of a single point is that of an arm
/// that trains nothing: it stays at its height.
pub fn between(points: &[(f64, f64)], start: f64, end: f64) -> Vec<(f64, f64)> {
    if let [only] = points {
        return vec![(start, only.1), (end, only.1)];
    }
    let inside = |point: &&(f64, f64)| start <= point.0 && point.0 <= end;
    let mut kept: Vec<(f64, f64)> = points.iter().filter(inside).copied().collect();
    if kept.first().is_none_or(|first| first.0 > start)
        && let Some(height) = height_at(points, start)
    {
        kept.insert(0, (start, height));
    }
    if kept.last().is_none_or(|last| last.0 < end)
        && let Some(height) = height_at(points, end)
    {
        kept.push((end, height));
    }
    kept
}

/// The first `x` at which a curve is at `level` or above, on the line between points; `None` when it never is.
pub fn first_reach(points: &[(f64, f64)], level: f64) -> Option<f64> {
    let first = points.first()?;
    if first.1 >= level {
        return Some(first.0);
    }
    points.windows(2).find_map(|pair| match pair {
        [(x0, y0), (x1, y1)] if *y0 < level && *y1 >= level => {
            Some(x0 + (x1 - x0) * (level - y0) / (y1 - y0))
        }
        _ => None,
    })
}

/// The curve whose points are the means of the curves' points of the same number. Curves of runs with one configuration
/// have their evaluations after the same iterations; what is beyond the shortest is left out.
pub fn mean_curve(curves: &[&[(f64, f64)]]) -> Vec<(f64, f64)> {
    let length = curves.iter().map(|curve| curve.len()).min().unwrap_or(0);
    (0..length)
        .map(|index| {
            let points: Vec<(f64, f64)> = curves
                .iter()
                .filter_map(|curve| curve.get(index))
                .copied()
                .collect();
            let xs: Vec<f64> = points.iter().map(|point| point.0).collect();
            let ys: Vec<f64> = points.iter().map(|point| point.1).collect();
            (mean(&xs), mean(&ys))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use seed_train::statistics::stratified_bootstrap_mean;

    use super::*;

    /// Values of `tests/golden/statistics.py`.
    const GOLDEN: &str = include_str!("../tests/golden/statistics.txt");

    fn golden(name: &str) -> Vec<f64> {
        let line = GOLDEN
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name} ")))
            .unwrap();
        line.split(' ').map(|number| number.parse().unwrap()).collect()
    }

    fn close(found: f64, expected: f64, tolerance: f64) {
        assert!((found - expected).abs() <= tolerance, "{found} is not {expected}");
    }

    #[test]
    fn sign_flips_give_scipys_permutation_test() {
        let key = RandomKey::new(1);
        for number in 1..=3 {
            let differences = golden(&format!("differences_{number}"));
            let expected = golden(&format!("permutation_p_{number}"))[0];
            close(sign_flip_p_value(&differences, key), expected, 1e-12);
        }
        assert_eq!(sign_flip_p_value(&[], key), 1.0);
        assert_eq!(sign_flip_p_value(&[0.2], key), 1.0, "one pair says nothing");
        assert_eq!(sign_flip_p_value(&[0.1; 5], key), 2.0 / 32.0);
    }

    #[test]
    fn drawn_flips_come_close_to_all_flips() {
        let differences = golden("differences_4");
        assert!(differences.len() > EXACT_PAIRS);
        let expected = golden("permutation_p_4")[0];
        // Three standard errors of a share over 100,000 draws.
        close(
            sign_flip_p_value(&differences, RandomKey::new(1)),
            expected,
            0.005,
        );
    }

    #[test]
    fn intervals_are_those_of_all_resamples() {
        for number in 1..=2 {
            let strata: Vec<Vec<f64>> = (1..=number)
                .map(|base| golden(&format!("stratum_{number}_{base}")))
                .collect();
            let expected = golden(&format!("interval_{number}"));
            let found = stratified_bootstrap_mean(&strata, 50_000, RandomKey::new(1)).unwrap();
            close(found.value, expected[0], 1e-12);
            close(found.low, expected[1], 2e-3);
            close(found.high, expected[2], 2e-3);
        }
        assert_eq!(
            stratified_bootstrap_mean::<Vec<f64>>(&[], 100, RandomKey::new(1)),
            None
        );
        assert_eq!(
            stratified_bootstrap_mean(&[vec![0.1, 0.2], vec![0.3]], 100, RandomKey::new(1)),
            None
        );
    }

    #[test]
    fn holm_steps_down() {
        let found = holm(&golden("p_values"));
        for (found, expected) in found.iter().zip(golden("holm")) {
            close(*found, expected, 1e-12);
        }
        assert!(holm(&[]).is_empty());
    }

    #[test]
    fn curves_are_read_between_their_points() {
        let curve = [(0.0, 0.2), (10.0, 0.6), (20.0, 0.5), (30.0, 0.9)];
        assert_eq!(height_at(&curve, 5.0), Some(0.4));
        assert_eq!(height_at(&curve, 30.0), Some(0.9));
        assert_eq!(height_at(&curve, 31.0), None);
        assert_eq!(height_at(&[(3.0, 0.5)], 3.0), Some(0.5));
        assert_eq!(
            between(&curve, 0.0, 15.0),
            [(0.0, 0.2), (10.0, 0.6), (15.0, 0.55)]
        );
        assert_eq!(
            between(&curve, 5.0, 10.0),
            [(5.0, 0.4), (10.0, 0.6)],
            "points at the ends are not doubled"
        );
        let inner = between(&curve, 12.0, 18.0);
        assert_eq!(inner.len(), 2, "no point lies there");
        close(inner[0].1, 0.58, 1e-12);
        close(inner[1].1, 0.52, 1e-12);
        assert_eq!(between(&curve, 0.0, 99.0), curve);
        assert_eq!(between(&[(0.0, 0.3)], 2.0, 8.0), [(2.0, 0.3), (8.0, 0.3)]);
        close(first_reach(&curve, 0.5).unwrap(), 7.5, 1e-12);
        assert_eq!(first_reach(&curve, 0.1), Some(0.0));
        assert_eq!(first_reach(&curve, 0.95), None);
        assert_eq!(first_reach(&[], 0.1), None);
        let other = [(2.0, 0.4), (12.0, 0.4)];
        let middle = mean_curve(&[&curve, &other]);
        assert_eq!(middle.len(), 2);
        close(middle[0].1, 0.3, 1e-12);
        assert_eq!((middle[0].0, middle[1]), (1.0, (11.0, 0.5)));
    }

    proptest! {
        #[test]
        fn corrected_p_values_are_never_smaller_and_keep_their_order(p_values in prop::collection::vec(0.0..=1.0_f64, 0..8)) {
            let adjusted = holm(&p_values);
            for (index, (&raw, &corrected)) in p_values.iter().zip(&adjusted).enumerate() {
                prop_assert!(corrected >= raw && corrected <= 1.0);
                for (&other, &other_corrected) in p_values.iter().zip(&adjusted).skip(index) {
                    prop_assert!(raw > other || corrected <= other_corrected);
                }
            }
        }

        #[test]
        fn a_p_value_does_not_know_the_sign(differences in prop::collection::vec(-1.0..1.0_f64, 1..9)) {
            let key = RandomKey::new(1);
            let negative: Vec<f64> = differences.iter().map(|difference| -difference).collect();
            let found = sign_flip_p_value(&differences, key);
            prop_assert_eq!(found, sign_flip_p_value(&negative, key));
            prop_assert!(found >= 2.0 / f64::from(1 << differences.len()));
        }
    }
}
