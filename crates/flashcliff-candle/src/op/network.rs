//! A described network as one node of candle's graph.
//!
//! Its forward pass and its gradients are the two stages of a plan. What the second stage reads of the first lies in
//! memory of the node; all other memory is there while a stage runs. Gradients that nobody wants have no calls, and a
//! network without any keeps nothing.
//!
//! * `again` - its gradients as nodes that can be differentiated again.
//! * `cpu` - as a function on slices; [`super::gpu`] has it on GPUs.

mod again;
mod cpu;

use std::sync::{Arc, OnceLock};

use candle_core::Tensor;
use flashcliff::{Dtype, Pass};
use flashcliff_network::cache::Cache;
use flashcliff_network::{Axis, Differentiated, Network, Plan, Rows, Value};

use super::graphs::Graphs;
use super::node::{self, Argument};
use crate::Error;
use crate::layers::transformer::{Draw, Sequences};
use crate::objective::description::Description;
use crate::objective::operations::{Operations, Reports};
use crate::timeline::{self, Operation};

/// A network of a layer or a model, which is described when it is first applied. Clones share it, with its plans.
#[derive(Clone, Debug, Default)]
pub(crate) struct Applied(Arc<OnceLock<Node>>);

/// What a call of a network on tokens has besides tensors.
#[derive(Clone, Debug)]
pub(crate) struct Around {
    /// The samples, their items, and the items of their context. Hosts have samples and items as two axes.
    pub(crate) rows: Rows,
    /// The sequences of a ragged batch, and the sequences of its context.
    pub(crate) sequences: Option<(Sequences, Option<Sequences>)>,
    /// The random numbers of dropout.
    pub(crate) draw: Option<Draw>,
    /// The graphs, whose nodes are the items, if the network has relations.
    pub(crate) graphs: Option<Graphs>,
}

impl Around {
    /// The part of a call on graphs.
    pub(crate) fn of_graphs(graphs: &Graphs) -> Self {
        Self {
            rows: graphs.rows(),
            sequences: None,
            draw: None,
            graphs: Some(graphs.clone()),
        }
    }
}

/// A network with the tensors of its parameters, in the shapes that it sees.
#[derive(Debug)]
pub(crate) struct Node {
    shared: Arc<Shared>,
    parameters: Vec<(Tensor, Vec<usize>)>,
}

impl Applied {
    /// Applies the network to its inputs, differentiably. The result has the shape of the value that `describe` returns.
    pub(crate) fn apply(
        &self,
        name: &'static str,
        inputs: &[&Tensor],
        describe: impl FnOnce(&mut Description) -> Result<Value, Error>,
    ) -> Result<Tensor, Error> {
        let node = match self.0.get() {
            Some(node) => node,
            None => {
                let node = Node::new(name, describe)?;
                self.0.get_or_init(|| node)
            }
        };
        node.apply(inputs, None)
    }
}

impl Node {
    fn new(
        name: &'static str,
        describe: impl FnOnce(&mut Description) -> Result<Value, Error>,
    ) -> Result<Self, Error> {
        let mut description = Description::default();
        let output = describe(&mut description)?;
        let (network, tensors) = description.into_parts();
        Ok(Self::of(name, network, output, tensors))
    }

    /// A network with a result and the tensors of its parameters, in their order.
    pub(crate) fn of(
        name: &'static str,
        network: Network,
        output: Value,
        tensors: Vec<Tensor>,
    ) -> Self {
        let shapes = network.parameters().iter();
        let shapes = shapes.map(|&value| sizes(&network, value, 0));
        Self {
            parameters: tensors.into_iter().zip(shapes).collect(),
            shared: Arc::new(Shared {
                name,
                network,
                outputs: vec![output],
                is_gradient: false,
                derivatives: Cache::default(),
                on_cpu: Cache::default(),
                #[cfg(feature = "cuda")]
                on_gpu: Cache::default(),
            }),
        }
    }

    /// Applies the network to its inputs, differentiably.
    ///
    /// # Errors
    /// [`Error::InputCount`], [`Error::Shape`], [`Error::InputType`] and [`Error::InputDevice`]; the errors of the core.
    pub(crate) fn apply(
        &self,
        inputs: &[&Tensor],
        around: Option<Around>,
    ) -> Result<Tensor, Error> {
        let inputs = inputs.iter().map(|tensor| Argument::whole(tensor));
        let parameters = self.parameters.iter();
        let parameters = parameters.map(|(tensor, shape)| Argument::shaped(tensor, shape));
        let function = Arc::new(NetworkFunction {
            shared: self.shared.clone(),
            around,
        });
        node::apply(&function, &inputs.chain(parameters).collect::<Vec<_>>())
    }
}

/// A network as a function of its inputs and then its parameters.
#[derive(Clone, Debug)]
pub(crate) struct NetworkFunction {
    pub(super) shared: Arc<Shared>,
    pub(super) around: Option<Around>,
}

/// The part of a function that all its calls share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(super) name: &'static str,
    pub(super) network: Network,
    /// The result; or all gradients that a network computes.
    pub(super) outputs: Vec<Value>,
    /// Whether the results are gradients.
    pub(super) is_gradient: bool,
    derivatives: Cache<again::Asked, again::Derivative>,
    on_cpu: Cache<Key, Staged<Plan>>,
    #[cfg(feature = "cuda")]
    pub(super) on_gpu: Cache<super::gpu::network::Place, Staged<flashcliff_network::cuda::Gpu>>,
}

/// The key of a plan.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Key {
    pub(super) rows: Rows,
    /// The types of the features and of the model.
    pub(super) types: [Dtype; 2],
    /// For each input and parameter whether its gradient is computed.
    pub(super) wanted: Vec<bool>,
}

/// A plan of two stages, with the operations that a timeline hears of, made when there is one.
#[derive(Debug)]
pub(super) struct Staged<P> {
    pub(super) plan: P,
    /// For each input and parameter whether its gradient is computed.
    wanted: Vec<bool>,
    /// For each gradient that is computed whether the result depends on the input or parameter. All others are zeros.
    pub(super) found: Vec<bool>,
    operations: OnceLock<Operations>,
}

impl<P> Staged<P> {
    pub(super) fn new(plan: P, wanted: &[bool], found: &[bool]) -> Self {
        Self {
            plan,
            wanted: wanted.to_vec(),
            found: found.to_vec(),
            operations: OnceLock::new(),
        }
    }
}

impl NetworkFunction {
    /// The number of inputs that are no parameters.
    pub(super) fn input_count(&self) -> usize {
        self.shared.network.inputs().len()
    }

    /// The network with the gradients that are wanted.
    pub(super) fn halves(&self, wanted: &[bool]) -> Result<Differentiated, Error> {
        let Shared {
            network, outputs, ..
        } = &*self.shared;
        Ok(network.differentiated_in_part(outputs, wanted)?)
    }

    /// The rows, after a check of the shapes of all inputs.
    pub(super) fn rows(&self, shapes: &[&[usize]]) -> Result<Rows, Error> {
        let network = &self.shared.network;
        let inputs = || network.inputs().iter().zip(shapes);
        let own = |(&value, shape): (&Value, &&[usize])| {
            let axes = network.shape(value)?;
            let at = axes.iter().position(|axis| *axis == Axis::Rows)?;
            shape.get(at).copied()
        };
        let rows = match &self.around {
            Some(around) => around.rows,
            None => Rows::from(inputs().find_map(own).unwrap_or(0)),
        };
        for (&value, &shape) in inputs() {
            if self.seen_by_host(value, rows) != shape {
                return Err(Error::Shape {
                    tensor: format!("{}: {}", self.shared.name, network.name(value)),
                    expected: in_words(network.shape(value).unwrap_or_default()),
                    got: shape.to_vec(),
                });
            }
        }
        Ok(rows)
    }

    /// Runs the work of a stage for a timeline. It tells of each call of a plan before it runs; a layer of tokens is one operation instead.
    pub(super) fn reporting<P, R>(
        &self,
        (staged, plan): (&Staged<P>, &Plan),
        stage: usize,
        work: impl FnOnce(&mut dyn FnMut(usize)) -> R,
    ) -> R {
        if self.around.is_some() {
            let operation = || Arc::new(self.operation_of(plan, stage, &staged.wanted));
            return timeline::within(operation, || work(&mut |_| {}));
        }
        let operations = || staged.operations.get_or_init(|| Operations::new(plan));
        let reports = Reports(timeline::is_recording().then(operations));
        timeline::around(|| work(&mut |call| reports.call(call)))
    }

    /// A pass on tokens for a timeline, to which a layer of tokens is one operation: it moves inputs, result and
    /// parameters once, and what is kept.
    fn operation_of(&self, plan: &Plan, stage: usize, wanted: &[bool]) -> Operation {
        let Shared {
            name,
            network,
            outputs,
            is_gradient,
            ..
        } = &*self.shared;
        let (rows, [dtype, _]) = (plan.batch(), plan.types());
        let pass = match stage == 0 && !is_gradient {
            true => Pass::Forward,
            false => Pass::Backward,
        };
        let ends = network.inputs().iter().chain(network.parameters());
        let shapes: Vec<Vec<usize>> = ends.map(|&own| sizes(network, own, rows)).collect();
        let results = outputs.iter().map(|&own| sizes(network, own, rows));
        let elements = results.map(|shape| shape.iter().product::<usize>()).sum();
        let base = Operation::of_function(name, &shapes, &[elements], dtype, pass, wanted);
        let first = network.inputs().len();
        let bytes = |shape: &Vec<usize>| dtype.bytes() * shape.iter().product::<usize>();
        let parameters = || shapes.iter().zip(wanted).skip(first);
        let read: usize = parameters().map(|(shape, _)| bytes(shape)).sum();
        let written = parameters().filter(|(_, wanted)| **wanted);
        let written: usize = written.map(|(shape, _)| bytes(shape)).sum();
        let kept = plan.kept_bytes();
        let (parameter_bytes, saved_bytes) = match pass {
            Pass::Forward => (read, kept),
            Pass::Backward => (read + written, 0),
        };
        let sizes = || plan.calls(stage).map(|call| plan.size(call));
        let flops = sizes().map(|size| size.flops).sum();
        Operation {
            bytes: sizes().map(|size| size.bytes).sum(),
            parameter_bytes,
            saved_bytes,
            has_matrix_products: !network.parameters().is_empty(),
            ..base.with_flops(flops)
        }
    }

    /// The shape of the result.
    pub(super) fn result_shape(&self, rows: Rows) -> Vec<usize> {
        self.seen_by_host(self.shared.outputs[0], rows)
    }

    /// The shapes of inputs and parameters in the network.
    #[cfg(feature = "cuda")]
    pub(super) fn seen_by_network(&self, rows: Rows) -> Vec<Vec<usize>> {
        let network = &self.shared.network;
        let ends = network.inputs().iter().chain(network.parameters());
        ends.map(|&own| sizes(network, own, rows)).collect()
    }

    /// The shape of the result in the network.
    #[cfg(feature = "cuda")]
    pub(super) fn result_in_network(&self, rows: Rows) -> Vec<usize> {
        sizes(&self.shared.network, self.shared.outputs[0], rows)
    }

    /// The shape of a value of the host. Rows of tokens are two axes, samples and items.
    fn seen_by_host(&self, value: Value, rows: Rows) -> Vec<usize> {
        let axes = self.shared.network.shape(value).unwrap_or_default();
        let of_axis = |axis: &Axis| match (axis, &self.around) {
            (Axis::Rows, Some(_)) => vec![rows.samples, rows.items],
            (Axis::ContextRows, Some(_)) => vec![rows.samples, rows.context],
            _ => vec![axis.size(rows)],
        };
        axes.iter().flat_map(of_axis).collect()
    }
}

fn sizes(network: &Network, value: Value, rows: impl Into<Rows>) -> Vec<usize> {
    let rows = rows.into();
    let axes = network.shape(value).unwrap_or_default().iter();
    axes.map(|axis| axis.size(rows)).collect()
}

fn in_words(axes: &[Axis]) -> String {
    let axes: Vec<String> = axes
        .iter()
        .map(|axis| match axis {
            Axis::Rows => "batch".to_owned(),
            axis => axis.to_string(),
        })
        .collect();
    format!("[{}]", axes.join(", "))
}

#[cfg(test)]
mod tests;
