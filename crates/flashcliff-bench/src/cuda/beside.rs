//! Times of work in turns with floors.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use flashcliff::cuda::Graph;
use flashcliff::cuda::cudarc::driver::CudaStream;

use super::Gpu;
use super::clock::Addition;
use crate::Error;
use crate::measure::{Effort, Repeat, median};
use crate::work::Call;

/// The bytes of an addition with next to no work.
const TINY: usize = 12;

/// The floor of work that consists of calls: for each call an addition that moves as many bytes, one after another, as one graph.
#[derive(Debug)]
struct Floors {
    floor: Graph,
    /// As many additions that move next to nothing.
    launches: Graph,
    /// The tensors, which the graphs use.
    _additions: Vec<Addition>,
}

impl Floors {
    fn of(gpu: &Gpu, bytes: &[usize]) -> Result<Self, Error> {
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
        let floor = super::captured("the floor", &stream, || {
            bytes.iter().try_for_each(|bytes| run(&stream, bytes))
        })?;
        let launches = super::captured("the floor", &stream, || {
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
    /// Times work of these calls, floors and launches in turns.
    pub(super) fn beside<E: From<Error> + std::fmt::Display>(
        &mut self,
        calls: &[Call],
        effort: Effort,
        mut work: impl FnMut() -> Result<(), E>,
    ) -> Result<(Repeat, Option<String>), E> {
        let bytes: Vec<usize> = calls.iter().map(|call| call.bytes).collect();
        let floors = Floors::of(self, &bytes)?;
        let rates = self.rates_of_this_run()?;
        let seconds = |call: &Call| {
            call.flops as f64 / rates.flops(call.dtype, call.has_matrix_products, false)
        };
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
            compute_seconds: calls.iter().map(seconds).sum(),
            stream_bytes,
            launch_seconds: median(launches),
            wall_seconds: Some(wall),
            captured_seconds: captured,
            sweep: 0,
        };
        Ok((repeat, reason))
    }
}
