//! The memory of a stage.

use std::sync::Arc;

use flashcliff::cuda::allocation_error;
use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;
use flashcliff::cuda::cudarc::driver::{CudaSlice, CudaStream, DevicePtr};

use super::Gpu;
use super::room::Room;
use crate::{Error, Network};

/// The memory of a stage besides what is kept. A captured step has it for as long as it is replayed; else it may be
/// dropped when a run is launched.
#[derive(Debug)]
pub struct Memory {
    /// The network of the plan, which no other plan has, and the stage.
    pub(super) network: Arc<Network>,
    pub(super) stage: usize,
    pub(super) parts: Parts,
    /// The memory itself, unless a host lent it.
    _owned: Option<CudaSlice<u8>>,
}

/// A part of the memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) address: CUdeviceptr,
    pub(super) bytes: usize,
}

/// The parts of the memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    pub(super) arena: Part,
    /// Packed weights and the parts of their gradients.
    pub(super) packed: Part,
    /// The workspace of each line.
    pub(super) workspaces: [Part; 2],
}

impl Gpu {
    /// The bytes of the memory of a stage.
    pub fn memory_bytes(&self, stage: usize) -> usize {
        Room::new(self.parts_bytes(stage)).bytes()
    }

    /// The bytes of the arena, of packed weights, and of the workspace of each line.
    fn parts_bytes(&self, stage: usize) -> [usize; 4] {
        let [line, beside] = self.stages[stage].workspace_bytes;
        let (arena, packed) = (self.plan.stage_bytes(stage), self.packed_bytes(stage));
        [arena, packed, line, beside]
    }

    fn parts(&self, stage: usize, address: CUdeviceptr) -> Parts {
        let bytes = self.parts_bytes(stage);
        let addresses = Room::new(bytes).at(address);
        let [arena, packed, line, beside] = std::array::from_fn(|part| Part {
            address: addresses[part],
            bytes: bytes[part],
        });
        Parts {
            arena,
            packed,
            workspaces: [line, beside],
        }
    }

    /// Takes the memory of a stage in the order of a stream. It is cleared for a plan of one stage, whose zeros stay from run to run.
    ///
    /// # Errors
    /// [`flashcliff::Error::OutOfMemory`], [`flashcliff::Error::Cuda`].
    pub fn allocate(&self, stage: usize, stream: &Arc<CudaStream>) -> Result<Memory, Error> {
        self.tables()?;
        // An allocation of no bytes is an error for some drivers.
        let bytes = self.memory_bytes(stage).max(1);
        let owned = match self.plan.is_whole() {
            true => stream.alloc_zeros::<u8>(bytes),
            // SAFETY: any bits are a byte, and calls write memory before they read it.
            false => unsafe { stream.alloc::<u8>(bytes) },
        };
        let owned = owned.map_err(|error| Error::Core(allocation_error(stream, bytes)(error)))?;
        let address = owned.device_ptr(stream).0;
        Ok(self.memory(stage, address, Some(owned)))
    }

    /// Uses memory of a host for a stage of a plan of several: as many bytes as [`Self::memory_bytes`] says. What is in it does not matter.
    ///
    /// # Errors
    /// [`Error::OtherPlan`] for a plan of one stage, whose memory is its own.
    ///
    /// # Safety
    /// The address is that of so many bytes on the device of the plan, aligned to 256. They stay allocated until the
    /// work of all runs with the memory is done, and nothing else uses them meanwhile, but for work in the order of
    /// the stream.
    pub unsafe fn lend(&self, stage: usize, address: CUdeviceptr) -> Result<Memory, Error> {
        if self.plan.is_whole() {
            return Err(Error::OtherPlan {
                expected: "several stages".to_owned(),
                got: "one stage".to_owned(),
            });
        }
        Ok(self.memory(stage, address, None))
    }

    /// The memory of a stage at an address.
    pub(super) fn memory(
        &self,
        stage: usize,
        address: CUdeviceptr,
        owned: Option<CudaSlice<u8>>,
    ) -> Memory {
        Memory {
            network: Arc::clone(&self.plan.network),
            stage,
            parts: self.parts(stage, address),
            _owned: owned,
        }
    }
}
