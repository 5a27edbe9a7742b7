//! Times of other work than that of an operator, in turns with floors, on the stream of a host.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use flashcliff::cuda::Graph;
use flashcliff::cuda::cudarc::driver::CudaStream;

use super::Gpu;
use super::clock::Addition;
use crate::Error;
use crate::measure::{Effort, Repeat, median};

/// The bytes of an addition with next to no work.
const TINY: usize = 12;

/// The floor of work that consists of calls: for each call an addition that moves as many bytes, one after another, as one graph.
#[derive(Debug)]
pub struct Floors {
    floor: Graph,
    /// As many additions that move next to nothing.
    launches: Graph,
    /// The tensors, which the graphs use.
    _additions: Vec<Addition>,
}

impl Floors {
    /// The floor of calls that move so many bytes.
    ///
    /// # Errors
    /// The errors of CUDA; [`Error::NotCaptured`] of no call.
    pub fn of(gpu: &Gpu, name: &str, bytes: &[usize]) -> Result<Self, Error> {
        let stream = gpu.clock.stream.clone();
        let mut additions: BTreeMap<usize, Addition> = BTreeMap::new();
        for &bytes in bytes.iter().chain([&TINY]) {
            if let Entry::Vacant(place) = additions.entry(bytes) {
                place.insert(Addition::new(&stream, bytes)?);
            }
        }
        let mut run = |stream: &Arc<CudaStream>, bytes: &usize| match additions.get_mut(bytes) {
            Some(addition) => addition.run(stream),
            None => Ok(()),
        };
        // The first runs load the kernel.
        bytes.iter().try_for_each(|bytes| run(&stream, bytes))?;
        let floor = super::captured(name, &stream, || {
            bytes.iter().try_for_each(|bytes| run(&stream, bytes))
        })?;
        let launches = super::captured(name, &stream, || {
            bytes.iter().try_for_each(|_| run(&stream, &TINY))
        })?;
        Ok(Self {
            floor,
            launches,
            _additions: additions.into_values().collect(),
        })
    }
}

impl Gpu {
    /// Times other work than that of an operator, which is launched on the stream of this GPU, beside floors. `compute_seconds` are those of its
    /// operations. The work is captured as a graph where it can be; the reason is returned where it cannot, and its time then is that of single
    /// launches.
    ///
    /// # Errors
    /// The errors of the work and of CUDA.
    pub fn repeat_work<E: From<Error> + std::fmt::Display>(
        &mut self,
        floors: &Floors,
        compute_seconds: f64,
        effort: Effort,
        mut work: impl FnMut() -> Result<(), E>,
    ) -> Result<(Repeat, Option<String>), E> {
        let stream = self.clock.stream.clone();
        // These runs also load modules and make plans, before the capture.
        let wall = self.wall(effort, &mut work)?;
        let (graph, reason) = match Graph::capture(&stream, &mut work) {
            Ok(graph) => (Some(graph), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let [mut own, mut of_floors, mut launches] = [const { Vec::new() }; 3];
        for _ in 0..effort.rounds {
            of_floors.push(self.clock.seconds(|_| Ok(floors.floor.launch()?))?);
            launches.push(self.clock.seconds(|_| Ok(floors.launches.launch()?))?);
            own.push(match &graph {
                Some(graph) => self.clock.seconds(|_| Ok(graph.launch()?))?,
                None => self.clock.seconds_of(|_| work())?,
            });
        }
        let captured = match &graph {
            Some(graph) => Some(self.wall(effort, || Ok::<(), Error>(graph.launch()?))?),
            None => None,
        };
        let stream_bytes = self.stream_rate()?;
        let repeat = Repeat {
            seconds: median(own),
            floor_seconds: median(of_floors),
            compute_seconds,
            stream_bytes,
            launch_seconds: median(launches),
            wall_seconds: Some(wall),
            captured_seconds: captured,
            sweep: 0,
        };
        Ok((repeat, reason))
    }
}
