//! Operands and lines of launches, which both passes share.

use std::sync::Arc;

use flashcliff::cuda::cudarc::driver::CudaStream;
use flashcliff::cuda::{self, network};

use super::super::branches::{Memory, Use};
use super::super::plan::{Activation, Holder, Node, Operand, Plan};
use super::OnGpu;
use super::beside::Line;
use super::buffers::view;
use crate::Error;
use crate::op::gpu::memory::{View, misplaced};

/// The elements of the tensors that a pass reads.
pub(super) struct Given<'a> {
    pub(super) batch: &'a [View<'a>],
    pub(super) parameters: &'a [View<'a>],
}

impl OnGpu {
    /// Views of the buffers that inputs of a node are in; `None` for those that tensors hold.
    pub(super) fn inputs<'a>(
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
    pub(super) fn line(&self, may_fork: bool) -> Line {
        match may_fork && self.forks {
            true => Line::Beside,
            false => Line::Main,
        }
    }

    /// The stream of a line.
    pub(super) fn stream(&self, line: Line) -> Result<Arc<CudaStream>, Error> {
        match (line, &self.beside) {
            (Line::Main, _) => Ok(self.device.cuda_stream()),
            (Line::Beside, Some(beside)) => Ok(beside.stream().clone()),
            (Line::Beside, None) => Err(misplaced("objective")),
        }
    }

    /// Orders work behind what it must come behind.
    pub(super) fn begin(
        &mut self,
        line: Line,
        uses: impl Fn() -> Vec<(Memory, Use)>,
    ) -> Result<(), Error> {
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
    pub(super) fn end(
        &mut self,
        line: Line,
        uses: impl Fn() -> Vec<(Memory, Use)>,
    ) -> Result<(), Error> {
        match (line, &mut self.beside) {
            (Line::Beside, Some(beside)) => beside.note(&uses()),
            _ => Ok(()),
        }
    }
}

/// The elements of an input.
pub(super) enum Source<'a> {
    Lent(&'a View<'a>),
    Own(View<'a>),
}

pub(super) fn tensors<'a>(
    views: &'a [Source<'a>],
    node: &Node,
) -> Result<Vec<cuda::Tensor<'a>>, Error> {
    let tensor = |(view, input): (&'a Source<'a>, &Operand)| match view {
        Source::Lent(view) => view.tensor(&input.shape),
        Source::Own(view) => view.tensor(&input.shape),
    };
    views.iter().zip(&node.inputs).map(tensor).collect()
}

pub(super) fn code(activation: Activation) -> network::Activation {
    match activation {
        Activation::Silu => network::Activation::Silu,
        Activation::Relu => network::Activation::Relu,
    }
}
