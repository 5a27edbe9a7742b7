//! The specification: the algebras, and every operator as a program.
//!
//! An operator is written once, here. Its gradient, its kernels and its flop counts are derived.

mod algebras;
mod group;
mod layers;
mod multivector;
mod products;
mod second_order;
mod table;
mod unary;

use cayley::GradeSet;

use crate::ir::Program;

pub use algebras::{SHIPPED, shipped};
pub use group::Group;
pub use multivector::Multivector;
pub use products::{
    PATH_PRODUCT, biased, gate_pair, gated_operand, normed, path_product, path_terms,
};
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

impl Operator {
    fn new(left: GradeSet, right: GradeSet, output: GradeSet, program: Program) -> Self {
        Self {
            left,
            right,
            output,
            program,
        }
    }
}
