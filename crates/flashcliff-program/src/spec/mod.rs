//! The specification: the algebras, and what is compiled for them.
//!
//! An operator is written once, in its file in [`operators`](crate::operators). Its gradient, its kernels and its flop counts are derived.
//!
//! * `algebras` - the algebras that are shipped.
//! * `multivector`, `norms` - what programs of operators are written in.
//! * `parts` - programs around matrix products, and between operators.
//! * `table` - programs by name and grades.

mod algebras;
mod group;
mod multivector;
mod norms;
mod parts;
mod second_order;
mod table;

use cayley::GradeSet;

use crate::ir::Program;

pub use algebras::{SHIPPED, shipped};
pub use group::Group;
pub use multivector::Multivector;
pub(crate) use multivector::{permutation, smooth_norm};
pub(crate) use norms::{Measure, norm_of_grades, normalized_grades};
pub use parts::{PATH_PRODUCT, biased, gate_pair, gated_operand, normed, path_product, path_terms};
pub use second_order::{first_derivatives, second_derivatives};
pub use table::{find, lane_operators, operators, operators_in};

/// A program with the key by which the library looks it up.
#[derive(Clone, Debug)]
pub struct Operator {
    /// The grades of the left (or only) operand.
    pub left: GradeSet,
    /// The grades of the right operand; equal to `left` if there is no right operand.
    pub right: GradeSet,
    /// The grades of the output, if its components are blades.
    pub output: GradeSet,
    /// The forward program. Its name is the first part of the key.
    pub program: Program,
}
