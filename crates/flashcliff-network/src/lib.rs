//! Networks of Clifford-algebra operators as graphs: described once, differentiated, planned and run.
//!
//! * [`Network`] - values with shapes whose rows are open, and the nodes that compute them.
//! * [`Network::gradients`] - nodes of the same network that compute gradients; [`Keep`] says what they keep.
//! * [`Plan`] - the calls of a network for a number of rows and types, and one arena of memory.
//! * [`Cpu`] - runs a plan on slices; with the feature `cuda`, `cuda::Gpu` on a GPU.
//! * [`Plan::explain`] - what runs, with bytes and operations.
//!
//! The names of tensors, shapes and operators are those of [`flashcliff`]. Results do not depend on the number of threads, and are the same
//! bit for bit in each run.

mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod error;
mod explain;
mod gradients;
mod network;
mod plan;
mod text;
mod work;

pub use cpu::{Cpu, Number, Scales, Slices, Sources};
pub use error::Error;
pub use explain::Size;
pub use gradients::Keep;
pub use network::{Axis, Network, Value};
pub use plan::{Call, Plan};
pub use work::{Activation, Gradient, Work};
