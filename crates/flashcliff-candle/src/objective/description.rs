//! Networks whose parameters are tensors of candle.

use std::sync::Arc;

use candle_core::{Tensor, TensorId, Var};
use candle_nn::Linear;
use flashcliff::ops::{self, LinearOptions};
use flashcliff::{Algebra, Bias, Dim, GradeSet, Operator, TensorSpec};
use flashcliff_network::{Axis, Network, Value};

use crate::Error;
use crate::init::Parameters;
use crate::op::graphs::Graphs;

/// A network that is being described, with the tensors of its parameters.
#[derive(Debug, Default)]
pub(crate) struct Description {
    pub(crate) network: Network,
    tensors: Vec<Tensor>,
    names: Vec<(TensorId, String)>,
}

/// A network with its ends, and the tensors of its parameters in their order.
#[derive(Debug)]
pub(crate) struct Described {
    pub(crate) network: Network,
    /// The prediction and its target.
    pub(crate) ends: [Value; 2],
    pub(crate) tensors: Vec<Tensor>,
    /// The graphs that samples are, if the network has relations.
    pub(crate) graphs: Option<OfGraphs>,
}

/// Samples that are graphs, each with the same relations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfGraphs {
    /// The graphs of so many samples with so many nodes each.
    pub(crate) graphs: fn(usize, usize) -> Result<Graphs, Error>,
    /// The nodes of each graph.
    pub(crate) nodes: usize,
    /// The numbers of a node, in a batch of points `[samples, nodes, numbers]`.
    pub(crate) numbers: usize,
    /// The numbers of a target, in a batch of targets `[samples, targets]`.
    pub(crate) targets: usize,
}

impl Described {
    /// A network with the variables of its parameters.
    ///
    /// # Errors
    /// [`Error::InputCount`], [`Error::Shape`], [`Error::Repeated`], [`Error::InputDevice`], [`Error::InputType`]:
    /// variables that are not the variables of the parameters.
    pub(super) fn of(
        network: &Network,
        ends: [Value; 2],
        variables: &[Var],
    ) -> Result<Self, Error> {
        let parameters = network.parameters();
        if variables.len() != parameters.len() {
            return Err(Error::InputCount {
                operator: "the parameters of a network".to_owned(),
                expected: parameters.len(),
                got: variables.len(),
            });
        }
        for (at, (var, &parameter)) in variables.iter().zip(parameters).enumerate() {
            let axes = network.shape(parameter).unwrap_or_default().iter();
            let shape: Vec<usize> = axes.map(|axis| axis.size(0)).collect();
            if var.elem_count() != shape.iter().product::<usize>() {
                return Err(Error::Shape {
                    tensor: network.name(parameter).to_owned(),
                    expected: format!("{shape:?}"),
                    got: var.dims().to_vec(),
                });
            }
            if let Some(other) = variables[..at].iter().position(|own| own.id() == var.id()) {
                let [first, second] = [parameters[other], parameter].map(|own| network.name(own));
                return Err(Error::Repeated {
                    owner: "the parameters of a network",
                    expected: "a variable for each parameter; nodes may share one parameter",
                    got: format!("one variable for `{first}` and `{second}`"),
                });
            }
            let first = &variables[0];
            super::check_place(at, var, first.device(), first.dtype())?;
        }
        Ok(Self {
            network: network.clone(),
            ends,
            tensors: variables
                .iter()
                .map(|var| var.as_tensor().clone())
                .collect(),
            graphs: None,
        })
    }
}

impl Description {
    /// A network without values, whose parameters have the names of some variables.
    pub(crate) fn new(parameters: &Parameters) -> Self {
        let variables = parameters.variables().into_iter();
        Self {
            network: Network::new(),
            tensors: Vec::new(),
            names: variables.map(|(name, var)| (var.id(), name)).collect(),
        }
    }

    /// A parameter, in the shape in which an operator sees it.
    ///
    /// # Errors
    /// [`Error::Shape`] for a tensor that is a parameter in another shape already.
    pub(crate) fn parameter(&mut self, tensor: &Tensor, shape: &[usize]) -> Result<Value, Error> {
        let known = self
            .tensors
            .iter()
            .position(|known| known.id() == tensor.id());
        if let Some(at) = known {
            let value = self.network.parameters()[at];
            let own = self.network.shape(value).unwrap_or_default();
            let own: Vec<usize> = own.iter().map(|axis| axis.size(0)).collect();
            return match own == shape {
                true => Ok(value),
                false => Err(Error::Shape {
                    tensor: self.network.name(value).to_owned(),
                    expected: format!("{own:?}"),
                    got: shape.to_vec(),
                }),
            };
        }
        let name = self.names.iter().find(|(id, _)| *id == tensor.id());
        let unnamed = format!("parameter {}", self.tensors.len());
        let name = name.map_or(unnamed.as_str(), |(_, name)| name);
        self.tensors.push(tensor.clone());
        Ok(self.network.parameter(name, shape))
    }

    /// An operator of values and then parameters, each of these with the shape in which the operator sees it. Values
    /// without rows come after values with rows.
    ///
    /// # Errors
    /// Shapes that do not fit the operator.
    pub(crate) fn operator(
        &mut self,
        operator: &Arc<Operator>,
        values: &[Value],
        parameters: &[(&Tensor, Vec<usize>)],
    ) -> Result<Value, Error> {
        let mut inputs = values.to_vec();
        for (tensor, shape) in parameters {
            inputs.push(self.parameter(tensor, shape)?);
        }
        let order = order(operator);
        let inputs: Vec<Value> = order
            .into_iter()
            .filter_map(|at| inputs.get(at).copied())
            .collect();
        Ok(self.network.shared_operator(operator, &inputs)?)
    }

    /// A linear map of the scalars of a value.
    ///
    /// # Errors
    /// A weight that is not a matrix; the errors of the core.
    pub(crate) fn linear(
        &mut self,
        algebra: Algebra,
        x: Value,
        linear: &Linear,
    ) -> Result<Value, Error> {
        let bias = match linear.bias() {
            Some(_) => Bias::Scalar,
            None => Bias::None,
        };
        let options = LinearOptions::default()
            .with_per_grade(false)
            .with_bias(bias)
            .with_grades(GradeSet::single(0));
        let operator = Arc::new(ops::mv_linear(algebra, &options)?);
        let mut parameters = vec![(linear.weight(), linear.weight().dims().to_vec())];
        parameters.extend(linear.bias().map(|bias| (bias, bias.dims().to_vec())));
        let scalars = self.network.first_blades(x, 1)?;
        self.operator(&operator, &[scalars], &parameters)
    }

    /// The points of a batch, `[rows, points, dim]`.
    pub(crate) fn points(&mut self, points: usize, dim: usize) -> Value {
        let shape = [Axis::Rows, Axis::Fixed(points), Axis::Fixed(dim)];
        self.network.input("points", &shape)
    }

    /// The network, and the tensors of its parameters in their order.
    pub(crate) fn into_parts(self) -> (Network, Vec<Tensor>) {
        (self.network, self.tensors)
    }

    /// The network that ends with a prediction of one number a row.
    pub(crate) fn finish(mut self, prediction: Value) -> Described {
        let target = self.network.input("targets", &[Axis::Rows]);
        Described {
            network: self.network,
            ends: [prediction, target],
            tensors: self.tensors,
            graphs: None,
        }
    }
}

/// The places of an operator's inputs in a list of those with rows and then those without.
fn order(operator: &Operator) -> Vec<usize> {
    let has_rows = |spec: &TensorSpec| spec.dims.contains(&Dim::Batch);
    let specs = operator.inputs().iter();
    let (mut value, mut parameter) = (0, specs.filter(|spec| has_rows(spec)).count());
    let place = |spec: &TensorSpec| {
        let next = match has_rows(spec) {
            true => &mut value,
            false => &mut parameter,
        };
        *next += 1;
        *next - 1
    };
    operator.inputs().iter().map(place).collect()
}
