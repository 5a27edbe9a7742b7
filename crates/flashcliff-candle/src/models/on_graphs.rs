//! Networks whose samples are graphs, with their parameters.

use std::sync::{Arc, OnceLock};

use candle_core::{Result, Tensor};
use candle_nn::VarBuilder;
use flashcliff_network::cache::Cache;
use flashcliff_network::messages::MessageLayers;
use flashcliff_network::{Axis, Network, Value};

use super::parameters_of;
use crate::Error;
use crate::objective::description::{Described, OfGraphs};
use crate::op::graphs::Graphs;
use crate::op::network::{Around, Node};

/// The prediction of a network for a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Predicts {
    /// A number: `[1, graphs, 1]`.
    Number,
    /// A vector of so many dimensions for each node: `[dim, nodes, 1]`.
    Vectors(usize),
}

/// A network whose samples are graphs: the input of nodes, the prediction, and the graphs that samples are.
#[derive(Clone, Debug)]
pub(super) struct OnGraphs(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: &'static str,
    network: Network,
    output: Value,
    predicts: Predicts,
    of: OfGraphs,
    parameters: Vec<Tensor>,
    node: OnceLock<Node>,
    /// The graphs of batches, by their samples and the nodes of each.
    graphs: Cache<[usize; 2], Graphs>,
}

impl OnGraphs {
    /// A network of messages with parameters from `vb`.
    ///
    /// # Errors
    /// The errors of the builder.
    pub(super) fn new(
        name: &'static str,
        layers: MessageLayers,
        (output, predicts): (Value, Predicts),
        of: OfGraphs,
        vb: &VarBuilder,
    ) -> std::result::Result<Self, Error> {
        Ok(Self(Arc::new(Inner {
            name,
            parameters: parameters_of(&layers, vb)?,
            network: layers.network,
            output,
            predicts,
            of,
            node: OnceLock::new(),
            graphs: Cache::default(),
        })))
    }

    /// The network, to its prediction and the target.
    pub(super) fn described(&self) -> std::result::Result<Described, Error> {
        let own = &*self.0;
        let mut network = own.network.clone();
        let target = match own.predicts {
            Predicts::Number => {
                let axes = [Axis::Fixed(1), Axis::Graphs, Axis::Fixed(1)];
                network.input("targets", &axes)
            }
            Predicts::Vectors(dim) => {
                let axes = [Axis::Rows, Axis::Fixed(1), Axis::Fixed(dim)];
                let target = network.input("targets", &axes);
                // Points as multivectors have coordinates as the prediction has them, behind a zero.
                let target = network.points(target)?;
                network.split(target, 0, &[1, dim])?[1]
            }
        };
        Ok(Described {
            network,
            ends: [own.output, target],
            tensors: own.parameters.clone(),
            graphs: Some(own.of),
        })
    }

    /// Predictions of samples `[samples, nodes, numbers]`: `[samples]`, or `[samples, nodes dim]`.
    pub(super) fn forward(&self, points: &Tensor) -> Result<Tensor> {
        let (samples, nodes, row) = points.dims3()?;
        let own = &*self.0;
        let node = own.node.get_or_init(|| {
            let (network, output) = (own.network.clone(), own.output);
            Node::of(own.name, network, output, own.parameters.clone())
        });
        let made = |&[samples, nodes]: &[usize; 2]| (own.of.graphs)(samples, nodes);
        let graphs = own.graphs.get([samples, nodes], made)?;
        let points = points.reshape((samples, nodes, 1, row))?;
        let output = node.apply(&[&points], Some(Around::of_graphs(&graphs)))?;
        match own.predicts {
            Predicts::Number => output.reshape(samples),
            Predicts::Vectors(dim) => {
                let vectors = output.reshape((dim, samples * nodes))?.t()?;
                vectors.contiguous()?.reshape((samples, nodes * dim))
            }
        }
    }
}
