//! The work around the matrix products: packing, biases, zeros.

use flashcliff_sys as sys;

use super::Linear;
use super::workspace::{Workspace, bias_stride, stride};
use crate::cuda::call::Call;
use crate::cuda::call::address;
use crate::cuda::dtype::{Dtypes, code};
use crate::cuda::launches;
use crate::cuda::matmul::BIAS_ALIGNMENT;
use crate::cuda::{Address, RawStream};
use crate::operator::{Dims, Pass};
use crate::{Dtype, Error, WeightLayout};

impl Linear {
    /// The weight and the bias of the forward pass, in the form that products take.
    ///
    /// # Safety
    /// The call is checked, its stream valid, and the context of its tensors current; the addresses are of its
    /// tensors.
    pub(super) unsafe fn operands(
        &self,
        call: &Call,
        [weight, bias]: [Address; 2],
        space: &Workspace,
    ) -> Result<(Address, Address), Error> {
        if let (Some(weight), Some(bias)) = (call.kept.weight, call.kept.bias) {
            return Ok((weight, bias));
        }
        if !self.packs_bias(&call.dims) {
            // SAFETY: the caller promises it.
            return unsafe {
                let weight = self.pack(call, Pass::Forward, weight, space.weights, None)?;
                Ok((weight, self.usable_bias(call, bias, space.bias)?))
            };
        }
        let biases = self.biases(&call.dims, call.dtypes, [bias, space.bias]);
        // SAFETY: the caller promises it.
        let weight =
            unsafe { self.pack(call, Pass::Forward, weight, space.weights, Some(biases)) }?;
        Ok((weight, space.bias))
    }

    /// Returns one matrix for each grade or blade, in the type of the lanes: that of a packing, packed at `space`, or the stored weight if
    /// products can read it. Packs the biases too.
    ///
    /// # Safety
    /// The call is checked, its stream valid, and the context of its tensors current; the other addresses
    /// are of its tensors, or of parts of its workspace.
    pub(super) unsafe fn pack(
        &self,
        call: &Call,
        pass: Pass,
        weight: Address,
        space: Address,
        biases: Option<sys::fc_linear_bias>,
    ) -> Result<Address, Error> {
        let Call { dims, dtypes, .. } = call;
        if let Some(packed) = call.kept.weight {
            return Ok(packed);
        }
        if !self.packs_weights(dims, *dtypes, pass) {
            return Ok(weight);
        }
        let packing = sys::fc_linear_packing {
            bias: biases.unwrap_or_default(),
            ..self.packing(dims, *dtypes, pass, [weight, space])
        };
        // SAFETY: the caller promises it.
        unsafe { pack(&[packing], *dtypes, call.stream) }?;
        Ok(space)
    }

    /// How the weight of a pass is packed from one address to another.
    pub(super) fn packing(
        &self,
        dims: &Dims,
        dtypes: Dtypes,
        pass: Pass,
        [from, to]: [Address; 2],
    ) -> sys::fc_linear_packing {
        sys::fc_linear_packing {
            from: address(from),
            to: address(to),
            shape: sys::fc_linear_weights {
                transposed: self.transposes(dtypes, pass).into(),
                ..self.weights(dims, stride(dims, dtypes.lanes.bytes()))
            },
            matrices: self.ends(self.at_once(dims).then_some(1)),
            bias: sys::fc_linear_bias::default(),
        }
    }

    /// How the bias is packed from one address to another.
    pub(super) fn biases(
        &self,
        dims: &Dims,
        dtypes: Dtypes,
        [from, to]: [Address; 2],
    ) -> sys::fc_linear_bias {
        let blades = self.packed_biases(dims);
        sys::fc_linear_bias {
            bias: address(from),
            packed: address(to),
            channels: dims.out_channels as i64,
            stride: bias_stride(dims, dtypes.lanes.bytes()) as i64,
            // There are at most 2^8 blades.
            blades: blades as i32,
            biased: self.biased_blades().min(blades) as i32,
        }
    }

    /// The layout of the weights for the C interface.
    pub(super) fn weights(&self, dims: &Dims, stride: usize) -> sys::fc_linear_weights {
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

    /// The converse of [`Self::pack`] for gradients: adds up the parts of each gradient, unless gradients are in place, or a packing adds
    /// them up later.
    ///
    /// # Safety
    /// The call is checked, its stream valid, and the context of its tensors current; the other addresses
    /// are of its tensors, or of parts of its workspace.
    pub(super) unsafe fn unpack(
        &self,
        call: &Call,
        packed: Address,
        weight: Address,
    ) -> Result<(), Error> {
        let Call { dims, dtypes, .. } = call;
        if !self.unpacks_gradients(dims) || call.kept.parts.is_some() {
            return Ok(());
        }
        let unpacking = self.unpacking(dims, *dtypes, [packed, weight]);
        let from = self.gradient_type(dims, *dtypes);
        // SAFETY: the caller promises it.
        unsafe { unpack(&[unpacking], [from, dtypes.params], call.stream) }
    }

    /// How the gradient of the weight is added up from its parts at one address to another.
    pub(crate) fn unpacking(
        &self,
        dims: &Dims,
        dtypes: Dtypes,
        [from, to]: [Address; 2],
    ) -> sys::fc_linear_packing {
        let stride = stride(dims, self.gradient_type(dims, dtypes).bytes());
        sys::fc_linear_packing {
            from: address(from),
            to: address(to),
            shape: self.weights(dims, stride),
            matrices: self.ends(self.parts(dims)),
            bias: sys::fc_linear_bias::default(),
        }
    }

    /// The bias in the type of the lanes, with the alignment that cuBLASLt needs: copied to `space`, or the stored one.
    ///
    /// # Safety
    /// The call is checked, its stream valid, and the context of its tensors current; the other addresses
    /// are of its tensors, or of parts of its workspace.
    pub(super) unsafe fn usable_bias(
        &self,
        call: &Call,
        bias: Address,
        space: Address,
    ) -> Result<Address, Error> {
        let Dtypes { lanes, params } = call.dtypes;
        if !self.has_bias() || (lanes == params && bias.is_multiple_of(BIAS_ALIGNMENT)) {
            return Ok(bias);
        }
        let n = call.dims.out_channels as i64;
        let mut one = sys::fc_linear_parts::default();
        one.end[0] = 1;
        let packing = sys::fc_linear_packing {
            from: address(bias),
            to: address(space),
            shape: sys::fc_linear_weights {
                rows: 1,
                columns: n,
                grades: 1,
                stride: n,
                order: sys::fc_linear_order::FC_LINEAR_GRADES_FIRST,
                transposed: 0,
            },
            matrices: one,
            bias: sys::fc_linear_bias::default(),
        };
        // SAFETY: the caller promises it.
        unsafe { pack(&[packing], call.dtypes, call.stream) }?;
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
        bias: Address,
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
        let launch = || unsafe {
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
        launches::kernel("fc_linear_broadcast", launch)
    }

    /// # Safety
    /// The call is checked, its stream valid, and the context of its tensors current; the other addresses
    /// are of its tensors, or of parts of its workspace.
    pub(super) unsafe fn bias_gradient(
        &self,
        call: &Call,
        grad_bias: Address,
        space: Address,
    ) -> Result<(), Error> {
        let Call { dims, dtypes, .. } = call;
        // SAFETY: the caller promises it.
        let launch = || unsafe {
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
        launches::kernel("fc_linear_column_sums", launch)
    }
}

/// Packs weights of parameters of one type for lanes of one type.
///
/// # Safety
/// The addresses have room for the matrices of their shapes in the current context, and the stream is valid.
pub(crate) unsafe fn pack(
    all: &[sys::fc_linear_packing],
    dtypes: Dtypes,
    stream: RawStream,
) -> Result<(), Error> {
    let types = [dtypes.params, dtypes.lanes].map(code);
    // SAFETY: the caller promises it. There are at most a few operators.
    let launch = || unsafe {
        sys::fc_linear_pack(
            all.as_ptr(),
            all.len() as i32,
            types[0],
            types[1],
            stream.cast(),
        )
    };
    launches::kernel("fc_linear_pack", launch)
}

/// Adds up the parts of gradients, from parts of one type to gradients of one type.
///
/// # Safety
/// The contract of [`pack`] holds.
pub(crate) unsafe fn unpack(
    all: &[sys::fc_linear_packing],
    types: [Dtype; 2],
    stream: RawStream,
) -> Result<(), Error> {
    let types = types.map(code);
    // SAFETY: the caller promises it. There are at most a few operators.
    let launch = || unsafe {
        sys::fc_linear_unpack(
            all.as_ptr(),
            all.len() as i32,
            types[0],
            types[1],
            stream.cast(),
        )
    };
    launches::kernel("fc_linear_unpack", launch)
}
