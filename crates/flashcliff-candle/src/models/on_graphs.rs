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
    /// So many numbers for each row of the first further set, such as the atoms among sites:
    /// `[count, others, 1]`.
    OfOthers(usize),
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
            Predicts::Vectors(count) => rows_of_targets(&mut network, Axis::Rows, count)?,
            Predicts::OfOthers(count) => rows_of_targets(&mut network, Axis::Others(0), count)?,
        };
        Ok(Described {
            network,
            ends: [own.output, target],
            tensors: own.parameters.clone(),
            graphs: Some(own.of),
        })
    }

    /// The network to its prediction with the parameters as they are now, for calls that want no
    /// gradients.
    pub(super) fn frozen(&self) -> Node {
        let own = &*self.0;
        let parameters = own.parameters.iter().map(Tensor::detach).collect();
        Node::of(own.name, own.network.clone(), own.output, parameters)
    }

    /// Predictions of samples `[samples, nodes, numbers]`: `[samples]`, or `[samples, rows
    /// numbers]`.
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
            Predicts::Vectors(count) | Predicts::OfOthers(count) => {
                let rows = output.elem_count() / count;
                let numbers = output.reshape((count, rows))?.t()?;
                // No sample says how many numbers each has.
                let each = (count * rows).checked_div(samples);
                let each = each.unwrap_or(own.of.targets);
                numbers.contiguous()?.reshape((samples, each))
            }
        }
    }
}

/// An input of so many numbers for each row of an axis, as predictions have them: `[count, rows,
/// 1]`.
fn rows_of_targets(
    network: &mut Network,
    axis: Axis,
    count: usize,
) -> std::result::Result<Value, Error> {
    let axes = [axis, Axis::Fixed(1), Axis::Fixed(count)];
    let target = network.input("targets", &axes);
    // Points as multivectors have coordinates as the prediction has them, behind a zero.
    let target = network.points(target)?;
    Ok(network.split(target, 0, &[1, count])?[1])
}
