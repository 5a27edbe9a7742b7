//! The program of the invariant norm of multivectors beside the layer norm of scalars.

use std::ops::Range;

use flashcliff::cayley::Algebra;
use flashcliff::program::{Id, Program, Uniform, Width};

use super::Kinds;
use super::parts::{blades, magnitude, one, one_over_root};

/// The smallest mean of squared norms that is divided by.
pub(crate) const EPS: f64 = 0.01;
/// The number that is added to the variance of scalars.
pub(crate) const SCALAR_EPS: f64 = 1e-5;

/// The norm, with gains of multivectors and of scalars if they have some.
pub(crate) fn norm(algebra: &Algebra, kinds: Kinds, eps: f64, gains: [bool; 2]) -> Program {
    let mut p = Program::new(
        "invariant_norm",
        "o = a x / sqrt(max(|x|^2, eps)), t = b (s - m) / d",
    );
    let names = || blades(algebra, 0..algebra.blade_count());
    let x = kinds.multivectors.then(|| p.input("x", names()));
    let s = kinds
        .scalars
        .then(|| p.input_of(Width::Scalars, "s", one())[0]);
    let [of_multivectors, of_scalars] = gains;
    let grades = algebra.grade_count();
    let gains = (of_multivectors && x.is_some()).then(|| p.param("a", grades));
    let gain = (of_scalars && s.is_some()).then(|| p.param_of(Width::Scalars, "b", 1)[0]);
    if let Some(x) = x {
        let o = multivectors(&mut p, algebra, (&x, gains.as_deref()), eps);
        p.output("o", names(), o);
    }
    if let Some(s) = s {
        let t = scalars(&mut p, s, gain);
        p.output_of(Width::Scalars, "t", one(), vec![t]);
    }
    p
}

/// The normalised components, grade by grade times gains.
fn multivectors(
    p: &mut Program,
    algebra: &Algebra,
    (x, gains): (&[Id], Option<&[Id]>),
    eps: f64,
) -> Vec<Id> {
    let grades = || (0..algebra.grade_count()).map(|grade| algebra.grade_range(grade));
    let sizes = grades().map(|range| magnitude(&mut p.graph, algebra, range.clone(), &x[range]));
    let sizes: Vec<Id> = sizes.collect();
    let size = sizes.into_iter().reduce(|sum, size| p.graph.add(sum, size));
    let size = size.unwrap_or_else(|| p.graph.constant(0.0));
    let sum = p.row_sum(size);
    let g = &mut p.graph;
    let (count, eps) = (g.uniform(Uniform::Count(Width::Channels)), g.constant(eps));
    let mean = g.div(sum, count);
    let mean = g.max(mean, eps);
    let scale = one_over_root(g, mean);
    let of_grade = |(grade, range): (usize, Range<usize>)| {
        let scale = gains.map_or(scale, |gains| g.mul(scale, gains[grade]));
        x[range]
            .iter()
            .map(|&x| g.mul(x, scale))
            .collect::<Vec<Id>>()
    };
    grades().enumerate().flat_map(of_grade).collect()
}

/// A scalar minus the mean, over the deviation.
fn scalars(p: &mut Program, s: Id, gain: Option<Id>) -> Id {
    let sum = p.row_sum(s);
    let count = p.graph.uniform(Uniform::Count(Width::Scalars));
    let mean = p.graph.div(sum, count);
    let distance = p.graph.sub(s, mean);
    let square = p.graph.mul(distance, distance);
    let sum = p.row_sum(square);
    let g = &mut p.graph;
    let (variance, eps) = (g.div(sum, count), g.constant(SCALAR_EPS));
    let variance = g.add(variance, eps);
    let scale = one_over_root(g, variance);
    let scale = gain.map_or(scale, |gain| g.mul(scale, gain));
    g.mul(distance, scale)
}
