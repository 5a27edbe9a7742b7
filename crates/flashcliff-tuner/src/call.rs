//! A call of an operator with random inputs. Both of its passes can be run again and again.

use std::sync::Arc;

use flashcliff::cuda::cudarc::driver::{CudaSlice, CudaStream};
use flashcliff::cuda::{Array, Device, Dtypes, MatmulPrecision, Operator, Scratch};
use flashcliff::{Dims, Dtype, Error, Pass};

use crate::random::Random;
use crate::scratch::scratch;
use crate::tuner::Workload;

/// The numbers of a call.
#[derive(Clone, Debug)]
pub(crate) struct Numbers {
    pub(crate) inputs: Vec<Vec<f64>>,
    pub(crate) grad_output: Vec<f64>,
}

impl Numbers {
    /// Random numbers in [-1, 1), rounded to the type. Parameters are smaller, so that sums over channels stay of that
    /// size.
    pub(crate) fn random(workload: &Workload) -> Self {
        let Workload {
            operator,
            dims,
            dtype,
            ..
        } = workload;
        let mut random = Random::new(1);
        let mut rounded = |len: usize, scale: f64| -> Vec<f64> {
            let numbers = random.numbers(len, scale).into_iter();
            numbers.map(|number| dtype.nearest(number)).collect()
        };
        let inputs = operator.inputs().iter().map(|spec| {
            let scale = match spec.is_parameter() {
                true => 1.0 / (dims.in_channels.max(1) as f64).sqrt(),
                false => 1.0,
            };
            rounded(spec.shape(dims).iter().product(), scale)
        });
        let inputs = inputs.collect();
        let grad_output = rounded(operator.output_shape(dims).iter().product(), 1.0);
        Self {
            inputs,
            grad_output,
        }
    }

    /// These numbers with relative errors of up to two units.
    pub(crate) fn moved(&self, unit: f64, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut moved = |numbers: &Vec<f64>| -> Vec<f64> {
            let numbers = numbers.iter();
            let factor = |random: &mut Random| 1.0 + 2.0 * unit * random.unit();
            numbers.map(|number| number * factor(&mut random)).collect()
        };
        Self {
            inputs: self.inputs.iter().map(&mut moved).collect(),
            grad_output: moved(&self.grad_output),
        }
    }
}

/// An operator on a device with all memory of its passes.
pub(crate) struct Call {
    operator: Operator,
    dims: Dims,
    dtypes: Dtypes,
    stream: Arc<CudaStream>,
    inputs: Vec<Array>,
    grad_output: Array,
    output: Array,
    saved: Array,
    grads: Vec<Array>,
    workspace: CudaSlice<u8>,
}

impl Call {
    pub(crate) fn new(
        device: &Device,
        stream: &Arc<CudaStream>,
        workload: &Workload,
        (dtype, precision): (Dtype, MatmulPrecision),
        numbers: &Numbers,
    ) -> Result<Self, Error> {
        let dims = workload.dims;
        let operator = workload.operator.on_cuda(device)?.with_precision(precision);
        let specs = workload.operator.inputs();
        let mut inputs = Vec::new();
        let mut grads = Vec::new();
        for (spec, numbers) in specs.iter().zip(&numbers.inputs) {
            let shape = spec.shape(&dims);
            inputs.push(Array::from_f64(stream, dtype, numbers, &shape)?);
            grads.push(Array::zeros(stream, dtype, &shape)?);
        }
        let shape = workload.operator.output_shape(&dims);
        let dtypes = Dtypes::uniform(dtype);
        let saved_len = [operator.saved_len(&dims, dtypes)];
        Ok(Self {
            dims,
            dtypes,
            stream: stream.clone(),
            inputs,
            grad_output: Array::from_f64(stream, dtype, &numbers.grad_output, &shape)?,
            output: Array::zeros(stream, dtype, &shape)?,
            saved: Array::zeros(stream, dtypes.arithmetic(), &saved_len)?,
            grads,
            workspace: scratch(stream, 1)?,
            operator,
        })
    }

    /// Makes sure that there is workspace for a pass: knobs may change how much it needs.
    pub(crate) fn prepare(&mut self, pass: Pass) -> Result<(), Error> {
        let bytes = self
            .operator
            .workspace_bytes(&self.dims, pass, self.dtypes)?;
        if self.workspace.len() < bytes {
            self.workspace = scratch(&self.stream, bytes)?;
        }
        Ok(())
    }

    /// Launches a pass. The forward pass must come before the first backward pass.
    pub(crate) fn run(&mut self, pass: Pass) -> Result<(), Error> {
        let inputs: Result<Vec<_>, Error> = self.inputs.iter().map(Array::view).collect();
        let inputs = inputs?;
        let workspace = Some(Scratch::new(&mut self.workspace));
        match pass {
            Pass::Forward => self.operator.forward(
                &self.stream,
                &inputs,
                self.output.view_mut()?,
                Some(self.saved.view_mut()?),
                workspace,
            ),
            Pass::Backward => {
                let mut grads = Vec::with_capacity(self.grads.len());
                for grad in &mut self.grads {
                    grads.push(Some(grad.view_mut()?));
                }
                self.operator.backward(
                    &self.stream,
                    &inputs,
                    self.output.view()?,
                    Some(self.saved.view()?),
                    self.grad_output.view()?,
                    &mut grads,
                    workspace,
                )
            }
        }
    }

    /// The results of both passes: the output and the gradients of all inputs.
    pub(crate) fn results(&mut self) -> Result<Vec<Vec<f64>>, Error> {
        for pass in [Pass::Forward, Pass::Backward] {
            self.prepare(pass)?;
            self.run(pass)?;
        }
        let arrays = [&self.output].into_iter().chain(&self.grads);
        arrays.map(|array| array.to_f64(&self.stream)).collect()
    }
}
