//! Resident data, the order of the batches, and the losses of the steps.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use candle_core::{DType, Device, Storage, Tensor};

#[cfg(feature = "cuda")]
use super::gpu::OnGpu;
use crate::Error;
use crate::op::{Scalar, in_place};
use crate::optim::number;

/// Data on a device, from which each step takes the next batch, and the losses of the steps.
///
/// The host gives the order of the samples for some steps at once ([`Feed::load`]), and reads the losses of all of them at once
/// ([`Feed::losses`]). In between a GPU needs nothing of the host. Clones share all of it.
#[derive(Clone, Debug)]
pub struct Feed {
    inner: Rc<Inner>,
}

#[derive(Debug)]
struct Inner {
    tensors: Vec<Tensor>,
    rows: usize,
    capacity: usize,
    /// The steps whose order is loaded.
    loaded: Cell<usize>,
    /// The steps since the order was loaded.
    done: Cell<usize>,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Cpu {
        order: RefCell<Vec<u32>>,
        losses: RefCell<Vec<f32>>,
        /// The batch, which each step overwrites.
        batch: RefCell<Option<Rc<[Tensor]>>>,
    },
    #[cfg(feature = "cuda")]
    Gpu(Box<OnGpu>),
}

impl Feed {
    /// Batches of `rows` samples of tensors `[samples, ...]` on one device. At most `capacity` steps are loaded at once.
    ///
    /// # Errors
    /// Tensors of different numbers of samples, types other than `f32` and `f64`, or different devices; no tensor, no row, no capacity.
    pub fn new(tensors: Vec<Tensor>, rows: usize, capacity: usize) -> Result<Self, Error> {
        let shape = |expected: &str, got: &[usize]| Error::Shape {
            tensor: "data of a feed".to_owned(),
            expected: expected.to_owned(),
            got: got.to_vec(),
        };
        let Some(first) = tensors.first() else {
            return Err(shape("at least one tensor", &[]));
        };
        let samples = first.dims().first().copied().unwrap_or(0);
        if samples == 0 || rows == 0 || capacity == 0 || u32::try_from(samples).is_err() {
            let expected = "1 to 2^32 - 1 samples, at least one row and one step";
            return Err(shape(expected, &[samples, rows, capacity]));
        }
        let device = first.device().clone();
        let mut own = Vec::with_capacity(tensors.len());
        for (input, tensor) in tensors.iter().enumerate() {
            if tensor.dims().first() != Some(&samples) {
                return Err(shape(&format!("[{samples}, ...]"), tensor.dims()));
            }
            if !matches!(tensor.dtype(), DType::F32 | DType::F64) {
                return Err(Error::InputType {
                    operator: "feed".to_owned(),
                    input,
                    expected: "F32 or F64",
                    got: tensor.dtype(),
                });
            }
            if !tensor.device().same_device(&device) {
                return Err(Error::InputDevice {
                    operator: "feed".to_owned(),
                    input,
                    expected: "the device of input 0",
                    got: tensor.device().location(),
                });
            }
            own.push(tensor.detach().contiguous()?);
        }
        let inner = Inner {
            place: Place::new(&device, rows, capacity)?,
            tensors: own,
            rows,
            capacity,
            loaded: Cell::new(0),
            done: Cell::new(0),
        };
        Ok(Self {
            inner: Rc::new(inner),
        })
    }

    /// The data. A change of their elements changes the elements of later batches too.
    pub fn tensors(&self) -> &[Tensor] {
        &self.inner.tensors
    }

    /// The samples of a batch.
    pub fn rows(&self) -> usize {
        self.inner.rows
    }

    /// The most steps that are loaded at once.
    pub fn capacity(&self) -> usize {
        self.inner.capacity
    }

    /// The device of the data.
    pub fn device(&self) -> &Device {
        self.inner.tensors[0].device()
    }

    /// Sets the samples of the next steps, [`rows`](Self::rows) for each, and forgets the losses of earlier ones.
    ///
    /// # Errors
    /// A number of samples that is not that of 1 to [`capacity`](Self::capacity) steps, or a sample that does not exist. Nothing is
    /// then changed.
    pub fn load(&self, order: &[u32]) -> Result<(), Error> {
        let steps = order.len() / self.inner.rows;
        if !(1..=self.inner.capacity).contains(&steps)
            || !order.len().is_multiple_of(self.inner.rows)
        {
            return Err(Error::Shape {
                tensor: "order of a feed".to_owned(),
                expected: format!(
                    "{} samples for each of 1 to {} steps",
                    self.inner.rows, self.inner.capacity
                ),
                got: vec![order.len()],
            });
        }
        let samples = self.inner.tensors[0].dims()[0];
        if let Some(&got) = order.iter().find(|&&place| place as usize >= samples) {
            return Err(Error::Shape {
                tensor: "order of a feed".to_owned(),
                expected: format!("samples below {samples}"),
                got: vec![got as usize],
            });
        }
        match &self.inner.place {
            Place::Cpu {
                order: own, losses, ..
            } => {
                own.borrow_mut().clear();
                own.borrow_mut().extend_from_slice(order);
                losses.borrow_mut().clear();
                losses.borrow_mut().reserve(steps);
            }
            #[cfg(feature = "cuda")]
            Place::Gpu(gpu) => gpu.load(order)?,
        }
        self.inner.loaded.set(steps);
        self.inner.done.set(0);
        Ok(())
    }

    /// The losses of the steps since the order was loaded. On a GPU the call waits for them.
    ///
    /// # Errors
    /// The errors of candle.
    pub fn losses(&self) -> Result<Vec<f32>, Error> {
        match &self.inner.place {
            Place::Cpu { losses, .. } => Ok(losses.borrow().clone()),
            #[cfg(feature = "cuda")]
            Place::Gpu(gpu) => gpu.losses(self.inner.done.get()),
        }
    }

    /// Checks that the order of one more step is loaded.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.inner.done.get() < self.inner.loaded.get() {
            return Ok(());
        }
        Err(Error::Shape {
            tensor: "order of a feed".to_owned(),
            expected: "the samples of one more step; load them".to_owned(),
            got: vec![self.inner.loaded.get()],
        })
    }

    /// The batch of the next step, one tensor `[rows, ...]` for each of the data.
    pub(super) fn batch(&self) -> Result<Rc<[Tensor]>, Error> {
        match &self.inner.place {
            Place::Cpu { order, batch, .. } => {
                let (tensors, rows) = (&self.inner.tensors, self.inner.rows);
                let start = self.inner.done.get() * rows;
                let order = &order.borrow()[start..start + rows];
                let known = batch.borrow().clone();
                let own = match known {
                    Some(own) => own,
                    None => batch.borrow_mut().insert(room(tensors, rows)?).clone(),
                };
                for (from, to) in tensors.iter().zip(&*own) {
                    match from.dtype() {
                        DType::F64 => gather::<f64>(from, order, to)?,
                        _ => gather::<f32>(from, order, to)?,
                    }
                }
                Ok(own)
            }
            #[cfg(feature = "cuda")]
            Place::Gpu(gpu) => Ok(gpu.batch(&self.inner.tensors, self.inner.rows)?.into()),
        }
    }

    /// Notes the loss of a step, and goes on to the next batch.
    pub(super) fn record(&self, loss: &Tensor) -> Result<(), Error> {
        if loss.elem_count() != 1 {
            return Err(Error::Shape {
                tensor: "loss".to_owned(),
                expected: "one element".to_owned(),
                got: loss.dims().to_vec(),
            });
        }
        match &self.inner.place {
            Place::Cpu { losses, .. } => losses.borrow_mut().push(number(loss)? as f32),
            #[cfg(feature = "cuda")]
            Place::Gpu(gpu) => {
                gpu.record(&loss.detach().flatten_all()?.to_dtype(DType::F32)?)?;
            }
        }
        Ok(())
    }

    /// Counts a step that has run.
    pub(super) fn count(&self) {
        self.inner.done.set(self.inner.done.get() + 1);
    }

    /// The part on a GPU.
    #[cfg(feature = "cuda")]
    pub(super) fn gpu(&self) -> Option<&OnGpu> {
        match &self.inner.place {
            Place::Cpu { .. } => None,
            Place::Gpu(gpu) => Some(gpu),
        }
    }
}

impl Place {
    fn new(device: &Device, rows: usize, capacity: usize) -> Result<Self, Error> {
        match device {
            Device::Cpu => Ok(Self::Cpu {
                order: RefCell::new(Vec::with_capacity(rows.saturating_mul(capacity.min(64)))),
                losses: RefCell::new(Vec::with_capacity(capacity.min(64))),
                batch: RefCell::new(None),
            }),
            #[cfg(feature = "cuda")]
            Device::Cuda(device) => Ok(Self::Gpu(Box::new(OnGpu::new(device, rows, capacity)?))),
            other => Err(Error::InputDevice {
                operator: "feed".to_owned(),
                input: 0,
                expected: "the CPU or a CUDA device",
                got: other.location(),
            }),
        }
    }
}

/// Tensors for a batch of so many rows on the CPU.
fn room(tensors: &[Tensor], rows: usize) -> Result<Rc<[Tensor]>, Error> {
    let of = |tensor: &Tensor| {
        let mut shape = tensor.dims().to_vec();
        shape[0] = rows;
        Tensor::zeros(shape, tensor.dtype(), &Device::Cpu)
    };
    let room = tensors.iter().map(of);
    Ok(room.collect::<candle_core::Result<_>>()?)
}

/// Copies some samples of contiguous data to a batch.
fn gather<T: Scalar>(from: &Tensor, order: &[u32], to: &Tensor) -> Result<(), Error> {
    let (storage, layout) = from.storage_and_layout();
    let (Storage::Cpu(storage), Some((start, end))) = (&*storage, layout.contiguous_offsets())
    else {
        return Err(candle_core::Error::RequiresContiguous { op: "feed" }.into());
    };
    let from = &T::cpu_storage_as_slice(storage)?[start..end];
    in_place::change(to, |to: &mut [T]| {
        let len = to.len() / order.len().max(1);
        if len > 0 {
            for (to, &sample) in to.chunks_exact_mut(len).zip(order) {
                to.copy_from_slice(&from[sample as usize * len..][..len]);
            }
        }
    })
}
