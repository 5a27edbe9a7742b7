//! Networks of messages on graphs, whose nodes and edges have multivectors: CGENN's layers, its network of charged
//! bodies, MVN's of these, and CSMPN's on simplicial complexes.
//!
//! * `layers` - a network that gets layers of CGENN: linear maps, gates, steerable products, norms.
//! * `convolution` - perceptrons of these layers, and the layer in which each node gets messages from its neighbours.
//! * `scalars` - layers of scalars beside multivectors; `programs` - operators of these networks that the table of operators does not have.
//! * `affine` - a whole network for volumes that follows every affine map.
//! * `bodies`, `neurons` - whole networks, for the motion of bodies.
//! * `potential` - a whole network for energies and forces of atoms.
//! * `simplices` - a whole network on simplicial complexes, for volumes of hulls; `skeleton` - the same on all
//!   simplices of some points, with weights of those that are there.
//!
//! Values are `[blades, nodes, channels]` and `[blades, edges, channels]`. Parameters have the names of CGENN's state
//! dicts, the order of their elements, and the shapes that operators see: a bias `[1, out, 1]` of a state dict is
//! `[out]` here.
//!
//! Source: CGENN (arXiv 2305.11141, section 4), CSMPN (arXiv 2402.10011), MVN (arXiv 2406.04052).

mod affine;
mod bodies;
mod convolution;
mod layers;
mod neurons;
mod potential;
mod programs;
mod scalars;
mod simplices;
mod skeleton;

pub use affine::{AffineEnds, AffineHulls};
pub use bodies::{Bodies, BodyEnds};
pub use convolution::{Attributes, Convolution, Neighbours};
pub use layers::MessageLayers;
pub use neurons::MultivectorNeurons;
pub use potential::{Potential, PotentialEnds};
pub use simplices::{DIMENSIONS, SimplexEnds, SimplexRelations, SimplicialHulls};
pub use skeleton::{SIMPLEX_NUMBERS, Skeleton, SkeletonEnds};
