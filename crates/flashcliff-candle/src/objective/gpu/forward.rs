//! The forward pass of a node, and the error of the prediction.

use candle_core::CudaStorage;
use flashcliff::cuda::cudarc::driver::CudaSlice;
use flashcliff::cuda::{self, Packed, Scratch, TensorMut, network};

use super::super::plan::{Plan, Work};
use super::super::planned::Part;
use super::OnGpu;
use super::beside::Line;
use super::buffers::{take, view};
use super::launch::{Given, code, tensors};
use crate::Error;
use crate::op::gpu::memory::{misplaced, with_views, writable};
use crate::optim::LossScale;

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
}
