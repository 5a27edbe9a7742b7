//! The backward pass of a node.

use candle_core::CudaStorage;
use flashcliff::cuda::cudarc::driver::CudaSlice;
use flashcliff::cuda::{Packed, PackedBackward, Scratch, TensorMut, network};

use super::super::plan::{Plan, Value, Wanted, Work};
use super::super::planned::Part;
use super::OnGpu;
use super::beside::Line;
use super::buffers::{take, view};
use super::launch::{Given, code, tensors};
use crate::Error;
use crate::op::gpu::memory::{self, misplaced, writable};

impl OnGpu {
    /// Launches the backward pass of a node. The gradients of its parameters are computed beside the line if they may be.
    pub(super) fn backward(
        &mut self,
        plan: &Plan,
        given: &Given<'_>,
        packed: &mut Packed<'_>,
        at: usize,
        part: Part,
    ) -> Result<(), Error> {
        let all = &plan.wanted[at];
        if self.line(plan.forks_backward(at)) == Line::Main {
            return self.backward_on((plan, given, packed), (Line::Main, all), at, part);
        }
        let [of_values, of_parameters] = plan.shares(at);
        let beside = (Line::Beside, &of_parameters[..]);
        self.backward_on((plan, given, packed), beside, at, part)?;
        self.backward_on((plan, given, packed), (Line::Main, &of_values), at, part)
    }

    /// Launches the backward pass of a node for some gradients.
    fn backward_on(
        &mut self,
        (plan, given, packed): (&Plan, &Given<'_>, &mut Packed<'_>),
        (line, wanted): (Line, &[Wanted]),
        at: usize,
        part: Part,
    ) -> Result<(), Error> {
        let node = &plan.nodes[at];
        let Some(buffer) = plan.gradient_of[node.output.value.0] else {
            return Ok(());
        };
        if wanted.iter().all(|&wanted| wanted == Wanted::No) {
            return Ok(());
        }
        let uses = || plan.backward_uses(node, wanted);
        self.begin(line, uses)?;
        let mut grads = Vec::with_capacity(wanted.len());
        for (&wanted, input) in wanted.iter().zip(&node.inputs) {
            let place = self.buffers.place(plan, wanted, input, part);
            grads.push(place.map(take).transpose()?);
        }
        let mut workspace = self.buffers.workspace(line).take();
        let place = plan.values[node.output.value.0].gradient_place(self.dtypes);
        let done = self.launch_backward(
            (plan, given, packed),
            (line, wanted),
            at,
            self.buffers.gradients[buffer][place].as_ref(),
            &mut grads,
            workspace.as_mut(),
        );
        *self.buffers.workspace(line) = workspace;
        for ((grad, &wanted), input) in grads.into_iter().zip(wanted).zip(&node.inputs) {
            if let Some(place) = self.buffers.place(plan, wanted, input, part) {
                *place = grad;
            }
        }
        done?;
        self.end(line, uses)
    }

    fn launch_backward(
        &self,
        (plan, given, packed): (&Plan, &Given<'_>, &mut Packed<'_>),
        (line, wanted): (Line, &[Wanted]),
        at: usize,
        grad_output: Option<&CudaStorage>,
        grads: &mut [Option<CudaStorage>],
        workspace: Option<&mut CudaSlice<u8>>,
    ) -> Result<(), Error> {
        let (node, stream) = (&plan.nodes[at], self.stream(line)?);
        let mut slots = Vec::with_capacity(grads.len());
        for ((grad, &wanted), input) in grads.iter_mut().zip(wanted).zip(&node.inputs) {
            if let (Some(grad), Wanted::Written) = (&mut *grad, wanted) {
                let Value { len, .. } = plan.values[input.value.0];
                memory::clear(&self.device, grad, input.len()..len)?;
            }
            let grad = grad.as_mut().map(|grad| writable(grad, input.len()));
            slots.push(grad.transpose()?);
        }
        let mut grads: Vec<Option<TensorMut<'_>>> = Vec::with_capacity(slots.len());
        for (slot, input) in slots.iter_mut().zip(&node.inputs) {
            let grad = slot.as_mut().map(|slot| slot.tensor(&input.shape));
            grads.push(grad.transpose()?);
        }
        let len = node.output.len();
        let output = self.buffers.value(plan, node.output.value);
        let (output, grad_output) = (view(output, len)?, view(grad_output, len)?);
        let shape = &node.output.shape;
        let (output, grad_output) = (output.tensor(shape)?, grad_output.tensor(shape)?);
        let views = self.inputs(plan, given, node)?;
        let inputs = tensors(&views, node)?;
        let mut first = || grads[0].take().ok_or_else(|| misplaced("objective"));
        match (&node.work, self.operators.of(at)) {
            (Work::Points, _) => {}
            (Work::Norm, _) => {
                let given = [inputs[0], output, grad_output];
                network::blade_norm_backward(&self.library, &stream, given, first()?)?;
            }
            (Work::Activation(kind), _) => {
                let given = [inputs[0], grad_output];
                let kind = code(*kind);
                network::activate_backward(&self.library, &stream, kind, given, first()?)?;
            }
            (Work::ScaledSum(scale), _) => {
                for grad in grads.iter_mut().filter_map(Option::take) {
                    let (library, g) = (&self.library, grad_output);
                    network::scaled_sum(library, &stream, g, None, *scale, grad)?;
                }
            }
            (Work::Blade(blade), _) => {
                network::blade_backward(&self.library, &stream, grad_output, *blade, first()?)?;
            }
            (Work::ReverseAxes, _) => {
                network::reverse_axes(&self.library, &stream, grad_output, first()?)?;
            }
            (Work::Operator(..), Some((_, number))) => {
                let saved_len = self.operators.saved[at];
                let saved = view(self.buffers.saved[at].as_ref(), saved_len)?;
                let given = PackedBackward {
                    inputs: &inputs,
                    output,
                    saved: Some(saved.tensor(&[saved_len])?),
                    grad_output,
                    adds: wanted.contains(&Wanted::Added),
                };
                let workspace = workspace.map(Scratch::new);
                packed.backward(number, &stream, given, &mut grads, workspace)?;
            }
            (Work::Operator(..), None) => return Err(misplaced("objective")),
        }
        Ok(())
    }

    /// Adds the gradients of the parameters of a node for a part to the sums.
    pub(super) fn add_shares(&mut self, plan: &Plan, node: usize) -> Result<(), Error> {
        let stream = self.device.cuda_stream();
        for wanted in &plan.wanted[node] {
            let Wanted::Parameter(parameter) = *wanted else {
                continue;
            };
            let len = plan.parameters[parameter].elem_count();
            let sum = self.buffers.sums[parameter].as_mut();
            let mut sum = writable(sum.ok_or_else(|| misplaced("objective"))?, len)?;
            let share = view(self.buffers.shares[parameter].as_ref(), len)?;
            network::accumulate(
                &self.library,
                &stream,
                sum.tensor(&[len])?,
                share.tensor(&[len])?,
            )?;
        }
        Ok(())
    }
}
