//! Networks of Clifford-algebra operators as graphs: described once, differentiated, planned and run.
//!
//! `docs/add-a-network.md` in the repository builds one step by step; the example `store` makes a GATr, runs it and writes it
//! to a file.
//!
//! * [`Network`] - values with shapes whose rows are open, and the nodes that compute them.
//! * [`Network::gradients`] - nodes of the same network that compute gradients; [`Keep`] says what they keep.
//! * [`Network::relation`] - relations between rows, for messages on graphs; a run gives their [`Segments`].
//! * [`Network::differentiated`] - the same as a second stage, for a node of a host's graph of gradients.
//! * [`Plan`] - the calls of a network for a number of rows and types, and one arena of memory; in stages, if gradients come later.
//! * [`Cpu`] - runs a plan on slices; with the feature `cuda`, `cuda::Gpu` on a GPU. [`Plan::run_stage`] runs a stage.
//! * [`tokens`] - steps of transformers, and whole ones.
//! * [`messages`] - layers and networks of messages on graphs.
//! * [`mod@file`] - a network with its weights in a file.
//! * [`Plan::explain`] - what runs, with bytes and operations; [`Plan::explain_on`] with times of a model. On a GPU
//!   `cuda::Gpu::explain` has the names of the [kernels](Kernels) too.
//!
//! Tensors, shapes and operators have the names of [`flashcliff`]. Results do not depend on the number of threads, and are the same bit for
//! bit in each run.

mod advice;
pub mod cache;
mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod differentiated;
mod error;
mod explain;
pub mod file;
mod gradients;
mod kernels;
pub mod messages;
mod network;
mod plan;
mod relation;
pub mod scratch;
mod text;
pub mod tokens;
mod work;

pub use cpu::{Cpu, Kept, LaterSlices, Number, Room, Scales, Settled, Slices, Sources};
pub use differentiated::Differentiated;
pub use error::Error;
pub use explain::{Machine, Size};
pub use gradients::Keep;
pub use kernels::Kernels;
pub use network::{Axis, Network, Rows, Value};
pub use plan::{Call, Plan};
pub use relation::{Along, Reduction, Relation, Segments};
pub use work::{Activation, Gradient, Sides, Work};
