//! Borrowed views of device memory.

use std::fmt;

use cudarc::driver::{CudaStream, DeviceSlice, SyncOnDrop};

use super::dtype::DeviceElement;
use super::memory::{Memory, MemoryMut, access};
use super::queue::Queue;
use crate::cuda::Address;
use crate::tensor::Shape;
use crate::{Dtype, Error};

/// The type, shape and device of a tensor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) dtype: Dtype,
    pub(super) shape: Shape,
    /// The elements of the shape.
    pub(super) len: usize,
    pub(super) ordinal: usize,
}

impl Layout {
    fn of<T: DeviceElement>(memory: &impl DeviceSlice<T>, shape: &[usize]) -> Result<Self, Error> {
        Ok(Self {
            dtype: T::DTYPE,
            shape: Shape::of(shape, memory.len())?,
            len: memory.len(),
            ordinal: memory.stream().context().ordinal(),
        })
    }

    /// The layout of a tensor over memory of another element type.
    pub(super) fn over_bytes(
        memory: &impl DeviceSlice<u8>,
        dtype: Dtype,
        shape: &[usize],
    ) -> Result<Self, Error> {
        let layout = Self::of_raw(dtype, shape, memory.stream().context().ordinal())?;
        if memory.len() / dtype.bytes() < layout.len {
            return Err(Error::LengthMismatch {
                shape: shape.to_vec(),
                expected: layout.len,
                got: memory.len() / dtype.bytes(),
            });
        }
        Ok(layout)
    }

    fn of_raw(dtype: Dtype, shape: &[usize], ordinal: usize) -> Result<Self, Error> {
        let (shape, len) = Shape::new(shape)?;
        Ok(Self {
            dtype,
            shape,
            len,
            ordinal,
        })
    }

    pub(super) fn bytes(&self) -> usize {
        self.len.saturating_mul(self.dtype.bytes())
    }
}

#[derive(Clone, Copy)]
enum Source<'a> {
    Memory(&'a dyn access::Read),
    Raw(Address),
}

enum SourceMut<'a> {
    Memory(&'a mut dyn access::Write),
    Raw(Address),
}

impl SourceMut<'_> {
    fn acquire<'s>(&'s mut self, queue: &'s Queue<'_>) -> Acquired<'s> {
        match self {
            Self::Memory(memory) => {
                let (ptr, guard) = memory.write(queue.stream());
                (ptr, Some(guard))
            }
            Self::Raw(ptr) => (*ptr, None),
        }
    }
}

/// An address as the kernel library takes it.
pub(super) fn pointer<T>(address: Address) -> *mut T {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

/// An address, with the guard to drop after the launch.
pub(super) type Acquired<'s> = (Address, Option<SyncOnDrop<'s>>);

/// A contiguous tensor on a device, row-major, borrowed.
#[derive(Clone, Copy)]
pub struct Tensor<'a> {
    source: Source<'a>,
    layout: Layout,
}

impl<'a> Tensor<'a> {
    /// A tensor of `shape` over memory of cudarc, which orders the uses of that memory among
    /// streams unless its event tracking is off.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] if the memory does not fill the shape, [`Error::ShapeTooLarge`] if the number of
    /// elements does not fit the address space, or if the shape has more than 4 axes.
    pub fn new<T: DeviceElement>(
        memory: &'a impl Memory<T>,
        shape: &[usize],
    ) -> Result<Self, Error> {
        Ok(Self {
            layout: Layout::of(memory, shape)?,
            source: Source::Memory(memory),
        })
    }

    /// A tensor of `shape` at an address on device `ordinal`.
    ///
    /// # Errors
    /// [`Error::ShapeTooLarge`].
    ///
    /// # Safety
    /// `ptr` is the address, on that device, of as many elements of `dtype` as the shape has. Until the work that is
    /// launched with this tensor is done, the memory stays allocated, and nothing writes to it unless it is ordered
    /// after that work.
    pub unsafe fn from_raw(
        ptr: Address,
        dtype: Dtype,
        shape: &[usize],
        ordinal: usize,
    ) -> Result<Self, Error> {
        Ok(Self {
            layout: Layout::of_raw(dtype, shape, ordinal)?,
            source: Source::Raw(ptr),
        })
    }

    /// The first elements, in another shape.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] for a shape of more elements than there are, [`Error::ShapeTooLarge`].
    pub fn first(&self, shape: &[usize]) -> Result<Self, Error> {
        let layout = Layout::of_raw(self.layout.dtype, shape, self.layout.ordinal)?;
        if layout.len > self.layout.len {
            return Err(Error::LengthMismatch {
                shape: shape.to_vec(),
                expected: layout.len,
                got: self.layout.len,
            });
        }
        Ok(Self {
            source: self.source,
            layout,
        })
    }

    pub(super) fn over(memory: &'a dyn access::Read, layout: Layout) -> Self {
        Self {
            source: Source::Memory(memory),
            layout,
        }
    }

    /// The axes.
    pub fn shape(&self) -> &[usize] {
        self.layout.shape.as_slice()
    }

    /// The type of the elements.
    pub fn dtype(&self) -> Dtype {
        self.layout.dtype
    }

    /// The number of the tensor's device.
    pub fn ordinal(&self) -> usize {
        self.layout.ordinal
    }

    /// The address of the elements, for a kernel on a stream. The guard, if there is one, is dropped after the launch:
    /// cudarc orders the uses of its memory by it.
    pub fn address<'s>(&'s self, stream: &'s CudaStream) -> (Address, Option<SyncOnDrop<'s>>) {
        match self.source {
            Source::Memory(memory) => {
                let (ptr, guard) = memory.read(stream);
                (ptr, Some(guard))
            }
            Source::Raw(ptr) => (ptr, None),
        }
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(super) fn acquire<'s>(&'s self, queue: &'s Queue<'_>) -> Acquired<'s> {
        match self.source {
            Source::Memory(memory) => {
                let (ptr, guard) = memory.read(queue.stream());
                (ptr, Some(guard))
            }
            Source::Raw(ptr) => (ptr, None),
        }
    }
}

impl fmt::Debug for Tensor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug(f, "Tensor", &self.layout)
    }
}

/// A contiguous tensor on a device, row-major, borrowed for writing.
pub struct TensorMut<'a> {
    source: SourceMut<'a>,
    layout: Layout,
}

impl<'a> TensorMut<'a> {
    /// A tensor of `shape` over memory of cudarc.
    ///
    /// # Errors
    /// The errors of [`Tensor::new`].
    pub fn new<T: DeviceElement>(
        memory: &'a mut impl MemoryMut<T>,
        shape: &[usize],
    ) -> Result<Self, Error> {
        Ok(Self {
            layout: Layout::of(memory, shape)?,
            source: SourceMut::Memory(memory),
        })
    }

    /// A tensor of `shape` at an address on device `ordinal`.
    ///
    /// # Errors
    /// The errors of [`Tensor::from_raw`].
    ///
    /// # Safety
    /// The contract of [`Tensor::from_raw`] holds, and nothing reads the memory either unless it is ordered after the
    /// work.
    pub unsafe fn from_raw(
        ptr: Address,
        dtype: Dtype,
        shape: &[usize],
        ordinal: usize,
    ) -> Result<Self, Error> {
        Ok(Self {
            layout: Layout::of_raw(dtype, shape, ordinal)?,
            source: SourceMut::Raw(ptr),
        })
    }

    pub(super) fn over(memory: &'a mut dyn access::Write, layout: Layout) -> Self {
        Self {
            source: SourceMut::Memory(memory),
            layout,
        }
    }

    /// The axes.
    pub fn shape(&self) -> &[usize] {
        self.layout.shape.as_slice()
    }

    /// The type of the elements.
    pub fn dtype(&self) -> Dtype {
        self.layout.dtype
    }

    /// The number of the tensor's device.
    pub fn ordinal(&self) -> usize {
        self.layout.ordinal
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(super) fn acquire<'s>(&'s mut self, queue: &'s Queue<'_>) -> Acquired<'s> {
        self.source.acquire(queue)
    }
}

impl fmt::Debug for TensorMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug(f, "TensorMut", &self.layout)
    }
}

/// Device memory for intermediate results. Its contents do not matter. It must be aligned to 256 bytes, as allocations
/// are.
pub struct Scratch<'a> {
    source: SourceMut<'a>,
    bytes: usize,
    ordinal: usize,
}

impl<'a> Scratch<'a> {
    /// Uses all of some memory of cudarc.
    pub fn new<T>(memory: &'a mut impl MemoryMut<T>) -> Self {
        Self {
            bytes: memory.num_bytes(),
            ordinal: memory.stream().context().ordinal(),
            source: SourceMut::Memory(memory),
        }
    }

    /// Uses `bytes` bytes at an address on device `ordinal`.
    ///
    /// # Safety
    /// The contract of [`TensorMut::from_raw`] holds.
    pub unsafe fn from_raw(ptr: Address, bytes: usize, ordinal: usize) -> Self {
        Self {
            source: SourceMut::Raw(ptr),
            bytes,
            ordinal,
        }
    }

    /// The size of the memory in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of the device of the memory.
    pub fn ordinal(&self) -> usize {
        self.ordinal
    }

    pub(super) fn acquire<'s>(&'s mut self, queue: &'s Queue<'_>) -> Acquired<'s> {
        self.source.acquire(queue)
    }
}

impl fmt::Debug for Scratch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scratch")
            .field("bytes", &self.bytes)
            .field("ordinal", &self.ordinal)
            .finish()
    }
}

fn debug(f: &mut fmt::Formatter<'_>, name: &str, layout: &Layout) -> fmt::Result {
    f.debug_struct(name)
        .field("dtype", &layout.dtype)
        .field("shape", &layout.shape.as_slice())
        .field("ordinal", &layout.ordinal)
        .finish()
}
