//! Puts functions into candle's graph.
//!
//! A node in candle has at most three arguments. Only inputs that depend on a variable need to be arguments, so up to
//! three of those make one node. More of them make a chain: *carrier* nodes take the first ones and yield a *token*, a
//! tensor of one zero. The last node takes the token and the remaining inputs, and yields the output. In the backward
//! pass the last node comes first. It computes all gradients at once and returns the gradients of its arguments. It
//! leaves the others in a stash that it shares with the carriers, and gives the token a gradient of zero, which makes
//! candle visit the carriers.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};

use candle_core::op::BackpropOp;
use candle_core::{
    CpuStorage, CustomOp1, CustomOp2, CustomOp3, DType, Layout, Result, Shape, Storage, Tensor,
};
#[cfg(feature = "cuda")]
use candle_core::{CudaStorage, backend::BackendDevice};
use flashcliff::Pass;

use super::Scalar;
use super::function::{Array, Derived, Function, check_room, report};
use super::gpu::OnGpu;
use super::once::{self, Gradient, Ready, forward_is_ready};
use super::operator::{Core, WithOptions};
use crate::Error;

/// An input of a node: a tensor, and the shape in which the function sees its elements.
#[derive(Clone, Copy)]
pub(crate) struct Argument<'a> {
    tensor: &'a Tensor,
    shape: Option<&'a [usize]>,
}

impl<'a> Argument<'a> {
    /// The tensor in its own shape.
    pub(crate) fn whole(tensor: &'a Tensor) -> Self {
        Self {
            tensor,
            shape: None,
        }
    }

    /// The tensor's elements in another shape of as many elements, without a node for the reshape.
    pub(crate) fn shaped(tensor: &'a Tensor, shape: &'a [usize]) -> Self {
        Self {
            tensor,
            shape: Some(shape),
        }
    }

    /// The shape in which the function sees the elements.
    pub(super) fn shape(&self) -> &[usize] {
        self.shape.unwrap_or(self.tensor.dims())
    }

    /// The tensor in the shape that the function sees, for operations of candle.
    pub(super) fn seen(&self) -> Result<Tensor> {
        let tensor = once::entering(self.tensor)?;
        match self.shape {
            None => Ok(tensor),
            Some(shape) => tensor.reshape(shape),
        }
    }
}

/// Applies a function to tensors, differentiably.
pub(crate) fn apply<F>(
    function: &Arc<F>,
    arguments: &[Argument],
) -> std::result::Result<Tensor, Error>
where
    F: Function<f32> + Function<f64> + OnGpu,
{
    let name = || <F as Function<f32>>::name(function).to_owned();
    let arity = <F as Function<f32>>::arity(function);
    if arguments.len() != arity || arity == 0 {
        return Err(Error::InputCount {
            operator: name(),
            expected: arity,
            got: arguments.len(),
        });
    }
    let device = arguments[0].tensor.device();
    for (input, argument) in arguments.iter().enumerate() {
        let got = argument.tensor.device();
        if !got.same_device(device) || !(got.is_cpu() || got.is_cuda()) {
            return Err(Error::InputDevice {
                operator: name(),
                input,
                expected: match input {
                    0 => "the CPU or a CUDA device",
                    _ => "the device of input 0",
                },
                got: got.location(),
            });
        }
    }
    if !device.is_cpu() {
        return function.apply_on_gpu(arguments);
    }
    let dtype = arguments[0].tensor.dtype();
    let expected = match dtype {
        DType::F32 => "F32, the type of input 0",
        DType::F64 => "F64, the type of input 0",
        _ => "F32 or F64",
    };
    let supported = matches!(dtype, DType::F32 | DType::F64);
    for (input, argument) in arguments.iter().enumerate() {
        let got = argument.tensor.dtype();
        if !supported || got != dtype {
            return Err(Error::InputType {
                operator: name(),
                input,
                expected,
                got,
            });
        }
    }
    if F::IS_COMPOSED && once::keeps_graph() {
        return function.apply_on_gpu(arguments);
    }
    if dtype == DType::F32 {
        apply_on_cpu::<f32, F>(function, arguments)
    } else {
        apply_on_cpu::<f64, F>(function, arguments)
    }
}

/// Computes the output on slices, and records the node.
fn apply_on_cpu<T: Scalar, F: Function<T>>(
    function: &Arc<F>,
    arguments: &[Argument],
) -> std::result::Result<Tensor, Error> {
    let (inputs, shapes) = lay_out(arguments)?;
    let tracked: Vec<bool> = inputs.iter().map(Tensor::track_op).collect();
    let (output, shape, saved) = with_arrays(&inputs, &shapes, |arrays| {
        let shape = function.output_shape(arrays)?;
        function.check_room(arrays, &shape)?;
        report(
            || function.operation(&shapes, &shape, Pass::Forward, &tracked),
            || {
                let mut output = vec![T::zero(); shape.iter().product()];
                let saved = function.forward(arrays, &mut output, &tracked)?;
                Ok((output, shape.clone(), saved))
            },
        )
    })?;
    let storage = Storage::Cpu(T::to_cpu_storage_owned(output));
    let backward = OnCpu {
        function: function.clone(),
        shapes,
        saved,
    };
    record(inputs, storage, shape, backward)
}

/// The inputs, contiguous, and the shapes in which the function sees them.
pub(super) fn lay_out(arguments: &[Argument]) -> Result<(Vec<Tensor>, Vec<Vec<usize>>)> {
    let mut inputs = Vec::with_capacity(arguments.len());
    let mut shapes = Vec::with_capacity(arguments.len());
    for argument in arguments {
        inputs.push(argument.tensor.contiguous()?);
        shapes.push(argument.shape().to_vec());
    }
    Ok((inputs, shapes))
}

/// The gradient of a node as an operator.
pub(super) struct OfOperator<'a> {
    pub(super) gradient: WithOptions,
    /// The shapes in which the operator sees the inputs of the node.
    pub(super) shapes: &'a [Vec<usize>],
}

impl OfOperator<'_> {
    /// The gradients of the inputs that are `tracked`, in that order, each as a node.
    pub(super) fn gradients(
        &self,
        inputs: &[Tensor],
        tracked: &[usize],
        grad_output: &Tensor,
    ) -> Result<Vec<Option<Gradient>>> {
        let gradient = Core::operator(&self.gradient);
        let arguments = inputs.iter().zip(self.shapes);
        let mut arguments: Vec<Argument> = arguments
            .map(|(input, shape)| Argument::shaped(input, shape))
            .collect();
        arguments.push(Argument::whole(grad_output));
        let of_input = |&input: &usize| {
            let wanted: Vec<bool> = (0..inputs.len()).map(|at| at == input).collect();
            let by_input = gradient.selecting(&wanted).map_err(Error::from)?;
            let by_input = WithOptions::new(by_input, self.gradient.options);
            let made = apply(&Arc::new(by_input), &arguments)?;
            let made = made.reshape(inputs[input].shape())?;
            Ok(Some(Gradient::Kept(made)))
        };
        tracked.iter().map(of_input).collect()
    }
}

/// The backward pass of a node, with the values that the node keeps for it.
pub(super) trait Backward: Send + Sync + 'static {
    /// Name, for error messages.
    fn name(&self) -> &str;

    /// The gradients of the inputs that are `tracked`, in that order. Where candle keeps their graph, those that can
    /// be differentiated again are nodes.
    fn gradients(
        &self,
        inputs: &[Tensor],
        tracked: &[usize],
        output: &Tensor,
        grad_output: &Tensor,
    ) -> Result<Vec<Option<Gradient>>>;
}

/// A function on slices, with the values that its forward pass saved.
struct OnCpu<T: Scalar, F: Function<T>> {
    function: Arc<F>,
    shapes: Vec<Vec<usize>>,
    saved: F::Saved,
}

impl<T: Scalar, F: Function<T>> Backward for OnCpu<T, F> {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn gradients(
        &self,
        inputs: &[Tensor],
        tracked: &[usize],
        output: &Tensor,
        grad_output: &Tensor,
    ) -> Result<Vec<Option<Gradient>>> {
        let mut network = None;
        match once::keeps_graph()
            .then(|| self.function.derived())
            .flatten()
        {
            Some(Derived::Operator(gradient)) => {
                let shapes = &self.shapes;
                return OfOperator { gradient, shapes }.gradients(inputs, tracked, grad_output);
            }
            Some(Derived::Network(own)) => network = Some(own),
            None => {}
        }
        let mut grads: Vec<Option<Vec<T>>> = inputs.iter().map(|_| None).collect();
        for &input in tracked {
            let shape = inputs[input].dims();
            check_room::<T>(self.function.name(), "gradient", shape)?;
            grads[input] = Some(vec![T::zero(); inputs[input].elem_count()]);
        }
        let ends = [output.contiguous()?, grad_output.contiguous()?];
        let end_shapes = [output.dims().to_vec(), grad_output.dims().to_vec()];
        let slots = grads.iter_mut().map(Option::as_deref_mut).collect();
        let function = &*self.function;
        let wanted = || {
            (0..inputs.len())
                .map(|i| tracked.contains(&i))
                .collect::<Vec<_>>()
        };
        let of_output = &end_shapes[0];
        let pass = Pass::Backward;
        report(
            || function.operation(&self.shapes, of_output, pass, &wanted()),
            || {
                with_arrays(inputs, &self.shapes, |arrays| {
                    with_arrays(&ends, &end_shapes, |ends| {
                        function.backward(arrays, ends[0], &self.saved, ends[1], slots)
                    })
                })
            },
        )?;
        let taken = tracked.iter().filter_map(|&input| grads[input].take());
        let taken: Vec<Storage> = taken
            .map(|grad| Storage::Cpu(T::to_cpu_storage_owned(grad)))
            .collect();
        match network {
            Some(network) => {
                let shapes: Vec<&[usize]> = self.shapes.iter().map(Vec::as_slice).collect();
                let rows = network.rows(&shapes)?;
                let seed = Some(grad_output.clone());
                let again = network.again(rows, (inputs, tracked), &[seed])?;
                let made = again.there(taken);
                again.handed(made)
            }
            None => Ok(taken
                .into_iter()
                .map(|own| Some(Gradient::Made(own)))
                .collect()),
        }
    }
}

/// The tensor of a computed output. If an input is tracked, it has the nodes that lead back to it.
pub(super) fn record(
    inputs: Vec<Tensor>,
    output: Storage,
    shape: Vec<usize>,
    backward: impl Backward,
) -> std::result::Result<Tensor, Error> {
    let tracked: Vec<usize> = (0..inputs.len())
        .filter(|&i| inputs[i].track_op())
        .collect();
    if tracked.is_empty() {
        return Ok(constant(output, &shape));
    }
    let chain: Vec<Tensor> = tracked.iter().map(|&i| inputs[i].clone()).collect();
    let stash = Arc::new(Stash::default());
    let carried = carried(chain.len());
    let last = Last {
        backward: Box::new(backward),
        dtype: output.dtype(),
        inputs,
        tracked,
        carried: carried.end,
        stash: stash.clone(),
        output: Ready::new(output, Shape::from(shape)),
    };
    let mut token: Option<Tensor> = None;
    let mut next = carried.start;
    while next < carried.end {
        let take = if token.is_some() { 2 } else { 3 };
        let carrier = Carrier {
            dtype: last.dtype,
            slots: next..next + take,
            stash: stash.clone(),
        };
        token = Some(match &token {
            None => chain[next].apply_op3(&chain[next + 1], &chain[next + 2], carrier)?,
            Some(token) => token.apply_op3(&chain[next], &chain[next + 1], carrier)?,
        });
        next += take;
    }
    let own = &chain[next..];
    Ok(match (&token, own) {
        (None, [a]) => a.apply_op1(last)?,
        (None, [a, b]) => a.apply_op2(b, last)?,
        (None, [a, b, c]) => a.apply_op3(b, c, last)?,
        (Some(token), [a]) => token.apply_op2(a, last)?,
        (Some(token), [a, b]) => token.apply_op3(a, b, last)?,
        _ => unreachable!("carriers leave one to three arguments"),
    })
}

/// The arguments that go to carriers, out of `count`: none of up to three; else three, and then two at a time until one
/// or two are left.
fn carried(count: usize) -> Range<usize> {
    if count <= 3 {
        return 0..0;
    }
    let mut end = 3;
    while count - end > 2 {
        end += 2;
    }
    0..end
}

/// The gradients on their way from the last node to the carriers, for each thread that runs a backward pass.
#[derive(Default)]
struct Stash(Mutex<Vec<(ThreadId, Vec<Option<Tensor>>)>>);

impl Stash {
    fn put(&self, gradients: Vec<Option<Tensor>>) {
        let me = thread::current().id();
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|(thread, _)| *thread != me);
        entries.push((me, gradients));
    }

    /// The gradient of one carried argument. The entry is removed when its last gradient is taken.
    fn take(&self, slot: usize) -> Option<Tensor> {
        let me = thread::current().id();
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = entries.iter().position(|(thread, _)| *thread == me)?;
        let gradient = entries[at].1.get_mut(slot).and_then(Option::take);
        if entries[at].1.iter().all(Option::is_none) {
            entries.swap_remove(at);
        }
        gradient
    }
}

/// A node that passes the gradients of its arguments on.
struct Carrier {
    dtype: DType,
    /// The positions of its arguments among the tracked inputs.
    slots: Range<usize>,
    stash: Arc<Stash>,
}

impl CustomOp3 for Carrier {
    fn name(&self) -> &'static str {
        "flashcliff carrier"
    }

    fn cpu_fwd(
        &self,
        _: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let token = match self.dtype {
            DType::F64 => CpuStorage::F64(vec![0.0]),
            _ => CpuStorage::F32(vec![0.0]),
        };
        Ok((token, Shape::from(1)))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        storage: &CudaStorage,
        _: &Layout,
        _: &CudaStorage,
        _: &Layout,
        _: &CudaStorage,
        _: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        let shape = Shape::from(1);
        let token = storage.device.zeros_impl(&shape, self.dtype)?;
        Ok((token, shape))
    }

    fn bwd(
        &self,
        first: &Tensor,
        _: &Tensor,
        _: &Tensor,
        _: &Tensor,
        _: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let mut gradients = self.slots.clone().map(|slot| self.stash.take(slot));
        // A carrier further along the chain has the token as its first argument. The token is zero, as its gradient is.
        let first = if self.slots.len() == 2 {
            Some(first.detach())
        } else {
            gradients.next().flatten()
        };
        let second = gradients.next().flatten();
        let third = gradients.next().flatten();
        Ok((first, second, third))
    }
}

/// The node whose result is the function's output.
struct Last {
    backward: Box<dyn Backward>,
    dtype: DType,
    /// All inputs. The graph holds them anyway: they are arguments of this node or of carriers, or constants that the
    /// backward pass needs.
    inputs: Vec<Tensor>,
    /// The inputs that want a gradient, as positions in the order of the chain.
    tracked: Vec<usize>,
    /// The number of those that went to carriers.
    carried: usize,
    stash: Arc<Stash>,
    output: Ready,
}

impl Last {
    /// The gradients of this node's own arguments. If the first argument is a token, it stands for its gradient too: both are zero.
    fn gradients(
        &self,
        first: &Tensor,
        output: &Tensor,
        grad_output: &Tensor,
    ) -> Result<Vec<Option<Tensor>>> {
        let (inputs, tracked) = (&self.inputs, &self.tracked);
        let backward = &self.backward;
        let made = backward.gradients(inputs, tracked, output, grad_output)?;
        let made = made.into_iter().zip(tracked);
        let exposed = made.map(|(gradient, &at)| {
            let gradient = gradient.map(|gradient| gradient.of(&inputs[at], backward.name()));
            gradient.transpose()
        });
        let mut chain = exposed.collect::<Result<Vec<_>>>()?;
        if self.carried == 0 {
            return Ok(chain);
        }
        let mut own = vec![Some(first.detach())];
        own.extend(chain.drain(self.carried..));
        self.stash.put(chain);
        Ok(own)
    }
}

impl CustomOp1 for Last {
    fn name(&self) -> &'static str {
        "flashcliff"
    }

    forward_is_ready!(self, self.output, self.backward.name(); _first);

    fn bwd(&self, first: &Tensor, output: &Tensor, grad: &Tensor) -> Result<Option<Tensor>> {
        Ok(self.gradients(first, output, grad)?.swap_remove(0))
    }
}

impl CustomOp2 for Last {
    fn name(&self) -> &'static str {
        "flashcliff"
    }

    forward_is_ready!(self, self.output, self.backward.name(); _first, _second);

    fn bwd(
        &self,
        first: &Tensor,
        _: &Tensor,
        output: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let mut gradients = self.gradients(first, output, grad)?.into_iter();
        Ok((gradients.next().flatten(), gradients.next().flatten()))
    }
}

impl CustomOp3 for Last {
    fn name(&self) -> &'static str {
        "flashcliff"
    }

    forward_is_ready!(self, self.output, self.backward.name(); _first, _second, _third);

    fn bwd(
        &self,
        first: &Tensor,
        _: &Tensor,
        _: &Tensor,
        output: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let mut gradients = self.gradients(first, output, grad)?.into_iter();
        let mut next = || gradients.next().flatten();
        Ok((next(), next(), next()))
    }
}

/// A constant tensor of a storage, without a copy.
pub(crate) fn constant(storage: Storage, shape: &[usize]) -> Tensor {
    Tensor::from_storage(storage, shape, BackpropOp::none(), false)
}

/// Calls a function with the storages of tensors, one for each tensor.
pub(crate) fn with_storages<R>(
    tensors: &[Tensor],
    f: impl FnOnce(&[(&Storage, &Layout)]) -> R,
) -> R {
    // A tensor that appears twice is locked once: a second read lock could wait for a writer that waits for the first
    // lock.
    let first: Vec<usize> = (0..tensors.len())
        .map(|i| {
            (0..i)
                .find(|&j| tensors[j].id() == tensors[i].id())
                .unwrap_or(i)
        })
        .collect();
    let guards: Vec<_> = (0..tensors.len())
        .map(|i| (first[i] == i).then(|| tensors[i].storage_and_layout()))
        .collect();
    let storages: Vec<(&Storage, &Layout)> = first
        .iter()
        .filter_map(|&at| guards[at].as_ref())
        .map(|(storage, layout)| (&**storage, *layout))
        .collect();
    f(&storages)
}

/// Calls a function with the elements of contiguous CPU tensors, without a copy.
pub(super) fn with_arrays<T: Scalar, R>(
    tensors: &[Tensor],
    shapes: &[Vec<usize>],
    f: impl FnOnce(&[Array<T>]) -> std::result::Result<R, Error>,
) -> std::result::Result<R, Error> {
    with_storages(tensors, |storages| {
        let mut arrays = Vec::with_capacity(storages.len());
        for (&(storage, layout), shape) in storages.iter().zip(shapes) {
            let Storage::Cpu(storage) = storage else {
                return Err(candle_core::Error::Msg("expected CPU storage".to_owned()).into());
            };
            let Some((start, end)) = layout.contiguous_offsets() else {
                return Err(candle_core::Error::RequiresContiguous { op: "flashcliff" }.into());
            };
            let data = &T::cpu_storage_as_slice(storage)?[start..end];
            arrays.push(Array { data, shape });
        }
        f(&arrays)
    })
}

#[cfg(test)]
mod tests;
