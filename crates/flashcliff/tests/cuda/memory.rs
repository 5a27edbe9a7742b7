//! Device memory by address, so that the tests decide where every tensor lies.

use flashcliff::cuda::Device;
use flashcliff::cuda::cudarc::driver::{CudaStream, result};

/// An allocation.
pub(crate) struct Memory {
    address: u64,
    bytes: usize,
    device: Device,
}

impl Memory {
    /// Memory of exactly this size, not initialised.
    pub(crate) fn new(device: &Device, bytes: usize) -> Self {
        device.context().bind_to_thread().expect("a context");
        // SAFETY: the context is current, and at least one byte is asked for.
        let address = unsafe { result::malloc_sync(bytes.max(1)) };
        Self {
            address: address.unwrap_or_else(|error| panic!("{bytes} bytes: {error}")),
            bytes,
            device: device.clone(),
        }
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies from host memory, in the order of the stream.
    pub(crate) fn write(&mut self, stream: &CudaStream, at: usize, data: &[u8]) {
        assert!(at + data.len() <= self.bytes, "outside of the memory");
        if data.is_empty() {
            return;
        }
        self.device.context().bind_to_thread().expect("a context");
        // SAFETY: the range is inside of the allocation; the copy of pageable memory is done on return.
        let copied = unsafe {
            result::memcpy_htod_async(self.address + at as u64, data, stream.cu_stream())
        };
        copied.expect("a copy to the device");
    }

    /// Copies to host memory, and waits for all work on the stream.
    pub(crate) fn read(&self, stream: &CudaStream, at: usize, data: &mut [u8]) {
        assert!(at + data.len() <= self.bytes, "outside of the memory");
        if !data.is_empty() {
            self.device.context().bind_to_thread().expect("a context");
            // SAFETY: the range is inside of the allocation; the borrow lasts until the stream is done.
            let copied = unsafe {
                result::memcpy_dtoh_async(data, self.address + at as u64, stream.cu_stream())
            };
            copied.expect("a copy to the host");
        }
        stream.synchronize().expect("no kernel failed");
    }

    /// Sets all bytes.
    pub(crate) fn fill(&mut self, stream: &CudaStream, byte: u8) {
        if self.bytes == 0 {
            return;
        }
        self.device.context().bind_to_thread().expect("a context");
        // SAFETY: the range is the whole allocation.
        let set =
            unsafe { result::memset_d8_async(self.address, byte, self.bytes, stream.cu_stream()) };
        set.expect("a fill");
    }

    /// Repeats the first `period` bytes to the end.
    pub(crate) fn repeat(&mut self, stream: &CudaStream, period: usize) {
        assert!(period > 0, "nothing to repeat");
        self.device.context().bind_to_thread().expect("a context");
        let mut done = period.min(self.bytes);
        while done < self.bytes {
            let bytes = done.min(self.bytes - done);
            let (from, to) = (self.address, self.address + done as u64);
            // SAFETY: both ranges are inside of the allocation, one after the other.
            let copied = unsafe { result::memcpy_dtod_async(to, from, bytes, stream.cu_stream()) };
            copied.expect("a copy on the device");
            done += bytes;
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // After a failed kernel nothing can be freed any more. The test reports that failure.
        if self.device.context().bind_to_thread().is_ok() {
            // SAFETY: the memory was allocated by `new` and is freed once; the call waits for the device.
            let _ = unsafe { result::free_sync(self.address) };
        }
    }
}
