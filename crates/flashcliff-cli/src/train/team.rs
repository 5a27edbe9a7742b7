//! What the ranks of a run on several GPUs tell each other, and what happens when one is lost.
//!
//! Rank 0 leads. It sends the start (its state, as it would be saved), then before each interval the number of steps, then the end. The
//! others do what it says, with the same settings, so all ranks make the same collective calls. They say when they got Ctrl-C; rank 0 then
//! ends the run as if it had got it.
//!
//! While a rank is lost, the thread of the work may wait for it on the GPU for ever. So the loss is noticed on
//! another thread, which ends the process; on rank 0 it saves the last state that was kept in memory before.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use candle_core::{Device, Tensor};
use flashcliff_candle::checkpoint::Checkpoint;
use flashcliff_candle::distributed::{Communicator, Fault, Links, Timing, World};
use flashcliff_candle::objective::Objective;

use super::session::Session;
use crate::error::{Error, report};
use crate::interrupt;
use crate::messages::say;

/// The inverse of the largest share of time that keeping states in memory may take.
const SHARE: u32 = 50;

/// The exit status of a rank that ends because another is lost.
pub(super) const LOST: i32 = 5;

/// A rank among the others.
#[derive(Debug)]
pub(super) struct Team {
    /// Graphs that use it are dropped before.
    communicator: Communicator,
    links: Links,
    kept: Arc<Kept>,
    /// When the last state was kept, and the time that took.
    last: Cell<(Instant, Duration)>,
    ended: Cell<bool>,
}

/// The state to save when another rank is lost.
#[derive(Debug, Default)]
pub(super) struct Kept {
    state: Mutex<Option<State>>,
}

#[derive(Debug)]
struct State {
    step: usize,
    /// `None` if the file has it.
    checkpoint: Option<Checkpoint>,
    path: PathBuf,
    hint: String,
}

/// An order of rank 0.
#[derive(Debug, PartialEq)]
pub(super) enum Order {
    /// The state that the run starts from, as bytes of a file.
    Start(Vec<u8>),
    /// To do so many steps.
    Advance(usize),
    /// To end.
    Stop,
}

/// What another rank tells rank 0: that it got Ctrl-C.
const INTERRUPTED: &[u8] = b"interrupted";

impl Order {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Start(state) => [b"start ", &state[..]].concat(),
            Self::Advance(steps) => format!("steps {steps}").into_bytes(),
            Self::Stop => b"stop".to_vec(),
        }
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        if let Some(state) = bytes.strip_prefix(b"start ") {
            return Some(Self::Start(state.to_vec()));
        }
        let text = std::str::from_utf8(bytes).ok()?;
        match text.strip_prefix("steps ") {
            Some(steps) => steps.parse().ok().map(Self::Advance),
            None => (text == "stop").then_some(Self::Stop),
        }
    }
}

impl Team {
    /// Meets the other ranks. `agreement` is what all of them must have in common.
    pub(super) fn join(world: &World, agreement: &str, device: &Device) -> Result<Self, Error> {
        let kept = Arc::new(Kept::default());
        let (own, rank) = (kept.clone(), world.rank);
        let lost = move |fault: &Fault| own.lost(rank, fault);
        let stop = &interrupt::requested;
        let links = Links::join(world, agreement, Timing::default(), stop, lost);
        let links = links.map_err(|fault| match fault {
            Fault::Stopped => Error::Stopped,
            fault => told(fault),
        })?;
        let communicator = match Communicator::new(&links, device) {
            Ok(communicator) => communicator,
            Err(error) => {
                links.fail(&error.to_string());
                return Err(error.into());
            }
        };
        Ok(Self {
            communicator,
            links,
            kept,
            last: Cell::new((Instant::now(), Duration::ZERO)),
            ended: Cell::new(false),
        })
    }

    /// Whether this rank is the one that decides and writes.
    pub(super) fn leads(&self) -> bool {
        self.links.rank() == 0
    }

    /// The number of this rank.
    pub(super) fn rank(&self) -> usize {
        self.links.rank()
    }

    /// The number of ranks.
    pub(super) fn size(&self) -> usize {
        self.links.size()
    }

    /// The share of a batch that is this rank's.
    pub(super) fn share<'b>(&self, batch: &'b [usize]) -> &'b [usize] {
        share(batch, self.links.rank(), self.links.size())
    }

    /// Fills tensors on all ranks with their values on rank 0.
    pub(super) fn broadcast(&self, tensors: &[Tensor]) -> Result<(), Error> {
        Ok(self.communicator.broadcast(tensors)?)
    }

    /// Computes the loss and the gradients of the whole batch from this rank's share.
    pub(super) fn evaluate(
        &self,
        objective: &mut Objective,
        batch: &[Tensor],
        buckets: usize,
    ) -> Result<Tensor, flashcliff_candle::Error> {
        self.communicator.evaluate(objective, batch, buckets)
    }

    /// Sends an order, if this is rank 0. Notices Ctrl-C of the others.
    ///
    /// # Errors
    /// A rank that is lost.
    pub(super) fn order(&self, order: &Order) -> Result<(), Error> {
        if !self.leads() {
            return Ok(());
        }
        if *order == Order::Stop {
            self.links.expect_end();
        }
        let next = || self.links.receive_within(Duration::ZERO);
        while let Some((_, message)) = next().unwrap_or_else(|fault| self.kept.lost(0, &fault)) {
            if message == INTERRUPTED {
                interrupt::request();
            }
        }
        let sent = self.links.send(&order.bytes());
        match sent {
            Err(fault) if *order != Order::Stop => self.kept.lost(0, &fault),
            _ => Ok(()),
        }
    }

    /// Waits for the next order of rank 0.
    ///
    /// # Errors
    /// Rank 0 is lost, or sends what is not an order.
    pub(super) fn next(&self) -> Result<Order, Error> {
        let (rank, bytes) = self.links.receive().map_err(told)?;
        Order::read(&bytes).ok_or_else(|| {
            let got = format!("{} bytes", bytes.len());
            told(Fault::Unexpected {
                rank,
                expected: "an order",
                got,
            })
        })
    }

    /// Tells rank 0 that this rank got Ctrl-C.
    ///
    /// # Errors
    /// Rank 0 is lost.
    pub(super) fn interrupted(&self) -> Result<(), Error> {
        self.links.send(INTERRUPTED).map_err(told)
    }

    /// Keeps the state of a session for the case that another rank is lost, unless this costs much time. It is then saved at the path,
    /// and the hint is shown. `saved` is the step of the state that is there.
    pub(super) fn keep(
        &self,
        session: &Session<'_>,
        saved: Option<usize>,
        path: PathBuf,
        hint: String,
    ) -> Result<(), Error> {
        let step = session.history().step;
        let (last, cost) = self.last.get();
        let is_saved = saved == Some(step);
        if !self.leads() || !is_saved && last.elapsed() < cost * SHARE {
            return Ok(());
        }
        let start = Instant::now();
        let checkpoint = match is_saved {
            true => None,
            false => Some(session.checkpoint()?.on_cpu()?),
        };
        *lock(&self.kept.state) = Some(State {
            step,
            checkpoint,
            path,
            hint,
        });
        if !is_saved {
            self.last.set((Instant::now(), start.elapsed()));
        }
        Ok(())
    }

    /// Ends the work of this rank: rank 0 orders the end, the others have got it.
    ///
    /// # Errors
    /// None on rank 0; see [`Team::order`].
    pub(super) fn finish(&self) -> Result<(), Error> {
        if !self.ended.replace(true) {
            self.order(&Order::Stop)?;
            self.links.finish();
        }
        Ok(())
    }

    /// Says that this rank cannot go on, unless its work has ended.
    pub(super) fn fail(&self, error: &Error) {
        if !self.ended.replace(true) {
            self.links.fail(&error.to_string());
        }
    }
}

impl Kept {
    /// Ends the process because another rank is lost, once, on whichever thread notices it first.
    fn lost(&self, rank: usize, fault: &Fault) -> ! {
        // It is never unlocked: a second thread waits here for the end.
        let state = lock(&self.state);
        let mut text = match rank {
            0 => format!("error: {fault}\n"),
            _ => format!("error of rank {rank}: {fault}\n"),
        };
        if let Some(state) = state.as_ref() {
            let checkpoint = state.checkpoint.as_ref();
            match checkpoint.map_or(Ok(()), |checkpoint| checkpoint.save(&state.path)) {
                Ok(()) => text += &state.hint,
                Err(error) => {
                    text += &format!("the state after step {} is not saved: ", state.step);
                    text += report(&error).trim_start_matches("error: ");
                }
            }
        }
        say(&text);
        interrupt::end_now(LOST)
    }
}

/// The part of a batch that is a rank's. All parts together are the batch, in its order.
fn share(batch: &[usize], rank: usize, size: usize) -> &[usize] {
    let bound = |rank: usize| batch.len() * rank / size;
    &batch[bound(rank)..bound(rank + 1)]
}

fn told(fault: Fault) -> Error {
    Error::Host(fault.into())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::super::batches::Batches;
    use super::*;

    #[test]
    fn orders_are_read_as_they_were_written() {
        for order in [
            Order::Start(vec![0, 255, 7]),
            Order::Start(Vec::new()),
            Order::Advance(64),
            Order::Stop,
        ] {
            assert_eq!(Order::read(&order.bytes()), Some(order));
        }
        for other in [
            &b""[..],
            b"steps",
            b"steps x",
            b"stop now",
            INTERRUPTED,
            &[255],
        ] {
            assert_eq!(Order::read(other), None);
        }
    }

    #[test]
    fn the_shares_of_all_ranks_are_the_batch_of_one_process() {
        for (samples, batch) in [(100, 24), (24, 24), (20, 24), (1000, 840)] {
            for size in [1, 2, 3, 4] {
                let rows = batch.min(samples);
                if rows % size != 0 {
                    continue;
                }
                let mut whole = Batches::new(samples, batch, 7);
                let mut own: Vec<_> = (0..size).map(|_| Batches::new(samples, batch, 7)).collect();
                for step in [0, 1, 2, 3, 40, 5] {
                    let shares = own.iter_mut().enumerate().map(|(rank, batches)| {
                        let share = share(batches.at(step), rank, size);
                        assert_eq!(share.len(), rows / size);
                        share.to_vec()
                    });
                    let shares: Vec<usize> = shares.flatten().collect();
                    assert_eq!(shares, whole.at(step));
                    // A batch shows no sample twice, so no two ranks see the same.
                    let distinct: std::collections::BTreeSet<_> = shares.iter().collect();
                    assert_eq!(distinct.len(), rows);
                }
            }
        }
    }
}
