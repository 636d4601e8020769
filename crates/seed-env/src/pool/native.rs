//! Stepping of environments that run in this process and always come back: inline, or spread over a thread pool.
//!
//! No deadline is watched here: a watched call costs two thread switches, several times what such a step costs.

use rayon::iter::{IndexedParallelIterator, IntoParallelRefMutIterator, ParallelIterator};

use super::perform::{self, Fault, Seat};
use super::{EpisodeStart, Opening, PoolError, Step};
use crate::World;

/// Environments of native worlds, by slot.
pub(super) struct Native {
    seats: Vec<Seat>,
    /// `None` when everything runs inline.
    threads: Option<rayon::ThreadPool>,
    inline_below: usize,
}

impl Native {
    pub(super) fn new(threads: usize, inline_below: usize) -> Result<Self, PoolError> {
        let threads = (threads > 1)
            .then(|| {
                rayon::ThreadPoolBuilder::new()
                    .num_threads(threads)
                    .thread_name(|index| format!("environments-{index}"))
                    .build()
            })
            .transpose()
            .map_err(|error| PoolError::Thread(Box::new(error)))?;
        Ok(Self {
            seats: Vec::new(),
            threads,
            inline_below,
        })
    }

    pub(super) fn reset(
        &mut self,
        world: &dyn World,
        starts: &[EpisodeStart],
        maximum_bytes: usize,
    ) -> Vec<Result<Opening, Fault>> {
        self.each(
            starts,
            |start| start.slot,
            |seat, start| perform::reset(seat, world, &start.task, start.seed, maximum_bytes),
        )
    }

    pub(super) fn step(
        &mut self,
        actions: &[(usize, &str)],
        maximum_bytes: usize,
    ) -> Vec<Result<Step, Fault>> {
        self.each(
            actions,
            |&(slot, _)| slot,
            |seat, &(_, action)| perform::step(seat, action, maximum_bytes),
        )
    }

    /// Does `work` for every item on the seat of its slot. Environments share nothing, and results stand in the
    /// order of the items, so threads cannot show.
    fn each<Item: Sync, Output: Send>(
        &mut self,
        items: &[Item],
        slot: impl Fn(&Item) -> usize,
        work: impl Fn(&mut Seat, &Item) -> Result<Output, Fault> + Sync,
    ) -> Vec<Result<Output, Fault>> {
        let needed = items.iter().map(|item| slot(item) + 1).max().unwrap_or(0);
        if self.seats.len() < needed {
            self.seats.resize_with(needed, || None);
        }
        match &self.threads {
            Some(threads) if items.len() >= self.inline_below => {
                // The seats leave their slots for the call, so that each thread owns the ones it works on.
                let mut taken: Vec<(&Item, Seat)> = items
                    .iter()
                    .map(|item| (item, self.seats.get_mut(slot(item)).and_then(Option::take)))
                    .collect();
                let results = threads.install(|| {
                    taken
                        .par_iter_mut()
                        .with_min_len(self.inline_below.div_ceil(2))
                        .map(|(item, seat)| work(seat, item))
                        .collect()
                });
                for (item, seat) in taken {
                    if let Some(place) = self.seats.get_mut(slot(item)) {
                        *place = seat;
                    }
                }
                results
            }
            _ => items
                .iter()
                .map(|item| match self.seats.get_mut(slot(item)) {
                    Some(seat) => work(seat, item),
                    // Not reached: the seats were made above.
                    None => work(&mut None, item),
                })
                .collect(),
        }
    }
}
