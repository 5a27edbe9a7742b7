//! Passes on NVIDIA GPUs, over memory and on streams that Python owns.

use std::sync::{Arc, Mutex, PoisonError};

use flashcliff::cuda::cudarc::driver::{CudaStream, DevicePtr};
use flashcliff::cuda::{
    self, Device, Dtypes, MatmulPrecision, Scratch, SizedCall, Tensor, TensorMut,
};
use flashcliff::{Dims, Dtype, Error, Operator, Pass};
use pyo3::prelude::*;

use crate::convert::{Gpu, Plan, Space, View};
use crate::error::{CudaError, detached};
use crate::host::{Given, Gradients};
use crate::runs::{Run, RunPlan};

/// An address, the stride of blades and that of rows.
pub(crate) type Strided = (usize, usize, usize);

/// An operator on the GPUs that it has been used on.
#[derive(Debug)]
pub(crate) struct Devices {
    /// The most bytes that a block of rows may take, if Python says so.
    block_bytes: Option<usize>,
    operators: Mutex<Vec<(usize, cuda::Operator)>>,
}

impl Devices {
    pub(crate) fn new(block_bytes: Option<usize>) -> Self {
        Self {
            block_bytes,
            operators: Mutex::default(),
        }
    }

    pub(crate) fn plan(
        &self,
        operator: &Operator,
        inputs: &[View],
        pass: Pass,
        gpu: Gpu,
    ) -> Result<Plan, Error> {
        let dims = bind(operator, inputs)?;
        let on_gpu = self.get(operator, gpu)?;
        let dtypes = dtypes(operator, inputs);
        Ok(Plan {
            output: operator.output_shape(&dims),
            saved: on_gpu.saved_len(&dims, dtypes),
            workspace: on_gpu.workspace_bytes(&dims, pass, dtypes)?,
            is_large: false,
        })
    }

    /// Loads the kernels of a pass, or of a run, and chooses algorithms of matrix products for its sizes.
    pub(crate) fn prepare(
        &self,
        operator: &Operator,
        inputs: &[View],
        is_run: bool,
        gpu: Gpu,
    ) -> Result<(), Error> {
        let dims = bind(operator, inputs)?;
        let dims = match is_run {
            true => operator.in_long_rows(&dims),
            false => dims,
        };
        self.get(operator, gpu)?
            .prepare(&dims, dtypes(operator, inputs))
    }

    /// The needs of a run.
    pub(crate) fn plan_run(
        &self,
        operator: &Operator,
        inputs: &[View],
        gpu: Gpu,
    ) -> Result<RunPlan, Error> {
        let dims = bind(operator, inputs)?;
        let on_gpu = self.get(operator, gpu)?;
        let dtypes = dtypes(operator, inputs);
        let specs = operator.outputs().iter();
        Ok(RunPlan {
            outputs: specs.map(|spec| spec.shape(&dims)).collect(),
            workspace: on_gpu.run_workspace_bytes(&operator.in_long_rows(&dims), dtypes)?,
            is_large: false,
        })
    }

    /// # Safety
    /// The contract of [`Self::forward`] holds for the tensors of the run.
    pub(crate) unsafe fn run(&self, operator: &Operator, run: &Run, gpu: Gpu) -> Result<(), Error> {
        let dims = operator.in_long_rows(&bind(operator, &run.inputs)?);
        let on_gpu = self.get(operator, gpu)?;
        let dtypes = dtypes(operator, &run.inputs);
        let specs = operator.outputs();
        let shapes: Vec<Vec<usize>> = specs.iter().map(|spec| spec.shape(&dims)).collect();
        // SAFETY: the caller promises it.
        unsafe {
            let mut inputs = Vec::with_capacity(run.inputs.len());
            for (input, spec) in run.inputs.iter().zip(operator.inputs()) {
                let (address, shape) = (input.address as u64, spec.shape(&dims));
                inputs.push(Tensor::from_raw(address, input.dtype, &shape, gpu.ordinal)?);
            }
            let mut outputs = Vec::with_capacity(run.outputs.len());
            for ((output, shape), spec) in run.outputs.iter().zip(&shapes).zip(specs) {
                let dtype = match spec.is_parameter() {
                    true => dtypes.params,
                    false => dtypes.lanes,
                };
                let view = |at: usize| TensorMut::from_raw(at as u64, dtype, shape, gpu.ordinal);
                outputs.push(output.map(view).transpose()?);
            }
            let space = run.workspace;
            let scratch = || Scratch::from_raw(space.address as u64, space.bytes, gpu.ordinal);
            on_gpu.run_raw(
                std::ptr::with_exposed_provenance_mut(gpu.stream),
                &inputs,
                &mut outputs,
                (space.bytes > 0).then(scratch),
            )
        }
    }

    pub(crate) fn plan_strided(
        &self,
        operator: &Operator,
        inputs: &[View],
        gpu: Gpu,
    ) -> Result<RunPlan, Error> {
        let on_gpu = self.get(operator, gpu)?;
        let dims = bind(operator, inputs)?;
        let dtypes = dtypes(operator, inputs);
        let specs = operator.outputs().iter();
        Ok(RunPlan {
            outputs: specs.map(|spec| spec.shape(&dims)).collect(),
            workspace: on_gpu.run_strided_workspace_bytes(
                &dims,
                dtypes,
                cuda::WideTensors::default(),
            )?,
            is_large: false,
        })
    }

    /// # Safety
    /// The contract of [`cuda::Operator::run_strided`] holds.
    pub(crate) unsafe fn run_strided(
        &self,
        operator: &Operator,
        run: &StridedRun<'_>,
        gpu: Gpu,
    ) -> Result<(), Error> {
        let dims = bind(operator, run.inputs)?;
        let on_gpu = self.get(operator, gpu)?;
        let strides = run.inputs.iter().zip(run.strides);
        let inputs: Vec<_> = strides
            .map(|(input, &(blades, rows))| strided((input.address, blades, rows)))
            .collect();
        let outputs = run.outputs.iter();
        let outputs: Vec<_> = outputs.map(|&output| Some(strided(output))).collect();
        let workspace = cuda::StridedWorkspace {
            address: run.workspace.address as u64,
            bytes: run.workspace.bytes,
        };
        // SAFETY: the caller promises it.
        unsafe {
            on_gpu.run_strided(
                std::ptr::with_exposed_provenance_mut(gpu.stream),
                &dims,
                (dtypes(operator, run.inputs), cuda::WideTensors::default()),
                &inputs,
                &outputs,
                workspace,
            )
        }
    }

    /// The error of a pass that found no memory while so many bytes were available; if absent, the device is asked.
    pub(crate) fn no_room(
        &self,
        operator: &Operator,
        inputs: &[View],
        pass: Pass,
        gradients: Option<&[bool]>,
        available: Option<u64>,
        gpu: Gpu,
    ) -> Result<Error, Error> {
        let dims = bind(operator, inputs)?;
        let on_gpu = self.get(operator, gpu)?;
        let available = available.or_else(|| on_gpu.device().available_memory().ok());
        let call = SizedCall {
            dims: &dims,
            dtypes: dtypes(operator, inputs),
            pass,
            gradients,
        };
        Ok(on_gpu.no_room(&call, available.map(u128::from)))
    }

    /// # Safety
    /// Each address in `given` is the address, on the device, of what the operator needs there. The stream of `place`
    /// belongs to the primary context of the device, and orders the uses of all memory that is written.
    pub(crate) unsafe fn forward(
        &self,
        operator: &Operator,
        given: &Given,
        gpu: Gpu,
    ) -> Result<(), Error> {
        let on_gpu = self.get(operator, gpu)?;
        let call = Call::new(&on_gpu, given, gpu.ordinal)?;
        let saved = (given.saved != 0).then_some(given.saved);
        // SAFETY: the caller promises it.
        unsafe {
            let saved = saved.map(|saved| call.saved_mut(saved)).transpose()?;
            on_gpu.forward_raw(
                std::ptr::with_exposed_provenance_mut(gpu.stream),
                &call.inputs,
                call.tensor_mut(given.output)?,
                saved,
                call.scratch(given),
            )
        }
    }

    /// # Safety
    /// The contract of [`Self::forward`] holds.
    pub(crate) unsafe fn backward(
        &self,
        operator: &Operator,
        given: &Given,
        gradients: &Gradients,
        gpu: Gpu,
    ) -> Result<(), Error> {
        let on_gpu = self.get(operator, gpu)?;
        let call = Call::new(&on_gpu, given, gpu.ordinal)?;
        let saved = (given.saved != 0).then_some(given.saved);
        // SAFETY: the caller promises it.
        unsafe {
            let saved = saved.map(|saved| call.saved(saved)).transpose()?;
            let grads = gradients.grads.iter().zip(&given.inputs);
            let grads = grads.map(|(grad, input)| {
                let view = |at: usize| {
                    TensorMut::from_raw(at as u64, input.dtype, &input.shape, gpu.ordinal)
                };
                grad.map(view).transpose()
            });
            let mut grads = grads.collect::<Result<Vec<_>, _>>()?;
            on_gpu.backward_raw(
                std::ptr::with_exposed_provenance_mut(gpu.stream),
                &call.inputs,
                call.tensor(given.output)?,
                saved,
                call.tensor(gradients.grad_output)?,
                &mut grads,
                call.scratch(given),
            )
        }
    }

    fn get(&self, operator: &Operator, gpu: Gpu) -> Result<cuda::Operator, Error> {
        let precision = match gpu.tf32 {
            true => MatmulPrecision::Tf32,
            false => MatmulPrecision::Highest,
        };
        let found = self.find(operator, gpu.ordinal)?;
        Ok(found.with_precision(precision))
    }

    fn find(&self, operator: &Operator, ordinal: usize) -> Result<cuda::Operator, Error> {
        let lock = || {
            self.operators
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        let found = |operators: &[(usize, cuda::Operator)]| {
            let found = operators.iter().find(|(at, _)| *at == ordinal);
            found.map(|(_, operator)| operator.clone())
        };
        if let Some(operator) = found(&lock()) {
            return Ok(operator);
        }
        // This does not run under the lock, because it starts CUDA and loads libraries. Two threads may both get here.
        let mut made = operator.on_cuda(&Device::cuda(ordinal)?)?;
        if let Some(bytes) = self.block_bytes {
            made = made.with_block_bytes(bytes);
        }
        let mut operators = lock();
        if found(&operators).is_none() {
            operators.push((ordinal, made.clone()));
        }
        Ok(made)
    }
}

/// The tensors of a run on tensors with strides.
pub(crate) struct StridedRun<'a> {
    pub(crate) inputs: &'a [View],
    /// The strides of components and of rows.
    pub(crate) strides: &'a [(usize, usize)],
    pub(crate) outputs: &'a [Strided],
    pub(crate) workspace: Space,
}

fn strided((address, blade_stride, row_stride): Strided) -> cuda::StridedTensor {
    cuda::StridedTensor {
        address: address as u64,
        blade_stride,
        row_stride,
    }
}

/// The views of a pass's arguments.
struct Call<'a> {
    inputs: Vec<Tensor<'a>>,
    output: Vec<usize>,
    saved: [usize; 1],
    dtypes: Dtypes,
    ordinal: usize,
}

impl<'a> Call<'a> {
    fn new(on_gpu: &cuda::Operator, given: &'a Given, ordinal: usize) -> Result<Self, Error> {
        let operator = on_gpu.operator();
        let dims = bind(operator, &given.inputs)?;
        let dtypes = dtypes(operator, &given.inputs);
        let inputs = given.inputs.iter().map(|input| {
            let address = input.address as u64;
            // SAFETY: the caller of the pass promises it.
            unsafe { Tensor::from_raw(address, input.dtype, &input.shape, ordinal) }
        });
        Ok(Self {
            inputs: inputs.collect::<Result<_, _>>()?,
            output: operator.output_shape(&dims),
            saved: [on_gpu.saved_len(&dims, dtypes)],
            dtypes,
            ordinal,
        })
    }

    /// # Safety
    /// The contract of [`Tensor::from_raw`] holds.
    unsafe fn tensor(&self, at: usize) -> Result<Tensor<'a>, Error> {
        // SAFETY: the caller promises it.
        unsafe { Tensor::from_raw(at as u64, self.dtypes.lanes, &self.output, self.ordinal) }
    }

    /// # Safety
    /// The contract of [`TensorMut::from_raw`] holds.
    unsafe fn tensor_mut(&self, at: usize) -> Result<TensorMut<'a>, Error> {
        // SAFETY: the caller promises it.
        unsafe { TensorMut::from_raw(at as u64, self.dtypes.lanes, &self.output, self.ordinal) }
    }

    /// # Safety
    /// The contract of [`Tensor::from_raw`] holds.
    unsafe fn saved(&self, at: usize) -> Result<Tensor<'a>, Error> {
        let dtype = self.dtypes.arithmetic();
        // SAFETY: the caller promises it.
        unsafe { Tensor::from_raw(at as u64, dtype, &self.saved, self.ordinal) }
    }

    /// # Safety
    /// The contract of [`TensorMut::from_raw`] holds.
    unsafe fn saved_mut(&self, at: usize) -> Result<TensorMut<'a>, Error> {
        let dtype = self.dtypes.arithmetic();
        // SAFETY: the caller promises it.
        unsafe { TensorMut::from_raw(at as u64, dtype, &self.saved, self.ordinal) }
    }

    /// # Safety
    /// The contract of [`Scratch::from_raw`] holds.
    unsafe fn scratch(&self, given: &Given) -> Option<Scratch<'a>> {
        let space = given.workspace;
        // SAFETY: the caller promises it.
        let scratch =
            || unsafe { Scratch::from_raw(space.address as u64, space.bytes, self.ordinal) };
        (space.bytes > 0).then(scratch)
    }
}

fn bind(operator: &Operator, inputs: &[View]) -> Result<Dims, Error> {
    let shapes: Vec<&[usize]> = inputs.iter().map(|input| &input.shape[..]).collect();
    operator.bind(&shapes)
}

/// The element types of a call. The library checks that all tensors have them.
fn dtypes(operator: &Operator, inputs: &[View]) -> Dtypes {
    let first = |parameter: bool| {
        let mut pairs = operator.inputs().iter().zip(inputs);
        let found =
            pairs.find(|(spec, _)| spec.dims.contains(&flashcliff::Dim::Batch) != parameter);
        found.map(|(_, input)| input.dtype)
    };
    let lanes = first(false).unwrap_or(Dtype::F32);
    Dtypes {
        lanes,
        params: first(true).unwrap_or(lanes),
    }
}

/// Memory of a GPU, used on its default stream.
pub(crate) struct Memory {
    array: cuda::Array,
    stream: Arc<CudaStream>,
    address: usize,
}

impl Memory {
    pub(crate) fn new(py: Python<'_>, bytes: usize, ordinal: usize) -> PyResult<Self> {
        detached(py, || {
            let stream = Device::cuda(ordinal)?.default_stream();
            let elements = bytes.div_ceil(Dtype::F32.bytes());
            let array = cuda::Array::zeros(&stream, Dtype::F32, &[elements])?;
            let (address, guard) = array.memory().device_ptr(&stream);
            drop(guard);
            Ok::<_, Error>(Self {
                array,
                stream,
                address: address as usize,
            })
        })
    }

    pub(crate) fn address(&self) -> usize {
        self.address
    }

    pub(crate) fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        let done = py.detach(|| self.stream.synchronize());
        done.map_err(|error| CudaError::new_err(error.to_string()))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // The consumer of the array may still use it, on streams that are not known here. After an error no work is
        // running.
        let _ = self.stream.context().synchronize();
        let _ = &self.array;
    }
}
