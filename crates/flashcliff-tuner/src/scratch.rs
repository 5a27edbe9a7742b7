//! Device memory whose contents do not matter.

use std::sync::Arc;

use flashcliff::Error;
use flashcliff::cuda::cudarc::driver::{CudaSlice, CudaStream};
use flashcliff::cuda::driver_error;

/// Memory of at least one byte.
pub(crate) fn scratch(stream: &Arc<CudaStream>, bytes: usize) -> Result<CudaSlice<u8>, Error> {
    // An allocation of no bytes is an error for some drivers.
    let data = stream.alloc_zeros(bytes.max(1));
    data.map_err(driver_error("allocating device memory"))
}
