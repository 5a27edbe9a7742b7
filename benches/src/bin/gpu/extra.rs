//! The memory that both passes need besides their inputs.

use flashcliff::cuda::cudarc::driver::result;
use flashcliff::{Device, Dtype};

use crate::case::{Case, Subject, Which};
use crate::error::{Error, driver};
use crate::report::{Entry, Report};

const MIB: f64 = (1 << 20) as f64;
/// The largest memory that is allowed besides the output and two gradients, in MiB.
const ROOM: f64 = 8.0;

pub(crate) fn measure(device: &Device, report: &mut Report) -> Result<(), Error> {
    let stream = device.new_stream()?;
    let subject = Subject {
        which: Which::SgpNorm,
        signature: [3, 0, 0],
        batch: 4096,
        channels: 512,
        dtype: Dtype::F32,
    };
    let mut case = Case::new(device, &stream, &subject)?;
    case.forward(&stream)?;
    case.backward(&stream)?;
    let wait = || stream.synchronize().map_err(driver("cuStreamSynchronize"));
    wait()?;
    let sizes = case.extra_bytes();
    let goal = 3.0 * case.tensor_bytes() as f64 / MIB + ROOM;
    let sum = sizes.iter().sum::<usize>() as f64 / MIB;
    let name = |how: &str| format!("{} forward+backward, {how}", case.name);
    report.add(Entry::memory(name("extra memory"), sum, Some(goal)));
    report.add(Entry::memory(
        name("extra memory by cuMemGetInfo"),
        allocated(device, &sizes)? / MIB,
        None,
    ));
    Ok(())
}

/// The number of bytes by which allocations of these sizes reduce the free memory.
fn allocated(device: &Device, sizes: &[usize]) -> Result<f64, Error> {
    let free = || {
        device
            .context()
            .mem_get_info()
            .map_err(driver("cuMemGetInfo"))
    };
    let (before, _) = free()?;
    let mut addresses = Vec::new();
    for &bytes in sizes {
        // SAFETY: the context is current since the query, and at least one byte is asked for.
        let address = unsafe { result::malloc_sync(bytes.max(1)) };
        addresses.push(address.map_err(driver("cuMemAlloc"))?);
    }
    let (after, _) = free()?;
    for address in addresses {
        // SAFETY: the memory was allocated above, is freed once and never used.
        unsafe { result::free_sync(address) }.map_err(driver("cuMemFree"))?;
    }
    Ok(before as f64 - after as f64)
}
