//! The addresses of values, and copies of values that lie one after another.

use flashcliff::Dtype;
use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;
use flashcliff::cuda::cudarc::driver::{CudaStream, SyncOnDrop};
use flashcliff::cuda::items::Target;
use flashcliff::cuda::launches;
use flashcliff::cuda::rows::Rows;
use flashcliff::cuda::segments::{Columns, copy_columns};

use super::Run;
use super::tokens::Steps;
use crate::network::Node;
use crate::plan::Memory;
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

    /// Copies parts into the whole that they lie in one after another, or back, in one launch if there is a function
    /// for it. A part at address 0 is left out.
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
    /// Copies values side by side along an axis, or the parts of a value apart.
    pub(super) fn along_axis(
        &self,
        node: &Node,
        sides: &Sides,
        way: Way,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let mut guards = Guards::new();
        let apart = way == Way::Apart;
        let (whole, values) = match way {
            Way::Together => (node.outputs[0], &node.inputs),
            Way::Apart => (node.inputs[0], &node.outputs),
        };
        let spot = self.plan.spot(whole)?;
        let inner: usize = spot.shape[sides.axis + 1..].iter().product();
        let mut values = values.iter();
        let mut parts = Vec::with_capacity(sides.parts.len());
        for &(size, there) in sides.parts.iter() {
            let own = if there { values.next() } else { None };
            let address = match own {
                Some(&own) => self.place(own, stream, &mut guards)?,
                None => 0,
            };
            parts.push((address, size * inner));
        }
        let call = Columns {
            whole: self.place(whole, stream, &mut guards)?,
            parts: &parts,
            rows: spot.shape[..sides.axis].iter().product(),
            dtype: spot.dtype,
            apart,
        };
        self.copied(&call, stream)
    }

    /// Copies the blades of each channel side by side, or apart: each blade is a column of a matrix, which has a row
    /// for each channel of each row.
    pub(super) fn beside_blades(
        &self,
        blades: Value,
        flat: Value,
        way: Way,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let mut guards = Guards::new();
        let (first, spot) = (
            self.place(blades, stream, &mut guards)?,
            self.plan.spot(blades)?,
        );
        let rows: usize = spot.shape[1..].iter().product();
        let blade = |at: usize| first + (at * rows * spot.dtype.bytes()) as CUdeviceptr;
        let parts: Vec<(CUdeviceptr, usize)> =
            (0..spot.shape[0]).map(|at| (blade(at), 1)).collect();
        let call = Columns {
            whole: self.place(flat, stream, &mut guards)?,
            parts: &parts,
            rows,
            dtype: spot.dtype,
            apart: way == Way::Apart,
        };
        self.copied(&call, stream)
    }

    fn copied(&self, call: &Columns<'_>, stream: &CudaStream) -> Result<(), Error> {
        let target = Target {
            device: self.device,
            stream: stream.cu_stream(),
        };
        // SAFETY: all are values of the plan, or blades of one, of one type; see `Run::value` and `Run::result`.
        Ok(unsafe { copy_columns(target, call) }?)
    }
}

/// Whether parts become a whole, or a whole becomes parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
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
    // SAFETY: both are parts of values of the plan; see `Run::value` and `Run::result`.
    Ok(unsafe { launches::copy(from, to, bytes, stream.cu_stream()) }?)
}
