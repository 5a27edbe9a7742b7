//! Gains of tokens: a factor for each grade of a multivector channel, and one for each scalar channel.
//!
//! Grades keep their own factor, so a layer with gains commutes with what it commuted with before.

use super::Channels;
use super::geometry::Geometry;
use super::stage::{Given, Gradients};
use crate::op::Scalar;
use crate::op::scratch::Buffer;

/// `x` times its gains. Parameters, as far as there are such channels: `[channels, grades]` of multivectors, `[channels]` of scalars.
#[derive(Debug)]
pub(crate) struct Gains {
    pub(super) geometry: Geometry,
    pub(super) channels: Channels,
}

impl Gains {
    pub(crate) fn new(geometry: Geometry, channels: Channels) -> Self {
        Self { geometry, channels }
    }

    /// The shapes of the parameters: multivectors, scalars.
    pub(crate) fn shapes(&self) -> Vec<Vec<usize>> {
        let Channels {
            multivectors,
            scalars,
        } = self.channels;
        let of_multivectors = (multivectors > 0).then(|| vec![multivectors, self.grades()]);
        let of_scalars = (scalars > 0).then(|| vec![scalars]);
        of_multivectors.into_iter().chain(of_scalars).collect()
    }

    pub(super) fn grades(&self) -> usize {
        self.geometry.algebra.cayley().grade_count()
    }

    /// The grade of each blade.
    pub(super) fn grades_of_blades(&self) -> Vec<usize> {
        let cayley = self.geometry.algebra.cayley();
        let of = |grade| cayley.grade_range(grade).map(move |_| grade);
        (0..cayley.grade_count()).flat_map(of).collect()
    }

    /// Splits parameters, or their gradients, into those of multivectors and those of scalars. Where there are no such channels they are empty.
    fn split<P: Default>(&self, parameters: impl IntoIterator<Item = P>) -> [P; 2] {
        let mut all = parameters.into_iter();
        let mut next = |channels| match channels {
            0 => P::default(),
            _ => all.next().unwrap_or_default(),
        };
        [
            next(self.channels.multivectors),
            next(self.channels.scalars),
        ]
    }

    pub(super) fn forward<T: Scalar>(&self, given: Given<'_, T>, x: &[T], y: &mut [T]) {
        y.copy_from_slice(x);
        self.scale(given, y);
    }

    pub(super) fn backward<T: Scalar>(
        &self,
        given: Given<'_, T>,
        x: &[T],
        g: &[T],
        to: Gradients<'_, '_, T>,
    ) {
        to.input.copy_from_slice(g);
        self.scale(given, to.input);
        let wanted = to.parameters.iter_mut().map(|to| &mut **to);
        let [of_mv, of_s] = self.split::<&mut [T]>(wanted);
        let (mv, s) = given.chunk.split(self.channels, x);
        let (g, g_s) = given.chunk.split(self.channels, g);
        if !of_mv.is_empty() {
            let (channels, grades) = (self.channels.multivectors, self.grades());
            let count = given.chunk.rows() * channels;
            let mut sums = Buffer::take(channels);
            of_mv.fill(T::zero());
            for (blade, grade) in self.grades_of_blades().into_iter().enumerate() {
                let own = blade * count..(blade + 1) * count;
                sum_of_products(&mv[own.clone()], &g[own], &mut sums);
                for (channel, &sum) in sums.iter().enumerate() {
                    of_mv[channel * grades + grade] += sum;
                }
            }
        }
        if !of_s.is_empty() {
            sum_of_products(s, g_s, of_s);
        }
    }

    /// Multiplies tokens by their gains.
    fn scale<T: Scalar>(&self, given: Given<'_, T>, x: &mut [T]) {
        let [gains, gains_s] = self.split(given.parameters.iter().copied());
        let (mv, s) = given.chunk.split_mut(self.channels, x);
        let (channels, grades) = (self.channels.multivectors, self.grades());
        let count = given.chunk.rows() * channels;
        let mut row = Buffer::take(channels);
        for (blade, grade) in self.grades_of_blades().into_iter().enumerate() {
            let of_channels = gains.chunks_exact(grades);
            for (to, gains) in row.iter_mut().zip(of_channels) {
                *to = gains[grade];
            }
            multiply(&mut mv[blade * count..(blade + 1) * count], &row);
        }
        multiply(s, gains_s);
    }
}

/// Multiplies rows by a row.
fn multiply<T: Scalar>(rows: &mut [T], by: &[T]) {
    for row in rows.chunks_exact_mut(by.len().max(1)) {
        for (x, &by) in row.iter_mut().zip(by) {
            *x *= by;
        }
    }
}

/// Writes the sum over rows of the products of two.
fn sum_of_products<T: Scalar>(x: &[T], y: &[T], to: &mut [T]) {
    to.fill(T::zero());
    let width = to.len().max(1);
    for (x, y) in x.chunks_exact(width).zip(y.chunks_exact(width)) {
        for ((to, &x), &y) in to.iter_mut().zip(x).zip(y) {
            *to += x * y;
        }
    }
}
