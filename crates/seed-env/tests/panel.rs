//! Evaluation panels of a world.

use seed_env::testing::{ToyOptions, ToyWorld};
use seed_env::{Panel, PanelError, Split, World};

fn world(tasks: usize) -> ToyWorld {
    ToyWorld::new(ToyOptions {
        tasks_per_split: tasks,
        ..ToyOptions::default()
    })
}

fn ids(panel: &Panel) -> Vec<&str> {
    panel.tasks().iter().map(|task| task.id.as_str()).collect()
}

#[test]
fn a_whole_panel_is_every_task_once_in_canonical_order() {
    let world = world(30);
    let panel = Panel::all(&world, Split::Unseen).unwrap();
    assert_eq!(panel.tasks(), world.tasks(Split::Unseen));
    assert_eq!((panel.name(), panel.split()), ("unseen", Split::Unseen));
}

#[test]
fn samples_are_distinct_ordered_nested_and_pinned() {
    let world = world(30);
    let small = Panel::sample(&world, Split::Seen, 5, 9).unwrap();
    assert_eq!(
        ids(&small),
        [2, 8, 21, 24, 28].map(|number| format!("toy/seen/{number:03}"))
    );
    assert_eq!(small.name(), "seen_5_of_seed_9");
    for count in 1..=30 {
        let panel = Panel::sample(&world, Split::Seen, count, 9).unwrap();
        assert_eq!(panel.tasks().len(), count);
        assert!(panel.tasks().is_sorted_by(|left, right| left.id < right.id));
        let larger = Panel::sample(&world, Split::Seen, (count + 1).min(30), 9).unwrap();
        assert!(panel.tasks().iter().all(|task| larger.tasks().contains(task)));
    }
    assert_ne!(
        ids(&Panel::sample(&world, Split::Seen, 5, 10).unwrap()),
        ids(&small)
    );
}

#[test]
fn environment_seeds_belong_to_the_task_and_the_panel() {
    let world = world(4);
    let panel = Panel::all(&world, Split::Seen).unwrap();
    let sample = Panel::sample(&world, Split::Seen, 4, 3).unwrap();
    let [first, second, ..] = panel.tasks() else {
        panic!("four tasks");
    };
    assert_eq!(
        panel.environment_seed(&first.id),
        Panel::all(&world, Split::Seen)
            .unwrap()
            .environment_seed(&first.id)
    );
    assert_ne!(
        panel.environment_seed(&first.id),
        panel.environment_seed(&second.id)
    );
    assert_ne!(
        panel.environment_seed(&first.id),
        sample.environment_seed(&first.id)
    );
}

#[test]
fn impossible_panels_are_refused() {
    let empty = Panel::all(&world(0), Split::Development).unwrap_err();
    assert_eq!(
        empty.to_string(),
        "world `toy` has no tasks in split `development`; check its data"
    );
    assert_eq!(
        Panel::sample(&world(3), Split::Train, 0, 0).unwrap_err(),
        PanelError::NoTasks
    );
    assert_eq!(
        Panel::sample(&world(3), Split::Train, 4, 0).unwrap_err(),
        PanelError::TooFewTasks {
            wanted: 4,
            available: 3
        }
    );
}
