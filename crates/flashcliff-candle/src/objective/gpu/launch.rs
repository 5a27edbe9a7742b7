//! The launches of the nodes of a plan.

use std::sync::Arc;

use candle_core::CudaStorage;
use flashcliff::cuda::cudarc::driver::{CudaSlice, CudaStream};
use flashcliff::cuda::{self, Packed, Scratch, TensorMut, network};

use super::super::Part;
use super::super::branches::{Memory, Use};
use super::super::plan::{Activation, Holder, Node, Operand, Plan, Value, Wanted, Work};
use super::OnGpu;
use super::beside::Line;
use super::buffers::{take, view};
use crate::Error;
use crate::op::gpu::memory::{self, View, misplaced, with_views, writable};
use crate::optim::LossScale;

/// The elements of the tensors that a pass reads.
pub(super) struct Given<'a> {
    pub(super) batch: &'a [View<'a>],
    pub(super) parameters: &'a [View<'a>],
}

impl OnGpu {
    /// Launches the forward pass of a node, beside the line if it may be.
    pub(super) fn forward(
        &mut self,
        plan: &Plan,
        given: &Given<'_>,
        packed: &mut Packed<'_>,
        at: usize,
        may_fork: bool,
    ) -> Result<(), Error> {
        let node = &plan.nodes[at];
        let line = self.line(may_fork && plan.forks_forward(at));
        let uses = || plan.forward_uses(node);
        self.begin(line, uses)?;
        let place = plan.blocks.memory(node.output.value);
        let mut output = take(&mut self.buffers.values[place])?;
        let mut saved = self.buffers.saved[at].take();
        let mut workspace = self.buffers.workspace(line).take();
        let done = self.launch_forward(
            (plan, given, packed),
            line,
            at,
            &mut output,
            saved.as_mut(),
            workspace.as_mut(),
        );
        self.buffers.values[place] = Some(output);
        self.buffers.saved[at] = saved;
        *self.buffers.workspace(line) = workspace;
        done?;
        self.end(line, uses)
    }

    fn launch_forward(
        &self,
        (plan, given, packed): (&Plan, &Given<'_>, &mut Packed<'_>),
        line: Line,
        at: usize,
        output: &mut CudaStorage,
        saved: Option<&mut CudaStorage>,
        workspace: Option<&mut CudaSlice<u8>>,
    ) -> Result<(), Error> {
        let (node, stream) = (&plan.nodes[at], self.stream(line)?);
        let mut output = writable(output, node.output.len())?;
        let output = output.tensor(&node.output.shape)?;
        let views = self.inputs(plan, given, node)?;
        let inputs = tensors(&views, node)?;
        match (&node.work, self.operators.of(at)) {
            (Work::Points, _) => network::points(&self.library, &stream, inputs[0], output)?,
            (Work::Norm, _) => network::blade_norm(&self.library, &stream, inputs[0], output)?,
            (Work::Activation(kind), _) => {
                network::activate(&self.library, &stream, code(*kind), inputs[0], output)?;
            }
            (Work::ScaledSum(scale), _) => {
                let [x, y] = [inputs[0], inputs[1]];
                network::scaled_sum(&self.library, &stream, x, Some(y), *scale, output)?;
            }
            (Work::Blade(blade), _) => {
                network::blade(&self.library, &stream, inputs[0], *blade, output)?;
            }
            (Work::ReverseAxes, _) => {
                network::reverse_axes(&self.library, &stream, inputs[0], output)?;
            }
            (Work::Operator(..), Some((_, number))) => {
                let len = self.operators.saved[at];
                let saved = saved.ok_or_else(|| misplaced("objective"))?;
                let mut saved = writable(saved, len)?;
                packed.forward(
                    number,
                    &stream,
                    &inputs,
                    output,
                    Some(saved.tensor(&[len])?),
                    workspace.map(Scratch::new),
                )?;
            }
            (Work::Operator(..), None) => return Err(misplaced("objective")),
        }
        Ok(())
    }

    /// The error of a part, and the gradient of the prediction.
    pub(super) fn error(
        &mut self,
        plan: &Plan,
        given: &Given<'_>,
        part: Part,
        loss_scale: Option<&LossScale>,
    ) -> Result<(), Error> {
        let stream = self.device.cuda_stream();
        let shape = [plan.rows];
        self.begin(Line::Main, || plan.error_uses())?;
        let place = self.buffers.gradient(plan, plan.prediction);
        let mut grad = take(place.ok_or_else(|| misplaced("objective"))?)?;
        let prediction = view(self.buffers.value(plan, plan.prediction), plan.rows)?;
        let mut own = writable(&mut grad, plan.rows)?;
        let mut tensors = vec![self.loss.clone()];
        tensors.extend(loss_scale.map(|scale| scale.tensor().clone()));
        let done = with_views(&tensors, |views| {
            #[allow(
                unsafe_code,
                reason = "candle lends the memory of a tensor for reading only"
            )]
            // SAFETY: the tensor is alive and locked for reading, so its memory stays. All work on it is launched on this stream, so
            // the update comes after earlier work and before later work.
            let loss = unsafe {
                let address = views[0].address(&stream);
                TensorMut::from_raw(address, self.dtypes[1], &[1], self.library.ordinal())?
            };
            let scale = views
                .get(1)
                .map(|own| own.tensor(&[cuda::LossScaling::NUMBERS]));
            network::squared_error(
                &self.library,
                &stream,
                [
                    prediction.tensor(&shape)?,
                    given.batch[plan.targets].tensor(&shape)?,
                ],
                (part.scale, part.adds),
                scale.transpose()?,
                loss,
                own.tensor(&shape)?,
            )?;
            Ok(())
        });
        if let Some(place) = self.buffers.gradient(plan, plan.prediction) {
            *place = Some(grad);
        }
        done
    }

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
                let saved = Some(saved.tensor(&[saved_len])?);
                let workspace = workspace.map(Scratch::new);
                match wanted.contains(&Wanted::Added) {
                    false => packed.backward(
                        number,
                        &stream,
                        &inputs,
                        output,
                        saved,
                        grad_output,
                        &mut grads,
                        workspace,
                    )?,
                    true => packed.backward_adding(
                        number,
                        &stream,
                        &inputs,
                        output,
                        saved,
                        grad_output,
                        &mut grads,
                        workspace,
                    )?,
                }
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

    /// Views of the buffers that inputs of a node are in; `None` for those that tensors hold.
    fn inputs<'a>(
        &'a self,
        plan: &Plan,
        given: &'a Given<'a>,
        node: &Node,
    ) -> Result<Vec<Source<'a>>, Error> {
        let source = |operand: &Operand| match plan.values[operand.value.0].holder {
            Holder::Batch(tensor) => Ok(Source::Lent(&given.batch[tensor])),
            Holder::Parameter(parameter) => Ok(Source::Lent(&given.parameters[parameter])),
            Holder::Buffer => {
                let storage = self.buffers.value(plan, operand.value);
                Ok(Source::Own(view(storage, operand.len())?))
            }
        };
        node.inputs.iter().map(source).collect()
    }

    // ---- lines ----

    /// The line of work that may run beside the main one or not.
    fn line(&self, may_fork: bool) -> Line {
        match may_fork && self.forks {
            true => Line::Beside,
            false => Line::Main,
        }
    }

    /// The stream of a line.
    fn stream(&self, line: Line) -> Result<Arc<CudaStream>, Error> {
        match (line, &self.beside) {
            (Line::Main, _) => Ok(self.device.cuda_stream()),
            (Line::Beside, Some(beside)) => Ok(beside.stream().clone()),
            (Line::Beside, None) => Err(misplaced("objective")),
        }
    }

    /// Orders work behind what it must come behind.
    fn begin(&mut self, line: Line, uses: impl Fn() -> Vec<(Memory, Use)>) -> Result<(), Error> {
        let Some(beside) = self.beside.as_mut().filter(|_| self.forks) else {
            return Ok(());
        };
        let main = self.device.cuda_stream();
        match line {
            Line::Main => beside.wait(&main, &uses()),
            Line::Beside => beside.fork(&main),
        }
    }

    /// Notes work that was launched.
    fn end(&mut self, line: Line, uses: impl Fn() -> Vec<(Memory, Use)>) -> Result<(), Error> {
        match (line, &mut self.beside) {
            (Line::Beside, Some(beside)) => beside.note(&uses()),
            _ => Ok(()),
        }
    }
}

/// The elements of an input.
enum Source<'a> {
    Lent(&'a View<'a>),
    Own(View<'a>),
}

fn tensors<'a>(views: &'a [Source<'a>], node: &Node) -> Result<Vec<cuda::Tensor<'a>>, Error> {
    let tensor = |(view, input): (&'a Source<'a>, &Operand)| match view {
        Source::Lent(view) => view.tensor(&input.shape),
        Source::Own(view) => view.tensor(&input.shape),
    };
    views.iter().zip(&node.inputs).map(tensor).collect()
}

fn code(activation: Activation) -> network::Activation {
    match activation {
        Activation::Silu => network::Activation::Silu,
        Activation::Relu => network::Activation::Relu,
    }
}
