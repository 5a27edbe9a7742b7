//! Times work on the GPU by events.

use std::sync::Arc;

use flashcliff::Device;
use flashcliff::cuda::cudarc::driver::sys::CUevent_flags;
use flashcliff::cuda::cudarc::driver::{CudaEvent, CudaSlice, CudaStream};

use crate::error::{Error, driver};

/// The number of runs before the measurement.
const WARM_UP: usize = 5;

/// The times of one variant, in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) median: f64,
    /// A tenth of the times lie below `low`, and a tenth above `high`.
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Times {
    /// The times of one run, from those of `runs` runs.
    pub(crate) fn divided(self, runs: usize) -> Self {
        let Self { median, low, high } = self;
        let [median, low, high] = [median, low, high].map(|time| time / runs as f64);
        Self { median, low, high }
    }

    pub(crate) fn of(mut seconds: Vec<f64>) -> Self {
        seconds.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| {
            let last = seconds.len().saturating_sub(1);
            let index = (share * last as f64).round() as usize;
            seconds.get(index).copied().unwrap_or(f64::NAN)
        };
        Self {
            median: at(0.5),
            low: at(0.1),
            high: at(0.9),
        }
    }
}

/// Something to measure, which launches its work and does not wait for it.
pub(crate) type Variant<'a> = Box<dyn FnMut() -> Result<(), Error> + 'a>;

/// A stream on which runs are measured.
pub(crate) struct Timer {
    pub(crate) stream: Arc<CudaStream>,
    /// A buffer that is larger than the L2 cache.
    flush: CudaSlice<u8>,
    samples: usize,
}

impl Timer {
    pub(crate) fn new(device: &Device, l2_bytes: usize, samples: usize) -> Result<Self, Error> {
        let stream = device.new_stream()?;
        let bytes = (4 * l2_bytes).max(256 << 20);
        let flush = stream.alloc_zeros(bytes).map_err(driver("cuMemAlloc"))?;
        Ok(Self {
            stream,
            flush,
            samples,
        })
    }

    /// The times of variants that take turns. The L2 cache is overwritten before each run.
    pub(crate) fn take_turns(&mut self, variants: &mut [Variant<'_>]) -> Result<Vec<Times>, Error> {
        for _ in 0..WARM_UP {
            for variant in &mut *variants {
                variant()?;
            }
        }
        let mut events: Vec<Vec<[CudaEvent; 2]>> = variants.iter().map(|_| Vec::new()).collect();
        for _ in 0..self.samples {
            for (variant, events) in variants.iter_mut().zip(&mut events) {
                self.flush()?;
                let start = self.event()?;
                variant()?;
                events.push([start, self.event()?]);
            }
        }
        self.wait()?;
        let times = |events: &Vec<[CudaEvent; 2]>| -> Result<Times, Error> {
            let seconds = events.iter().map(|[start, end]| elapsed(start, end));
            Ok(Times::of(seconds.collect::<Result<_, _>>()?))
        };
        events.iter().map(times).collect()
    }

    /// The time of one run, out of many in a row without a flush.
    pub(crate) fn back_to_back(
        &mut self,
        runs: usize,
        mut variant: impl FnMut() -> Result<(), Error>,
    ) -> Result<Times, Error> {
        variant()?;
        let mut seconds = Vec::new();
        for _ in 0..self.samples {
            let start = self.event()?;
            for _ in 0..runs {
                variant()?;
            }
            let end = self.event()?;
            seconds.push(elapsed(&start, &end)? / runs as f64);
        }
        Ok(Times::of(seconds))
    }

    pub(crate) fn wait(&self) -> Result<(), Error> {
        let done = self.stream.synchronize();
        done.map_err(driver("cuStreamSynchronize"))
    }

    fn flush(&mut self) -> Result<(), Error> {
        let set = self.stream.memset_zeros(&mut self.flush);
        set.map_err(driver("cuMemsetD8Async"))
    }

    fn event(&self) -> Result<CudaEvent, Error> {
        let event = self
            .stream
            .record_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
        event.map_err(driver("cuEventRecord"))
    }
}

/// The time between two events, once both are over.
fn elapsed(start: &CudaEvent, end: &CudaEvent) -> Result<f64, Error> {
    let milliseconds = start.elapsed_ms(end);
    Ok(f64::from(milliseconds.map_err(driver("cuEventElapsedTime"))?) * 1e-3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_ordered() {
        let times = Times::of((0..=10).rev().map(f64::from).collect());
        assert_eq!((times.low, times.median, times.high), (1.0, 5.0, 9.0));
        assert!(Times::of(Vec::new()).median.is_nan());
    }
}
