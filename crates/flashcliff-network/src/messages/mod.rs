//! Networks of messages on graphs, whose nodes and edges have multivectors: CGENN's layers, and its network of charged bodies.
//!
//! * `layers` - a network that gets layers of CGENN: linear maps, gates, steerable products, norms.
//! * `convolution` - perceptrons of these layers, and the layer in which each node gets messages from its neighbours.
//! * `bodies` - a whole network, for the motion of bodies.
//!
//! Values are `[blades, nodes, channels]` and `[blades, edges, channels]`. Parameters have the names of CGENN's state dicts, the order of their elements, and the
//! shapes that operators see: a bias `[1, out, 1]` of a state dict is `[out]` here.
//!
//! Source: CGENN (arXiv 2305.11141, section 4).

mod bodies;
mod convolution;
mod layers;

pub use bodies::{Bodies, BodyEnds};
pub use convolution::{Convolution, Neighbours};
pub use layers::MessageLayers;
