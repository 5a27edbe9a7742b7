//! The intermediate representation: operators as programs over the blades of a multivector.

mod added;
mod count;
mod derive;
mod differentiate;
mod digest;
mod evaluate;
mod gates;
mod graph;
mod node;
mod program;
mod rebuild;
mod shallow;
mod validate;

pub use count::{Cost, cost};
pub use derive::{gradient, tangent, tangent_along};
pub use differentiate::differentiate;
pub use digest::Digest;
pub use evaluate::{Data, Results, RunTime, evaluate};
pub use gates::{FAST_SCALE, Gate, TANH_CUBIC, TANH_SCALE, resolved};
pub use graph::Graph;
pub use node::{Function, Id, Node, Uniform, Width};
pub use program::{Argument, BatchSum, LaneTensor, Output, Parameter, Program, Returned, Total};
pub use rebuild::Vanishing;
pub use validate::Flaw;
