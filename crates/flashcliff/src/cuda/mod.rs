//! The operators on NVIDIA GPUs. Needs the feature `cuda`.
//!
//! [`Device`] finds a GPU, or says why there is none; [`crate::Operator::on_cuda`] gives the
//! [`Operator`] of a device, which runs forward and backward on borrowed views of device memory
//! ([`Tensor`], [`TensorMut`], [`Scratch`]). Memory, streams and graphs are [`cudarc`]'s, or those
//! of a host that has its own ([`Tensor::from_raw`], [`Operator::forward_raw`]): an [`Address`] and a [`RawStream`].
//!
//! ```no_run
//! use flashcliff::cuda::{Array, Device};
//! use flashcliff::{Algebra, ProductKind, Signature, ops};
//!
//! let algebra = Algebra::new(Signature::new(3, 0, 0)?)?;
//! let device = Device::cuda(0)?;
//! let op = ops::product(algebra, ProductKind::Geometric, None, None)?.on_cuda(&device)?;
//! let stream = device.default_stream();
//! let x = Array::from_host(&stream, &[0.5_f32; 8 * 2 * 5], &[8, 2, 5])?;
//! let evaluation = op.evaluate(&stream, &[x.view()?, x.view()?])?;
//! let output: Vec<f32> = evaluation.output.to_host(&stream)?;
//! # Ok::<(), flashcliff::Error>(())
//! ```
//!
//! # Kernels
//! A build has kernels of the algebras that its features and `FLASHCLIFF_ALGEBRAS` name, for some pairs of grades.
//! The feature `jit` compiles all others with NVRTC when they are first used, in [`Operator::prepare`] or in the
//! first call, and keeps them in the folder `kernels` of `$FLASHCLIFF_CACHE_DIR` or of `~/.cache/flashcliff`. Without
//! it they are [`UnsupportedOnCuda`](crate::Error::UnsupportedOnCuda).
//! [`Algebra::interpreted`](crate::Algebra::interpreted) leaves the kernels of the build out, so with `jit` its
//! operators are compiled too.
//!
//! # Element types
//! `f32`, `bf16` and `f16` are computed in `f32`, `f64` in `f64`. The lane tensors of a call (those
//! with a batch axis, and the output) share one type; its parameters share one, which may also be
//! `f32` for 16-bit lanes. A gradient has the type of its tensor.
//!
//! # Launches
//! A pass checks everything before it launches anything. It allocates no device memory, never synchronises, and can be
//! captured into a CUDA graph once [`Operator::prepare`] has run; operators with matrix products also need one call
//! before the capture. cudarc must not track captured memory by events, because these stem from outside of the capture:
//! use views made by `from_raw`, or memory of a context whose event tracking is off.
//!
//! # Determinism
//! Results are the same bit for bit from run to run on one GPU model, with one version of cuBLASLt, one [tuning
//! table](tuning) and the same [`with_block_bytes`](Operator::with_block_bytes), for tensors of equal shape and
//! alignment. There are no float atomics.

// What another kind of GPU would replace, from what depends on nothing to what depends on all:
//
// * devices, memory, streams, graphs, launches: `library`, `device`, `pool`, `memory`, `queue`, `graph`, `fault`, `launches`
// * matrix products: `matmul`, `matrix`, `block_sparse`
// * kernels: `jit`, `call`, and `flashcliff-sys` below it
// * an operator: the `cuda` of its folder in `crate::operator`, which uses these; graphs of operators use `operator` too
// * functions beside operators: `adam`, `attention`, `chains`, `dropout`, `items`, `messages`, `network`, `rows`, `segments`, `steps`
//
// `operator`, `check`, `spans`, `tensor`, `room` and `packing` check, count and order, and ask the rest.

mod adam;
mod array;
pub mod attention;
pub mod block_sparse;
pub(crate) mod call;
#[cfg(feature = "jit")]
pub mod chains;
mod check;
pub(crate) mod device;
pub mod dropout;
pub(crate) mod dtype;
pub(crate) mod fault;
mod graph;
pub mod items;
#[cfg(feature = "jit")]
pub(crate) mod jit;
pub mod launches;
mod library;
pub(crate) mod matmul;
pub mod matrix;
mod memory;
#[cfg(feature = "jit")]
pub mod messages;
pub mod network;
pub(crate) mod operator;
mod packing;
mod pool;
pub(crate) mod queue;
mod room;
pub mod rows;
pub mod segments;
pub(crate) mod spans;
mod steps;
pub(crate) mod tensor;
pub mod tuning;

pub use adam::{
    Adam, AdamGroup, AdamList, AdamMember, AdamParameter, AdamRate, AdamRule, AdamSettings,
    AdamState, LossScaling, ScheduleShape,
};
pub use array::Array;
pub use cudarc;
pub use device::Device;
pub use dtype::{DeviceElement, Dtypes};
pub use fault::driver as driver_error;
pub use graph::{CaptureError, Graph, Nodes};
pub use half;
pub use library::load_library;
pub use memory::{Address, Memory, MemoryMut};
pub(crate) use operator::OnCuda;
pub use operator::{Evaluation, Operator, StridedTensor, StridedWorkspace, WideTensors};
pub use packing::{
    JoinedBackward, JoinedForward, MOST_JOINED, Packed, PackedBackward, PackedGradient, Packing,
    join,
};
pub use pool::PoolMemory;
pub use queue::RawStream;
pub use room::{SizedCall, refused as allocation_error};
pub use steps::{gather, record};
pub use tensor::{Scratch, Tensor, TensorMut};

pub use crate::tuning_table::MatmulPrecision;
