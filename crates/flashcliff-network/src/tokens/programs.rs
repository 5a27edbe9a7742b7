//! What the programs of several steps share.

use std::f64::consts::PI;
use std::ops::Range;

use flashcliff::Algebra;
use flashcliff::program::{Function, Graph, Id};

/// The names of some blades.
pub(super) fn blades(algebra: Algebra, range: Range<usize>) -> Vec<String> {
    let cayley = algebra.cayley();
    range.map(|at| cayley.blade_name(at)).collect()
}

/// The name of the component of a scalar.
pub(super) fn one() -> Vec<String> {
    vec!["1".to_owned()]
}

/// The inner product of the components of two multivectors, which are those of some blades.
pub(super) fn inner(
    g: &mut Graph,
    algebra: Algebra,
    range: Range<usize>,
    [x, y]: [&[Id]; 2],
) -> Id {
    let cayley = algebra.cayley();
    let signs = range.map(|at| cayley.square_of_blade_norm(at));
    let terms: Vec<(i8, Id)> = signs
        .zip(x.iter().zip(y))
        .filter(|(sign, _)| *sign != 0)
        .map(|(sign, (&x, &y))| (sign, g.mul(x, y)))
        .collect();
    g.signed_sum(terms)
}

/// The gate of GELU in its tanh form, GELU over the value itself: `(1 + tanh(y)) / 2`, which is `sigmoid(2 y)`.
pub(super) fn gelu_tanh_gate(g: &mut Graph, x: Id) -> Id {
    let (cubic, slope) = (g.constant(0.044715), g.constant(2.0 * (2.0 / PI).sqrt()));
    let square = g.mul(x, x);
    let cube = g.mul(square, x);
    let more = g.mul(cubic, cube);
    let sum = g.add(x, more);
    let y = g.mul(slope, sum);
    g.call(Function::Sigmoid, y)
}

/// `x / sqrt(n)` as a factor: `1 / sqrt(n)`.
pub(super) fn one_over_root(g: &mut Graph, n: Id) -> Id {
    let (root, one) = (g.call(Function::Sqrt, n), g.constant(1.0));
    g.div(one, root)
}
