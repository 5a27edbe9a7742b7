//! The cost of a program, known before anything runs.

use std::ops::AddAssign;

use super::node::{Function, Node};
use super::program::Program;

/// The number of operations per lane. Row-uniform values, which are computed once a row, are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Additions, subtractions and sign changes.
    pub additions: usize,
    /// Multiplications.
    pub multiplications: usize,
    /// Divisions and square roots.
    pub divisions: usize,
    /// Sines, cosines, exponentials, sigmoids, gates and their derivatives.
    pub transcendentals: usize,
}

impl Cost {
    /// Floating-point operations: each addition, multiplication, division or function is one.
    pub fn flops(&self) -> usize {
        self.additions + self.multiplications + self.divisions + self.transcendentals
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.additions += other.additions;
        self.multiplications += other.multiplications;
        self.divisions += other.divisions;
        self.transcendentals += other.transcendentals;
    }
}

/// The cost of all live values of a program.
pub fn cost(program: &Program) -> Cost {
    let mut cost = Cost::default();
    let computed_sums = &program.row_sums[program.saved_row_sums..];
    cost.additions += computed_sums.len() + program.total_summands().count();
    cost.additions += program
        .sums
        .iter()
        .map(|sum| sum.values.len())
        .sum::<usize>();
    for id in program.graph.reachable(program.roots()) {
        if program.graph.varies(id) {
            count(&mut cost, program.graph.node(id));
        }
    }
    cost
}

fn count(cost: &mut Cost, node: Node) {
    match node {
        Node::Add(..) | Node::Sub(..) | Node::Neg(_) | Node::Max(..) | Node::Greater(..) => {
            cost.additions += 1;
        }
        Node::Mul(..) | Node::Damp(..) => cost.multiplications += 1,
        Node::Div(..) | Node::Call(Function::Sqrt, _) => cost.divisions += 1,
        // A quotient, a square, a sum, a root and a product.
        Node::Hypot(..) => {
            cost.divisions += 2;
            cost.multiplications += 2;
            cost.additions += 1;
        }
        Node::Call(..) => cost.transcendentals += 1,
        _ => {}
    }
}
