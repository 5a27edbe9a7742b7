//! The two ends of a training step that is captured: the batch that comes next, and the record of its loss.

use cudarc::driver::CudaStream;
use flashcliff_sys as sys;

use super::device::Device;
use super::launches;
use super::memory::{Memory, MemoryMut};
use super::queue::Queue;
use super::tensor::{Layout, Tensor, TensorMut, pointer};
use crate::{Dtype, Error};

/// Copies the rows of the batch that is next: `to[r] = from[order[(step mod steps) rows + r]]`.
///
/// `from` is `[samples, ...]`, `to` is `[rows, ...]`, both `F32` or both `F64`. `order` has `rows` places for each of `steps` steps;
/// `step` holds one number. The number is read on the device, so a captured call goes on from batch to batch. A row whose place in
/// `from` does not exist becomes NaN.
///
/// Nothing waits, nothing is allocated, and the call can be captured.
///
/// # Errors
/// Tensors whose rows differ, another type or device, an order of a wrong length; [`Error::Cuda`].
pub fn gather(
    device: &Device,
    stream: &CudaStream,
    from: Tensor<'_>,
    mut to: TensorMut<'_>,
    order: &impl Memory<u32>,
    step: &impl Memory<u32>,
) -> Result<(), Error> {
    const NAME: &str = "gather";
    check_device(device, stream, NAME, &[from.layout(), to.layout()])?;
    let words = match (from.dtype(), to.dtype()) {
        (Dtype::F32, Dtype::F32) => 1,
        (Dtype::F64, Dtype::F64) => 2,
        (expected, got) => {
            return Err(Error::DtypeMismatch {
                operator: NAME.to_owned(),
                tensor: "to".to_owned(),
                expected: format!("f32 or f64 like `from`, which is {expected}"),
                got,
            });
        }
    };
    let [samples, ref row @ ..] = *from.shape() else {
        return Err(mismatch(
            NAME,
            "from",
            "[samples, ...]".to_owned(),
            from.shape(),
        ));
    };
    let rows = match *to.shape() {
        [rows, ref own @ ..] if own == row => rows,
        _ => return Err(mismatch(NAME, "to", format!("[rows, {row:?}]"), to.shape())),
    };
    if rows == 0 || order.len() == 0 || !order.len().is_multiple_of(rows) || step.len() != 1 {
        let expected = format!("a multiple of {rows} places, and one step");
        return Err(mismatch(
            NAME,
            "order",
            expected,
            &[order.len(), step.len()],
        ));
    }
    let steps = order.len() / rows;
    let words = row.iter().product::<usize>() * words;
    device.make_current()?;
    let queue = Queue::of(stream);
    let (from, _read) = from.acquire(&queue);
    let (to, _written) = to.acquire(&queue);
    let (order, _order) = order.read(stream);
    let (step, _step) = step.read(stream);
    // SAFETY: the memory has the lengths that are checked above; the kernel compares every place with the number of samples.
    let launch = || unsafe {
        sys::fc_gather(
            pointer(from),
            samples as i64,
            pointer(to),
            words as i64,
            pointer(order),
            rows as i64,
            pointer(step),
            steps as i64,
            queue.raw().cast(),
        )
    };
    launches::kernel("fc_gather", launch)
}

/// Notes a loss and goes on to the next step: `losses[step mod steps] = loss`, then `step` is one more.
///
/// `loss` has one element, `losses` one for each of `steps` steps, all `F32`; `step` holds one number. Nothing waits, nothing is
/// allocated, and the call can be captured.
///
/// # Errors
/// Tensors of another length, type or device; [`Error::Cuda`].
pub fn record(
    device: &Device,
    stream: &CudaStream,
    loss: Tensor<'_>,
    mut losses: TensorMut<'_>,
    step: &mut impl MemoryMut<u32>,
) -> Result<(), Error> {
    const NAME: &str = "record";
    check_device(device, stream, NAME, &[loss.layout(), losses.layout()])?;
    for (tensor, dtype) in [("loss", loss.dtype()), ("losses", losses.dtype())] {
        if dtype != Dtype::F32 {
            return Err(Error::DtypeMismatch {
                operator: NAME.to_owned(),
                tensor: tensor.to_owned(),
                expected: "f32".to_owned(),
                got: dtype,
            });
        }
    }
    let steps = losses.layout().len;
    if loss.layout().len != 1 || steps == 0 || step.len() != 1 {
        let expected = "one loss, at least one place, and one step".to_owned();
        let got = [loss.layout().len, steps, step.len()];
        return Err(mismatch(NAME, "loss", expected, &got));
    }
    device.make_current()?;
    let queue = Queue::of(stream);
    let (loss, _read) = loss.acquire(&queue);
    let (losses, _written) = losses.acquire(&queue);
    let (step, _step) = step.write(stream);
    // SAFETY: the memory has the lengths that are checked above.
    let launch = || unsafe {
        sys::fc_record(
            pointer(loss),
            pointer(losses),
            pointer(step),
            steps as i64,
            queue.raw().cast(),
        )
    };
    launches::kernel("fc_record", launch)
}

fn check_device(
    device: &Device,
    stream: &CudaStream,
    name: &str,
    layouts: &[&Layout],
) -> Result<(), Error> {
    if stream.context().cu_ctx() != device.context().cu_ctx() {
        return Err(Error::CudaContext {
            ordinal: stream.context().ordinal(),
        });
    }
    match layouts
        .iter()
        .find(|layout| layout.ordinal != device.ordinal())
    {
        None => Ok(()),
        Some(layout) => Err(Error::DeviceMismatch {
            operator: name.to_owned(),
            tensor: "tensor".to_owned(),
            expected: device.ordinal(),
            got: layout.ordinal,
        }),
    }
}

fn mismatch(name: &str, tensor: &str, expected: String, got: &[usize]) -> Error {
    Error::ShapeMismatch {
        operator: name.to_owned(),
        tensor: tensor.to_owned(),
        expected,
        got: got.to_vec(),
    }
}
