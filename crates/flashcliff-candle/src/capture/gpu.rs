//! The part of a feed on a GPU, and the capture of a step.

use std::cell::RefCell;

use candle_core::backend::BackendDevice;
use candle_core::{CudaDevice, CudaStorage, DType, Shape, Storage, Tensor};
use flashcliff::cuda::cudarc::driver::CudaSlice;
use flashcliff::cuda::{self, Graph};

use super::feed::Feed;
use super::step::Fallback;
use crate::Error;
use crate::op::gpu::{library, memory};
use crate::op::node;

/// The order, the losses and the number of the step, in device memory that stays where it is.
#[derive(Debug)]
pub(super) struct OnGpu {
    device: CudaDevice,
    order: RefCell<CudaSlice<u32>>,
    losses: RefCell<CudaStorage>,
    step: RefCell<CudaSlice<u32>>,
    capacity: usize,
}

impl OnGpu {
    pub(super) fn new(device: &CudaDevice, rows: usize, capacity: usize) -> Result<Self, Error> {
        let places = rows.checked_mul(capacity).ok_or_else(|| Error::Shape {
            tensor: "order of a feed".to_owned(),
            expected: "a number of samples that fits the address space".to_owned(),
            got: vec![rows, capacity],
        })?;
        Ok(Self {
            order: RefCell::new(device.alloc_zeros(places)?),
            losses: RefCell::new(device.zeros_impl(&Shape::from(capacity), DType::F32)?),
            step: RefCell::new(device.alloc_zeros(1)?),
            device: device.clone(),
            capacity,
        })
    }

    pub(super) fn load(&self, order: &[u32]) -> Result<(), Error> {
        let mut own = self.order.borrow_mut();
        self.device
            .memcpy_htod(order, &mut own.slice_mut(..order.len()))?;
        Ok(self
            .device
            .memcpy_htod(&[0], &mut *self.step.borrow_mut())?)
    }

    pub(super) fn losses(&self, count: usize) -> Result<Vec<f32>, Error> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let losses = self.losses.borrow();
        Ok(self
            .device
            .clone_dtoh(&losses.as_cuda_slice::<f32>()?.slice(..count))?)
    }

    /// The next batch of each tensor, in new memory.
    pub(super) fn batch(&self, tensors: &[Tensor], rows: usize) -> Result<Vec<Tensor>, Error> {
        let device = library::device(&self.device)?;
        let (order, step) = (self.order.borrow(), self.step.borrow());
        memory::with_views(tensors, |views| {
            let batches = tensors.iter().zip(views).map(|(tensor, view)| {
                let mut shape = tensor.dims().to_vec();
                shape[0] = rows;
                let len = shape.iter().product();
                let mut batch = memory::allocate(&self.device, view.dtype(), len)?;
                cuda::gather(
                    &device,
                    &self.device.cuda_stream(),
                    view.tensor(tensor.dims())?,
                    memory::writable(&mut batch, len)?.tensor(&shape)?,
                    &*order,
                    &*step,
                )?;
                Ok(node::constant(Storage::Cuda(batch), &shape))
            });
            batches.collect()
        })
    }

    pub(super) fn record(&self, loss: &Tensor) -> Result<(), Error> {
        let mut losses = self.losses.borrow_mut();
        memory::with_views(std::slice::from_ref(loss), |views| {
            cuda::record(
                &library::device(&self.device)?,
                &self.device.cuda_stream(),
                views[0].tensor(&[1])?,
                memory::writable(&mut losses, self.capacity)?.tensor(&[self.capacity])?,
                &mut *self.step.borrow_mut(),
            )?;
            Ok(())
        })
    }

    /// Whether the memory of the device can be captured.
    pub(super) fn check(&self) -> Result<(), Fallback> {
        match self.device.cuda_stream().context().is_event_tracking() {
            true => Err(Fallback::Tracked),
            false => Ok(()),
        }
    }

    /// Runs a step with candle's uploads kept for the capture.
    pub(super) fn warm<T>(&self, step: impl FnOnce() -> T) -> T {
        let _kept = self.device.enable_cuda_graph_htod_cache();
        step()
    }

    /// Records a step of a feed without running it.
    pub(super) fn capture(
        &self,
        step: impl FnOnce() -> Result<(), Error>,
    ) -> Result<Graph, Fallback> {
        let _kept = self.device.enable_cuda_graph_htod_cache();
        let graph = Graph::capture(&self.device.cuda_stream(), step);
        graph.map_err(|error| Fallback::Failed(error.to_string()))
    }
}

impl Feed {
    /// The bytes that the pools of the GPU have held; `None` on the CPU.
    ///
    /// # Errors
    /// The errors of [`flashcliff::Device::pool_memory`].
    pub fn pool_memory(&self) -> Result<Option<cuda::PoolMemory>, Error> {
        match self.gpu() {
            None => Ok(None),
            Some(gpu) => Ok(Some(library::device(&gpu.device)?.pool_memory()?)),
        }
    }
}
