//! Passes on tensors with their own strides.

use flashcliff_sys as sys;

use super::Operator;
use crate::Error;
use crate::cuda::dtype::Dtypes;
use crate::cuda::{Address, RawStream};
use crate::operator::Dims;
use crate::operator::lane::cuda::Lanes;

/// A tensor `[blades, batch, channels]` in device memory. Channels are contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StridedTensor {
    /// The address.
    pub address: Address,
    /// The elements from a blade to the next.
    pub blade_stride: usize,
    /// The elements from a batch element to the next.
    pub row_stride: usize,
}

impl StridedTensor {
    pub(crate) fn strides(self) -> sys::fc_strides {
        sys::fc_strides {
            component: self.blade_stride as i64,
            batch: self.row_stride as i64,
        }
    }
}

/// The tensors of a run with strides that have elements of `f32` where others have 16 bits: sets of bits, of which bit
/// `i` stands for input or output `i` of the operator. Parameters and their gradients have the type of the parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WideTensors {
    /// Inputs.
    pub inputs: u32,
    /// Outputs.
    pub outputs: u32,
}

/// The workspace of a run on tensors with strides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StridedWorkspace {
    /// The address, aligned to 256 bytes.
    pub address: Address,
    /// The bytes.
    pub bytes: usize,
}

impl Operator {
    /// Whether [`Self::run_strided`] works: the operator is one kernel.
    pub fn takes_strides(&self) -> bool {
        self.implementation.lanes().is_some()
    }

    /// The bytes of workspace that [`Self::run_strided`] needs if all outputs are wanted.
    ///
    /// # Errors
    /// The errors of [`Self::workspace_bytes`]; [`Error::UnsupportedOnCuda`] for operators that are not one kernel.
    pub fn run_strided_workspace_bytes(
        &self,
        dims: &Dims,
        dtypes: Dtypes,
        wide: WideTensors,
    ) -> Result<usize, Error> {
        self.checks().dtypes(dtypes)?;
        self.device.make_current()?;
        self.one_kernel()?
            .strided_workspace_bytes(dims, (dtypes, wide))
    }

    /// Does the work that only the first [`Self::run_strided`] of such sizes would do: compiles the kernel, and loads
    /// it. This is needed before a call is captured into a graph. The kernel is that for tensors whose strides and
    /// addresses are multiples of the channels, or of four elements.
    ///
    /// # Errors
    /// The errors of [`Self::run_strided_workspace_bytes`].
    pub fn prepare_strided(
        &self,
        dims: &Dims,
        dtypes: Dtypes,
        wide: WideTensors,
    ) -> Result<(), Error> {
        self.checks().dtypes(dtypes)?;
        self.device.make_current()?;
        self.one_kernel()?.prepare_strided(dims, (dtypes, wide))
    }

    /// Launches the computation of the outputs that are wanted, like [`Self::run_raw`], on tensors whose rows and
    /// components lie anywhere. So tensors can be parts of the rows of a matrix, or have their axes in another order.
    /// The channels of a row are neighbours. Parameters and sums over the batch are contiguous; their strides are not
    /// read.
    ///
    /// Results may differ from the results of [`Self::run`] by rounding: sums over a row or over the batch are taken in another order.
    ///
    /// # Errors
    /// [`Error::UnsupportedOnCuda`] for operators that are not one kernel, or, without the feature `jit`, of which the build has no
    /// kernel for strides; [`Error::TensorCount`], [`Error::WorkspaceTooSmall`], [`Error::DtypeMismatch`], [`Error::Cuda`].
    ///
    /// # Safety
    /// The stream belongs to the primary context of the device. Every tensor holds, on that device, what its strides and the sizes
    /// reach, aligned to an element, until the work on the stream is done, and so does the workspace. Written memory overlaps nothing else.
    pub unsafe fn run_strided(
        &self,
        stream: RawStream,
        dims: &Dims,
        (dtypes, wide): (Dtypes, WideTensors),
        inputs: &[StridedTensor],
        outputs: &[Option<StridedTensor>],
        workspace: StridedWorkspace,
    ) -> Result<(), Error> {
        self.checks().dtypes(dtypes)?;
        let lanes = self.one_kernel()?;
        self.operator.check_count("inputs", inputs.len())?;
        self.device.make_current()?;
        let needed = lanes.strided_workspace_bytes(dims, (dtypes, wide))?;
        if workspace.bytes < needed {
            return Err(Error::WorkspaceTooSmall {
                operator: self.operator.name().to_owned(),
                expected: needed,
                got: workspace.bytes,
            });
        }
        // SAFETY: the caller promises it, and the context is current.
        unsafe { lanes.run_strided(stream, dims, (dtypes, wide), inputs, outputs, workspace) }
    }

    fn one_kernel(&self) -> Result<&Lanes, Error> {
        let refused = || Error::UnsupportedOnCuda {
            operator: self.operator.name().to_owned(),
            reason: "it is not one kernel, and so takes no tensors with strides".to_owned(),
        };
        self.implementation.lanes().ok_or_else(refused)
    }
}
