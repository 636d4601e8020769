//! Stepping of environments that may hang: one thread per slot, watched by a deadline.
//!
//! Such environments wait for a browser, a server or a foreign process, so their threads mostly sleep and one per
//! slot is cheap. It also makes the deadline exact: every request of a batch starts at once, and the call returns
//! when the last answer is in or the deadline has passed, whichever is first. A thread cannot be killed; one that
//! does not come back is left alone with its environment, counted until it does, and its slot gets a new one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};

use super::perform::{self, Fault, Seat};
use super::{EpisodeStart, FailureClass, Opening, PoolError, Step};
use crate::{TaskId, World};

/// What a slot's thread is asked to do.
enum Request {
    Reset { task: TaskId, seed: u64 },
    Step { action: String },
}

/// What it answers.
enum Answer {
    Opening(Result<Opening, Fault>),
    Step(Result<Step, Fault>),
}

/// An answer on its way back.
struct Reply {
    /// Number of the request; an answer that comes after its deadline matches no open request any more.
    ticket: u64,
    answer: Answer,
}

/// A slot's thread, as seen from the pool.
struct Worker {
    requests: Sender<(u64, Request)>,
    /// Set when the pool gives the thread up.
    abandoned: Arc<AtomicBool>,
}

/// Threads of worlds that may hang, by slot.
pub(super) struct Isolated {
    world: Arc<dyn World>,
    workers: Vec<Option<Worker>>,
    replies: (Sender<Reply>, Receiver<Reply>),
    next_ticket: u64,
    /// Abandoned threads that have not come back yet.
    hung: Arc<AtomicUsize>,
    maximum_bytes: usize,
}

impl Isolated {
    pub(super) fn new(world: Arc<dyn World>, maximum_bytes: usize) -> Self {
        Self {
            world,
            workers: Vec::new(),
            replies: unbounded(),
            next_ticket: 0,
            hung: Arc::new(AtomicUsize::new(0)),
            maximum_bytes,
        }
    }

    pub(super) fn hung(&self) -> usize {
        self.hung.load(Ordering::Acquire)
    }

    pub(super) fn reset(
        &mut self,
        starts: &[EpisodeStart],
        deadline: Duration,
    ) -> Result<Vec<Result<Opening, Fault>>, PoolError> {
        for start in starts {
            self.ensure_worker(start.slot)?;
        }
        let requests = starts.iter().map(|start| {
            let request = Request::Reset {
                task: start.task.clone(),
                seed: start.seed,
            };
            (start.slot, request)
        });
        let answers = self.ask(requests, deadline);
        Ok(answers
            .into_iter()
            .map(|answer| match answer {
                Some(Answer::Opening(result)) => result,
                _ => Err(time_out(FailureClass::ResetTimeOut, "reset", deadline)),
            })
            .collect())
    }

    pub(super) fn step(&mut self, actions: &[(usize, &str)], deadline: Duration) -> Vec<Result<Step, Fault>> {
        let requests = actions.iter().map(|&(slot, action)| {
            let request = Request::Step {
                action: action.to_owned(),
            };
            (slot, request)
        });
        self.ask(requests, deadline)
            .into_iter()
            .map(|answer| match answer {
                Some(Answer::Step(result)) => result,
                _ => Err(time_out(FailureClass::StepTimeOut, "step", deadline)),
            })
            .collect()
    }

    /// Sends every request to its slot's thread and collects the answers, in the order of the requests. `None` for
    /// those that did not come in time; their threads are given up.
    fn ask(
        &mut self,
        requests: impl Iterator<Item = (usize, Request)>,
        deadline: Duration,
    ) -> Vec<Option<Answer>> {
        let end = Instant::now() + deadline;
        let first_ticket = self.next_ticket;
        let mut slots = Vec::new();
        for (slot, request) in requests {
            if let Some(Some(worker)) = self.workers.get(slot) {
                // The channel is open as long as the thread lives, and the thread lives as long as the channel is.
                let _ = worker.requests.send((self.next_ticket, request));
            }
            self.next_ticket += 1;
            slots.push(slot);
        }
        let mut answers: Vec<Option<Answer>> = slots.iter().map(|_| None).collect();
        let mut open = answers.len();
        while open > 0 {
            let Ok(reply) = self.replies.1.recv_deadline(end) else {
                break;
            };
            let place = reply
                .ticket
                .checked_sub(first_ticket)
                .and_then(|index| answers.get_mut(index as usize));
            if let Some(place) = place {
                *place = Some(reply.answer);
                open -= 1;
            }
        }
        for (&slot, answer) in slots.iter().zip(&answers) {
            if answer.is_none() {
                self.abandon(slot);
            }
        }
        answers
    }

    /// Gives up the thread of a slot.
    fn abandon(&mut self, slot: usize) {
        if let Some(worker) = self.workers.get_mut(slot).and_then(Option::take) {
            // Counted before the channel closes with `worker`: the thread takes itself off the count when it sees that.
            worker.abandoned.store(true, Ordering::Release);
            self.hung.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn ensure_worker(&mut self, slot: usize) -> Result<(), PoolError> {
        if self.workers.len() <= slot {
            self.workers.resize_with(slot + 1, || None);
        }
        if let Some(place @ None) = self.workers.get_mut(slot) {
            let (requests, inbox) = unbounded();
            let abandoned = Arc::new(AtomicBool::new(false));
            let thread = SlotThread {
                world: Arc::clone(&self.world),
                inbox,
                outbox: self.replies.0.clone(),
                abandoned: Arc::clone(&abandoned),
                hung: Arc::clone(&self.hung),
                maximum_bytes: self.maximum_bytes,
            };
            std::thread::Builder::new()
                .name(format!("environment-{slot}"))
                .spawn(move || thread.run())
                .map_err(|error| PoolError::Thread(Box::new(error)))?;
            *place = Some(Worker { requests, abandoned });
        }
        Ok(())
    }
}

/// The inside of a slot's thread. It ends when the pool drops its side of the channel.
struct SlotThread {
    world: Arc<dyn World>,
    inbox: Receiver<(u64, Request)>,
    outbox: Sender<Reply>,
    abandoned: Arc<AtomicBool>,
    hung: Arc<AtomicUsize>,
    maximum_bytes: usize,
}

impl SlotThread {
    fn run(self) {
        let mut seat: Seat = None;
        while let Ok((ticket, request)) = self.inbox.recv() {
            let answer = match request {
                Request::Reset { task, seed } => Answer::Opening(perform::reset(
                    &mut seat,
                    self.world.as_ref(),
                    &task,
                    seed,
                    self.maximum_bytes,
                )),
                Request::Step { action } => {
                    Answer::Step(perform::step(&mut seat, &action, self.maximum_bytes))
                }
            };
            if self.outbox.send(Reply { ticket, answer }).is_err() {
                break;
            }
        }
        if self.abandoned.load(Ordering::Acquire) {
            self.hung.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

fn time_out(class: FailureClass, what: &str, deadline: Duration) -> Fault {
    Fault::new(class, &format!("the {what} took longer than {deadline:?}"))
}
