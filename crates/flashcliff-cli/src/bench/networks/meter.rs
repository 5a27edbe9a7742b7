//! How a device measures work: times beside floors, and the peak of memory.

use std::sync::Arc;

use candle_core::Device;
use flashcliff_bench::Target;
use flashcliff_bench::cpu::{Cpu, Floors};
use flashcliff_bench::measure::{Effort, Repeat};
use flashcliff_bench::report::Memory;
use flashcliff_candle::timeline::Operation;

use super::cases::NetworkCase;
use super::memory;
use crate::error::Error;

/// Work that can be run again and again.
pub(super) type Runs<'a> = &'a mut dyn FnMut() -> Result<(), Error>;

/// A device that measures layers and networks.
pub(in crate::bench) trait Meter {
    /// candle's name of the device.
    fn device(&self) -> &Device;

    /// The number of sweeps over all cases.
    fn sweeps(&self) -> usize;

    /// Times work of these operations, beside floors. On a GPU also the reason why it was not captured, if it was not.
    ///
    /// # Errors
    /// The errors of the work; the errors of the library.
    fn repeat(
        &mut self,
        case: &NetworkCase,
        operations: &[Arc<Operation>],
        effort: Effort,
        work: Runs<'_>,
    ) -> Result<(Repeat, Option<String>), Error>;

    /// The peak of memory beside the bytes that must be held.
    ///
    /// # Errors
    /// The errors of the work; the errors of the library.
    fn memory(&mut self, case: &NetworkCase, counted: usize) -> Result<Memory, Error>;
}

/// A device for operators that measures layers and networks too.
pub(in crate::bench) trait Host: Target {
    /// The meter.
    ///
    /// # Errors
    /// A device that candle cannot use.
    fn meter(&mut self) -> Result<Box<dyn Meter + '_>, Error>;
}

impl Host for Cpu {
    fn meter(&mut self) -> Result<Box<dyn Meter + '_>, Error> {
        Ok(Box::new(OnCpu(self)))
    }
}

struct OnCpu<'a>(&'a mut Cpu);

impl Meter for OnCpu<'_> {
    fn device(&self) -> &Device {
        &Device::Cpu
    }

    fn sweeps(&self) -> usize {
        self.0.sweeps()
    }

    fn repeat(
        &mut self,
        case: &NetworkCase,
        operations: &[Arc<Operation>],
        effort: Effort,
        work: Runs<'_>,
    ) -> Result<(Repeat, Option<String>), Error> {
        let mut floors = Floors::of(operations.iter().map(|operation| operation.tensor_bytes));
        let flops = operations
            .iter()
            .filter_map(|operation| operation.flops)
            .sum();
        let repeat = self
            .0
            .repeat_work(&mut floors, (flops, case.dtype), effort, work)?;
        Ok((repeat, None))
    }

    fn memory(&mut self, case: &NetworkCase, counted: usize) -> Result<Memory, Error> {
        memory::on_heap(case, counted)
    }
}

#[cfg(feature = "cuda")]
mod gpu {
    //! A GPU, on the stream of candle's device.

    use flashcliff_bench::cuda::{Floors, Gpu};

    use super::{
        Arc, Device, Effort, Error, Host, Memory, Meter, NetworkCase, Operation, Repeat, Runs,
        memory,
    };
    use crate::bench::networks::work::Work;
    use flashcliff_bench::Target;

    impl Host for Gpu {
        fn meter(&mut self) -> Result<Box<dyn Meter + '_>, Error> {
            let device = flashcliff_candle::device::cuda(self.device().ordinal())?;
            let stream = device.as_cuda_device()?.cuda_stream();
            let gpu = self.with_stream(stream)?;
            Ok(Box::new(OnGpu { gpu, device }))
        }
    }

    struct OnGpu {
        gpu: Gpu,
        device: Device,
    }

    impl Meter for OnGpu {
        fn device(&self) -> &Device {
            &self.device
        }

        fn sweeps(&self) -> usize {
            self.gpu.sweeps()
        }

        fn repeat(
            &mut self,
            case: &NetworkCase,
            operations: &[Arc<Operation>],
            effort: Effort,
            work: Runs<'_>,
        ) -> Result<(Repeat, Option<String>), Error> {
            let bytes: Vec<usize> = operations
                .iter()
                .map(|operation| operation.tensor_bytes)
                .collect();
            let floors = Floors::of(&self.gpu, &case.name(), &bytes)?;
            let rates = self.gpu.rates_of_this_run()?;
            let seconds = |operation: &Arc<Operation>| {
                // The last layer of a network of 16 bits is of f32.
                let dtype = operation.dtype.unwrap_or(case.dtype);
                let rate = rates.flops(dtype, operation.has_matrix_products, false);
                operation.flops.unwrap_or(0) as f64 / rate
            };
            let compute = operations.iter().map(seconds).sum();
            let device = self.device.as_cuda_device()?.clone();
            self.gpu.repeat_work(&floors, compute, effort, || {
                // candle's uploads of shapes are kept for the capture.
                let _kept = device.enable_cuda_graph_htod_cache();
                work()
            })
        }

        fn memory(&mut self, case: &NetworkCase, counted: usize) -> Result<Memory, Error> {
            let device = self.gpu.device().clone();
            self.device.synchronize()?;
            device.reset_pool_peak()?;
            let before = device.pool_memory()?.used;
            let mut work = Work::new(case, &self.device)?;
            work.run()?;
            work.run()?;
            self.device.synchronize()?;
            let peak = device.pool_memory()?.used_peak.saturating_sub(before);
            let peak = usize::try_from(peak).unwrap_or(usize::MAX);
            Ok(Memory::new(counted, peak, memory::target(case)))
        }
    }
}
