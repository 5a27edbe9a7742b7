//! What the programs of several steps share.

use std::ops::Range;

use flashcliff::cayley::Algebra;
use flashcliff::program::{Function, Graph, Id};

/// The names of some blades.
pub(super) fn blades(algebra: &Algebra, range: Range<usize>) -> Vec<String> {
    range.map(|at| algebra.blade_name(at)).collect()
}

/// The name of the component of a scalar.
pub(super) fn one() -> Vec<String> {
    vec!["1".to_owned()]
}

/// The inner product of the components of two multivectors on some blades.
pub(super) fn inner(
    g: &mut Graph,
    algebra: &Algebra,
    range: Range<usize>,
    [x, y]: [&[Id]; 2],
) -> Id {
    let signs = range.map(|at| algebra.square_of_blade_norm(at));
    let terms: Vec<(i8, Id)> = signs
        .zip(x.iter().zip(y))
        .filter(|(sign, _)| *sign != 0)
        .map(|(sign, (&x, &y))| (sign, g.mul(x, y)))
        .collect();
    g.signed_sum(terms)
}

/// The magnitude of the squared norm of components on some blades.
pub(super) fn magnitude(g: &mut Graph, algebra: &Algebra, mut range: Range<usize>, x: &[Id]) -> Id {
    let square = inner(g, algebra, range.clone(), [x, x]);
    if range.all(|at| algebra.square_of_blade_norm(at) >= 0) {
        return square;
    }
    let minus = g.neg(square);
    g.max(square, minus)
}

/// `1 / sqrt(n)`.
pub(super) fn one_over_root(g: &mut Graph, n: Id) -> Id {
    let (root, one) = (g.call(Function::Sqrt, n), g.constant(1.0));
    g.div(one, root)
}
