//! The work around the matrix products: packing, biases, zeros.

use std::ptr;

use cudarc::driver::sys::CUdeviceptr;
use flashcliff_sys as sys;

use super::Linear;
use super::workspace::{Workspace, bias_stride, stride};
use crate::cuda::call::Call;
use crate::cuda::dtype::{Dtypes, code};
use crate::cuda::fault;
use crate::cuda::lane::address;
use crate::cuda::matmul::BIAS_ALIGNMENT;
use crate::operator::{Dims, Pass};
use crate::{Error, WeightLayout};

impl Linear {
    /// The weight and the bias of the forward pass, in the form that products take.
    ///
    /// # Safety
    /// The call is checked, its stream valid, and the context of its tensors current; the addresses are of its
    /// tensors.
    pub(super) unsafe fn operands(
        &self,
        call: &Call,
        [weight, bias]: [CUdeviceptr; 2],
        space: &Workspace,
    ) -> Result<(CUdeviceptr, CUdeviceptr), Error> {
        let Call { dims, dtypes, .. } = call;
        if !self.packs_bias(dims) {
            // SAFETY: the caller promises it.
            return unsafe {
                let weight = self.pack(call, Pass::Forward, weight, space.weights, None)?;
                Ok((weight, self.usable_bias(call, bias, space.bias)?))
            };
        }
        let biases = sys::fc_linear_bias {
            bias: address(bias),
            packed: address(space.bias),
            channels: dims.out_channels as i64,
            stride: bias_stride(dims, dtypes.lanes.bytes()) as i64,
            // There are at most 2^8 blades.
            blades: self.blades() as i32,
            biased: self.biased_blades() as i32,
        };
        // SAFETY: the caller promises it.
        let weight =
            unsafe { self.pack(call, Pass::Forward, weight, space.weights, Some(&biases)) }?;
        Ok((weight, space.bias))
    }

    /// Returns one matrix for each grade or blade, in the type of the lanes: packed at `space`, or the stored weight if
    /// products can read it. Packs the biases too.
    ///
    /// # Safety
    /// The call is checked, its stream valid, and the context of its tensors current; the other addresses
    /// are of its tensors, or of parts of its workspace.
    pub(super) unsafe fn pack(
        &self,
        call: &Call,
        pass: Pass,
        weight: CUdeviceptr,
        space: CUdeviceptr,
        biases: Option<&sys::fc_linear_bias>,
    ) -> Result<CUdeviceptr, Error> {
        let Call { dims, dtypes, .. } = call;
        if !self.packs_weights(dims, *dtypes, pass) {
            return Ok(weight);
        }
        let ends = self.ends(self.at_once(dims).then_some(1));
        let shape = self.weights(dims, stride(dims, dtypes.lanes.bytes()));
        let shape = sys::fc_linear_weights {
            transposed: self.transposes(*dtypes, pass).into(),
            ..shape
        };
        // SAFETY: the caller promises it.
        let code = unsafe {
            sys::fc_linear_pack(
                address(weight),
                address(space),
                &raw const shape,
                &raw const ends,
                biases.map_or(ptr::null(), ptr::from_ref),
                code(dtypes.params),
                code(dtypes.lanes),
                call.stream.cast(),
            )
        };
        fault::kernel("fc_linear_pack", code)?;
        Ok(space)
    }

    /// The layout of the weights for the C interface.
    fn weights(&self, dims: &Dims, stride: usize) -> sys::fc_linear_weights {
        let (k, n) = (dims.in_channels as i64, dims.out_channels as i64);
        let ((rows, columns), order) = match self.layout {
            WeightLayout::OutInGrade => ((n, k), sys::fc_linear_order::FC_LINEAR_ELEMENTS_FIRST),
            WeightLayout::GradeInOut => ((k, n), sys::fc_linear_order::FC_LINEAR_GRADES_FIRST),
        };
        sys::fc_linear_weights {
            rows,
            columns,
            grades: self.matrices.len() as i64,
            stride: stride as i64,
            order,
            transposed: 0,
        }
    }

    /// The converse of [`Self::pack`] for gradients: adds up the parts of each gradient, unless gradients are in place.
    ///
    /// # Safety
    /// The call is checked, its stream valid, and the context of its tensors current; the other addresses
    /// are of its tensors, or of parts of its workspace.
    pub(super) unsafe fn unpack(
        &self,
        call: &Call,
        packed: CUdeviceptr,
        weight: CUdeviceptr,
    ) -> Result<(), Error> {
        let Call { dims, dtypes, .. } = call;
        if !self.unpacks_gradients(dims) {
            return Ok(());
        }
        let from = self.gradient_type(dims, *dtypes);
        let ends = self.ends(self.parts(dims));
        let shape = self.weights(dims, stride(dims, from.bytes()));
        // SAFETY: the caller promises it.
        let code = unsafe {
            sys::fc_linear_unpack(
                address(packed),
                address(weight),
                &raw const shape,
                &raw const ends,
                code(from),
                code(dtypes.params),
                call.stream.cast(),
            )
        };
        fault::kernel("fc_linear_unpack", code)
    }

    /// The bias in the type of the lanes, with the alignment that cuBLASLt needs: copied to `space`, or the stored one.
    ///
    /// # Safety
    /// The call is checked, its stream valid, and the context of its tensors current; the other addresses
    /// are of its tensors, or of parts of its workspace.
    pub(super) unsafe fn usable_bias(
        &self,
        call: &Call,
        bias: CUdeviceptr,
        space: CUdeviceptr,
    ) -> Result<CUdeviceptr, Error> {
        let Dtypes { lanes, params } = call.dtypes;
        if !self.has_bias() || (lanes == params && bias.is_multiple_of(BIAS_ALIGNMENT)) {
            return Ok(bias);
        }
        let n = call.dims.out_channels as i64;
        let shape = sys::fc_linear_weights {
            rows: 1,
            columns: n,
            grades: 1,
            stride: n,
            order: sys::fc_linear_order::FC_LINEAR_GRADES_FIRST,
            transposed: 0,
        };
        let (from, to) = (address(bias), address(space));
        let stream = call.stream.cast();
        let one = sys::fc_linear_parts {
            end: [1; sys::FC_LINEAR_MAX_GRADES as usize],
        };
        // SAFETY: the caller promises it.
        let code = unsafe {
            let (from_type, to_type) = (code(params), code(lanes));
            sys::fc_linear_pack(
                from,
                to,
                &raw const shape,
                &raw const one,
                ptr::null(),
                from_type,
                to_type,
                stream,
            )
        };
        fault::kernel("fc_linear_pack", code)?;
        Ok(space)
    }

    /// Writes the output of a map from no channels: the bias and zeros.
    ///
    /// # Safety
    /// The call is checked, its stream valid, and the context of its tensors current; the other addresses
    /// are of its tensors, or of parts of its workspace.
    pub(super) unsafe fn forward_of_nothing(
        &self,
        call: &Call,
        bias: CUdeviceptr,
    ) -> Result<(), Error> {
        let Call { dims, dtypes, .. } = call;
        let n = dims.out_channels;
        let bytes = self.blades() * dims.batch * n * dtypes.lanes.bytes();
        // SAFETY: the caller promises it.
        unsafe { call.zero(call.output, bytes) }?;
        if !self.has_bias() {
            return Ok(());
        }
        // SAFETY: the caller promises it.
        let code = unsafe {
            sys::fc_linear_broadcast(
                address(bias),
                address(call.output),
                (self.biased_blades() * dims.batch) as i64,
                n as i64,
                code(dtypes.params),
                code(dtypes.lanes),
                call.stream.cast(),
            )
        };
        fault::kernel("fc_linear_broadcast", code)
    }

    /// # Safety
    /// The call is checked, its stream valid, and the context of its tensors current; the other addresses
    /// are of its tensors, or of parts of its workspace.
    pub(super) unsafe fn bias_gradient(
        &self,
        call: &Call,
        grad_bias: CUdeviceptr,
        space: CUdeviceptr,
    ) -> Result<(), Error> {
        let Call { dims, dtypes, .. } = call;
        // SAFETY: the caller promises it.
        let code = unsafe {
            sys::fc_linear_column_sums(
                address(call.output),
                address(grad_bias),
                address(space),
                (self.biased_blades() * dims.batch) as i64,
                dims.out_channels as i64,
                code(dtypes.lanes),
                code(dtypes.params),
                call.stream.cast(),
            )
        };
        fault::kernel("fc_linear_column_sums", code)
    }
}
