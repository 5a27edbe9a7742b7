//! Operators of networks of messages that are not in the table of operators, as programs: their derivatives, of every order, are derived.

use flashcliff::program::{Function, Id, Program, Uniform};
use flashcliff::{Algebra, Operator, ProgramOptions};

use crate::Error;

/// The number that is added to variances, the default of PyTorch.
const VARIANCE_EPS: f64 = 1e-5;

/// The sum over blades of squares: `[1, rows, channels]`.
pub(super) fn squares(algebra: Algebra) -> Result<Operator, Error> {
    let mut p = Program::new("squares", "o = sum over blades of x^2");
    let x = p.input("x", blades(algebra));
    let o = p.graph.dot(&x, &x);
    p.output("o", numbers(1), vec![o]);
    operator(algebra, &p)
}

/// MVN's nonlinearity: `q` where `q . k > 0`, else `q - (q . k) / (k . k + 1e-8) k`, with sums over all blades.
pub(super) fn rectified(algebra: Algebra) -> Result<Operator, Error> {
    let mut p = Program::new("rectified", "o = q - min(q . k, 0) / (k . k + 1e-8) k");
    let [q, k] = ["q", "k"].map(|name| p.input(name, blades(algebra)));
    let g = &mut p.graph;
    let (along, square, least) = (g.dot(&q, &k), g.dot(&k, &k), g.constant(1e-8));
    let square = g.add(square, least);
    let (factor, zero) = (g.div(along, square), g.constant(0.0));
    let each = |(&q, &k): (&Id, &Id)| {
        let part = g.mul(factor, k);
        let rest = g.sub(q, part);
        g.select(along, zero, q, rest)
    };
    let o = q.iter().zip(&k).map(each).collect();
    p.output("o", blades(algebra), o);
    operator(algebra, &p)
}

/// Multivectors times a number for each grade, `[grades, rows, channels]`.
pub(super) fn by_grade(algebra: Algebra) -> Result<Operator, Error> {
    let mut p = Program::new("by_grade", "o_g = f_g x_g");
    let x = p.input("x", blades(algebra));
    let factors = p.input("f", numbers(algebra.grade_count()));
    let g = &mut p.graph;
    let o = x.iter().zip(grades(algebra));
    let o = o.map(|(&x, grade)| g.mul(x, factors[grade])).collect();
    p.output("o", blades(algebra), o);
    operator(algebra, &p)
}

/// The layer norm of scalars, with factors and a bias: PyTorch's `LayerNorm`.
pub(super) fn scalar_norm(algebra: Algebra) -> Result<Operator, Error> {
    let mut p = Program::new("scalar_norm", "o = w (s - m) / sqrt(v + 1e-5) + b");
    let s = p.input("s", numbers(1))[0];
    let [weight, bias] = ["w", "b"].map(|name| p.param(name, 1)[0]);
    let sum = p.row_sum(s);
    let per_channel = p.graph.uniform(Uniform::InvChannels);
    let mean = p.graph.mul(sum, per_channel);
    let distance = p.graph.sub(s, mean);
    let square = p.graph.mul(distance, distance);
    let sum = p.row_sum(square);
    let g = &mut p.graph;
    let (variance, eps) = (g.mul(sum, per_channel), g.constant(VARIANCE_EPS));
    let variance = g.add(variance, eps);
    let root = g.call(Function::Sqrt, variance);
    let unit = g.div(distance, root);
    let scaled = g.mul(weight, unit);
    let o = g.add(scaled, bias);
    p.output("o", numbers(1), vec![o]);
    operator(algebra, &p)
}

pub(super) fn operator(algebra: Algebra, program: &Program) -> Result<Operator, Error> {
    Ok(Operator::of(algebra, program, &ProgramOptions::default())?)
}

pub(super) fn numbers(count: usize) -> Vec<String> {
    (0..count).map(|at| at.to_string()).collect()
}

fn blades(algebra: Algebra) -> Vec<String> {
    numbers(algebra.blade_count())
}

/// The grade of each blade.
fn grades(algebra: Algebra) -> impl Iterator<Item = usize> {
    (0..algebra.blade_count()).map(move |blade| algebra.cayley().grade_of(blade))
}
