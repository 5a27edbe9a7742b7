//! A core operator as a node on a GPU.
//!
//! Outputs, gradients, saved rows and workspaces are allocated through candle's device, in the order of
//! its stream, on which everything is launched: nothing waits, nothing is copied to the host.

use std::sync::Arc;

use candle_core::{CudaDevice, CudaStorage, Device, Storage, Tensor};
use flashcliff::cuda::{self, Dtypes, Scratch, SizedCall, TensorMut};
use flashcliff::{Dim, Dims, Dtype, Operator, Pass};

use super::OnGpu;
use super::library::{self, core_dtype};
use super::memory::{self, View, misplaced, with_views, writable};
use crate::Error;
use crate::op::GpuOptions;
use crate::op::node::{self, Argument, Backward, OfOperator};
use crate::op::once::{self, Gradient};
use crate::op::operator::{Core, WithOptions};
use crate::precision;
use crate::timeline::{self, Operation, Sizes};

impl<C: Core> OnGpu for C {
    fn apply_on_gpu(self: &Arc<Self>, arguments: &[Argument]) -> Result<Tensor, Error> {
        apply(self.operator(), self.options(), arguments)
    }
}

fn apply(core: &Operator, options: GpuOptions, arguments: &[Argument]) -> Result<Tensor, Error> {
    let (inputs, shapes) = node::lay_out(arguments)?;
    let Some(Device::Cuda(device)) = inputs.first().map(Tensor::device) else {
        return Err(misplaced(core.name()));
    };
    let device = device.clone();
    let mut operator = core
        .on_cuda(&library::device(&device)?)?
        .with_precision(precision::of_operators());
    if let Some(bytes) = options.block_bytes {
        operator = operator.with_block_bytes(bytes);
    }
    let call = Call {
        dims: bind(core, &shapes)?,
        dtypes: dtypes(core, &inputs)?,
        operator,
        device,
        shapes,
    };
    let made = call.forward(&inputs);
    let (output, saved) = made.map_err(|error| call.explained(error, Pass::Forward, None))?;
    let shape = core.output_shape(&call.dims);
    let backward = OnCuda {
        call,
        saved,
        options,
    };
    node::record(inputs, Storage::Cuda(output), shape, backward)
}

/// An operator on a GPU, with the sizes of a call.
struct Call {
    operator: cuda::Operator,
    device: CudaDevice,
    dims: Dims,
    dtypes: Dtypes,
    shapes: Vec<Vec<usize>>,
}

impl Call {
    /// The output, and the values that the backward pass reads.
    fn forward(&self, inputs: &[Tensor]) -> Result<(CudaStorage, CudaStorage), Error> {
        let Self {
            operator,
            device,
            dims,
            dtypes,
            shapes,
        } = self;
        let shape = operator.operator().output_shape(dims);
        let (len, saved_len) = (shape.iter().product(), self.saved_len());
        let mut output = memory::allocate(device, dtypes.lanes, len)?;
        let mut saved = memory::allocate(device, dtypes.arithmetic(), saved_len)?;
        let bytes = operator.workspace_bytes(dims, Pass::Forward, *dtypes)?;
        let mut workspace = memory::allocate_bytes(device, bytes)?;
        let mut output_view = writable(&mut output, len)?;
        let mut saved_view = writable(&mut saved, saved_len)?;
        let launch = || {
            with_views(inputs, |views| {
                operator.forward(
                    &device.cuda_stream(),
                    &tensors(views, shapes)?,
                    output_view.tensor(&shape)?,
                    Some(saved_view.tensor(&[saved_len])?),
                    Some(Scratch::new(&mut workspace)),
                )?;
                Ok(())
            })
        };
        let tracked = || inputs.iter().map(Tensor::track_op).collect::<Vec<_>>();
        timeline::within(|| self.operation(Pass::Forward, &tracked()), launch)?;
        Ok((output, saved))
    }

    fn saved_len(&self) -> usize {
        self.operator.saved_len(&self.dims, self.dtypes)
    }

    /// A pass for a timeline.
    fn operation(&self, pass: Pass, wanted: &[bool]) -> Arc<Operation> {
        let sizes = Sizes {
            lanes: self.dtypes.lanes,
            params: self.dtypes.params,
        };
        let operator = self.operator.operator();
        Arc::new(Operation::of_operator(
            operator, &self.dims, sizes, pass, wanted,
        ))
    }

    /// The error of a pass, with the memory of the whole pass if an allocation was refused.
    fn explained(&self, error: Error, pass: Pass, gradients: Option<&[bool]>) -> Error {
        let Error::Core(error) = error else {
            return error;
        };
        let call = SizedCall {
            dims: &self.dims,
            dtypes: self.dtypes,
            pass,
            gradients,
        };
        let stream = self.device.cuda_stream();
        self.operator.explained(error, &stream, &call).into()
    }
}

/// A call with the values that its forward pass saved.
struct OnCuda {
    call: Call,
    saved: CudaStorage,
    options: GpuOptions,
}

impl Backward for OnCuda {
    fn name(&self) -> &str {
        self.call.operator.operator().name()
    }

    fn gradients(
        &self,
        inputs: &[Tensor],
        tracked: &[usize],
        output: &Tensor,
        grad_output: &Tensor,
    ) -> candle_core::Result<Vec<Option<Gradient>>> {
        let gradient = || self.call.operator.operator().gradient().ok();
        if let Some(gradient) = once::keeps_graph().then(gradient).flatten() {
            let derived = OfOperator {
                gradient: WithOptions::new(gradient, self.options),
                shapes: &self.call.shapes,
            };
            return derived.gradients(inputs, tracked, grad_output);
        }
        let ends = [output.contiguous()?, grad_output.contiguous()?];
        let wanted: Vec<bool> = (0..inputs.len()).map(|i| tracked.contains(&i)).collect();
        let made = self.made(inputs, &wanted, &ends);
        let explained = |error| self.call.explained(error, Pass::Backward, Some(&wanted));
        let mut grads = made.map_err(explained)?;
        let taken = tracked.iter().map(|&i| {
            let storage = Storage::Cuda(grads[i].take()?);
            Some(Gradient::Made(storage))
        });
        Ok(taken.collect())
    }
}

impl OnCuda {
    /// The gradients that are wanted, an item for each input.
    fn made(
        &self,
        inputs: &[Tensor],
        wanted: &[bool],
        ends: &[Tensor; 2],
    ) -> Result<Vec<Option<CudaStorage>>, Error> {
        let mut grads = Vec::with_capacity(inputs.len());
        for (i, input) in inputs.iter().enumerate() {
            grads.push(match wanted[i] {
                false => None,
                true => {
                    let dtype = dtype(self.name(), i, input)?;
                    let len = input.elem_count();
                    Some(memory::allocate(&self.call.device, dtype, len)?)
                }
            });
        }
        timeline::within(
            || self.call.operation(Pass::Backward, wanted),
            || self.launch(inputs, ends, &mut grads),
        )?;
        Ok(grads)
    }

    /// Writes the gradients that have memory. `ends` are the output and its gradient.
    fn launch(
        &self,
        inputs: &[Tensor],
        ends: &[Tensor; 2],
        grads: &mut [Option<CudaStorage>],
    ) -> Result<(), Error> {
        let Call {
            operator,
            device,
            dims,
            dtypes,
            shapes,
        } = &self.call;
        let bytes = operator.workspace_bytes(dims, Pass::Backward, *dtypes)?;
        let mut workspace = memory::allocate_bytes(device, bytes)?;
        let mut slots = Vec::with_capacity(grads.len());
        for (grad, shape) in grads.iter_mut().zip(shapes) {
            let len = shape.iter().product();
            let view = grad.as_mut().map(|grad| writable(grad, len)).transpose()?;
            slots.push((view, shape));
        }
        let mut grads: Vec<Option<TensorMut>> = Vec::with_capacity(slots.len());
        for (view, shape) in &mut slots {
            grads.push(view.as_mut().map(|view| view.tensor(shape)).transpose()?);
        }
        let saved_len = self.call.saved_len();
        let saved = View::of(&self.saved, 0..saved_len).ok_or_else(|| misplaced(self.name()))?;
        with_views(inputs, |views| {
            with_views(ends, |end_views| {
                operator.backward(
                    &device.cuda_stream(),
                    &tensors(views, shapes)?,
                    end_views[0].tensor(ends[0].dims())?,
                    Some(saved.tensor(&[saved_len])?),
                    end_views[1].tensor(ends[1].dims())?,
                    &mut grads,
                    Some(Scratch::new(&mut workspace)),
                )?;
                Ok(())
            })
        })
    }
}

/// The sizes that the shapes stand for.
fn bind(operator: &Operator, shapes: &[Vec<usize>]) -> Result<Dims, Error> {
    let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
    Ok(operator.bind(&shapes)?)
}

/// The element types of a call: that of the first tensor with a batch axis, and that of the first without. The library
/// checks that all other tensors have these types.
fn dtypes(operator: &Operator, inputs: &[Tensor]) -> Result<Dtypes, Error> {
    let (mut lanes, mut params) = (None, None);
    for (i, (input, spec)) in inputs.iter().zip(operator.inputs()).enumerate() {
        let dtype = dtype(operator.name(), i, input)?;
        let first = match spec.dims.contains(&Dim::Batch) {
            true => &mut lanes,
            false => &mut params,
        };
        first.get_or_insert(dtype);
    }
    let lanes = lanes.unwrap_or(Dtype::F32);
    let params = params.unwrap_or(lanes);
    Ok(Dtypes { lanes, params })
}

/// The element type of an input.
pub(super) fn dtype(operator: &str, input: usize, tensor: &Tensor) -> Result<Dtype, Error> {
    core_dtype(tensor.dtype()).ok_or_else(|| Error::InputType {
        operator: operator.to_owned(),
        input,
        expected: "F32, F64, BF16 or F16",
        got: tensor.dtype(),
    })
}

pub(super) fn tensors<'a>(
    views: &'a [View],
    shapes: &[Vec<usize>],
) -> Result<Vec<cuda::Tensor<'a>>, Error> {
    let pairs = views.iter().zip(shapes);
    pairs.map(|(view, shape)| view.tensor(shape)).collect()
}
