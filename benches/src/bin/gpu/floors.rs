//! The floors: the time that moving the bytes takes, whatever is computed.

use std::sync::Arc;

use flashcliff::cuda::cudarc::driver::{CudaSlice, CudaStream, DevicePtr, result};

use crate::error::{Error, driver};

/// A copy that is large compared with the caches.
pub(crate) struct Copy {
    from: CudaSlice<u8>,
    to: CudaSlice<u8>,
    bytes: usize,
}

impl Copy {
    pub(crate) fn new(stream: &Arc<CudaStream>, bytes: usize) -> Result<Self, Error> {
        let memory = || stream.alloc_zeros(bytes).map_err(driver("cuMemAlloc"));
        Ok(Self {
            from: memory()?,
            to: memory()?,
            bytes,
        })
    }

    pub(crate) fn run(&self, stream: &CudaStream) -> Result<(), Error> {
        let (from, _guard) = self.from.device_ptr(stream);
        let (to, _guard) = self.to.device_ptr(stream);
        // SAFETY: both are allocations of that size, and nothing else uses them.
        let copied = unsafe { result::memcpy_dtod_async(to, from, self.bytes, stream.cu_stream()) };
        copied.map_err(driver("cuMemcpyDtoDAsync"))
    }

    /// The number of bytes that the copy moves: each byte is read and written.
    pub(crate) fn moved(&self) -> usize {
        2 * self.bytes
    }
}

/// `o = x + y` in `f32`.
pub(crate) fn add([x, y, o]: [u64; 3], len: usize, stream: &CudaStream) -> Result<(), Error> {
    let address = |ptr: u64| std::ptr::without_provenance_mut::<f32>(ptr as usize);
    // SAFETY: the addresses are of tensors of that many elements, which only this stream uses.
    let code = unsafe {
        let (x, y, o) = (address(x), address(y), address(o));
        flashcliff_sys::fc_add_f32(x, y, o, len as i64, stream.cu_stream().cast())
    };
    match code {
        0 => Ok(()),
        code => Err(Error::Kernel {
            call: "fc_add_f32",
            code,
        }),
    }
}
