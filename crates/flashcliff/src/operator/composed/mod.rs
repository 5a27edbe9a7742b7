//! Operators that are graphs of others: derivatives of the operators with matrix products over channels.
//!
//! Such an operator states itself as a [`graph`] of multilinear forms and of operators of lanes, both of which are
//! closed under derivatives. [`memory`] places the values of a graph, and [`run`] computes them. `cuda` does so on a
//! GPU, by operators of these steps.

#[cfg(feature = "cuda")]
mod cuda;
mod graph;
mod memory;
mod run;

use std::sync::{Arc, OnceLock};

use flashcliff_program::ir::Program;

use super::{
    Cost, Derivative, Dims, Given, Implementation, Kind, LaneOperator, Pass, Specs, TensorSpec,
};
use crate::programs::Known;
use crate::tensor::Tensor;
use crate::{Algebra, Element, Error, Tier, sizes};
use graph::{Form, Step};
pub(super) use graph::{Graph, Side, ValueId};
use run::dims_of;

/// A graph as an operator.
#[derive(Clone, Debug)]
pub(crate) struct Composed {
    graph: Arc<Graph>,
    /// The gradient, once something has asked for it.
    gradient: Arc<OnceLock<Composed>>,
}

impl Composed {
    /// The derivative of an operator with matrix products over channels. `state` adds the operator to a graph, from the values of its
    /// inputs, and returns the value of its output.
    pub(super) fn derivative_of(
        of: &impl Implementation,
        algebra: Algebra,
        state: impl FnOnce(&mut Graph, &[ValueId]) -> Result<ValueId, Error>,
        derivative: Derivative,
    ) -> Result<Kind, Error> {
        let (inputs, outputs) = of.specs();
        let mut graph = Graph::default();
        let inputs: Vec<ValueId> = inputs.iter().map(|spec| graph.argument(spec)).collect();
        let output = state(&mut graph, &inputs)?;
        for spec in outputs {
            graph.result(output, spec);
        }
        Self::new(graph).derivative(algebra, derivative)
    }

    fn new(graph: Graph) -> Self {
        Self {
            graph: Arc::new(graph),
            gradient: Arc::default(),
        }
    }

    pub(crate) fn gradient(&self) -> Self {
        let made = self
            .gradient
            .get_or_init(|| Self::new(self.graph.gradient()));
        made.clone()
    }
}

impl Implementation for Composed {
    fn specs(&self) -> Specs {
        let specs = |tensors: &[(usize, TensorSpec)]| {
            let specs = tensors.iter().map(|(_, spec)| spec.clone());
            specs.collect()
        };
        (specs(&self.graph.arguments), specs(&self.graph.results))
    }

    fn cost(&self, dims: &Dims) -> Cost {
        let of_step = |step: &Step| match step {
            Step::Lanes { of, side, .. } => of.flops(&dims_of(*side, dims)),
            Step::Form(Form { of, by, .. }) => {
                let cost = of.cost(dims);
                match *by == of.inputs().len() {
                    true => cost.forward,
                    false => cost.backward / of.inputs().len().max(1),
                }
            }
            Step::Add { output, .. } => memory::len(&self.graph, *output, dims),
            Step::Zero { .. } | Step::Copy { .. } => 0,
        };
        let forward = sizes::sum(self.graph.steps.iter().map(of_step));
        // Each step has a gradient by each of its inputs, of which there are about two.
        Cost {
            forward,
            backward: sizes::product([2, forward]),
        }
    }

    fn derivative(&self, _: Algebra, derivative: Derivative) -> Result<Kind, Error> {
        Ok(Kind::Composed(match derivative {
            Derivative::Gradient => self.gradient(),
            Derivative::Tangent => Self::new(self.graph.tangent()),
        }))
    }

    fn run<T: Element>(
        &self,
        tier: Tier,
        dims: &Dims,
        inputs: &[Tensor<'_, T>],
        outputs: &mut [Option<&mut [T]>],
        _: &mut [T],
        workspace: &mut [T],
    ) -> Result<(), Error> {
        run::run(&self.graph, tier, dims, inputs, outputs, workspace)
    }

    fn backward<T: Element>(
        &self,
        tier: Tier,
        dims: &Dims,
        given: &Given<'_, T>,
        grads: &mut [Option<&mut [T]>],
        workspace: &mut [T],
    ) -> Result<(), Error> {
        let inputs = [given.inputs, &[given.grad_output]].concat();
        let graph = self.gradient().graph;
        run::run(&graph, tier, dims, &inputs, grads, workspace)
    }

    /// A backward pass is a run of the gradient.
    fn workspace_len<T: Element>(&self, tier: Tier, dims: &Dims, pass: Pass) -> usize {
        match pass {
            Pass::Forward => run::workspace_len::<T>(&self.graph, tier, dims),
            // A pass that there is no room for is an error where it is to run.
            Pass::Backward if self.check_backward().is_err() => 0,
            Pass::Backward => run::workspace_len::<T>(&self.gradient().graph, tier, dims),
        }
    }

    fn has_matrix_products(&self) -> bool {
        true
    }

    /// Whether an operator of lanes among the steps is interpreted.
    fn is_interpreted<T: Element>(&self, algebra: Algebra, tier: Tier) -> bool {
        let mut steps = self.graph.steps.iter();
        steps.any(
            |step| matches!(step, Step::Lanes { of, .. } if of.is_interpreted::<T>(algebra, tier)),
        )
    }

    fn check_room(&self) -> Result<(), String> {
        let mut steps = self.graph.steps.iter();
        steps.try_for_each(|step| match step {
            Step::Lanes { of, .. } => of.check_room(),
            _ => Ok(()),
        })
    }

    fn check_backward(&self) -> Result<(), String> {
        self.gradient().check_room()
    }

    fn selecting(&self, wanted: &[bool]) -> Option<Kind> {
        Some(Kind::Composed(Self::new(self.graph.selecting(wanted))))
    }
}

/// The operator of a program in a graph.
pub(super) fn lane(algebra: Algebra, program: Program) -> LaneOperator {
    LaneOperator::of(Known::of(program, algebra.is_compiled()))
}
