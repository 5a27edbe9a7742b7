//! Gains of tokens: factors of grades of a multivector channel and of scalar channels, or of heads.
//!
//! Grades keep their own factor, so a layer with gains commutes with what it commuted with before.

use std::ops::Range;

use super::step::{Given, Gradients, ParametersMut};
use super::{Channels, Geometry};
use crate::Number;
use crate::scratch::Buffer;

/// `x` times its gains. Parameters: of grades, as far as there are such channels, `[channels, grades]` of
/// multivectors and `[channels]` of scalars; of heads `[heads]`.
#[derive(Clone, Debug)]
pub struct Gains {
    pub(crate) geometry: Geometry,
    pub(crate) channels: Channels,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Grades,
    /// A factor for each head. The number is that of the heads, which are the slowest index of channels.
    Heads(usize),
}

impl Gains {
    /// Factors of the grades of each channel, and of each scalar.
    pub fn new(geometry: Geometry, channels: Channels) -> Self {
        Self {
            geometry,
            channels,
            kind: Kind::Grades,
        }
    }

    /// A factor for each of so many heads, which have as many channels each.
    pub fn of_heads(geometry: Geometry, channels: Channels, heads: usize) -> Self {
        Self {
            geometry,
            channels,
            kind: Kind::Heads(heads),
        }
    }

    /// The number of heads; `None` for gains of grades.
    pub(crate) fn heads(&self) -> Option<usize> {
        match self.kind {
            Kind::Grades => None,
            Kind::Heads(heads) => Some(heads),
        }
    }

    /// The shapes of the parameters: multivectors, scalars; or heads.
    pub fn shapes(&self) -> Vec<Vec<usize>> {
        let Channels {
            multivectors,
            scalars,
        } = self.channels;
        match self.kind {
            Kind::Grades => {
                let of_multivectors = (multivectors > 0).then(|| vec![multivectors, self.grades()]);
                let of_scalars = (scalars > 0).then(|| vec![scalars]);
                of_multivectors.into_iter().chain(of_scalars).collect()
            }
            Kind::Heads(heads) => vec![vec![heads]],
        }
    }

    pub(crate) fn grades(&self) -> usize {
        self.geometry.algebra.cayley().grade_count()
    }

    /// The grade of each blade.
    fn grades_of_blades(&self) -> Vec<usize> {
        let cayley = self.geometry.algebra.cayley();
        let of = |grade| cayley.grade_range(grade).map(move |_| grade);
        (0..cayley.grade_count()).flat_map(of).collect()
    }

    /// For each blade and channel, and then for each scalar, the position of its gain among all parameters one after another.
    pub(crate) fn sources(&self) -> Vec<usize> {
        let Channels {
            multivectors: channels,
            scalars,
        } = self.channels;
        let grades = self.grades_of_blades().into_iter();
        match self.kind {
            Kind::Grades => {
                let count = self.grades();
                let of_blade = |grade| (0..channels).map(move |channel| channel * count + grade);
                let first = channels * count;
                let of_blades = grades.flat_map(of_blade);
                of_blades.chain(first..first + scalars).collect()
            }
            Kind::Heads(heads) => {
                let of = move |count: usize| (0..count).map(move |at| at * heads / count);
                grades
                    .flat_map(|_| of(channels))
                    .chain(of(scalars))
                    .collect()
            }
        }
    }

    /// The number of all gains.
    pub(crate) fn len(&self) -> usize {
        self.shapes().iter().map(|shape| count(shape)).sum()
    }

    pub(crate) fn forward<T: Number>(&self, given: &Given<'_, T>, y: &mut [T]) {
        y.copy_from_slice(given.x);
        self.scale(given.chunk.rows(), given.parameters.joined(), y);
    }

    pub(crate) fn backward<T: Number>(&self, given: &Given<'_, T>, g: &[T], to: Gradients<'_, T>) {
        if let Some(to) = to.x {
            to.copy_from_slice(g);
            self.scale(given.chunk.rows(), given.parameters.joined(), to);
        }
        if let Some(to) = to.parameters.map(ParametersMut::joined) {
            self.gradient(given, g, to);
        }
    }

    /// Writes the gradient of the gains.
    fn gradient<T: Number>(&self, given: &Given<'_, T>, g: &[T], to: &mut [T]) {
        to.fill(T::default());
        let sources = self.sources();
        let mut rest = &sources[..];
        let mut sums = Buffer::take(self.channels.multivectors.max(self.channels.scalars));
        self.for_each_run(given.chunk.rows(), |range, width| {
            let (own, others) = rest.split_at(width);
            rest = others;
            let sums = &mut sums[..width];
            sum_of_products(&given.x[range.clone()], &g[range], sums);
            for (&source, &sum) in own.iter().zip(&*sums) {
                to[source] += sum;
            }
        });
    }

    /// Multiplies tokens by their gains.
    pub(crate) fn scale<T: Number>(&self, rows: usize, gains: &[T], x: &mut [T]) {
        let row: Vec<T> = self.sources().iter().map(|&source| gains[source]).collect();
        let mut rest = &row[..];
        self.for_each_run(rows, |range, width| {
            let (own, others) = rest.split_at(width);
            rest = others;
            multiply(&mut x[range], own);
        });
    }

    /// Calls a function with the range and the width of the rows of each blade, and of the rows of scalars.
    fn for_each_run(&self, rows: usize, mut work: impl FnMut(Range<usize>, usize)) {
        let (channels, scalars) = (self.channels.multivectors, self.channels.scalars);
        let widths = std::iter::repeat_n(channels, self.geometry.blades());
        let mut first = 0;
        for width in widths.chain([scalars]) {
            let stop = first + rows * width;
            work(first..stop, width);
            first = stop;
        }
    }
}

fn count(shape: &[usize]) -> usize {
    shape.iter().product()
}

/// Multiplies rows by a row.
fn multiply<T: Number>(rows: &mut [T], by: &[T]) {
    for row in rows.chunks_exact_mut(by.len().max(1)) {
        for (x, &by) in row.iter_mut().zip(by) {
            *x *= by;
        }
    }
}

/// Writes the sum over rows of the products of two.
fn sum_of_products<T: Number>(x: &[T], y: &[T], to: &mut [T]) {
    to.fill(T::default());
    let width = to.len().max(1);
    for (x, y) in x.chunks_exact(width).zip(y.chunks_exact(width)) {
        for ((to, &x), &y) in to.iter_mut().zip(x).zip(y) {
            *to += x * y;
        }
    }
}
