//! Involutions and duals: signed permutations of the components.

use cayley::{Algebra, GradeSet};

use super::multivector::Multivector;
use crate::ir::Program;

pub(super) fn reverse(name: &str, algebra: &Algebra) -> Program {
    signs(name, algebra, |blade| algebra.reverse_sign(blade))
}

pub(super) fn grade_involution(name: &str, algebra: &Algebra) -> Program {
    signs(name, algebra, |blade| algebra.grade_involution_sign(blade))
}

pub(super) fn clifford_conjugate(name: &str, algebra: &Algebra) -> Program {
    signs(name, algebra, |blade| {
        algebra.clifford_conjugate_sign(blade)
    })
}

pub(super) fn dual(name: &str, algebra: &Algebra) -> Program {
    permutation(name, algebra, |blade| algebra.dual(blade))
}

pub(super) fn undual(name: &str, algebra: &Algebra) -> Program {
    permutation(name, algebra, |blade| algebra.undual(blade))
}

fn signs(name: &str, algebra: &Algebra, sign: impl Fn(usize) -> i8) -> Program {
    permutation(name, algebra, |blade| (blade, sign(blade)))
}

fn permutation(name: &str, algebra: &Algebra, image: impl Fn(usize) -> (usize, i8)) -> Program {
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
