//! Which tasks are evaluated and which are trained on.
//!
//! Both are fixed before the run starts: a [`Panel`] is a list with every task once, so that two runs are compared on
//! the same tasks; a [`TrainingSchedule`] is a pure function of the iteration, so that resuming a run needs no state.
//!
//! Not for: running episodes, or choosing tasks by how well the policy does on them.

use seed_random::{Draw, RandomKey};
use thiserror::Error;

use crate::{Split, Task, TaskId, World};

/// Why a panel or a schedule cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PanelError {
    /// The split has no tasks.
    #[error("world `{world}` has no tasks in split `{}`; check its data", split.name())]
    Empty {
        /// The world asked.
        world: String,
        /// The split asked for.
        split: Split,
    },
    /// More tasks are wanted than there are.
    #[error("`{wanted}` distinct tasks are wanted and there are `{available}`; ask for fewer")]
    TooFewTasks {
        /// How many are wanted.
        wanted: usize,
        /// How many there are.
        available: usize,
    },
    /// No task is wanted.
    #[error("`0` tasks are wanted; ask for at least one")]
    NoTasks,
}

/// A fixed list of tasks to evaluate on, every task once, in the world's canonical order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panel {
    name: String,
    split: Split,
    tasks: Vec<Task>,
    seed: u64,
}

impl Panel {
    /// All tasks of a split.
    ///
    /// # Errors
    /// [`PanelError::Empty`] when the split has none.
    pub fn all(world: &dyn World, split: Split) -> Result<Self, PanelError> {
        let tasks = world.tasks(split).to_vec();
        if tasks.is_empty() {
            return Err(PanelError::Empty {
                world: world.name().to_owned(),
                split,
            });
        }
        Ok(Self {
            name: split.name().to_owned(),
            split,
            tasks,
            seed: 0,
        })
    }

    /// `count` tasks of a split, drawn without replacement. Of two samples with one seed the larger holds the smaller.
    ///
    /// # Errors
    /// [`PanelError::NoTasks`] when `count` is 0, [`PanelError::Empty`] and [`PanelError::TooFewTasks`] when the
    /// split has not so many.
    pub fn sample(world: &dyn World, split: Split, count: usize, seed: u64) -> Result<Self, PanelError> {
        if count == 0 {
            return Err(PanelError::NoTasks);
        }
        let all = Self::all(world, split)?;
        if count > all.tasks.len() {
            return Err(PanelError::TooFewTasks {
                wanted: count,
                available: all.tasks.len(),
            });
        }
        let key = RandomKey::new(seed)
            .with_text("panel", world.name())
            .with_text("split", split.name());
        let mut chosen = permutation(all.tasks.len(), &key);
        chosen.truncate(count);
        chosen.sort_unstable();
        let mut places = chosen.into_iter().peekable();
        let tasks = all
            .tasks
            .into_iter()
            .enumerate()
            .filter(|(index, _)| places.next_if_eq(index).is_some())
            .map(|(_, task)| task)
            .collect();
        Ok(Self {
            name: format!("{}_{count}_of_seed_{seed}", split.name()),
            split,
            tasks,
            seed,
        })
    }

    /// The name used in metrics: the split's, with size and seed when the panel is a sample.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The split the tasks belong to.
    pub fn split(&self) -> Split {
        self.split
    }

    /// The tasks, in canonical order.
    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    /// The seed of a task's environment: the same whenever the panel is evaluated, in every run.
    pub fn environment_seed(&self, task: &TaskId) -> u64 {
        RandomKey::new(self.seed)
            .with_text("panel environment", task.as_str())
            .to_u64()
    }
}

/// Which tasks each iteration trains on.
///
/// An epoch is a shuffle of all tasks, cut into iterations of equal size; what is left over at its end is skipped in
/// that epoch. So an iteration never holds a task twice, and every task is trained on equally often in the long run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrainingSchedule {
    tasks: Vec<Task>,
    tasks_per_iteration: usize,
    seed: u64,
}

impl TrainingSchedule {
    /// A schedule over `tasks`, in their canonical order.
    ///
    /// # Errors
    /// [`PanelError::NoTasks`] when `tasks_per_iteration` is 0, [`PanelError::TooFewTasks`] when there are fewer
    /// tasks than one iteration takes.
    pub fn new(tasks: Vec<Task>, tasks_per_iteration: usize, seed: u64) -> Result<Self, PanelError> {
        if tasks_per_iteration == 0 {
            return Err(PanelError::NoTasks);
        }
        if tasks.len() < tasks_per_iteration {
            return Err(PanelError::TooFewTasks {
                wanted: tasks_per_iteration,
                available: tasks.len(),
            });
        }
        Ok(Self {
            tasks,
            tasks_per_iteration,
            seed,
        })
    }

    /// Tasks an iteration trains on.
    pub fn tasks_per_iteration(&self) -> usize {
        self.tasks_per_iteration
    }

    /// Iterations of one pass over the tasks.
    pub fn iterations_per_epoch(&self) -> u64 {
        // At least 1, because there are enough tasks for one iteration.
        (self.tasks.len() / self.tasks_per_iteration) as u64
    }

    /// The epoch, from 0, that iteration `iteration` belongs to.
    pub fn epoch(&self, iteration: u64) -> u64 {
        iteration / self.iterations_per_epoch()
    }

    /// The tasks of iteration `iteration` (from 0), all different.
    pub fn tasks(&self, iteration: u64) -> Vec<&Task> {
        let key = RandomKey::new(self.seed).with("training epoch", self.epoch(iteration));
        let within = (iteration % self.iterations_per_epoch()) as usize;
        permutation(self.tasks.len(), &key)
            .into_iter()
            .skip(within * self.tasks_per_iteration)
            .take(self.tasks_per_iteration)
            .filter_map(|index| self.tasks.get(index))
            .collect()
    }

    /// The seed that every member of a group gives its environment.
    pub fn environment_seed(&self, iteration: u64, task: &TaskId) -> u64 {
        RandomKey::new(self.seed)
            .with("training environment", iteration)
            .with_text("task", task.as_str())
            .to_u64()
    }
}

fn permutation(count: usize, key: &RandomKey) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    key.generator().shuffle(&mut order);
    order
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn tasks(count: usize) -> Vec<Task> {
        (0..count)
            .map(|index| Task {
                id: TaskId::new(format!("world/train/{index:03}")),
                split: Split::Train,
                family: "family".into(),
            })
            .collect()
    }

    fn ids(schedule: &TrainingSchedule, iteration: u64) -> Vec<String> {
        let tasks = schedule.tasks(iteration);
        tasks.into_iter().map(|task| task.id.to_string()).collect()
    }

    /// Pinned: a schedule that moves makes every recorded run irreproducible.
    #[test]
    fn the_schedule_is_pinned() {
        let schedule = TrainingSchedule::new(tasks(7), 3, 11).unwrap();
        let drawn: Vec<String> = (0..3).flat_map(|iteration| ids(&schedule, iteration)).collect();
        let numbers = [5, 1, 4, 6, 2, 0, 6, 3, 1];
        assert_eq!(drawn, numbers.map(|number| format!("world/train/{number:03}")));
        let seed = schedule.environment_seed(3, &TaskId::new("world/train/001"));
        assert_eq!(seed, 11_814_978_951_854_875_303);
    }

    #[test]
    fn impossible_schedules_are_refused() {
        assert_eq!(
            TrainingSchedule::new(tasks(3), 0, 0).unwrap_err(),
            PanelError::NoTasks
        );
        let error = TrainingSchedule::new(tasks(3), 4, 0).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`4` distinct tasks are wanted and there are `3`; ask for fewer"
        );
    }

    #[test]
    fn environment_seeds_are_shared_in_a_group_and_differ_elsewhere() {
        let schedule = TrainingSchedule::new(tasks(4), 2, 5).unwrap();
        let task = |name: &str| TaskId::new(name);
        let seed = schedule.environment_seed(1, &task("a"));
        assert_eq!(seed, schedule.environment_seed(1, &task("a")));
        assert_ne!(seed, schedule.environment_seed(2, &task("a")));
        assert_ne!(seed, schedule.environment_seed(1, &task("b")));
    }

    proptest! {
        #[test]
        fn an_epoch_holds_distinct_tasks_and_depends_on_nothing_but_the_iteration(
            count in 1usize..40, share in 1usize..40, seed: u64, epoch in 0u64..1_000_000,
        ) {
            let per_iteration = share.min(count);
            let schedule = TrainingSchedule::new(tasks(count), per_iteration, seed).unwrap();
            let length = schedule.iterations_per_epoch();
            let mut seen = BTreeMap::new();
            // Backwards: no iteration may depend on having asked for the one before.
            for iteration in (epoch * length..(epoch + 1) * length).rev() {
                prop_assert_eq!(schedule.epoch(iteration), epoch);
                let drawn = ids(&schedule, iteration);
                prop_assert_eq!(drawn.len(), per_iteration);
                for id in drawn {
                    *seen.entry(id).or_insert(0) += 1;
                }
            }
            prop_assert_eq!(seen.len(), count / per_iteration * per_iteration);
            prop_assert!(seen.values().all(|&times| times == 1));
        }
    }
}
