//! Operators on an NVIDIA GPU, beside floors.
//!
//! Times of the GPU are taken between two events around a captured graph of the calls, so that no launch waits for the
//! host, with a second-level cache that other data fill. Wall times are for calls one after another until the GPU is
//! done. The calls are launched one by one, or as one graph each.

mod beside;
mod buffers;
mod clock;

use std::sync::Arc;
use std::time::Instant;

use flashcliff::cuda::cudarc::driver::CudaStream;
use flashcliff::cuda::cudarc::driver::sys::CUdevice_attribute as Attribute;
use flashcliff::cuda::{CaptureError, Graph, driver_error};
use flashcliff::{Device, Dims, Dtype, memory};

use crate::machine::{Kind, Rates};
use crate::measure::{Effort, Repeat, median, repetitions};
use crate::target::{Target, remedy};
use crate::work::{Buffers, Call};
use crate::{Case, Error};

use buffers::{OnGpu, Product};
use clock::{Addition, Clock};

/// A GPU that measures.
#[derive(Debug)]
pub struct Gpu {
    device: Device,
    clock: Clock,
    large: Addition,
    quick: bool,
    /// The rates, once they are measured.
    rates: Option<Rates>,
}

/// The bytes of the large addition, or of a small one.
const LARGE: [usize; 2] = [768 << 20, 24 << 20];

impl Gpu {
    /// A GPU, as CUDA counts them, for a host that launches its work on this stream. `quick` measures little.
    ///
    /// # Errors
    /// The errors of [`Device::cuda`].
    #[allow(
        unsafe_code,
        reason = "a launch that records events for each tensor would not be that of the operator"
    )]
    pub fn new(ordinal: usize, stream: Arc<CudaStream>, quick: bool) -> Result<Self, Error> {
        let device = Device::cuda(ordinal)?;
        // SAFETY: all work is on one stream, and all memory outlives it.
        unsafe { device.context().disable_event_tracking() };
        let l2 = device
            .context()
            .attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)
            .map_err(driver_error("cuDeviceGetAttribute"))?;
        let clock = Clock::new(stream, usize::try_from(l2).unwrap_or(0))?;
        let large = Addition::new(&clock.stream, LARGE[usize::from(quick)])?;
        Ok(Self {
            device,
            clock,
            large,
            quick,
            rates: None,
        })
    }

    /// Operations a second of a large product of matrices.
    fn product_rate(&mut self, dtype: Dtype, rounds_to_tf32: bool) -> Result<f64, Error> {
        let side = if self.quick { 512 } else { 8192 };
        let mut product = Product::new(
            &self.device,
            &self.clock.stream,
            side,
            dtype,
            rounds_to_tf32,
        )?;
        let flops = 2.0 * (side as f64).powi(3);
        // The first run chooses and loads the kernel.
        product.run()?;
        let rounds = if self.quick { 1 } else { 4 };
        let seconds = (0..rounds).map(|_| self.clock.seconds(|_| product.run()));
        Ok(flops / median(seconds.collect::<Result<_, _>>()?))
    }

    /// Seconds of the GPU for a call on a single multivector.
    fn call_seconds(&mut self) -> Result<f64, Error> {
        let case = Case::tiny();
        let stream = self.clock.stream.clone();
        let mut buffers = OnGpu::new(&self.device, &stream, &case)?;
        buffers.run(case.passes)?;
        let graph = captured(&case.name(), &stream, || buffers.run(case.passes))?;
        let calls = (0..10).map(|_| self.clock.seconds(|_| Ok(graph.launch()?)));
        Ok(median(calls.collect::<Result<_, _>>()?))
    }

    /// Wall seconds of one run, out of many in a row.
    fn wall<E: From<Error>>(
        &self,
        effort: Effort,
        mut run: impl FnMut() -> Result<(), E>,
    ) -> Result<f64, E> {
        let times = repetitions(effort.round, || {
            run()?;
            Ok::<(), E>(self.clock.wait()?)
        })?;
        let begun = Instant::now();
        for _ in 0..times {
            run()?;
        }
        self.clock.wait()?;
        Ok(begun.elapsed().as_secs_f64() / times as f64)
    }

    /// The bytes a second of one large addition.
    fn stream_rate(&mut self) -> Result<f64, Error> {
        let large = &mut self.large;
        let bytes = large.bytes() as f64;
        Ok(bytes / self.clock.seconds(|stream| large.run(stream))?)
    }

    /// The rates, measured at the first call.
    fn rates_of_this_run(&mut self) -> Result<Rates, Error> {
        match self.rates {
            Some(rates) => Ok(rates),
            None => self.rates(),
        }
    }
}

impl Target for Gpu {
    /// A GPU does nothing else meanwhile, and making the tensors takes longer than timing them.
    fn sweeps(&self) -> usize {
        1
    }

    fn kind(&self) -> Result<Kind, Error> {
        kind(&self.device)
    }

    fn rates(&mut self) -> Result<Rates, Error> {
        let rounds = if self.quick { 3 } else { 15 };
        let [mut copies, mut adds] = [const { Vec::new() }; 2];
        for _ in 0..rounds {
            let large = &mut self.large;
            let bytes = large.bytes() as f64;
            copies.push(bytes * 2.0 / 3.0 / self.clock.seconds(|stream| large.copy(stream))?);
            adds.push(bytes / self.clock.seconds(|stream| large.run(stream))?);
        }
        let rates = Rates {
            copy_bytes: median(copies),
            add_bytes: median(adds),
            flops_f32: self.product_rate(Dtype::F32, false)?,
            flops_f64: self.product_rate(Dtype::F64, false)?,
            flops_tf32: Some(self.product_rate(Dtype::F32, true)?),
            flops_bf16: Some(self.product_rate(Dtype::Bf16, false)?),
            flops_f16: Some(self.product_rate(Dtype::F16, false)?),
            call_seconds: self.call_seconds()?,
        };
        self.rates = Some(rates);
        Ok(rates)
    }

    fn floor_seconds(&mut self, bytes: usize) -> Result<f64, Error> {
        let launch = self.rates_of_this_run()?.call_seconds;
        let mut floor = Addition::new(&self.clock.stream, bytes)?;
        let share = bytes as f64 / floor.bytes() as f64;
        let rounds = if self.quick { 1 } else { 9 };
        let runs = (0..rounds).map(|_| self.clock.seconds(|stream| floor.run(stream)));
        let seconds = median(runs.collect::<Result<_, _>>()?);
        Ok((seconds - launch.min(seconds)) * share)
    }

    fn check_room(&self, case: &Case) -> Result<(), Error> {
        let wanted = case.memory()?;
        let available = u128::from(self.device.available_memory()?);
        match wanted <= available {
            true => Ok(()),
            false => Err(memory::no_room(case.name(), wanted, Some(available), remedy()).into()),
        }
    }

    fn buffers(&self, case: &Case) -> Result<Box<dyn Buffers>, Error> {
        let stream = &self.clock.stream;
        Ok(Box::new(OnGpu::new(&self.device, stream, case)?))
    }

    fn repeat<E: From<Error> + std::fmt::Display>(
        &mut self,
        calls: &[Call],
        effort: Effort,
        work: impl FnMut() -> Result<(), E>,
    ) -> Result<(Repeat, Option<String>), E> {
        self.beside(calls, effort, work)
    }
}

/// The kind of a GPU.
///
/// # Errors
/// The errors of the library.
pub fn kind(device: &Device) -> Result<Kind, Error> {
    let (major, minor) = device.compute_capability();
    Ok(Kind {
        device: "cuda".to_owned(),
        processor: device.name()?,
        architecture: format!("sm_{major}{minor}"),
        widest_simd: "none".to_owned(),
        threads: 1,
    })
}

/// Work of a case as a graph. It must have run before.
fn captured(
    case: &str,
    stream: &Arc<CudaStream>,
    work: impl FnOnce() -> Result<(), Error>,
) -> Result<Graph, Error> {
    Graph::capture(stream, work).map_err(|error| match error {
        CaptureError::Cuda(error) => error.into(),
        CaptureError::Work(error) => error,
        other => Error::NotCaptured {
            case: case.to_owned(),
            reason: other.to_string(),
        },
    })
}

/// As many channels and rows as make a square product of matrices in an algebra of two blades.
fn square_product(side: usize) -> Dims {
    Dims {
        batch: side / 2,
        in_channels: side,
        out_channels: side,
        scalar_channels: 0,
    }
}
