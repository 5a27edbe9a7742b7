//! Operators on GPUs.

use std::ffi::{c_int, c_void};

use flashcliff::cuda::{self, Device, Dtypes, MatmulPrecision, Scratch, Tensor, TensorMut};
use flashcliff::{Dims, Dtype, Pass, TensorSpec};

use super::{Call, CudaPlan, MAX_AXES};
use crate::status::Failure;

/// An operator on a GPU.
pub(crate) struct Bound(cuda::Operator);

/// The sizes and types of a call.
struct Sizes {
    dims: Dims,
    dtypes: Dtypes,
    output: Vec<usize>,
    saved: usize,
}

impl Bound {
    pub(crate) fn new(
        operator: &flashcliff::Operator,
        device: usize,
        tf32: bool,
    ) -> Result<Self, Failure> {
        let precision = match tf32 {
            true => MatmulPrecision::Tf32,
            false => MatmulPrecision::Highest,
        };
        let bound = operator.on_cuda(&Device::cuda(device)?)?;
        Ok(Self(bound.with_precision(precision)))
    }

    pub(crate) fn operator(&self) -> &flashcliff::Operator {
        self.0.operator()
    }

    fn sizes(&self, call: &Call<'_>) -> Result<Sizes, Failure> {
        let dims = self.0.bind(&call.inputs.shapes)?;
        let dtypes = Dtypes {
            lanes: dtype("dtype", call.given.dtype)?,
            params: dtype("parameter_dtype", call.given.parameter_dtype)?,
        };
        Ok(Sizes {
            output: self.0.operator().output_shape(&dims),
            saved: self.0.saved_len(&dims, dtypes),
            dims,
            dtypes,
        })
    }

    pub(crate) fn plan(&self, call: &Call<'_>) -> Result<CudaPlan, Failure> {
        let Sizes {
            dims,
            dtypes,
            output,
            saved,
        } = self.sizes(call)?;
        self.0.prepare(&dims, dtypes)?;
        let mut output_shape = [1; MAX_AXES];
        let Some(axes) = output_shape.get_mut(..output.len()) else {
            return Err(Failure::Argument(format!(
                "expected at most {MAX_AXES} axes, got {output:?}"
            )));
        };
        axes.copy_from_slice(&output);
        let workspace = |pass| self.0.workspace_bytes(&dims, pass, dtypes);
        Ok(CudaPlan {
            output_shape,
            output_axes: output.len(),
            output_len: output.iter().product(),
            saved_bytes: saved * dtypes.arithmetic().bytes(),
            forward_workspace_bytes: workspace(Pass::Forward)?,
            backward_workspace_bytes: workspace(Pass::Backward)?,
        })
    }

    /// # Safety
    /// The contract of `fc_cuda_forward` holds.
    pub(crate) unsafe fn forward(
        &self,
        call: &Call<'_>,
        output: *mut c_void,
        saved: *mut c_void,
    ) -> Result<(), Failure> {
        let sizes = self.sizes(call)?;
        let ordinal = self.0.device().ordinal();
        let (lanes, arithmetic) = (sizes.dtypes.lanes, sizes.dtypes.arithmetic());
        // SAFETY: the caller promises memory and the stream.
        unsafe {
            let saved = match saved.is_null() {
                true => None,
                false => Some(TensorMut::from_raw(
                    at(saved),
                    arithmetic,
                    &[sizes.saved],
                    ordinal,
                )?),
            };
            self.0.forward_raw(
                call.given.stream.cast(),
                &self.inputs(call, sizes.dtypes)?,
                TensorMut::from_raw(at(output), lanes, &sizes.output, ordinal)?,
                saved,
                self.scratch(call),
            )?;
        }
        Ok(())
    }

    /// # Safety
    /// The contract of `fc_cuda_backward` holds. `read` are the output, what was saved, and the gradient of the output.
    pub(crate) unsafe fn backward(
        &self,
        call: &Call<'_>,
        read: [*const c_void; 3],
        grads: &[*mut c_void],
    ) -> Result<(), Failure> {
        let sizes = self.sizes(call)?;
        let ordinal = self.0.device().ordinal();
        let (lanes, arithmetic) = (sizes.dtypes.lanes, sizes.dtypes.arithmetic());
        let [output, saved, grad_output] = read;
        // SAFETY: the caller promises memory and the stream.
        unsafe {
            let saved = match saved.is_null() {
                true => None,
                false => Some(Tensor::from_raw(
                    at(saved),
                    arithmetic,
                    &[sizes.saved],
                    ordinal,
                )?),
            };
            let specs = self.0.operator().inputs();
            let wanted = grads.iter().zip(&call.inputs.shapes).zip(specs);
            let mut into = wanted
                .map(|((grad, shape), spec)| match grad.is_null() {
                    true => Ok(None),
                    false => {
                        let dtype = of(sizes.dtypes, spec);
                        TensorMut::from_raw(at(*grad), dtype, shape, ordinal).map(Some)
                    }
                })
                .collect::<Result<Vec<_>, _>>()?;
            self.0.backward_raw(
                call.given.stream.cast(),
                &self.inputs(call, sizes.dtypes)?,
                Tensor::from_raw(at(output), lanes, &sizes.output, ordinal)?,
                saved,
                Tensor::from_raw(at(grad_output), lanes, &sizes.output, ordinal)?,
                &mut into,
                self.scratch(call),
            )?;
        }
        Ok(())
    }

    /// # Safety
    /// The data of the inputs are addresses on the GPU of as much as their shapes say.
    unsafe fn inputs<'a>(
        &self,
        call: &'a Call<'_>,
        dtypes: Dtypes,
    ) -> Result<Vec<Tensor<'a>>, Failure> {
        let ordinal = self.0.device().ordinal();
        let specs = self.0.operator().inputs();
        let tensors = call.inputs.data.iter().zip(&call.inputs.shapes).zip(specs);
        let views = tensors.map(|((data, shape), spec)| {
            // SAFETY: the caller promises it.
            unsafe { Tensor::from_raw(at(*data), of(dtypes, spec), shape, ordinal) }
        });
        Ok(views.collect::<Result<_, _>>()?)
    }

    /// # Safety
    /// The workspace is memory on the GPU of as many bytes as the call says.
    unsafe fn scratch(&self, call: &Call<'_>) -> Option<Scratch<'static>> {
        let (start, bytes) = (call.given.workspace, call.given.workspace_bytes);
        if start.is_null() {
            return None;
        }
        // SAFETY: the caller promises it.
        Some(unsafe { Scratch::from_raw(at(start), bytes, self.0.device().ordinal()) })
    }
}

/// An address on the GPU.
fn at(address: *const c_void) -> u64 {
    address.addr() as u64
}

/// The type of a tensor of an operator.
fn of(dtypes: Dtypes, spec: &TensorSpec) -> Dtype {
    match spec.is_parameter() {
        true => dtypes.params,
        false => dtypes.lanes,
    }
}

fn dtype(name: &str, code: c_int) -> Result<Dtype, Failure> {
    Ok(match code {
        0 => Dtype::F32,
        1 => Dtype::F64,
        2 => Dtype::Bf16,
        3 => Dtype::F16,
        other => {
            return Err(Failure::Argument(format!(
                "{name}: expected FC_F32, FC_F64, FC_BF16 or FC_F16, got {other}"
            )));
        }
    })
}
