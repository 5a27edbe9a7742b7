//! An operator with all tensors that it reads and writes, on a GPU.

use std::sync::Arc;

use flashcliff::cuda::cudarc::driver::{CudaSlice, CudaStream};
use flashcliff::cuda::{self, Array, Dtypes, MatmulPrecision, Scratch, driver_error};
use flashcliff::ops::{self, LinearOptions};
use flashcliff::{Algebra, Bias, Device, Dims, Dtype, Operator, Pass, Signature, TensorSpec};
use flashcliff_floor::values;

use super::square_product;
use crate::check::{Sample, Sampled, Tolerance, compare};
use crate::work::{Buffers, Call};
use crate::{Case, Error, Form, Passes};

/// An operator with its tensors.
#[derive(Debug)]
pub(super) struct OnGpu {
    stream: Arc<CudaStream>,
    operator: Operator,
    form: Form,
    gpu: cuda::Operator,
    dims: Dims,
    dtype: Dtype,
    inputs: Vec<Array>,
    output: Array,
    grad_output: Array,
    grads: Vec<Array>,
    saved: Array,
    workspaces: [CudaSlice<u8>; 2],
}

/// The most elements that differ. A prime number, so that neighbouring rows begin with others.
const DIFFERENT: usize = 65_521;

/// An array of made-up numbers. They repeat in a large array, because making and copying numbers takes the host longer than anything else.
fn random(
    stream: &Arc<CudaStream>,
    dtype: Dtype,
    shape: &[usize],
    seed: u64,
) -> Result<Array, Error> {
    let len: usize = shape.iter().product();
    let own: Vec<f64> = values(len.min(DIFFERENT), seed)
        .into_iter()
        .map(f64::from)
        .collect();
    if len <= DIFFERENT {
        return Ok(Array::from_f64(stream, dtype, &own, shape)?);
    }
    let pattern = Array::from_f64(stream, dtype, &own, &[own.len()])?;
    Ok(Array::repeating(stream, &pattern, shape)?)
}

fn views(inputs: &[Array]) -> Result<Vec<cuda::Tensor<'_>>, Error> {
    let views = inputs.iter().map(Array::view);
    Ok(views.collect::<Result<_, _>>()?)
}

impl OnGpu {
    pub(super) fn new(
        device: &Device,
        stream: &Arc<CudaStream>,
        case: &Case,
    ) -> Result<Self, Error> {
        let operator = case.bind()?;
        let buffers = Self::of(
            operator,
            case.dims,
            case.dtype,
            device,
            stream,
            MatmulPrecision::Highest,
        )?;
        let form = case.form;
        Ok(Self { form, ..buffers })
    }

    fn of(
        operator: Operator,
        dims: Dims,
        dtype: Dtype,
        device: &Device,
        stream: &Arc<CudaStream>,
        precision: MatmulPrecision,
    ) -> Result<Self, Error> {
        let gpu = operator.on_cuda(device)?.with_precision(precision);
        let dtypes = Dtypes::uniform(dtype);
        let input = |(seed, spec): (u64, &TensorSpec)| -> Result<Array, Error> {
            random(stream, dtype, &spec.shape(&dims), seed)
        };
        let inputs = (1..).zip(operator.inputs()).map(input);
        let inputs: Vec<Array> = inputs.collect::<Result<_, _>>()?;
        let grads = inputs.iter();
        let grads = grads.map(|input| Array::zeros(stream, dtype, input.shape()));
        let grads = grads.collect::<Result<_, _>>()?;
        let shape = operator.output_shape(&dims);
        let workspace = |pass| -> Result<CudaSlice<u8>, Error> {
            let bytes = gpu.workspace_bytes(&dims, pass, dtypes)?;
            let memory = stream.alloc_zeros(bytes.max(1));
            Ok(memory.map_err(driver_error("cuMemAlloc"))?)
        };
        gpu.prepare(&dims, dtypes)?;
        Ok(Self {
            output: Array::zeros(stream, dtype, &shape)?,
            grad_output: random(stream, dtype, &shape, 99)?,
            saved: Array::zeros(stream, dtypes.arithmetic(), &[gpu.saved_len(&dims, dtypes)])?,
            workspaces: [workspace(Pass::Forward)?, workspace(Pass::Backward)?],
            grads,
            inputs,
            dims,
            dtype,
            form: Form::Given,
            gpu,
            operator,
            stream: stream.clone(),
        })
    }

    /// The output and the gradients of calls that make them; no gradients of a forward pass alone.
    fn make(&self, passes: Passes) -> Result<(Array, Vec<Array>), Error> {
        let inputs = views(&self.inputs)?;
        let evaluation = self.gpu.evaluate(&self.stream, &inputs)?;
        let grads = match passes {
            Passes::Forward => Vec::new(),
            Passes::Both => {
                let grad_output = self.grad_output.view()?;
                self.gpu
                    .gradients(&self.stream, &inputs, &evaluation, grad_output)?
            }
        };
        Ok((evaluation.output, grads))
    }

    /// Runs the calls that write to memory that is there.
    fn write(&mut self, passes: Passes) -> Result<(), Error> {
        let inputs = views(&self.inputs)?;
        let [forward, backward] = &mut self.workspaces;
        let (output, saved) = (self.output.view_mut()?, self.saved.view_mut()?);
        self.gpu.forward(
            &self.stream,
            &inputs,
            output,
            Some(saved),
            Some(Scratch::new(forward)),
        )?;
        if passes == Passes::Forward {
            return Ok(());
        }
        let mut grads = Vec::with_capacity(self.grads.len());
        for grad in &mut self.grads {
            grads.push(Some(grad.view_mut()?));
        }
        let (output, saved) = (self.output.view()?, self.saved.view()?);
        let grad_output = self.grad_output.view()?;
        let workspace = Some(Scratch::new(backward));
        self.gpu.backward(
            &self.stream,
            &inputs,
            output,
            Some(saved),
            grad_output,
            &mut grads,
            workspace,
        )?;
        Ok(())
    }

    fn compare(&self, case: &Case, sample: &Sample) -> Result<f64, Error> {
        let pick = |spec: &TensorSpec, array: &Array| -> Result<Vec<Vec<f64>>, Error> {
            let data = array.to_f64(&self.stream)?;
            Ok(sample.pick(spec, data.len(), |i| data[i]))
        };
        let specs = self.operator.inputs();
        let all = |arrays: &[Array]| -> Result<Vec<Vec<Vec<f64>>>, Error> {
            let pairs = specs.iter().zip(arrays);
            pairs.map(|(spec, array)| pick(spec, array)).collect()
        };
        let spec = self.operator.output();
        let sampled = Sampled {
            inputs: all(&self.inputs)?,
            output: pick(spec, &self.output)?,
            grad_output: pick(spec, &self.grad_output)?,
            grads: all(&self.grads)?,
        };
        compare(case, &self.operator, &sampled, Tolerance::of(self.dtype))
    }
}

impl Buffers for OnGpu {
    fn call(&self, passes: Passes) -> Call {
        Call::of(&self.operator, &self.dims, self.dtype, passes)
    }

    /// What calls make is dropped, so that a graph of them frees what it allocates.
    fn run(&mut self, passes: Passes) -> Result<(), Error> {
        match self.form {
            Form::Given => self.write(passes),
            Form::Made => self.make(passes).map(drop),
        }
    }

    fn check(&mut self, case: &Case) -> Result<f64, Error> {
        let sample = Sample::of(&self.dims);
        let spec = self.operator.output().clone();
        let mut few = self.grad_output.to_f64(&self.stream)?;
        sample.clear_others(&spec, &mut few, 0.0);
        let shape = self.grad_output.shape().to_vec();
        let few = Array::from_f64(&self.stream, self.dtype, &few, &shape)?;
        let full = std::mem::replace(&mut self.grad_output, few);
        match self.form {
            Form::Given => self.write(Passes::Both)?,
            Form::Made => (self.output, self.grads) = self.make(Passes::Both)?,
        }
        let difference = self.compare(case, &sample)?;
        self.grad_output = full;
        Ok(difference)
    }

    fn moved(&self) -> Option<Box<dyn Buffers>> {
        None
    }
}

/// A product of two square matrices: `mv_linear` in an algebra of two blades, with one matrix for both.
#[derive(Debug)]
pub(super) struct Product(OnGpu);

impl Product {
    pub(super) fn new(
        device: &Device,
        stream: &Arc<CudaStream>,
        side: usize,
        dtype: Dtype,
        rounds_to_tf32: bool,
    ) -> Result<Self, Error> {
        let options = LinearOptions::default()
            .with_per_grade(false)
            .with_bias(Bias::None);
        let operator = ops::mv_linear(Algebra::new(Signature::of(1, 0, 0))?, &options)?;
        let precision = match rounds_to_tf32 {
            true => MatmulPrecision::Tf32,
            false => MatmulPrecision::Highest,
        };
        let dims = square_product(side);
        Ok(Self(OnGpu::of(
            operator, dims, dtype, device, stream, precision,
        )?))
    }

    pub(super) fn run(&mut self) -> Result<(), Error> {
        self.0.run(Passes::Forward)
    }
}
