//! The rates of a GPU: times of captured work, with a second-level cache that other data fill.

use std::collections::BTreeMap;

use cayley::Signature;
use flashcliff::{Dims, Dtype};

use super::buffers::Buffers;
use super::clock::Addition;
use super::{Gpu, captured};
use crate::calibrate::{Calibrate, Choice, Latencies, Pace, without};
use crate::calibration::Level;
use crate::grid::Grid;
use crate::place::Place;
use crate::selection::usual_size;
use crate::{Case, Error, Passes};

/// How much oftener than on a CPU a run is timed, which takes little there.
const TIMES: usize = 4;

impl Calibrate for Gpu {
    const CHOICE: Choice = Choice {
        dtypes: &[Dtype::F32, Dtype::F64, Dtype::Bf16, Dtype::F16],
        interprets: false,
        grid: Grid {
            // Lanes: a launch, a GPU that is partly busy, one that is. Channels: rows that a kernel keeps in registers, and those that it does not.
            // Just beyond the half a row of some kernels has two multiprocessors, as the whole one has, and takes as long.
            widths: &[
                (2, &[1, 8, 64, 512]),
                (8, &[1, 8, 64, 512]),
                (9, &[1, 8, 64, 512]),
                (16, &[1, 8, 64, 512]),
            ],
            more_rows: &[0],
            by_bytes: false,
        },
        sets: [12 << 10, 768 << 20],
    };

    fn place(&self) -> Place {
        Place::Gpu(self.device.clone())
    }

    fn simd(&self) -> String {
        "none".to_owned()
    }

    fn usual_size(&self, operator: &'static str) -> Result<Dims, Error> {
        usual_size(operator, Signature::of(3, 0, 0), true)
    }

    fn latencies(&mut self, _: Pace) -> Result<Latencies, Error> {
        Ok(Latencies {
            call: self.call_seconds()?,
            pool: 0.0,
        })
    }

    fn flops(&mut self, _: Pace) -> Result<BTreeMap<String, f64>, Error> {
        let dtypes = Self::CHOICE.dtypes.iter();
        dtypes
            .map(|&dtype| Ok((dtype.to_string(), self.product_rate(dtype, false)?)))
            .collect()
    }

    fn level(&mut self, bytes: usize, call: f64, pace: Pace) -> Result<Level, Error> {
        let stream = self.clock.stream.clone();
        let mut floor = Addition::new(&stream, bytes)?;
        let moved = floor.bytes() as f64;
        let case = Case::tiny();
        // The first run loads kernels, which a capture must not.
        floor.run(&stream)?;
        floor.copy(&stream)?;
        let add = captured(&case.name(), &stream, || floor.run(&stream))?;
        let copy = captured(&case.name(), &stream, || floor.copy(&stream))?;
        let [mut least_add, mut least_copy] = [f64::INFINITY; 2];
        for _ in 0..TIMES * pace.rounds {
            least_add = least_add.min(self.clock.seconds(|_| Ok(add.launch()?))?);
            least_copy = least_copy.min(self.clock.seconds(|_| Ok(copy.launch()?))?);
        }
        Ok(Level {
            bytes: floor.bytes(),
            add: moved / without(least_add, call),
            copy: moved * 2.0 / 3.0 / without(least_copy, call),
        })
    }

    fn least_seconds(
        &mut self,
        case: &Case,
        passes: &[Passes],
        pace: Pace,
    ) -> Result<Vec<f64>, Error> {
        let stream = self.clock.stream.clone();
        let mut buffers = Buffers::new(&self.device, &stream, case)?;
        buffers.run(&stream, Passes::Both)?;
        let mut found = Vec::with_capacity(passes.len());
        for &passes in passes {
            let graph = captured(&case.name(), &stream, || buffers.run(&stream, passes))?;
            let mut least = f64::INFINITY;
            for _ in 0..TIMES * pace.rounds {
                least = least.min(self.clock.seconds(|_| Ok(graph.launch()?))?);
            }
            found.push(least);
        }
        Ok(found)
    }
}
