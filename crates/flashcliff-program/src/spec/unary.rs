//! Involutions and duals: signed permutations of the components.

use cayley::{Algebra, GradeSet};

use super::multivector::Multivector;
use crate::ir::Program;

/// The reverse, the grade involution, the Clifford conjugate, the dual and the undual.
pub(super) fn involutions(algebra: &Algebra) -> Vec<Program> {
    vec![
        signs(algebra, "reverse", |blade| algebra.reverse_sign(blade)),
        signs(algebra, "grade_involution", |blade| {
            algebra.grade_involution_sign(blade)
        }),
        signs(algebra, "clifford_conjugate", |blade| {
            algebra.clifford_conjugate_sign(blade)
        }),
        permutation(algebra, "dual", |blade| algebra.dual(blade)),
        permutation(algebra, "undual", |blade| algebra.undual(blade)),
    ]
}

fn signs(algebra: &Algebra, name: &str, sign: impl Fn(usize) -> i8) -> Program {
    permutation(algebra, name, |blade| (blade, sign(blade)))
}

fn permutation(algebra: &Algebra, name: &str, image: impl Fn(usize) -> (usize, i8)) -> Program {
    let mut p = Program::new(name, format!("o = {name}(x)"));
    let full = GradeSet::full(algebra.dim());
    let x = Multivector::input(&mut p, algebra, "x", full);
    let mut o = x.clone();
    for (blade, &component) in x.components.iter().enumerate() {
        let (to, sign) = image(blade);
        o.components[to] = if sign < 0 {
            p.graph.neg(component)
        } else {
            component
        };
    }
    o.output(&mut p, algebra);
    p
}
