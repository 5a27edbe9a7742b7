//! Multivectors as a value for each blade that is not zero for sure, and the products that rotors need.

use std::collections::BTreeMap;

use cayley::{Algebra, ProductKind};

use crate::ir::{Graph, Id};

/// The values of blades, by the number of the blade.
pub(super) type Parts = BTreeMap<usize, Id>;

/// The part of some grades.
pub(super) fn graded(algebra: &Algebra, x: &Parts, grade: usize) -> Parts {
    let own = x
        .iter()
        .filter(|&(&blade, _)| algebra.grade_of(blade) == grade);
    own.map(|(&blade, &value)| (blade, value)).collect()
}

/// Every value through a function.
pub(super) fn mapped(x: &Parts, mut f: impl FnMut(Id) -> Id) -> Parts {
    x.iter().map(|(&blade, &value)| (blade, f(value))).collect()
}

/// The reverse.
pub(super) fn reversed(g: &mut Graph, algebra: &Algebra, x: &Parts) -> Parts {
    let each = x
        .iter()
        .map(|(&blade, &value)| match algebra.reverse_sign(blade) {
            -1 => (blade, g.neg(value)),
            _ => (blade, value),
        });
    each.collect()
}

/// The parts of the geometric product whose grades are kept.
pub(super) fn product(
    g: &mut Graph,
    algebra: &Algebra,
    x: &Parts,
    y: &Parts,
    kept: impl Fn(usize) -> bool,
) -> Parts {
    let mut result = Parts::new();
    for term in algebra.product(ProductKind::Geometric) {
        if let (Some(&x), Some(&y)) = (x.get(&term.left), y.get(&term.right))
            && kept(algebra.grade_of(term.output))
        {
            let product = g.mul(x, y);
            add(g, &mut result, term.output, product, term.sign);
        }
    }
    result
}

/// The scalar and the 4-vector of `x x`, or of `x reverse(x)`. Terms `x_i x_k` and `x_k x_i` are one, or none.
pub(super) fn square(g: &mut Graph, algebra: &Algebra, x: &Parts, reversed: bool) -> (Id, Parts) {
    let mut factors: BTreeMap<[usize; 3], i8> = BTreeMap::new();
    for term in algebra.product(ProductKind::Geometric) {
        let grade = algebra.grade_of(term.output);
        if (grade == 0 || grade == 4) && x.contains_key(&term.left) && x.contains_key(&term.right) {
            let sign = match reversed {
                true => algebra.reverse_sign(term.right),
                false => 1,
            };
            let (left, right) = (term.left.min(term.right), term.left.max(term.right));
            *factors.entry([left, right, term.output]).or_default() += term.sign * sign;
        }
    }
    let mut result = Parts::new();
    for ([left, right, output], factor) in factors {
        if factor != 0 {
            let product = g.mul(x[&left], x[&right]);
            let product = g.scaled(product, f64::from(factor.abs()));
            add(g, &mut result, output, product, factor);
        }
    }
    let zero = g.constant(0.0);
    (result.remove(&0).unwrap_or(zero), result)
}

fn add(g: &mut Graph, result: &mut Parts, blade: usize, term: Id, sign: i8) {
    let zero = g.constant(0.0);
    let sum = result.entry(blade).or_insert(zero);
    *sum = g.signed_sum([(1, *sum), (sign, term)]);
}
