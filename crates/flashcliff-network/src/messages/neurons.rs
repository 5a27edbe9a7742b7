//! The network of charged bodies with Multivector Neurons.

use flashcliff::{ProductKind, ops};

use super::bodies::{BodyInputs, First, embedded, from};
use super::layers::{Form, Map};
use super::scalars::{Perceptron, ScalarNorm};
use super::{BodyEnds, MessageLayers, Neighbours, programs};
use crate::relation::Reduction;
use crate::work::Activation;
use crate::{Error, Value};

/// The sizes of MVN's network for the motion of charged bodies in space, with scalars beside multivectors. It
/// commutes with rotations, reflections and translations.
///
/// A linear map of the charge to scalars, one of three channels (the position from the centre of the graph and the
/// velocity as vectors, the charge as a scalar) to multivectors, layers of messages, and a linear map to one channel,
/// whose vector is added to the centre. For each edge from `i` to `j`
///
/// ```text
/// v = v_linear([v_i, v_j]),  s = edge_model_s([s_i, s_j, sum over blades of v^2])
/// u = edge_model_v(v) pos_net(s), with a factor for each channel and grade
/// ```
///
/// Messages are normed and added up by the root of their number; that of none is 0. `s_j` gets
/// `update_norm_s(update_model_s(sum))`, and `v_j` gets `vec_norm(linear_out([left(sum) right(sum), sum]))`. 144,657
/// parameters by default, in the order of MVN's state dict. Nothing reads the last scalars.
///
/// Source: MVN's `NBody_MVN` (arXiv 2406.04052), with the names of its state dict.
///
/// ```
/// use flashcliff_network::messages::MultivectorNeurons;
///
/// let (layers, _) = MultivectorNeurons::default().layers()?;
/// let sizes = layers.stored_shapes().iter().map(|shape| shape.iter().product::<usize>());
/// assert_eq!(sizes.sum::<usize>(), 144_657);
/// # Ok::<(), flashcliff_network::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MultivectorNeurons {
    /// The scalars of nodes. Default: 64.
    pub scalars: usize,
    /// The channels of multivectors. Default: 16.
    pub channels: usize,
    /// The layers of messages. Default: 4.
    pub layers: usize,
}

impl Default for MultivectorNeurons {
    fn default() -> Self {
        Self {
            scalars: 64,
            channels: 16,
            layers: 4,
        }
    }
}

/// The parameters of a layer, in the order of MVN's state dict.
struct Layer {
    v_linear: Map,
    /// The perceptron of multivectors: linear maps, and both maps of each nonlinearity.
    maps: [Map; 3],
    rectifiers: [[Map; 2]; 2],
    edge_model_s: Perceptron,
    /// `left`, `right` and `out`.
    products: [Map; 3],
    update_norm: Value,
    update_model_s: Perceptron,
    pos_net: Perceptron,
    message_norm_s: ScalarNorm,
    message_norm: Value,
    update_norm_s: ScalarNorm,
}

impl MultivectorNeurons {
    /// The network with its layers, each layer of messages as a separate [block](crate::Network::block), and its ends.
    ///
    /// # Errors
    /// The errors of the nodes.
    pub fn layers(&self) -> Result<(MessageLayers, BodyEnds), Error> {
        let (mut layers, inputs) = BodyInputs::new(3)?;
        let embedding = layers.map("feature_embedding", [3, self.channels], false);
        let embedding_s = layers.dense("feature_embedding_s", [1, self.scalars], true);
        let projection = layers.map("projection", [self.channels, 1], false);
        let centre = inputs.centre(&mut layers.network)?;
        let from_centre = from(&mut layers.network, inputs.positions, centre)?;
        let numbers = (inputs.charges, [from_centre, inputs.velocities]);
        let mut v = embedded(&mut layers, &embedding, numbers, First::Vectors)?;
        let mut s = layers.mapped(inputs.charges, &embedding_s)?;
        for layer in 0..self.layers {
            layers.network.block();
            let own = self.parameters(&mut layers, &format!("model.{layer}"));
            [s, v] = self.messages(&mut layers, &own, [s, v], &inputs.neighbours)?;
        }
        layers.network.block();
        let out = layers.mapped(v, &projection)?;
        let ends = inputs.moved(&mut layers, out, centre)?;
        Ok((layers, ends))
    }

    fn parameters(&self, layers: &mut MessageLayers, prefix: &str) -> Layer {
        let (s, c) = (self.scalars, self.channels);
        let own = |name: &str| format!("{prefix}.{name}");
        let v_linear = layers.map(&own("v_linear"), [2 * c, c], true);
        let part = |at: usize| format!("{prefix}.edge_model_v.mlp.{at}");
        let mut block = |at: usize| {
            let first = layers.map(&part(at), [c; 2], false);
            let maps = ["lin1", "lin2"].map(|name| Map {
                weight: layers.weight(&format!("{}.{name}", part(at + 1)), [c; 2], false),
                bias: None,
                form: Form::OneMatrix,
            });
            (first, maps)
        };
        let [(first, one), (second, other)] = [0, 2].map(&mut block);
        let maps = [first, second, layers.map(&part(4), [c; 2], true)];
        let edge_model_s = layers.scalar_perceptron(&own("edge_model_s"), [2 * s + c, s, s]);
        let update = |name: &str| own(&format!("update_model_v.{name}"));
        let products = [("left", c), ("right", c), ("out", 2 * c)]
            .map(|(name, from)| layers.map(&update(&format!("linear_{name}")), [from, c], false));
        Layer {
            v_linear,
            maps,
            rectifiers: [one, other],
            edge_model_s,
            products,
            update_norm: layers.factors(&update("vec_norm"), c),
            update_model_s: layers.scalar_perceptron(&own("update_model_s"), [s; 3]),
            pos_net: layers
                .scalar_perceptron(&own("pos_net"), [s, s, c * layers.algebra().grade_count()]),
            message_norm_s: layers.scalar_norm(&own("mes_norm.scalar_norm"), s),
            message_norm: layers.factors(&own("mes_norm.vec_norm"), c),
            update_norm_s: layers.scalar_norm(&own("update_norm_s"), s),
        }
    }

    /// The scalars and the multivectors of nodes after the messages.
    fn messages(
        &self,
        layers: &mut MessageLayers,
        own: &Layer,
        [s, v]: [Value; 2],
        neighbours: &Neighbours,
    ) -> Result<[Value; 2], Error> {
        let algebra = layers.algebra();
        let v_e = layers.of_edges(&own.v_linear, (v, self.channels), None, neighbours)?;
        let mut u_e = v_e;
        for (map, rectifier) in own.maps.iter().zip(&own.rectifiers) {
            u_e = layers.mapped(u_e, map)?;
            let [q, k] = [
                layers.mapped(u_e, &rectifier[0])?,
                layers.mapped(u_e, &rectifier[1])?,
            ];
            let rectified = programs::rectified(algebra)?;
            u_e = layers.network.operator(&rectified, &[q, k])?;
        }
        u_e = layers.mapped(u_e, &own.maps[2])?;
        let squares = layers
            .network
            .operator(&programs::squares(algebra)?, &[v_e])?;
        let beside = Some((squares, self.channels));
        let first = layers.of_edges(&own.edge_model_s[0], (s, self.scalars), beside, neighbours)?;
        let s_e = layers.behind_dense(first, &own.edge_model_s, Activation::Relu)?;
        let factors = layers.scalars_mapped(s_e, &own.pos_net, Activation::Relu)?;
        let u_e = layers.scaled_by_grade(u_e, factors)?;
        let u_e = layers.normed(u_e, own.message_norm)?;
        let s_e = layers.scalars_normed(s_e, &own.message_norm_s)?;
        let [sums, sums_v] = [s_e, u_e].map(|messages| {
            let by = Reduction::RootCount;
            layers
                .network
                .segment_sum(messages, neighbours.receivers, by)
        });
        let (sums, sums_v) = (sums?, sums_v?);
        let new_s = layers.scalars_mapped(sums, &own.update_model_s, Activation::Relu)?;
        let new_s = layers.scalars_normed(new_s, &own.update_norm_s)?;
        let [left, right, out] = &own.products;
        let factors = [layers.mapped(sums_v, left)?, layers.mapped(sums_v, right)?];
        let product = ops::product(algebra, ProductKind::Geometric, None, None)?;
        let product = layers.network.operator(&product, &factors)?;
        let both = layers.network.join(&[product, sums_v], 2)?;
        let new_v = layers.mapped(both, out)?;
        let new_v = layers.normed(new_v, own.update_norm)?;
        Ok([
            layers.network.scaled_sum([s, new_s], 1.0)?,
            layers.network.scaled_sum([v, new_v], 1.0)?,
        ])
    }
}
