//! Operators, with memory for both passes.

use flashcliff::cuda::cudarc::driver::{CudaSlice, CudaStream, DevicePtr};
use flashcliff::cuda::half::bf16;
use flashcliff::cuda::{self, Array, Dtypes, MatmulPrecision, Scratch, Tensor};
use flashcliff::ops::{self, LinearOptions, LinearSgpOptions, ProductOptions};
use flashcliff::{Algebra, Bias, Device, Dim, Dims, Dtype, Operator, Pass, Signature, TensorSpec};
use flashcliff_floor::values;

use std::sync::Arc;

use crate::error::{Error, driver};

/// An operator with default options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    SgpNorm,
    FcgpNorm,
    MvLinear,
    MvLinearSgpNorm,
    /// `mv_linear` with one matrix and without a bias: a plain product of matrices.
    OneMatrix,
}

impl Which {
    fn operator(self, algebra: Algebra) -> Result<Operator, flashcliff::Error> {
        match self {
            Self::SgpNorm => ops::sgp_norm(algebra, &ProductOptions::default()),
            Self::FcgpNorm => ops::fcgp_norm(algebra, &ProductOptions::default()),
            Self::MvLinear => ops::mv_linear(algebra, &LinearOptions::default()),
            Self::MvLinearSgpNorm => ops::mv_linear_sgp_norm(algebra, &LinearSgpOptions::default()),
            Self::OneMatrix => {
                let options = LinearOptions::default()
                    .with_per_grade(false)
                    .with_bias(Bias::None);
                ops::mv_linear(algebra, &options)
            }
        }
    }

    /// Whether the operator multiplies matrices. It then does so in TF32.
    pub(crate) fn multiplies_matrices(self) -> bool {
        self != Self::SgpNorm
    }
}

/// An operator with sizes and types, to be measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject {
    pub(crate) which: Which,
    /// The numbers (p, q, r).
    pub(crate) signature: [usize; 3],
    pub(crate) batch: usize,
    pub(crate) channels: usize,
    pub(crate) dtype: Dtype,
}

/// An operator with all tensors that it reads and writes.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) which: Which,
    pub(crate) op: Operator,
    pub(crate) gpu: cuda::Operator,
    pub(crate) dims: Dims,
    pub(crate) dtypes: Dtypes,
    pub(crate) inputs: Vec<Array>,
    pub(crate) grad_output: Array,
    pub(crate) output: Array,
    pub(crate) saved: Array,
    pub(crate) grads: Vec<Array>,
    workspaces: [CudaSlice<u8>; 2],
}

impl Case {
    pub(crate) fn new(
        device: &Device,
        stream: &Arc<CudaStream>,
        subject: &Subject,
    ) -> Result<Self, Error> {
        let [p, q, r] = subject.signature;
        let algebra = Algebra::new(Signature::new(p, q, r).map_err(flashcliff::Error::from)?)?;
        Self::of_algebra(algebra, device, stream, subject)
    }

    /// The case in an algebra, whatever signature the subject names.
    pub(crate) fn of_algebra(
        algebra: Algebra,
        device: &Device,
        stream: &Arc<CudaStream>,
        subject: &Subject,
    ) -> Result<Self, Error> {
        let Subject {
            which,
            batch,
            channels,
            dtype,
            ..
        } = *subject;
        let op = which.operator(algebra)?;
        let gpu = op.on_cuda(device)?.with_precision(MatmulPrecision::Tf32);
        let dims = Dims {
            batch,
            in_channels: channels,
            out_channels: channels,
            scalar_channels: 0,
        };
        let dtypes = Dtypes::uniform(dtype);
        let shapes: Vec<Vec<usize>> = op.inputs().iter().map(|i| i.shape(&dims)).collect();
        let fill = |(seed, spec): (u64, &TensorSpec)| {
            let shape = spec.shape(&dims);
            let mut values = values(shape.iter().product(), seed);
            if is_matrix(spec) {
                // Weights have the size that layers start with, so that outputs are as large as inputs.
                let scale = (channels as f32).sqrt().recip();
                values.iter_mut().for_each(|value| *value *= scale);
            }
            upload(stream, dtype, &values, &shape)
        };
        let zeros = |dtype, shape: &[usize]| Array::zeros(stream, dtype, shape);
        let inputs = (1..).zip(op.inputs()).map(fill);
        let inputs: Vec<Array> = inputs.collect::<Result<_, _>>()?;
        let grads = shapes.iter().map(|shape| zeros(dtype, shape));
        let grads = grads.collect::<Result<_, _>>()?;
        let output_shape = op.output_shape(&dims);
        let workspace = |pass| -> Result<CudaSlice<u8>, Error> {
            let bytes = gpu.workspace_bytes(&dims, pass, dtypes)?;
            let memory = stream.alloc_zeros(bytes.max(1));
            memory.map_err(driver("cuMemAlloc"))
        };
        let name = format!("{} {batch}x{channels}", algebra.name());
        Ok(Self {
            name: match which.multiplies_matrices() {
                false => format!("{name} {dtype}"),
                true => format!("{} {name} tf32", op.name()),
            },
            which,
            grad_output: random(stream, dtype, &output_shape, 9)?,
            output: zeros(dtype, &output_shape)?,
            saved: zeros(dtypes.arithmetic(), &[gpu.saved_len(&dims, dtypes)])?,
            workspaces: [workspace(Pass::Forward)?, workspace(Pass::Backward)?],
            inputs,
            grads,
            op,
            gpu,
            dims,
            dtypes,
        })
    }

    pub(crate) fn forward(&mut self, stream: &CudaStream) -> Result<(), Error> {
        let inputs = self.inputs.iter().map(Array::view);
        let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
        Ok(self.gpu.forward(
            stream,
            &inputs,
            self.output.view_mut()?,
            Some(self.saved.view_mut()?),
            Some(Scratch::new(&mut self.workspaces[0])),
        )?)
    }

    pub(crate) fn backward(&mut self, stream: &CudaStream) -> Result<(), Error> {
        let inputs = self.inputs.iter().map(Array::view);
        let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
        let mut grads = Vec::with_capacity(self.grads.len());
        for grad in &mut self.grads {
            grads.push(Some(grad.view_mut()?));
        }
        Ok(self.gpu.backward(
            stream,
            &inputs,
            self.output.view()?,
            Some(self.saved.view()?),
            self.grad_output.view()?,
            &mut grads,
            Some(Scratch::new(&mut self.workspaces[1])),
        )?)
    }

    /// The bytes of a lane tensor of the case.
    pub(crate) fn tensor_bytes(&self) -> usize {
        let len: usize = self.op.output_shape(&self.dims).iter().product();
        len * self.dtypes.lanes.bytes()
    }

    /// The least number of bytes that a pass moves: two operands and the output, or these and two gradients.
    pub(crate) fn bytes(&self, pass: Pass) -> usize {
        match pass {
            Pass::Forward => 3 * self.tensor_bytes(),
            Pass::Backward => 5 * self.tensor_bytes(),
        }
    }

    /// The floating-point operations of a pass.
    pub(crate) fn flops(&self, pass: Pass) -> usize {
        let cost = self.op.cost(&self.dims);
        match pass {
            Pass::Forward => cost.forward,
            Pass::Backward => cost.backward,
        }
    }

    /// The sizes of the buffers that both passes need besides their inputs and the gradient of the output, in bytes.
    pub(crate) fn extra_bytes(&self) -> Vec<usize> {
        let arrays = [&self.output, &self.saved].into_iter().chain(&self.grads);
        let arrays = arrays.map(|array| {
            let len: usize = array.shape().iter().product();
            len * array.dtype().bytes()
        });
        // An empty workspace has one byte all the same.
        let workspaces = self.workspaces.iter().map(CudaSlice::num_bytes);
        arrays.chain(workspaces).collect()
    }

    /// The addresses of `x`, `y` and the output.
    pub(crate) fn addresses(&self, stream: &CudaStream) -> [u64; 3] {
        [&self.inputs[0], &self.inputs[1], &self.output]
            .map(|array| array.memory().device_ptr(stream).0)
    }
}

/// Whether a tensor is a matrix by which channels are multiplied.
fn is_matrix(spec: &TensorSpec) -> bool {
    let channels = |dim: &&Dim| matches!(dim, Dim::In | Dim::Out);
    spec.dims.iter().filter(channels).count() == 2
}

/// Random numbers in (-1, 1).
pub(crate) fn random(
    stream: &Arc<CudaStream>,
    dtype: Dtype,
    shape: &[usize],
    seed: u64,
) -> Result<Array, Error> {
    upload(stream, dtype, &values(shape.iter().product(), seed), shape)
}

/// Copies numbers to a device, as elements of a type.
pub(crate) fn upload(
    stream: &Arc<CudaStream>,
    dtype: Dtype,
    values: &[f32],
    shape: &[usize],
) -> Result<Array, Error> {
    if dtype == Dtype::Bf16 {
        let values: Vec<bf16> = values.iter().map(|&v| bf16::from_f32(v)).collect();
        return Ok(Array::from_host(stream, &values, shape)?);
    }
    Ok(Array::from_host(stream, values, shape)?)
}

/// Copies elements of any type from a device, as numbers.
pub(crate) fn download(stream: &Arc<CudaStream>, array: &Array) -> Result<Vec<f32>, Error> {
    if array.dtype() == Dtype::Bf16 {
        let values = array.to_host::<bf16>(stream)?;
        return Ok(values.iter().map(|v| v.to_f32()).collect());
    }
    Ok(array.to_host::<f32>(stream)?)
}

/// A view of an array by its address, for calls on other streams.
pub(crate) fn raw(array: &Array, stream: &CudaStream) -> Result<Tensor<'static>, Error> {
    let (address, _guard) = array.memory().device_ptr(stream);
    let ordinal = stream.context().ordinal();
    // SAFETY: callers keep the array until they have waited for the stream.
    Ok(unsafe { Tensor::from_raw(address, array.dtype(), array.shape(), ordinal) }?)
}
