//! The pool from which a device allocates memory in the order of its streams.

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{
    self as driver, CUgraphMem_attribute, CUmemPool_attribute, CUmemoryPool,
};

use super::device::Device;
use super::fault;
use crate::Error;

/// The bytes that the pools of a device hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolMemory {
    /// The bytes in use now, outside of graphs.
    pub used: u64,
    /// The most that was used at once, outside of graphs.
    pub used_peak: u64,
    /// The most that the pool held at once, with what was free in it.
    pub reserved_peak: u64,
    /// The most that graphs used at once.
    pub graph_used_peak: u64,
    /// The most that was held for graphs at once.
    pub graph_reserved_peak: u64,
}

impl Device {
    /// Lets the default pool of the device keep memory that is freed, instead of giving it back whenever a stream is waited for: so the
    /// pool is sized once. It holds for the whole process.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn keep_pool(&self) -> Result<(), Error> {
        let pool = self.pool()?;
        let mut bytes = u64::MAX;
        let attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        // SAFETY: the pool lives as long as the device, and the attribute is a number of 64 bits.
        let set =
            unsafe { driver::cuMemPoolSetAttribute(pool, attribute, (&raw mut bytes).cast()) };
        set.result().map_err(fault::driver("cuMemPoolSetAttribute"))
    }

    /// Makes [`PoolMemory::used_peak`] and [`PoolMemory::graph_used_peak`] begin anew, at what is in use now.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn reset_pool_peak(&self) -> Result<(), Error> {
        let pool = self.pool()?;
        let mut zero = 0_u64;
        let attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH;
        // SAFETY: the pool lives as long as the device, and the attribute is a number of 64 bits, which may be set to 0.
        let set = unsafe { driver::cuMemPoolSetAttribute(pool, attribute, (&raw mut zero).cast()) };
        set.result()
            .map_err(fault::driver("cuMemPoolSetAttribute"))?;
        let attribute = CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH;
        // SAFETY: the attribute is a number of 64 bits, which may be set to 0.
        let set = unsafe {
            let device = self.context().cu_device();
            driver::cuDeviceSetGraphMemAttribute(device, attribute, (&raw mut zero).cast())
        };
        set.result()
            .map_err(fault::driver("cuDeviceSetGraphMemAttribute"))
    }

    /// The bytes that the default pool of the device, and the graphs on it, have held since the process began.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn pool_memory(&self) -> Result<PoolMemory, Error> {
        let pool = self.pool()?;
        let of_pool = |attribute| bytes(pool, attribute);
        let of_graphs = |attribute| {
            let mut bytes = 0_u64;
            // SAFETY: the attribute is a number of 64 bits.
            let got = unsafe {
                let device = self.context().cu_device();
                driver::cuDeviceGetGraphMemAttribute(device, attribute, (&raw mut bytes).cast())
            };
            got.result()
                .map_err(fault::driver("cuDeviceGetGraphMemAttribute"))?;
            Ok::<u64, Error>(bytes)
        };
        Ok(PoolMemory {
            used: of_pool(CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?,
            used_peak: of_pool(CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH)?,
            reserved_peak: of_pool(CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)?,
            graph_used_peak: of_graphs(CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)?,
            graph_reserved_peak: of_graphs(
                CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH,
            )?,
        })
    }

    fn pool(&self) -> Result<CUmemoryPool, Error> {
        default(self.context())
    }
}

/// The default pool of the device of a context.
pub(super) fn default(context: &CudaContext) -> Result<CUmemoryPool, Error> {
    let bound = context.bind_to_thread();
    bound.map_err(fault::driver("cuCtxSetCurrent"))?;
    let mut pool = std::ptr::null_mut();
    // SAFETY: the pointer is valid, and the device exists.
    let got = unsafe { driver::cuDeviceGetDefaultMemPool(&raw mut pool, context.cu_device()) };
    got.result()
        .map_err(fault::driver("cuDeviceGetDefaultMemPool"))?;
    Ok(pool)
}

/// A number of bytes of a pool.
pub(super) fn bytes(pool: CUmemoryPool, attribute: CUmemPool_attribute) -> Result<u64, Error> {
    let mut bytes = 0_u64;
    // SAFETY: the pool lives as long as its device, and the attributes of bytes are numbers of 64 bits.
    let got = unsafe { driver::cuMemPoolGetAttribute(pool, attribute, (&raw mut bytes).cast()) };
    got.result()
        .map_err(fault::driver("cuMemPoolGetAttribute"))?;
    Ok(bytes)
}
