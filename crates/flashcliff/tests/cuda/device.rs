//! The GPU of the tests.

use std::sync::LazyLock;

use flashcliff::cuda::Device;
use flashcliff::{Algebra, Error, Signature, ops};
use flashcliff_program::spec::shipped;

/// The first GPU, or the reason why there is none.
pub(crate) fn found() -> Result<&'static Device, &'static Error> {
    static FOUND: LazyLock<Result<Device, Error>> = LazyLock::new(|| Device::cuda(0));
    FOUND.as_ref()
}

/// The GPU. Tests that need one fail here if there is none.
pub(crate) fn device() -> &'static Device {
    found().unwrap_or_else(|error| panic!("no CUDA device: {error}"))
}

/// All algebras that flashcliff ships. Those without compiled CPU kernels are interpreted there.
pub(crate) fn algebras() -> impl Iterator<Item = Algebra> {
    shipped().map(|signature| Algebra::new(signature).expect("no variable means nothing"))
}

/// Checks that all algebras have CUDA kernels, since the tests are of all.
pub(crate) fn kernels() -> Result<(), &'static Error> {
    static FOUND: LazyLock<Result<(), Error>> =
        LazyLock::new(|| algebras().try_for_each(|a| ops::reverse(a)?.on_cuda(device()).map(drop)));
    FOUND.as_ref().map(|&()| ())
}

/// Checks that linear maps can run.
pub(crate) fn cublas_lt() -> Result<(), &'static Error> {
    static FOUND: LazyLock<Result<(), Error>> = LazyLock::new(|| {
        let algebra = Algebra::new(Signature::of(2, 0, 0))?;
        let op = ops::mv_linear(algebra, &ops::LinearOptions::default())?;
        op.on_cuda(device()).map(drop)
    });
    FOUND.as_ref().map(|&()| ())
}

/// The number of bytes of device memory that are free.
pub(crate) fn free_memory() -> usize {
    let info = device().context().mem_get_info();
    info.expect("the context is current").0
}
