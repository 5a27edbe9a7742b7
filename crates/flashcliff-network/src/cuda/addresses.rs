//! The addresses of values, and copies of values that lie one after another.

use flashcliff::Dtype;
use flashcliff::cuda::cudarc::driver::sys::{self, CUdeviceptr};
use flashcliff::cuda::cudarc::driver::{CudaStream, SyncOnDrop, result};
use flashcliff::cuda::driver_error;
use flashcliff::cuda::items::Target;
use flashcliff::cuda::rows::Rows;

use super::Run;
use super::tokens::Steps;
use crate::network::Node;
use crate::plan::{Memory, Spot};
use crate::work::{Gradient, Sides};
use crate::{Error, Value};

/// What cudarc orders the uses of its memory by, held behind a launch.
pub(super) type Guards<'s> = Vec<SyncOnDrop<'s>>;

impl Run<'_> {
    /// The address of a value that a call reads.
    pub(super) fn place<'s>(
        &'s self,
        value: Value,
        stream: &'s CudaStream,
        guards: &mut Guards<'s>,
    ) -> Result<CUdeviceptr, Error> {
        let lent = match self.plan.spot(value)?.memory {
            Memory::Input(at) => &self.lent.inputs[at],
            Memory::Parameter(at) => &self.lent.parameters[at],
            memory => return Ok(self.address(memory)),
        };
        let (address, guard) = lent.address(stream);
        guards.extend(guard);
        Ok(address)
    }

    /// Copies values one after another.
    pub(super) fn concatenate(
        &self,
        node: &Node,
        lens: &[usize],
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let (mut parts, mut guards) = (Vec::with_capacity(lens.len()), Vec::new());
        for (&input, &len) in node.inputs.iter().zip(lens) {
            parts.push((self.place(input, stream, &mut guards)?, len));
        }
        let to = self.plan.spot(node.outputs[0])?;
        let whole = (self.address(to.memory), to.dtype);
        self.join(&parts, whole, stream, Way::Together)
    }

    /// The gradients of values that lie one after another.
    pub(super) fn split(
        &self,
        node: &Node,
        gradient: &Gradient,
        lens: &[usize],
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let (mut guards, mut outputs) = (Vec::new(), node.outputs.iter());
        let mut parts = Vec::with_capacity(lens.len());
        for (&len, &wanted) in lens.iter().zip(&gradient.wanted) {
            let output = if wanted { outputs.next() } else { None };
            let address = match output {
                Some(&output) => self.address(self.plan.spot(output)?.memory),
                None => 0,
            };
            parts.push((address, len));
        }
        let from = self.place(node.inputs[0], stream, &mut guards)?;
        let whole = (from, self.plan.spot(node.inputs[0])?.dtype);
        self.join(&parts, whole, stream, Way::Apart)
    }

    /// Copies parts into the whole that they lie in one after another, or back, in one launch if there is a function for it. A part at address 0 is left
    /// out.
    fn join(
        &self,
        parts: &[(CUdeviceptr, usize)],
        (whole, dtype): (CUdeviceptr, Dtype),
        stream: &CudaStream,
        way: Way,
    ) -> Result<(), Error> {
        let rows = self.steps.and_then(Steps::rows);
        let rows =
            rows.filter(|_| dtype == self.plan.types()[1] && parts.len() <= Rows::MOST_PARTS);
        if let Some(rows) = rows {
            let target = Target {
                device: self.device,
                stream: stream.cu_stream(),
            };
            // SAFETY: parts are values of the plan, and the whole has the elements of all; see `Run::value` and `Run::result`.
            return Ok(unsafe { rows.join(target, parts, whole, way == Way::Apart) }?);
        }
        let mut next = whole;
        for &(part, len) in parts {
            let bytes = len * dtype.bytes();
            match way {
                Way::Together => copy(stream, part, next, bytes)?,
                Way::Apart if part == 0 => {}
                Way::Apart => copy(stream, next, part, bytes)?,
            }
            next += bytes as CUdeviceptr;
        }
        Ok(())
    }
}

impl Run<'_> {
    /// Copies values side by side along an axis.
    pub(super) fn join_along(
        &self,
        node: &Node,
        sides: &Sides,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let whole = self.plan.spot(node.outputs[0])?;
        if sides.parts.iter().any(|(_, there)| !there) {
            self.clear(stream, node.outputs[0], 0..whole.len())?;
        }
        let (to, mut guards) = (self.address(whole.memory), Guards::new());
        for (&part, own) in node.inputs.iter().zip(sides.there()) {
            let part = self.place(part, stream, &mut guards)?;
            let columns = Columns::new(whole, sides, own);
            columns.copy(
                stream,
                (part, columns.width),
                (to + columns.from, columns.pitch),
            )?;
        }
        Ok(())
    }

    /// Copies the parts of a value along an axis.
    pub(super) fn split_along(
        &self,
        node: &Node,
        sides: &Sides,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let (whole, mut guards) = (self.plan.spot(node.inputs[0])?, Guards::new());
        let from = self.place(node.inputs[0], stream, &mut guards)?;
        for (&part, own) in node.outputs.iter().zip(sides.there()) {
            let part = self.address(self.plan.spot(part)?.memory);
            let columns = Columns::new(whole, sides, own);
            columns.copy(
                stream,
                (from + columns.from, columns.pitch),
                (part, columns.width),
            )?;
        }
        Ok(())
    }
}

/// Columns of a matrix, in bytes.
struct Columns {
    /// The bytes in front of them in a row.
    from: CUdeviceptr,
    width: usize,
    /// The bytes of a row of the matrix.
    pitch: usize,
    rows: usize,
}

impl Columns {
    /// The columns of a part of a value, by where it begins and its size.
    fn new(whole: &Spot, sides: &Sides, (from, size): (usize, usize)) -> Self {
        let (outer, inner) = whole.shape.split_at(sides.axis);
        let column = inner[1..].iter().product::<usize>() * whole.dtype.bytes();
        Self {
            from: (from * column) as CUdeviceptr,
            width: size * column,
            pitch: inner[0] * column,
            rows: outer.iter().product(),
        }
    }

    /// Copies them between addresses whose rows lie so many bytes apart.
    fn copy(
        &self,
        stream: &CudaStream,
        (from, from_pitch): (CUdeviceptr, usize),
        (to, to_pitch): (CUdeviceptr, usize),
    ) -> Result<(), Error> {
        if self.width * self.rows == 0 {
            return Ok(());
        }
        let call = sys::CUDA_MEMCPY2D {
            srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcDevice: from,
            srcPitch: from_pitch,
            dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            dstDevice: to,
            dstPitch: to_pitch,
            WidthInBytes: self.width,
            Height: self.rows,
            srcXInBytes: 0,
            srcY: 0,
            srcHost: std::ptr::null(),
            srcArray: std::ptr::null_mut(),
            dstXInBytes: 0,
            dstY: 0,
            dstHost: std::ptr::null_mut(),
            dstArray: std::ptr::null_mut(),
        };
        // SAFETY: both are values of the plan with these sizes; see `Run::value` and `Run::result`.
        let copied = unsafe { sys::cuMemcpy2DAsync_v2(&call, stream.cu_stream()) };
        Ok(copied.result().map_err(driver_error("cuMemcpy2DAsync"))?)
    }
}

/// Whether parts become a whole, or a whole becomes parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Together,
    Apart,
}

/// Copies bytes that lie on the device.
fn copy(
    stream: &CudaStream,
    from: CUdeviceptr,
    to: CUdeviceptr,
    bytes: usize,
) -> Result<(), Error> {
    if bytes == 0 {
        return Ok(());
    }
    // SAFETY: both are parts of values of the plan; see `Run::value` and `Run::result`.
    let copied = unsafe { result::memcpy_dtod_async(to, from, bytes, stream.cu_stream()) };
    Ok(copied.map_err(driver_error("cuMemcpyDtoDAsync"))?)
}
