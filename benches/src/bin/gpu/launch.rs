//! Measures the cost of a launch for the host, with a call so small that the GPU never falls behind.

use std::sync::Arc;
use std::time::Instant;

use flashcliff::cuda::cudarc::driver::{CudaStream, DevicePtr};
use flashcliff::cuda::{Tensor, TensorMut};
use flashcliff::{Device, Dtype};

use crate::case::{Case, Subject, Which, raw};
use crate::error::{Error, driver};
use crate::report::{Entry, Report};
use crate::timing::Times;

/// The goal for the time of a launch, in seconds.
const GOAL: f64 = 5e-6;
const LAUNCHES: usize = 1000;
/// The number of launches between two waits. A driver queues about a thousand launches, and a call that waits for room
/// must not be measured.
const BETWEEN_WAITS: usize = 50;

/// Whether cudarc records events for uses of its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tracking {
    On,
    Off,
}

pub(crate) fn measure(
    device: &Device,
    tracking: Tracking,
    report: &mut Report,
) -> Result<(), Error> {
    let stream = device.new_stream()?;
    let subject = Subject {
        which: Which::SgpNorm,
        signature: [3, 0, 0],
        batch: 4,
        channels: 32,
        dtype: Dtype::F32,
    };
    let mut case = Case::new(device, &stream, &subject)?;
    if tracking == Tracking::On {
        let safe = median(&stream, || case.forward(&stream))?;
        let name = "launch on the host, with event tracking".to_owned();
        report.add(Entry::time(name, safe, None));
        return Ok(());
    }
    let safe = median(&stream, || case.forward(&stream))?;
    let name = "launch on the host".to_owned();
    report.add(Entry::time(name, safe, Some(GOAL)));
    let backward = median(&stream, || case.backward(&stream))?;
    let name = "launches of the backward pass on the host".to_owned();
    report.add(Entry::time(name, backward, None));
    let addresses = raw_forward(&case, &stream)?;
    let name = "launch on the host, by address".to_owned();
    report.add(Entry::time(name, addresses, None));
    Ok(())
}

/// The forward pass on views by address, on a stream of the driver.
fn raw_forward(case: &Case, stream: &Arc<CudaStream>) -> Result<Times, Error> {
    let inputs = case.inputs.iter().map(|input| raw(input, stream));
    let inputs: Vec<Tensor<'_>> = inputs.collect::<Result<_, _>>()?;
    let address = |array: &flashcliff::cuda::Array| array.memory().device_ptr(stream).0;
    let (output, saved) = (address(&case.output), address(&case.saved));
    let (shape, saved_shape) = (case.output.shape(), case.saved.shape());
    let (lanes, arithmetic) = (case.dtypes.lanes, case.dtypes.arithmetic());
    median(stream, || {
        // SAFETY: the arrays are as large as their shapes and outlive the wait in `median`; they are
        // used on this stream alone, which belongs to the context of the device.
        unsafe {
            let output = TensorMut::from_raw(output, lanes, shape, 0)?;
            let saved = TensorMut::from_raw(saved, arithmetic, saved_shape, 0)?;
            let stream = stream.cu_stream();
            case.gpu
                .forward_raw(stream, &inputs, output, Some(saved), None)?;
        }
        Ok(())
    })
}

fn median(
    stream: &CudaStream,
    mut launch: impl FnMut() -> Result<(), Error>,
) -> Result<Times, Error> {
    let wait = || stream.synchronize().map_err(driver("cuStreamSynchronize"));
    for _ in 0..BETWEEN_WAITS {
        launch()?;
    }
    let mut seconds = Vec::with_capacity(LAUNCHES);
    for i in 0..LAUNCHES {
        if i % BETWEEN_WAITS == 0 {
            wait()?;
        }
        let start = Instant::now();
        launch()?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    wait()?;
    Ok(Times::of(seconds))
}
