//! The specification: the algebras, and every operator as a program.
//!
//! An operator is written once, here. Its gradient, its kernels and its flop counts are derived.

mod algebras;
mod find;
mod group;
mod layers;
mod multivector;
mod products;
mod unary;

use cayley::{Algebra, GradeSet, ProductKind};

use crate::ir::Program;
use layers::Measure;

pub use algebras::SHIPPED;
pub use find::find;
pub use group::Group;
pub use multivector::Multivector;
pub use products::{gate_pair, path_product};

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

/// The pairs of grade sets (left, right) for which products are generated.
fn grade_pairs(dim: usize) -> Vec<(GradeSet, GradeSet)> {
    let full = GradeSet::full(dim);
    let vectors = GradeSet::single(1);
    vec![
        (full, full),
        (vectors, full),
        (full, vectors),
        (vectors, vectors),
    ]
}

/// All operators of an algebra, in the order in which they are generated.
pub fn operators(algebra: &Algebra) -> Vec<Operator> {
    operators_in(algebra, &Group::ALL)
}

/// The operators of an algebra in some groups, in the order in which they are generated.
pub fn operators_in(algebra: &Algebra, groups: &[Group]) -> Vec<Operator> {
    let mut operators = lane_operators_in(algebra, groups);
    if groups.contains(&Group::FullyConnected) {
        operators.extend(fully_connected_parts(algebra));
    }
    operators
}

/// The programs of the fully connected product, around its matrix products.
fn fully_connected_parts(algebra: &Algebra) -> Vec<Operator> {
    let full = GradeSet::full(algebra.dim());
    let mut operators = Vec::new();
    let mut push = |left, right, output, program| {
        operators.push(Operator::new(left, right, output, program));
    };
    push(full, full, GradeSet::single(0), products::gate_pair());
    for path in algebra.paths() {
        let [left, output, right] = [path.left, path.output, path.right].map(GradeSet::single);
        push(left, right, output, products::path_product(algebra, path));
    }
    // These programs go grade by grade, because the product takes any grade sets.
    for grade in 0..algebra.grade_count() {
        let own = GradeSet::single(grade);
        for &measure in measures(algebra.invariant_form(grade).is_euclidean()) {
            push(own, own, own, layers::norm_of_grades(algebra, own, measure));
            push(own, own, own, layers::undo_norm(algebra, own, measure));
        }
    }
    operators
}

/// The norms that are generated: only one if both are the same.
fn measures(is_euclidean: bool) -> &'static [Measure] {
    match is_euclidean {
        true => &[Measure::Euclidean],
        false => &[Measure::Euclidean, Measure::Invariant],
    }
}

/// The operators that consist of one lane program.
pub fn lane_operators(algebra: &Algebra) -> Vec<Operator> {
    lane_operators_in(algebra, &Group::ALL)
}

fn lane_operators_in(algebra: &Algebra, groups: &[Group]) -> Vec<Operator> {
    let full = GradeSet::full(algebra.dim());
    let measures = measures(algebra.has_euclidean_norms());
    let mut operators = Vec::new();
    let mut push = |group, left, right, output, program| {
        if groups.contains(&group) {
            operators.push(Operator::new(left, right, output, program));
        }
    };
    for (left, right) in grade_pairs(algebra.dim()) {
        let output = algebra.reachable(ProductKind::Geometric, left, right);
        let program = products::sgp(algebra, left, right);
        push(Group::Layers, left, right, output, program);
        for &measure in measures {
            let program = products::sgp_norm(algebra, left, right, measure);
            push(Group::Layers, left, right, output, program);
        }
    }
    for normalize in [false, true] {
        for first_order in [false, true] {
            let program = products::steerable_product(algebra, normalize, first_order);
            push(Group::Layers, full, full, full, program);
        }
    }
    for kind in ProductKind::ALL {
        for (left, right) in grade_pairs(algebra.dim()) {
            let output = algebra.reachable(kind, left, right);
            if !output.is_empty() {
                let program = products::product(algebra, kind, left, right);
                push(Group::PlainProducts, left, right, output, program);
            }
        }
    }
    let versors = [
        (full, full),
        (GradeSet::even(algebra.dim()), GradeSet::single(1)),
    ];
    for (versor, operand) in versors {
        let output = products::sandwich_grades(algebra, versor, operand);
        let program = products::sandwich(algebra, versor, operand);
        push(Group::PlainProducts, versor, operand, output, program);
    }
    for program in unary::involutions(algebra) {
        push(Group::Layers, full, full, full, program);
    }
    for &measure in measures {
        let program = layers::norm_of_grades(algebra, full, measure);
        push(Group::Layers, full, full, full, program);
    }
    for program in layers::all(algebra) {
        push(Group::Layers, full, full, full, program);
    }
    operators
}
