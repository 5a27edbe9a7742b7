//! Plans: the calls of a network for a number of rows, and where each value lies.

mod branches;
mod memory;
mod types;

use std::sync::Arc;

use flashcliff::{Dims, Dtype, Operator};

#[cfg(feature = "cuda")]
pub(crate) use branches::{Use, Uses};

use crate::Error;
use crate::network::{Extent, Maker, Network, Node, Value, sizes};
use crate::work::{Gradient, Work};

/// The memory that a value lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Memory {
    /// An input, by its number.
    Input(usize),
    /// A parameter, by its number.
    Parameter(usize),
    /// An output, by its number.
    Output(usize),
    /// The arena, from an offset in bytes up to another.
    Arena { from: usize, to: usize },
}

/// Where a value lies: at the start of some memory.
#[derive(Clone, Debug)]
pub(crate) struct Spot {
    pub(crate) memory: Memory,
    pub(crate) shape: Vec<usize>,
    pub(crate) dtype: Dtype,
}

impl Spot {
    pub(crate) fn len(&self) -> usize {
        self.shape.iter().product()
    }
}

/// A call of a plan.
#[derive(Clone, Debug)]
pub struct Call {
    /// The node of the network.
    pub(crate) node: usize,
    /// The sizes of an operator, also of the one whose gradient is computed.
    pub(crate) dims: Option<Dims>,
}

/// The calls of a network in order, with the place of each value.
///
/// Inputs, parameters and outputs lie in memory of the host. All other values lie in one arena, of [`arena_bytes`](Self::arena_bytes) bytes.
/// Values share memory if they are not needed at the same time. Nodes that no output depends on have no call.
///
/// Values between nodes have the type of the features. Parameters, outputs, what is subtracted from targets, and what shares an operator with
/// it, have the type of the model. On a GPU features may have 16 bits.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) network: Arc<Network>,
    pub(crate) rows: usize,
    pub(crate) types: [Dtype; 2],
    pub(crate) calls: Vec<Call>,
    /// The place of each value; `None` for those of nodes without a call.
    pub(crate) spots: Vec<Option<Spot>>,
    pub(crate) outputs: Vec<Value>,
    bytes: usize,
}

/// The number of elements that an operator saves, for sizes and types: those of its lanes, and of its parameters.
pub(crate) type SavedLen<'a> = dyn Fn(&Operator, &Dims, [Dtype; 2]) -> Result<usize, Error> + 'a;

impl Network {
    /// Plans the network on the CPU: the calls that compute some outputs for a number of rows, with the types of features and model.
    ///
    /// # Errors
    /// [`Error::NotComputed`] for an output that no node computes, or that lies in the memory of another; the errors of
    /// [`Operator::bind`] for a number of rows that tensors cannot have.
    pub fn plan(&self, outputs: &[Value], rows: usize, types: [Dtype; 2]) -> Result<Plan, Error> {
        let saved_len = |operator: &Operator, dims: &Dims, _| Ok(operator.saved_len(dims));
        Plan::new(self, outputs, rows, types, &saved_len, 0)
    }
}

impl Plan {
    /// Plans with a function for what operators save. Memory of a small [fork](Self::forks) is of no other value for so many calls more, so that the line
    /// does not wait for the branch at once.
    pub(crate) fn new(
        network: &Network,
        outputs: &[Value],
        rows: usize,
        types: [Dtype; 2],
        saved_len: &SavedLen<'_>,
        slack: usize,
    ) -> Result<Self, Error> {
        for &output in outputs {
            let info = network.info(output)?;
            if !matches!(info.maker, Maker::Node(_)) {
                return Err(Error::NotComputed {
                    what: "output",
                    got: info.name.clone(),
                });
            }
        }
        let network = Arc::new(network.clone());
        let mut calls = Vec::new();
        for node in needed(&network, outputs) {
            let dims = network.dims(&network.nodes[node], rows)?;
            calls.push(Call { node, dims });
        }
        let mut plan = Self {
            spots: vec![None; network.values.len()],
            network,
            rows,
            types,
            calls,
            outputs: outputs.to_vec(),
            bytes: 0,
        };
        let wide = types::wide(&plan.network);
        let shapes = plan.shapes(&wide, saved_len)?;
        plan.place(&wide, shapes, slack)?;
        Ok(plan)
    }

    /// The network.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The types of the features and of the model.
    pub fn types(&self) -> [Dtype; 2] {
        self.types
    }

    /// The outputs, in the order in which they were asked for.
    pub fn outputs(&self) -> &[Value] {
        &self.outputs
    }

    /// The bytes of the memory that values between inputs and outputs share.
    pub fn arena_bytes(&self) -> usize {
        self.bytes
    }

    /// The number of calls.
    pub fn call_count(&self) -> usize {
        self.calls.len()
    }

    /// The work of a call.
    pub fn work(&self, call: usize) -> &Work {
        &self.node(call).work
    }

    /// The sizes of the operator of a call, also of the one whose gradient is computed.
    pub fn dims(&self, call: usize) -> Option<&Dims> {
        self.calls[call].dims.as_ref()
    }

    /// The values that a call reads.
    pub fn reads(&self, call: usize) -> &[Value] {
        &self.node(call).inputs
    }

    /// The values that a call writes.
    pub fn writes(&self, call: usize) -> &[Value] {
        &self.node(call).outputs
    }

    /// The shape and the type of a value; `None` if no call needs it.
    pub fn tensor(&self, value: Value) -> Option<(&[usize], Dtype)> {
        let spot = self.spots.get(value.0)?.as_ref()?;
        Some((&spot.shape, spot.dtype))
    }

    /// The call behind which an output is complete.
    pub fn completed_by(&self, output: usize) -> Option<usize> {
        let value = *self.outputs.get(output)?;
        let writes = |call: &Call| self.network.nodes[call.node].outputs.contains(&value);
        self.calls.iter().rposition(writes)
    }

    pub(crate) fn node(&self, call: usize) -> &Node {
        &self.network.nodes[self.calls[call].node]
    }

    /// Where a value lies. Values of calls lie somewhere.
    pub(crate) fn spot(&self, value: Value) -> Result<&Spot, Error> {
        let spot = self.spots.get(value.0).and_then(Option::as_ref);
        spot.ok_or_else(|| Error::NotComputed {
            what: "plan",
            got: self.network.name(value).to_owned(),
        })
    }

    /// The shape of each value, as the calls need it.
    fn shapes(&self, wide: &[bool], saved_len: &SavedLen<'_>) -> Result<Vec<Vec<usize>>, Error> {
        let network = &self.network;
        let mut shapes: Vec<Vec<usize>> = Vec::with_capacity(network.values.len());
        for info in &network.values {
            shapes.push(match &info.extent {
                Extent::Shape(axes) => sizes(axes, self.rows),
                Extent::Saved => Vec::new(),
            });
        }
        for call in &self.calls {
            let node = &network.nodes[call.node];
            if let (Work::Operator(operator), Some(dims), [output, saved]) =
                (&node.work, &call.dims, &node.outputs[..])
            {
                let types = [self.types[usize::from(wide[output.0])], self.types[1]];
                shapes[saved.0] = vec![saved_len(operator, dims, types)?];
            }
        }
        Ok(shapes)
    }
}

impl Network {
    /// The sizes of the operator of a node, also of the one whose gradient it is.
    pub(crate) fn dims(&self, node: &Node, rows: usize) -> Result<Option<Dims>, Error> {
        let operator = match &node.work {
            Work::Operator(operator) => operator,
            Work::Gradient(Gradient { of, .. }) => match &**of {
                Work::Operator(operator) => operator,
                _ => return Ok(None),
            },
            _ => return Ok(None),
        };
        let mut shapes = Vec::new();
        for &input in &node.inputs[..operator.inputs().len()] {
            shapes.push(match &self.info(input)?.extent {
                Extent::Shape(axes) => sizes(axes, rows),
                Extent::Saved => Vec::new(),
            });
        }
        let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
        Ok(Some(operator.bind(&shapes)?))
    }
}

/// The nodes that some outputs depend on: those of parameters alone, then all others, in order.
fn needed(network: &Network, outputs: &[Value]) -> Vec<usize> {
    let mut is_needed = vec![false; network.nodes.len()];
    let mut open: Vec<Value> = outputs.to_vec();
    while let Some(value) = open.pop() {
        if let Maker::Node(node) = network.values[value.0].maker
            && !std::mem::replace(&mut is_needed[node], true)
        {
            open.extend(&network.nodes[node].inputs);
        }
    }
    let nodes = (0..network.nodes.len()).filter(|&node| is_needed[node]);
    let (first, others): (Vec<usize>, Vec<usize>) = nodes.partition(|&node| network.is_ahead(node));
    first.into_iter().chain(others).collect()
}
