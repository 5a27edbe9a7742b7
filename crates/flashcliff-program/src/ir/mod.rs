//! The intermediate representation: operators as programs over the blades of a multivector.

mod count;
mod differentiate;
mod evaluate;
mod graph;
mod node;
mod program;

pub use count::{Cost, cost};
pub use differentiate::differentiate;
pub use evaluate::{Data, Results, RunTime, evaluate};
pub use graph::Graph;
pub use node::{Function, Id, Node, Uniform};
pub use program::{Argument, ColumnSum, LaneTensor, Output, Parameter, Program};
