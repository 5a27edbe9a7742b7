//! The part of a feed on a GPU, and the capture of a step.

use std::cell::RefCell;

use candle_core::backend::BackendDevice;
use candle_core::{CudaDevice, CudaStorage, DType, Shape, Storage, Tensor};
use flashcliff::cuda::cudarc::driver::CudaSlice;
use flashcliff::cuda::{self, Graph, TensorMut};

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
    /// The batch of each tensor, from the first one on.
    batch: RefCell<Vec<Tensor>>,
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
            batch: RefCell::new(Vec::new()),
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

    /// The next batch of each tensor, in the memory of the batch before.
    pub(super) fn batch(&self, tensors: &[Tensor], rows: usize) -> Result<Vec<Tensor>, Error> {
        let device = library::device(&self.device)?;
        let stream = self.device.cuda_stream();
        let mut batch = self.batch.borrow_mut();
        if batch.is_empty() {
            for tensor in tensors {
                let mut shape = tensor.dims().to_vec();
                shape[0] = rows;
                let zeros = self.device.zeros_impl(&shape[..].into(), tensor.dtype())?;
                batch.push(node::constant(Storage::Cuda(zeros), &shape));
            }
        }
        let (order, step) = (self.order.borrow(), self.step.borrow());
        memory::with_views(tensors, |from| {
            memory::with_views(&batch, |to| {
                for ((from, to), (whole, part)) in
                    from.iter().zip(to).zip(tensors.iter().zip(batch.iter()))
                {
                    #[allow(
                        unsafe_code,
                        reason = "candle lends the memory of a tensor for reading only"
                    )]
                    // SAFETY: the tensor is alive and locked for reading, so its memory stays, and has the elements of its shape. All
                    // work on it is launched on this stream, so the copy comes after earlier work and before later work.
                    let to = unsafe {
                        let address = to.address(&stream);
                        TensorMut::from_raw(address, to.dtype(), part.dims(), device.ordinal())?
                    };
                    let from = from.tensor(whole.dims())?;
                    cuda::gather(&device, &stream, from, to, &*order, &*step)?;
                }
                Ok(())
            })
        })?;
        Ok(batch.clone())
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
