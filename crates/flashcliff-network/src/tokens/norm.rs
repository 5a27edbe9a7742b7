//! The invariant norm of multivectors beside the layer norm of scalars, as a program.

use std::ops::Range;

use flashcliff::Algebra;
use flashcliff::program::{Id, Program, Uniform, Width};

use super::programs::{blades, magnitude, one, one_over_root, operator};
use super::{Channels, Geometry, Lanes};
use crate::Error;

/// The smallest mean of squared norms that is divided by.
pub(crate) const EPS: f64 = 0.01;
/// The number that is added to the variance of scalars.
pub(crate) const SCALAR_EPS: f64 = 1e-5;

/// The options of [`Lanes::norm`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NormOptions {
    /// The smallest mean of squared norms that is divided by. Default: 0.01.
    pub eps: f64,
    /// Whether multivectors have gains, `[channels, grades]`, and scalars, `[scalars]`. Default: neither.
    pub gains: [bool; 2],
}

impl Default for NormOptions {
    fn default() -> Self {
        Self {
            eps: EPS,
            gains: [false; 2],
        }
    }
}

impl NormOptions {
    /// The options of a norm with gains of both.
    pub fn with_gains() -> Self {
        Self {
            gains: [true; 2],
            ..Self::default()
        }
    }

    fn check(&self) -> Result<(), Error> {
        match self.eps > 0.0 && self.eps.is_finite() {
            true => Ok(()),
            false => Err(Error::Option {
                option: "eps",
                expected: "a number above 0",
                got: self.eps,
            }),
        }
    }
}

impl Lanes {
    /// The norm of GATr and L-GATr: `x / sqrt(max(mean over channels of Σ over grades |⟨reverse(x_g) x_g⟩|, eps))` of multivectors, and a layer norm
    /// of scalars without bias. With gains both are times those, in the order of [`Gains`](super::Gains). Blades with a null vector do not count, but
    /// are divided too.
    ///
    /// Sources: GATr (arXiv 2305.18415) and L-GATr (arXiv 2405.14806, section 3).
    ///
    /// # Errors
    /// [`Error::Geometry`] for channels of [vectors](Geometry::slim); [`Error::Option`] for an `eps` that is not above 0 and finite.
    pub fn norm(
        geometry: Geometry,
        channels: Channels,
        options: NormOptions,
    ) -> Result<Self, Error> {
        if channels.multivectors > 0 {
            geometry.check_multivectors("the invariant norm")?;
        }
        options.check()?;
        let algebra = geometry.algebra;
        let mut p = Program::new(
            "invariant_norm",
            "o = a x / sqrt(max(|x|^2, eps)), t = b (s - m) / d",
        );
        let all = 0..geometry.blades();
        let x = (channels.multivectors > 0).then(|| p.input("x", blades(algebra, all.clone())));
        let s = (channels.scalars > 0).then(|| p.input_of(Width::Scalars, "s", one())[0]);
        let grades = algebra.cayley().grade_count();
        let [of_multivectors, of_scalars] = options.gains;
        let gains = (of_multivectors && x.is_some()).then(|| p.param("a", grades));
        let gain = (of_scalars && s.is_some()).then(|| p.param_of(Width::Scalars, "b", 1)[0]);
        if let Some(x) = x {
            let o = multivectors(&mut p, algebra, (&x, gains.as_deref()), options.eps);
            p.output("o", blades(algebra, all), o);
        }
        if let Some(s) = s {
            let t = scalars(&mut p, s, gain);
            p.output_of(Width::Scalars, "t", one(), vec![t]);
        }
        Self::new(operator(algebra, &p)?, geometry.blades(), channels)
    }
}

/// The normalised components, grade by grade times gains.
fn multivectors(
    p: &mut Program,
    algebra: Algebra,
    (x, gains): (&[Id], Option<&[Id]>),
    eps: f64,
) -> Vec<Id> {
    let cayley = algebra.cayley();
    let grades = || (0..cayley.grade_count()).map(|grade| cayley.grade_range(grade));
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
