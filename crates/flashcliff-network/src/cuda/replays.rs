//! Runs that come again with the same memory, as CUDA graphs: the host then launches one thing in place of hundreds.
//!
//! A host that allocates from a pool, as PyTorch does, gets the same addresses in each step of a loop. So a stage
//! that is run with addresses of before is captured, and from then on replayed. A graph does what the calls do, with
//! the same bits; some of them run beside the line.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use flashcliff::cuda::cudarc::driver::CudaStream;
use flashcliff::cuda::cudarc::driver::sys::{CUdeviceptr, CUstreamCaptureStatus};
use flashcliff::cuda::{CaptureError, Graph};

use super::own_stream::OwnStream;
use super::{Course, Gpu, Lent, Moment};
use crate::Error;

/// The most graphs of a plan.
const KEPT: usize = 24;
/// The number of last runs among which one counts as seen.
const SEEN: usize = 48;
/// The captures that come before any replay. Later ones must have been paid for: a capture takes about as long as two runs.
const FIRST: usize = 24;

/// The graphs of a plan, by the memory of their runs.
#[derive(Debug, Default)]
pub struct Replays(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    seen: VecDeque<u64>,
    /// The last used graph is at the end.
    graphs: Vec<(Key, Graph)>,
    captures: usize,
    replays: usize,
    /// Whether a capture has failed: others would.
    is_off: bool,
}

/// All that the launches of a run depend on.
type Key = Vec<u64>;

impl Replays {
    /// The number of runs that were replays.
    pub fn count(&self) -> usize {
        self.known(|known| known.replays)
    }

    fn known<R>(&self, own: impl FnOnce(&mut Known) -> R) -> R {
        // The graphs are whole even after a panic.
        own(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Known {
    /// Replays the run of a key, if there is a graph of it.
    fn replay(&mut self, key: &Key, stream: &CudaStream) -> Option<Result<(), Error>> {
        let at = self.graphs.iter().position(|(own, _)| own == key)?;
        let last = self.graphs.remove(at);
        let launched = last.1.launch_on(stream);
        self.graphs.push(last);
        self.replays += 1;
        Some(launched.map_err(Error::from))
    }

    /// Whether a run should be captured: its key came before, and captures pay. Notes the key.
    fn is_worth_a_capture(&mut self, key: &Key) -> bool {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let hash = hasher.finish();
        let was_seen = self.seen.contains(&hash);
        if !was_seen {
            self.seen.truncate(SEEN - 1);
            self.seen.push_front(hash);
        }
        was_seen && !self.is_off && self.captures < FIRST + self.replays / 2
    }

    fn keep(&mut self, key: Key, graph: Graph) {
        if self.graphs.len() == KEPT {
            self.graphs.remove(0);
        }
        self.graphs.push((key, graph));
        self.captures += 1;
    }
}

impl Gpu {
    /// Launches a stage of a plan of several on a stream, in memory of a host: call by call, or as a graph where the
    /// same memory comes again. Within a capture of the host it is launched call by call.
    ///
    /// # Errors
    /// The errors of [`Self::run`].
    ///
    /// # Safety
    /// The contracts of [`Self::lend`] and of [`Self::run`] hold.
    pub unsafe fn run_again(
        &self,
        replays: &Replays,
        (stage, space): (usize, CUdeviceptr),
        stream: &Arc<CudaStream>,
        lent: Lent<'_>,
    ) -> Result<(), Error> {
        // SAFETY: the caller promises it.
        let run = |on: &Arc<CudaStream>, forks: bool| unsafe {
            let course = Course { forks, stops: &[] };
            let watch: &mut dyn FnMut(Moment) -> Result<(), Error> = &mut |_| Ok(());
            let mut memory = self.lend(stage, space)?;
            self.run(&mut memory, on, lent, course, watch)
        };
        match stream.capture_status() {
            Ok(CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE) => {}
            Ok(_) => return run(stream, true),
            Err(_) => return run(stream, false),
        }
        let Some(key) = key((stage, space), stream, &lent) else {
            return run(stream, false);
        };
        let done = replays.known(|known| {
            let replayed = known.replay(&key, stream);
            if replayed.is_some() || !known.is_worth_a_capture(&key) {
                return replayed;
            }
            let graph = self.captured(run);
            known.is_off = graph.is_none();
            let graph = graph?;
            let launched = graph.launch_on(stream).map_err(Error::from);
            known.keep(key, graph);
            Some(launched)
        });
        done.unwrap_or_else(|| run(stream, false))
    }

    /// A run as a graph, or `None` if it cannot be one. Nothing runs.
    fn captured(
        &self,
        run: impl FnOnce(&Arc<CudaStream>, bool) -> Result<(), Error>,
    ) -> Option<Graph> {
        // The stream of a host may be the default one, which cannot be captured.
        let own = OwnStream::new(self.device.context()).map_err(CaptureError::Work);
        let found = own.and_then(|own| Graph::capture(own.stream(), || run(own.stream(), true)));
        let found = found.inspect_err(|error| {
            log::warn!("networks: stages run call by call, since one was not captured: {error}");
        });
        found.ok()
    }
}

/// The key of a run. There is none where cudarc orders the uses of a tensor, which no replay would take part in.
fn key((stage, space): (usize, CUdeviceptr), stream: &CudaStream, lent: &Lent<'_>) -> Option<Key> {
    let mut key = vec![
        stage as u64,
        space,
        lent.kept,
        lent.error_scale.to_bits(),
        lent.adds_error.into(),
        lent.draw.map_or(0, |draw| draw.key),
        lent.draw.map_or(0, |draw| draw.step),
    ];
    for set in lent.sequences.iter().flatten() {
        key.extend([set.address, set.bounds.len() as u64]);
        key.extend(set.bounds.iter().map(|&bound| bound as u64));
    }
    for own in lent.relations {
        key.extend([own.target, own.starts, own.order]);
    }
    let tensors = lent.inputs.iter().chain(lent.parameters);
    for tensor in tensors.chain(&lent.loss_scale) {
        match tensor.address(stream) {
            (address, None) => key.push(address),
            (_, Some(_)) => return None,
        }
    }
    key.extend(lent.outputs);
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_captured_when_it_comes_again() {
        let mut known = Known::default();
        let key = |at: usize| vec![at as u64; 3];
        assert!(!known.is_worth_a_capture(&key(0)));
        assert!(known.is_worth_a_capture(&key(0)));
        for at in 1..SEEN {
            assert!(!known.is_worth_a_capture(&key(at)));
        }
        assert!(known.is_worth_a_capture(&key(0)));
        // One more pushes the first one out.
        assert!(!known.is_worth_a_capture(&key(SEEN)));
        assert!(!known.is_worth_a_capture(&key(0)));
    }

    #[test]
    fn captures_that_are_not_replayed_end() {
        let mut known = Known::default();
        known.is_worth_a_capture(&vec![1]);
        for captures in 0..=FIRST {
            known.captures = captures;
            assert_eq!(known.is_worth_a_capture(&vec![1]), captures < FIRST);
        }
        known.replays = 2;
        assert!(known.is_worth_a_capture(&vec![1]));
        known.is_off = true;
        assert!(!known.is_worth_a_capture(&vec![1]));
    }
}
