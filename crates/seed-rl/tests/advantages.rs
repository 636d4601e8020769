//! Group-relative advantages: conformance values, awkward groups, and independence of order.

use std::f64::consts::FRAC_1_SQRT_2;

use proptest::prelude::*;
use seed_rl::advantages::{ExcludedTrajectory, advantages};
use seed_rl::{AdvantageOptions, Normalisation, PenaltyPlacement, RlError, Row, StatisticUnit};

fn row(group: u64, trajectory: u64, step: u32, score: f32) -> Row {
    Row {
        group,
        trajectory,
        step,
        score,
        valid: true,
        trains: true,
    }
}

/// Trajectory 1 has three rows of score 10, trajectory 2 two rows of score 0, the second of them invalid.
fn mixed_group() -> Vec<Row> {
    let mut rows = vec![
        row(7, 1, 0, 10.0),
        row(7, 1, 1, 10.0),
        row(7, 1, 2, 10.0),
        row(7, 2, 0, 0.0),
    ];
    rows.push(Row {
        valid: false,
        ..row(7, 2, 1, 0.0)
    });
    rows
}

fn close(found: &[f32], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!(
            (f64::from(*found) - expected).abs() < 1e-6,
            "{found} against {expected}"
        );
    }
}

#[test]
fn step_weighted_statistics() {
    let options = AdvantageOptions::default();
    let found = advantages(&mixed_group(), &options).unwrap();
    close(
        &found.values,
        &[0.730_281_5, 0.730_281_5, 0.730_281_5, -1.086_339_2, -1.104_505_4],
    );
    assert_eq!(
        (found.groups, found.zero_std_groups, found.tied_outcome_groups),
        (1, 0, 0)
    );

    let options = AdvantageOptions {
        normalisation: Normalisation::Mean,
        ..options
    };
    let found = advantages(&mixed_group(), &options).unwrap();
    close(&found.values, &[4.02, 4.02, 4.02, -5.98, -6.08]);
}

#[test]
fn trajectory_statistics() {
    let options = AdvantageOptions {
        statistic_unit: StatisticUnit::Trajectory,
        ddof: 0,
        ..AdvantageOptions::default()
    };
    let found = advantages(&mixed_group(), &options).unwrap();
    close(
        &found.values[..4],
        &[0.999_999_8, 0.999_999_8, 0.999_999_8, -0.999_999_8],
    );
    close(&found.values[4..], &[-1.019_999_8]);

    let found = advantages(&mixed_group(), &AdvantageOptions { ddof: 1, ..options }).unwrap();
    close(
        &found.values[..4],
        &[FRAC_1_SQRT_2, FRAC_1_SQRT_2, FRAC_1_SQRT_2, -FRAC_1_SQRT_2],
    );
}

/// Nine rows of 0 and one of −0.1 over two trajectories.
fn tied_group() -> Vec<Row> {
    let mut rows: Vec<Row> = (0..10)
        .map(|index| row(1, index / 5, (index % 5) as u32, 0.0))
        .collect();
    rows[9].valid = false;
    rows
}

#[test]
fn a_penalty_alone_becomes_full_size_unless_it_is_outside_or_floored() {
    let options = AdvantageOptions::default();
    let found = advantages(&tied_group(), &options).unwrap();
    let mut expected = [0.316_217_8; 10];
    expected[9] = -2.845_960_3;
    for (found, expected) in found.values.iter().zip(expected) {
        assert!(
            (f64::from(*found) - expected).abs() < 1e-4,
            "{found} against {expected}"
        );
    }
    assert_eq!((found.zero_std_groups, found.tied_outcome_groups), (0, 1));
    assert!(found.tied.iter().all(|&tied| tied));

    let mean = AdvantageOptions {
        normalisation: Normalisation::Mean,
        ..options.clone()
    };
    let mut expected = [0.01; 10];
    expected[9] = -0.09;
    close(&advantages(&tied_group(), &mean).unwrap().values, &expected);

    let outside = AdvantageOptions {
        penalty_placement: PenaltyPlacement::OutsideNormalisation,
        ..options.clone()
    };
    let found = advantages(&tied_group(), &outside).unwrap();
    let mut expected = [0.0; 10];
    expected[9] = -0.1;
    close(&found.values, &expected);
    assert_eq!(found.zero_std_groups, 1);

    let floored = AdvantageOptions {
        sigma_floor: 1.0,
        ..options
    };
    let found = advantages(&tied_group(), &floored).unwrap();
    assert!(found.values.iter().all(|value| value.abs() <= 0.09));
}

#[test]
fn a_constant_group_gives_exactly_zero_and_is_counted() {
    // 0.1 summed ten times and divided by ten is not 0.1, so a naive mean leaves a residue that the division by the
    // bare epsilon blows up.
    let mut rows: Vec<Row> = (0..10).map(|trajectory| row(3, trajectory, 0, 0.1)).collect();
    rows.extend((0..4).map(|trajectory| row(4, 100 + trajectory, 0, trajectory as f32)));
    for statistic_unit in [StatisticUnit::Step, StatisticUnit::Trajectory] {
        for normalisation in [Normalisation::MeanStd, Normalisation::Mean] {
            let options = AdvantageOptions {
                statistic_unit,
                normalisation,
                ..AdvantageOptions::default()
            };
            let found = advantages(&rows, &options).unwrap();
            assert_eq!(found.values[..10], [0.0; 10]);
            assert!(found.values[10..].iter().any(|&value| value != 0.0));
            assert_eq!(found.frac_zero_std(), 0.5);
        }
    }
}

#[test]
fn a_later_penalty_in_a_group_of_tied_first_rows_stays_bounded() {
    let mut rows = vec![row(1, 1, 0, 0.0), row(1, 2, 0, 0.0)];
    rows.push(Row {
        valid: false,
        ..row(1, 2, 1, 0.0)
    });
    let options = AdvantageOptions {
        statistic_unit: StatisticUnit::Trajectory,
        ..AdvantageOptions::default()
    };
    assert_eq!(advantages(&rows, &options).unwrap().values, [0.0; 3]);
}

#[test]
fn a_group_of_one_is_an_error_unless_allowed() {
    let rows = [row(5, 1, 0, 1.0), row(5, 1, 1, 1.0)];
    let error = advantages(&rows, &AdvantageOptions::default()).unwrap_err();
    assert_eq!(error, RlError::GroupOfOne { group: 5 });
    assert!(error.to_string().contains("`allow_single`"), "{error}");

    let options = AdvantageOptions {
        allow_single: true,
        ..AdvantageOptions::default()
    };
    let found = advantages(&rows, &options).unwrap();
    assert_eq!(found.values, [0.0, 0.0]);
    assert_eq!(found.single_groups, 1);
}

#[test]
fn scores_that_are_not_numbers_exclude_their_trajectory_only() {
    let rows = [
        row(1, 1, 0, 1.0),
        row(1, 2, 0, f32::NAN),
        row(1, 3, 0, 0.0),
        row(1, 4, 0, 1.0),
        row(1, 4, 1, f32::INFINITY),
    ];
    let found = advantages(&rows, &AdvantageOptions::default()).unwrap();
    let clean = advantages(&[rows[0], rows[2]], &AdvantageOptions::default()).unwrap();
    assert_eq!([found.values[0], found.values[2]], clean.values[..]);
    assert_eq!([found.values[1], found.values[3], found.values[4]], [0.0; 3]);
    assert_eq!(found.excluded.len(), 2);
    assert_eq!((found.excluded[0].trajectory, found.excluded[0].step), (2, 0));
    assert!(found.excluded[0].score.is_nan());
    let infinite = ExcludedTrajectory {
        group: 1,
        trajectory: 4,
        step: 1,
        score: f32::INFINITY,
    };
    assert_eq!(found.excluded[1], infinite);
}

#[test]
fn a_group_reduced_to_one_by_exclusion_is_silent_and_counted() {
    let rows = [
        row(1, 1, 0, 1.0),
        row(1, 2, 0, f32::NAN),
        row(2, 3, 0, 1.0),
        row(2, 4, 0, 0.0),
    ];
    let found = advantages(&rows, &AdvantageOptions::default()).unwrap();
    assert_eq!(found.values[..2], [0.0, 0.0]);
    assert_eq!((found.groups, found.single_groups), (2, 1));
    assert!(found.values[2] > 0.0 && found.values[3] < 0.0);
}

#[test]
fn rows_that_do_not_train_do_not_move_the_others() {
    let mut rows = mixed_group();
    rows.push(Row {
        trains: false,
        ..row(7, 3, 0, 500.0)
    });
    let found = advantages(&rows, &AdvantageOptions::default()).unwrap();
    let clean = advantages(&mixed_group(), &AdvantageOptions::default()).unwrap();
    assert_eq!(found.values[..5], clean.values[..]);
    assert_eq!((found.values[5], found.untrained_rows), (0.0, 1));
}

#[test]
fn no_rows_and_no_trainable_rows() {
    let found = advantages(&[], &AdvantageOptions::default()).unwrap();
    assert_eq!(
        (found.values.len(), found.groups, found.frac_zero_std()),
        (0, 0, 0.0)
    );
    let idle = [
        Row {
            trains: false,
            ..row(1, 1, 0, 1.0)
        },
        Row {
            trains: false,
            ..row(1, 2, 0, 0.0)
        },
    ];
    let found = advantages(&idle, &AdvantageOptions::default()).unwrap();
    assert_eq!((found.values, found.groups), (vec![0.0, 0.0], 0));
}

#[test]
fn options_out_of_range_are_named() {
    let options = AdvantageOptions {
        ddof: 2,
        ..AdvantageOptions::default()
    };
    assert!(
        advantages(&[], &options)
            .unwrap_err()
            .to_string()
            .starts_with("`ddof` is `2`")
    );
    let options = AdvantageOptions {
        sigma_floor: -1.0,
        ..AdvantageOptions::default()
    };
    assert!(
        advantages(&[], &options)
            .unwrap_err()
            .to_string()
            .starts_with("`sigma_floor` is `-1`")
    );
}

/// Rows of up to five groups of two to four trajectories of one to five steps.
fn batches() -> impl Strategy<Value = Vec<Row>> {
    let step = (any::<bool>(), prop::bool::weighted(0.9));
    let trajectory = (
        prop::sample::select(vec![0.0f32, 1.0, 10.0, 0.3]),
        prop::collection::vec(step, 1..6),
    );
    let group = prop::collection::vec(trajectory, 2..5);
    prop::collection::vec(group, 1..6).prop_map(|groups| {
        let mut rows = Vec::new();
        for (group, trajectories) in groups.into_iter().enumerate() {
            for (trajectory, (score, steps)) in trajectories.into_iter().enumerate() {
                for (step, (valid, trains)) in steps.into_iter().enumerate() {
                    let id = (group * 10 + trajectory) as u64;
                    rows.push(Row {
                        group: group as u64,
                        trajectory: id,
                        step: step as u32,
                        score,
                        valid,
                        trains,
                    });
                }
            }
        }
        rows
    })
}

/// The formula written out once more, group by group and without any care for order or ties.
fn plain_reference(rows: &[Row], options: &AdvantageOptions) -> Vec<f64> {
    let score = |row: &Row| {
        f64::from(row.score)
            - if row.valid {
                0.0
            } else {
                options.invalid_action_penalty
            }
    };
    rows.iter()
        .map(|own| {
            let group: Vec<&Row> = rows
                .iter()
                .filter(|row| row.group == own.group && row.trains)
                .collect();
            let is_first = |row: &Row| {
                !group
                    .iter()
                    .any(|other| other.trajectory == row.trajectory && other.step < row.step)
            };
            let sample: Vec<f64> = group
                .iter()
                .filter(|row| options.statistic_unit == StatisticUnit::Step || is_first(row))
                .map(|row| score(row))
                .collect();
            let count = sample.len() as f64;
            let mean = sample.iter().sum::<f64>() / count;
            let squares: f64 = sample.iter().map(|value| (value - mean).powi(2)).sum();
            let sigma = (squares / (count - f64::from(options.ddof))).sqrt();
            match options.normalisation {
                Normalisation::Mean => score(own) - mean,
                Normalisation::MeanStd => (score(own) - mean) / (sigma + 1e-6),
            }
        })
        .collect()
}

proptest! {
    /// Away from ties and single trajectories the result is the formula.
    #[test]
    fn untied_groups_follow_the_formula(
        rows in batches(),
        trajectory_unit in any::<bool>(),
        with_deviation in any::<bool>(),
        ddof in 0u8..=1,
    ) {
        let options = AdvantageOptions {
            statistic_unit: if trajectory_unit { StatisticUnit::Trajectory } else { StatisticUnit::Step },
            normalisation: if with_deviation { Normalisation::MeanStd } else { Normalisation::Mean },
            ddof,
            ..AdvantageOptions::default()
        };
        let found = advantages(&rows, &options).unwrap();
        let expected = plain_reference(&rows, &options);
        for ((row, value), expected) in rows.iter().zip(&found.values).zip(expected) {
            let trajectories: std::collections::BTreeSet<u64> = rows
                .iter()
                .filter(|other| other.group == row.group && other.trains)
                .map(|other| other.trajectory)
                .collect();
            let tied = rows
                .iter()
                .filter(|other| other.group == row.group && other.trains)
                .all(|other| other.score == row.score);
            if row.trains && trajectories.len() > 1 && !tied {
                let close = (f64::from(*value) - expected).abs() < 1e-5 * (1.0 + expected.abs());
                prop_assert!(close, "{} against {}", value, expected);
            }
        }
    }

    /// Groups are formed by id: any finishing order gives the same bits.
    #[test]
    fn order_never_changes_a_bit(
        (rows, order) in batches().prop_flat_map(|rows| {
            let order = Just((0..rows.len()).collect::<Vec<_>>()).prop_shuffle();
            (Just(rows), order)
        }),
        trajectory_unit in any::<bool>(),
    ) {
        let statistic_unit = if trajectory_unit { StatisticUnit::Trajectory } else { StatisticUnit::Step };
        let options = AdvantageOptions { statistic_unit, ..AdvantageOptions::default() };
        let sorted = advantages(&rows, &options).unwrap();
        let shuffled: Vec<Row> = order.iter().map(|&index| rows[index]).collect();
        let found = advantages(&shuffled, &options).unwrap();
        for (position, &index) in order.iter().enumerate() {
            prop_assert_eq!(found.values[position].to_bits(), sorted.values[index].to_bits());
            prop_assert_eq!(found.tied[position], sorted.tied[index]);
        }
        prop_assert_eq!(found.zero_std_groups, sorted.zero_std_groups);
    }

    /// Mean subtraction: step-weighted advantages of a group sum to nothing, and other groups do not matter.
    #[test]
    fn step_advantages_are_centred_per_group(rows in batches()) {
        let found = advantages(&rows, &AdvantageOptions::default()).unwrap();
        for group in 0..6 {
            let own: Vec<f64> = rows
                .iter()
                .zip(&found.values)
                .filter(|(row, _)| row.group == group)
                .map(|(_, &value)| f64::from(value))
                .collect();
            prop_assert!(own.iter().sum::<f64>().abs() < 1e-4);
            let alone: Vec<Row> = rows.iter().copied().filter(|row| row.group == group).collect();
            let alone = advantages(&alone, &AdvantageOptions::default()).unwrap();
            prop_assert_eq!(own, alone.values.iter().map(|&value| f64::from(value)).collect::<Vec<_>>());
        }
    }
}
