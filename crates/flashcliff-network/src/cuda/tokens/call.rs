//! The launches of steps and of their gradients.

use flashcliff::cuda::cudarc::driver::CudaStream;

use super::{Given, Ready, Site, Sizes, To, to};
use crate::cuda::Run;
use crate::cuda::addresses::Guards;
use crate::cuda::beside::Line;
use crate::network::{Node, Set};
use crate::tokens::Step;
use crate::tokens::step::Input;
use crate::work::Gradient;
use crate::{Error, Value};

impl Run<'_> {
    /// The place where a step of some sizes is launched.
    pub(super) fn site(&self, sizes: Sizes, set: Set, stream: &CudaStream) -> Site<'_> {
        let mut sequences = self.lent.sequences;
        if let (Some([items, context]), Set::Context) = (&mut sequences, set) {
            *items = std::mem::take(context);
        }
        Site {
            sizes,
            device: self.device,
            stream: stream.cu_stream(),
            tables: self.tables,
            sequences,
            draw: self.lent.draw,
        }
    }

    /// The addresses of the inputs of a step, of what it keeps, and of a workspace.
    fn given<'s>(
        &'s self,
        (step, inputs): (&Step, &[Value]),
        kept: Value,
        (stream, line): (&'s CudaStream, Line),
        guards: &mut Guards<'s>,
    ) -> Result<Given, Error> {
        let mut given = Given {
            mask: (0, [1; 4]),
            kept: self.address(self.plan.spot(kept)?.memory),
            workspace: self.workspaces[line.number()].address,
            ..Given::default()
        };
        let inputs = step.inputs().into_iter().zip(inputs).enumerate();
        let is_there = |value: &Value| !self.plan.is_absent(*value);
        for (at, (input, &value)) in inputs.filter(|(_, (_, value))| is_there(value)) {
            let address = self.place(value, stream, guards)?;
            match input {
                _ if at == 0 => given.x = address,
                Input::Parameters(_) => given.parameters = address,
                Input::Tokens(_) | Input::Context(_) | Input::Rows => given.other = address,
                Input::Mask(..) => {
                    given.mask.0 = address;
                    given.mask.1.copy_from_slice(&self.plan.spot(value)?.shape);
                }
            }
        }
        Ok(given)
    }

    /// Launches a step.
    pub(in crate::cuda) fn step(
        &self,
        call: usize,
        (node, step): (&Node, &Step),
        stream: &CudaStream,
        line: Line,
    ) -> Result<(), Error> {
        let Some((site, ready)) = self.ready(call, stream) else {
            return Ok(());
        };
        if site.sizes.rows() == 0 {
            return Ok(());
        }
        let mut guards = Vec::new();
        let inputs = (step, &node.inputs[..]);
        let mut given = self.given(inputs, node.outputs[1], (stream, line), &mut guards)?;
        if let Some(sum) = self.plan.sum_before(call) {
            let [x, more] = [sum.inputs[0], sum.inputs[1]];
            let total = given.x;
            given.x = self.place(x, stream, &mut guards)?;
            given.residual = Some([self.place(more, stream, &mut guards)?, total]);
        }
        let y = self.address(self.plan.spot(node.outputs[0])?.memory);
        // SAFETY: the addresses point to values of the plan, which has the sizes of the steps; see `value` and `result`.
        unsafe { ready.forward(&site, given, y) }
    }

    /// Launches the gradient of a step.
    pub(in crate::cuda) fn step_back(
        &self,
        call: usize,
        (node, gradient, step): (&Node, &Gradient, &Step),
        stream: &CudaStream,
        line: Line,
    ) -> Result<(), Error> {
        let Some((site, ready)) = self.ready(call, stream) else {
            return Ok(());
        };
        if site.sizes.rows() == 0 {
            // Gradients of parameters are sums over rows.
            let mut outputs = node.outputs.iter();
            return outputs.try_for_each(|&output| {
                let len = self.plan.spot(output)?.len();
                self.clear(stream, output, 0..len)
            });
        }
        let count = step.read_by_gradient();
        let mut guards = Vec::new();
        let inputs = (step, &node.inputs[..count]);
        let given = self.given(inputs, node.inputs[count], (stream, line), &mut guards)?;
        let g = self.place(node.inputs[count + 1], stream, &mut guards)?;
        let mut outputs = Vec::with_capacity(node.outputs.len());
        for &output in &node.outputs {
            let spot = self.plan.spot(output)?;
            outputs.push((self.address(spot.memory), &spot.shape[..]));
        }
        let to = To {
            adds: gradient.adds,
            of_matrix: self.plan.gathered.gradient_of(call).is_some(),
            ..to(step, &gradient.wanted, &outputs)
        };
        // SAFETY: as in `step`. A gradient that is added to lies in the memory of the sum.
        unsafe { ready.backward(&site, given, g, to) }
    }

    /// The step of a call, and the place where it is launched.
    fn ready(&self, call: usize, stream: &CudaStream) -> Option<(Site<'_>, &dyn Ready)> {
        let (sizes, ready) = self.steps?.get(self.plan, call)?;
        let set = self.plan.set_of_node(self.plan.node(call).origin);
        Some((self.site(*sizes, set, stream), ready))
    }
}
