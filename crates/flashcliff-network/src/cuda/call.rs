//! The launch of a call.

use std::sync::Arc;

use flashcliff::cuda::cudarc::driver::CudaStream;
use flashcliff::cuda::{self, PackedBackward, Scratch, Tensor, TensorMut, network};

use super::Run;
use super::addresses;
use super::beside::Line;
use super::related::Way;
use crate::network::Node;
use crate::work::{Activation, Gradient, Work};
use crate::{Error, Value};

impl<'a> Run<'a> {
    /// Values that a call reads.
    pub(super) fn values(&self, values: &[Value]) -> Result<Vec<Tensor<'a>>, Error> {
        values.iter().map(|&value| self.value(value)).collect()
    }

    /// Launches a call on a stream, which is that of a line.
    pub(super) fn launch(
        &mut self,
        call: usize,
        stream: &Arc<CudaStream>,
        line: Line,
    ) -> Result<(), Error> {
        let plan = self.plan;
        if let Some(calls) = plan.joined.led_by(call) {
            return self.joined(calls, stream);
        }
        if let Some(chain) = plan.chains.led_by(call) {
            return self.chain(chain, stream);
        }
        let node = plan.node(call);
        match &node.work {
            Work::Operator(own) if own.outputs().len() > 1 => self.results(node, stream, line),
            Work::Operator(_) => self.forward(call, node, stream, line),
            Work::Gather(along) => self.related(node, Way::Gather, *along, stream),
            Work::SegmentSum(along) => self.related(node, Way::Sum, *along, stream),
            Work::Join(sides) => self.along_axis(node, sides, addresses::Way::Together, stream),
            Work::Split(sides) => self.along_axis(node, sides, addresses::Way::Apart, stream),
            Work::BladesToChannels => {
                let [blades, flat] = [node.inputs[0], node.outputs[0]];
                self.beside_blades(blades, flat, addresses::Way::Together, stream)
            }
            Work::ChannelsToBlades(_) => {
                let [flat, blades] = [node.inputs[0], node.outputs[0]];
                self.beside_blades(blades, flat, addresses::Way::Apart, stream)
            }
            Work::Step(step) => self.step(call, (node, step), stream, line),
            Work::Concatenate(lens) => self.concatenate(node, lens, stream),
            Work::Gradient(gradient) => match &*gradient.of {
                Work::Operator(_) => self.backward(call, (node, gradient), stream, line),
                Work::Step(step) => self.step_back(call, (node, gradient, step), stream, line),
                Work::Concatenate(lens) => self.split(node, gradient, lens, stream),
                _ => self.gradient(node, gradient, stream),
            },
            Work::SquaredError => self.squared_error(node, stream),
            Work::ExtendBlades { .. } => {
                let (from, to) = (node.inputs[0], node.outputs[0]);
                let rest = plan.spot(from)?.len()..plan.spot(to)?.len();
                self.clear(stream, to, rest)
            }
            work => self.function(work, node, stream),
        }
    }

    /// Launches a node that is not an operator.
    fn function(&self, work: &Work, node: &Node, stream: &CudaStream) -> Result<(), Error> {
        let inputs = self.values(&node.inputs)?;
        let (device, x, o) = (self.device, inputs[0], self.result(node.outputs[0])?);
        match work {
            Work::Points => network::points(device, stream, x, o)?,
            Work::BladeNorm => network::blade_norm(device, stream, x, o)?,
            Work::Activation(kind) => network::activate(device, stream, code(*kind), x, o)?,
            Work::ScaledSum(scale) => {
                network::scaled_sum(device, stream, x, inputs.get(1).copied(), *scale, o)?;
            }
            Work::Blade(blade) => network::blade(device, stream, x, *blade, o)?,
            Work::ReverseAxes => network::reverse_axes(device, stream, x, o)?,
            // All other kinds of work have their own calls.
            _ => {}
        }
        Ok(())
    }

    /// Launches the gradient of a node that is not an operator.
    fn gradient(&self, node: &Node, gradient: &Gradient, stream: &CudaStream) -> Result<(), Error> {
        let given = self.values(&node.inputs)?;
        let device = self.device;
        for &output in &node.outputs {
            let grad = self.result(output)?;
            match &*gradient.of {
                Work::Points => network::points_backward(device, stream, given[0], grad)?,
                Work::BladeNorm => {
                    let given = [given[0], given[1], given[2]];
                    network::blade_norm_backward(device, stream, given, grad)?;
                }
                Work::Activation(kind) => {
                    let given = [given[0], given[1]];
                    network::activate_backward(device, stream, code(*kind), given, grad)?;
                }
                Work::ScaledSum(scale) => {
                    network::scaled_sum(device, stream, given[0], None, *scale, grad)?;
                }
                Work::Blade(blade) => {
                    network::blade_backward(device, stream, given[0], *blade, grad)?;
                }
                Work::ReverseAxes => network::reverse_axes(device, stream, given[0], grad)?,
                // No other node has a gradient of this kind.
                _ => {}
            }
        }
        Ok(())
    }

    fn forward(
        &mut self,
        call: usize,
        node: &Node,
        stream: &CudaStream,
        line: Line,
    ) -> Result<(), Error> {
        let (output, saved) = (self.result(node.outputs[0])?, self.result(node.outputs[1])?);
        let inputs = self.values(&node.inputs)?;
        let (saved, workspace) = (Some(saved), Some(self.workspace(line)));
        if let Some(operator) = self.operators.alone(node.origin) {
            operator.forward(stream, &inputs, output, saved, workspace)?;
        } else if let Some(number) = self.operators.number(self.plan, call) {
            let packed = self.packed()?;
            packed.forward(number, stream, &inputs, output, saved, workspace)?;
        }
        Ok(())
    }

    /// All results of an operator.
    fn results(&self, node: &Node, stream: &CudaStream, line: Line) -> Result<(), Error> {
        let Some(operator) = self.operators.alone(node.origin) else {
            return Ok(());
        };
        let mut results = Vec::with_capacity(node.outputs.len());
        for &output in &node.outputs {
            results.push(Some(self.result(output)?));
        }
        let inputs = self.values(&node.inputs)?;
        let workspace = Some(self.workspace(line));
        Ok(operator.run(stream, &inputs, &mut results, workspace)?)
    }

    fn backward(
        &mut self,
        call: usize,
        (node, gradient): (&Node, &Gradient),
        stream: &CudaStream,
        line: Line,
    ) -> Result<(), Error> {
        let count = gradient.wanted.len();
        let mut grads: Vec<Option<TensorMut<'_>>> = Vec::with_capacity(count);
        let mut results = node.outputs.iter();
        for _ in gradient.wanted.iter() {
            grads.push(None);
        }
        for (grad, _) in grads
            .iter_mut()
            .zip(&gradient.wanted)
            .filter(|(_, wanted)| **wanted)
        {
            if let Some(&result) = results.next() {
                *grad = Some(self.result(result)?);
                if self.operators.left(self.plan, call, result).is_some() {
                    self.left.push((result, call));
                }
            }
        }
        let read = self.values(&node.inputs)?;
        let given = PackedBackward {
            inputs: &read[..count],
            output: read[count],
            saved: Some(read[count + 1]),
            grad_output: read[count + 2],
            adds: gradient.adds,
        };
        let workspace = Some(self.workspace(line));
        if let Some(operator) = self.operators.alone(node.origin) {
            return backward_alone(operator, stream, given, &mut grads, workspace);
        }
        if let Some(number) = self.operators.number(self.plan, call) {
            let packed = self.packed()?;
            packed.backward(number, stream, given, &mut grads, workspace)?;
        }
        Ok(())
    }

    /// The squared error, and its gradient.
    fn squared_error(&self, node: &Node, stream: &CudaStream) -> Result<(), Error> {
        let lent = &self.lent;
        network::squared_error(
            self.device,
            stream,
            [self.value(node.inputs[0])?, self.value(node.inputs[1])?],
            (lent.error_scale, lent.adds_error),
            lent.loss_scale,
            self.result(node.outputs[0])?,
            self.result(node.outputs[1])?,
        )?;
        Ok(())
    }
}

/// The backward pass of an operator of which nothing is packed.
fn backward_alone(
    operator: &cuda::Operator,
    stream: &CudaStream,
    given: PackedBackward<'_>,
    grads: &mut [Option<TensorMut<'_>>],
    workspace: Option<Scratch<'_>>,
) -> Result<(), Error> {
    let PackedBackward {
        inputs,
        output,
        saved,
        grad_output,
        adds,
    } = given;
    let run = match adds {
        true => cuda::Operator::backward_adding,
        false => cuda::Operator::backward,
    };
    Ok(run(
        operator,
        stream,
        inputs,
        output,
        saved,
        grad_output,
        grads,
        workspace,
    )?)
}

fn code(activation: Activation) -> network::Activation {
    match activation {
        Activation::Silu => network::Activation::Silu,
        Activation::Relu => network::Activation::Relu,
    }
}
