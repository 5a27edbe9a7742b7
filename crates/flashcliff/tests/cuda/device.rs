//! The GPU of the tests.

use std::sync::LazyLock;

use flashcliff::cuda::Device;
use flashcliff::{Algebra, Error, Signature, ops};

/// The first GPU, or why there is none.
pub(crate) fn found() -> Result<&'static Device, &'static Error> {
    static FOUND: LazyLock<Result<Device, Error>> = LazyLock::new(|| Device::cuda(0));
    FOUND.as_ref()
}

/// The GPU; tests that get here without one fail.
pub(crate) fn device() -> &'static Device {
    found().unwrap_or_else(|error| panic!("no CUDA device: {error}"))
}

/// Whether linear maps can run.
pub(crate) fn cublas_lt() -> Result<(), &'static Error> {
    static FOUND: LazyLock<Result<(), Error>> = LazyLock::new(|| {
        let algebra = Algebra::new(Signature::of(2, 0, 0))?;
        let op = ops::mv_linear(algebra, &ops::LinearOptions::default())?;
        op.on_cuda(device()).map(drop)
    });
    FOUND.as_ref().map(|&()| ())
}

/// The bytes of device memory that nobody holds.
pub(crate) fn free_memory() -> usize {
    let info = device().context().mem_get_info();
    info.expect("the context is current").0
}
