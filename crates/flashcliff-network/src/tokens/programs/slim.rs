//! The programs of L-GATr-slim: what lies between linear maps and attention.
//!
//! Their expressions have the same order as in the Python package (`compat/lgatr/layers/slim_operators.py`), so that
//! both find the same kernels.

use flashcliff::cayley::Algebra;
use flashcliff::program::{Id, Program, Uniform, Width};

use super::gate::GateFunction;
use super::parts::{self, inner, magnitude, one, one_over_root};

/// The number that is added to the mean squares of norms.
const EPS: f64 = 0.01;

/// The norm, with gains or without.
pub(crate) fn norm(algebra: &Algebra, has_gains: bool) -> Program {
    let mut p = Program::new("slim_norm", "o = a x / r, t = b s / r");
    let x = p.input("x", blades(algebra));
    let s = p.input_of(Width::Scalars, "s", one())[0];
    let gains = has_gains.then(|| [p.param("a", 1)[0], p.param_of(Width::Scalars, "b", 1)[0]]);
    let size = magnitude(&mut p.graph, algebra, algebra.grade_range(1), &x);
    let of_s = p.graph.mul(s, s);
    let (of_x, of_s) = (p.row_sum(size), p.row_sum(of_s));
    let g = &mut p.graph;
    let total = g.add(of_x, of_s);
    let [channels, scalars] = Width::ALL.map(|width| g.uniform(Uniform::Count(width)));
    let count = g.add(channels, scalars);
    let (mean, eps) = (g.div(total, count), g.constant(EPS));
    let sum = g.add(mean, eps);
    let scale = one_over_root(g, sum);
    let mut times = |gain: Option<Id>, values: &[Id]| -> Vec<Id> {
        let scale = gain.map_or(scale, |gain| g.mul(scale, gain));
        values.iter().map(|&value| g.mul(value, scale)).collect()
    };
    let [a, b] = gains.map_or([None; 2], |gains| gains.map(Some));
    let (o, t) = (times(a, &x), times(b, &[s]));
    outputs(&mut p, algebra, [o, t]);
    p
}

/// The gated linear unit, with the functions of gates of vectors and of scalars.
pub(crate) fn unit(
    algebra: &Algebra,
    [of_vectors, of_scalars]: [GateFunction; 2],
    scale: f64,
) -> Program {
    let mut p = Program::new("slim_glu", "o = f_v(scale <a, b>) v, t = f(g) s");
    let [v, a, b] = ["v", "a", "b"].map(|name| p.input(name, blades(algebra)));
    let [s, gate] = ["s", "g"].map(|name| p.input_of(Width::Scalars, name, one())[0]);
    let g = &mut p.graph;
    let vectors = algebra.grade_range(1);
    let (product, scale) = (inner(g, algebra, vectors, [&a, &b]), g.constant(scale));
    let product = g.mul(scale, product);
    let gate_v = of_vectors.of(g, product);
    let o = v.iter().map(|&v| g.mul(v, gate_v)).collect();
    let gate_s = of_scalars.of(g, gate);
    let t = vec![g.mul(s, gate_s)];
    outputs(&mut p, algebra, [o, t]);
    p
}

fn blades(algebra: &Algebra) -> Vec<String> {
    parts::blades(algebra, algebra.grade_range(1))
}

fn outputs(p: &mut Program, algebra: &Algebra, [vectors, scalars]: [Vec<Id>; 2]) {
    p.output("o", blades(algebra), vectors);
    p.output_of(Width::Scalars, "t", one(), scalars);
}
