//! CGENN's network of charged bodies.

use flashcliff::{Algebra, Signature};

use super::{Convolution, MessageLayers, Neighbours};
use crate::tokens::Start;
use crate::{Axis, Error, Network, Relation, Value};

/// The sizes of CGENN's network for the motion of bodies in space.
///
/// A linear map of three channels (the charge as a scalar, the position from the centre and the velocity as vectors), layers of messages with the product of both
/// charges, and a linear map to one channel, of which the vector is the way that a body goes. 134,625 parameters with 28 channels and three layers.
///
/// Source: CGENN, `NBodyCGGNN` (arXiv 2305.11141, section 5).
///
/// ```
/// use flashcliff_network::messages::Bodies;
///
/// let (network, ends, _) = Bodies::default().network()?;
/// let axes = network.shape(ends.way).unwrap_or_default();
/// assert_eq!(axes.iter().map(ToString::to_string).collect::<Vec<_>>(), ["3", "rows", "1"]);
/// # Ok::<(), flashcliff_network::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bodies {
    /// The channels of nodes. Default: 28.
    pub channels: usize,
    /// The layers of messages. Default: 3.
    pub layers: usize,
}

impl Default for Bodies {
    fn default() -> Self {
        Self {
            channels: 28,
            layers: 3,
        }
    }
}

/// The values at the ends of a network of bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyEnds {
    /// The input `[8, nodes, 3]`: the charge, the position and the velocity.
    pub bodies: Value,
    /// The input `[1, edges, 1]`: the product of the charges.
    pub products: Value,
    /// The bodies that edges bring messages to, and come from.
    pub neighbours: Neighbours,
    /// The output `[3, nodes, 1]`.
    pub way: Value,
}

impl Bodies {
    /// The network, with each layer as a [block](Network::block) of its own, its ends, and how its parameters start.
    ///
    /// # Errors
    /// The errors of the nodes.
    pub fn network(&self) -> Result<(Network, BodyEnds, Vec<Start>), Error> {
        let algebra = Algebra::new(Signature::of(3, 0, 0))?;
        let mut layers = MessageLayers::new(algebra);
        let network = &mut layers.network;
        let relation = |own: &mut Network, name| own.relation(name, Axis::Edges, Axis::Rows);
        let receivers: Relation = relation(network, "receivers")?;
        let neighbours = Neighbours {
            receivers,
            senders: relation(network, "senders")?,
        };
        let blades = Axis::Fixed(algebra.blade_count());
        let bodies = network.features("bodies", &[blades, Axis::Rows, Axis::Fixed(3)]);
        let products = network.features("products", &[Axis::Fixed(1), Axis::Edges, Axis::Fixed(1)]);
        let mut h = layers.linear("embedding", bodies, [3, self.channels], false)?;
        let options = Convolution {
            edge_scalars: 1,
            ..Convolution::new(self.channels)
        };
        for layer in 0..self.layers {
            layers.network.block();
            let prefix = format!("layers.{layer}");
            let beside = (&neighbours, Some(products));
            h = layers.convolution(&prefix, h, beside, &options)?;
        }
        layers.network.block();
        let way = layers.linear("projection.0", h, [self.channels, 1], true)?;
        // The scalar, the vector, and all else.
        let way = layers.network.split(way, 0, &[1, 3, 4])?[1];
        let ends = BodyEnds {
            bodies,
            products,
            neighbours,
            way,
        };
        let starts = layers.starts().to_vec();
        Ok((layers.network, ends, starts))
    }
}
