//! Passes of operators whose parameters are packed.

use cudarc::driver::CudaStream;
use flashcliff_sys as sys;

use super::{BIAS, JoinedBackward, JoinedForward, Lists, Packing, WEIGHT};
use crate::Error;
use crate::cuda::call::{self, MAX_INPUTS};
use crate::cuda::operator::Given;
use crate::cuda::queue::Queue;
use crate::cuda::tensor::{Scratch, Tensor, TensorMut};
use crate::operator::Pass;
use crate::operator::lane::cuda as lane;
use crate::operator::linear::cuda as linear;

/// Packed parameters, which the passes of their operators read, and the parts of gradients that backward passes
/// leave. Operators go by their numbers, in the order in which the [`Packing`] has them.
#[derive(Debug)]
pub struct Packed<'m> {
    pub(super) packing: &'m Packing,
    pub(super) memory: Scratch<'m>,
    /// For each operator the parts of gradients that are left to be added up.
    pub(super) left: Vec<Left>,
}

/// The parts of gradients of an operator that a backward pass has left.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Left {
    /// The inputs whose gradients have parts.
    pub(super) inputs: [bool; MAX_INPUTS],
    /// The partial sums of a product by rows.
    sums: sys::fc_partials,
}

/// The tensors that a backward pass reads, as [`Operator::backward`](crate::cuda::Operator::backward) takes them.
#[derive(Clone, Copy, Debug)]
pub struct PackedBackward<'a> {
    /// The inputs of the forward pass.
    pub inputs: &'a [Tensor<'a>],
    /// Its output.
    pub output: Tensor<'a>,
    /// The sums that it saved, if it had room for them.
    pub saved: Option<Tensor<'a>>,
    /// The gradient of the output.
    pub grad_output: Tensor<'a>,
    /// Whether the gradient of the first input is added to the values that are there, as by
    /// [`Operator::backward_adding`](crate::cuda::Operator::backward_adding).
    pub adds: bool,
}

/// A gradient of an input of an operator.
#[derive(Debug)]
pub struct PackedGradient<'a> {
    /// The number of the operator.
    pub operator: usize,
    /// The number of the input.
    pub input: usize,
    /// The gradient.
    pub gradient: TensorMut<'a>,
}

impl<'m> Packed<'m> {
    /// Parameters that were packed into memory, and no parts of gradients so far.
    pub(super) fn new(packing: &'m Packing, memory: Scratch<'m>) -> Self {
        Self {
            left: vec![Left::default(); packing.members.len()],
            packing,
            memory,
        }
    }
}

impl Packed<'_> {
    /// Does the same as [`Operator::forward`](crate::cuda::Operator::forward), with the parameters as they were
    /// packed. Those among the inputs have the shapes and the types, but may not be read.
    ///
    /// # Errors
    /// The errors of [`Operator::forward`](crate::cuda::Operator::forward); [`Error::NotPacked`] for sizes or types
    /// other than the packing has; [`Error::TensorCount`] for a number that no operator has.
    pub fn forward(
        &mut self,
        operator: usize,
        stream: &CudaStream,
        inputs: &[Tensor<'_>],
        output: TensorMut<'_>,
        saved: Option<TensorMut<'_>>,
        workspace: Option<Scratch<'_>>,
    ) -> Result<(), Error> {
        self.packing.check(stream)?;
        let own = self.packing.member(operator)?;
        if own.joins {
            let map = JoinedForward {
                operator,
                inputs,
                output,
            };
            return self.forward_joined(stream, &mut [map]);
        }
        let queue = Queue::of(stream);
        let (base, _guard) = self.memory.acquire(&queue);
        let member = Some(own.member(Pass::Forward, base));
        // SAFETY: the stream is alive, and of the context of the device, which is that of the operator. Places of the
        // operator have room for what its sizes and types need.
        unsafe {
            own.operator
                .forward_on(&queue, inputs, output, saved, workspace, member)
        }
    }

    /// Does the same as [`Operator::backward`](crate::cuda::Operator::backward), with the parameters as they were
    /// packed. Gradients of inputs that [leave parts](Packing::leaves_parts) are not written before
    /// [`add_up`](Self::add_up); the next backward pass of the operator that makes them replaces the parts.
    ///
    /// # Errors
    /// The errors of [`Self::forward`]; [`Error::NotAdded`] for an operator that cannot [add](PackedBackward::adds).
    pub fn backward(
        &mut self,
        operator: usize,
        stream: &CudaStream,
        given: PackedBackward<'_>,
        grads: &mut [Option<TensorMut<'_>>],
        workspace: Option<Scratch<'_>>,
    ) -> Result<(), Error> {
        self.packing.check(stream)?;
        let own = self.packing.member(operator)?;
        if given.adds {
            own.operator.operator().check_adds()?;
        }
        if own.joins {
            let wants = [WEIGHT, BIAS].map(|input| matches!(grads.get(input), Some(Some(_))));
            let map = JoinedBackward {
                operator,
                inputs: given.inputs,
                grad_output: given.grad_output,
                wants,
            };
            let grad_x = grads.first_mut().and_then(Option::as_mut);
            return self.backward_joined(stream, &[map], grad_x.map(|own| (own, given.adds)));
        }
        let mut leaves = [false; MAX_INPUTS];
        for ((input, grad), leaves) in grads.iter().enumerate().zip(&mut leaves) {
            *leaves = grad.is_some() && self.packing.leaves_parts(operator, input);
        }
        let queue = Queue::of(stream);
        let (base, _guard) = self.memory.acquire(&queue);
        let given = Given {
            inputs: given.inputs,
            output: given.output,
            saved: given.saved,
            grad_output: given.grad_output,
            adds: given.adds,
            member: Some(own.member(Pass::Backward, base)),
        };
        // SAFETY: the same holds as in `forward`.
        let sums = unsafe { own.operator.backward_on(&queue, &given, grads, workspace) }?;
        // A pass without these gradients leaves the parts of the pass before.
        if leaves.contains(&true) {
            self.left[operator] = Left {
                inputs: leaves,
                sums,
            };
        }
        Ok(())
    }

    /// Adds up the parts that backward passes have left of these gradients. Other gradients stay as they are, and parts of other gradients
    /// are left.
    ///
    /// # Errors
    /// [`Error::TensorCount`], [`Error::ShapeMismatch`], [`Error::DtypeMismatch`], [`Error::DeviceMismatch`],
    /// [`Error::CudaContext`]: all of these before anything is launched. Also [`Error::Cuda`].
    pub fn add_up(
        &mut self,
        stream: &CudaStream,
        gradients: &mut [PackedGradient<'_>],
    ) -> Result<(), Error> {
        let packing = self.packing;
        packing.check(stream)?;
        let is_left = |gradient: &PackedGradient<'_>| {
            packing.leaves_parts(gradient.operator, gradient.input)
                && self.left[gradient.operator].inputs[gradient.input]
        };
        for gradient in gradients.iter().filter(|gradient| is_left(gradient)) {
            let own = packing.member(gradient.operator)?;
            let spec = &own.operator.operator().inputs()[gradient.input];
            let layout = gradient.gradient.layout();
            let checks = own.operator.checks();
            checks.gradient(spec, &own.dims, layout, own.dtypes.of(spec))?;
        }
        packing.device.make_current()?;
        let queue = Queue::of(stream);
        let (base, _guard) = self.memory.acquire(&queue);
        let mut lists = Lists::default();
        let mut sums: Vec<(usize, sys::fc_partials)> = Vec::new();
        let mut guards = Vec::with_capacity(gradients.len());
        for gradient in gradients.iter_mut().filter(|gradient| is_left(gradient)) {
            let (operator, input) = (gradient.operator, gradient.input);
            let own = packing.member(operator)?;
            let (address, guard) = gradient.gradient.acquire(&queue);
            guards.push((operator, input, guard));
            if let Some(lanes) = own.operator.implementation.lanes()
                && let Some(param) = lanes.parameter(input)
            {
                let known = sums.iter().position(|(of, _)| *of == operator);
                let at = known.unwrap_or_else(|| {
                    let left = sys::fc_partials {
                        sums: [std::ptr::null_mut(); _],
                        ..self.left[operator].sums
                    };
                    sums.push((operator, left));
                    sums.len() - 1
                });
                sums[at].1.sums[param] = call::address(address);
                continue;
            }
            let linear = own.operator.implementation.linear();
            let (Some(linear), Some(parts)) = (linear, own.places.parts) else {
                continue;
            };
            let (dims, dtypes) = (&own.dims, own.dtypes);
            if own.joins {
                let is_bias = input == BIAS;
                let at = own.places.bias_parts.filter(|_| is_bias).unwrap_or(parts);
                let unpacking = linear.few_unpacking(dims, dtypes, is_bias, [base + at, address]);
                lists.add([dtypes.params.arithmetic(), dtypes.params], unpacking);
                continue;
            }
            let from = linear.gradient_type(dims, dtypes);
            let unpacking = linear.unpacking(dims, dtypes, [base + parts, address]);
            lists.add([from, dtypes.params], unpacking);
        }
        for (types, list) in &lists.0 {
            // SAFETY: gradients have the shapes and types of their operators, and parts lie within the memory; all are on the device, whose
            // context is current, as the stream is of it.
            unsafe { linear::unpack(list, *types, queue.raw()) }?;
        }
        let sums: Vec<sys::fc_partials> = sums.into_iter().map(|(_, sums)| sums).collect();
        // SAFETY: the same holds; the partial sums come from the last backward passes of their operators.
        unsafe { lane::add_up(&sums, queue.raw()) }?;
        for (operator, input, _guard) in guards {
            self.left[operator].inputs[input] = false;
        }
        Ok(())
    }
}
