//! The norm of L-GATr-slim (arXiv 2512.17011): an operator of vectors and of scalars beside them, which share one root.

use flashcliff::program::{Function, Id, Program, Uniform, Width};
use flashcliff::{Error, Operator, ProgramOptions};

pub(crate) const EPS: f64 = 0.25;
/// The squares of t, x, y and z.
const METRIC: [f64; 4] = [1.0, -1.0, -1.0, -1.0];

/// `o = a x / r`, `t = b s / r`, where `r` is the root of the mean of `|x|^2` and `s^2` over all channels, plus epsilon.
pub(crate) fn program() -> Program {
    let mut p = Program::new("vectors_and_scalars", "o = a x / r, t = b s / r");
    let labels = || ["t", "x", "y", "z"].map(str::to_owned).to_vec();
    let one = || vec!["1".to_owned()];
    let x = p.input("x", labels());
    let s = p.input_of(Width::Scalars, "s", one())[0];
    let a = p.param("a", 1)[0];
    let b = p.param_of(Width::Scalars, "b", 1)[0];
    let factor = factor(&mut p, &x, s);
    let (a, b) = (p.graph.mul(factor, a), p.graph.mul(factor, b));
    let o = x.iter().map(|&x| p.graph.mul(x, a)).collect();
    let t = p.graph.mul(s, b);
    p.output("o", labels(), o);
    p.output_of(Width::Scalars, "t", one(), vec![t]);
    p
}

fn factor(p: &mut Program, x: &[Id], s: Id) -> Id {
    let g = &mut p.graph;
    let mut square = g.constant(0.0);
    for (&x, sign) in x.iter().zip(METRIC) {
        let own = g.mul(x, x);
        square = g.signed_sum([(1, square), (sign as i8, own)]);
    }
    let minus = g.neg(square);
    let (size, of_s) = (g.max(square, minus), g.mul(s, s));
    let (of_x, of_s) = (p.row_sum(size), p.row_sum(of_s));
    let g = &mut p.graph;
    let [channels, scalars] = Width::ALL.map(|width| g.uniform(Uniform::Count(width)));
    let (total, count) = (g.add(of_x, of_s), g.add(channels, scalars));
    let (mean, eps) = (g.div(total, count), g.uniform(Uniform::Eps));
    let sum = g.add(mean, eps);
    let root = g.call(Function::Sqrt, sum);
    let one = g.constant(1.0);
    g.div(one, root)
}

/// The norm as an operator.
pub(crate) fn operator() -> Result<Operator, Error> {
    let options = ProgramOptions {
        eps: EPS,
        ..ProgramOptions::default()
    };
    Operator::of("cl130".parse()?, &program(), &options)
}
