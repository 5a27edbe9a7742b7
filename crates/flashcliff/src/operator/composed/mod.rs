//! Operators that are graphs of others: derivatives of the operators with matrix products over channels.
//!
//! [`of`] states such an operator as a [`graph`] of multilinear forms and of operators of lanes, both of which are closed under derivatives.
//! [`memory`] places the values of a graph, and [`run`] computes them.

pub(crate) mod graph;
pub(crate) mod memory;
mod of;
mod run;

use std::sync::{Arc, OnceLock};

#[cfg(feature = "cuda")]
use super::Kind;
use super::{Cost, Dims, Operator, TensorSpec};
use crate::{Element, Error, Tier, sizes};
use graph::{Form, Graph, Step};
pub(crate) use run::dims_of;

/// A graph as an operator.
#[derive(Clone, Debug)]
pub(crate) struct Composed {
    graph: Arc<Graph>,
    /// The gradient, once something has asked for it.
    gradient: Arc<OnceLock<Composed>>,
}

impl Composed {
    /// An operator with matrix products over channels, as a graph; `None` for one that has none.
    pub(super) fn of(operator: &Operator) -> Result<Option<Self>, Error> {
        Ok(of::graph(operator)?.map(Self::new))
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

    pub(super) fn tangent(&self) -> Self {
        Self::new(self.graph.tangent())
    }

    pub(super) fn selecting(&self, wanted: &[bool]) -> Self {
        Self::new(self.graph.selecting(wanted))
    }

    pub(crate) fn graph(&self) -> &Graph {
        &self.graph
    }

    pub(super) fn specs(&self) -> (Vec<TensorSpec>, Vec<TensorSpec>) {
        let specs = |tensors: &[(usize, TensorSpec)]| {
            let specs = tensors.iter().map(|(_, spec)| spec.clone());
            specs.collect()
        };
        (specs(&self.graph.arguments), specs(&self.graph.results))
    }

    /// Checks that kernels have room for all programs.
    pub(super) fn check_room(&self) -> Result<(), String> {
        let mut steps = self.graph.steps.iter();
        steps.try_for_each(|step| match step {
            Step::Lanes { of, .. } => of.check_room(),
            _ => Ok(()),
        })
    }

    pub(super) fn cost(&self, dims: &Dims) -> Cost {
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

    /// Whether an operator of lanes among the steps is interpreted.
    pub(super) fn is_interpreted<T: Element>(&self, tier: Tier) -> bool {
        let mut steps = self.graph.steps.iter();
        steps.any(|step| matches!(step, Step::Lanes { of, .. } if of.is_interpreted::<T>(tier)))
    }
}

/// The sum of two tensors of lanes with one component, by which a GPU adds values.
#[cfg(feature = "cuda")]
pub(crate) fn sum_of_two(algebra: crate::Algebra) -> Operator {
    let mut program = flashcliff_program::ir::Program::new("sum_of_two", "o = a + b");
    let one = || vec!["1".to_owned()];
    let (a, b) = (program.input("a", one())[0], program.input("b", one())[0]);
    let sum = program.graph.add(a, b);
    program.output("o", one(), vec![sum]);
    let lane = super::LaneOperator::of(crate::programs::Known::of(program, algebra.is_compiled()));
    Operator::new("sum_of_two", algebra, Kind::Lanes(lane))
}
