//! The intermediate representation: operators as programs over the blades of a multivector.

mod count;
mod differentiate;
mod digest;
mod evaluate;
mod graph;
mod node;
mod program;
mod validate;

pub use count::{Cost, cost};
pub use differentiate::differentiate;
pub use digest::Digest;
pub use evaluate::{Data, Results, RunTime, evaluate};
pub use graph::Graph;
pub use node::{Function, Id, Node, Uniform};
pub use program::{Argument, ColumnSum, LaneTensor, Output, Parameter, Program};
pub use validate::Flaw;
