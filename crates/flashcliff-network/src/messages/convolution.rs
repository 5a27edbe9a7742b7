//! Perceptrons of CGENN's layers, and messages between neighbours.

use flashcliff::ops::{self, LinearOptions};
use flashcliff::{GradeSet, ProductKind};

use super::MessageLayers;
use super::layers::{Form, Map};
use crate::relation::{Reduction, Relation};
use crate::{Axis, Error, Network, Value};

/// The ends of edges: two relations from [edges](Axis::Edges) to nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbours {
    /// The node that an edge brings its message to: `i`.
    pub receivers: Relation,
    /// The node that an edge comes from: `j`.
    pub senders: Relation,
}

impl Neighbours {
    /// The relations of a network of graphs, its first three: the ends of edges, and the graph of each node.
    pub(super) fn in_graphs(network: &mut Network) -> Result<(Self, Relation), Error> {
        let neighbours = Self {
            receivers: network.relation("receivers", Axis::Edges, Axis::Rows)?,
            senders: network.relation("senders", Axis::Edges, Axis::Rows)?,
        };
        let graphs = network.relation("graphs", Axis::Rows, Axis::Graphs)?;
        Ok((neighbours, graphs))
    }
}

/// The scalars that messages and updates read besides nodes, if there are any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The scalars of edges, `[1, edges, edge_scalars]`.
    pub edges: Option<Value>,
    /// The scalars of nodes, `[1, nodes, node_scalars]`.
    pub nodes: Option<Value>,
    /// The factors of messages, `[1, edges, hidden]`, and the factors of their sums, `[1, nodes, hidden]`, in place of
    /// the [aggregation](Convolution::aggregation).
    pub weights: Option<[Value; 2]>,
}

/// The sizes and options of a layer of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Convolution {
    /// The channels of nodes, before and after the layer.
    pub channels: usize,
    /// The channels of messages, and of hidden layers of both perceptrons.
    pub hidden: usize,
    /// The scalars of an edge.
    pub edge_scalars: usize,
    /// The scalars of a node, which its update reads.
    pub node_scalars: usize,
    /// The layers of each perceptron, at least 1. Default: 2.
    pub layers: usize,
    /// What sums of messages are divided by. Default: the number of messages.
    pub aggregation: Reduction,
    /// Whether the result is added to the nodes. Default: yes.
    pub residual: bool,
}

impl Convolution {
    /// CGENN's layer of so many channels, without scalars.
    pub fn new(channels: usize) -> Self {
        Self {
            channels,
            hidden: channels,
            edge_scalars: 0,
            node_scalars: 0,
            layers: 2,
            aggregation: Reduction::Mean,
            residual: true,
        }
    }
}

impl MessageLayers {
    /// A perceptron of so many layers, each a linear map, a gate, a product and a norm: CGENN's `CEMLP`. The layers
    /// are `layers.0.0` to `layers.0.3`, and so on.
    ///
    /// # Errors
    /// The errors of [`Network::operator`](Network::operator).
    pub fn perceptron(
        &mut self,
        prefix: &str,
        x: Value,
        [from, hidden, to]: [usize; 3],
        layers: usize,
    ) -> Result<Value, Error> {
        let end = if layers > 1 { hidden } else { to };
        let first = self.linear(&format!("{prefix}.layers.0.0"), x, [from, end], true)?;
        self.behind_first(prefix, first, [hidden, to], layers)
    }

    /// The layers of a perceptron after its first linear map.
    pub(super) fn behind_first(
        &mut self,
        prefix: &str,
        first: Value,
        [hidden, to]: [usize; 2],
        layers: usize,
    ) -> Result<Value, Error> {
        let mut x = first;
        for layer in 0..layers.max(1) {
            let own = |part: usize| format!("{prefix}.layers.{layer}.{part}");
            let channels = if layer + 1 < layers { hidden } else { to };
            if layer > 0 {
                x = self.linear(&own(0), x, [hidden, channels], true)?;
            }
            x = self.silu(&own(1), x, channels)?;
            x = self.product(&own(2), x, channels)?;
            x = self.norm(&own(3), x, channels)?;
        }
        Ok(x)
    }

    /// Messages between neighbours: CGENN's `EGCL`.
    ///
    /// ```text
    /// m_e = edge_model([h_i - h_j, a_e]),  h_i' = h_i + node_model([h_i, mean over edges e to i of m_e, b_i])
    /// ```
    ///
    /// The scalars `a` of edges and `b` of nodes are [`Attributes`]. The first linear map of the edges acts on nodes,
    /// of which there are fewer.
    ///
    /// # Errors
    /// [`Error::Count`] for scalars that are there without channels, or the other way round; the errors of
    /// [`Network::operator`](Network::operator) and of [`Network::difference`](Network::difference).
    pub fn convolution(
        &mut self,
        prefix: &str,
        h: Value,
        (neighbours, scalars): (&Neighbours, Attributes),
        options: &Convolution,
    ) -> Result<Value, Error> {
        let Convolution {
            channels,
            hidden,
            layers,
            ..
        } = *options;
        check(prefix, "edges", scalars.edges, options.edge_scalars)?;
        check(prefix, "nodes", scalars.nodes, options.node_scalars)?;
        let edges = format!("{prefix}.edge_model");
        let first = self.first_of_edges(&edges, h, (neighbours, scalars.edges), options)?;
        let message = self.behind_first(&edges, first, [hidden; 2], layers)?;
        let (receivers, by) = (neighbours.receivers, options.aggregation);
        let aggregated = match scalars.weights {
            None => self.network.segment_sum(message, receivers, by)?,
            Some([of_edges, of_nodes]) => {
                let message = self.scaled(of_edges, message)?;
                let sum = self
                    .network
                    .segment_sum(message, receivers, Reduction::Sum)?;
                self.scaled(of_nodes, sum)?
            }
        };
        let both = self.network.join(&[h, aggregated], 2)?;
        let nodes = format!("{prefix}.node_model");
        let end = if layers > 1 { hidden } else { channels };
        let own = (scalars.nodes, options.node_scalars);
        let first =
            self.beside_scalars(&nodes, (both, channels + hidden), own, end, |_, x| Ok(x))?;
        let update = self.behind_first(&nodes, first, [hidden, channels], layers)?;
        match options.residual {
            true => self.network.scaled_sum([h, update], 1.0),
            false => Ok(update),
        }
    }

    /// Multivectors times scalars, channel by channel.
    pub(super) fn scaled(&mut self, scalars: Value, x: Value) -> Result<Value, Error> {
        let grades = Some(GradeSet::single(0));
        let product = ops::product(self.algebra(), ProductKind::Geometric, grades, None)?;
        self.network.operator(&product, &[scalars, x])
    }

    /// The first linear map of the perceptron of edges: `W (h_i - h_j) + V a_e + b`.
    fn first_of_edges(
        &mut self,
        prefix: &str,
        h: Value,
        (neighbours, scalars): (&Neighbours, Option<Value>),
        options: &Convolution,
    ) -> Result<Value, Error> {
        let ends = [neighbours.receivers, neighbours.senders];
        let own = (scalars, options.edge_scalars);
        let [from, to] = [options.channels, options.hidden];
        if scalars.is_none() {
            let difference = self.network.difference(h, ends)?;
            return self.beside_scalars(prefix, (difference, from), own, to, |_, x| Ok(x));
        }
        self.beside_scalars(prefix, (h, from), own, to, |network, x| {
            network.difference(x, ends)
        })
    }

    /// The first linear map of a perceptron of multivectors and scalars, the columns of whose weight for scalars are
    /// another map: `t(W x) + V a + b`. `along` takes what the first map gives to the rows of the scalars.
    fn beside_scalars(
        &mut self,
        prefix: &str,
        (x, from): (Value, usize),
        (scalars, count): (Option<Value>, usize),
        to: usize,
        along: impl FnOnce(&mut Network, Value) -> Result<Value, Error>,
    ) -> Result<Value, Error> {
        let name = format!("{prefix}.layers.0.0");
        let Some(scalars) = scalars else {
            return self.linear(&name, x, [from, to], true);
        };
        let weight = self.weight(&name, [from + count, to], true);
        let bias = self.bias(&name, to);
        let parts = self.network.split(weight, 1, &[from, count])?;
        let of_multivectors = Map {
            weight: parts[0],
            bias: None,
            form: Form::PerGrade,
        };
        let mapped = self.mapped(x, &of_multivectors)?;
        let mapped = along(&mut self.network, mapped)?;
        let grades = [1, self.algebra().grade_count() - 1];
        let of_scalars = self.network.split(parts[1], 2, &grades)?[0];
        let options = LinearOptions::default().with_grades(GradeSet::single(0));
        let map = ops::mv_linear(self.algebra(), &options)?;
        let own = self.network.operator(&map, &[scalars, of_scalars, bias])?;
        let own = self
            .network
            .extend_blades(own, self.algebra().blade_count())?;
        self.network.scaled_sum([mapped, own], 1.0)
    }
}

/// Checks that scalars are there if they have channels, and only then.
fn check(prefix: &str, of: &str, scalars: Option<Value>, count: usize) -> Result<(), Error> {
    match scalars.is_some() == (count > 0) {
        true => Ok(()),
        false => Err(Error::Count {
            node: format!("{prefix}: scalars of {of}"),
            expected: usize::from(count > 0).to_string(),
            got: usize::from(scalars.is_some()),
        }),
    }
}
